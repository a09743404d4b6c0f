"""A start comes with the program: its card says what it is, and its weights are those that the card names."""

import json
import re

import pytest
import torch
from helpers import logged
from session_helpers import written_report

import sample
import train
from chargpt.__main__ import main
from chargpt.config import Config
from chargpt.errors import UserError
from chargpt.planning import trial
from chargpt.planning.cli import parse_options
from chargpt.planning.plan import make_plan
from chargpt.runs import load as loading
from chargpt.runs.checkpoint import newest
from chargpt.runs.load import find_checkpoint, load_start, read_card, start_names
from chargpt.runs.stage import Start
from chargpt.settings import apply
from chargpt.yaml_settings import read_yaml

SHIPPED = loading.STARTS  # before a test replaces it
TINY = ["--config", "tiny", "train.sample_length=20", "runtime.threads=1"]


@pytest.fixture
def start(learned, tmp_path, monkeypatch) -> str:
    """The name of a start that the program of tests/benchmarks/ has packed, the only one."""
    from benchmarks.starts import pack

    monkeypatch.setattr(loading, "STARTS", tmp_path / "starts")
    card = {"language": "English", "texts": ["Sea: 12,000: public domain"], "licence": "MIT", "recipe": ["train.py sea.txt"]}
    pack(str(learned), "sea", **card)
    return "sea"


def test_a_start_is_the_run_that_it_was_packed_from_but_for_rounding(start, learned):
    packed, (original, _) = load_start(start), find_checkpoint(str(learned), learned.parent)
    assert packed.weights.keys() == original.weights.keys()
    for name, tensor in packed.weights.items():
        assert tensor.dtype == torch.float32 and torch.allclose(tensor, original.weights[name], rtol=1e-3, atol=1e-6)
    card = read_card(start)
    assert card.loss == pytest.approx(original.state.progress.best_loss, abs=0.01) and abs(card.rounding) < 0.01
    assert packed.state.texts == ["Sea"] and str(learned.parent) not in (loading.STARTS / start / "state.json").read_text()


@pytest.mark.parametrize(
    ("file", "read"),
    [("model.safetensors", load_start), ("state.json", load_start), ("state.json", read_card), ("card.json", read_card)],
)
def test_a_damaged_start_is_an_error(start, file, read):
    path = loading.STARTS / start / file
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    with pytest.raises(UserError, match=f"{file}: .*install the program again"):
        read(start)


def test_the_list_names_language_size_texts_and_loss(start, capsys):
    assert main(["starts"]) == 0
    said = capsys.readouterr().out
    assert re.search(rf"^sea +English .*{read_card(start).loss:.3f} +Sea$", said, re.M)
    assert main(["starts", "sea"]) == 0
    said = capsys.readouterr().out
    assert "public domain" in said and "train.py sea.txt" in said and "MIT" in said


def test_a_training_with_a_start_names_it_and_goes_on_after_a_stop(start, text, tmp_path, capsys):
    poem = tmp_path / "poem.txt"  # a short text of the same kind with a new character
    poem.write_text(text.read_text(encoding="utf-8")[:4000].replace("stone", "st\u00f6ne"), encoding="utf-8")
    folder, words = tmp_path / "run", [f"data.cache={tmp_path}/cache", "runtime.threads=1", "train.sample_length=20"]
    assert train.main([str(poem), "--start", start, "--run", str(folder), *words]) == 0
    said = capsys.readouterr().out
    assert re.search(r"^start +training begins with the model sea; .*\ncharacters  .*: \u00f6 \(o\)", said, re.M)
    state = find_checkpoint(str(folder), tmp_path)[0].state
    assert state.stage.start == Start(name="sea", is_run=False) and "\u00f6" in state.tokenizer.characters
    assert logged(folder)[0]["val/loss"] < 3
    assert train.main(["--resume", "--run", str(folder), f"train.max_steps={state.progress.step + 2}"]) == 0
    assert "start alone" in written_report(folder)
    again = "# This run began with the weights of another model: give also --start sea\n"
    written = (folder / "config.yaml").read_text(encoding="utf-8")
    assert (
        written.startswith(again)
        and apply(Config(), read_yaml(folder / "config.yaml"), where="") == newest(folder)[0].state.as_trained
    )


def test_a_start_that_has_read_the_text_in_any_edition_is_not_chosen_and_warns_whoever_asks(start, text, tmp_path, monkeypatch):
    monkeypatch.setattr(trial, "STARTS", loading.STARTS)
    monkeypatch.setattr(trial, "start_names", start_names)
    known = text.read_text(encoding="utf-8")
    editions = {
        "with a title": f"The sea\n{known}",
        "with other lines": known.upper().replace("\n", " ").replace(". ", ".\n\n\u201c"),
        "a third": known[: len(known) // 3] + "".join(f"{n * n} is a square, {n}\n" for n in range(len(known) // 20)),
        "another": known[::-1],
    }
    for name, edition in editions.items():
        path, has_read = tmp_path / f"{name}.txt", name != "another"
        path.write_text(edition, encoding="utf-8")
        words = [str(path), "--minutes", "1", f"data.cache={tmp_path}/cache", "runtime.threads=1", "--run", f"{tmp_path}/run"]
        for more in ([], ["--start", start]):
            plan = make_plan(parse_options([*words, *more]), root=tmp_path)
            said = "\n".join(str(notice.text) for notice in (*plan.notices, *plan.choices))
            assert ("has read this text" in said) == (has_read and not more), (name, said)
            assert ("has read passages of your text" in said) == (has_read and bool(more)), (name, said)
            assert not has_read or (plan.state.stage.start is None) == (not more)


def test_a_start_is_given_once_by_its_name_and_for_a_new_run(start):
    for name in ("see", "../sea", "", "sea/../sea", "card.json"):
        with pytest.raises(UserError, match="--start: .*use sea"):
            load_start(name)
    with pytest.raises(UserError, match="use none .to train without one."):
        train.main(["poems", "--start", "nona"])
    for words, says in (
        (
            ["--start=The sea"],
            "no model of that name.* .to give a prompt, use --prompt 'The sea'.$",
        ),  # which nanoGPT's --start is
        (["poems", "--start", "sea"], "leave one out"),
    ):
        with pytest.raises(UserError, match=says):
            sample.main(words)
    for other in (["--init-from", "poems", "--start", "sea"], ["--resume", "--start", "sea"], ["train.start=sea"]):
        with pytest.raises(UserError):
            parse_options(["poems.txt", *other])


def test_every_start_that_comes_with_the_program_is_whole_and_small(monkeypatch):
    monkeypatch.setattr(loading, "STARTS", SHIPPED)
    assert "english" in start_names()
    for name in start_names():
        card, weights = read_card(name), load_start(name)
        assert weights.state.config.model.positions == "rotary" and abs(card.rounding) < 0.005
        assert json.loads((loading.STARTS / name / "card.json").read_text(encoding="utf-8"))["texts"]
        assert (loading.STARTS / name / "model.safetensors").stat().st_size <= 5_000_000


def test_the_name_of_a_start_in_place_of_a_run_is_answered_with_the_option(start, tmp_path):
    with pytest.raises(UserError, match="sea: no run of that name or path; .*--start sea"):
        find_checkpoint("sea", tmp_path / "checkpoints")
