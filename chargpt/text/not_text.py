"""Files that are no text, by their first bytes and their names, and how to get the text in them. A new one is a row."""

from chargpt.text.kind import Kind

OFFICE = "in Word or LibreOffice, save it as plain text (UTF-8), or: pandoc {file} -t plain --wrap=none -o {text}"
ZIP, OFFICE_97, PICTURE = b"PK\x03\x04", b"\xd0\xcf\x11\xe0", "a picture, not text; give a text file"


def _row(magic: bytes, advice: str, *suffixes: str, offset: int = 0) -> Kind:
    return Kind(name=advice.partition(",")[0], magic=magic, suffixes=suffixes, offset=offset, advice=advice)


NOT_TEXT = (  # those that have names before those of all other files with the same first bytes
    _row(b"%PDF-", "a PDF, not text; extract its text: pdftotext {file} {text}"),
    _row(ZIP, f"a Word document, not text; {OFFICE}", ".docx"),
    _row(ZIP, f"an OpenDocument text, not plain text; {OFFICE}", ".odt"),
    _row(ZIP, "an e-book, not text; extract its text: pandoc {file} -t plain --wrap=none -o {text}", ".epub"),
    _row(ZIP, "a spreadsheet, not text; in Excel or LibreOffice, save it as CSV (UTF-8)", ".xlsx", ".ods"),
    _row(ZIP, "a zip archive (as .docx, .odt and .epub are), not text; unpack it, or save it as plain text"),
    _row(b"{\\rtf", f"rich text, not plain text; {OFFICE}"),
    _row(OFFICE_97, "an old Office document, not text; in Word or LibreOffice, save it as plain text (UTF-8)"),
    _row(b"PAR1", "a Parquet file, not text; write it as JSON lines (in pandas: to_json, lines=True, orient='records')"),
    _row(b"\x1f\x8b", "compressed with gzip; give it a name that ends in .gz, such as book.txt.gz"),
    _row(b"\xfd7zXZ", "compressed with xz; give it a name that ends in .xz, such as book.txt.xz"),
    _row(b"BZh", "compressed with bzip2; give it a name that ends in .bz2, such as book.txt.bz2"),
    _row(b"\x28\xb5\x2f\xfd", "compressed with zstd; give it a name that ends in .zst, such as book.txt.zst"),
    _row(b"7z\xbc\xaf", "a 7z archive, not text; unpack it"),
    _row(b"ustar", "a tar archive, not text; unpack it and give the folder", offset=257),
    _row(b"SQLite format 3\0", "a database, not text; export its text first"),
    _row(b"\x89PNG", PICTURE),
    _row(b"\xff\xd8\xff", PICTURE),
    _row(b"\x7fELF", "a program, not text; give a text file"),
)
