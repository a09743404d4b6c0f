"""Which settings a run begins with: a preset or a YAML file, and the command line."""

import difflib
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from chargpt.config import RENAMED, Config, DataConfig, apply, apply_overrides
from chargpt.device import choose_device
from chargpt.errors import Option, UserError
from chargpt.planning.chosen_for_time import chooses
from chargpt.terminal import WHOLE_NUMBER, shown
from chargpt.yaml_settings import read_yaml

MOST = 4096  # heads or chunks; more are a mistake


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The settings of a new run, before what follows from its text and its time."""

    config: Config
    file: Path | None  # None: the built-in defaults
    given: frozenset[str]  # what the user has decided, in a file or on the command line, as section.key
    is_preset: bool = False  # whether `file` is one of the project, not of the user


def load_settings(
    name: str | None,
    overrides: Sequence[str],
    *,
    presets: Path,
    minutes: float | None = None,
    model: dict | None = None,
    model_from: str = "",
) -> Settings:
    """The settings of a preset or YAML file `name` (None: the preset for the device) with the `section.key=value` overrides.

    `minutes` is the time limit. `model` replaces the file's model section, except a dropout; `model_from` names its origin.
    Raises UserError.
    """
    device = apply_overrides(Config(), [override for override in overrides if override.startswith("runtime.")]).runtime.device
    path = _find_preset(name, choose_device(device).type, presets)
    tree = {} if path is None else read_yaml(path)
    by_user = {} if name is None else _flat(tree)
    typed = {key.strip(): value.strip() for key, _, value in (override.partition("=") for override in overrides)}
    typed = {RENAMED.get(key, key): value for key, value in typed.items()}
    if model is not None and "model.dropout" in by_user:
        model = {**model, "dropout": by_user["model.dropout"]}
    source = _flat({"model": model}).keys() - {"model.dropout"}  # on which no weight depends
    given = {*by_user, *source, *typed}
    if chooses(given, minutes=minutes):
        tree = _with_fitting_values(tree, by_user, typed)
    config = Config() if not tree else apply(Config(), tree, where=shown(path or "the settings"))
    if model is not None:
        config = apply(config, {"model": model}, where=model_from)
    is_preset = path is not None and path.parent == presets
    config = by_fields(apply_overrides(config, overrides), typed)
    return Settings(config=config, file=path, given=frozenset(given), is_preset=is_preset)


def by_fields(config: Config, given: Collection[str]) -> Config:
    """`config` with data.format=fields, unless another one is set, if the user has given a field."""
    if config.data.format != "auto" or not ("data.field" in given or config.data.field != DataConfig.field):
        return config
    return apply_overrides(config, ["data.format=fields"])


def _flat(tree: Mapping[str, Any]) -> dict[str, Any]:
    """The values of a tree of settings, which may have mistakes, by section.key."""
    sections = {section: keys for section, keys in tree.items() if isinstance(keys, Mapping)}
    flat = {f"{section}.{key}": value for section, keys in sections.items() for key, value in keys.items()}
    return {RENAMED.get(key, key): value for key, value in flat.items()}


def _with_fitting_values(tree: dict[str, Any], by_user: Mapping[str, Any], typed: Mapping[str, str]) -> dict[str, Any]:
    """`tree` with values that fit whatever the user has given, for settings that are still to be chosen.

    A number of heads given alone, for example, need not divide the width of a preset, which will not be used.
    """
    whole = {key: _whole_numbers(by_user.get(key), typed.get(key)) for key in ("model.n_head", "train.chunks")}
    fitting: dict[str, int] = {}
    if {"model.n_head", "model.n_embd"} & (by_user.keys() | typed.keys()):
        fitting |= {"model.n_head": 1, "model.n_embd": 2 * whole["model.n_head"]}
    if "train.chunks" in by_user or "train.chunks" in typed:
        fitting["train.batch_size"] = whole["train.chunks"]
    for key, value in fitting.items():
        section, _, name = key.partition(".")
        keys = tree.get(section)
        if key not in by_user and (keys is None or isinstance(keys, Mapping)):
            tree = {**tree, section: {**(keys or {}), name: value}}
    return tree


def _whole_numbers(*values: Any) -> int:
    """The least common multiple of those of `values` that are whole numbers above 0, and not too large to be a mistake."""
    numbers = [int(value) for value in values if WHOLE_NUMBER.fullmatch(str(value)) and 0 < int(value) <= MOST]
    return math.lcm(*numbers)


def _find_preset(name: str | None, device_type: str, presets: Path) -> Path | None:
    if name is None:
        if not presets.is_dir():
            return None
        return presets / ("gpu.yaml" if device_type == "cuda" else "cpu.yaml")
    if name.endswith(".py"):  # a configuration of nanoGPT
        what = f": {name} is Python code, which is not run; give its settings, such as "
        raise UserError(Option("config"), what, Option("train.max_steps", 5000), ", or write them in a YAML file")
    for path in (Path(name), presets / name, presets / f"{name}.yaml"):
        if path.is_file():
            return path
    known = sorted(path.stem for path in presets.glob("*.yaml"))
    close = difflib.get_close_matches(name, known, n=1)
    presets_too = f", or one of {', '.join(known)}" if known else "; presets are in the project's configs folder"
    what_to_do = f"did you mean {close[0]}?" if close else f"give a YAML file{presets_too}"
    raise UserError(Option("config"), f": {name!r} is not a file; {what_to_do}")
