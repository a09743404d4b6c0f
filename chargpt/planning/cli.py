"""The command line of train.py. Nothing here imports torch, so that --help and a mistyped option are answered at once."""

import argparse
import dataclasses
import functools
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from chargpt.config import COMMAND_LINE, Config, DataConfig, Settings, Tree, elsewhere, typed_values
from chargpt.errors import Given, Option, UserError, join, resuming, short
from chargpt.project import command, project_root
from chargpt.terminal import NUMBER, Parser, number

SECTIONS = [section.name for section in dataclasses.fields(Config)]
SETTING = re.compile(rf"({'|'.join(SECTIONS)})\.[a-z0-9_]+")
SAME_SETTINGS = {"device": ("runtime", "device"), "items": ("data", "items"), "label": ("data", "label")}  # by option
MAX_MINUTES, MAX_EPOCHS = 5_256_000, 1_000_000  # minutes: ten years
# Options that leave no room for others, and why.
EXCLUDE = {
    "epochs": ("each sets the length of the training", ("minutes", "train.max_steps")),
    "find_lr": ("it makes short trainings of its own", ("epochs", "minutes", "resume", "dry_run", "optim.learning_rate")),
    "dry_run": ("it describes a new run", ("resume",)),
    "start": ("each gives the weights to begin with", ("init_from",)),
    "resume": (
        "the run has its settings and weights already",
        ("config", "start", "init_from", "vocab_from", "teacher", "overwrite"),
    ),
}
NO_START = "none"  # in place of the name of a start: initial weights
SHORTEST_CONTEXT = 16  # characters of the context that is chosen, at least
LONGEST_NAME = 255  # bytes, on nearly every file system
UNITS = {"h": 60.0, "m": 1.0, "s": 1 / 60}  # in minutes


@dataclass(frozen=True, kw_only=True)
class TrainOptions:
    """What the user asked for."""

    texts: list[str] = field(default_factory=list)
    settings: Tree = field(default_factory=dict)  # typed; what depends on several of them is not checked yet
    config: str | None = None
    run: str | None = None
    resume: bool = False
    minutes: float | None = None
    epochs: float | None = None
    start: str | None = None
    init_from: str | None = None
    vocab_from: str | None = None
    teacher: list[str] = field(default_factory=list)
    find_lr: bool = False
    dry_run: bool = False
    verbose: bool = False
    open: bool = False
    overwrite: bool = False

    def gives(self, name: str) -> bool:
        """Whether the user has given this option, or has set this section.key."""
        section, dot, key = name.partition(".")
        return key in self.settings.get(section, {}) if dot else bool(getattr(self, name))


def options_of(record: Mapping[str, Any]) -> TrainOptions:
    """The options in a record of plain types, as JSON has them. Raises UserError."""
    return TrainOptions(**{**record, "settings": typed_values(record["settings"], where=COMMAND_LINE)})


def settings_in(words: Iterable[str]) -> Tree:
    """The settings that `section.key=value` words set, see `tree_of`. Raises UserError."""
    pairs = []
    for word in words:
        key, _, value = word.partition("=")
        is_separator = key.strip() == "data.separator"  # it may be spaces
        pairs.append((key.strip(), value if is_separator else value.strip()))
    return tree_of(pairs)


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
    description = "Train a character-level GPT on a text: yours, or without TEXT the language reference that comes with Python."
    parser = _parser(command("train"), description)
    name = "the run's name in checkpoints/, or a path (default: the name of the text)"
    parser.add_argument("--run", action=_Once, metavar="NAME", help=name)
    for option, what in {
        "--overwrite": "replace the run of this name, when the new one is first evaluated after step 0, or finished",
        "--resume": "continue a run that stopped: the newest, or --run NAME",
        "--dry-run": "print the settings and the expected loss, then end; makes no run",
        "--find-lr": "train briefly at a range of learning rates and suggest one; makes no run",
        "--open": "open the report of the run in a browser; it follows the training",
        "--verbose": "print every choice before training; a run has them in details.txt",
    }.items():
        parser.add_argument(option, action="store_true", help=what)
    return _options(vars(parser.parse_intermixed_args(argv)))


def parse_text_options(argv: Sequence[str]) -> tuple[TrainOptions, Path | None]:
    """The options of `python -m chargpt text`: those of train.py that are not about a run on disk, and where to write the
    clean text. Raises UserError."""
    parser = _parser(command("text"), "Describe a text, and what to expect of a model trained on it.")
    clean = "only write the text into a new file, without page breaks, words divided by a line end, and ligatures"
    parser.add_argument("--clean", type=Path, metavar="OUT", help=clean)
    words = vars(parser.parse_intermixed_args(argv))
    path = words.pop("clean")
    return dataclasses.replace(_options(words), dry_run=True, verbose=True), path


def _parser(program: str, description: str) -> Parser:
    """A parser with the options that both commands have."""
    usage = f"{program} [TEXT ...] [--minutes M] [option ...] [section.key=value ...]"
    parser = Parser(prog=program, usage=usage, description=description)
    texts = "a file, several files, a folder, - for standard input, or a named corpus: python-docs (the default), "
    texts += "python-source, shakespeare; and settings as section.key=value"
    parser.add_argument("words", nargs="*", metavar="TEXT", help=texts)
    once = functools.partial(parser.add_argument, action=_Once)
    preset = "settings as YAML, or the name of a preset (default: the program chooses for the text and the time)"
    once("--config", metavar="FILE", help=preset)
    time = "choose the model and its training for M minutes; units are accepted, such as 2h or 30s"
    once("--minutes", type=minutes, metavar="M", help=time)
    once("--epochs", type=number, metavar="N", help="train for N passes over the text (sets train.max_steps)")
    items = "the text is a list of items, which are learned one by one: line (the default), paragraph, file, or the name of a "
    items += "column or field (the same as data.items=WHAT)"
    once("--items", nargs="?", const="line", metavar="WHAT", help=items)
    label = "with --items: the column or field that is the label of an item, or several, separated by commas; file or folder: "
    label += "the name of its file or folder (column:file: a column of that name); re:PATTERN: what the group of a regular "
    label += "expression matches in the item (the same as data.label=NAMES)"
    once("--label", metavar="NAMES", help=label)
    once("--device", metavar="D", help="auto (CUDA or else the CPU), cpu, cuda, cuda:N or mps (the same as runtime.device=D)")
    start = f"begin with this model, which knows a language ({command('starts')} lists them), or with {NO_START}"
    start += " (default: with the best one, if a short trial on the text shows that it pays)"
    once("--start", metavar="NAME", help=start)
    once("--init-from", metavar="RUN", help="begin with the weights of another run or kept file, matched by character")
    teacher = "learn from the predictions of another run as well as from the text; may be given several times"
    parser.add_argument("--teacher", action="append", default=[], metavar="RUN", help=teacher)
    vocabulary = "use the vocabulary of another run; a character that it does not have is an error"
    once("--vocab-from", metavar="RUN", help=vocabulary)
    return parser


def _options(words: dict[str, Any]) -> TrainOptions:
    """The options that a parser of `_parser` has found."""
    if is_setting(words["items"] or ""):  # --items train.seed=1
        words["words"].append(words["items"])
        words["items"] = "line"
    texts, settings = texts_and_settings(words.pop("words"))
    if not texts and words["items"] is not None and os.path.exists(words["items"]):  # --items names.txt
        texts, words["items"] = [words["items"]], "line"
    same = {name: words.pop(name) for name in SAME_SETTINGS}
    tree = typed_values(with_same_settings(settings_in(settings), same), where=COMMAND_LINE)
    options = TrainOptions(texts=texts, settings=tree, **words)
    check_options(options)
    return options


def with_same_settings(tree: Tree, options: Mapping[str, object]) -> Tree:
    """`tree` with the settings that have an option too. Raises UserError for one that is given in both ways."""
    for option, (section, name) in SAME_SETTINGS.items():
        if (value := options.get(option)) is not None:
            if name in tree.get(section, {}):
                what = f": given together with {section}.{name}, which is the same setting; leave one out"
                raise UserError(Option(option), what)
            tree = {**tree, section: {**tree.get(section, {}), name: value}}
    return tree


def by_fields(settings: Settings, typed: Tree) -> Settings:
    """With data.format=fields, unless another one is set, if a field is typed, or a file has another one than the default."""
    data = settings.values.data
    if data.format != "auto" or not ("field" in typed.get("data", {}) or data.field != DataConfig.field):
        return settings
    return settings.choose("a field is given", data={"format": "fields"})


class _Once(argparse.Action):
    """An option that may be given once: of two values, none is dropped in silence."""

    def __call__(self, parser: object, namespace: object, values: object, option_string: str | None = None) -> None:
        if (before := getattr(namespace, self.dest)) is not None:
            raise UserError(f"{option_string}: given twice, {before} and {values}; give it once")
        setattr(namespace, self.dest, values)


def is_setting(word: str) -> bool:
    """Whether a word of the command line is section.key=value, not a text."""
    return "=" in word and not os.path.exists(word)


def texts_and_settings(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """The texts among the words of a command line, and the settings."""
    return [word for word in words if not is_setting(word)], [word for word in words if is_setting(word)]


def minutes(text: str) -> float:
    """An argparse type: minutes as a number, or with units: 90, 1.5h, 45min, 30s, 1h30m. 1:30 is refused: it may be either."""
    if NUMBER.fullmatch(text) or text.lstrip("+-") in ("inf", "nan"):
        return number(text)
    short = re.sub("min(?![a-z])", "m", text)
    if NUMBER.fullmatch(short[:-1]) and short[-1] in UNITS:
        return float(short[:-1]) * UNITS[short[-1]]
    found = re.fullmatch("(?:([0-9]{1,6})h)?(?:([0-9]{1,6})m?)?", short) or re.fullmatch("()([0-9]{1,6})m([0-9]{1,6})s?", short)
    if not found or not text:
        what_to_do = "use minutes as a number, or a time such as 2h, 1h30 or 30s"
        raise argparse.ArgumentTypeError(f"{text!r} given; {what_to_do}")
    return sum(float(part) * unit for part, unit in zip(found.groups(), UNITS.values()) if part)


def is_one_of_several() -> bool:
    """Whether torchrun has started this process with others."""
    return os.environ.get("WORLD_SIZE") not in (None, "", "1")


def check_options(options: TrainOptions) -> None:
    """Raise UserError for options that contradict each other."""
    if "" in options.texts:
        raise UserError(Option("text"), ": a file name is empty (from an empty shell variable?); give the name of a text file")
    for text in [*options.texts, str(options.settings.get("data", {}).get("val_text", ""))]:
        is_long = len(max(re.split(r"[/\\]", text), key=len).encode(errors="replace")) > LONGEST_NAME
        if ("\n" in text or is_long) and not os.path.exists(text):
            raise UserError(f"{short(text)}: this is a text, not a path; write it to a file, and give the name of the file")
        if SETTING.fullmatch(text) and not os.path.exists(text):
            raise UserError(f"{text}: a setting without a value; write {text}=VALUE")
    if len({os.path.abspath(text) for text in options.texts}) < len(options.texts):
        what = ": the same text given twice, so that its validation split would be trained on; give it once"
        raise UserError(Option("text"), what)
    for name, length, most in (("minutes", options.minutes, MAX_MINUTES), ("epochs", options.epochs, MAX_EPOCHS)):
        if length is not None and not 0 < length <= most:
            raise UserError(Given(name, length), f"use a number above 0, up to {most:,}")
    for name, (why, others) in EXCLUDE.items():
        if options.gives(name) and (given := [Option(other) for other in others if options.gives(other)]):
            also = join(", ", given)
            raise UserError(Option(name), ": cannot be used with ", also, f", since {why}; leave out ", also)
    if options.find_lr and is_one_of_several():
        raise UserError(f"--find-lr: works in one process; run {command('train')} --find-lr without torchrun")
    if options.resume and len(options.texts) == 1 and (project_root() / "checkpoints" / options.texts[0]).is_dir():
        about = f": {options.texts[0]} is a run, not a "
        raise UserError(Option("resume", True), about, Option("text"), "; write ", resuming(options.texts[0]))
