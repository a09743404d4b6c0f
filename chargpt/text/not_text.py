"""Files that are no text, by their first bytes and their names, and how to get the text in them. A new one is a row."""

import re
from pathlib import Path

from chargpt.project import shell_word

OFFICE = "in Word or LibreOffice, save it as plain text (UTF-8), or: pandoc {file} -t plain --wrap=none -o {text}"
PACKED = "compressed with {0}; give it a name that ends in {1}, such as book.txt{1}".format
ZIP = b"PK\x03\x04"
ROWS = (  # how a file begins, the advice, its names; those with names before those of all other files that begin so
    (b"%PDF-", "a PDF, not text; extract its text: pdftotext {file} {text}"),
    (ZIP, f"a Word document, not text; {OFFICE}", ".docx"),
    (ZIP, f"an OpenDocument text, not plain text; {OFFICE}", ".odt"),
    (ZIP, "an e-book, not text; extract its text: pandoc {file} -t plain --wrap=none -o {text}", ".epub"),
    (ZIP, "a spreadsheet, not text; in Excel or LibreOffice, save it as CSV (UTF-8)", ".xlsx", ".ods"),
    (ZIP, "a zip archive (as .docx, .odt and .epub are), not text; unpack it, or save it as plain text"),
    (rb"{\\rtf", f"rich text, not plain text; {OFFICE}"),
    (b"\xd0\xcf\x11\xe0", "an old Office document, not text; in Word or LibreOffice, save it as plain text (UTF-8)"),
    (b"(?s).{60}BOOKMOBI", "an e-book, not text; extract its text with Calibre: ebook-convert {file} {text}"),
    (b"PAR1", "a Parquet file, not text; write it as JSON lines (in pandas: to_json, lines=True, orient='records')"),
    (b"\x1f\x8b", PACKED("gzip", ".gz")),
    (b"\xfd7zXZ", PACKED("xz", ".xz")),
    (b"BZh", PACKED("bzip2", ".bz2")),
    (rb"\x28\xb5\x2f\xfd", PACKED("zstd", ".zst")),
    (b"7z\xbc\xaf", "a 7z archive, not text; unpack it"),
    (b"(?s).{257}ustar", "a tar archive, not text; unpack it and give the folder"),
    (b"SQLite format 3\0", "a database, not text; export its text first"),
    (b"\x89PNG|\xff\xd8\xff", "a picture, not text; give a text file"),
    (b"\x7fELF", "a program, not text; give a text file"),
)


def binary_format(content: bytes, *, path: Path | None = None) -> str | None:
    """What a file that begins with `content` is, and what to do about it; None if it may be text. `path` is its path."""
    path = path or Path("FILE")
    for begins, advice, *names in ROWS:
        if re.match(begins, content) and (not names or path.suffix.lower() in names):
            return advice.format(file=shell_word(str(path)), text=shell_word(path.stem + ".txt"))
    return None
