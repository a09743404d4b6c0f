"""Writes docs/reference/settings.md from chargpt/config.py, and docs/reference/verbs.md from the --help of each command.

    python tests/reference_pages.py

It also writes the table of the sampling rules in docs/sampling.md.

tests/test_docs.py fails if a page is not what this program would write.
"""

import contextlib
import io
import os
import re
import sys
import typing
from dataclasses import fields
from pathlib import Path
from unittest import mock

ROOT = Path(__file__).resolve().parents[1]
if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))

from chargpt.__main__ import main  # noqa: E402
from chargpt.commands.verbs import VERBS  # noqa: E402
from chargpt.config import Config, to_dict  # noqa: E402
from chargpt.project import command  # noqa: E402
from chargpt.sampling.options import SamplingOptions  # noqa: E402

SETTINGS_PAGE, VERBS_PAGE = (ROOT / "docs" / "reference" / name for name in ("settings.md", "verbs.md"))
SAMPLING_PAGE, OF_RULES = ROOT / "docs" / "sampling.md", "\n## How the next character is chosen\n"
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


def sampling_page() -> str:
    """docs/sampling.md, with the help of each sampling rule in the only table below `OF_RULES`."""
    rows = ""
    for name, beside in ((one.name, one.metadata) for one in fields(SamplingOptions)):
        if beside["group"] == "rules":
            option = f"--{name.replace('_', '-')} {beside['add'].get('metavar', '')}".strip()
            rows += f"| `{option}` | {escaped(beside['add']['help'])} |\n"
    before, heading, after = SAMPLING_PAGE.read_text(encoding="utf-8").partition(OF_RULES)
    return before + heading + re.sub(r"(?<=\|---\|---\|\n)(\|.*\n)+", lambda _: rows, after, count=1)


if __name__ == "__main__":
    SAMPLING_PAGE.write_text(sampling_page(), encoding="utf-8")
    SETTINGS_PAGE.write_text(settings_page(), encoding="utf-8")
    VERBS_PAGE.write_text(verbs_page(), encoding="utf-8")
