"""Which settings a run begins with: a preset or a YAML file, the run that it begins with, and the command line."""

import dataclasses
import difflib
from pathlib import Path

from chargpt.config import COMMAND_LINE, Config, DataConfig, ModelConfig, Settings, Source, Tree, apply, names_in, typed_values
from chargpt.device import choose_device
from chargpt.errors import Option, UserError
from chargpt.planning.chosen_for_time import chooses
from chargpt.terminal import shown
from chargpt.yaml_settings import read_yaml


def load_settings(
    name: str | None,
    typed: Tree,
    *,
    presets: Path,
    minutes: float | None = None,
    model: ModelConfig | None = None,
    model_from: str = "",
) -> tuple[Settings, Path | None]:
    """The settings of a preset or YAML file `name` (None: the preset for the device) with those that the user has `typed`.

    Returns the path of that file as well. `minutes` is the time limit. `model` replaces the file's model section, except a
    dropout; `model_from` names its origin. Raises UserError.
    """
    device = apply(Config(), {"runtime": typed.get("runtime", {})}, where=COMMAND_LINE).runtime.device
    path = _find_preset(name, choose_device(device).type, presets)
    tree: Tree = {} if path is None else typed_values(read_yaml(path), where=shown(path))
    is_preset = path is not None and path.parent == presets
    source = Source.DEFAULT if name is None else Source.PRESET if is_preset else Source.USER
    shape: dict[str, object] = {}
    if model is not None:
        shape = {key: value for key, value in dataclasses.asdict(model).items() if key != "dropout"}
        tree = {**tree, "model": {key: value for key, value in tree.get("model", {}).items() if key == "dropout"}}
    sources: dict[str, Source] = {} if source is Source.DEFAULT else dict.fromkeys(names_in(tree), source)
    sources |= dict.fromkeys(names_in({"model": shape}), Source.RUN) | dict.fromkeys(names_in(typed), Source.USER)
    settings = Settings(sources=sources)
    values, where = Config(), shown(path or "the settings")
    if source is not Source.USER:
        values = apply(values, tree, where=where)
    if chooses(settings if minutes is None else settings.without(Source.PRESET), minutes=minutes):
        is_kept = source is Source.USER or (source is Source.PRESET and minutes is None)
        values = _with_room(values, tree if is_kept else {}, typed)
    if source is Source.USER:
        values = apply(values, tree, where=where)
    values = apply(values, {"model": shape}, where=model_from)
    return by_fields(Settings(apply(values, typed, where=COMMAND_LINE), settings.sources), typed), path


def by_fields(settings: Settings, typed: Tree) -> Settings:
    """With data.format=fields, unless another one is set, if a field is typed, or a file has another one than the default."""
    data = settings.values.data
    if data.format != "auto" or not ("field" in typed.get("data", {}) or data.field != DataConfig.field):
        return settings
    return settings.choose("a field is given", data={"format": "fields"})


def _with_room(values: Config, *trees: Tree) -> Config:
    """`values` with a width and heads that fit those that are given in `trees`: what is not given is chosen later."""
    given = {key: value for tree in trees for key, value in tree.get("model", {}).items()}
    heads, model = given.get("n_head"), values.model
    if "n_head" not in given and "n_embd" in given:
        model = dataclasses.replace(model, n_head=1)
    if isinstance(heads, int) and heads > 0 and "n_embd" not in given:
        model = dataclasses.replace(model, n_head=1, n_embd=2 * heads)
    return dataclasses.replace(values, model=model)


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
    close = difflib.get_close_matches(name, known, n=1)
    what_to_do = f"did you mean {close[0]}?" if close else f"give a YAML file, or one of {', '.join(known)}"
    raise UserError(Option("config"), f": {name!r} is not a file; {what_to_do}")
