"""What is chosen for a text and a time: it fits both, what the user gave stays, and every choice is said."""

import dataclasses
import itertools
import re
from types import SimpleNamespace
from typing import get_args, get_type_hints

import numpy as np
import pytest
import torch
from helpers import SHAPE, apply_overrides, given, publish_run
from hypothesis import given as given_any
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from chargpt.config import Config, DataConfig
from chargpt.errors import UserError
from chargpt.model import GPT
from chargpt.notices import Kind, Notice
from chargpt.planning import chosen_for_time, law, speeds
from chargpt.planning.budget import TimeModel
from chargpt.planning.chosen_for_time import ITEMS_HELD, MOST_FOR_ITEMS, MULTIPLE, Choice, Job, choose, completed, regularized
from chargpt.planning.cli import SHORTEST_CONTEXT, TrainOptions
from chargpt.planning.initial_settings import CHOSEN, Asked, load_settings
from chargpt.planning.law import ENOUGH_EPOCHS, SHAPES, Text, expected_loss
from chargpt.planning.memory import memory_needed
from chargpt.planning.speeds import training_speed
from chargpt.planning.teachers import for_student
from chargpt.project import presets_folder
from chargpt.runs.blank_model import gpt_config
from chargpt.runs.checkpoint import newest
from chargpt.runs.checkpoint_schema import parameter_count
from chargpt.runs.models import restore_model
from chargpt.runs.stage import Models
from chargpt.settings import KEYS, SECTIONS, Settings, Source, Tree, difference, flat, typed_values
from chargpt.text.corpus import Corpus, load_corpus
from chargpt.text.tokenizer import Tokenizer
from chargpt.training.optimizers import OPTIMIZERS

WORDS = "the sea is blue and the wind is cold; ships sail at night. "


@pytest.fixture(scope="module")
def corpora(tmp_path_factory) -> dict[int, Corpus]:
    """Texts of several lengths, in characters."""
    folder, corpora = tmp_path_factory.mktemp("texts"), {}
    for length in (400, 3000, 100_000):
        (folder / "text.txt").write_text((WORDS * (1 + length // len(WORDS)))[:length])
        data = DataConfig(cache=str(folder / "cache"))
        corpora[length] = load_corpus([str(folder / "text.txt")], data, root=folder, block_size=SHORTEST_CONTEXT)
    return corpora


def test_a_rate_with_which_no_second_step_can_be_taken_does_not_stop_the_measurement(corpora):
    settings = ["optim.learning_rate=1e30", "optim.warmup_steps=0", "model.n_layer=1", "model.n_head=1", "model.n_embd=8"]
    config = apply_overrides(Config(), ["runtime.threads=1", "model.block_size=16", "train.batch_size=4", *settings])
    teacher = GPT(gpt_config(config.model), corpora[400].tokenizer.vocab_size)
    assert training_speed(config, corpora[400]) > 0 < training_speed(config, corpora[400], [teacher])


def choice_for(corpus: Corpus, *settings: str, seconds: float = 20.0, optimizer: str = "muon", **more) -> Choice:
    settings_ = given("runtime.threads=1", *settings)
    return choose(settings_, Job(corpus, seconds, **more), optimizer=optimizer)


def said_by(notices: list[Notice]) -> dict[Kind, str]:
    """The text of the last notice of each kind."""
    return {kind: text for kind, text, _ in notices}


def test_the_time_decides_the_shape_and_every_choice_is_said(corpora):
    choice = choice_for(corpora[100_000])
    model, said = choice.config.model, said_by(choice.notices)
    assert (model.n_layer, model.n_embd) in SHAPES
    assert choice.config.optim.name == "muon" and model.positions == "rotary"
    config = choice_for(corpora[3000], optimizer="adamw").config
    assert config.optim.name == "adamw" and config.model.positions == "learned"
    assert [kind for kind, *_ in choice.notices[:3]] == [Kind.CHOSEN, Kind.EXPECTED, Kind.CONSIDERED]
    text = "\n".join(line for _, line, _ in choice.notices)
    assert f"{model.n_layer} layers, width {model.n_embd}" in text
    assert "validation loss" in said[Kind.EXPECTED]


def test_no_loss_is_expected_of_a_list_in_alphabetical_order(tmp_path):
    (tmp_path / "a.txt").write_text(
        "".join(f"{a}{b}{c}{d}\n" for a in "abcdefghijkl" for b in "aeiou" for c in "nrst" for d in "aeo")
    )
    for shuffle in ("none", "lines"):
        data = DataConfig(cache=str(tmp_path / "cache"), shuffle=shuffle)
        corpus = load_corpus([str(tmp_path / "a.txt")], data, root=tmp_path, block_size=SHORTEST_CONTEXT)
        assert (Kind.EXPECTED in said_by(choice_for(corpus).notices)) == (shuffle == "lines")


def simulated(monkeypatch, rate: float, host: float) -> None:
    """A device with so many operations a second, and so many seconds for the least step."""

    def speed(config: Config, corpus: Corpus, teachers: object) -> float:
        work = 6 * parameter_count(config.model, 65) * config.chars_per_step
        return config.chars_per_step / max(host, work / rate)

    monkeypatch.setattr("chargpt.planning.speeds.training_speed", speed)
    monkeypatch.setattr("chargpt.planning.memory.memory_free", lambda device: None)


def choice_of(characters: int, minutes: float, *given_: str, optimizer: str = "muon") -> Choice:
    """What is chosen for a text like Shakespeare's of so many characters."""
    characters_of = SimpleNamespace(vocab_size=65)
    train, val = (np.broadcast_to(np.uint8(0), int(characters * share)) for share in (0.9, 0.1))
    corpus = SimpleNamespace(train=train, val=val, evaluation_ids=val, is_validated=True, marks=None, tokenizer=characters_of)
    facts = {"entropy": 3.3, "ngram_loss": 1.77, "copying": 1.0, "other_kind": ""}
    corpus.facts = SimpleNamespace(is_sorted=False, **facts)
    return choose(given(*given_), Job(corpus, 60 * minutes), optimizer=optimizer)


LENGTHS, MINUTES = (100_000, 1_000_000, 100_000_000), (0.5, 3, 30)
# Operations a second that a training reaches, and seconds of the least step: estimates, but of the H200, which was measured.
CARDS = {"small": (2e12, 6e-4), "T4": (2e13, 4e-4), "A100": (1e14, 3e-4), "H100": (2.5e14, 3e-4), "H200": (2.2e14, 2.5e-3)}


@pytest.mark.parametrize(
    "card, characters", [*zip(CARDS, itertools.cycle(LENGTHS)), ("small", LENGTHS[1]), ("H100", LENGTHS[2])]
)
def test_a_step_on_a_gpu_has_as_many_characters_as_fill_it_while_enough_steps_remain(monkeypatch, card, characters):
    """To within one doubling of what follows from the card: by hand, a step is full at host * rate / 6 N characters."""
    rate, host = CARDS[card]
    simulated(monkeypatch, rate, host)
    monkeypatch.setattr("chargpt.planning.chosen_for_time.choose_device", lambda name: torch.device("cuda"))
    for minutes in MINUTES:
        choice = choice_of(characters, minutes)
        config = choice.config
        if teachers := choice.models.count - 1:  # the first model also gets the time in which models are timed
            timing = min(10, 0.1 * 60 * minutes)
            assert (teachers + 2) * choice.models.seconds == pytest.approx(60 * minutes - timing, abs=0.1)
        full = host * rate / (6 * parameter_count(config.model, 65))
        found, steps = config.chars_per_step, config.train.max_steps
        assert found <= max(2 * full, law.MOST_IN_STEP_MEDIUM), (minutes, found, full)
        assert found <= law.MOST_IN_STEP_MEDIUM or steps >= 0.9 * law.STEPS, (minutes, steps)
        most = min(full, 0.9 * characters / law.EPOCH_STEPS)
        assert found >= most / 2 or steps <= 2.1 * law.STEPS, (minutes, found, full, steps)
        assert found <= max(law.MOST_IN_STEP_MEDIUM, 0.9 * characters / law.EPOCH_STEPS), (minutes, found)


def test_whoever_has_more_time_than_the_models_of_a_text_need_is_told_of_further_teachers(monkeypatch):
    simulated(monkeypatch, *CARDS["H200"])
    monkeypatch.setattr("chargpt.planning.chosen_for_time.choose_device", lambda name: torch.device("cuda"))
    told = "what may help is more models to learn from: train.teachers=6"
    for minutes, given_, is_told in ((30, (), True), (30, ("train.teachers=6",), False), (0.5, (), False)):
        notes = [str(notice.text) for notice in choice_of(1_000_000, minutes, *given_).notices if notice.kind is Kind.NOTE]
        assert any(note.endswith(told) for note in notes) == is_told, (minutes, given_, notes)


@pytest.mark.parametrize("gigabytes", [0.05, 0.5, 4])
def test_models_and_batches_that_do_not_fit_a_gpu_are_not_timed(monkeypatch, gigabytes):
    """But for the smallest one: it may be trained in parts of its batch, and torch warns of each try."""
    simulated(monkeypatch, *CARDS["H100"])
    speed, timed = speeds.training_speed, list[float]()
    on = {"device": "cuda", "precision": torch.bfloat16, "vocab_size": 65}

    def timing(config: Config, *others: object) -> float:
        timed.append(memory_needed(config, **on))
        return speed(config, *others)

    monkeypatch.setattr("chargpt.planning.speeds.training_speed", timing)
    monkeypatch.setattr("chargpt.planning.memory.choose_precision", lambda name, device: torch.bfloat16)
    for module in ("chosen_for_time", "memory"):
        monkeypatch.setattr(f"chargpt.planning.{module}.choose_device", lambda name: torch.device("cuda"))
    choice_of(100_000_000, 30)
    without = max(timed)
    monkeypatch.setattr("chargpt.planning.memory.memory_free", lambda device: gigabytes * 1e9)
    monkeypatch.setattr(speeds, "_read", list)  # what is known of the machine
    timed.clear()
    choice_of(100_000_000, 30)
    assert max(timed[1:], default=0) <= gigabytes * 1e9 < without


def test_shapes_grow_beyond_the_table():
    sizes = [12 * layers * width**2 for layers, width in (*SHAPES, *law.LARGER_SHAPES)]
    assert max(sizes) > 1e9 and all(1.5 < larger / size < 4 for size, larger in itertools.pairwise(sizes))


CHOICES_OF_A_CPU: list[tuple] = [
    (20000, 3, "muon", 3, 96, 128, 4, 0.008, 1054, 1.0),
    (20000, 3, "adamw", 2, 64, 32, 32, 0.003, 1054, 1.0),
    (100000, 0.5, "muon", 3, 96, 128, 12, 0.008, 1105, 0.97),
    (100000, 3, "muon", 4, 128, 128, 10, 0.008, 1222, 1.0),
    (100000, 3, "adamw", 4, 128, 128, 16, 0.003, 2412, 1.0),
    (100000, 30, "muon", 5, 192, 256, 8, 0.006, 1318, 1.0),
    (100000, 30, "adamw", 4, 128, 128, 16, 0.003, 2636, 1.0),
    (1000000, 3, "muon", 4, 128, 256, 8, 0.008, 2283, 0.2),
    (1000000, 3, "adamw", 3, 96, 128, 16, 0.003, 5446, 0.29),
    (1000000, 30, "muon", 5, 192, 256, 8, 0.006, 2811, 0.36),
    (1000000, 30, "adamw", 5, 192, 256, 8, 0.002, 8683, 0.88),
    (100000000, 0.5, "muon", 2, 64, 256, 8, 0.008, 2510, 0.1),
    (100000000, 30, "muon", 4, 128, 256, 8, 0.004, 24888, 0.1),
    (100000000, 30, "adamw", 4, 128, 128, 16, 0.003, 24559, 0.1),
]


def test_the_choices_of_a_cpu_stay(monkeypatch):
    """For given times, to the last setting: layers, width, context, windows, rate, steps, weight decay."""
    simulated(monkeypatch, 1.5e11, 8e-4)
    for characters, minutes, optimizer, *expected in CHOICES_OF_A_CPU:
        config = choice_of(characters, minutes, "runtime.device=cpu", optimizer=optimizer).config
        model, train, optim = config.model, config.train, config.optim
        found = [model.n_layer, model.n_embd, model.block_size, train.batch_size, optim.learning_rate, train.max_steps]
        assert [*found, optim.weight_decay] == expected, (characters, minutes, optimizer)


# What else is chosen in another way if one setting is given alone; nothing follows from the others.
LENGTH = {"train.max_steps", "train.eval_interval", "checkpoint.interval", "optim.warmup_steps"}
FOLLOWS = {
    "model.n_layer": {"model.dropout"},
    "model.n_head": {"model.n_embd"},
    "model.n_embd": {"model.n_head", "model.dropout"},
    "model.block_size": {"train.max_steps"},
    "optim.name": {
        *("model.positions", "model.bias", "model.block_size", "model.dropout", "optim.learning_rate", "train.batch_size")
    },
    "train.batch_size": LENGTH,
    "train.accumulate": {"train.batch_size"},
    "train.teachers": {*LENGTH, "model.dropout", "optim.average_fraction"},
}
OTHER = {
    "model.n_embd": 20,
    "runtime.step": "torch",
    "runtime.compile": "off",  # "on" compiles a function here, which takes a second
    "data.max_vocab": 50,
    "data.encoding": "latin-1",
    "data.items": "line",
    "data.where": "a=b",
}


def another(key: str, value: object) -> object:
    """A value that the setting may have, and that is not this one."""
    section, name = key.split(".")
    hint = get_type_hints(SECTIONS[section])[name]
    if key in OTHER or isinstance(value, str):
        options = [option for option in get_args(hint) if option != value]
        return OTHER.get(key, options[0] if options else value)
    if isinstance(value, list):
        return [0.8, 0.95]
    return not value if hint is bool else value + 1 if hint is int else value / 2 or 0.25


@pytest.mark.parametrize("section", SECTIONS)
def test_of_every_setting_that_is_given_alone_only_what_depends_on_it_is_chosen_in_another_way(section, corpora):
    def planned(tree: Tree) -> Settings:
        machine = {"device": "cpu", "threads": 1, **tree.get("runtime", {})}
        options = TrainOptions(settings=typed_values({**tree, "runtime": machine}, where=""), minutes=2 / 60)
        settings = load_settings(options, presets=presets_folder()).loaded
        return choose(settings, Job(corpora[3000], 2.0), optimizer="muon").settings

    settings = planned({})
    free, chosen = settings.values, settings.reasons.keys()
    for key in (key for key in KEYS if key.startswith(f"{section}.") and key not in ("runtime.device", "data.format")):
        name = key.removeprefix(f"{section}.")
        given_ = another(key, flat(free)[key])
        settings = planned({section: {name: given_}})
        config = settings.values
        assert flat(config)[key] == given_ and settings.reasons.keys() - {"data.format"} == chosen - {key}, key
        assert {change.key for change in difference(free, config)} - {key, "data.format"} == FOLLOWS.get(key, set()), key
        assert {key for key, by in settings.sources.items() if by is Source.CHOSEN} == settings.reasons.keys()


@pytest.mark.parametrize("preferred", OPTIMIZERS)
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_the_optimizer_that_is_given_has_its_own_positions_biases_rate_and_context(corpora, name, preferred):
    """As if it were the one that is preferred, whatever a preset says."""
    job, preset = Job(corpora[3000], 20.0), ["model.bias=true", "model.positions=sinusoidal"]
    settings = Settings(apply_overrides(Config(), ["runtime.threads=1", *preset])).give(
        {"train": {"teachers": 0}}, source=Source.USER, where=""
    )
    chosen = settings.give({"optim": {"name": name}}, source=Source.USER, where="")
    assert choose(chosen, job, optimizer=preferred).config == choose(settings, job, optimizer=name).config
    found = choose(chosen, job, optimizer=preferred).config.model
    assert (found.positions, found.bias) == {"adamw": ("learned", False), "muon": ("rotary", True)}[name]


def test_the_last_evaluation_follows_the_one_before_after_a_fair_part_of_the_steps(corpora):
    for seconds in (20.0, 61.0, 300.0):
        train = choice_for(corpora[3000], "train.batch_size=1", "model.block_size=32", seconds=seconds).config.train
        rest = train.max_steps % train.eval_interval
        assert train.max_steps > 400 and (rest == 0 or rest > train.eval_interval / 2)


def test_a_large_vocabulary_and_much_to_see_have_a_longer_context(corpora):
    corpus = corpora[100_000]
    many = dataclasses.replace(corpus, tokenizer=Tokenizer("".join(map(chr, range(0x4E00, 0x4E00 + 2000)))))
    shape = ["model.n_layer=1", "model.n_embd=32", "model.n_head=1"]
    assert choice_for(corpus, *shape).config.model.block_size == 128
    assert choice_for(many, *shape).config.model.block_size == 256
    alone, together = (choice_for(one, *shape, optimizer="adamw").config.model.block_size for one in (corpus, many))
    assert alone == together
    ids = np.random.default_rng(0).integers(corpus.tokenizer.vocab_size, size=5_000_000)  # a text that does not copy itself
    ids = ids.astype(corpus.train.dtype)
    long = dataclasses.replace(corpus, train=ids, val=ids[:10_000])
    assert [choice_for(long, *shape, seconds=seconds).config.model.block_size for seconds in (2.0, 3600.0)] == [128, 256]
    assert choice_for(long, *shape, "model.block_size=64", seconds=3600.0).config.model.block_size == 64


@given_any(
    lengths=st.lists(st.integers(6, 1300), min_size=4, max_size=12),
    repeats=st.integers(5, 40),
    optimizer=st.sampled_from(["adamw", "muon"]),
)
@hypothesis_settings(max_examples=6)
def test_the_context_of_a_list_holds_nearly_all_its_items_however_short_it_is(lengths, repeats, optimizer, tmp_path):
    items = [f"{i:05}".ljust(length, "abcde"[i % 5]) for i, length in enumerate(lengths * repeats)]
    (tmp_path / "list.txt").write_text("\n".join(items))
    data = DataConfig(cache=str(tmp_path / "cache"), items="line")
    corpus = load_corpus([str(tmp_path / "list.txt")], data, root=tmp_path, block_size=SHORTEST_CONTEXT)
    shape = ["model.n_layer=1", "model.n_embd=32", "model.n_head=1", f"optim.name={optimizer}"]
    context = choice_for(corpus, *shape).config.model.block_size
    lengths, most = corpus.marks.lengths(corpus.train), MOST_FOR_ITEMS
    assert np.mean(lengths <= context) >= ITEMS_HELD or context == most or np.median(lengths) > most - MULTIPLE
    assert context < max(lengths) + MULTIPLE or context == SHORTEST_CONTEXT


def test_a_long_item_that_is_rare_stretches_the_context_to_twice_its_length_at_most(tmp_path):
    for longest, context, long, count in ((180, 184, 3, 1000), (300, 104, 3, 1000), (5000, 104, 1, 60), (5000, 104, 1, 190)):
        (tmp_path / "list.txt").write_text("\n".join(f"{i:04}".ljust(longest if i < long else 100, "x") for i in range(count)))
        data = DataConfig(cache=str(tmp_path / "cache"), items="line")
        corpus = load_corpus([str(tmp_path / "list.txt")], data, root=tmp_path, block_size=SHORTEST_CONTEXT)
        assert choice_for(corpus, "model.n_layer=1", "model.n_embd=32").config.model.block_size == context


def test_a_short_text_gets_a_teacher_and_a_model_that_learns_from_it(corpora):
    text, one = corpora[3000], "train.teachers=1"
    choice, alone = choice_for(text, one, seconds=120.0), choice_for(text, "train.teachers=0", seconds=120.0)
    train, said, models = choice.config.train, said_by(choice.notices), choice.models
    assert models.seconds_of(2) == models.seconds_after(1) == pytest.approx(80, abs=0.1)
    assert models == Models(count=2, why=chosen_for_time.GIVEN, seconds=40, epochs=ENOUGH_EPOCHS)
    assert train.max_steps * choice.config.chars_per_step <= ENOUGH_EPOCHS * len(text.train)
    assert said[Kind.MODELS].startswith("2: ") and f"ends after {ENOUGH_EPOCHS} passes" in str(said[Kind.NOTE])
    assert alone.models == Models() and Kind.MODELS not in said_by(alone.notices)
    assert alone.config.model == dataclasses.replace(choice.config.model, dropout=alone.config.model.dropout)


def test_several_teachers_are_for_a_text_that_all_runs_have_time_to_see_often(corpora):
    """At 100,000 characters a second; a text of 300,000 characters has no time for more than one."""
    shape = ["model.n_layer=2", "model.n_embd=64", "train.eval_chars=100"]
    for length, more, count in ((9000, [], 3), (9000, ["train.teachers=2"], 2), (300_000, [], 1)):
        text = dataclasses.replace(corpora[100_000], train=np.resize(corpora[100_000].train, length))
        choice = choice_for(text, *shape, *more, seconds=180.0)
        train, said = choice.config.train, said_by(choice.notices)
        assert choice.models.count == count + 1
        assert choice.models.seconds + choice.models.seconds_after(1) == pytest.approx(180, abs=0.1)
        first = f"first {'one' if count == 1 else count} model{'s' * (count > 1)} for at most"
        assert said[Kind.MODELS].startswith(f"{count + 1}: {first}")
        seen = train.max_steps * choice.config.chars_per_step
        assert seen == pytest.approx(ENOUGH_EPOCHS * length, rel=0.05) or count == 1


def test_a_model_of_several_teachers_is_expected_to_be_better_than_the_law_says():
    candidate = chosen_for_time.Candidate(Settings(), 10**5, 1e5, TimeModel(0.1, 1.0), 10**6, loss=2.0)
    compared = [candidate._replace(teachers=count).compared for count in (0, 1, 2, 3)]
    assert compared == [2.0, 2.0, *2 * [2.0 * law.SEVERAL_SHARE]] and law.SEVERAL_SHARE < 1


def test_two_models_are_for_a_text_that_one_would_see_often_and_sooner_if_its_validation_split_is_harder(corpora):
    """A harder split is characters at random; the training split is words. A model this small may not memorise them."""
    shape, corpus = ["model.n_layer=1", "model.n_embd=32"], corpora[100_000]
    mixed = np.random.default_rng(1).integers(corpus.tokenizer.vocab_size, size=5000).astype(corpus.val.dtype)
    config = choice_for(dataclasses.replace(corpus, train=np.tile(corpus.train, 100)), *shape, seconds=120.0).config
    seen = config.train.max_steps * config.chars_per_step
    for times, val, is_taught in (
        (0.9 * law.TWO_MODELS_FROM, corpus.val, False),
        (1.1 * law.TWO_MODELS_FROM, corpus.val, True),
        (0.9 * law.TWO_MODELS_FROM_HARDER, mixed, False),
        (1.1 * law.TWO_MODELS_FROM_HARDER, mixed, True),
        (1.1 * law.TWO_MODELS_FROM_HARDER, corpus.val, False),
    ):
        repeated = dataclasses.replace(corpus, train=np.resize(corpus.train, int(seen / times)), val=val)
        models = choice_for(repeated, *shape, seconds=120.0).models
        assert (models.count, models.is_decided) == ((2, False) if is_taught else (1, True)), times


@pytest.mark.parametrize("lowest", [1.5, 0.3, 0.0])
@pytest.mark.parametrize(("difference", "width"), [(0.9, 96), (1.1, 128)])
def test_of_two_students_of_about_the_same_loss_the_smaller_one_is_chosen(lowest, difference, width, corpora, monkeypatch):
    """What is about the same depends on the loss: 0.011 nats are a lot of a low one."""
    negligible = {
        1.5: chosen_for_time.NEGLIGIBLE_FOR_STUDENT,
        0.3: chosen_for_time.NEGLIGIBLE_SHARE * 0.3,
        0.0: chosen_for_time.NEGLIGIBLE,
    }[lowest]
    expected = {64: 2.0, 96: lowest + difference * negligible, 128: lowest, 192: 1.9}
    losses = {12 * layers * width**2: expected.get(width, 2.0) for layers, width in SHAPES}
    monkeypatch.setattr("chargpt.planning.law.expected_loss", lambda text, *, parameters, **more: losses[parameters])
    choice = choice_for(corpora[100_000], seconds=120.0)
    assert choice.models.count > 1 and choice.config.model.n_embd == width


def test_a_run_with_teachers_reads_no_more_than_they_and_needs_little_regularization(corpora, tmp_path):
    corpus, shape = corpora[100_000], dataclasses.replace(SHAPE, block_size=48)
    teacher = newest(publish_run(tmp_path / "teacher", corpus.tokenizer, shape=shape), training=False)[0]
    short = dataclasses.replace(corpus, train=corpus.train[:10_000])
    alone = choice_for(short, "train.teachers=0", seconds=120.0).config
    choice = choice_for(short, seconds=120.0, teachers=[restore_model(teacher)])
    student = for_student(choice.settings).values
    assert choice.models == Models()
    assert student.model.block_size == 48 < alone.model.block_size
    assert student.model.dropout == 0 < alone.model.dropout
    assert student.optim.weight_decay == law.STUDENT_DECAY < alone.optim.weight_decay
    assert student.optim.average_fraction == 0 < alone.optim.average_fraction
    assert for_student(given("optim.weight_decay=0.9", "model.dropout=0.2")).values.optim.weight_decay == 0.9


def test_a_run_that_sees_its_text_often_ends_early_and_with_mean_weights(corpora):
    """A fast machine sees 3,000 characters often, and 100,000 not even once in 5 seconds."""
    often, once = choice_for(corpora[3000]).config, choice_for(corpora[100_000], "model.n_layer=1", seconds=5.0).config
    assert (often.train.patience, once.train.patience) == (3, 0)
    assert (often.optim.average_fraction, once.optim.average_fraction) == (law.AVERAGED, 0)
    for characters, fraction in ((law.AVERAGED_UP_TO, law.AVERAGED), (law.AVERAGED_UP_TO + 1, 0)):
        text, seen = Job(corpora[3000], 1.0).text._replace(characters=characters), law.AVERAGED_FROM * (characters + 1)
        assert completed(given(), text, seen=seen, evaluations=5).values.optim.average_fraction == fraction


def test_a_third_model_is_seen_though_the_second_is_worse(monkeypatch):
    """On a machine that is much slower with one of the widths: there, the second model learns clearly less than the first."""
    simulated(monkeypatch, 1.5e11, 8e-4)
    slow, speeds = SHAPES[1][1], {True: 1e3, False: 1e5}
    monkeypatch.setattr("chargpt.planning.speeds.training_speed", lambda config, *_: speeds[config.model.n_embd == slow])
    text, minutes = Text(90_000_000, entropy=3.3, ngram_loss=1.77, vocabulary=65), 30
    first, second = (
        expected_loss(text, parameters=12 * layers * width**2, seen=60 * minutes * speeds[width == slow], optimizer="muon")
        for layers, width in SHAPES[:2]
    )
    assert second > first + 2 * chosen_for_time.CLEARLY_WORSE
    assert choice_of(100_000_000, minutes, "runtime.device=cpu").config.model.n_embd > slow


def test_several_processes_take_as_many_more_steps_and_a_short_run_has_a_short_warm_up(corpora):
    shape = ["model.n_layer=1", "model.n_embd=32", "model.block_size=64", "train.batch_size=64"]
    one, two = (choice_for(corpora[100_000], *shape, seconds=5.0, processes=count).config for count in (1, 2))
    assert two.train.max_steps == pytest.approx(2 * one.train.max_steps, rel=0.1)
    assert choice_for(corpora[3000], processes=7).config.train.batch_size % 7 == 0
    assert one.train.max_steps < 1000 and one.optim.warmup_steps == one.train.max_steps // 10


def test_epochs_that_the_user_gives_limit_the_run_and_what_is_chosen_for_it(corpora):
    text = corpora[3000]
    choice = choice_for(text, "train.max_epochs=3", seconds=300.0)
    config = choice.config
    assert config.train.max_epochs == 3 and choice.models == Models()
    assert config.train.max_steps * config.chars_per_step <= 3 * len(text.train)
    assert config.model.dropout == 0 and config.train.patience == 0


@pytest.mark.parametrize(("length", "seconds"), [(2700, 120.0), (30_000, 600.0), (90_000, 30.0)])
def test_the_speed_that_is_said_is_that_of_steps_about_as_long_as_those_of_the_run(corpora, monkeypatch, seconds, length):
    """On a machine whose speed grows with the characters of a step. With time enough, a teacher sees the text 30 times."""
    monkeypatch.setattr("chargpt.planning.speeds.training_speed", lambda config, *_: 10.0 * config.chars_per_step)
    text = dataclasses.replace(corpora[100_000], train=corpora[100_000].train[:length])
    choice = choice_for(text, "model.n_layer=2", "model.n_embd=64", seconds=seconds)
    config, notices = choice.config, choice.notices
    (said,) = [re.search("at ([0-9,]+) characters a second", line) for kind, line, _ in notices if kind is Kind.CHOSEN]
    assert 1 / 2 <= int(said[1].replace(",", "")) / (10 * config.chars_per_step) <= 2
    if choice.models.count > 1 and Kind.NOTE in said_by(notices):
        assert config.train.max_steps * config.chars_per_step == pytest.approx(ENOUGH_EPOCHS * length, rel=0.03)


def test_little_time_and_adamw_get_one_model_unless_two_see_the_text_often_in_that_time(corpora):
    """At 100,000 characters a second, 30 passes over 9,000 characters take 3 seconds."""
    for more, count in (({}, 1), ({"processes": 2}, 1), ({"seconds": 55.0}, 0), ({"optimizer": "adamw"}, 0)):
        assert choice_for(corpora[100_000], **{"seconds": 60.0, **more}).models.count == 1 + count
    text = dataclasses.replace(corpora[3000], train=np.resize(corpora[3000].train, 9000))
    choice = choice_for(text, "train.teachers=1", seconds=50.0)
    assert choice.models.seconds_of(2) == pytest.approx(100 / 3, abs=0.1)
    config = choice.config
    assert config.train.max_steps * config.chars_per_step == pytest.approx(ENOUGH_EPOCHS * 9000, rel=0.05)
    assert choice_for(text, seconds=18.0).models.count == 1
    assert choice_for(text, seconds=59.0).models.count > 1


def test_an_impossible_time_is_used_as_well_as_possible_and_a_model_that_is_too_large_is_refused(corpora):
    config = choice_for(corpora[100_000], seconds=0.5).config
    assert (config.model.n_layer, config.model.n_embd) == SHAPES[0]
    with pytest.raises(UserError, match="10,000,000 layers"):
        choice_for(corpora[3000], "model.n_layer=10000000")


def test_whoever_has_decided_everything_or_the_length_is_left_alone():
    without, limited = TrainOptions(), TrainOptions(minutes=1.0)
    length, everything = given("train.max_steps=9"), Settings(sources=dict.fromkeys(CHOSEN, Source.USER))
    assert Asked(without, Settings()).is_open and Asked(limited, length).is_open
    assert not Asked(without, length).is_open
    assert not Asked(limited, everything).is_open
    assert all(Asked(limited, everything.leaving_open(key)).is_open for key in CHOSEN)


def test_a_given_length_decides_the_regularization(corpora):
    """Few epochs change nothing; with many, what was not given changes, and it is known why."""
    few, text, config = given("train.max_steps=10"), Job(corpora[100_000], 1.0).text, Config()
    unchanged, nothing = regularized(few, text)
    assert unchanged.values == few.values and nothing == []
    changed, (said,) = regularized(Settings(), text)
    assert "optim.weight_decay=" in str(said.text) and said.level == "line", "nothing is chosen unasked and unsaid"
    assert changed.values.optim.weight_decay > config.optim.weight_decay and changed.values.model.dropout > 0
    assert "times" in changed.reasons["optim.weight_decay"] and changed.sources["model.dropout"] is Source.CHOSEN
    kept = given("optim.weight_decay=0.1", "model.dropout=0")
    unchanged, nothing = regularized(kept, text)
    assert unchanged.values == config and nothing == []
