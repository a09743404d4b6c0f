"""A plan decides everything before the first step: it prints nothing, says what it knows, and knows who set each setting."""

import re
import shutil

import pytest
import torch
from helpers import TINY_FILE, apply_overrides
from session_helpers import planned

import train
from chargpt.commands.text import main
from chargpt.config import Config
from chargpt.device import memory_free
from chargpt.errors import UserError
from chargpt.notices import Kind
from chargpt.planning.budget import Budget, TimeModel
from chargpt.planning.initial_settings import DEFAULT_SECONDS
from chargpt.planning.memory import NoMemory, check_memory, memory_needed
from chargpt.planning.plan import Opening, seconds_of_steps
from chargpt.planning.speeds import training_speed
from chargpt.runs.stage import Length, Models, Stage
from chargpt.settings import Source
from chargpt.training.batches import Batches

TINY = ["--config", "tiny", "train.max_steps=20", "train.sample_length=0", "runtime.threads=1"]
KEY = "optim.weight_decay"
STEPS = ["train.max_steps=3", "train.eval_interval=2", "train.sample_length=0", "runtime.threads=1", "model.n_embd=16"]
VARY = ("estimate", "training")  # labels of lines that depend on the machine's speed


def said(plan: Opening, kind: Kind) -> str:
    """The notices of this kind, a line each."""
    return "\n".join(str(text) for one, text, _ in (*plan.notices, *plan.choices) if one is kind)


def test_a_plan_prints_and_writes_nothing(text, tmp_path, capfd):
    assert planned(text, tmp_path, "--minutes", "0.1").notices
    assert "".join(capfd.readouterr()) == "" and not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    "words, seconds",
    [([], DEFAULT_SECONDS), (["--minutes", "1"], 60), (["train.max_steps=9"], None), (["--epochs", "2"], None)],
)
def test_a_run_without_a_length_has_a_time_limit_that_a_busy_machine_cannot_stretch(words, seconds, text, tmp_path):
    assert planned(text, tmp_path, *words, "train.teachers=0").budget.limit == seconds


@pytest.mark.parametrize("setting", ["model.n_head=3", "train.batch_size=0", "train.teachers=10", "optim.lr=1"])
def test_a_mistake_in_a_setting_is_said_before_that_a_run_of_this_name_exists(setting, text, tmp_path):
    (tmp_path / "run" / "step-00000000").mkdir(parents=True)
    with pytest.raises(UserError, match="run of this name exists"):
        planned(text, tmp_path, *TINY)
    with pytest.raises(UserError) as error:
        planned(text, tmp_path, *TINY, setting)
    assert "exists" not in str(error.value) and setting.partition(".")[2].partition("=")[0] in str(error.value)
    with pytest.raises(UserError, match="missing.txt: no such file"):
        planned(tmp_path / "missing.txt", tmp_path, *TINY)


OWN = ["model.block_size=16", "optim.learning_rate=1", "model.dropout=0.1", "train.batch_size=20", "train.max_epochs=9"]


def test_a_loss_is_expected_only_if_every_setting_that_decides_it_is_chosen(text, tmp_path):
    for length in ([], ["--minutes", "1"]):
        for kept in ([], ["train.seed=5"], ["data.lowercase=true"]):
            assert "n-gram" in said(planned(text, tmp_path, *length, *kept), Kind.EXPECTED)
        for setting in OWN:
            assert not said(planned(text, tmp_path, *length, setting), Kind.EXPECTED), setting
    assert not said(planned(text, tmp_path, "train.max_steps=9"), Kind.EXPECTED)


@pytest.mark.parametrize("words", [["--minutes", "0.1"], ["--minutes", "1", "train.max_epochs=99"], ["--minutes", "2"], []])
def test_the_steps_that_are_told_are_those_that_were_chosen(words, text, tmp_path):
    plan = planned(text, tmp_path, *words)
    (told,) = [str(said.text) for said in plan.about_training() if said.kind is Kind.TRAINING]
    assert f"{plan.config.train.max_steps:,} steps" in told


@pytest.mark.parametrize("words", [["--dry-run"], ["train.max_steps=2"]])
def test_a_model_whose_checkpoints_could_not_be_read_is_refused(words, text, tmp_path):
    with pytest.raises(UserError, match="^model: too large, with 1,001 layers"):
        planned(text, tmp_path, "model.n_layer=1001", "model.n_embd=8", "model.n_head=1", *words)


def test_a_batch_that_cannot_fit_is_refused_with_one_that_does_and_leaves_no_run(text, tmp_path):
    if memory_free(torch.device("cpu")) is None:
        pytest.skip("what is free is known on Linux alone")
    shape = ["model.n_layer=64", "model.n_embd=512", "model.n_head=8", "model.block_size=128", "runtime.device=cpu"]
    for words in (["--dry-run"], [], ["--minutes", "1"]):
        with pytest.raises(NoMemory, match="memory: training needs about") as error:
            planned(text, tmp_path, *shape, "train.batch_size=1048576", *words)
    assert not (tmp_path / "run").exists()
    (fits,) = re.findall("use train.batch_size=([0-9]+) or less", str(error.value)) or ["1"]
    config = apply_overrides(Config(), [*shape, f"train.batch_size={max(1, int(fits) // 2)}"])
    check_memory(config, vocab_size=31)  # half of it, because other programs take memory too


def test_processes_of_one_machine_share_its_memory(monkeypatch):
    config = apply_overrides(Config(), ["runtime.device=cpu", "runtime.precision=float32"])
    needed = memory_needed(config, vocab_size=31, processes=4)
    monkeypatch.setattr("chargpt.planning.memory.memory_free", lambda device: 2 * needed)
    check_memory(config, vocab_size=31, processes=4, on_machine=2)
    with pytest.raises(NoMemory, match="for each of 4 processes"):
        check_memory(config, vocab_size=31, processes=4, on_machine=4)


@pytest.mark.parametrize("settings", [["train.batch_size=1000"], ["train.batch_size=400", "train.accumulate=4"]])
def test_of_a_large_batch_a_part_is_timed(settings, text, tmp_path, monkeypatch):
    computed, windows, most = [], Batches.windows, 2**10

    def counted(batches: Batches, fetched: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        computed.append(len(fetched) * batches._block_size)
        return windows(batches, fetched)

    monkeypatch.setattr(Batches, "windows", counted)
    monkeypatch.setattr("chargpt.planning.speeds.MOST_TIMED", most)
    monkeypatch.setattr("chargpt.planning.speeds.training_speed", training_speed)
    shape = ["model.n_layer=1", "model.n_embd=16", "model.n_head=1", "runtime.device=cpu", "train.max_steps=9"]
    plan = planned(text, tmp_path, *settings, *shape)
    assert " ms a step" in plan.describe() and plan.config.chars_per_step > 10 * most >= max(computed)


def test_a_start_that_has_seen_the_validation_split_is_a_warning(text, tmp_path):
    """The start was trained on the same text in another split, and no copy of that is left; else that split is used again."""
    for name, more in (("same", []), ("split", ["data.val_fraction=0.02"]), ("gone", ["data.val_fraction=0.02"])):
        words = [*TINY, "--run", f"{tmp_path}/{name}", f"data.cache={tmp_path}/{name}-cache"]
        assert train.main([str(text), *words, *more]) == 0
        if name == "gone":
            shutil.rmtree(tmp_path / f"{name}-cache")
        plan = planned(text, tmp_path, "--init-from", f"{tmp_path}/{name}", "--epochs", "1", f"data.cache={tmp_path}/new")
        assert ("too good" in said(plan, Kind.WARNING)) == (name == "gone"), name
        assert len(plan.corpus.val) == (240 if name == "split" else 1_200)


def test_a_setting_that_does_not_hold_for_the_last_model_is_named(text, tmp_path):
    several = ["--minutes", "5", "train.teachers=1"]
    for given in ("model.dropout", "optim.average_fraction"):
        note = said(planned(text, tmp_path, *several, f"{given}=0.3", "train.seed=5"), Kind.NOTE)
        assert f"in the last model, the program changes {given}: 0.3 -> 0.0;" in note and "train.teachers=0" in note
    for words in (several, [*several, "optim.weight_decay=0.2"], ["--minutes", "5", "train.teachers=0", "model.dropout=0.3"]):
        assert "in the last model" not in said(planned(text, tmp_path, *words), Kind.NOTE)


def test_the_memory_that_is_free_is_what_torch_tells_of_a_gpu(monkeypatch):
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (5, 9))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: 3)  # with what torch keeps to use again
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda device: 1)
    assert memory_free(torch.device("cuda")) == 7


@pytest.mark.parametrize(
    "limit, step, longest, models, seconds",
    [
        (3600, 0.003, 3000, 1, 0.003 * 3000),  # an hour for a short text ends long before
        (3600, 0.003, 3000, 4, 0.003 * 3000 * 5),  # the last one learns from three teachers, and takes twice as long
        (600, 10.0, 10**12, 1, 600),  # a long text takes the limit
        (600, 10.0, 10**12, 2, 600 * (2 + 1 / 3)),
        (None, 0.1, 10**12, 1, 0.1 * 77),  # a length that is given
    ],
)
def test_the_seconds_of_all_steps_of_a_run_decide_whether_it_is_compiled(limit, step, longest, models, seconds):
    of_models = Models(count=models, seconds=limit)
    later = of_models.seconds_after(1) if limit else 0.0
    budget = Budget(None if limit is None else limit + later, later=later, known=TimeModel(step, 0.0))
    stage = Stage(models=of_models, length=Length(steps=77, warmup=0, interval=10))
    assert seconds_of_steps(stage, budget, longest=longest) == pytest.approx(seconds, rel=1e-6)


def test_a_setting_is_chosen_or_given_by_a_preset_a_file_or_the_command_line(text, tmp_path):
    own = tmp_path / "mine.yaml"
    own.write_text("optim: {weight_decay: 0.3}\n")
    chosen, preset, file, typed = (
        planned(text, tmp_path, *words).state.settings
        for words in ([], ["--config", "tiny"], ["--config", str(own)], [f"{KEY}=0.25"])
    )
    assert chosen.sources[KEY] is Source.CHOSEN and "times" in chosen.reasons[KEY]
    assert preset.sources[KEY] is Source.PRESET and preset.values.optim.weight_decay == 0.1
    assert file.sources[KEY] is Source.USER and file.values.optim.weight_decay == 0.3
    assert typed.sources[KEY] is Source.USER and typed.values.optim.weight_decay == 0.25
    assert all(settings.values.train.seed == 1337 and "train.seed" not in settings.sources for settings in (chosen, file))


def test_with_minutes_a_preset_is_a_default_and_one_line_says_what_was_replaced(text, tmp_path):
    plan = planned(text, tmp_path, "--config", "tiny", "--minutes", "0.1", "train.log_interval=7")
    (note,) = [line for line in said(plan, Kind.NOTE).splitlines() if "--minutes" in line]
    assert plan.config.optim.name == "muon" and plan.config.train.log_interval == 7
    assert "changes these settings of tiny to fit" in note and "optim.name" in note and "train.log_interval" not in note
    assert plan.config.train.sample_length == 100, "what is not chosen is that of the preset"


def test_each_choice_is_told_with_its_reason_and_what_was_given_is_not(text, tmp_path):
    plan = planned(text, tmp_path, "--minutes", "0.1", "optim.momentum=0.8")
    told = [said for said in plan.choices if said.kind is Kind.CHOSEN and said.level == "detail"]
    for key, source in plan.state.settings.sources.items():
        lines = [said.text for said in told if f"{key} " in said.text]
        assert len(lines) == (source is Source.CHOSEN), key
        assert not lines or f"({plan.state.settings.reasons[key]})" in lines[0]


def test_the_shape_of_a_model_that_a_run_begins_with_is_that_of_the_run(text, tmp_path):
    words = [str(text), *STEPS, "--run", f"{tmp_path}/run", f"data.cache={tmp_path}/cache"]
    assert train.main(words) == 0
    settings = planned(text, tmp_path / "other", "--init-from", f"{tmp_path}/run").state.settings
    assert settings.sources["model.n_embd"] is Source.RUN and settings.values.model.n_embd == 16
    assert settings.sources["model.dropout"] is Source.CHOSEN and settings.sources[KEY] is Source.CHOSEN


def test_what_the_text_command_prints_is_what_training_prints(text, tmp_path, capsys):
    """Both choose the same settings for the text, from presets by name as well."""
    settings = ["model.n_embd=64", "train.max_steps=3000", f"data.cache={tmp_path}"]  # without timing, which varies
    assert main([str(text), *settings]) == 0
    printed = [capsys.readouterr().out.splitlines()]
    assert train.main([str(text), *settings, "--run", f"{tmp_path}/run", "--dry-run"]) == 0
    printed.append(capsys.readouterr().out.splitlines())
    one, other = ([line for line in lines if not line.startswith(VARY)] for lines in printed)
    assert one == other and any(line.startswith("chosen ") for line in one)


def test_the_text_command_prints_what_it_found_and_has_no_options_of_a_run(tmp_path, capsys):
    arguments = [f"data.cache={tmp_path}", "--config", "tiny"]
    assert main(arguments) == 0
    output = capsys.readouterr().out
    assert output.startswith("text        python-docs: ") and "\nto beat     a loss of " in output
    with pytest.raises(UserError, match="nothing.txt: no such file"):
        main([*arguments, "nothing.txt"])
    for option in (["--run", "x"], ["--resume"], ["--find-lr"]):
        with pytest.raises(UserError, match="no such option"):
            main(option)


def test_with_minutes_what_is_said_is_about_the_steps_that_fit(text, tmp_path, capsys):
    arguments = [str(text), "--config", TINY_FILE, f"data.cache={tmp_path}", "train.max_steps=123456789", "--minutes", "2"]
    assert main(arguments) == 0
    fits = r"\nestimate .* 0.1 GB of memory\ntraining +for 2:00 \(about [\d,]+ steps\) on cpu"
    assert re.search(fits, capsys.readouterr().out)
    assert main([*arguments, "train.max_epochs=3"]) == 0
    assert re.search(r"\ntraining +for about [\d:]+ \(127 steps, 3.0 epochs\) on cpu", capsys.readouterr().out)
