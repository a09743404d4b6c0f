"""Every place of the training text is found in the files that it was read from, and none in files that have changed."""

import json
import random
import re
from pathlib import Path

import pytest

from chargpt.config import DataConfig
from chargpt.text.corpus import Corpus
from chargpt.text.places import find_places

SETTINGS = [
    {},
    {"newlines": "fold", "lowercase": True},
    {"vocabulary": "bytes", "separator": "é\\n"},
    {"separator": "\\n\\n"},
    {"split": "document", "val_fraction": 0.3},
]


@pytest.fixture
def folder(tmp_path) -> Path:
    """Files of words that are all different, with Windows and Unix lines, in folders, and one in JSON lines."""
    draw, number = random.Random(0), 0
    (tmp_path / "texts" / "more").mkdir(parents=True)
    for name in ("a.txt", "b.txt", "more/a.txt", "more/c.jsonl"):
        lines = []
        for _ in range(30):
            words = [f"W{number + i}é" for i in range(draw.randrange(4))]
            number += len(words)
            content = " ".join(words)
            lines.append(json.dumps({"text": ".\n" + content}) if name.endswith("jsonl") else content)
        (tmp_path / "texts" / name).write_bytes(draw.choice(["\n", "\r\n"]).join(lines).encode())
    return tmp_path / "texts"


def words_of(corpus: Corpus) -> dict[str, int]:
    """The words of the training split, and where each begins in it."""
    is_bytes = corpus.tokenizer.characters is None
    text = bytes(corpus.train).decode("latin-1") if is_bytes else corpus.tokenizer.decode(corpus.train)
    return {match[0].upper(): match.start() for match in re.finditer("[Ww][0-9]+(?=[éÃ])", text)}


def places_in(corpus: Corpus, wanted: object, folder: Path, **settings: object) -> dict[int, tuple[str, int]]:
    config = DataConfig(**{"val_fraction": 0.5, "pattern": "*", **settings})
    return find_places(wanted, corpus, config, texts=[str(folder)], root=folder.parent)


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_each_word_is_found_in_its_file_and_line_and_all_between_on_the_way(settings, load, folder):
    corpus = load(folder, pattern="*", **settings)
    words, files = words_of(corpus), [path for path in folder.rglob("*.*") if path.is_file()]
    lines = [(str(path), n, line) for path in files for n, line in enumerate(path.read_bytes().split(b"\n"), 1)]
    written = {word: [place[:2] for place in lines if re.search(rb"%s(\xc3|\\u)" % word.encode(), place[2])] for word in words}
    places = places_in(corpus, [*words.values()][::-1], folder, **settings)
    assert len(words) > 20 and {word: [places[at]] for word, at in words.items()} == written
    every = places_in(corpus, range(len(corpus.train)), folder, **settings)
    assert [*every] == [*range(len(corpus.train))] and places.items() <= every.items()
    assert all(b[1] >= a[1] or b[0] != a[0] for a, b in zip([*every.values()], [*every.values()][1:])), "in their order"
    assert places_in(corpus, [], folder, **settings) == {}


def test_each_word_of_a_table_is_found_in_the_line_where_its_record_begins(load, tmp_path):
    (tmp_path / "a.csv").write_text("id,body\n" + "".join(f'{n},"more\nW{n}é"\n' for n in range(20)))
    settings = {"field": "body", "format": "fields", "val_fraction": 0.5}
    corpus = load(tmp_path / "a.csv", **settings)
    words = words_of(corpus)
    places = places_in(corpus, words.values(), tmp_path / "a.csv", **settings)
    assert {word: places[at][1] for word, at in words.items()} == {word: 2 + 2 * int(word[1:]) for word in words} != {}


def test_a_file_that_has_changed_ends_the_search(load, folder):
    corpus = load(folder, pattern="*")
    path = folder / "b.txt"
    path.write_bytes(path.read_bytes().replace(b"W", b"X", 1))
    places = places_in(corpus, words_of(corpus).values(), folder)
    assert {file for file, _ in places.values()} == {str(folder / "a.txt")}
    path.unlink()
    assert places_in(corpus, words_of(corpus).values(), folder) == places


def test_texts_that_cannot_be_read_again_have_no_places_and_are_not_opened(load, folder, monkeypatch):
    """Nor is anything read from the network, or a file of the system, some of which block their reader."""
    corpus = load(folder, pattern="*", shuffle="lines")
    assert places_in(corpus, [0], folder, shuffle="lines") == {}, "its order is not that of the files"
    corpus = load(folder, pattern="*")
    monkeypatch.setattr("urllib.request.urlopen", lambda *_, **__: pytest.fail("read from the network"))
    monkeypatch.setattr("chargpt.text.source.open", lambda path, *_: pytest.fail(f"{path} was opened"), raising=False)
    process = ["/proc/self/environ", "/proc/self/net"]
    for texts in (["-"], [str(folder / "gone")], [str(folder), "-"], ["shakespeare"], *([path] for path in process)):
        assert find_places([0], corpus, DataConfig(pattern="*"), texts=texts, root=folder.parent) == {}
    config = DataConfig(pattern="*", val_text="shakespeare")
    assert find_places([0], corpus, config, texts=[str(folder / "a.txt")], root=folder.parent) == {}
