"""What DESIGN promises about the code itself: imports point down, and no file can run code or hide state."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PROGRAMS = [ROOT / "train.py", ROOT / "sample.py"]
LIBRARY = sorted((ROOT / "chargpt").rglob("*.py"))
OURS = [ROOT / "model.py", *PROGRAMS, *LIBRARY]


def imported(path: Path) -> set[str]:
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path.name}: relative import"
            names.add(node.module)
    return names


def test_the_model_imports_torch_and_nothing_of_ours():
    assert {name.split(".")[0] for name in imported(ROOT / "model.py")} == {"math", "dataclasses", "torch"}


@pytest.mark.parametrize("path", [*LIBRARY], ids=lambda path: path.name)
def test_the_library_never_imports_a_program(path):
    assert not {"train", "sample"} & {name.split(".")[0] for name in imported(path)}


def test_imports_have_no_circle():
    below = {
        ".".join(path.relative_to(ROOT).with_suffix("").parts): {n for n in imported(path) if n.startswith("chargpt.")}
        for path in LIBRARY
    }
    done: set[str] = set()
    while below.keys() - done:
        ready = {name for name in below.keys() - done if below[name] <= done}
        assert ready, f"a circle among {sorted(below.keys() - done)}"
        done |= ready


@pytest.mark.parametrize("path", OURS, ids=lambda path: path.name)
def test_nothing_that_executes_data_or_reads_hidden_switches(path):
    tree = ast.parse(path.read_text(encoding="utf-8"))
    calls = {ast.unparse(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    assert not calls & {"eval", "exec", "torch.load", "torch.save", "os.getenv", "os.environ.get", "yaml.safe_load", "np.load"}
    assert not {"pickle", "marshal", "shelve", "dill"} & imported(path)
    # yaml.load only with the strict loader, which is SafeLoader with less.
    loads = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and ast.unparse(node.func) == "yaml.load"]
    assert all(ast.unparse(node.args[1]) == "_StrictLoader" for node in loads)


@pytest.mark.parametrize("path", OURS, ids=lambda path: path.name)
def test_importing_does_nothing(path):
    allowed = (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.ClassDef, ast.Assign, ast.AnnAssign)
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        docstring = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        guard = isinstance(node, ast.If) and ("__main__" in ast.unparse(node.test) or ast.unparse(node.test) == "TYPE_CHECKING")
        assert docstring or guard or isinstance(node, allowed), f"{path.name}:{node.lineno}"


@pytest.mark.parametrize("path", OURS, ids=lambda path: path.name)
def test_functions_stay_readable(path):
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef):
            assert node.end_lineno - node.lineno < 60, f"{path.name}:{node.lineno} {node.name}"


def test_given_folders_hold_no_code():
    for folder in ("data", "configs", "checkpoints"):
        assert not list((ROOT / folder).glob("*.py"))
