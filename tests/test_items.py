"""A run on items from the command line: trained, resumed and shared to the bit, written, classified, scored and exported."""

import json
import random
import re
import shutil
import signal
from collections import Counter
from pathlib import Path

import pytest
from helpers import bits, last_step, logged, logged_without_speed, publish_run
from scripts import needs_node, run_script
from session_helpers import finish, opened, resumed

import chargpt
import sample
import train
from chargpt.__main__ import main
from chargpt.errors import UserError
from chargpt.planning.cli import parse_options
from chargpt.program import run_program
from chargpt.runs.checkpoint import newest
from chargpt.sampling import item_writer
from chargpt.sampling.cli import parse_options as parse_options_of_sample
from chargpt.sampling.loaded_model import load_model
from chargpt.text.item_stream import items_in
from chargpt.training.trainer import Trainer

NAMES = ("--items", "name", "--label", "race")
LETTERS = {"elf": "aeil", "orc": "gruk", "ent": "bhom"}
SETTINGS = (
    "--config tiny model.block_size=16 train.eval_interval=40 checkpoint.interval=40 train.sample_length=60 "
    "runtime.threads=1 optim.learning_rate=1e-2"
).split()


@pytest.fixture(scope="module")
def names(tmp_path_factory):
    """A table of 600 names, whose letters tell the label."""
    draw, path = random.Random(0), tmp_path_factory.mktemp("names") / "names.csv"
    labels = draw.choices(list(LETTERS), weights=[3, 2, 1], k=600)
    rows = (f"{label},{''.join(draw.choices(LETTERS[label], k=draw.randint(3, 6)))}\n" for label in labels)
    path.write_text("race,name\n" + "".join(rows), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def run(names, session_root, tmp_path_factory):
    """A run on the table, with its text in the cache of the project."""
    folder = tmp_path_factory.mktemp("run") / "names"
    assert train.main([str(names), *NAMES, *SETTINGS, "train.max_steps=120", "--run", str(folder)]) == 0
    return folder


@pytest.fixture
def said(capsys, run, tmp_path):
    """What a verb or sample.py writes of the run, and of a file with this content if one is given."""

    def said(verb: str, *words: str, content: str | None = None, of: Path = run, code: int = 0) -> tuple[str, str]:
        path = tmp_path / ("new.csv" if "," in (content or "") else "new.txt")
        path.write_text(content or "")
        words = [str(of), *[str(path)] * (content is not None), *words]
        capsys.readouterr()
        assert run_program(lambda: sample.main(["--seed", "1", *words]) if verb == "sample" else main([verb, *words])) == code
        return capsys.readouterr()

    return said


def test_a_run_records_bits_per_item_and_its_sample_is_items(run):
    last = logged(run)[-1]
    characters = last["val/bits_per_item"] / last["val/bits_per_char"]
    assert 4.0 < characters < 7.0  # with the end of each name, without its label
    assert all(line.split("\t")[0] in LETTERS for line in last["sample"].split("\n")[:-1])


def test_stopped_and_resumed_equals_uninterrupted(names, run, tmp_path, monkeypatch):
    """With all that a step on items may have: labels that are learned, several batches, dropout, Muon and a teacher."""
    (tmp_path / "few.csv").write_text("".join(names.read_text().splitlines(keepends=True)[:120]))
    words = [f"{tmp_path}/few.csv", *NAMES, *SETTINGS, "train.max_steps=30", "train.log_interval=1", "train.eval_interval=10"]
    words += ["train.label_loss=true", "train.accumulate=2", "model.dropout=0.1", "--teacher", str(run), "optim.name=muon"]
    words += [f"data.cache={tmp_path}/cache"]
    assert finish(opened([*words, "--run", f"{tmp_path}/whole"])) == 0
    advance = Trainer.advance

    def stop(trainer: Trainer) -> None:
        if trainer.progress.step == 17:  # in the second epoch
            signal.raise_signal(signal.SIGTERM)
        advance(trainer)

    monkeypatch.setattr(Trainer, "advance", stop)
    assert finish(opened([*words, "--run", f"{tmp_path}/stopped"])) == 143
    monkeypatch.undo()
    assert 17 <= int(last_step(tmp_path / "stopped").name[5:]) < 25
    assert finish(resumed(tmp_path / "stopped")) == 0
    assert bits(tmp_path / "stopped") == bits(tmp_path / "whole")
    assert logged_without_speed(tmp_path / "stopped") == logged_without_speed(tmp_path / "whole")


def test_items_are_whole_and_of_the_label_that_is_asked_for(said):
    out, err = said("sample", "--items", "40", "--label", "orc", "--unique", "--temperature", "1")
    lines = out.splitlines()
    assert len(lines) == len({*lines}) == 40 and "written        40  of 40 wanted" in err and "unique" in err
    assert sum({*line} <= {*LETTERS["orc"]} for line in lines) > 30 and len(said("sample")[0].splitlines()) == 10


def test_labels_are_drawn_as_often_as_the_text_has_them(said, names):
    wanted = Counter(line.partition(",")[0] for line in names.read_text().splitlines()[1:])
    drawn = Counter(line.partition("\t")[0] for line in said("sample", "--items", "600", "--max-length", "16")[0].splitlines())
    for label, count in wanted.items():
        assert abs(drawn[label] - count) < 4 * (count * (1 - count / 600)) ** 0.5, (drawn, wanted)


def test_items_are_refused_by_what_is_asked_for(said, run, monkeypatch):
    out, err = said("sample", *"--items 30 --new --label elf --match ^a --min-length 4 --max-length 5".split())
    lines = out.splitlines()
    assert len(lines) == 30 and all(line[0] == "a" and 4 <= len(line) <= 5 for line in lines)
    corpus = load_model(str(run), run.parent)[0].corpus()
    assert not {*lines} & {item.text for item in items_in(corpus.train, corpus.tokenizer, has_labels=True)}
    assert "in the training text" in err
    banned = said("sample", *"--items 60 --unique --label elf --ban-word EI --ban-word l".split())[0]
    assert banned.count("\n") > 20 and "ei" not in banned and "l" not in banned
    monkeypatch.setattr(item_writer, "ATTEMPTS", 50)
    for words in (["--match", "zzz"], ["--min-length", "60"], ["--max-length", "1", "--prompt", "gu"]):
        out, err = said("sample", "--items", "3", *words)
        assert (
            out == "" and "no more items, since 50 in a row were rejected" in err and f"); change {words[0]}, raise --t" in err
        )


@pytest.mark.parametrize("asked", ["--match ^ei", "--match ii", "--max-length 3", "--unique --match u"])
def test_a_list_ends_when_far_more_is_rejected_than_written(asked, run, monkeypatch):
    """Although now and then an item fits: after each of them, it may throw away some more."""
    most, batch = 300, 32 * 17
    monkeypatch.setattr(item_writer, "MOST_REFUSED", most)
    monkeypatch.setattr(item_writer, "REFUSED_SHARE", 1)
    options = parse_options_of_sample(["--items", "100000", "--seed", "1", *asked.split()]).sampling
    writer = load_model(str(run), run.parent)[0].item_writer(options, beginning="")
    written, tried = sum(len(item.text) for item in writer), sum(writer.refused.values())
    assert 0 < written and 0 < tried < most + written + batch and f"since {tried:,} in all" in str(writer.problem)


@pytest.mark.parametrize("temperature", [0.2, 0.5])
def test_no_item_is_written_twice_in_all_batches_together(temperature, run, monkeypatch):
    monkeypatch.setattr(item_writer, "BATCH", 4)
    options = parse_options_of_sample(["--items", "90", "--unique", "--seed", "1", "--temperature", str(temperature)]).sampling
    writer = load_model(str(run), run.parent)[0].item_writer(options, beginning="")
    texts = [item.text for item in writer]
    assert len(texts) == len({*texts}) > 12 and writer.refused["repeated"] > 4, "of several batches"


def test_items_that_the_context_cannot_hold_end_the_list_with_what_to_do(said, monkeypatch):
    monkeypatch.setattr(item_writer, "MOST_REFUSED", 3000)
    assert (
        "mostly: too long); change --max-length, train with a larger model.block_size"
        in said("sample", "--items", "3", "--ban", "\n")[1]
    )


def test_items_as_json_have_the_log_probability_of_the_model(said, run):
    loaded, _ = load_model(str(run), run.parent)
    for value in map(json.loads, said("sample", *"--items 5 --json --prompt e --label elf".split())[0].splitlines()):
        ids = f"\nelf\t{value['item']}\n"
        logits = loaded.logits(ids[:-1]).log_softmax(dim=-1)
        expected = sum(logits[i, loaded.tokenizer.ids_of(ids[i + 1])[0]].item() for i in range(4, len(ids) - 1))
        assert value["log_probability"] == pytest.approx(expected, abs=1e-3) and value["item"][0] == "e"
        assert value["label"] == "elf" and isinstance(value["new"], bool)


LIKE = {
    "all": {},
    "one label": {"label": "orc", "unique": True, "temperature": 1.0},
    "chosen": {"label": "elf", "new": True, "match": "a$", "min_length": 4, "max_length": 5, "prompt": "e"},
}


@pytest.mark.parametrize("what", LIKE)
def test_the_library_writes_the_items_of_the_program(what, said, run):
    flags = [f"--{name.replace('_', '-')}" + ("" if value is True else f"={value}") for name, value in LIKE[what].items()]
    out, _ = said("sample", "--items", "12", "--json", *flags)
    expected = [(value["label"], value["item"]) for value in map(json.loads, out.splitlines())]
    assert chargpt.load(run).items(12, seed=1, **LIKE[what]) == expected and len(expected) == 12


def test_the_library_writes_one_item_of_a_label(run, monkeypatch):
    model = chargpt.load(run)
    one = model.generate("gu", label="orc", seed=4)
    assert one == model.items(1, prompt="gu", label="orc", seed=4)[0].text == "".join(model.stream("gu", label="orc", seed=4))
    assert model.generate(seed=5) == model.items(1, seed=5)[0].text
    assert model.generate("orc\tgu", seed=5, lines=3).count("\n") == 2  # the list as a text
    many = model.generate(["g"] * 40, label="orc", seed=1)
    assert many == [model.generate("g", label="orc", seed=1 + i) for i in range(40)] and len({*many}) > 10
    assert model.generate("g", label="ORC", seed=1) == many[0]  # one label alone is spelled so in another case
    for wrong, says in (
        ({"label": "Orcs"}, "='Orcs': did you mean orc?"),
        ({"label": "orc", "lines": 2}, "= is for a list of "),
    ):
        with pytest.raises(ValueError, match=f"^label{re.escape(says)}"):
            model.generate(**wrong)
    monkeypatch.setattr(item_writer, "ATTEMPTS", 50)
    with pytest.warns(
        UserWarning, match="since 50 in a row were rejected .mostly: no match.; change match, raise temperature, or ask"
    ):
        assert model.items(3, match="zzz", seed=1) == []


MISTAKES = {  # words, or a verb and the content of a file, and what is said
    "an unknown label": (["--label", "zz"], "--label: 'zz' given; use one of elf, orc, ent"),
    "an option of items for a text": (["--match", "a", "--lines", "2"], "--match: cannot be used with --lines, since"),
    "lines": (["--items", "3", "--lines", "2"], "--items: cannot be used with --lines, since"),
    "a wrong expression": (["--match", "("], "--match: .*regular expression"),
    "a length of 0": (["--items", "3", "--length", "0"], "--length: 0 given; use 1 or more, since an item has"),
    "a length of 0 of a run on items": (["--length", "0"], "--length: 0 given; use 1 or more"),
    "lengths": (["--min-length", "5", "--max-length", "3"], "--min-length: 5 given; use at most 3, or a larger --max-length"),
    "a length": (["--length", "3", "--min-length", "9"], "--min-length: 9 given; use at most 3, or a larger --max-length"),
    "no length": (["--min-length", "1001"], "--min-length: 1001 given; use at most 1000, or a larger --max-length"),
    "a letter that the model does not know": (["--prompt", "Q"], ".*'Q'"),
    "interactive without a label": (["--interactive"], "--interactive: .*add --label with one of elf"),
    "a score with labels": (("score", None), ".*items with labels, .*; add --items"),
    "no labels": (("losses", "leila\ngrukk\n"), ".*new.txt: has no labels"),
    "a line end": (("losses", 'race,name\nelf,"lei\nla"\n'), ".* a line end, and each line is an item of this run; remove"),
}


@pytest.mark.parametrize("what", MISTAKES)
def test_a_mistake_gets_one_line(what, said):
    words, message = MISTAKES[what]
    verb, content = words if isinstance(words, tuple) else ("sample", None)
    error = said(verb, *words * (verb == "sample"), content=content, code=2)[1].splitlines()[-1]
    assert re.match(f"error: {message}", error), error


def test_a_plain_run_has_no_items(tmp_path, said):
    publish_run(tmp_path / "plain")
    for words in (["--items", "3"], ["--label", "a"], ["--new"], ["--match", "a"]):
        assert "not trained on items" in said("sample", *words, of=tmp_path / "plain", code=2)[1]
    for verb, *words in (["classify"], ["score", "--items"]):
        assert "with --items" in said(verb, *words, of=tmp_path / "plain", code=2)[1]


def test_a_loss_without_labels_is_that_of_the_validation(run, said):
    assert json.loads(said("losses", "--json")[0])["loss"] == pytest.approx(logged(run)[-1]["val/loss"], abs=0.01)
    classes = json.loads(said("losses", "--json", content="race,name\nelf,leila\norc,grukk\n")[0])["classes"]
    assert sum(row["characters"] for row in classes) == len("leila\ngrukk\n")


def test_the_label_of_an_item_is_found(said):
    out, _ = said("classify")
    assert float(out.split("%")[0].split()[-1]) > 90 and "elf" in out.splitlines()[1]
    assert re.match(r"accuracy [\d.]+% ± [\d.]+% on 60 items; always ", out)
    out, err = said("classify", content="leila\ngrukk\nbohom\nΩmega\n")
    assert [line.split("\t")[0] for line in out.splitlines()][:3] == ["elf", "orc", "ent"]
    assert "1 of 4 items, such as Ωmega, have characters that the model has never seen; these characters were left out" in err
    out, err = said("classify", "--json", content="race,name\nelf,leila\norc,grukk\norc,leia\n")
    values = [json.loads(line) for line in out.splitlines()]
    assert [value["guess"] for value in values] == ["elf", "orc", "elf"] and "accuracy 66.7% ± 27.2% on 3 items; " in err
    assert all(sum(value["probability"].values()) == pytest.approx(1, abs=1e-4) for value in values)


@pytest.mark.parametrize("words", [["classify"], ["score", "--items"], ["losses"]])
def test_items_that_a_run_has_learned_are_told(words, run, said):
    read = load_model(str(run), run.parent, device="cpu")[0].corpus()
    learned, held = (
        [f"{item.label},{item.text}" for item in items_in(ids, read.tokenizer, has_labels=True)]
        for ids in (read.train, read.val)
    )
    known = {line.partition(",")[2] for line in learned}
    held = [line for line in held if line.partition(",")[2] not in known]
    for lines, is_told in ((learned[:9], True), (held[:9], False), ([*held[:5], *learned[:5]], True)):
        _, err = said(*words, content="\n".join(["race,name", *lines, ""]))
        assert ("that the model was trained on" in err) == is_told
    assert "that the model was trained on" not in said(*words)[1]


def test_runs_are_compared_item_by_item(run, tmp_path, said):
    other = shutil.copytree(run, tmp_path / "other")
    alone = [json.loads(line) for line in said("score", "--items", "--json", "--top", "1000")[0].splitlines()]
    *items, total = map(json.loads, said("score", str(other), "--items", "--json")[0].splitlines())
    assert {item["line"]: item["bits"][str(run)] for item in items} == pytest.approx(
        {one["number"]: one["bits"] for one in alone}
    )
    assert total["items"] == len(alone) and total["runs"][1]["difference"] == total["runs"][1]["standard_error"] == 0


def test_the_most_surprising_item_comes_first(said):
    out, err = said("score", "--items", "--top", "3", content="race,name\nelf,leila\nelf,grukk\norc,grukk\nelf,lia\n")
    assert out.splitlines()[1].endswith("2: elf grukk") and len(out.splitlines()) == 4 and "4 items" in err
    assert json.loads(said("score", "--items", "--json", content="leila\nzzz\n")[0].splitlines()[0])["item"] == "zzz"


STARTED = {
    "other labels": ("more.csv", ["--items", "name", "--label", "kind"], {"tree", "rock"}),
    "no labels": ("more.csv", ["--items", "name"], {""}),
    "items of several lines": ("tree.txt", ["--items", "paragraph", "--label", "file"], {"tree"}),
}


@pytest.mark.parametrize("what", STARTED)
def test_a_run_starts_from_one_with_other_labels(what, run, tmp_path, said):
    name, words, labels = STARTED[what]
    rows = "".join(f"{kind},{name}\n" for kind in ("tree", "rock") for name in "leia groku bohm".split() * 9)
    (tmp_path / "more.csv").write_text(f"kind,name\n{rows}")
    (tmp_path / "tree.txt").write_text("leia\ngroku\n\nbohm\n\ngroku\nbohm\n")
    words = [f"{tmp_path}/{name}", *words, "--init-from", str(run), "train.max_steps=5", "train.sample_length=0"]
    assert train.main([*words, "train.eval_interval=5", "--run", f"{tmp_path}/new", f"data.cache={tmp_path}/cache"]) == 0
    out, _ = said("sample", *"--items 9 --json --max-length 40".split(), of=tmp_path / "new")
    assert {json.loads(line).get("label", "") for line in out.splitlines()} == labels
    assert "--label" not in words or "accuracy" in said("classify", of=tmp_path / "new")[0]


def test_an_item_longer_than_an_evaluation_has_a_loss(tmp_path):
    (tmp_path / "long.txt").write_text("\n".join(letter * 400 for letter in "abcdefgh"))
    words = [f"{tmp_path}/long.txt", "--items", *SETTINGS, "train.max_steps=2", "train.eval_interval=2", "train.eval_chars=100"]
    assert train.main([*words, "--run", f"{tmp_path}/long", f"data.cache={tmp_path}/cache"]) == 0
    last = [line for line in logged(tmp_path / "long") if "val/loss" in line][-1]
    assert last["val/loss"] > 0.5 and "val/bits_per_item" not in last


def test_an_export_says_how_to_write_an_item_and_its_import_continues_the_run(names, run, tmp_path, said):
    assert main(["export", str(run), "--to", "hf", f"{tmp_path}/hf"]) == 0
    card = (tmp_path / "hf" / "README.md").read_text(encoding="utf-8")
    assert "begin with a newline, the label and a tab" in card and "The labels: elf, orc, ent." in card
    words = [str(names), "data.items=name", "data.label=race", "--config", "tiny", "runtime.threads=1"]
    assert main(["import", f"{tmp_path}/hf", *words, f"data.cache={tmp_path}/cache", "--run", f"{tmp_path}/whole"]) == 0
    before, after = (newest(folder)[0].state for folder in (run, tmp_path / "whole"))
    assert after.fingerprint == before.fingerprint and after.tokenizer == before.tokenizer
    assert after.progress.val_loss == pytest.approx(before.progress.val_loss, rel=0.01)
    assert float(said("classify", of=tmp_path / "whole")[0].split("%")[0].split()[-1]) > 90
    assert train.main(["--resume", "--run", f"{tmp_path}/whole", "train.max_steps=4", "train.sample_length=60"]) == 0
    assert logged(tmp_path / "whole")[-1]["val/bits_per_item"] > 4


@pytest.mark.parametrize("words", [["{}", "--items", "train.seed=5"], ["--items", "{}", "train.seed=5"]])
def test_an_option_that_takes_a_word_leaves_texts_and_settings_alone(names, words):
    options = parse_options([word.format(names) for word in words])
    assert options.texts == [str(names)] and options.settings == {"data": {"items": "line"}, "train": {"seed": 5}}
    with pytest.raises(UserError, match="same setting"):
        parse_options([str(names), "--items", "data.items=line"])


@needs_node
def test_the_page_writes_one_item_of_the_label_of_its_menu(run, tmp_path):
    assert main(["export", str(run), "--to", "html", str(tmp_path / "page.html")]) == 0
    code = """const ids = text => [...tokenizer.encode(text).ids], menu = $("label").children.map(option => option.value);
    $("label").value = "orc"; $("prompt").value = "gu"; ready = true; start();
    const question = posted.at(-1).text, { end } = posted.find(({ kind }) => kind === "load");
    arrived({ job, characters: ids("\\norc\\tgukk").map(id => ({ id, from: 0, probability: 0.5, top: [] })) });
    finished({ job, written: 2, milliseconds: 1 });
    return [menu, question, ids("\\norc\\tgu"), end, ids("\\n")[0], $("text").textContent, $("start").textContent];"""
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    menu, question, expected, end, newline, *shown = run_script(page, code, script=' type="module"')
    assert menu == ["elf", "orc", "ent"] and question == expected
    assert end == newline and shown == ["gukk", "Another one"]


def test_a_label_that_does_not_fit_and_long_items_are_told(tmp_path, capsys):
    path = tmp_path / "a.csv"
    path.write_text("kind,name\n" + "".join(f"{'x' * 20},{'a' * i}\n" for i in range(1, 60)))
    words = [str(path), "--items", "name", *SETTINGS, "train.max_steps=1", f"data.cache={tmp_path}/cache", "--dry-run"]
    with pytest.raises(UserError, match="20 characters.*context of 16; set model.block_size=40"):
        train.main([*words, "--label", "kind"])
    assert train.main(words) == 0
    assert "items are longer than the context of 16" in capsys.readouterr().out
