"""Structured files are recognised, plain text and source code are not, and a warning says what to do."""

import base64
import csv
import hashlib
import inspect
import io
import itertools
import json
import random
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from text_helpers import write

import chargpt.text.facts
import model
from chargpt.config import DataConfig
from chargpt.errors import UserError
from chargpt.text.chats import CHATS
from chargpt.text.formats import KINDS, named, recognise, warnings_about
from chargpt.text.json_files import JSON, JSON_LINES
from chargpt.text.kind import Head
from chargpt.text.source import Source

ROWS = [(n, random.Random(n).choice(["Anna", "Ben"]), f"Dear friend, the sea is {n} miles away.") for n in range(50)]
CSV = "id,name,body\n" + "".join(f'{n},{name},"{body}"\n' for n, name, body in ROWS)
TSV = "id\tname\tbody\n" + "".join(f"{n}\t{name}\t{body}\n" for n, name, body in ROWS)
RECORDS = [{"id": n, "body": body} for n, _, body in ROWS]
LINES = "\n".join(map(json.dumps, RECORDS))
HTML = "<html><head><style>p {}</style></head><body><h2>Night</h2><p>the sea &amp;<br>the stone</p></body></html>"
XML = '<?xml version="1.0"?>\n<poem><line>the sea</line><line>the stone</line></poem>'
SRT = "1\n00:00:01,000 --> 00:00:02,000\n<i>the sea</i>\n\n2\n00:00:03,000 --> 00:00:04,000\nthe stone\n"
VTT = "WEBVTT\n\n00:01.000 --> 00:02.000\nthe sea\n\n00:03.000 --> 00:04.000\nthe stone\n"
CUES = "Kind: captions\n\nNOTE us\nand them\n\nfirst\n00:01.000 --> 00:02.000 align:end\n<v A>the <00:01.500><c>sea</c>\n&nbsp;"
LRC = "[ar:Nobody]\n[length: 03:00]\n[00:01.50]<00:01.50>the <00:01.70> s<00:01.80>ea\n[01:02.50][02:02.50] the stone\n"
PGN = '[Event "Casual"]\n[White "Ann"]\n\n1. e4 e5 2. Nf3\n\n[Event "Other"]\n\n1. d4 d5\n'
SBV = "0:00:01.000,0:00:02.000\nthe sea\n\n0:00:03.000,0:00:04.000\nthe stone\n"
ASS = "[Script Info]\nTitle: x\n\n[Events]\nDialogue: 0,0:00:01.00,0:00:02.00,Default,,0,0,0,,{\\i1}the\\N{\\i0}sea\n"
ASS += "Dialogue: 0,0:00:03.00,0:00:04.00,Default,,0,0,0,,the stone\n"
FASTA = ">one made up\nACGTACGTACGT\nAC\n>two\nGGGTTTGGGTTT\n"
TEXTS = {  # of files with markup: the suffix, the content, and the lines of the text
    "HTML": ("html", HTML, ["Night", "the sea &", "the stone"]),
    "SRT": ("srt", SRT, ["the sea", "the stone"]),
    "SRT of a number, with a place": ("srt", SRT.replace("the stone", "{\\an8}42"), ["the sea", "42"]),
    "XML": ("xml", XML, ["the sea", "the stone"]),
    "XML with HTML in it, as a feed has": (
        "xml",
        '<?xml version="1.0"?>\n<rss><item><d><![CDATA[<!-- wp:p --><p>a &lt; b &amp;<br/>the <b>sea</b></p>]]></d>'
        "<d>&lt;div&gt;the stone&lt;/div&gt;</d><d>it&amp;#39;s</d><d>x &lt; y, z &gt; y</d></item></rss>",
        ["a < b &", "the sea", "the stone", "it's", "x < y, z > y"],
    ),
    "WebVTT": ("vtt", VTT, ["the sea", "the stone"]),
    "WebVTT with all that it may have": ("vtt", f"WEBVTT\n{CUES}\n", ["the sea"]),
    "WebVTT without a name": ("txt", VTT, ["the sea", "the stone"]),
    "LRC": ("lrc", LRC, ["the sea", "the stone"]),
    "LRC without a name": ("txt", LRC, ["the sea", "the stone"]),
    "PGN": ("pgn", PGN, ["1. e4 e5 2. Nf3", "1. d4 d5"]),
    "PGN with clocks, comments and other lines of play": (
        "pgn",
        '[Event "a (b; {c"]\n[White "Ann"]\n\n1. e4 { [%clk 0:01] so\n\nit ( is } 1... e5?! $1 (1... c5 2. Nf3 (2. c3) d6)\n'
        '2. Nf3!! ; the end\n*\n\n[Event "b"]\n\n1. d4 d5\n2. c4 1/2-1/2\n',
        ["1. e4 e5 2. Nf3 *", "1. d4 d5 2. c4 1/2-1/2"],
    ),
    "PGN without a name": ("txt", PGN, ["1. e4 e5 2. Nf3", "1. d4 d5"]),
    "SBV": ("txt", SBV, ["the sea", "the stone"]),
    "FASTQ": ("fq", "@r1\nACGTACGT\n+\nII@II+II\n@r2\nGGGG\n+r2\n@III\n", ["ACGTACGT", "GGGG"]),
    "ASS": ("txt", ASS, ["the sea", "the stone"]),
}
RECOGNISED = {
    "CSV with semicolons": (".csv", CSV.replace(",", ";"), "CSV", ";"),
    "CSV by its lines": (".txt", CSV.replace('"Dear friend, ', '"'), "CSV", ","),
    "TSV by its lines": ("", TSV, "TSV", "\t"),
    "a JSON object": ("", json.dumps({"poems": RECORDS}), "JSON", ""),
    "HTML": ("", "\n<!DOCTYPE html>\n" + HTML, "HTML", ""),
    "a piece of HTML by its name": (".html", "the sea <b>and</b> the stone", "HTML", ""),
    "SRT": ("", "\ufeff" + SRT.replace("\n", "\r\n"), "SRT", ""),
    "one column": (".csv", 'the sea\n"the stone, too"\n', "CSV", ","),
    "a JSON object that is cut": ("", json.dumps({"poems": RECORDS})[:700], "JSON", ""),
    "JSON objects one after the other": (".json", json.dumps(RECORDS[0], indent=1) * 3, "JSON", ""),
    "JSON objects of several lines": (".jsonl", json.dumps(RECORDS[0], indent=1) * 3, "JSON", ""),
    "the same by its beginning": ("", json.dumps(RECORDS[0], indent=1) * 3, "JSON", ""),
    "a list of JSON in the place of lines": (".jsonl", json.dumps(RECORDS, indent=1), "JSON lines", ""),
}
PLAIN = {
    "prose": "The sea, the stone, and the wind.\nIt was late, it was dark, and it was cold.\n" * 20,
    "a list": "\n".join(f"Anna{n}" for n in range(100)),
    "verses with two commas each": "the sea, the stone, the wind,\n" * 40,
    "Python": inspect.getsource(model),
    "Python without strings at the margin": inspect.getsource(chargpt.text.facts),
    "a dictionary in Python": "{'a': 1, 'b': 2}\n",
    "a script": "window.onload = function() { sea(); };\nwindow.names = [sea, 'stone'];\n",
    "braces": "{ the sea }\n[ the stone ]\n",
    "tabs as indentation": "\tthe sea\n\tthe stone\n" * 20,
    "nothing": "",
    "a quoted mail": "> the sea\n> and the stone\nyes\n",
    "a play": "[Enter ANN and BEN]\nANN: The sea!\n",
    "a numbered list": "1\nthe sea\n2\nthe stone\n",
    "a log": "[2024-01-02 10:00:00] local.ERROR: it failed\n[2024-01-02 10:00:01] local.INFO: well\n",
    "a log in Python": "2024-01-02 10:00:00,123 - root - INFO - it: began\n2024-01-02 10:00:00 - root: began\n",
    "a diary": "2024-01-02 10:00, temperature: 5\n",
    "a dialogue": "Ben: hi\nOma: hello\n",
    "no mailbox": "From here on 10:15 it went\nwell: ",
}


@pytest.mark.parametrize("case", RECOGNISED)
def test_a_structured_file_is_recognised(case):
    suffix, head, kind, delimiter = RECOGNISED[case]
    found = recognise(Head(suffix=suffix, text=head))
    assert (found.kind.name, found.delimiter) == (kind, delimiter)


NO_CHATS = [
    '{"messages": [{"role": "user", "content": "hi"}]}',
    '{"name": "x", "type": "list", "messages": []}',
    "Author,Date\na,b\n",
]


def test_other_json_and_tables_are_no_chats():
    assert not [text for text in NO_CHATS if getattr(recognise(Head(text=text)), "kind", None) in CHATS]


@pytest.mark.parametrize("case", PLAIN)
def test_plain_text_and_code_are_not_taken_for_anything_else(case):
    for suffix in ("", ".txt"):
        assert recognise(Head(suffix=suffix, text=PLAIN[case])) is None


NOT_THE_TEXT = {  # fields that are no text to learn, by a number
    "date": lambda n: f"2026-03-{1 + n % 28:02}T10:00:{n % 60:02}+00:00",
    "link": lambda n: f"https://www.example.org/archive/of/long/links/{n * 7919 % 10007}/page.html",
    "sha": lambda n: hashlib.sha256(b"%d" % n).hexdigest(),
    "hash": lambda n: f"{n:064x}",
    "licence": lambda n: "You may use this text for any purpose, as long as you name where it is from. " * 3,
    "id": lambda n: f"{n * 104729:012}",
    "language": lambda n: ("Norwegian Bokmål", "Brazilian Portuguese", "Mandarin Chinese")[n % 3],
    "file": lambda n: f"data/raw/part-{n % 7}/chunk_{n}.txt",
    "empty": lambda n: "",
    "image": lambda n: "data:image/png;base64," + base64.b64encode(random.Random(n).randbytes(900)).decode(),
    "meta": lambda n: json.dumps({"source": "the open web", "authors": ["Ann Smith", f"Bob {n}"], "kind": "creative commons"}),
    "tags": lambda n: str(["travel", "culture", "photography", "landscape and architecture"][: 1 + n % 4]),
    "born": lambda n: f"{n % 28 + 1} {('September', 'November')[n % 2]} {1900 + n}",
    "sent": lambda n: f"{('Mon', 'Tue')[n % 2]} {('Jan', 'Mar')[n % 2]} {n % 28} 10:{n % 60:02}:00 +0000 2009",
    "form": lambda n: f"This record {n} was exported from the library",
    "agent": lambda n: f"Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.{n} (KHTML, like Gecko) Safari/537.36",
}
SPRUCH = st.lists(st.text("abcdeéяあ", min_size=3, max_size=8), min_size=3, max_size=9).map(" ".join)


def person(n):
    return ("Ada", "Bo", "")[n * n % 3]


@given(
    st.lists(st.sampled_from(sorted(NOT_THE_TEXT)), min_size=1, unique=True),
    st.sampled_from(["body", "text", "Spruch", "name", "the_poem", "Nachricht"]),
    st.sampled_from(["", "Sender Name", "from", "Author", "displayName", "role", "user_name", "who", "Autor", "Отправитель"]),
    st.integers(0, 8),
    st.lists(SPRUCH, min_size=20, max_size=40, unique=True),
    st.sampled_from(["", "2023年5月", " 12 "]),
)
def test_the_fields_of_the_text_and_of_its_author_are_advised_whatever_is_beside(others, name, author, place, texts, number):
    """Also if the text has a number in each line, without spaces around it."""
    texts = [text[:4] + number + text[4:] for text in texts]
    names, values = [*others[:place], name, *others[place:], *[author] * bool(author)], NOT_THE_TEXT | {author: person}
    rows = [{one: text if one == name else values[one](n) for one in names} for n, text in enumerate(texts)]
    table = io.StringIO()
    csv.writer(table).writerows([names, *(row.values() for row in rows)])
    whole = {"exportedAt": NOT_THE_TEXT["date"](1), "licence": NOT_THE_TEXT["licence"](1), "rows": rows}
    heads = {".csv": table.getvalue(), ".jsonl": "\n".join(map(json.dumps, rows)), ".json": json.dumps(whole)}
    for suffix, head in heads.items():
        found = recognise(Head(suffix=suffix, text=head))
        prefix = "rows." * (suffix == ".json")
        assert found.best == prefix + name and found.author == (prefix + author if author else "")
        assert found.best in named(found.fields, best=found.best)


SAMPLES = [*PLAIN.values(), *(head for _, head, *_ in RECOGNISED.values()), *(content for _, content, _ in TEXTS.values())]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_a_name_that_says_what_a_file_is_decides_and_without_one_the_first_row_that_fits(kind):
    """But for JSON, of which each kind can hold the other."""
    for suffix, text in itertools.product(kind.suffixes, SAMPLES):
        found = recognise(Head(suffix=suffix, text=text))
        assert found is not None and (found.kind is kind or {found.kind, kind} == {JSON, JSON_LINES})
    for text in SAMPLES if kind.begins else ():
        fit = [row for row in KINDS if row.begins and re.match(row.begins, text.lstrip("\ufeff \t\r\n"))]
        assert kind not in fit or getattr(recognise(Head(text=text)), "kind", None) is fit[0]


@pytest.mark.parametrize("count", [1, 2, 1200])
def test_a_warning_counts_the_files_whose_names_have_the_same_end(count, tmp_path):
    sources = [Source(label=f"{n}.csv", path=write(tmp_path / "a.csv", CSV)) for n in range(count)]
    others = [Source(label="b.txt", path=write(tmp_path / "b.txt", LINES)), Source(label="c", content=LINES.encode())]
    said = list(map(str, warnings_about([*sources, *others], DataConfig())))
    more = f" and {count - 1:,} more" * (count > 1)
    assert [line.partition(":")[0] for line in said] == [f"0.csv{more}", "b.txt", "c"]
    assert not any(warnings_about(sources, DataConfig(format=how)) for how in ("text", "fields"))


def warnings(folder: Path, reading: DataConfig = DataConfig(), **files: str) -> list[str]:
    sources = []
    for name, content in files.items():
        path = folder / name.replace("_", ".", 1)
        path.write_text(content)
        sources.append(Source(label=path.name, path=path))
    return list(map(str, warnings_about(sources, reading)))


CHAT = {"name": "us", "messages": [{"from": "ann", "text": ["the ", {"type": "b", "text": "sea"}]}] * 900}
WARNINGS = {  # files, and the beginning and the end of the warning about them
    "two tables": (
        {"a_csv": CSV, "b_csv": CSV},
        "a.csv and 1 more: CSV, ",
        "are id, name, body; .* add data.field=body, .* data.author=name",
    ),
    "the numbers of rows": (
        {"a_csv": CSV.replace("id", "")},
        "a.csv: CSV, ",
        "are name, body; .* add data.field=body, .* data.author=name",
    ),
    "tabs": ({"d_tsv": TSV}, "d.tsv: TSV, ", "for the text of one alone, add data.field=body, .* data.author=name"),
    "JSON lines": ({"a_txt": LINES}, "a.txt: JSON lines", "add data.field=body"),
    "JSON": ({"a_json": json.dumps(RECORDS)}, "a.json: JSON", "add data.field=body"),
    "paths": (
        {"a_json": json.dumps(CHAT, indent=1)},
        "a.json: JSON",
        "messages.from, messages.text; .*field=messages.text, .*data.author=messages.from",
    ),
    "messages": (
        {"a_jsonl": "".join(f'{{"who": "u{n}", "author": "{"ab"[n % 2]}", "text": "the sea and {n}"}}\n' for n in range(60))},
        "a.jsonl: JSON lines, whose field 'text' is read; ",
        "for a chat, add data.author=author",
    ),
    "no fields": ({"a_json": "[" * 10**5}, "a.json: JSON, read as plain text; for the text of a field", "field=NAME"),
    "a space": ({"a_csv": "id,the body\n" + "1,the sea\n" * 20}, "a.csv: CSV", "data.field=['\"]the body['\"]"),
    "comments alone": ({"c_csv": "# the sea\n\n"}, "c.csv: CSV", "add data.field=NAME"),
    "no header": ({"c_csv": "the sea\nthe stone\n"}, "c.csv: CSV", "give its number: add data.field=1"),
    "sequences": ({"a_fasta": FASTA}, "a.fasta: FASTA", "one item each, add data.items=line"),
    "sequences without a name": ({"a_txt": FASTA}, "a.txt: FASTA", "that ends in .fasta, and add data.items=line"),
}


@pytest.mark.parametrize("case", WARNINGS)
def test_each_format_is_one_line_with_the_setting_to_add(case, tmp_path):
    files, beginning, end = WARNINGS[case]
    (said,) = warnings(tmp_path, z_md=PLAIN["prose"], **files)
    assert re.fullmatch(f"{beginning}.*{end}", said)
    if case in ("two tables", "sequences"):
        said = warnings(tmp_path, reading=DataConfig(items="line"), **files)
        assert [line.endswith("alone, add data.items=body") for line in said] == [True] * (case == "two tables")


AS_A_SHELL = pytest.mark.skipif(sys.platform == "win32", reason="the command is run by a POSIX shell")


def written_by_advice(folder: Path, suffix: str, content: str) -> list[str]:
    """The lines with text that the command of a warning writes."""
    (warning,) = warnings(folder, **{f"my file_{suffix}": content})
    command, _, target = warning.partition("for its text alone: ")[2].rpartition(" > ")
    line = command.replace("python3", shlex.quote(sys.executable), 1)
    written = subprocess.run(["sh", "-c", line], capture_output=True, check=True, text=True, encoding="utf-8").stdout
    assert shlex.split(target) == ["my file-text.txt"]
    return [line for line in written.splitlines() if line.strip()]


WORDS = st.lists(st.sampled_from("the sea stone wind ship night".split()), min_size=1, max_size=4)
SPOKEN = st.lists(WORDS.map(" ".join), min_size=2, max_size=9).filter(
    lambda lines: all(b != a and not b.startswith(f"{a} ") for number, a in enumerate(lines) for b in lines[number + 1 :][:4])
)


@AS_A_SHELL
@settings(max_examples=8)
@given(SPOKEN, st.integers(1, 3), st.booleans(), st.sampled_from(["srt", "vtt"]))
def test_captions_that_roll_are_written_once(tmp_path, spoken, kept, grows, suffix):
    """Each cue shows the lines before it again, so many as are `kept`; and a line may grow word by word."""
    shown = [[*spoken[max(0, n - kept) : n], line] for n, line in enumerate(spoken)]
    if grows:
        shown = [[line[: at.start()]] for line in spoken for at in re.finditer(r"(?: |$)", line)]
    times = "00:00:01,000 --> 00:00:02,000" if suffix == "srt" else "00:01.000 --> 00:02.000 align:start position:0%"
    cues = [f"{n}\n" * (suffix == "srt") + "\n".join([times, *cue, " \n\n"]) for n, cue in enumerate(shown, 1)]
    content = "WEBVTT\nKind: captions\n\n" * (suffix == "vtt") + "".join(cues)
    assert written_by_advice(tmp_path, suffix, content) == spoken


@AS_A_SHELL
@pytest.mark.parametrize("case", TEXTS)
def test_the_command_that_a_warning_names_writes_the_text_alone(case, tmp_path):
    suffix, content, text = TEXTS[case]
    assert written_by_advice(tmp_path, suffix, content) == text


NO_EFFECT = {
    "a field of plain text": (
        {"field": "body", "format": "fields"},
        "'body' given, but .*a.txt is read without fields, and this",
    ),
    "a field and plain reading": ({"field": "body", "format": "text"}, ".* without fields, because of data.format=text"),
    "a field and items": ({"field": "body", "items": "line"}, "'body' given, but data.items says already what an item is"),
    "a separator and items": ({"separator": "x", "items": "line"}, "'x' given, but data.items makes each item a text"),
    "a pattern without a folder": ({"pattern": "*.md"}, r"'\*.md' given, but no folder is read; leave it out"),
    "a separator of one document": ({"separator": "x"}, "'x' given, but .*a.txt is one document; leave"),
    "a fraction beside a text": ({"val_fraction": 0.5, "val_text": "b.txt"}, "0.5 given, but data.val_text is .*; leave"),
}


@pytest.mark.parametrize("case", NO_EFFECT)
def test_a_setting_that_does_nothing_is_an_error_if_it_was_given(case, load, tmp_path, monkeypatch):
    settings, message = NO_EFFECT[case]
    monkeypatch.chdir(tmp_path)
    for name in ("a.txt", "b.txt"):
        (tmp_path / name).write_text(f"the sea and\nthe stone of\n{name}")
    with pytest.raises(UserError, match=f"data.{[*settings][0]}: {message}"):
        load("a.txt", asked=settings, **settings)
    assert load("a.txt", **settings).characters >= 30, "a file of settings may be for several texts"
