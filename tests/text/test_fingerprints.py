"""What a fingerprint follows: pinned ones, by which runs of earlier programs find their text, and each setting on its own."""

import dataclasses
import hashlib
import json

import pytest

from chargpt.config import DataConfig
from chargpt.text.corpus import request_for
from chargpt.text.tokenizer import Tokenizer

TEXT = "Un été à la mer: the sea and the stone.\r\nLe café du théâtre.\n\n" * 40
TABLE = "race,name,body\n" + "".join(f'{"elf" if n % 3 else "orc"},name{n},"the sea, {n}"\n' for n in range(60))
RECORDS = [{"race": "elf" if n % 3 else "orc", "name": f"name{n}", "body": f"the sea {n}"} for n in range(60)]
FILES = {
    "a.txt": TEXT,
    "b.txt": "".join(f"line number {n} of the sea\n" for n in range(60)),
    "t.csv": TABLE,
    "t.tsv": TABLE.replace('"', "").replace(", ", " ").replace(",", "\t"),
    "r.jsonl": "\n".join(map(json.dumps, RECORDS)),
    "r.json": json.dumps({"n": 1, "poems": RECORDS}, indent=1),
    "g.fasta": "".join(f">s{n % 4} made up\nACGT{'AC' * n}\nGG\n" for n in range(20)),
    "p.txt": "one\ntwo\n\nthree\n\nfour\nfive\n\nsix\n",
}
# Texts, settings, and the beginnings of the fingerprint and of the SHA-256 of the ids. They never change.
PINNED = [
    ("a.txt", {}, "afef3f6601cffac0", "4b9ad7460417"),
    ("a.txt", {"newlines": "keep"}, "8137803e798a86de", "37c87c54f700"),
    ("a.txt", {"val_fraction": 0.25}, "4cc847995d7839a5", "a93c1ef51ffa"),
    ("a.txt", {"normalize": "NFC", "lowercase": True}, "2b8d0ff3b07137da", "0b401453f6cc"),
    ("a.txt", {"vocabulary": "bytes"}, "e5d2e3db9ce79079", "946cceee4636"),
    ("a.txt", {"min_count": 50}, "055495c1768ed4b5", "b8a8f19f3a45"),
    ("a.txt", {"max_vocab": 20}, "44a968ab761308fe", "4f3bde556909"),
    ("a.txt", {"split": "blocks"}, "c5455a8aee386003", "01a90f66508f"),
    ("b.txt", {"shuffle": "lines"}, "00e7510220936502", "7eaf5f3dbd46"),
    ("a.txt b.txt", {"split": "document", "separator": "\\n--\\n", "val_fraction": 0.4}, "a9802ab50bf33279", "3e1f4338abe9"),
    ("a.txt", {"val_text": "b.txt"}, "393433d4ad97917d", "3e1f4338abe9"),
    ("l.txt", {"encoding": "cp1252"}, "6fc51d99cfd00a93", "4b9ad7460417"),
    ("t.csv", {"field": "body", "format": "fields"}, "3aa698c5fd5e5bb8", "fb03f3119c06"),
    ("t.tsv", {"field": "body", "format": "fields"}, "6982f841f96f06db", "414aea5c2339"),
    ("r.jsonl", {"field": "body"}, "293b2d4242eef728", "414aea5c2339"),
    ("r.json", {"field": "body", "format": "fields"}, "5fd560f7153bee27", "414aea5c2339"),
    ("b.txt", {"items": "line"}, "e8b6342a8216bf49", "2ce3a095fc7d"),
    ("p.txt", {"items": "paragraph"}, "d813fca0dad71a45", "f1f099e46993"),
    ("t.csv", {"items": "name", "label": "race"}, "a94ed9b783efe5eb", "d3ff779d6c3f"),
    ("r.jsonl", {"items": "body", "label": "race,name"}, "fd4533c6856314c6", "02ae45e7a804"),
    ("g.fasta", {"items": "line", "label": "header"}, "b24d35bfc97ea5cf", "00318fa90af7"),
    ("r.json", {"items": "name", "label": "race"}, "452e3994833e5b06", "d3ff779d6c3f"),
]


@pytest.fixture
def files(tmp_path):
    for name, content in FILES.items():
        (tmp_path / name).write_bytes(content.encode())
    (tmp_path / "l.txt").write_bytes(TEXT.encode("cp1252"))
    (tmp_path / "copy.txt").write_text(FILES["b.txt"])
    rows = "".join(f"{'ab'[n % 2]},{'ba'[n % 2]},name{n}\n" for n in range(60))
    (tmp_path / "two.csv").write_text("one,two,name\n" + rows)
    return tmp_path


# Another value of each setting.
OTHER = {
    "val_fraction": 0.2, "split": "blocks", "val_text": "b.txt", "pattern": "*.md", "encoding": "cp1252", "field": "body",
    "format": "text", "shuffle": "lines", "items": "line", "label": "file", "separator": "--", "newlines": "keep",
    "normalize": "NFC", "lowercase": True, "vocabulary": "bytes", "min_count": 2, "max_vocab": 9, "where": "a=b",
}  # fmt: skip
NEEDS = {"label": {"items": "line"}}


@pytest.mark.parametrize("name", [field.name for field in dataclasses.fields(DataConfig)])
def test_every_setting_but_the_place_of_the_cache_asks_for_another_text(name, tmp_path):
    plain = DataConfig(**NEEDS.get(name, {}))
    other = dataclasses.replace(plain, **{name: OTHER.get(name, "x")})
    assert (request_for(["x"], other, None, "") == request_for(["x"], plain, None, "")) == (name == "cache")


def test_files_and_vocabulary_ask_for_another_text():
    vocabularies = [(None, ""), (None, "ab"), (Tokenizer("ab"), ""), (Tokenizer("abc"), ""), (Tokenizer("ab", folded=True), "")]
    requests = [request_for([file], DataConfig(), *vocabulary) for file in "xy" for vocabulary in vocabularies]
    assert len({*requests}) == len(requests) == 10 and not request_for(None, DataConfig(), None, "")


OTHERS = [  # those that are the text of a row above, and others, no two of which are the same
    *(("a.txt", settings, *PINNED[0][2:]) for settings in ({"pattern": "*.md"}, {"newlines": "fold"}, {"format": "text"})),
    *((names, {}, "", "") for names in ("b.txt", "copy.txt", "a.txt b.txt", "b.txt a.txt", "t.csv")),
    ("copy.txt", {"items": "line"}, "e8b6342a8216bf49", "2ce3a095fc7d"),
    ("b.txt", {"items": "line", "label": "file"}, "", ""),
    ("a.txt b.txt", {"separator": "--"}, "", ""),
    ("t.csv", {"field": "name", "format": "fields"}, "", ""),
    ("t.csv", {"items": "name"}, "", ""),
    ("t.csv", {"items": "name", "label": "body"}, "", ""),
    ("two.csv", {"items": "name", "label": "one"}, "", ""),  # two labels of the same characters
    ("two.csv", {"items": "name", "label": "two"}, "", ""),
]


def test_texts_keep_their_fingerprints_and_those_that_differ_in_ids_split_labels_or_vocabulary_have_others(
    load, files, monkeypatch
):
    monkeypatch.setattr("unicodedata.unidata_version", "14.0.0")  # part of the fingerprint of a normalised text
    seen: dict[str, tuple[object, ...]] = {}
    for names, settings, fingerprint, ids in PINNED + OTHERS:
        paths = {"val_text": str(files / settings["val_text"])} if "val_text" in settings else {}
        corpus = load(*(files / name for name in names.split()), **{"val_fraction": 0.1, **settings, **paths})
        content = (corpus.train.tobytes(), corpus.val.tobytes(), json.dumps(corpus.tokenizer.to_json()), corpus.marks)
        digest = hashlib.sha256(content[0] + b"|" + content[1]).hexdigest()
        assert not ids or (corpus.fingerprint[:16], digest[:12]) == (fingerprint, ids), (names, settings)
        assert seen.setdefault(corpus.fingerprint, content) == content, (names, settings)
    assert len(seen) == len(PINNED + OTHERS) - 5
