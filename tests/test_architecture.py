"""What docs/design.md promises about the code itself: imports point one way, and no file runs code or hides state."""

import ast
import functools
import io
import re
import tokenize
import tomllib
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parents[1]
PYPROJECT = ROOT / "pyproject.toml"
PROGRAMS = [ROOT / "train.py", ROOT / "sample.py"]
LIBRARY = sorted((ROOT / "chargpt").rglob("*.py"))
# In a checkout, these modules stand for the files at the top of the repository, which a wheel has in their places.
STAND_INS = {"model": "chargpt/model.py", "train": "chargpt/commands/train.py", "sample": "chargpt/commands/sample.py"}
OURS = [ROOT / "model.py", *PROGRAMS, *LIBRARY]

SOURCE_FILE = re.compile(r"(?<![\w/.<-])(?:[\w-]+/)*[\w-]+\.(?:py|c|h|js|md)\b(?!\(|\.[\w{])")  # as a comment names one
OF_OTHERS = {"Node.js", "malloc.h"}
SOURCES = [*(path for folder in ("chargpt", "tests", "docs") for path in (ROOT / folder).rglob("*.*")), *ROOT.glob("*.*")]
NAMES = "".join(f"/{path.relative_to(ROOT).as_posix()}\n" for path in SOURCES)

# Each package may import itself, the modules beside the packages, and these packages.
BELOW = {
    "text": set(),
    "kernels": set(),
    "runs": {"text"},
    "training": {"text", "runs", "kernels"},
    "planning": {"text", "runs", "training"},
    "sampling": {"text", "runs", "kernels"},
    "analysis": {"text", "runs", "sampling", "training"},  # training: which text is evaluated
    "session": {"text", "runs", "planning", "training", "sampling"},  # its samples
    "pages": {"text", "runs", "sampling", "analysis"},
    "exchange": {"text", "runs", "training", "planning", "sampling", "kernels"},  # training: an imported run can be resumed
    "commands": {"text", "runs", "training", "planning", "session", "sampling", "analysis", "pages", "exchange"},
}
# Modules that read the environment, and why. No variable changes a result.
READS_ENVIRONMENT = {
    "chargpt/screen.py": "NO_COLOR and TERM: whether a terminal gets colours",
    "chargpt/training/join.py": "what torchrun sets: the number and the ranks of the processes",
    "chargpt/project.py": "the user's folder for caches, as XDG and Windows name it",
    "chargpt/training/runtime.py": "sets what cuBLAS needs for runtime.deterministic",
    "chargpt/planning/cli.py": "torchrun's WORLD_SIZE, to refuse --find-lr",
    "chargpt/launch.py": "OpenMP's own variables, which the user may have set and which then stay",
}


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def for_each(paths: list[Path]) -> Callable:
    """A test of every file: one test, since there are many files, which names the file that fails."""

    def decorate(check: Callable[[Path], None]) -> Callable[[], None]:
        def test() -> None:
            for path in paths:
                try:
                    check(path)
                except AssertionError as error:
                    raise AssertionError(f"{relative(path)}: {error}") from error

        test.__name__ = check.__name__
        return test

    return decorate


@functools.cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


@functools.cache
def imported(path: Path) -> set[str]:
    """The modules that a file imports, as dotted names."""
    names = set()
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path.name}: relative import"
            names |= {f"{node.module}.{alias.name}" for alias in node.names} | {node.module}
    return names


@for_each(sorted((ROOT / "tests" / "benchmarks").glob("*.py")))
def test_the_modules_that_benchmarks_import_exist(path):
    for name in filter(lambda name: name.startswith("chargpt."), imported(path)):
        places = [ROOT / known.replace(".", "/") for known in (name, name.rpartition(".")[0])]  # a module, or what is in one
        is_there = any(place.with_suffix(".py").is_file() or place.is_dir() for place in places)
        assert is_there, f"imports {name}, which does not exist"


def test_the_model_imports_torch_and_nothing_of_ours():
    assert {name.split(".")[0] for name in imported(ROOT / "model.py")} == {"math", "collections", "dataclasses", "torch"}


@for_each([path for path in LIBRARY if relative(path) not in STAND_INS.values()])
def test_only_the_stand_ins_import_a_file_of_the_top_folder(path):
    assert not STAND_INS.keys() & {name.split(".")[0] for name in imported(path)}


def test_the_wheel_has_the_model_and_the_programs_in_place_of_the_stand_ins():
    for name, path in STAND_INS.items():
        (statement,) = [node for node in ast.parse((ROOT / path).read_text()).body if not isinstance(node, ast.Expr)]
        assert isinstance(statement, ast.ImportFrom) and statement.module == name
        assert f'"{name}.py": "{path}"' in (ROOT / "hatch_build.py").read_text() and f'"/{path}"' in PYPROJECT.read_text()


@for_each(LIBRARY)
def test_packages_import_only_what_is_below_them(path):
    package = path.relative_to(ROOT / "chargpt").parts[0]
    used = {name.split(".")[1] for name in imported(path) if name.startswith("chargpt.")}
    if package in BELOW:
        assert used & BELOW.keys() <= BELOW[package] | {package}
    elif package not in ("__init__.py", "__main__.py"):  # these two are the entrances to the packages
        assert not used & BELOW.keys()


def test_every_package_has_its_place_in_the_order():
    assert {path.parent.name for path in (ROOT / "chargpt").glob("*/__init__.py")} == BELOW.keys()


def test_imports_have_no_circle():
    modules = {".".join(path.relative_to(ROOT).with_suffix("").parts): path for path in LIBRARY}
    below = {name: imported(path) & modules.keys() for name, path in modules.items()}
    done: set[str] = set()
    while below.keys() - done:
        ready = {name for name in below.keys() - done if below[name] <= done}
        assert ready, f"a circle among {sorted(below.keys() - done)}"
        done |= ready


def comments(path: Path) -> list[str]:
    """The comments and docstrings of a module; of a file in another language, all of it."""
    source = path.read_text(encoding="utf-8")
    if path.suffix != ".py":
        return [source]
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    docstrings = [ast.get_docstring(node) or "" for node in ast.walk(parsed(path)) if isinstance(node, documented)]
    return [token.string for token in tokens if token.type == tokenize.COMMENT] + docstrings


@for_each([*OURS, *(path for kind in ("c", "h", "js") for path in sorted((ROOT / "chargpt").rglob(f"*.{kind}")))])
def test_every_source_file_that_a_comment_names_exists(path):
    for name in (name for comment in comments(path) for name in SOURCE_FILE.findall(comment) if name not in OF_OTHERS):
        assert f"/{name}\n" in NAMES, f"names {name}, which does not exist"


@for_each(OURS)
def test_nothing_that_executes_data(path):
    called = [(ast.unparse(node.func), node) for node in ast.walk(parsed(path)) if isinstance(node, ast.Call)]
    assert not dict(called).keys() & {"eval", "exec", "torch.save", "yaml.safe_load", "np.load", "pickle.load", "pickle.loads"}
    allowed = {"pickle"} if path.name == "nanogpt.py" else set()  # which refuses a file that names anything to call
    assert not ({"marshal", "shelve", "dill", "pickle"} - allowed) & imported(path)
    loads = [ast.unparse(node) for name, node in called if "torch.load" in name]
    assert all(allowed and "weights_only=True" in load for load in loads)
    # yaml.load only with the strict loader, which is BaseLoader with less.
    assert all(ast.unparse(node.args[1]) == "_StrictLoader" for name, node in called if name == "yaml.load")


@for_each(OURS)
def test_the_environment_is_read_only_where_it_is_listed(path):
    read = re.search(r"\bos\.(environb?|getenvb?)\b", path.read_text(encoding="utf-8")) or "os.environ" in imported(path)
    assert bool(read) == (relative(path) in READS_ENVIRONMENT)


@for_each(OURS)
def test_importing_does_nothing(path):
    allowed = (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.ClassDef, ast.Assign, ast.AugAssign, ast.AnnAssign)
    for node in parsed(path).body:
        docstring = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        guard = isinstance(node, ast.If) and ("__main__" in ast.unparse(node.test) or "TYPE_CHECKING" in ast.unparse(node.test))
        assert docstring or guard or isinstance(node, allowed), f"{path.name}:{node.lineno}"


def test_given_folders_hold_no_code():
    for folder in ("data", "configs", "checkpoints"):
        assert not list((ROOT / folder).glob("*.py"))


def test_a_package_needs_what_a_checkout_needs():
    """The requirements have an upper limit for torch, the newest one with which the tests ran."""
    project = tomllib.loads(PYPROJECT.read_text())["project"]
    lines = [line.partition(" #")[0].strip() for line in (ROOT / "requirements.txt").read_text().splitlines()]
    same = [re.sub(r"^(torch>=[0-9.]+),<[0-9.]+$", r"\1", line) for line in lines if line and not line.startswith("#")]
    assert same == project["dependencies"]


# What no code may ask of words that are for people: their labels, whether they begin or end with something, or contain it.
OF_WORDS = re.compile(
    r"\.label == [\"']"
    r"|\blabel(_of\([^)]*\))? (==|in) [\"'(]"
    r"|str\((error|message|words|notice|problem|reason|said)\)\.(removeprefix|startswith|endswith|partition|replace|split)\("
    r"|\b(message|words|text|said)\b == [\"'][a-z]+ [a-z]+"
    r"|[\"'][^\"']*[a-z;:] [\"'] in (str\()?(error|message|words|said)\b"
)


@for_each(OURS)
def test_no_code_compares_words_for_people(path):
    found = OF_WORDS.search(path.read_text(encoding="utf-8"))
    assert found is None or (relative(path), found[0]) in OF_OTHERS_ERRORS, found


# The errors of other programs have nothing but their words.
OF_OTHERS_ERRORS = {
    ("chargpt/device.py", "str(error).partition("),
    ("chargpt/program.py", "str(error).partition("),
    ("chargpt/training/runtime.py", "str(problem).split("),
}
