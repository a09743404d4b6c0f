"""The table of the options of train.py, and its command line: texts, options and settings. See `option_table.py`."""

import argparse
import contextlib
import itertools
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import InitVar, dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_origin, get_type_hints

from chargpt.config import DEVICES, DataConfig
from chargpt.errors import Given, Option, Problem, UserError, resuming, short
from chargpt.option_table import (
    SMALLEST,
    SWITCH,
    TEXT,
    PathLike,
    Values,
    add_options,
    check,
    check_fields,
    check_together,
    entries,
    keywords,
    number,
    option,
    text,
    typed,
)
from chargpt.parser import Parser
from chargpt.project import NO_START, command, project_root
from chargpt.settings import COMMAND_LINE, NUMBER, SECTIONS, Settings, Tree, elsewhere, typed_values

SETTING = re.compile(rf"({'|'.join(SECTIONS)})\.[a-z0-9_]+")
SHORTEST_CONTEXT = 16  # characters of the context that is chosen, at least
LONGEST_NAME = 255  # bytes, on nearly every file system
OF_A_NEW_RUN = "config start init_from vocab_from teacher overwrite"
UNITS = {"h": 60.0, "m": 1.0, "s": 1 / 60}  # in minutes


class Once(argparse.Action):
    """An option that may be given once: of two values, none is dropped in silence."""

    def __call__(self, parser: object, namespace: object, values: object, option_string: str | None = None) -> None:
        if (before := getattr(namespace, self.dest, None)) is not None:
            raise UserError(f"{option_string}: given twice, {before} and {values}; give it once")
        setattr(namespace, self.dest, values)


def _minutes(value: Any) -> float:
    """Minutes as a number, or with units: 90, 1.5h, 45min, 30s, 1h30m. Raises UserError, as for 1:30, which may be either."""
    if isinstance(value, str):
        short = re.sub("min(?![a-z])", "m", value)
        several = re.fullmatch("(?:([0-9]{1,6})h)?(?:([0-9]{1,6})m?)?", short)
        several = several or re.fullmatch("()([0-9]{1,6})m([0-9]{1,6})s?", short)
        if NUMBER.fullmatch(value):
            value = typed(value)
        elif NUMBER.fullmatch(short[:-1]) and short[-1] in UNITS:
            value = float(short[:-1]) * UNITS[short[-1]]
        elif several and value:
            value = sum(float(part) * unit for part, unit in zip(several.groups(), UNITS.values()) if part)
        else:
            raise UserError(Given("minutes", value), "use minutes as a number, or a time such as 2h, 1h30 or 30s")
    return check("minutes", value, IN_MINUTES)


def _paths(given: Any) -> tuple[str, ...]:
    """One path or several. Raises TypeError for anything else."""
    paths = [given] if isinstance(given, (str, os.PathLike)) else given
    if not isinstance(paths, (list, tuple)):
        raise TypeError
    return tuple(map(PATH.checked, paths))


IN_MINUTES, IN_EPOCHS = (number(SMALLEST, most, f"a number above 0, up to {most:,}") for most in (5_256_000, 1_000_000))
MINUTES = IN_MINUTES._replace(checked=_minutes, parse=str, takes=float | str | None)  # of ten years at most
A_NAME = "a name or a path, in quotes"
PATH = Values(A_NAME, lambda value: "" + os.fspath(value), takes=PathLike | None)
PATHS = Values(f"{A_NAME}, or a list of them", _paths, takes=PathLike | Sequence[PathLike])
RESUME = SWITCH._replace(use="True or False; the argument run says which one")
A_START = text("the name of a start, such as 'english', or 'none'", "NAME")
DEVICE = Values("auto, cpu, cuda, cuda:N or mps", lambda value: DEVICES.fullmatch(value)[0], metavar="D")  # type: ignore[index]
keyword = partial(option, keywords=("TrainKeywords",))
once, on_disk = partial(keyword, "", None, add={"action": Once}), partial(option, "run", False)


@dataclass(frozen=True, kw_only=True)
class TrainOptions:
    """What the user asked for. Those of the section "run" are about a run on disk. Raises UserError for a wrong value."""

    texts: Sequence[str] = ()
    settings: Tree = field(default_factory=dict)  # typed; what depends on several of them is not checked yet
    config: str | None = once(PATH, "FILE")(
        "settings as YAML, or the name of a preset (default: the program chooses for the text and the time)"
    )
    minutes: float | None = once(MINUTES, "M")(
        "choose the model and its training for M minutes; units are accepted, such as 2h or 30s"
    )
    epochs: float | None = once(IN_EPOCHS, excludes="minutes train.max_steps", since="each sets the length of the training")(
        "train for N passes over the text (sets train.max_steps)"
    )
    items: InitVar[str | None] = once(
        TEXT, "WHAT", keywords=(), setting="data.items", add={"action": Once, "nargs": "?", "const": "line"}
    )(
        "the text is a list of items, which are learned one by one: line (the default), paragraph, file, or the name of a "
        "column or field (the same as data.items=WHAT)"
    )
    label: InitVar[str | None] = once(TEXT, "NAMES", keywords=(), setting="data.label")(
        "with --items: the column or field that is the label of an item, or several, separated by commas; file or folder: "
        "the name of its file or folder (column:file: a column of that name); re:PATTERN: what the group of a regular "
        "expression matches in the item (the same as data.label=NAMES)"
    )
    device: InitVar[str | None] = once(DEVICE, setting="runtime.device")(
        "auto (CUDA or else the CPU), cpu, cuda, cuda:N or mps (the same as runtime.device=D)"
    )
    start: str | None = once(A_START, excludes="init_from", since="each gives the weights to begin with")(
        f"begin with this model, which knows a language ({command('starts')} lists them), or with {NO_START}"
        " (default: with the best one, if a short trial on the text shows that it pays)"
    )
    init_from: str | None = once(PATH, "RUN")("begin with the weights of another run or kept file, matched by character")
    teacher: Sequence[str] = keyword("", (), PATHS, "RUN", add={"action": "append"})(
        "learn from the predictions of another run as well as from the text; may be given several times"
    )
    vocab_from: str | None = once(PATH, "RUN")(
        "use the vocabulary of another run; a character that it does not have is an error"
    )
    run: str | None = keyword("run", None, PATH, "NAME", add={"action": Once})(
        "the run's name in checkpoints/, or a path (default: the name of the text)"
    )
    overwrite: bool = keyword("run", False)(
        "replace the run of this name, when the new one is first evaluated after step 0, or finished"
    )
    resume: bool = keyword("run", False, RESUME, excludes=OF_A_NEW_RUN, since="the run has its settings and weights already")(
        "continue a run that stopped: the newest, or --run NAME"
    )
    continue_: bool = keyword(
        "run", False, excludes="resume overwrite", since="it begins a run or continues it, whichever is due"
    )("begin the run, continue it if it has begun, or say that it is finished: a command that may be repeated")
    dry_run: bool = on_disk(excludes="resume continue_", since="it describes a new run")(
        "print the settings and the expected loss, then end; makes no run"
    )
    find_lr: bool = on_disk(
        excludes="epochs minutes resume continue_ dry_run optim.learning_rate", since="it makes short trainings of its own"
    )("train briefly at a range of learning rates and suggest one; makes no run")
    open: bool = on_disk()("open the report of the run in a browser; it follows the training")
    verbose: bool = on_disk()("print every choice before training; a run has them in details.txt")

    def __post_init__(self, *same: str | None) -> None:
        """Check the options; those that are `same` as a setting become that setting."""
        check_fields(self)
        tree, options = self.settings, {name: entry for name, entry in entries(self).items() if entry.setting}
        for (name, entry), value in zip(options.items(), same, strict=True):
            section, _, key = entry.setting.partition(".")
            if value is not None and key in tree.get(section, {}):
                what = f": given together with {entry.setting}, which is the same setting; leave one out"
                raise UserError(Option(name), what)
            if value is not None:
                tree = {**tree, section: {**tree.get(section, {}), key: check(name, value, entry.values)}}
        object.__setattr__(self, "settings", typed_values(tree, where=COMMAND_LINE))
        typed = {entry.setting: name for (name, entry), value in zip(options.items(), same) if value is not None}
        object.__setattr__(self, "_typed", typed)  # settings, by the options that were given in their place

    @property
    def name(self) -> str:
        """The name of the run, or its path."""
        from chargpt.text.sources import run_name  # nothing else here needs numpy

        return run_name(self.texts) if self.run is None else self.run

    @contextlib.contextmanager
    def spelling(self) -> Iterator[None]:
        """Inside, a Problem names a setting as the user has: `--label`, or `data.label`."""
        try:
            yield
        except Problem as error:
            error.respell(self._typed)  # type: ignore[attr-defined]
            raise

    def gives(self, name: str) -> bool:
        """Whether the user has given this option, or has set this section.key."""
        section, dot, key = name.partition(".")
        return key in self.settings.get(section, {}) if dot else bool(getattr(self, name))

    def given_among(self, keys: Iterable[str]) -> Tree:
        """Those of the settings that are among these section.key."""
        given = [key.split(".") for key in keys if self.gives(key)]
        return {section: {key: self.settings[section][key] for at, key in given if at == section} for section, _ in given}


if TYPE_CHECKING:
    from chargpt.arguments import TrainKeywords
else:
    TrainKeywords = keywords("TrainKeywords", TrainOptions)


def settings_in(words: Iterable[str]) -> Tree:
    """The settings that `section.key=value` words set, see `tree_of`. Raises UserError."""
    pairs = [(key.strip(), value) for key, _, value in (word.partition("=") for word in words)]
    return tree_of((key, value if key == "data.separator" else value.strip()) for key, value in pairs)  # it may be spaces


def tree_of(pairs: Iterable[tuple[str, object]]) -> Tree:
    """The values of these section.key, the later ones winning, each with its type. Raises UserError."""
    tree: dict[str, dict[str, object]] = {}
    for key, value in pairs:
        section, _, name = key.partition(".")
        if not (section and name):
            example = "write section.key=value, for example train.max_steps=500"
            raise UserError(f"{key}={value}: not a setting; ", elsewhere(key) or example)
        tree.setdefault(section, {})[name] = value
    return typed_values(tree, where=COMMAND_LINE)


def parse_options(argv: Sequence[str] | TrainOptions | None) -> TrainOptions:
    """The options of train.py in `argv` (None: those of the process), or those that are given. Raises UserError."""
    if isinstance(argv, TrainOptions):
        return argv
    return _options(_given_in(argv))


def _given_in(argv: Sequence[str] | None) -> dict[str, Any]:
    """The words of train.py and the values of its options."""
    description = "Train a character-level GPT on a text: yours, or without TEXT the language reference that comes with Python."
    return vars(_parser("train", description, "", "run").parse_intermixed_args(argv))


def parse_sweep(argv: Sequence[str] | TrainOptions | None) -> list[TrainOptions]:
    """The options of each run that `argv` asks for: one for each choice of train.seed=1,2,3 and the like. Raises UserError."""
    if isinstance(argv, TrainOptions):
        return [argv]
    given = _given_in(argv)
    choices, found = [*map(_choices, given.pop("words"))], list[TrainOptions]()
    keys = [several[0].partition("=")[0] for several in choices]
    if twice := [key for key, several in zip(keys, choices) if len(several) > 1 and keys.count(key) > 1]:
        raise UserError(COMMAND_LINE, f": {twice[0]}: given twice; give it once")
    for words in itertools.product(*choices):
        options = _options({**given, "words": [*words]})
        if all(len(several) == 1 for several in choices):
            return [options]
        if "-" in options.texts:
            raise UserError("-: these are several runs, and standard input can be read once; give the name of a file")
        if name := next(filter(options.gives, ("resume", "find_lr", "open")), ""):
            what = ": settings with several values are several runs, which the same command continues; leave out "
            raise UserError(Option(name), what, Option(name))
        differs = [word.partition("=") for word, several in zip(words, choices) if len(several) > 1]
        name = "-".join([options.name, *(f"{key.rpartition('.')[2]}-{value}" for key, _, value in differs)])
        same = {"run": name, "continue_": not (options.overwrite or options.dry_run)}
        found.append(_options({**given, "words": [*words], **same}))
    if len({options.run for options in found}) < len(found):
        raise UserError(COMMAND_LINE, ": a value is given twice; give each once")
    return found


def _choices(word: str) -> list[str]:
    """The words for which a word of the command line stands: several for a setting with several values where it takes one."""
    key, _, value = word.partition("=")
    section, _, name = key.strip().partition(".")
    kind = get_type_hints(SECTIONS[section]).get(name) if section in SECTIONS and is_setting(word) else None
    takes_one = kind in (int, float, bool) or get_origin(kind) is Literal
    return [f"{key.strip()}={one.strip()}" for one in value.split(",")] if takes_one else [word]


def parse_text_options(argv: Sequence[str]) -> tuple[TrainOptions, Path | None]:
    """The options of `python -m chargpt text`, and where to write the clean text. Raises UserError."""
    parser = _parser("text", "Describe a text, and what to expect of a model trained on it.", "")
    clean = "only write the text into a new file, without page breaks, words divided by a line end, and ligatures"
    parser.add_argument("--clean", type=Path, metavar="OUT", help=clean)
    words = vars(parser.parse_intermixed_args(argv))
    path = words.pop("clean")
    return _options({**words, "dry_run": True, "verbose": True}), path


def _parser(verb: str, description: str, *sections: str) -> Parser:
    """The parser of a verb that has these sections of the table."""
    program = command(verb)
    usage = f"{program} [TEXT ...] [--minutes M] [option ...] [section.key=value ...]"
    parser = Parser(prog=program, usage=usage, description=description)
    texts = """a file, several files, a folder, - for standard input, or a named corpus: python-docs (the default),
    python-source, shakespeare; and settings as section.key=value"""
    parser.add_argument("words", nargs="*", metavar="TEXT", help=texts)
    add_options(parser, entries(TrainOptions), sections=dict.fromkeys(sections, ""))
    return parser


def _options(given: dict[str, Any]) -> TrainOptions:
    """The options that a parser of `_parser` has found. Raises UserError."""
    words, items = given.pop("words"), given.get("items")
    if is_setting(items or ""):  # --items train.seed=1
        words, given["items"] = [*words, items], "line"
    texts, settings = texts_and_settings(words)
    if not texts and items is not None and os.path.exists(items):  # --items names.txt
        texts, given["items"] = [items], "line"
    options = TrainOptions(texts=texts, settings=settings, **given)
    check_options(options)
    return options


def by_fields(settings: Settings, typed: Tree) -> Settings:
    """With data.format=fields, unless another one is set, if a field is typed, or a file has another one than the default."""
    data = settings.values.data
    if data.format != "auto" or not ("field" in typed.get("data", {}) or data.field != DataConfig.field or data.author):
        return settings
    return settings.choose("a field is given", data={"format": "fields"})


def is_setting(word: str) -> bool:
    """Whether a word of the command line is section.key=value, not a text."""
    return "=" in word and not os.path.exists(word)


def texts_and_settings(words: Sequence[str]) -> tuple[list[str], Tree]:
    """The texts among the words of a command line, and the settings. Raises UserError."""
    return [word for word in words if not is_setting(word)], settings_in(filter(is_setting, words))


def is_one_of_several() -> bool:
    """Whether torchrun has started this process with others."""
    return os.environ.get("WORLD_SIZE") not in (None, "", "1")


def check_options(options: TrainOptions) -> None:
    """Raise UserError for options that contradict each other."""
    if "" in options.texts:
        raise UserError(Option("text"), ": a file name is empty (from an empty shell variable?); give the name of a text file")
    for path in [*options.texts, str(options.settings.get("data", {}).get("val_text", ""))]:
        is_long = len(max(re.split(r"[/\\]", path), key=len).encode(errors="replace")) > LONGEST_NAME
        if ("\n" in path or is_long) and not os.path.exists(path):
            raise UserError(f"{short(path)}: this is a text, not a path; write it to a file, and give the name of the file")
        if SETTING.fullmatch(path) and not os.path.exists(path):
            raise UserError(f"{path}: a setting without a value; write {path}=VALUE")
    if len({os.path.abspath(text) for text in options.texts}) < len(options.texts):
        what = ": the same text given twice, so that its validation split would be trained on; give it once"
        raise UserError(Option("text"), what)
    check_together(entries(options), lambda name: Option(name) if options.gives(name) else None)
    if options.find_lr and is_one_of_several():
        raise UserError(f"--find-lr: works in one process; run {command('train')} --find-lr without torchrun")
    if options.resume and len(options.texts) == 1 and (project_root() / "checkpoints" / options.texts[0]).is_dir():
        about = f": {options.texts[0]} is a run, not a "
        raise UserError(Option("resume", True), about, Option("text"), "; write ", resuming(options.texts[0]))
