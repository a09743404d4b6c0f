"""Compressed files are read like plain ones, and files that are not text are recognised."""

import bz2
import gzip
import lzma

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
