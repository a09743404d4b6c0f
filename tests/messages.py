"""Prints every string of the program that a person may read, as a table: python tests/messages.py > messages.tsv

A row is a place, a tab and the string, with its expressions in braces. Docstrings are left out, and what has fewer than five
words. So all messages can be read as a set, as an editor would.
"""

import ast
from pathlib import Path

ROOT = Path(__file__).parents[1]
FEWEST_WORDS = 5


def text_of(node: ast.AST) -> str | None:
    """The text of a string, of an f-string, or of a sum of these; None for anything else."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else None
    if isinstance(node, ast.JoinedStr):
        parts = node.values
        return "".join(
            "{" + ast.unparse(p.value) + "}" if isinstance(p, ast.FormattedValue) else str(text_of(p)) for p in parts
        )
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        left, right = text_of(node.left), text_of(node.right)
        return None if left is None or right is None else left + right
    return None


def messages(path: Path) -> list[tuple[int, str]]:
    """The line and the text of each string of a file that is no part of another one and no docstring."""
    found, inside = [], set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Expr):
            inside.add(node.value)
        text = None if node in inside else text_of(node)
        if node in inside or text is not None:
            inside.update(ast.iter_child_nodes(node))
        if text is not None and len(text.split()) >= FEWEST_WORDS:
            found.append((node.lineno, text))  # type: ignore[attr-defined]
    return sorted(found)


def main() -> None:
    for path in sorted([*(ROOT / "chargpt").rglob("*.py"), ROOT / "train.py", ROOT / "sample.py"]):
        for line, text in messages(path):
            print(f"{path.relative_to(ROOT)}:{line}\t{text.encode('unicode_escape').decode()}")


if __name__ == "__main__":
    main()
