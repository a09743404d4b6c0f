"""Settings as they are given: read strictly, with who set each value. Importing this imports no torch."""

import dataclasses
import math
import re
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated, Any, Literal, NamedTuple

from chargpt.config import Config, Section
from chargpt.errors import Message, Option, UserError, Words, nearest, short

# Numbers as a person may type them, on the command line and in YAML: in decimal, 1_000 for 1000, no leading zeros.
WHOLE_NUMBER = re.compile(r"[+-]?(0|[1-9][0-9]*(_[0-9]+)*)")
NUMBER = re.compile(rf"({WHOLE_NUMBER.pattern}(\.[0-9]*)?|[+-]?\.[0-9]+)([eE][+-]?[0-9]+)?")
COMMAND_LINE = Option("settings")  # where a setting was given, in errors
Tree = dict[str, dict[str, object]]  # {section: {key: value}}


def apply(config: Config, tree: Mapping[str, Any], *, where: Words) -> Config:
    """`config` with the settings of `tree`, {section: {key: value}}. `where` begins the error messages."""
    section, changed = "", dict[str, Any]()
    try:
        for section, values in typed_values(tree, where=where).items():
            changed[section] = dataclasses.replace(getattr(config, section), **values)
        section = ""
        return dataclasses.replace(config, **changed)
    except UserError:
        raise
    except ValueError as error:
        raise UserError(where, f": {section}{'.' * bool(section)}{error}") from None


def typed_values(tree: Mapping[str, Any], *, where: Words) -> Tree:
    """The settings of `tree`, each as the type of its key; what also depends on others is left to `apply`. Raises UserError."""
    try:
        return {section: _typed(section, values) for section, values in tree.items()}
    except UserError as error:
        raise UserError(where, ": ", error) from None


def _typed(section: str, values: object) -> dict[str, object]:
    """The settings of a section, each as the type of its key. Raises UserError."""
    if section not in SECTIONS:
        raise UserError(f"{section}: no such section; ", _nearest_section(str(section)))
    if values is not None and not isinstance(values, Mapping):
        raise UserError(f"{section}: holds {values!r}; write its settings below it, indented, one in each line")
    hints, typed = typing.get_type_hints(SECTIONS[section], include_extras=True), dict[str, object]()
    for key, value in (values or {}).items():
        if key not in hints:
            meant = elsewhere(key.rpartition(".")[2]) or nearest(key, {one: f"{section}.{one}" for one in hints}, cutoff=0.5)
            raise UserError(f"{section}.{key}: no such key; ", meant)
        try:
            typed[key] = _coerce(value, hints[key])
        except ValueError as error:
            raise UserError(f"{section}.{key}: {short(value)} given; use {error}") from None
    return typed


SECTIONS: dict[str, type[Section]] = typing.get_type_hints(Config)


def to_dict(config: Config) -> dict[str, dict[str, Any]]:
    """The whole tree as plain dictionaries, lists, strings and numbers."""
    sections = dataclasses.asdict(config)
    return {s: {k: list(v) if isinstance(v, tuple) else v for k, v in keys.items()} for s, keys in sections.items()}


def names_in(tree: Mapping[str, Mapping[str, object]]) -> list[str]:
    """The settings in a tree, as section.key."""
    return [f"{section}.{key}" for section, keys in tree.items() for key in keys]


def flat(config: Config) -> dict[str, Any]:
    """All settings by section.key, with lists for tuples."""
    return {f"{section}.{key}": value for section, keys in to_dict(config).items() for key, value in keys.items()}


KEYS = list(flat(Config()))


class Change(NamedTuple):
    """A setting that has changed."""

    key: str  # section.key
    old: object
    new: object

    def __str__(self) -> str:
        return f"{self.key}: {self.old} -> {self.new}"


def difference(old: Config, new: Config) -> list[Change]:
    """What changed."""
    after = flat(new)
    return [Change(key, value, after[key]) for key, value in flat(old).items() if value != after[key]]


class Source(StrEnum):
    """Who set the value of a setting."""

    DEFAULT = "default"
    PRESET = "preset"  # --config NAME
    USER = "user"  # the command line, or a file of the user
    RUN = "run"  # the shape of the model with which a run begins
    CHOSEN = "chosen"  # the program


@dataclass(frozen=True)
class Settings:
    """All settings, who set each, and why it was chosen. Every change makes a new object."""

    values: Config = field(default_factory=Config)
    sources: Mapping[str, Source] = field(default_factory=dict)  # by section.key; what is missing is a default
    reasons: Mapping[str, str] = field(default_factory=dict)  # of what was chosen, for people

    @property
    def of_user(self) -> dict[str, Any]:
        """Those that the user has set, by section.key."""
        return {key: value for key, value in flat(self.values).items() if self.sources.get(key) is Source.USER}

    def is_given(self, key: str) -> bool:
        """Whether somebody has set section.key: the user, a preset or the run that this one begins with."""
        return self.sources.get(key, Source.DEFAULT) in (Source.USER, Source.PRESET, Source.RUN)

    def is_any_given(self, *prefixes: str) -> bool:
        """The same for any setting that begins with one of `prefixes`."""
        return any(key.startswith(prefixes) and self.is_given(key) for key in self.sources)

    def give(self, tree: Mapping[str, Mapping[str, object]], *, source: Source, where: Words) -> "Settings":
        """With the settings of `tree`, {section: {key: value}}, which `source` sets. A UserError begins with `where`."""
        values = apply(self.values, tree, where=where)
        return Settings(values, {**self.sources, **dict.fromkeys(names_in(tree), source)}, self.reasons)

    def choose(self, reason: str, **sections: Mapping[str, object]) -> "Settings":
        """With these values, {key: value} for a section, but for what is given. Raises UserError for what does not fit that."""
        open_ = {
            section: {key: value for key, value in values.items() if not self.is_given(f"{section}.{key}")}
            for section, values in sections.items()
        }
        sources = {**self.sources, **dict.fromkeys(names_in(open_), Source.CHOSEN)}
        reasons = {**self.reasons, **dict.fromkeys(names_in(open_), reason)}
        return Settings(apply(self.values, open_, where=COMMAND_LINE), sources, reasons)

    def decide(self, reason: str, **sections: Mapping[str, object]) -> "Settings":
        """With these values, {key: value} for a section, whatever is given."""
        return self.leaving_open(*names_in(sections)).choose(reason, **sections)

    def leaving_open(self, *keys: str) -> "Settings":
        """The same values; those of each section.key are as defaults."""
        return Settings(self.values, {name: by for name, by in self.sources.items() if name not in keys}, self.reasons)

    def without(self, source: Source) -> "Settings":
        """The same values; those that `source` has set are as defaults."""
        return Settings(self.values, {key: by for key, by in self.sources.items() if by is not source}, self.reasons)


def _nearest_section(given: str) -> Words:
    section, dot, key = given.partition(".")
    if dot and section in SECTIONS:
        return f"write {key}: on its own line, indented, below {section}:"
    return elsewhere(given) or nearest(given, [*SECTIONS], cutoff=0.5)


def elsewhere(key: str) -> Words:
    """A hint if `key` is a setting of some section or an option; empty if not."""
    from chargpt.aliases import alias  # only a mistake needs the names of others

    names = [name for name in KEYS if name.endswith(f".{key}")]
    if not names and (ours := alias(key)):  # another program's name for it
        return Message("did you mean ", ours, "?")
    return f"did you mean {' or '.join(names)}?" if names else ""


SWITCHES = dict.fromkeys(("true", "yes", "on"), "on") | dict.fromkeys(("false", "no", "off"), "off")  # as in YAML


def _coerce(value: Any, hint: Any) -> Any:
    """`value`, perhaps as a person types it, as the type `hint`. A bool is no number. Raises ValueError."""
    is_text = isinstance(value, str)
    if typing.get_origin(hint) is Annotated:
        found, allowed = _coerce(value, hint.__origin__), hint.__metadata__[0]
        if not allowed.least <= found <= allowed.most:
            raise ValueError(allowed.words)
        return found
    if typing.get_origin(hint) is Literal:
        for one in (value, SWITCHES.get(str(value).lower())):
            if one in typing.get_args(hint):
                return one
        raise ValueError(f"one of {', '.join(typing.get_args(hint))}")
    if typing.get_origin(hint) is tuple:
        parts, items = typing.get_args(hint), value.strip("[]() ").split(",") if is_text else value
        if not isinstance(items, (list, tuple)) or len(items) != len(parts):
            raise ValueError(f"{len(parts)} numbers in a list, such as [0.9, 0.99]")
        return tuple(_coerce(item.strip() if is_text else item, part) for item, part in zip(items, parts))
    if hint is bool:
        if switch := SWITCHES.get(str(value).lower()):
            return switch == "on"
        raise ValueError("true or false")
    if hint in (int, float):
        text = str(value) if isinstance(value, (str, int, float)) and not isinstance(value, bool) else ""
        if hint is float and NUMBER.fullmatch(text) and math.isfinite(float(text)):
            return float(text)
        if hint is int and len(text) <= 30 and WHOLE_NUMBER.fullmatch(text):
            return int(text)
        if hint is int and re.fullmatch(r"[1-9][0-9]{0,2}e[0-9]{1,2}", text):  # 5e3
            return int(float(text))
        raise ValueError("a whole number" if hint is int else "a finite number")
    if is_text:
        return value
    raise ValueError("text")
