"""Settings are strict: everything that is not right is named in one line, and nothing is guessed."""

from pathlib import Path

import pytest
from helpers import apply_overrides, given

from chargpt.config import Config, ModelConfig
from chargpt.errors import UserError
from chargpt.settings import KEYS, SECTIONS, apply
from chargpt.yaml_settings import read_yaml, to_yaml

PRESETS = sorted((Path(__file__).parent.parent / "configs").glob("*.yaml"))


def load(tmp_path: Path, text: str | bytes) -> Config:
    path = tmp_path / "my.yaml"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return apply(Config(), read_yaml(path), where=path.name)


@pytest.mark.parametrize("path", PRESETS, ids=lambda path: path.stem)
def test_every_preset_loads_and_comments_every_key(path):
    apply(Config(), read_yaml(path), where=path.name)
    for line in path.read_text().splitlines():
        if line.strip() and not line.startswith("#") and not line.endswith(":"):
            assert "#" in line, f"{path.name}: no comment at {line!r}"


def test_resolved_settings_survive_a_round_trip(tmp_path):
    config = apply_overrides(Config(), ["optim.learning_rate=3e-4", "optim.betas=0.8,0.95", "model.positions=rotary"])
    assert load(tmp_path, to_yaml(config)) == config


def test_command_line_wins_over_yaml_over_defaults(tmp_path):
    config = load(tmp_path, "train: {batch_size: 7, max_steps: 9}")
    config = apply_overrides(config, ["train.max_steps=11", "train.max_steps=13"])
    assert (config.train.batch_size, config.train.max_steps, config.train.accumulate) == (7, 13, 1)


@pytest.mark.parametrize("section", SECTIONS)
def test_the_keys_that_are_accepted_and_listed_are_the_settings(section):
    with pytest.raises(UserError, match=f"{section}.zzzzz: no such key; use one of ") as error:
        given(f"{section}.zzzzz=1")
    listed = str(error.value).partition("use one of ")[2].split(", ")
    assert listed == [key for key in KEYS if key.startswith(f"{section}.")]


@pytest.mark.parametrize("text", ["", "# nothing but a comment\n", "train:\n", "{}"])
def test_empty_files_and_sections_change_nothing(tmp_path, text):
    assert load(tmp_path, text) == Config()


@pytest.mark.parametrize("written", ["1e-3", "1.0e-3", "0.001", "1E-3", "'1e-3'", ".001", "+1e-3"])
def test_a_number_may_be_written_in_any_of_its_forms(tmp_path, written):
    assert load(tmp_path, f"optim:\n  learning_rate: {written}\n").optim.learning_rate == 1e-3
    assert apply_overrides(Config(), [f"optim.learning_rate={written.strip(chr(39))}"]).optim.learning_rate == 1e-3


BAD_YAML = [
    ("optim:\n  learning_rat: 1e-3", ["optim.learning_rat", "did you mean optim.learning_rate?"]),
    ("optimizer:\n  name: adamw", ["optimizer", "did you mean optim?"]),
    ("train:\n  max_steps: many", ["train.max_steps", "'many'", "whole number"]),
    ("train:\n  max_steps: 10.5", ["train.max_steps", "10.5", "whole number"]),
    ("train:\n  max_steps: true", ["train.max_steps", "'true' given", "whole number"]),
    ("train:\n  max_steps: 0", ["train.max_steps", "0", "1 or more"]),
    ("optim:\n  learning_rate: true", ["optim.learning_rate", "finite number"]),
    ("optim:\n  learning_rate: .nan", ["optim.learning_rate", "finite number"]),
    ("optim:\n  learning_rate: -1", ["optim.learning_rate", "above 0"]),
    ("optim:\n  betas: 0.9", ["optim.betas", "2 numbers"]),
    ("optim:\n  name: sgd", ["optim.name", "'sgd'", "adamw"]),
    ("model:\n  bias: 1", ["model.bias", "true or false"]),
    ("model:\n  n_embd: 130", ["model.n_embd", "multiple of n_head"]),
    ("model:\n  dropout: 1.5", ["model.dropout", "1.5"]),
    ("train:\n  batch_size: 1000000000", ["train.batch_size", "at most", "train.accumulate"]),
    ("data:\n  encoding: klingon", ["data.encoding", "klingon"]),
    ("data:\n  val_fraction: 1", ["data.val_fraction", "0 up to, not including, 1"]),
    ("runtime:\n  device: gpu", ["runtime.device", "cuda"]),
    ("train:\n  seed: 1\n  seed: 2", ["line 3", "'seed'", "twice"]),
    ("- train\n- model\n", ["list", "sections"]),
    ("[]", ["a list", "sections"]),
    ('""', ["a single value", "sections"]),
    ("model: []", ["model", "[]", "below it"]),
    ('train: ""', ["train", "''", "below it"]),
    ("data: {cache: null}", ["data.cache", "None", "text"]),
    ("data: {val_text: ~}", ["data.val_text", "None", "text"]),
    ("data: {pattern: }", ["data.pattern", "None", "text"]),
    ("train: 5", ["train", "5", "below it"]),
    ("train:\n\tmax_steps: 1", ["line 2", "YAML"]),
    ("train: !!python/object/apply:os.system ['touch canary']", ["write its settings below it"]),
    ("a: &a [x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a]\n", ["aliases"]),
    ("1: 2", ["1", "no such section"]),
    ("train:\n  5: 2", ["train.5", "no such key"]),
    ("minutes: 3", ["minutes", "no such section", "did you mean --minutes"]),
    ("train:\n  epochs: 3", ["train.epochs", "no such key", "did you mean --epochs"]),
    ("[" * 1500, ["YAML (maximum recursion depth"]),
    (r'data: {field: "\UFFFFFFFF"}', ["not valid YAML"]),
    (r'data: {field: "\U00110000"}', ["not valid YAML"]),
    ("train:\n  max_steps: 4\0", ["YAML (special characters are not allowed"]),
    ("train:\n  max_steps: " + "9" * 5000, ["train.max_steps: '99", "whole number"]),
    ("train:\n  max_steps: !!int {a: b}", ["whole number"]),
    ("train.max_steps: 5", ["write max_steps: on its own line, indented, below train:"]),
    (b"train:\n  max_steps: \xff\n", ["UTF-8"]),
    (b"#" * 1_000_001, ["larger than"]),
]


@pytest.mark.parametrize("text, words", BAD_YAML, ids=[str(text[:40]) for text, _ in BAD_YAML])
def test_a_bad_file_gets_one_line_that_names_it(tmp_path, text, words, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError) as caught:
        load(tmp_path, text)
    message = str(caught.value)
    assert message.startswith("my.yaml:") and ";" in message
    for word in words:
        assert word in message
    assert not (tmp_path / "canary").exists()


@pytest.mark.parametrize(
    "override, words",
    [
        ("train.max_steps", ["train.max_steps", "whole number"]),
        ("max_steps=5", ["did you mean train.max_steps?"]),
        ("train._ranges=5", ["no such key"]),
        ("train.=5", ["section.key=value"]),
    ],
)
def test_a_bad_override_gets_one_line(override, words):
    with pytest.raises(UserError) as caught:
        apply_overrides(Config(), [override])
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize(
    ("override", "value"),
    [
        ("data.pattern=*.py", "*.py"),
        ("model.bias=false", False),
        ("data.separator= ", " "),
        ("train.seed= 3 ", 3),
        ("optim.name= muon ", "muon"),
        ("runtime.device=cpu ", "cpu"),
    ],
)
def test_a_text_is_taken_as_it_is_and_spaces_around_a_value_are_ignored_unless_they_are_a_separator(override, value):
    section, _, key = override.partition("=")[0].partition(".")
    assert getattr(getattr(apply_overrides(Config(), [override]), section), key) == value


@pytest.mark.parametrize("word", ["yes", "no", "on", "off", "true", "false", "Yes", "OFF"])
def test_yes_and_no_mean_the_same_in_yaml_and_on_the_command_line(tmp_path, word):
    typed = apply_overrides(Config(), [f"model.bias={word}", f"runtime.compile={word}"])
    assert load(tmp_path, f"model: {{bias: {word}}}\nruntime: {{compile: {word}}}\n") == typed
    is_on = word.lower() in ("yes", "on", "true")
    assert typed.model.bias == is_on and typed.runtime.compile == ("on" if is_on else "off")


@pytest.mark.parametrize(
    ("written", "read"),
    [("5e3", 5000), ("1_000", 1000), ("010", None), ("٤", None), ("1__0", None), ("0x10", None), ("1_", None), ("1:30", None)],
)
def test_a_whole_number_is_read_alike_in_yaml_and_on_the_command_line(tmp_path, written, read):
    assert load(tmp_path, f"data: {{items: {written}}}").data.items == written  # a text where one is wanted
    for reads in (
        lambda: load(tmp_path, f"train:\n  max_steps: {written}\n"),
        lambda: given(f"train.max_steps={written}").values,
    ):
        if read is None:
            with pytest.raises(UserError, match="train.max_steps: .* given; use a whole number"):
                reads()
        else:
            assert reads().train.max_steps == read


IMPOSSIBLE = {"n_layer": 0, "n_embd": 33, "block_size": 0, "dropout": 1.0, "n_head": 0}


@pytest.mark.parametrize(
    "settings",
    [{name: value} for name, value in IMPOSSIBLE.items()]
    + [{"dropout": float("nan")}, {"n_embd": 6, "positions": "rotary"}],  # heads of three channels
)
def test_impossible_shapes_are_named(settings):
    with pytest.raises(ValueError, match=rf"^({'|'.join(settings)}): .*use"):
        ModelConfig(**{**dict(n_layer=2, n_head=2, n_embd=32, block_size=16), **settings})
