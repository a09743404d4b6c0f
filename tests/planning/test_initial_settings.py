"""A run begins with the settings of a file, and what the user has given is told apart from what a preset says."""

from pathlib import Path

import pytest
import torch

from chargpt.config import ModelConfig
from chargpt.errors import UserError
from chargpt.planning import initial_settings
from chargpt.planning.cli import TrainOptions, settings_in
from chargpt.settings import Settings

PRESETS = Path(__file__).parents[2] / "configs"


def load_settings(name: str | None, words: list[str], **more) -> Settings:
    """The settings of a file and of section.key=value words."""
    return initial_settings.load_settings(TrainOptions(config=name, settings=settings_in(words)), **more).loaded


def given_in(loaded: Settings) -> set[str]:
    return {key for key in loaded.sources if loaded.is_given(key)}


@pytest.mark.parametrize(
    ("name", "presets", "says"),
    [
        ("tinny", PRESETS, "did you mean tiny?"),
        ("shakespear-cpu", PRESETS, "did you mean shakespeare-cpu?"),
        ("nowhere.yaml", PRESETS, "give a YAML file, or one of best, gpu, "),
    ],
)
def test_a_preset_that_does_not_exist_is_one_line_that_says_what_to_do(name, presets, says):
    with pytest.raises(UserError) as caught:
        load_settings(name, [], presets=presets)
    assert str(caught.value).startswith(f"--config: {name!r} is not a file; {says}") and "\n" not in str(caught.value)


def test_a_field_that_the_user_names_is_read_from_tables_too(tmp_path):
    """A file of settings with every key, such as config.yaml of a run, names the default field without meaning it."""
    (tmp_path / "mine.yaml").write_text("data: {field: body}\n")
    (tmp_path / "every.yaml").write_text("data: {field: text}\n")
    given = [(None, ["data.field=text"]), (str(tmp_path / "mine.yaml"), []), (str(tmp_path / "every.yaml"), []), (None, [])]
    formats = [load_settings(name, words, presets=PRESETS).values.data.format for name, words in given]
    assert formats == ["fields", "fields", "auto", "auto"]
    explicit = load_settings(None, ["data.field=body", "data.format=text"], presets=PRESETS)
    assert explicit.values.data.format == "text"


def test_what_the_user_has_given_is_known(tmp_path, monkeypatch):
    """A file and the command line decide; the preset that the device decides does not."""
    with monkeypatch.context() as on_gpu:
        on_gpu.setattr(initial_settings, "choose_device", lambda name: torch.device("cuda"))
        of_device, of_preset = (load_settings(name, ["train.seed=5"], presets=PRESETS) for name in (None, "gpu"))
        assert of_device.values == of_preset.values != load_settings("tiny", ["train.seed=5"], presets=PRESETS).values
        assert given_in(of_device) == {"train.seed"} < given_in(of_preset)
    (tmp_path / "mine.yaml").write_text("model: {n_layer: 2}\ntrain:\ndata: {lowercase: true}\n")
    words = ["optim.learning_rate=1e-3", "runtime.device=cpu"]
    given = {"optim.learning_rate", "runtime.device"}
    assert given_in(load_settings(None, words, presets=PRESETS)) == given
    of_file = given_in(load_settings(str(tmp_path / "mine.yaml"), words, presets=PRESETS))
    assert of_file == given | {"model.n_layer", "data.lowercase"}
    source = ModelConfig(n_layer=3, n_embd=32)
    loaded = load_settings(None, words, presets=PRESETS, model=source, model_from="a run")
    assert given_in(loaded) > given | {"model.n_layer", "model.n_embd"} and loaded.values.model.n_layer == 3


@pytest.mark.parametrize("settings", [["model.n_head=3"], ["model.n_embd=97"]])
@pytest.mark.parametrize("as_file", [True, False])
def test_one_setting_of_several_that_depend_on_each_other_is_enough(settings, as_file, tmp_path):
    """The others are chosen, so that those of a preset do not matter; without a choice, they are an error as before."""
    section, name, value = settings[0].replace("=", ".").split(".")
    (tmp_path / "mine.yaml").write_text(f"{section}:\n  {name}: {value}\n")
    file, words = (str(tmp_path / "mine.yaml"), []) if as_file else (None, settings)
    words = [*words, "runtime.device=cpu"]
    config = load_settings(file, words, presets=PRESETS).values
    assert getattr(getattr(config, section), name) == int(value)
    with pytest.raises(UserError, match="n_embd"):
        load_settings(file, [*words, "train.max_steps=10"], presets=PRESETS)


@pytest.mark.parametrize("text", ["model: 5\n", "model: {n_head: many}\n", "model: {n_head: 0}\n", "train: {seed: 1e99}\n"])
def test_a_file_with_a_mistake_is_one_line(text, tmp_path):
    (tmp_path / "mine.yaml").write_text(text)
    with pytest.raises(UserError, match="mine.yaml: "):
        load_settings(str(tmp_path / "mine.yaml"), [], presets=PRESETS)
