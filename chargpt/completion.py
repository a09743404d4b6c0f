"""Completion in a shell: verbs, options, names of settings and of runs, by the package argcomplete.

While a line is typed, the shell runs the command without arguments; the line is in variables that only argcomplete sets.
"""

import argparse
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from chargpt.project import project_root
from chargpt.terminal import Parser

ASKED = "_ARGCOMPLETE"  # how many words before the first option belong to the command


def is_asked() -> bool:
    """Whether the shell asks what may follow, in place of running the command."""
    return ASKED in os.environ


def typed_verb() -> str:
    """The word after the command, once it is complete; otherwise an empty text. What follows belongs to it."""
    words = os.environ["COMP_LINE"][: int(os.environ["COMP_POINT"])].split(" ")
    if len(words) < 3:
        return ""
    os.environ[ASKED] = "2"
    Parser.completing = complete  # type: ignore[assignment]  # a method
    return words[1]


def complete_verb(verbs: Sequence[str]) -> None:
    """Tell the shell which verbs fit, and end the process."""
    parser = argparse.ArgumentParser()
    parser.add_argument("verb", choices=verbs)
    complete(parser)


def complete(parser: argparse.ArgumentParser) -> None:
    """Tell the shell what may follow for `parser`, and end the process."""
    import argcomplete

    for action in parser._actions:
        known: Any = action  # argcomplete looks for this attribute
        if action.dest in ("run", "runs", "init_from", "vocab_from", "compare"):
            known.completer = _runs
        elif action.dest == "words":
            known.completer = _texts_and_settings
    argcomplete.autocomplete(parser)


def _runs(prefix: str, **_: object) -> list[str]:
    """The runs in checkpoints/."""
    folder = project_root() / "checkpoints"
    return [path.name for path in folder.iterdir() if path.is_dir()] if folder.is_dir() else []


def _texts_and_settings(prefix: str, **_: object) -> list[str]:
    """The files that begin with `prefix`, and the settings, each with its equals sign."""
    from chargpt.config import Config, to_dict

    settings = [f"{section}.{key}=" for section, keys in to_dict(Config()).items() for key in keys]
    path = Path(prefix)
    folder = path if prefix.endswith(("/", os.sep)) else path.parent
    files = [str(found) + ("/" if found.is_dir() else "") for found in folder.glob("*")] if folder.is_dir() else []
    return settings + files
