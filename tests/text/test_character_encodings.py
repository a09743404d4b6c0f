"""Encodings: byte-order marks, named encodings, and an error that names the encoding that works."""

import bz2
import codecs
import contextlib
import gzip
import importlib
import lzma
import re
import shlex
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from text_helpers import text_of, write

from chargpt.errors import UserError
from chargpt.text.character_encodings import ADVICE
from chargpt.text.reading import may_be_utf8
from chargpt.text.source import SAMPLE

ETE = "Un été à la mer\n".encode() * 50


def cesu(text: str) -> bytes:
    """As Oracle and old Java write it: the two halves in UTF-16 of a character beyond U+FFFF, each in UTF-8."""
    units = np.frombuffer(text.encode("utf-16-le"), "<u2").tolist()
    return "".join(map(chr, units)).encode("utf-8", "surrogatepass")


UNDECODABLE = {  # a text, the encoding that is given for it, and what is said
    "Latin-1 further on": (
        b"The sea\n" * 200_000 + "où\n".encode("latin-1"),
        "utf-8",
        r"byte 1,600,001 \(line 200,001\) is not utf-8; perhaps it is cp1252, which reads “où”; if that is right, add data.enc",
    ),
    "a few words of Latin-1": ("Un été\n".encode("latin-1"), "utf-8", r"byte 3 \(line 1\) .*cp1252, which reads “Un été”; if"),
    "cut within a character": ("the sea 海".encode()[:-1], "utf-8", r"byte 8 \(line 1\) is not utf-8"),
    "random bytes": (np.random.default_rng(0).bytes(5000), "utf-8", "NUL bytes, so it is probably not text"),
    "a cut file": ("Wörter\nund mehr …".encode()[:-1], "utf-8", r"line 2\).*: the file was cut off in the middle of a char"),
    "a damaged file": (
        "Wörter, Öl, Füße, Äpfel\n".encode() + b"\xff und\n",
        "utf-8",
        r"line 2\).*: the file is damaged there, or j",
    ),
    "in no encoding": (
        b"Eu\n" + bytes(range(0x80, 0x100)),
        "utf-8",
        r"line 2\).*; name its encoding in data.encoding, correct",
    ),
    "not UTF-16": (ETE[:19], "utf-16", "byte 0 .*; perhaps it is utf-8, which reads “Un été à la mer”; if that"),
    "far in a line": (
        b"The sea. " * 30 + "The café kitchen".encode("cp1252"),
        "utf-8",
        "reads “...The sea. The café kitchen”; if",
    ),
    "CESU-8": (
        "Wörter, Öl, Füße\n".encode() * 9 + cesu("the sea 😀\n"),
        "utf-8",
        r"line 10\) is not utf-8, but CESU-8, .* in UTF-8: py",
    ),
    "cut UTF-16": ("Un été\n".encode("utf-16")[:-1], "utf-8", "unlike the text around it: the file is damaged there, or cut"),
}


def test_what_cannot_be_decoded_says_in_one_line_what_to_do_and_each_advice_has_a_case(load, tmp_path):
    said = []
    for content, encoding, message in UNDECODABLE.values():
        with pytest.raises(UserError, match=f"^.*text.txt.*{message}.*$") as error:
            load(write(tmp_path / "text.txt", content), encoding=encoding)
        said.append(str(error.value))
        assert {path.name for path in (tmp_path / ".cache").iterdir()} == {".lock", "seen"}
    assert all(any(row.words.partition("{")[0][:24] in one for one in said) for row in ADVICE)


BEYOND = st.text(st.characters(codec="utf-8", exclude_categories=["Cc"]), max_size=30)


@pytest.mark.skipif(sys.platform == "win32", reason="the command is run by a POSIX shell")
@settings(max_examples=5)
@given(BEYOND, st.characters(min_codepoint=0x10000), BEYOND)
def test_what_writes_each_half_of_a_character_is_named_and_the_command_puts_them_together(load, tmp_path, before, one, after):
    text, path = f"{before} {one} {after}\n", tmp_path / "a b.txt"
    write(path, cesu(text))
    with pytest.raises(UserError, match="but CESU-8") as error:
        load(path)
    command = str(error.value).partition("UTF-8: ")[2].replace("python3", shlex.quote(sys.executable), 1)
    subprocess.run(command, shell=True, check=True, cwd=tmp_path, timeout=60)
    assert (tmp_path / "a b-text.txt").read_text(encoding="utf-8") == text


@given(st.integers(0, 9000), st.integers(0, 9000), st.sampled_from(["a", "é", "海"]))
def test_a_quarter_of_zeros_in_the_beginning_is_the_most_that_a_text_has(zeros, others, other):
    head = bytes(zeros) + other.encode() * others
    assert may_be_utf8(head) == (min(zeros, SAMPLE) <= min(len(head), SAMPLE) / 4)


def test_a_byte_order_mark_is_honoured_and_noted_and_an_encoding_can_be_named(load, tmp_path):
    for encoding in ("utf-8-sig", "utf-16", "utf-32"):
        corpus = load(write(tmp_path / "text.txt", "Un été à la mer 🌊".encode(encoding)))
        assert text_of(corpus) == "Un été à la mer 🌊"
        assert any("its first bytes say" in notice.text for notice in corpus.describe())
    for encoding in ("latin-1", "cp1252", "utf-16-be", "utf-16", "gb18030"):
        content = ("Un été à la mer\n" if encoding != "gb18030" else "春眠不觉晓，处处闻啼鸟。") * 100_000
        assert text_of(load(write(tmp_path / "text.txt", content.encode(encoding)), encoding=encoding)) == content


PARTS = st.lists(st.sampled_from(["plain", "café", "Straße", "señor, œuvre", "дом"]), min_size=1, max_size=6)


@given(
    st.lists(st.tuples(PARTS, st.booleans()), min_size=1, max_size=6),
    st.sampled_from(["cp1252", "cp1251", "gb18030", "mac_roman"]),
)
def test_an_encoding_belongs_to_a_file_and_one_in_utf_8_needs_none(load, tmp_path, files, encoding):
    """The files of a folder, some of them in the encoding that is given."""
    folder, texts, are_utf8 = tmp_path / f"{len([*tmp_path.iterdir()])}", [], 0
    for number, (words, is_utf8) in enumerate(files):
        known = [word for word in words if word.encode(encoding, "ignore").decode(encoding) == word] or ["plain"]
        texts.append(f"{number} " + " ".join(known * 4))
        write(folder / f"{number}.txt", texts[-1].encode("utf-8" if is_utf8 else encoding))
        are_utf8 += is_utf8 and not texts[-1].isascii()
    corpus = load(folder, encoding=encoding, block_size=1)
    assert text_of(corpus).splitlines() == texts
    assert any("utf-8, which it is" in str(note) for note in corpus.notes) == (are_utf8 > 0)


SEVERAL = {  # encodings of one language, and what people wrote in it
    "cp1251 koi8_r cp866": ["Старый дом стоял у самой реки", "никто в нём давно не жил", "дождь кончился перед рассветом"],
    "shift_jis euc_jp": ["古い家に川のそばで老人が住んでいました", "彼女は窓を開けて耳を澄ませた", "夜明け前に雨は止んでいた"],
    "gb18030 big5": ["河邊有一座老房子，這裡沒有人", "他把信放在口袋裡，說不要看", "天上的月亮很大，我們都看到了"],
    "cp1250 cp852": ["żółta łódź płynęła cicho", "ścieżka wiodła wśród łąk", "śnieg leżał już na gałęziach"],
    "mac_roman cp1252": ["l'été à la mer, où êtes-vous", "le café près du théâtre ferme", "ça été très gênant, hélas"],
}


@settings(max_examples=30)
@given(st.data(), st.sampled_from([*SEVERAL]))
def test_each_file_has_the_likeliest_of_several_encodings_and_a_doubt_names_another_one(load, tmp_path, data, encodings):
    names, folder = encodings.split(), tmp_path / f"{len([*tmp_path.iterdir()])}"
    written = data.draw(st.lists(st.sampled_from(["utf-8", *names]), min_size=1, max_size=5))
    lines = [f"{number} " + ". ".join(data.draw(st.permutations(SEVERAL[encodings])) * 2) for number in range(len(written))]
    for number, (line, encoding) in enumerate(zip(lines, written)):
        write(folder / f"{number}.txt", line.encode(encoding))
    assert text_of(load(folder, encoding=", ".join(names))).splitlines() == lines
    if {*written} <= {"utf-8", names[0]}:
        assert "perhaps" not in str(load(folder, encoding=names[0]).notes)
    elif "gb18030" not in names:  # as which Big5 may be read, and what it says may be about as likely
        with contextlib.suppress(UserError):  # which names it, too
            assert f"data.encoding={codecs.lookup(names[0]).name}," in str(load(folder, encoding=names[0]).notes)


SPARSE = st.lists(st.sampled_from("café naïve señor Pérez Köln £5 20°C São Ångström “quoted” it’s garçon".split()), min_size=1)


@given(SPARSE, st.integers(1, 40), st.sampled_from(["cp1252", "latin-1"]))
def test_a_few_accents_in_english_are_those_of_western_europe(load, tmp_path, words, apart, encoding):
    words = [word for word in words if word.encode(encoding, "ignore").decode(encoding) == word] or ["café"]
    text = f"{'The sea was cold. ' * apart}\n".join(f"He said {word} and left" for word in words)
    with pytest.raises(UserError, match="perhaps it is cp1252"):
        load(write(tmp_path / "a.txt", text.encode(encoding)))


WIDE = "utf-16-le utf-16-be utf-32-le"  # without a mark
# What people wrote in the encodings of their systems: the words, and the encodings in which they are found.
LANGUAGES = {
    "Russian": ("Старый дом стоял у самой реки, и никто в нём не жил.", "cp1251 koi8_r cp866 iso8859_5 mac_cyrillic " + WIDE),
    "Russian capitals": ("ВОЙНА И МИР. ТОМ ПЕРВЫЙ", "cp1251 koi8_r cp866"),
    "Ukrainian": ("Він жив у старій хаті біля річки, і щодня їв борщ.", "cp1251 koi8_u"),
    "Greek": ("Στο παλιό σπίτι δίπλα στο ποτάμι ζούσε ένας γέρος.", "cp1253 cp737"),
    "Hebrew": ("בבית הישן ליד הנהר גר איש זקן, בחורף שקט שם מאוד.", "cp1255 cp862 " + WIDE),
    "Arabic": ("في البيت القديم بجانب النهر عاش رجل عجوز", "cp1256 iso8859_6"),
    "Thai": ("บ้านเก่าริมแม่น้ำมีชายชราอาศัยอยู่", "cp874"),
    "French": ("Dans la vieille maison près de la rivière, l'été, il rêvait.", "cp1252 cp850 mac_roman " + WIDE),
    "German": ("Im alten Haus am Fluß lebte ein Greis, und es war schön kühl.", "cp1252 cp437"),
    "Spanish": ("¿Dónde está el niño? Vivía en la montaña, señor.", "cp1252"),
    "Polish": ("W starym domu nad rzeką mieszkał staruszek, często śpiący.", "cp1250 cp852 iso8859_2"),
    "Czech": ("Ve starém domě u řeky žil stařec a žluťoučký kůň.", "cp1250"),
    "Hungarian": ("A régi házban, a folyó mellett élt egy őszülő, öreg tűzoltó.", "cp1250"),
    "Turkish": ("Eski evde nehrin yanında yaşlı bir adam yaşıyordu, çok üzgün.", "cp1254 cp857"),
    "Lithuanian": ("Sename name prie upės gyveno senukas, žiemą čia tylu.", "cp1257"),
    "Chinese": ("在河边的老房子里住着一个老人。冬天很安静。", "gb18030 " + WIDE),
    "Chinese of Taiwan": ("在河邊的老房子裡住著一個老人。冬天很安靜。", "big5"),
    "Japanese": ("古い家に川のそばで老人が住んでいました。", "shift_jis euc_jp"),
    "Bulgarian": ("Къщата беше стара и студена.", "cp1251 cp866"),
    "Icelandic": ("Þetta er gamalt hús við ána, það bíður.", "cp1252"),
    "Korean": ("강가의 오래된 집에 노인이 살고 있었다.", "euc_kr " + WIDE),
    "a letter that begins as in CESU-8": ("Мороз и солнце, день чудесный; нет войны, нет беды.", "koi8_r cp1251"),
    "quotes alone": ("He said “it’s late” — and left…", "cp1252 mac_roman"),
}


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_guess_reads_the_text_right_and_shows_how_it_reads_it(language, load, tmp_path):
    text, encodings = LANGUAGES[language]
    for encoding in encodings.split():
        (tmp_path / "a.txt").write_bytes(f"plain\n{text}\n".encode(encoding))
        shown = re.escape(text[:40].rstrip())
        with pytest.raises(UserError, match=f"perhaps it is .*, which reads “{shown}.*”; if that is right, add data.encoding="):
            load(tmp_path / "a.txt")


@pytest.mark.parametrize("dtype", ["<u2", ">u2", "<u4", "<i8"])
def test_token_ids_are_not_text(dtype, load, tmp_path):
    letters = [point for point in range(50257) if chr(point).isalpha() or not point % 256]  # of many scripts
    for vocabulary in (65, 5000, 50257, letters):
        ids = np.random.default_rng(0).choice(vocabulary, 5000)
        with pytest.raises(UserError, match="NUL bytes, so it is probably not text; give a text file"):
            load(write(tmp_path / "train.bin", ids.astype(dtype).tobytes()))


TEXT = "the sea and the stone\n" * 20


@pytest.mark.parametrize("name, pack", [("sea.txt.gz", gzip.compress), ("sea.xz", lzma.compress), ("sea.bz2", bz2.compress)])
def test_compressed_texts_read_like_plain_ones(name, pack, load, tmp_path):
    (tmp_path / name).write_bytes(pack(TEXT.encode()))
    packed, plain = load(tmp_path / name), load(write(tmp_path / "plain.txt", TEXT))
    assert text_of(packed) == TEXT and packed.fingerprint == plain.fingerprint and packed.name == "sea"
    with pytest.raises(UserError, match=f"{name}: damaged or cut off .*; give a file that can be read"):
        load(write(tmp_path / name, pack(TEXT.encode())[:-9]))


def test_zstd_where_there_is_a_library_and_a_line_on_what_is_missing_where_not(load, tmp_path):
    path, zstd = tmp_path / "sea.txt.zst", None
    for package in ("compression", "backports"):
        with contextlib.suppress(ImportError):
            zstd = zstd or importlib.import_module(f"{package}.zstd")
    path.write_bytes(zstd.compress(TEXT.encode()) * 2 if zstd else b"")
    message = "this Python cannot read .zst; unpack it .*, or pip install backports.zstd"
    if zstd:
        assert text_of(load(path)) == TEXT * 2
        message = "damaged or cut off"
    for damaged in (path.read_bytes()[:-5], path.read_bytes() + b"junk"):
        path.write_bytes(damaged)
        with pytest.raises(UserError, match=message):
            load(path)


TAR = b"sea.txt".ljust(257, b"\0") + b"ustar\x0000" + bytes(2000)
PK = b"PK\x03\x04" + bytes(26)
NOT_TEXT = {
    "a.docx": (PK, "a Word document, not text; .*pandoc .*a.docx -t plain --wrap=none -o a.txt"),
    "my book.epub": (PK + b"mimetypeapplication/epub+zip", "an e-book.*my book.epub.* -o .my book.txt"),
    "a.odt": (PK + b"mimetypeapplication/vnd.oasis.opendocument.text", "an OpenDocument.*pandoc"),
    "a.rtf": (b"{\\rtf1\\ansi the sea}", "rich text, not plain text; .*save it as plain text.*pandoc"),
    "a.pdf": (b"%PDF-1.7\n", "a PDF, not text; extract its text: pdftotext .*a.pdf a.txt"),
    "a.mobi": (b"sea".ljust(60, b"\0") + b"BOOKMOBI", "an e-book, not text; .*ebook-convert .*a.mobi a.txt"),
    "a.azw3": (b"sea".ljust(60, b"\0") + b"BOOKMOBI", "an e-book, not text; .*Calibre"),
    "a.xlsx": (PK, "a spreadsheet, not text; .*CSV"),
    "a.ods": (PK, "a spreadsheet, not text; .*CSV"),
    "a.doc": (b"\xd0\xcf\x11\xe0", "an old Office document"),
    "a.zip": (PK, "a zip archive"),
    "a.txt": (TAR, "a tar archive, not text; unpack it and give the folder"),
    "a.tar.gz": (gzip.compress(TAR), "a tar archive"),
    "a.txz": (lzma.compress(TAR), "a tar archive, not text; unpack it"),
    "a.tbz2": (bz2.compress(TAR), "a tar archive, not text; unpack it"),
    "zeros.txt": (bytes(100_000), "not utf-8, and it contains NUL bytes, so it is probably not text; give"),
    "zeros.gz": (gzip.compress(bytes(100_000)), "not utf-8, .* NUL bytes"),
    "sea.txt": (TEXT.encode("utf-16-le"), "not utf-8; perhaps it is utf-16-le, which reads “the sea and the stone”; if"),
    "stone.txt": (TEXT.encode("utf-32-be"), "not utf-8; perhaps it is utf-32-be"),
    "b.txt": (bz2.compress(TEXT.encode()), "compressed with bzip2; give it a name that ends in .bz2"),
}


@pytest.mark.parametrize("name", NOT_TEXT)
def test_a_file_that_is_not_text_is_recognised_when_it_is_named_and_in_a_folder(name, load, tmp_path):
    content, message = NOT_TEXT[name]
    write(tmp_path / "all" / name, content)
    with pytest.raises(UserError, match=f"^.*{name}: {message}.*$"):
        load(tmp_path / "all" / name)
    in_folder = message if "perhaps it is" in message else "binary files skipped: 1"  # a text, if in another encoding
    with pytest.raises(UserError, match=in_folder):
        load(tmp_path / "all", pattern="*")


def test_a_vocabulary_of_bytes_takes_any_file(load, tmp_path):
    assert load(write(tmp_path / "zeros", bytes(1000)), vocabulary="bytes").characters == 1000
