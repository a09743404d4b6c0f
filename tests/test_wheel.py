"""The wheel, built and installed in an empty environment: one name, one command, and nothing of the repository is needed."""

import os
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = pytest.mark.nightly
pytest.importorskip("hatchling", reason="needs hatchling, which builds the wheel")
ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, timeout=600)
    (path,) = folder.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def scripts(tmp_path_factory, wheel) -> Path:
    """The folder of the commands of an environment with the wheel; it finds all other packages in the one of the tests."""
    folder = tmp_path_factory.mktemp("environment")
    builder = venv.EnvBuilder()
    builder.create(folder)
    scripts, names = folder / ("Scripts" if os.name == "nt" else "bin"), {"base": str(folder), "platbase": str(folder)}
    packages = Path(sysconfig.get_path("purelib", "venv", names))
    (packages / "others.pth").write_text(sysconfig.get_path("purelib") + "\n")
    subprocess.run([*PIP, "--python", str(scripts / "python"), "install", "--no-deps", "--no-index", str(wheel)], check=True)
    return scripts


PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check")


@pytest.fixture(scope="module")
def chargpt(scripts, tmp_path_factory) -> Callable[..., subprocess.CompletedProcess]:
    """Runs `chargpt` with arguments in a folder that has nothing but a text."""
    folder = tmp_path_factory.mktemp("work")
    (folder / "sea.txt").write_text("The sea and the stone keep their own hours.\n" * 200)

    def run(*words: str, command: str = "chargpt", code: int = 0, path: str | None = None) -> subprocess.CompletedProcess:
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        if path is not None:  # without a compiler and what it has compiled
            environment |= {"PATH": path, "XDG_CACHE_HOME": str(folder / "cache")}
        done = subprocess.run(
            [str(scripts / command), *words], cwd=folder, env=environment, capture_output=True, text=True, timeout=300
        )
        assert done.returncode == code, done.stderr
        return done

    return run


SMALL = ("train.max_steps=20", "model.n_embd=16", "model.n_layer=1", "train.batch_size=4", "train.eval_interval=10")


def test_it_trains_writes_exports_and_reports_in_the_current_folder(chargpt):
    trained = chargpt("train", "sea.txt", *SMALL).stdout
    assert "chargpt sample sea" in trained and "train.py" not in trained and "sample.py" not in trained
    written = chargpt("sample", "--seed", "1", "--length", "50").stdout
    again = chargpt("-m", "chargpt", "sample", "--seed", "1", "--length", "50", command="python").stdout
    assert len(written) > 50 and written == again
    assert "sea" in chargpt("runs").stdout
    chargpt("export", "sea", "--to", "html")
    chargpt("report", "sea")
    chargpt("train", "sea.txt", "--config", "tiny", "--dry-run")
    code = "import os, chargpt; print(*sorted(os.listdir())); print(chargpt.__file__); print(chargpt.__version__)"
    written = chargpt("sample", "sea", "--seed", "1", "--length", "50", "--device", "cpu")
    alone = chargpt("sample", "sea", "--seed", "1", "--length", "50", "--device", "cpu", path="")
    assert written.stdout == alone.stdout and "cpu (compiled)" in alone.stderr  # the wheel has the kernels
    names, file, version = chargpt("-c", code, command="python").stdout.splitlines()
    assert names.split() == ["checkpoints", "data", "report.html", "sea.html", "sea.txt"]
    assert not file.startswith(str(ROOT)) and version[0].isdigit()


def test_the_library_trains_and_has_one_class_of_models(chargpt):
    code = (
        "import sys, chargpt, chargpt.commands.train, chargpt.commands.sample; from chargpt.model import GPT\n"
        f"model = chargpt.train('sea.txt', run='second', settings={dict(word.split('=') for word in SMALL)})\n"
        "assert isinstance(model.model, GPT) and not {'model', 'train', 'sample'} & sys.modules.keys()\n"
        "files = [module.__file__ for name, module in sys.modules.items() if name.startswith('chargpt')]\n"
        "assert len(files) == len(set(files))"
    )
    chargpt("-c", code, command="python")


def test_it_installs_the_package_and_the_command_alone(scripts):
    shown = subprocess.run(
        [*PIP, "--python", str(scripts / "python"), "show", "-f", "chargpt"], capture_output=True, text=True, check=True
    ).stdout
    files = [line.strip().replace(os.sep, "/") for line in shown.partition("Files:")[2].splitlines() if line.strip()]
    assert len(files) > 100 and {"chargpt/model.py", "chargpt/commands/train.py", "chargpt/configs/gpu.yaml"} < set(files)
    allowed = ("chargpt/", "chargpt-", "../")
    assert all(file.startswith(allowed) for file in files)
    assert {file.rpartition("/")[2].removesuffix(".exe") for file in files if file.startswith("../")} == {"chargpt"}
