"""Compressed files are read like plain ones, and files that are not text are recognised."""

import bz2
import gzip
import io
import lzma
import tarfile

import pytest
from text_helpers import text_of

from chargpt.terminal import UserError

TEXT = "the sea and the stone\n" * 20


@pytest.mark.parametrize("name, pack", [("sea.txt.gz", gzip.compress), ("sea.xz", lzma.compress), ("sea.bz2", bz2.compress)])
def test_compressed_texts_read_like_plain_ones(name, pack, load, tmp_path):
    (tmp_path / name).write_bytes(pack(TEXT.encode()))
    (tmp_path / "plain.txt").write_text(TEXT)
    packed, plain = load(tmp_path / name), load(tmp_path / "plain.txt")
    assert text_of(packed) == TEXT and packed.fingerprint == plain.fingerprint and packed.name == "sea"
    (tmp_path / name).write_bytes(pack(TEXT.encode())[:-9])
    with pytest.raises(UserError, match=f"{name}: damaged or cut off .*; give a file that can be read"):
        load(tmp_path / name)


def test_zstd_where_there_is_a_library_and_a_line_on_what_is_missing_where_not(load, tmp_path):
    path = tmp_path / "sea.txt.zst"
    path.write_bytes(b"")
    try:
        from compression import zstd
    except ImportError:
        try:
            from backports import zstd
        except ImportError:
            with pytest.raises(UserError, match="this Python cannot read .zst; unpack it .*, or pip install backports.zstd"):
                load(path)
            return
    path.write_bytes(zstd.compress(TEXT.encode()) + zstd.compress(TEXT.encode()))
    assert text_of(load(path)) == TEXT * 2
    for damaged in (path.read_bytes()[:-5], path.read_bytes() + b"junk"):
        path.write_bytes(damaged)
        with pytest.raises(UserError, match="damaged or cut off"):
            load(path)


def tar_of(content: bytes, mode: str = "w") -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode=mode) as archive:
        member = tarfile.TarInfo("sea.txt")
        member.size = len(content)
        archive.addfile(member, io.BytesIO(content))
    return file.getvalue()


NOT_TEXT = {
    "a.docx": (b"PK\x03\x04\x14\0", "a Word document, not text; .*pandoc .*a.docx -t plain --wrap=none -o a.txt"),
    "my book.epub": (b"PK\x03\x04" + bytes(26) + b"mimetypeapplication/epub+zip", "an e-book.*my book.epub.* -o .my book.txt"),
    "a.odt": (b"PK\x03\x04" + bytes(26) + b"mimetypeapplication/vnd.oasis.opendocument.text", "an OpenDocument.*pandoc"),
    "a.rtf": (b"{\\rtf1\\ansi the sea}", "rich text, not plain text; .*save it as plain text.*pandoc"),
    "a.pdf": (b"%PDF-1.7\n", "a PDF, not text; extract its text: pdftotext .*a.pdf a.txt"),
    "a.doc": (b"\xd0\xcf\x11\xe0", "an old Office document"),
    "a.zip": (b"PK\x03\x04\x14\0", "a zip archive"),
    "a.txt": (tar_of(TEXT.encode()), "a tar archive, not text; unpack it and give the folder"),
    "a.tar": (tar_of(TEXT.encode() * 1000), "a tar archive"),
    "a.tar.gz": (tar_of(TEXT.encode(), "w:gz"), "a tar archive"),
    "a.tgz": (tar_of(TEXT.encode(), "w:gz"), "a tar archive, not text; unpack it"),
    "a.txz": (tar_of(TEXT.encode(), "w:xz"), "a tar archive, not text; unpack it"),
    "a.tbz2": (tar_of(TEXT.encode(), "w:bz2"), "a tar archive, not text; unpack it"),
    "zeros.txt": (bytes(100_000), "most of it is NUL bytes, so it is not text"),
    "zeros.gz": (gzip.compress(bytes(100_000)), "most of it is NUL bytes"),
    "sea.txt": (TEXT.encode("utf-16-le"), "not utf-8 text; perhaps it is utf-16-le, which reads “the sea and the stone”; if"),
    "stone.txt": (TEXT.encode("utf-32-be"), "not utf-8 text; perhaps it is utf-32-be"),
    "b.txt": (bz2.compress(TEXT.encode()), "compressed with bzip2; give it a name that ends in .bz2"),
}


@pytest.mark.parametrize("name", NOT_TEXT)
def test_a_file_that_is_not_text_is_recognised_when_it_is_named_and_in_a_folder(name, load, tmp_path):
    content, message = NOT_TEXT[name]
    (tmp_path / "all").mkdir()
    (tmp_path / "all" / name).write_bytes(content)
    with pytest.raises(UserError, match=f"^.*{name}: {message}.*$"):
        load(tmp_path / "all" / name)
    with pytest.raises(UserError, match="binary files skipped: 1"):
        load(tmp_path / "all", pattern="*")


def test_a_vocabulary_of_bytes_takes_any_file(load, tmp_path):
    (tmp_path / "zeros").write_bytes(bytes(1000))
    assert load(tmp_path / "zeros", vocabulary="bytes").characters == 1000
