"""Which settings a run begins with: a preset or a YAML file, the run that it begins with, and the command line.

Each is a layer; a later one has precedence. All of them together make the settings, at once.
"""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from chargpt.config import Config, ModelConfig
from chargpt.device import choose_device
from chargpt.errors import Option, UserError, Words, nearest
from chargpt.formatting import shown
from chargpt.planning.cli import SHORTEST_CONTEXT, TrainOptions, by_fields
from chargpt.settings import COMMAND_LINE, SECTIONS, Settings, Source, Tree, apply, names_in, typed_values
from chargpt.yaml_settings import read_yaml

DEFAULT_SECONDS = 180.0  # seconds of a run for which the user has chosen no length
# If the user has given all of these, only the length of the run is left to choose.
CHOSEN = {
    *("model.n_layer", "model.n_head", "model.n_embd", "model.block_size", "model.positions", "model.dropout"),
    *("optim.name", "optim.learning_rate", "optim.weight_decay", "train.batch_size"),
}


@dataclass(frozen=True)
class Asked:
    """What the user asked for: options, and settings before anything is chosen."""

    options: TrainOptions
    loaded: Settings  # those of a preset or a file, of the run to begin with, and of the command line
    file: Path | None = None  # that one

    @property
    def settings(self) -> Settings:
        """What holds of them: with --minutes, a preset is a default, and the time decides the length."""
        if self.options.minutes is None:
            return self.loaded
        return self.loaded.without(Source.PRESET).leaving_open("train.max_steps")

    @property
    def is_open(self) -> bool:
        """Whether the text and the time choose settings."""
        is_given = self.settings.is_given
        return not is_given("train.max_steps") and not all(map(is_given, CHOSEN))

    @property
    def seconds(self) -> float:
        """The time for which settings are chosen."""
        return DEFAULT_SECONDS if self.options.minutes is None else 60 * self.options.minutes

    @property
    def limit(self) -> float | None:
        """The seconds of the run; None: as many as its length takes."""
        return self.seconds if self.options.minutes is not None or self.is_open else None

    @property
    def context(self) -> int:
        """The shortest context that the model may have."""
        is_chosen = self.is_open and not self.settings.is_given("model.block_size")
        return SHORTEST_CONTEXT if is_chosen else self.settings.values.model.block_size


class Layer(NamedTuple):
    """What one source sets."""

    tree: Tree
    source: Source
    where: Words  # begins the errors about it


def load_settings(options: TrainOptions, *, presets: Path, model: ModelConfig | None = None, model_from: str = "") -> Asked:
    """The settings that the user has asked for with these options.

    `model` is the shape of the model with which the run begins, and `model_from` names its origin: of a file, only its dropout
    holds then. What is left to choose has room beside what is given. Raises UserError.
    """
    device = apply(Config(), {"runtime": options.settings.get("runtime", {})}, where=COMMAND_LINE).runtime.device
    path = _find_preset(options.config, choose_device(device).type, presets)
    tree = {} if path is None else typed_values(read_yaml(path), where=shown(path))
    shape: Tree = {}
    if model is not None:
        shape = {"model": shape_of(model)}
        tree = {**tree, "model": {key: value for key, value in tree.get("model", {}).items() if key == "dropout"}}
    source = Source.PRESET if path is not None and path.parent == presets else Source.USER
    file = Layer(tree, Source.DEFAULT if options.config is None else source, shown(path or "the settings"))
    layers = [file, Layer(shape, Source.RUN, model_from), Layer(options.settings, Source.USER, COMMAND_LINE)]
    sources = {name: layer.source for layer in layers for name in names_in(layer.tree) if layer.source is not Source.DEFAULT}
    if options.epochs is not None:  # a number of steps, which is known when the text is read
        sources["train.max_steps"] = Source.USER
    asked = Asked(options, Settings(sources=sources), path)
    if asked.is_open:
        layers.append(_room(layers, asked.settings))
    return dataclasses.replace(asked, loaded=by_fields(Settings(_together(layers), sources), options.settings))


def shape_of(model: ModelConfig) -> dict[str, object]:
    """What the weights of a model fix: all but its dropout."""
    return {key: value for key, value in dataclasses.asdict(model).items() if key != "dropout"}


def _room(layers: Sequence[Layer], settings: Settings) -> Layer:
    """A width, or a number of heads, that fits the other one, where only that is given: it is chosen later."""
    heads = _merged(layers, "model").get("n_head", ModelConfig.n_head)
    has_width, has_heads = settings.is_given("model.n_embd"), settings.is_given("model.n_head")
    room: dict[str, object] = {}
    if has_width and not has_heads:
        room = {"n_head": 1}
    elif has_heads and not has_width and isinstance(heads, int):
        room = {"n_embd": 2 * heads}
    return Layer({"model": room}, Source.CHOSEN, COMMAND_LINE)


def _merged(layers: Sequence[Layer], section: str) -> dict[str, object]:
    """The values of a section; those of a later layer hold."""
    return {key: value for layer in layers for key, value in layer.tree.get(section, {}).items()}


def _together(layers: Sequence[Layer]) -> Config:
    """All layers, each value checked beside the others. A UserError names the last layer that sets something there."""
    sections = {}
    for section, kind in SECTIONS.items():
        try:
            sections[section] = kind(**_merged(layers, section))
        except ValueError as error:
            raise UserError([layer.where for layer in layers if layer.tree.get(section)][-1], f": {section}.{error}") from None
    try:
        return Config(**sections)  # type: ignore[arg-type]
    except ValueError as error:  # about the batch and the context
        where = [layer.where for layer in layers if layer.tree.get("train") or layer.tree.get("model")]
        raise UserError(where[-1], f": {error}") from None


def _find_preset(name: str | None, device_type: str, presets: Path) -> Path | None:
    if name is None:
        on_gpu = presets / "gpu.yaml"
        return on_gpu if device_type == "cuda" and on_gpu.is_file() else None
    if name.endswith(".py"):  # a configuration of nanoGPT
        what = f": {name} is Python code, which is not run; give its settings, such as "
        raise UserError(Option("config"), what, Option("train.max_steps", 5000), ", or write them in a YAML file")
    for path in (Path(name), presets / name, presets / f"{name}.yaml"):
        if path.is_file():
            return path
    known = sorted(path.stem for path in presets.glob("*.yaml"))
    what_to_do = nearest(name, known, otherwise=f"give a YAML file, or one of {', '.join(known)}")
    raise UserError(Option("config"), f": {name!r} is not a file; {what_to_do}")
