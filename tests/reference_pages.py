"""Writes docs/reference/settings.md from chargpt/config.py, and docs/reference/verbs.md from the --help of each command.

    python tests/reference_pages.py

From the tables of options, it also writes that of the sampling rules in docs/sampling.md, that of the arguments of
`chargpt.train` in docs/reference/python.md, and what type checkers know of all keywords, chargpt/arguments.pyi.

tests/test_docs.py fails if one of these is not what this program would write.
"""

import contextlib
import inspect
import io
import os
import re
import sys
import typing
from collections.abc import Iterable
from pathlib import Path
from unittest import mock

ROOT = Path(__file__).resolve().parents[1]
if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))

from chargpt.__main__ import main  # noqa: E402
from chargpt.commands.verbs import VERBS  # noqa: E402
from chargpt.config import Config  # noqa: E402
from chargpt.errors import flag  # noqa: E402
from chargpt.option_table import Entry, entries  # noqa: E402
from chargpt.planning.cli import TrainKeywords, TrainOptions  # noqa: E402
from chargpt.project import command  # noqa: E402
from chargpt.sampling.options import ItemKeywords, SamplingOptions, TextKeywords  # noqa: E402
from chargpt.settings import to_dict  # noqa: E402

SETTINGS_PAGE, VERBS_PAGE, PYTHON_PAGE = (
    ROOT / "docs" / "reference" / f"{name}.md" for name in ("settings", "verbs", "python")
)
SAMPLING_PAGE, OF_RULES = ROOT / "docs" / "sampling.md", "\n## How the next character is chosen\n"
STUB, OF_TRAIN = ROOT / "chargpt" / "arguments.pyi", "\n## Training\n"
# characters in a line of help
HELP_WIDTH = "100"
# what may be given for a field of each type
TYPES: dict[object, str] = {bool: "`true`, `false`", int: "whole number", float: "number", str: "text"}
SETTINGS_HEAD = """\
# Settings

`python tests/reference_pages.py` writes this page from `chargpt/config.py` and `model.py`.

A setting is given on the command line as `section.key=value`, or in a YAML file for `--config`:

```bash
python train.py poems.txt --config my.yaml train.max_steps=500 model.positions=rotary optim.betas=0.9,0.95
```

```yaml
model:
  positions: rotary
optim:
  betas: [0.9, 0.95]
train:
  max_steps: 500
```

The YAML file overrides the defaults on this page, and the command line overrides both. With `--minutes`, or without
a length, the program chooses many of these settings itself ([minutes.md](../minutes.md)); it keeps the ones that you give.
The run saves all settings in its `config.yaml`.

Numbers are decimal: `1000` or `1_000`, `0.001` or `1e-3`. A wrong key, type or value gives a one-line error that names
the key, what is allowed, and the nearest correct key.
"""
VERBS_HEAD = """\
# Commands

`python tests/reference_pages.py` writes this page from the `--help` of each command.
[training.md](../training.md), [sampling.md](../sampling.md), [insight.md](../insight.md) and
[export.md](../export.md) explain the commands with examples.
"""

# The arguments of chargpt.train that are no options.
ARGUMENTS = (
    "| `text` | TEXT: a path, several paths, or the name of a corpus; not with `resume=True` |",
    '| `settings={"train.max_steps": 500, "optim.betas": (0.9, 0.95)}` | `train.max_steps=500 optim.betas=0.9,0.95` |',
    '| `show` | what is shown: `"bar"`, the default, is what `train.py` prints, with a bar in a terminal or a notebook; '
    '`"log"` gives the same lines to `logging.getLogger("chargpt")`; `"nothing"` |',
)
STUB_HEAD = """\
# What functions of the library take as **options. `python tests/reference_pages.py` writes this file.
import os
import re
from collections.abc import Sequence
from typing import Literal, TypedDict"""


def settings_page() -> str:
    """The settings as Markdown: a table for each section."""
    defaults, classes = to_dict(Config()), typing.get_type_hints(Config)
    lines = [SETTINGS_HEAD]
    for section, keys in defaults.items():
        meanings, hints = comments_of(classes[section]), typing.get_type_hints(classes[section])
        lines += [f"## {section}", "", first_line(classes[section]), ""]
        lines += ["| key | values | default | meaning |", "|---|---|---|---|"]
        for key, default in keys.items():
            lines.append(f"| `{section}.{key}` | {values_of(hints[key])} | {shown(default)} | {meanings[key]} |")
        lines.append("")
    return "\n".join(lines)


def comments_of(section: type) -> dict[str, str]:
    """The comment above or beside each field of a dataclass, as one line. A field without one is a KeyError for the reader."""
    source = Path(sys.modules[section.__module__].__file__ or "").read_text(encoding="utf-8")
    body = source.partition(f"class {section.__name__}(Section):")[2].partition("\n@dataclass")[0]
    meanings, comment = {}, ""
    for line in body.splitlines():
        if found := re.match(r"    # (.+)", line):
            comment += f" {found[1]}"
        elif found := re.match(r"    (\w+): .+? = .+?(?:  #( .+))?$", line):
            meanings[found[1]], comment = (comment + (found[2] or "")).strip().replace("|", r"\|"), ""
    return {key: escaped(meaning) for key, meaning in meanings.items() if meaning}


def escaped(meaning: str) -> str:
    r"""A comment with its settings, options and escapes such as \n as code."""
    return re.sub(r"(\\r\\n|\\[nr]|--[a-z-]+|\bdata[./](?:field|cache)\b|\bblock_size\b|\bn_(?:embd|head)\b)", r"`\1`", meaning)


def first_line(section: type) -> str:
    return (section.__doc__ or "").partition("\n")[0].partition(" Raises ValueError")[0]


def values_of(hint: object) -> str:
    """What may be given for a field of this type."""
    if typing.get_origin(hint) is typing.Literal:
        return ", ".join(f"`{value}`" for value in typing.get_args(hint))
    if typing.get_origin(hint) is tuple:
        return f"{len(typing.get_args(hint))} numbers"
    return TYPES[hint]


def shown(default: object) -> str:
    text = str(default).lower() if isinstance(default, bool) else repr(default).strip("'")
    return f"`{text}`" if text else "empty"


def verbs_page() -> str:
    """The help of each verb."""
    parts = [VERBS_HEAD]
    with mock.patch.dict(os.environ, {"COLUMNS": HELP_WIDTH}):
        parts += [section_of(command(verb), help_of(verb)) for verb in VERBS]
    return "\n".join(parts)


def help_of(verb: str) -> str:
    output = io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.suppress(SystemExit):
        main([verb, "--help"])
    return output.getvalue()


def section_of(name: str, help_text: str) -> str:
    return f"## {name}\n\n```text\n{help_text.strip()}\n```\n"


def typed(name: str, entry: Entry) -> str:
    """An option as it is typed, with what follows it."""
    return f"{flag(name)} {entry.metavar}".strip()


def with_rows(page: Path, heading: str, rows: Iterable[str]) -> str:
    """A page with these rows in the first table below a heading."""
    before, found, after = page.read_text(encoding="utf-8").partition(heading)
    lines = "".join(f"{row}\n" for row in rows)
    return before + found + re.sub(r"(?<=\|---\|---\|\n)(\|.*\n)+", lambda _: lines, after, count=1)


def sampling_page() -> str:
    """docs/sampling.md, with the help of each sampling rule."""
    rules = {name: entry for name, entry in entries(SamplingOptions).items() if entry.section == "rules"}
    return with_rows(SAMPLING_PAGE, OF_RULES, (f"| `{typed(*rule)}` | {escaped(rule[1].help)} |" for rule in rules.items()))


def python_page() -> str:
    """docs/reference/python.md, with the help of each argument of `chargpt.train`."""
    table = {name: entry for name, entry in entries(TrainOptions).items() if name in TrainKeywords.__annotations__}
    rows = (f"| `{name}` | `{typed(name, entry)}`: {escaped(entry.help)} |" for name, entry in table.items())
    return with_rows(PYTHON_PAGE, OF_TRAIN, [*ARGUMENTS, *rows])


def arguments_stub() -> str:
    """chargpt/arguments.pyi: the keywords of the library, for type checkers and editors."""
    lines = [STUB_HEAD]
    for record in (TrainKeywords, TextKeywords, ItemKeywords):
        lines += ["", f"class {record.__name__}(TypedDict, total=False):"]
        lines += [f"    {name}: {shown_type(hint)}" for name, hint in record.__annotations__.items()]
    return "\n".join([*lines, ""])


def shown_type(hint: object) -> str:
    return inspect.formatannotation(hint).replace("collections.abc.", "").replace("'", '"')


# What each file has.
WRITTEN = {
    SETTINGS_PAGE: settings_page,
    VERBS_PAGE: verbs_page,
    SAMPLING_PAGE: sampling_page,
    PYTHON_PAGE: python_page,
    STUB: arguments_stub,
}

if __name__ == "__main__":
    for path, content in WRITTEN.items():
        path.write_text(content(), encoding="utf-8")
