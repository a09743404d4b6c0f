"""Start or nothing: a short trial on the text decides, unless the user has."""

import functools
from pathlib import Path

import pytest
import session_helpers
import torch

from chargpt.config import Config
from chargpt.notices import Kind
from chargpt.planning import trial
from chargpt.planning.chosen_for_time import Job, loss_by_law
from chargpt.planning.cli import TrainOptions
from chargpt.planning.initial_settings import Asked
from chargpt.planning.law import Text
from chargpt.planning.plan import Opening
from chargpt.planning.trial import LONG_ENOUGH, NEAR, TRIED, Trial, expected_loss, trials_of, try_starts
from chargpt.runs import load
from chargpt.runs.stage import Start
from chargpt.settings import Settings, apply
from chargpt.text import corpus as corpus_module
from chargpt.text.corpus import Corpus, load_corpus
from chargpt.training.trainer import Trainer

PROSE = Path(__file__).resolve().parents[2] / "README.md"
NAMES, load_start = ["french", "spanish", "english"], functools.cache(load.load_start)
ONE_THREAD = apply(Config(), {"runtime": {"threads": 1}}, where="a test")
TEXT = Text(100_000, 3.0, 2.0, 60, 1.0)


@pytest.fixture(autouse=True)
def three_starts(monkeypatch) -> None:
    """Three starts of the program, read once and tried for one step, on a machine whose speed is known."""
    monkeypatch.setattr(trial, "start_names", lambda: [*NAMES])
    monkeypatch.setattr(trial, "load_start", load_start)
    monkeypatch.setattr(trial, "STEPS", 1)
    monkeypatch.setattr(trial, "WINDOWS", 1)
    monkeypatch.setattr("chargpt.planning.speeds.training_speed", lambda config, corpus, teachers: 2e4)


def planned(folder: Path, content: str, *words: str) -> Opening:
    (folder / "text.txt").write_text(content, encoding="utf-8")
    return session_helpers.planned(folder / "text.txt", folder, *words)


def said(plan: Opening) -> str:
    return "\n".join(str(text) for kind, text, _ in (*plan.notices, *plan.choices) if kind is Kind.START)


def test_a_text_that_a_start_knows_begins_with_it_and_the_trial_is_made_once(tmp_path, monkeypatch):
    plan = planned(tmp_path, PROSE.read_text(encoding="utf-8")[:20_000], "--minutes", "1")
    assert plan.state.stage.start == Start(name="english", is_run=False) and "--start none" in said(plan)
    monkeypatch.setattr(trial, "_tried", None)
    again = planned(tmp_path, PROSE.read_text(encoding="utf-8")[:20_000], "--minutes", "1")
    assert again.config == plan.config and said(again) == said(plan)


def test_the_text_is_read_once_also_if_a_start_is_chosen(tmp_path, monkeypatch):
    read, count = list[object](), corpus_module.count_characters
    monkeypatch.setattr(corpus_module, "count_characters", lambda reader: read.append(reader) or count(reader))
    content = PROSE.read_text(encoding="utf-8")[:20_000]
    chosen = planned(tmp_path, content, "--minutes", "1")
    assert chosen.state.stage.start and len(read) == 1
    asked = planned(tmp_path, content, "--minutes", "1", "--start", "english")
    assert asked.state.fingerprint == chosen.state.fingerprint and asked.corpus.facts == chosen.corpus.facts


def test_losses_before_a_training_are_computed_by_the_threads_that_are_asked_for(tmp_path, monkeypatch):
    used, measure = set[int](), trial.loss_on

    def watched(*given: object, **named: object) -> float:
        used.add(torch.get_num_threads())
        return measure(*given, **named)

    monkeypatch.setattr(trial, "loss_on", watched)
    before = torch.get_num_threads()
    planned(tmp_path, PROSE.read_text(encoding="utf-8")[:20_000], "--minutes", "1", "runtime.threads=3")
    assert used == {3} and torch.get_num_threads() == before


@pytest.mark.parametrize("expected", [0.1, 9.0])
def test_the_lower_loss_wins_and_the_other_way_can_be_chosen(expected, tmp_path):
    corpus = corpus_of(tmp_path, PROSE.read_text(encoding="utf-8")[:20_000])
    tried = try_starts(asked(1), Job(corpus, 60.0), expected=expected)
    (notice,), pays = tried.notices, expected > 1
    assert (tried.start is not None) == pays and f"{expected:.2f} from nothing" in str(notice.text)
    assert str(notice.text).split("--start ")[1] == ("none" if pays else "english")
    assert notice.level == ("line" if pays else "detail")


@pytest.mark.parametrize(
    "words",
    [
        *(["--start", "none"], ["--config", "tiny"], ["--items"], ["--epochs", "2"], ["--find-lr"]),
        *(["model.n_layer=2"], ["optim.learning_rate=0.01"], ["train.batch_size=8"], ["train.max_steps=5"]),
        *(["data.val_fraction=0"], ["data.vocabulary=bytes"], ["data.max_vocab=20"]),
    ],
)
def test_who_decides_how_a_model_begins_or_learns_gets_no_trial(words, tmp_path, monkeypatch):
    monkeypatch.setattr(Trainer, "step", None)
    plan = planned(tmp_path, "\n".join(f"line {n} of some lines" for n in range(500)), *words)
    assert plan.state.stage.start is None and said(plan) == ""


def test_a_start_is_tried_only_on_characters_that_it_knows(tmp_path):
    assert said(planned(tmp_path, "\u0436\u0431\u0434\u0444 \u0446\u0449" * 3000)) == ""


def test_in_a_short_run_no_start_is_trained(tmp_path, monkeypatch):
    monkeypatch.setattr(trial, "Trainer", None)
    corpus = corpus_of(tmp_path, PROSE.read_text(encoding="utf-8")[:20_000])
    for expected in (0.1, 9.0):
        tried = try_starts(asked(0.1), Job(corpus, LONG_ENOUGH / 2), expected=expected)
        assert (tried.start is not None) == (expected > 1) and "or less" in str(tried.notices[0].text)


def test_a_text_that_repeats_itself_can_be_tried(tmp_path):
    """Its n-gram loss is 0."""
    assert planned(tmp_path, "a" * 5000, "--minutes", "1").config


def asked(minutes: float) -> Asked:
    return Asked(TrainOptions(minutes=minutes), Settings(ONE_THREAD))


def corpus_of(folder: Path, content: str) -> Corpus:
    (folder / "text.txt").write_text(content, encoding="utf-8")
    return load_corpus([str(folder / "text.txt")], Config().data, root=folder, block_size=8)


def test_a_start_that_is_good_enough_is_not_trained(tmp_path, monkeypatch):
    """What was measured without a training does for no harder question; what was measured with one does for all."""
    corpus, runtime = corpus_of(tmp_path, PROSE.read_text(encoding="utf-8")[:20_000]), ONE_THREAD.runtime
    (one,) = trials_of(corpus, runtime, NAMES, load_start, enough=9.0)
    again = trials_of(corpus, runtime, NAMES, load_start, enough=8.0)
    assert one.seen == 0 and one.after == one.before and again == [one]
    tried = trials_of(corpus, runtime, NAMES, load_start, enough=0.5)
    assert [tried[0].start, tried[0].before] == [one.start, one.before] and all(two.seen > 0 for two in tried)
    assert len(tried) == 1  # it is in English, and the other starts are far from that
    for enough in (0.1, 9.0):
        assert trials_of(corpus, runtime, NAMES, None, enough=enough) == tried
    (corpus.folder / trial.TRIALS).write_text("[1]")
    assert trials_of(corpus, runtime, [], load_start, enough=9.0) == []


def test_of_a_text_that_all_starts_are_far_from_several_are_trained(tmp_path):
    letters = "etaoinshrdlu"
    mixed = PROSE.read_text(encoding="utf-8")[:20_000].translate(str.maketrans(letters, letters[::-1]))
    tried = trials_of(corpus_of(tmp_path, mixed), ONE_THREAD.runtime, NAMES, load_start, enough=0.5)
    assert len(tried) == TRIED and max(one.before for one in tried) < NEAR * 1.1 * min(one.before for one in tried)


@pytest.mark.parametrize("before", [1.0, 2.0, 4.0])
def test_more_is_expected_of_a_start_that_knows_more_and_of_a_longer_run(before):
    lengths = [apply(ONE_THREAD, {"train": {"max_steps": steps}}, where="a test") for steps in (1, 100, 1000, 10_000)]
    by_trial = []
    for after in (0.6 * before, 0.8 * before, before):
        losses = [expected_loss(Trial("english", before, after, 8192), TEXT, config) for config in lengths]
        assert losses[0] <= after and losses == sorted(losses, reverse=True)
        by_trial.append(losses)
    assert all([*some] == sorted(some) for some in zip(*by_trial))
    assert expected_loss(Trial("english", before, before, 0), TEXT, lengths[-1]) == before


def test_beside_the_law_a_start_gains_more_on_a_shorter_text():
    config, learned = apply(ONE_THREAD, {"train": {"max_steps": 1000}}, where="a test"), list[float]()
    for text in (TEXT._replace(characters=characters) for characters in (20_000, 100_000, 500_000)):
        by_law = loss_by_law(config, text, seen=1000 * config.chars_per_step)
        learned.append(expected_loss(Trial("english", 4.0, 3.0, 8192), text, config) / by_law)
    assert learned == sorted(learned) and learned[0] < 0.9 * learned[-1]
