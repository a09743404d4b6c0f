"""What a fingerprint follows: pinned ones, by which runs of earlier programs find their text, and each setting on its own."""

import hashlib
import json

import pytest

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
    return tmp_path


@pytest.mark.parametrize("names, settings, fingerprint, ids", PINNED)
def test_a_text_keeps_the_fingerprint_and_the_ids_by_which_runs_find_it(
    names, settings, fingerprint, ids, load, files, monkeypatch
):
    monkeypatch.setattr("unicodedata.unidata_version", "14.0.0")  # part of the fingerprint of a normalised text
    paths = {"val_text": str(files / settings["val_text"])} if "val_text" in settings else {}
    corpus = load(*(files / name for name in names.split()), **{"val_fraction": 0.1, **settings, **paths})
    digest = hashlib.sha256(corpus.train.tobytes() + b"|" + corpus.val.tobytes()).hexdigest()
    assert (corpus.fingerprint[:16], digest[:12]) == (fingerprint, ids)
