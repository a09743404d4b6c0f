"""Defaults follow the text, and what the user has given stays."""

from pathlib import Path

import pytest

from chargpt.config import Config, OptimConfig, TrainConfig
from chargpt.terminal import UserError
from chargpt.training.recipes import MAX_EPOCHS, MIN_STEPS, adapt_to_text, load_settings
from model import GPTConfig

CONFIG = Config(
    model=GPTConfig(n_layer=4, n_head=4, n_embd=128, block_size=128),  # 0.8 million parameters
    train=TrainConfig(max_steps=3000, batch_size=16, eval_interval=500),
    optim=OptimConfig(warmup_steps=100),
)
PRESETS = Path(__file__).parents[2] / "configs"


@pytest.mark.parametrize(
    ("name", "presets", "says"),
    [
        ("tinny", PRESETS, "did you mean tiny?"),
        ("shakespear-cpu", PRESETS, "did you mean shakespeare-cpu?"),
        ("nowhere.yaml", PRESETS, "give a YAML file, or one of cpu, gpu, "),
        ("tiny", Path("nowhere"), "give a YAML file; presets are in the project's configs folder"),
    ],
)
def test_a_preset_that_does_not_exist_is_one_line_that_says_what_to_do(name, presets, says):
    with pytest.raises(UserError) as caught:
        load_settings(name, [], presets=presets)
    assert str(caught.value).startswith(f"--config: {name!r} is not a file; {says}") and "\n" not in str(caught.value)


def test_without_presets_the_default_is_that_of_the_cpu_preset():
    assert load_settings(None, ["train.seed=5", "runtime.device=cpu"], presets=Path("nowhere")) == (
        load_settings(None, ["train.seed=5", "runtime.device=cpu"], presets=PRESETS)[0],
        None,
    )


def epochs(config: Config, characters: int) -> float:
    return config.train.max_steps * config.train.batch_size * config.model.block_size / characters


@pytest.mark.parametrize("characters", [1_000_000, 10**9])
def test_a_text_longer_than_the_model_changes_nothing(characters):
    assert adapt_to_text(CONFIG, characters=characters, vocab_size=65, given=()) == (CONFIG, "")


@pytest.mark.parametrize(("characters", "decay"), [(60_000, 1.0), (90_000, 1.0), (300_000, 0.5)])
def test_a_short_text_is_seen_less_often_and_with_more_decay(characters, decay):
    config, why = adapt_to_text(CONFIG, characters=characters, vocab_size=65, given=())
    assert MAX_EPOCHS <= epochs(config, characters) < MAX_EPOCHS + 1
    assert config.optim.weight_decay == decay
    assert f"{config.train.max_steps:,} steps" in why and f"weight decay {decay:g}" in why and f"{characters:,}" in why
    assert 5 <= config.train.max_steps / config.train.eval_interval <= 7  # as many evaluations as before
    assert config.optim.warmup_steps <= config.train.max_steps / 10


def test_a_tiny_text_is_still_learned_from():
    config, _ = adapt_to_text(CONFIG, characters=1000, vocab_size=65, given=())
    assert config.train.max_steps == MIN_STEPS


def test_what_was_given_stays():
    for given, kept in (
        ("train.max_steps", lambda c: c.train.max_steps),
        ("optim.weight_decay", lambda c: c.optim.weight_decay),
    ):
        config, why = adapt_to_text(CONFIG, characters=90_000, vocab_size=65, given=[given])
        assert kept(config) == kept(CONFIG) and config != CONFIG and why
    for key, kept in (
        ("train.eval_interval", lambda c: c.train.eval_interval),
        ("checkpoint.interval", lambda c: c.checkpoint.interval),
        ("optim.warmup_steps", lambda c: c.optim.warmup_steps),
    ):
        assert kept(adapt_to_text(CONFIG, characters=30_000, vocab_size=65, given=[key])[0]) == kept(CONFIG)
        assert kept(adapt_to_text(CONFIG, characters=30_000, vocab_size=65, given=[])[0]) != kept(CONFIG)
    assert adapt_to_text(CONFIG, characters=90_000, vocab_size=65, given=["train.max_steps", "optim.weight_decay"]) == (
        CONFIG,
        "",
    )
