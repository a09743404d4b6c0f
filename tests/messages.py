"""Prints every message of the program as a table, so that all can be read as a set: python tests/messages.py > messages.tsv

A row is a place, a kind, and the message. The kind is error, reason (an error inside another one), notice, help, or text for
any other string. The pieces of a message stand together, also those that have names in its function; where one of two texts is
shown, there is a row for each. Other expressions are in braces. Docstrings, assertions and texts of fewer than five words are
left out.

`--sample N --seed S` prints N random errors and notices alone, for a reader who knows nothing of the program.
"""

import argparse
import ast
import random
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
FEWEST_WORDS = 5
NOTICES = {"notice": 1, "Notice": 1, "log": 0}  # the argument that is the text
PROGRAMS = {"train": "python train.py", "sample": "python sample.py", "": ""}
OPTIONS = {"text": "TEXT", "settings": "command line"}
PIECES = ("Option", "Given", "Command", "command", "resuming", "Message", "plural")
# Errors whose message a person reads as it is.
SHOWN = ("UserError", "CheckpointError", "DamagedError", "NoSuchRun", "RunExists", "TextTooShort", "Damaged")
SHOWN += ("Failed", "NotWritten", "NoSpace", "NoMemory", "NotFinite", "Stopped")


def assignments(function: ast.AST) -> list[ast.Assign]:
    """The assignments in a function."""
    return [node for node in ast.walk(function) if isinstance(node, ast.Assign)]


def called(node: ast.AST) -> str:
    """What the texts of a name, or of a call of a function, are kept under; empty for other expressions."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        return f"{node.func.id}()"
    return node.id if isinstance(node, ast.Name) else ""


def placeholder(node: ast.AST) -> str:
    """A short name for the value of an expression."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and len(node.args) > 0:
        return "count" if node.func.id == "len" else placeholder(node.args[0])
    name = node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else "..."
    return name.strip("_").replace("_", " ")


class Reader:
    """Reads the texts of a function of a module. `first` chooses the first of two alternatives, or the second."""

    def __init__(self, function: ast.AST, module: ast.Module, *, first: bool) -> None:
        self.first = first
        self.read: set[ast.AST] = set()  # every node that is a part of a text
        self._names: dict[str, ast.expr] = {}  # what is assigned once, and what a short function returns
        for node in module.body:
            if isinstance(node, ast.FunctionDef) and isinstance(node.body[-1], ast.Return) and len(node.body) < 4:
                self._names[f"{node.name}()"] = node.body[-1].value or ast.Constant(None)
        for assigned in ([node for node in module.body if isinstance(node, ast.Assign)], assignments(function)):
            names = [ast.unparse(target) for node in assigned for target in node.targets]
            self._names |= {name: node.value for node in assigned if names.count(name := ast.unparse(node.targets[0])) == 1}

    def text(self, node: ast.AST) -> str | None:
        """The text of an expression; None if it is not text."""
        self.read.add(node)
        if isinstance(node, ast.Constant):
            return node.value if isinstance(node.value, str) else None
        if isinstance(node, ast.JoinedStr):
            return "".join(self.shown(part.value if isinstance(part, ast.FormattedValue) else part) for part in node.values)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            left, right = self.text(node.left), self.text(node.right)
            return None if left is None or right is None else left + right
        if isinstance(node, ast.IfExp):
            return self.text(node.body if self.first else node.orelse)
        if (name := called(node)) in self._names:
            value = self._names.pop(name)  # while it is read, so that a name in its own value is no endless loop
            found = self.text(value)
            self._names[name] = value
            return found
        return self._call(node) if isinstance(node, ast.Call) else None

    def shown(self, node: ast.AST) -> str:
        """The text of an expression, or its name in braces."""
        text = self.text(node)
        return "{" + placeholder(node) + "}" if text is None else text

    def _call(self, node: ast.Call) -> str | None:
        """What a message, an option or a command says; None for any other call."""
        name = ast.unparse(node.func).rpartition(".")[2]
        if name not in (*PIECES, *SHOWN) and not name.endswith("Error"):
            return None
        words = [word for argument in node.args for word in self._spread(argument)] or [""]
        option = words[0] if "." in words[0] else OPTIONS.get(words[0], f"--{words[0].replace('_', '-')}")
        if name == "Option":
            return ("=" if "." in option else " ").join([option, *[word for word in words[1:] if word != "{True}"]])
        if name == "Given":
            return f"{option}: {words[1]} given{words[2] if len(words) > 2 else '; '}"
        if name in ("Command", "command"):
            return " ".join([PROGRAMS.get(words[0], f"python -m chargpt {words[0]}"), *words[1:]]).strip()
        if name == "plural":
            return f"{words[0]} {words[1]}s"
        return f"--resume --run {words[0]}" if name == "resuming" else "".join(words)

    def _spread(self, node: ast.expr) -> list[str]:
        """The texts of an argument, which may be *(several)."""
        if not isinstance(node, ast.Starred):
            return [self.shown(node)]
        value = node.value
        value = self._names.get(called(value), value)
        if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Mult):  # *[one] * is_shown
            value = value.left if self.first else ast.Tuple([])
        return (
            [word for one in value.elts for word in self._spread(one)] if isinstance(value, ast.Tuple | ast.List) else ["{...}"]
        )


def said(function: ast.AST) -> Iterator[tuple[str, int, ast.expr]]:
    """The kind, the line and the text of each error, notice and help in a function."""
    for call in ast.walk(function):
        if isinstance(call, ast.Call):
            name = ast.unparse(call.func).rpartition(".")[2]
            if (name in SHOWN or name.endswith("Error")) and call.args:
                yield "error" if name in SHOWN else "reason", call.lineno, call
            elif len(call.args) > NOTICES.get(name, 9):
                label = call.args[: NOTICES[name]] + [ast.Constant(": ")] * NOTICES[name]
                yield "notice", call.lineno, ast.Call(ast.Name("Message"), [*label, call.args[NOTICES[name]]], [])
            yield from (("help", call.lineno, word.value) for word in call.keywords if word.arg in ("help", "description"))
            if isinstance(call.func, ast.Call) and len(call.args) == 1:  # of an option in a table
                yield "help", call.lineno, call.args[0]


def messages(path: Path) -> Iterator[tuple[int, str, str]]:
    """The line, the kind and the text of each message of a file."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    read: set[ast.AST] = {node.value for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    read.update(part for node in ast.walk(tree) if isinstance(node, ast.Assert) for part in ast.walk(node))
    for function in [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)] + [tree]:
        if not (found := list(said(function))):
            continue
        readers = [Reader(function, tree, first=True), Reader(function, tree, first=False)]
        for kind, line, node in found:
            if node not in read:
                yield from ((line, kind, text) for text in dict.fromkeys(reader.shown(node) for reader in readers))
        read.update(*[reader.read for reader in readers])
    reader = Reader(tree, ast.Module([], []), first=True)
    for part in ast.walk(tree):
        if part not in read and (text := reader.text(part)) is not None:
            read.update(reader.read)
            yield getattr(part, "lineno", 0), "text", text


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sample", type=int, metavar="N")
    parser.add_argument("--seed", type=int, default=0, metavar="S")
    options = parser.parse_args()
    rows = [
        (f"{path.relative_to(ROOT)}:{line}", kind, re.sub(r"\n {4,}", " ", text).encode("unicode_escape").decode())
        for path in sorted([*(ROOT / "chargpt").rglob("*.py"), ROOT / "train.py", ROOT / "sample.py"])
        for line, kind, text in sorted(set(messages(path)))
        if len(text.split()) >= FEWEST_WORDS
    ]
    lines = ["\t".join(row) for row in rows]
    if options.sample:
        told = [text for _, kind, text in rows if kind in ("error", "notice")]
        lines = random.Random(options.seed).sample(told, options.sample)
    print("\n".join(lines))


if __name__ == "__main__":
    main()
