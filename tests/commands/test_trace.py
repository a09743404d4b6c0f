"""The verb finds planted copies in texts and samples, and prints nothing that commands a terminal."""

import json
import shutil

import pytest
from helpers import SHAPE, publish_run

from chargpt.commands import trace
from chargpt.config import Config, DataConfig, TrainConfig
from chargpt.runs.stage import Length, Stage, Start
from chargpt.text.corpus import load_corpus


def test_a_planted_copy_is_found_with_its_line(run, corpus, tmp_path, capsys):
    training = corpus.tokenizer.decode(corpus.train)
    copied = training[300:345]
    (tmp_path / "a.txt").write_text(f"\x1b[31m {copied} \u202e~~")
    assert trace.main([str(run), str(tmp_path / "a.txt"), "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    best = result["passages"][0]
    assert best["passage"] in copied + " " and best["length"] == result["longest_copy"] >= 45 - 1
    place = best["training_character"] - 1
    assert training[place : place + best["length"]] == best["passage"]
    assert best["training_line"] == training[:place].count("\n") + 1 and best["copies"] == training.count(best["passage"])
    assert result["novel"].keys() == result["validation"]["novel"].keys() == {str(n) for n in range(2, 33)}
    assert trace.main([str(run), str(tmp_path / "a.txt")]) == 0
    printed = capsys.readouterr()
    assert not {"\x1b", "\u202e"} & set(printed.out + printed.err)
    assert f"longest copy     {best['length']} characters" in printed.out


def test_the_comparison_is_with_text_that_the_model_has_not_seen(run, corpus, tmp_path, capsys):
    """As many characters from the start of the validation split, or all of it if the text is longer."""
    training, unseen = (corpus.tokenizer.decode(part) for part in (corpus.train, corpus.val))
    for text in (training[:400], training[:3000]):
        (tmp_path / "a.txt").write_text(text)
        assert trace.main([str(run), str(tmp_path / "a.txt"), "--json"]) == 0
        result = json.loads(capsys.readouterr().out)
        compared, longest = unseen[: len(text)], 0
        while any(compared[i : i + longest + 1] in training for i in range(len(compared) - longest)):
            longest += 1
        new = [compared[i : i + 5] not in training for i in range(len(compared) - 4)]
        assert result["longest_copy"] == len(text) and result["novel"]["5"] == 0
        assert result["validation"]["longest_copy"] == longest < len(compared)
        assert result["validation"]["novel"]["5"] == pytest.approx(sum(new) / len(new), abs=1e-6)


def test_samples_are_traced_without_a_text(run, capsys):
    arguments = [str(run), "--samples", "2", "--length", "50", "--seed", "3", "--json"]
    assert trace.main(arguments) == 0
    first = json.loads(capsys.readouterr().out)
    assert first["characters"] == 100 and {row["text"] for row in first["passages"]} <= {"sample 1", "sample 2"}
    assert trace.main(arguments) == 0
    assert json.loads(capsys.readouterr().out) == first


def test_a_copy_is_named_by_its_file_and_line(tmp_path, capsys):
    for name in ("a.txt", "b.txt"):
        lines = [f"line {i} of {name}, {i * 7919 % 1000}" for i in range(60)]
        (tmp_path / name).write_text("\n".join(lines), encoding="utf-8")
    texts, settings = [str(tmp_path / "a.txt"), str(tmp_path / "b.txt")], DataConfig(cache=str(tmp_path / "cache"))
    corpus = load_corpus(texts, settings, root=tmp_path, block_size=8)
    config = Config(model=SHAPE, train=TrainConfig(batch_size=1), data=settings)
    run = publish_run(tmp_path / "run", corpus.tokenizer, config=config, fingerprint=corpus.fingerprint, texts=texts)
    (tmp_path / "c.txt").write_text(lines[19], encoding="utf-8")
    assert trace.main([str(run), str(tmp_path / "c.txt"), "--json"]) == 0
    best = json.loads(capsys.readouterr().out)["passages"][0]
    assert (best["file"], best["line"], best["training_line"]) == (texts[1], 20, 80)
    trace.main([str(run), str(tmp_path / "c.txt")])
    printed = capsys.readouterr()
    assert "b.txt:20  " in printed.out and "changed" not in printed.err
    (tmp_path / "a.txt").write_text("other\n")
    trace.main([str(run), str(tmp_path / "c.txt")])
    printed = capsys.readouterr()
    assert "line 80 " in printed.out and "b.txt:" not in printed.out and "have changed or are gone" in printed.err


def test_copies_of_the_text_of_the_run_it_began_with_are_found_too(tmp_path, capsys):
    """The two runs have other vocabularies, so their ids differ."""
    runs, files = {}, {"start": "zebras jump over the lazy dog\n", "own": "Oh, what crazy yellow models, about 17 dogs\n"}
    for name, line in files.items():
        (tmp_path / f"{name}.txt").write_text(line * 20, encoding="utf-8")
        settings = DataConfig(cache=str(tmp_path / "cache"))
        corpus = load_corpus([str(tmp_path / f"{name}.txt")], settings, root=tmp_path, block_size=8)
        config = Config(model=SHAPE, train=TrainConfig(batch_size=1), data=settings)
        start = Start(name="start", is_run=True) if name == "own" else None
        known = {"fingerprint": corpus.fingerprint, "stage": Stage(start=start, length=Length.of(config))}
        runs[name] = publish_run(tmp_path / name, corpus.tokenizer, config=config, **known)
        runs[f"cache of {name}"] = tmp_path / "cache" / corpus.fingerprint
    (tmp_path / "a.txt").write_text("17 gods and more dogs about the lazy god", encoding="utf-8")
    arguments = [str(runs["own"]), str(tmp_path / "a.txt")]
    assert trace.main([*arguments, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["start"]
    best = found["passages"][0]
    assert found["name"] == "run start" and best["length"] == found["longest_copy"] == len(" the lazy ")
    trace.main(arguments)
    assert f"{found['longest_copy']} characters from the text of run start" in capsys.readouterr().out
    for gone in ("cache of start", "start"):
        shutil.rmtree(runs[gone])
        trace.main(arguments)
        printed = capsys.readouterr()
        assert "this run started from the weights of the run 'start', but that run or its text is gone" in printed.err
        assert "longest copy" in printed.out and "from the text of run" not in printed.out
