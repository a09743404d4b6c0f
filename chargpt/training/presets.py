"""Which settings a run begins with: a preset or a YAML file, and the command line."""

import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from chargpt.config import Config, apply, apply_overrides
from chargpt.device import choose_device
from chargpt.terminal import UserError, shown
from chargpt.yaml_file import read_yaml


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The settings of a new run, before what follows from its text and its time."""

    config: Config
    file: Path | None  # None: the built-in defaults
    given: frozenset[str]  # what the user has decided, in a file or on the command line, as section.key


def load_settings(
    name: str | None, overrides: Sequence[str], *, presets: Path, model: dict | None = None, model_from: str = ""
) -> Settings:
    """The settings of a preset or YAML file `name` (None: the preset for the device) with the `section.key=value` overrides.

    `model` replaces the file's model section; `model_from` names its origin in error messages. An installed library has no
    presets, which stay in the project; it uses the built-in defaults. Raises UserError.
    """
    device = apply_overrides(Config(), [override for override in overrides if override.startswith("runtime.")]).runtime.device
    path = _find_preset(name, choose_device(device).type, presets)
    tree = {} if path is None else read_yaml(path)
    config = Config() if path is None else apply(Config(), tree, where=shown(path))
    chosen_by_user = [tree if name is not None else {}, {"model": model or {}}]
    if model is not None:
        config = apply(config, {"model": model}, where=model_from)
    given = {f"{section}.{key}" for part in chosen_by_user for section, keys in part.items() for key in keys or ()}
    given |= {override.partition("=")[0].strip() for override in overrides}
    return Settings(config=apply_overrides(config, overrides), file=path, given=frozenset(given))


def _find_preset(name: str | None, device_type: str, presets: Path) -> Path | None:
    if name is None:
        if not presets.is_dir():
            return None
        return presets / ("gpu.yaml" if device_type == "cuda" else "cpu.yaml")
    for path in (Path(name), presets / name, presets / f"{name}.yaml"):
        if path.is_file():
            return path
    known = sorted(path.stem for path in presets.glob("*.yaml"))
    close = difflib.get_close_matches(name, known, n=1)
    presets_too = f", or one of {', '.join(known)}" if known else "; presets are in the project's configs folder"
    what_to_do = f"did you mean {close[0]}?" if close else f"give a YAML file{presets_too}"
    raise UserError(f"--config: {name!r} is not a file; {what_to_do}")
