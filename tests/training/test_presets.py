"""A run begins with the settings of a file, and what the user has given is told apart from what a preset says."""

from pathlib import Path

import pytest

from chargpt.terminal import UserError
from chargpt.training.presets import load_settings

PRESETS = Path(__file__).parents[2] / "configs"


@pytest.mark.parametrize(
    ("name", "presets", "says"),
    [
        ("tinny", PRESETS, "did you mean tiny?"),
        ("shakespear-cpu", PRESETS, "did you mean shakespeare-cpu?"),
        ("nowhere.yaml", PRESETS, "give a YAML file, or one of best, cpu, gpu, "),
        ("tiny", Path("nowhere"), "give a YAML file; presets are in the project's configs folder"),
    ],
)
def test_a_preset_that_does_not_exist_is_one_line_that_says_what_to_do(name, presets, says):
    with pytest.raises(UserError) as caught:
        load_settings(name, [], presets=presets)
    assert str(caught.value).startswith(f"--config: {name!r} is not a file; {says}") and "\n" not in str(caught.value)


def test_without_presets_the_default_is_that_of_the_cpu_preset():
    without, with_presets = (
        load_settings(None, ["train.seed=5", "runtime.device=cpu"], presets=folder) for folder in (Path("nowhere"), PRESETS)
    )
    assert without.config == with_presets.config and without.file is None and with_presets.file == PRESETS / "cpu.yaml"


def test_what_the_user_has_given_is_known(tmp_path):
    """A file and the command line decide; the preset that the device decides does not."""
    (tmp_path / "mine.yaml").write_text("model: {n_layer: 2}\ntrain:\ndata: {lowercase: true}\n")
    words = ["optim.learning_rate=1e-3", "runtime.device=cpu"]
    given = {"optim.learning_rate", "runtime.device"}
    assert load_settings(None, words, presets=PRESETS).given == given
    assert load_settings(str(tmp_path / "mine.yaml"), words, presets=PRESETS).given == given | {
        "model.n_layer",
        "data.lowercase",
    }
    source = {"n_layer": 3, "n_embd": 32}
    loaded = load_settings(None, words, presets=PRESETS, model=source, model_from="a run")
    assert loaded.given == given | {"model.n_layer", "model.n_embd"} and loaded.config.model.n_layer == 3
