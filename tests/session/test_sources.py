"""Who set a setting, and why, is known in the plan, is saved with a run, and stays known when the run is resumed."""

from pathlib import Path

import pytest
from session_helpers import opened

import train
from chargpt.config import Source
from chargpt.planning.cli import parse_options
from chargpt.planning.plan import Plan, make_plan
from chargpt.project import project_root
from chargpt.runs.checkpoint import newest

KEY = "optim.weight_decay"
STEPS = ["train.max_steps=3", "train.eval_interval=2", "train.sample_length=0", "runtime.threads=1", "model.n_embd=16"]


@pytest.fixture(autouse=True)
def steady(monkeypatch) -> None:
    """A machine with the same speed for every model."""
    monkeypatch.setattr("chargpt.planning.chosen_for_time.training_speed", lambda config, corpus, teachers: 1e5)


def planned(text: Path, folder: Path, *words: str) -> Plan:
    options = parse_options([str(text), "--run", f"{folder}/run", f"data.cache={folder}/cache", "runtime.threads=1", *words])
    return make_plan(options, root=project_root())


def test_a_setting_is_chosen_or_given_by_a_preset_a_file_or_the_command_line(text, tmp_path):
    own = tmp_path / "mine.yaml"
    own.write_text("optim: {weight_decay: 0.3}\n")
    chosen, preset, file, typed = (
        planned(text, tmp_path, *words).settings
        for words in ([], ["--config", "tiny"], ["--config", str(own)], [f"{KEY}=0.25"])
    )
    assert chosen.sources[KEY] is Source.CHOSEN and "times" in chosen.reasons[KEY]
    assert preset.sources[KEY] is Source.PRESET and preset.values.optim.weight_decay == 0.1
    assert file.sources[KEY] is Source.USER and file.values.optim.weight_decay == 0.3
    assert typed.sources[KEY] is Source.USER and typed.values.optim.weight_decay == 0.25
    assert all(settings.values.train.seed == 1337 and "train.seed" not in settings.sources for settings in (chosen, file))


def test_with_minutes_a_preset_is_a_default_and_one_line_says_what_was_replaced(text, tmp_path):
    plan = planned(text, tmp_path, "--config", "tiny", "--minutes", "0.1", "train.log_interval=7")
    (note,) = [str(said.text) for said in plan.choices if said.label == "note"]
    assert plan.config.optim.name == "muon" and plan.config.train.log_interval == 7
    assert "in place of what tiny sets: " in note and "optim.name" in note and "train.log_interval" not in note
    assert plan.config.train.sample_length == 100, "what is not chosen is that of the preset"


def test_each_choice_is_told_with_its_reason_and_what_was_given_is_not(text, tmp_path):
    plan = planned(text, tmp_path, "--minutes", "0.1", "optim.momentum=0.8")
    told = [said for said in plan.choices if said.label == "chosen" and said.kind == "detail"]
    for key, source in plan.settings.sources.items():
        lines = [said.text for said in told if f"{key} " in said.text]
        assert len(lines) == (source is Source.CHOSEN), key
        assert not lines or f"({plan.settings.reasons[key]})" in lines[0]


def test_a_run_knows_who_set_its_settings_also_when_it_is_resumed(text, tmp_path):
    words = [str(text), *STEPS, "--run", f"{tmp_path}/run", f"data.cache={tmp_path}/cache"]
    assert train.main([*words, f"{KEY}=0.25"]) == 0
    first = newest(tmp_path / "run")[0].state.settings.sources
    assert first[KEY] == "user" and first["model.n_embd"] == "user" and "train.seed" not in first
    again = opened(["--resume", "--run", f"{tmp_path}/run", "train.max_steps=4", "optim.grad_clip=0.5"])
    assert again.settings.sources == {**first, "optim.grad_clip": "user"}


def test_the_shape_of_a_model_that_a_run_begins_with_is_that_of_the_run(text, tmp_path):
    words = [str(text), *STEPS, "--run", f"{tmp_path}/run", f"data.cache={tmp_path}/cache"]
    assert train.main(words) == 0
    settings = planned(text, tmp_path / "other", "--init-from", f"{tmp_path}/run").settings
    assert settings.sources["model.n_embd"] is Source.RUN and settings.values.model.n_embd == 16
    assert settings.sources["model.dropout"] is Source.CHOSEN and settings.sources[KEY] is Source.CHOSEN
