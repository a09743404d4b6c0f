"""What is read is one value: different documents have different fingerprints, equal ones the same; no cache gives others."""

import dataclasses
import gzip
import hashlib
import json
import shutil
from pathlib import Path

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from text_helpers import ENCODE, ROOT, text_of, write

from chargpt.config import DataConfig
from chargpt.errors import UserError
from chargpt.text import source
from chargpt.text.corpus import Corpus, load_corpus
from chargpt.text.item_stream import items_in

LABELS, WORDS = ("x", "x,y", "z", "y,z"), ("the sea", "a stone", "Été", "sky", "ash and elm", "a stone and more")
Rows = list[tuple[str, str, str]]  # two labels and a text
ROWS = st.lists(st.tuples(st.sampled_from(LABELS), st.sampled_from(LABELS), st.sampled_from(WORDS)), min_size=4, max_size=8)


def table(rows: Rows, delimiter: str = ",", names: str = "one,two,text") -> str:
    quoted = [[f'"{cell}"' for cell in row] for row in [names.split(","), *rows]]
    return "".join(delimiter.join(row) + "\n" for row in quoted)


def whatsapp(rows: Rows) -> str:
    notice = "1/1/24, 9:15 PM - Messages and calls are end-to-end encrypted.\n"
    return notice + "".join(f"1/{n + 1}/24, 9:15 PM - {one}: {text}\n" for n, (one, _, text) in enumerate(rows))


def telegram(rows: Rows) -> str:
    messages = [{"type": "message", "from": one, "two": two, "text": text} for one, two, text in rows]
    return json.dumps({"name": "us", "type": "private_group", "id": 1, "messages": messages})


def by_label(rows: Rows) -> dict[str, str]:
    """A folder of each first label, with a file of each second one, a text on each line."""
    found = dict[str, str]()
    for one, two, text in sorted(rows):
        found[f"{one}/{two}.txt"] = found.get(f"{one}/{two}.txt", "") + text + "\n"
    return found


FILES = {  # a kind of file: how it is written
    "lines": lambda rows: {"a.txt": "".join(text + "\n" for *_, text in rows)},
    "returns": lambda rows: {"a.txt": "".join(text + "\r\n" for *_, text in rows)},
    "paragraphs": lambda rows: {"a.txt": "\n".join(f"{two}\n{text}\n" for _, two, text in rows)},
    "csv": lambda rows: {"a.csv": table(rows)},
    "tsv": lambda rows: {"a.tsv": table(rows, "\t")},
    "jsonl": lambda rows: {"a.jsonl": "\n".join(json.dumps(dict(zip(("one", "two", "text"), row))) for row in rows)},
    "json": lambda rows: {"a.json": json.dumps([dict(zip(("one", "two", "text"), row)) for row in rows])},
    "whatsapp": lambda rows: {"a.txt": whatsapp(rows)},
    "telegram": lambda rows: {"a.json": telegram(rows)},
    "fasta": lambda rows: {"a.fasta": "".join(f">{one} {two}\n{'ACGT' * len(text)}\n" for one, two, text in rows)},
    "folder": by_label,
}
VALUES: dict[str, tuple[object, ...]] = {  # of each setting, beside its default
    "val_fraction": (0.4, 0.0), "split": ("blocks", "document", "position"), "val_text": ("val.txt",), "pattern": ("*",),
    "encoding": ("cp1252",), "field": ("one", "messages.text"), "format": ("fields", "text"), "shuffle": ("lines",),
    "items": ("line", "paragraph", "file", "text", "column:text"), "where": ("one=x", "author=x"), "separator": ("--", ""),
    "author": ("one", "author"), "frame": ("drop",),
    "label": ("one", "two,one", "file", "folder", "folder,file", "author", "header", "re:(a|e)"), "newlines": ("keep", "fold"),
    "normalize": ("NFC",), "lowercase": (True,), "vocabulary": ("bytes",), "min_count": (3,), "max_vocab": (9,), "cache": (),
}  # fmt: skip
SETTINGS = st.lists(st.sampled_from([(name, value) for name, values in VALUES.items() for value in values]), max_size=4)


def test_all_settings_are_tried():
    assert [*VALUES].sort() == [field.name for field in dataclasses.fields(DataConfig)].sort()


@pytest.fixture
def trusted(monkeypatch) -> None:
    """Files are trusted to be unchanged at once: each is written once, under a name of its own."""
    monkeypatch.setattr(source, "RACY_NS", 0)


def content(corpus: Corpus) -> tuple[object, ...]:
    """All that a fingerprint stands for."""
    vocabulary, labels = json.dumps(corpus.tokenizer.to_json()), corpus.items and corpus.items.labels
    return corpus.train.tobytes(), corpus.val.tobytes(), vocabulary, corpus.marks, labels, corpus.counts.tobytes()


def read(path: Path, cache: Path, changes: dict[str, object]) -> Corpus | str:
    """The corpus of a file or a folder, or the message that refuses it."""
    if "val_text" in changes:
        changes = changes | {"val_text": str(write(path.parent / "val.txt", "the end of it\nand more\n\n"))}
    try:
        config = DataConfig(**{"val_fraction": 0.3, "cache": str(cache), **changes})
        return load_corpus([str(path)], config, root=path.parent, block_size=1)
    except (UserError, ValueError) as error:
        return str(error)


SHARED = dict[str, tuple[object, ...]]()  # fingerprints that some example had, and what they stand for


@given(st.sampled_from([*FILES]), ROWS, st.lists(SETTINGS, min_size=1, max_size=3), st.sampled_from(["p", "q/r"]))
def test_no_reading_has_the_fingerprint_of_another_and_no_cache_gives_another(trusted, tmp_path, kind, rows, asked, name):
    """The same files are read in several ways, one after the other, beside a reading of each into a cache of its own. All
    examples share a cache."""
    number = len(list(tmp_path.iterdir()))
    folder = tmp_path / f"{number}" / name
    for file, text in FILES[kind](rows).items():
        write(folder / file, text)
    path = folder if kind == "folder" else next(folder.iterdir())
    for number, changes in enumerate(map(dict, asked)):
        fresh = read(path, folder.parent / f"cache{number}", changes)
        found = [read(path, tmp_path / "cache", changes) for _ in range(2)]  # the second one finds the first
        if isinstance(fresh, str):
            assert found == [fresh] * 2
            continue
        for corpus in found:
            assert isinstance(corpus, Corpus) and content(corpus) == content(fresh)
            assert (corpus.fingerprint, corpus.describe()) == (fresh.fingerprint, fresh.describe())
        assert SHARED.setdefault(fresh.fingerprint, content(fresh)) == content(fresh), changes


SAME = {  # other files of the same documents, and what is asked for to read them so
    "csv": {"field": "text", "format": "fields"},
    "tsv": {"field": "text", "format": "fields"},
    "jsonl": {},
    "json": {"field": "text", "format": "fields"},
    "telegram": {"field": "messages.text", "format": "fields"},
    "whatsapp": {"field": "text", "format": "fields"},
}


@settings(max_examples=5)
@given(ROWS, st.sampled_from(["", "one", "two,one"]))
def test_the_same_documents_have_one_fingerprint_in_each_kind_of_file(trusted, tmp_path, rows, label):
    assume(len({text for *_, text in rows}) > 2)
    folder, found = tmp_path / f"{len(list(tmp_path.iterdir()))}", dict[int, set[str]]()  # by the number of fields
    for kind, changes in SAME.items():
        prefix = "messages." if kind == "telegram" else ""
        if label:
            words = {"telegram": label.replace("one", "from"), "whatsapp": "author"}.get(kind, label).split(",")
            words = [f"{prefix}{word}" for word in words]
            changes = {"items": f"{prefix}text", "label": ",".join(words)}
        for file, text in FILES[kind](rows).items():
            for pack in (str.encode, lambda text: gzip.compress(text.encode())):
                end = "" if pack is str.encode else ".gz"
                corpus = read(write(folder / kind / (file + end), pack(text)), folder / "cache", changes)
                assert isinstance(corpus, Corpus), corpus
                found.setdefault(changes.get("label", "").count(","), set()).add(corpus.fingerprint)
    assert all(len(prints) == 1 for prints in found.values())


PLAIN = "Un été à la mer\nthe sea and the stone\n" * 9


def test_the_same_plain_text_has_one_fingerprint_however_it_is_written(trusted, tmp_path):
    """Its characters are hashed while they are read, or after they were decoded and normalised."""
    encodings, found = ("utf-8", "utf-8-sig", "utf-16", "cp1252", "latin-1"), set[str]()
    for encoding in encodings:
        named = {"encoding": encoding} if encoding[:2] in ("cp", "la") else {}
        for vocabulary in ("characters", "bytes") if named or encoding == "utf-8" else ("characters",):
            path = write(tmp_path / encoding / "a.txt", PLAIN.encode(encoding))
            corpus = read(path, tmp_path / encoding / "cache", {"vocabulary": vocabulary, **named})
            assert isinstance(corpus, Corpus) and (vocabulary == "bytes" or text_of(corpus) == PLAIN)
            found.add(corpus.fingerprint)
    folded = read(write(tmp_path / "a.txt", PLAIN.replace("\n", "\r\n")), tmp_path / "cache", {})
    again = read(write(tmp_path / "b.txt", PLAIN), tmp_path / "cache", {"newlines": "fold"})
    assert len(found) == 2 and folded.fingerprint == again.fingerprint, "one for each vocabulary"


def labels_of(corpus: Corpus | str) -> set[str]:
    assert isinstance(corpus, Corpus) and corpus.items is not None, corpus
    items = sum((items_in(ids, corpus.tokenizer, has_labels=True) for ids in (corpus.train, corpus.val)), [])
    assert {item.label for item in items} == {*corpus.items.labels}
    return {*corpus.items.labels}


ONE, TWO, SOME, MORE = "ab ba\n" * 20, "ba ab\n" * 20, "ab 1\nba 2\n", "a 3\nb 4\n"
BOTH = {"l/a.txt": ONE, "l/b.txt": TWO}
DIFFER = {  # two texts of as many characters with the same vocabulary, the settings of each, and what differs
    "the name of a file": (
        {"l/ab.txt": SOME, "l/c.txt": MORE}, {"l/ba.txt": SOME, "l/c.txt": MORE}, {"items": "line", "label": "file"}
    ),
    "the name of a folder": (
        {"ab/a.txt": SOME, "c/a.txt": MORE}, {"ba/a.txt": SOME, "c/a.txt": MORE}, {"items": "line", "label": "folder"}
    ),
    "its characters": ({"l/a.txt": ONE}, {"l/a.txt": TWO}, {}),
    "where a document ends": (BOTH, {"l/a.txt": ONE + TWO[:6], "l/b.txt": TWO[6:]}, {"separator": ""}),
    "which document validates": (BOTH, {"l/a.txt": TWO, "l/b.txt": ONE}, {"split": "document", "val_fraction": 0.5}),
    "the separator": (BOTH, BOTH, {"separator": "a"}, {"separator": "b"}),
    "the order of lines": ({"l/a.txt": ONE + TWO}, {"l/a.txt": ONE + TWO}, {"shuffle": "lines"}, {"shuffle": "none"}),
    "where validation begins": (BOTH, BOTH, {"val_fraction": 0.2}, {"val_fraction": 0.4}),
}  # fmt: skip


@pytest.mark.parametrize("what", DIFFER)
def test_texts_that_differ_in_one_thing_alone_have_other_fingerprints(what, trusted, tmp_path):
    first, second, *changes = DIFFER[what]
    found = []
    for files, asked in ((first, changes[0]), (second, changes[-1])):
        for name, text in files.items():
            write(tmp_path / "all" / name, text)
        found.append(read(tmp_path / "all", tmp_path / "cache", asked))
        shutil.rmtree(tmp_path / "all")
    assert found[0].tokenizer == found[1].tokenizer and found[0].characters == found[1].characters
    assert found[0].fingerprint != found[1].fingerprint
    if "name" in what:
        assert [labels_of(corpus) for corpus in found] == [{"ab", "c"}, {"ba", "c"}]


CHAT = "".join(f"1/1/24, 9:1{n} PM - {'Ann' if n % 2 else 'Ben'}: Ann and Ben: {'far ' * n}\n" for n in range(9))


@pytest.mark.parametrize("order", [1, -1])
def test_a_chat_is_read_as_it_is_asked_for_in_either_order(trusted, tmp_path, order):
    path = write(tmp_path / "chat.txt", CHAT)
    asked = [({}, True), ({"field": "text", "format": "fields"}, False)]
    for changes, has_names in asked[::order]:
        corpus = read(path, tmp_path / "cache", changes)
        assert text_of(corpus).startswith("Ben: " if has_names else "Ann and") and ("Name: " in str(corpus.notes)) == has_names


def test_two_fields_of_a_label_are_not_one_and_no_comma_joins_them(trusted, tmp_path):
    rows = [(one, two, f"text {n}") for n, (one, two) in enumerate([("x,y", "z"), ("x", "y,z")] * 10)]
    corpus = read(write(tmp_path / "a.csv", table(rows)), tmp_path / "cache", {"items": "text", "label": "one,two"})
    assert labels_of(corpus) == {'"x,y",z', 'x,"y,z"'}
    plain = read(write(tmp_path / "b.csv", table(rows)), tmp_path / "cache", {"items": "text", "label": "one"})
    assert labels_of(plain) == {"x,y", "x"}, "one field is written as it is"


NAMED = [("line", "column:line", {}), ("paragraph", "column:paragraph", {}), ("file", "column:file", {}), ("Cost ($)", "", {})]


@pytest.mark.parametrize("name, asked, _", NAMED)
def test_a_column_of_any_name_can_be_an_item_a_text_and_a_label(trusted, tmp_path, name, asked, _):
    rows = [("ab"[n % 2], f"l{n % 3}", f"text {n}") for n in range(12)]
    path = write(tmp_path / "a.csv", table(rows, names=f"{name},two,text"))
    assert labels_of(read(path, tmp_path / "cache", {"items": "text", "label": asked or name})) == {"a", "b"}
    assert labels_of(read(path, tmp_path / "cache", {"items": asked or name, "label": "two"})) == {"l0", "l1", "l2"}
    corpus = read(path, tmp_path / "cache", {"field": asked or name, "format": "fields"})
    assert text_of(corpus) == "a\nb\n" * 5 + "a\nb"
    assert labels_of(read(path, tmp_path / "cache", {"items": "text", "label": "file"})) == {"a"}, "without a prefix, the file"


def test_a_reader_that_has_changed_reads_again(programs, tmp_path):
    """In a copy of the program, whose cache keeps what the reader before it has read."""
    shutil.copytree(ROOT / "chargpt", tmp_path / "chargpt", ignore=shutil.ignore_patterns("starts"))
    path, program = write(tmp_path / "chat.txt", CHAT), tmp_path / "chargpt" / "text" / "messages.py"

    def fingerprint() -> str:
        code = (
            f"import sys\nsys.argv[1:] = {[str(path), str(tmp_path / '.c')]}\nimport chargpt.text.source as s; s.RACY_NS = 0\n"
        )
        done = programs.run(code=code + ENCODE, anew=True, folder=tmp_path)
        assert done.returncode == 0, done.stderr.decode()
        return done.stdout.decode()

    before, code = fingerprint(), program.read_text()
    program.write_text(code + "\n# a comment\n")
    assert fingerprint() == before, "the same documents"
    changed = code.replace('{author}: {said}"', '{author} says {said}"')
    assert changed != code
    program.write_text(changed)
    assert fingerprint() != before
    program.write_text(code)
    assert fingerprint() == before


# Texts, settings, and the beginning of the SHA-256 of the ids. They never change: what a model has learned is what it reads.
TEXT = "Un été à la mer: the sea and the stone.\r\nLe café du théâtre.\n\n" * 40
RECORDS = [{"race": "elf" if n % 3 else "orc", "name": f"name{n}", "body": f"the sea {n}"} for n in range(60)]
PINNED_FILES = {
    "a.txt": TEXT,
    "b.txt": "".join(f"line number {n} of the sea\n" for n in range(60)),
    "t.csv": "race,name,body\n" + "".join(f'{"elf" if n % 3 else "orc"},name{n},"the sea, {n}"\n' for n in range(60)),
    "r.jsonl": "\n".join(map(json.dumps, RECORDS)),
    "r.json": json.dumps({"n": 1, "poems": RECORDS}, indent=1),
    "g.fasta": "".join(f">s{n % 4} made up\nACGT{'AC' * n}\nGG\n" for n in range(20)),
    "p.txt": "one\ntwo\n\nthree\n\nfour\nfive\n\nsix\n",
}
PINNED: list[tuple[str, dict[str, object], str]] = [
    ("a.txt", {}, "4b9ad7460417"),
    ("a.txt", {"newlines": "keep"}, "37c87c54f700"),
    ("a.txt", {"val_fraction": 0.25}, "a93c1ef51ffa"),
    ("a.txt", {"normalize": "NFC", "lowercase": True}, "0b401453f6cc"),
    ("a.txt", {"vocabulary": "bytes"}, "946cceee4636"),
    ("a.txt", {"min_count": 50}, "b8a8f19f3a45"),
    ("a.txt", {"max_vocab": 20}, "4f3bde556909"),
    ("a.txt", {"split": "blocks"}, "01a90f66508f"),
    ("b.txt", {"shuffle": "lines"}, "7eaf5f3dbd46"),
    ("a.txt b.txt", {"split": "document", "separator": "\\n--\\n", "val_fraction": 0.4}, "3e1f4338abe9"),
    ("l.txt", {"encoding": "cp1252"}, "4b9ad7460417"),
    ("t.csv", {"field": "body", "format": "fields"}, "fb03f3119c06"),
    ("r.jsonl", {"field": "body"}, "414aea5c2339"),
    ("r.json", {"field": "body", "format": "fields"}, "414aea5c2339"),
    ("b.txt", {"items": "line"}, "2ce3a095fc7d"),
    ("p.txt", {"items": "paragraph"}, "f1f099e46993"),
    ("t.csv", {"items": "name", "label": "race"}, "d3ff779d6c3f"),
    ("r.jsonl", {"items": "body", "label": "race,name"}, "02ae45e7a804"),
    ("g.fasta", {"items": "line", "label": "header"}, "00318fa90af7"),
]


@pytest.mark.parametrize("names, changes, digest", PINNED, ids=lambda value: str(value))
def test_what_a_model_reads_never_changes(names, changes, digest, load, tmp_path):
    for name, text in PINNED_FILES.items():
        write(tmp_path / name, text)
    write(tmp_path / "l.txt", TEXT.encode("cp1252"))
    corpus = load(*(tmp_path / name for name in names.split()), **{"val_fraction": 0.1, **changes})
    assert hashlib.sha256(corpus.train.tobytes() + b"|" + corpus.val.tobytes()).hexdigest()[:12] == digest
