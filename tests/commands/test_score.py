"""`python -m chargpt score` on tiny runs: its numbers are the model's, and a hostile text commands no terminal and no page."""

import dataclasses
import json
import random
import re
import sys

import pytest
from helpers import SHAPE, TOKENIZER, publish_run

import chargpt
from chargpt.__main__ import main
from chargpt.commands.score import read_texts
from chargpt.config import Config, DataConfig
from chargpt.errors import UserError
from chargpt.sampling.loaded_model import load_model
from chargpt.text.corpus import load_corpus
from chargpt.text.normalization import TextNormalizer
from chargpt.text.tokenizer import Tokenizer
from chargpt.training.evaluation import evaluate

TEXT = "abcd efgh\nfeed a cab\n" * 9
HOSTILE = "</script><b>\x1b[2J\u202e&amp;\"'"


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    tokenizer = Tokenizer("".join(sorted(set("\n abcdefgh" + HOSTILE))))
    return publish_run(tmp_path_factory.mktemp("runs") / "poems", tokenizer)


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text(TEXT, encoding="utf-8")
    return path


def objects(out: str) -> list[dict]:
    return [json.loads(line) for line in out.splitlines()]


def test_with_the_context_as_stride_the_loss_is_the_validation_loss(run, file, capsys):
    loaded = chargpt.load(run)
    expected = evaluate(loaded.model, loaded.tokenizer.encode(TEXT))
    assert main(["score", str(run), str(file), "--stride", "16", "--json"]) == 0
    *lines, totals = objects(capsys.readouterr().out)
    assert totals["total"]["loss"] == pytest.approx(expected, abs=1e-4)
    assert loaded.score(TEXT) == pytest.approx(expected, abs=1e-6)
    assert "".join(line["content"] for line in lines) == TEXT
    bits = [value for line in lines for value in line["bits"]]
    assert bits[0] is None and sum(bits[1:]) == pytest.approx(totals["total"]["bits"], abs=0.05)
    assert totals["stride"] == totals["context"] == 16
    main(["score", str(run), str(file), "--json"])
    totals = objects(capsys.readouterr().out)[-1]
    assert totals["stride"] == 8  # by default, the windows overlap
    assert totals["total"]["loss"] == pytest.approx(loaded.score(TEXT, stride=8), abs=1e-5)


def test_the_table_has_a_line_for_each_text_and_for_each_program(run, file, capsys):
    (file.parent / "b.txt").write_text(TEXT[:50] + "ÄÄ")
    assert main(["score", str(run), str(file.parent)]) == 0
    out, err = capsys.readouterr()
    for word in ("a.txt", "b.txt", "all texts", "gzip -9", "xz -9e", "bzip2 -9"):
        assert word in out
    assert (
        "2 of 239 characters are unknown" in err
        and "each counts as 20.1 bits:" in err
        and "no comparison with an n-gram model" in err
    )


def test_the_most_surprising_lines_come_first(run, file, capsys):
    main(["score", str(run), str(file), "--lines"])
    every = capsys.readouterr().out.splitlines()[1:]
    main(["score", str(run), str(file), "--lines", "--top", "2"])
    head, *most = capsys.readouterr().out.splitlines()
    bits = [float(line.split()[1]) for line in most]
    assert len(most) == 2 and bits == sorted((float(line.split()[1]) for line in every), reverse=True)[:2]
    assert all("a.txt:" in line for line in most)


def test_a_text_that_was_trained_on_is_said_to_be(tmp_path, capsys):
    draw = random.Random(1)
    lines = ["".join(draw.choices("abcdefgh ", k=30)) + "\n" for _ in range(80)]
    (tmp_path / "known.txt").write_text("".join(lines))
    (tmp_path / "new.txt").write_text("".join(line[::-1].strip() + "\n" for line in lines))
    data = DataConfig(cache=str(tmp_path / "cache"))
    corpus = load_corpus([str(tmp_path / "known.txt")], data, root=tmp_path, block_size=16)
    config = Config(model=SHAPE, data=data)
    known = publish_run(tmp_path / "run", corpus.tokenizer, config=config, fingerprint=corpus.fingerprint, texts=corpus.texts)
    main(["score", str(known), str(tmp_path / "known.txt")])
    assert re.search("[89].% of the text is lines that the model was trained on", capsys.readouterr().err)
    main(["score", str(known), str(tmp_path / "new.txt")])
    assert "training text" not in capsys.readouterr().err


def test_a_hostile_text_is_escaped_in_the_terminal(run, file, monkeypatch, capsys):
    file.write_text(HOSTILE, encoding="utf-8")
    main(["score", str(run), str(file), "--lines"])
    assert not re.search("[\x1b\u202e]", capsys.readouterr().out)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    main(["score", str(run), str(file), "--json"])
    out = capsys.readouterr().out
    assert out.isascii() and "\x1b" not in out and objects(out)[0]["content"] == HOSTILE
    file.write_text("é中", encoding="utf-8")
    main(["score", str(run), str(file), "--json"])
    assert "é中" in capsys.readouterr().out


@pytest.mark.parametrize("tokenizer", [Tokenizer("\nab中"), Tokenizer(None)], ids=["characters", "bytes"])
def test_a_long_text_is_complete(tmp_path, tokenizer):
    """It is read in pieces, some of which end inside a character of UTF-8."""
    content = ("ab中\n" + "aé" * 5) * 2**16 if tokenizer.characters is None else "ab中\n" * 2**16
    data = content.encode() + b"\xff" * (tokenizer.characters is None)
    (tmp_path / "a.txt").write_bytes(data)
    loaded = chargpt.load(publish_run(tmp_path / "run", tokenizer))
    ((_, text),) = read_texts([str(tmp_path / "a.txt")], loaded, {})
    assert text.encode("utf-8", "surrogateescape") == data


def test_without_a_name_the_text_is_the_validation_split_of_the_run(installed, tmp_path):
    (tmp_path / "a.txt").write_text("abc\n" * 100)
    corpus = load_corpus([str(tmp_path / "a.txt")], DataConfig(), root=tmp_path, block_size=8)
    run = publish_run(tmp_path / "run", corpus.tokenizer, fingerprint=corpus.fingerprint)
    loaded, _ = load_model(str(run), tmp_path, device="cpu")
    assert read_texts([], loaded, {}) == [("validation split", "abc\n" * 10)]
    with pytest.raises(UserError, match="text of this run is gone"):
        read_texts([], dataclasses.replace(loaded, fingerprint="1" * 64), {})


FOLDS = TextNormalizer(newlines="fold", lowercase=True)


@pytest.mark.parametrize(
    "newlines, normalizer, content",
    [("auto", None, "ab\nAb\n"), ("keep", None, "ab\r\nAb\r"), ("auto", FOLDS, "ab\nab\n")],
)
def test_a_text_is_read_as_the_settings_and_the_normaliser_of_the_run_say(tmp_path, newlines, normalizer, content):
    """Also if the text that the run was trained on has no \\r, so that nothing was folded there."""
    config = Config(model=SHAPE, data=DataConfig(newlines=newlines))
    tokenizer = TOKENIZER if normalizer is None else Tokenizer("\nab", normalizer=normalizer)
    loaded = chargpt.load(publish_run(tmp_path / "run", tokenizer, config=config))
    (tmp_path / "a.txt").write_bytes(b"\xef\xbb\xbfab\r\nAb\r")
    assert read_texts([str(tmp_path / "a.txt")], loaded, {}) == [(str(tmp_path / "a.txt"), content)]


def test_a_text_is_read_with_the_settings_that_are_given(run, tmp_path, capsys):
    (tmp_path / "a.txt").write_bytes("abc ä\n".encode("cp1252"))
    with pytest.raises(UserError, match="data.encoding=cp1252"):
        main(["score", str(run), str(tmp_path / "a.txt"), "--json"])
    assert main(["score", str(run), str(tmp_path / "a.txt"), "data.encoding=cp1252", "--json"]) == 0
    assert objects(capsys.readouterr().out)[0]["content"] == "abc ä\n"
    (tmp_path / "a.csv").write_text("title,body\nfee,abcd\n")
    assert main(["score", str(run), str(tmp_path / "a.csv"), "data.field=body", "--json"]) == 0
    assert objects(capsys.readouterr().out)[0]["content"].strip() == "abcd"
