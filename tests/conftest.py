"""What several test files need: a small text, and runs in a folder of their own."""

import gc
import os
import random
import signal
import sys
from collections.abc import Callable, Iterator
from ctypes import CDLL
from pathlib import Path

import pytest
from programs import Programs
from session import PRECISIONS, STEPS, make_root, set_up

from chargpt import project
from chargpt.kernels import compiler
from chargpt.kernels.compiler import Unavailable

ROOT = Path(__file__).parents[1]
CORPORA = ROOT.parent / "shared" / "corpora"
PROGRAMS = pytest.StashKey[Programs]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--step", choices=STEPS, help="what runtime.step=auto means (default: C code where it is faster)")
    parser.addoption(
        "--precision",
        choices=PRECISIONS,
        help="what runtime.precision=auto means on a CPU (default: what the processor is fast with); bfloat16 works on every "
        "processor, and is slow on one without instructions for it",
    )


def pytest_configure(config: pytest.Config) -> None:
    """What holds in this process and in all that it starts, of which there are hundreds.

    Only tests that ask for a GPU see one: all others compute on the CPU everywhere, with one thread, since those of several
    processes wait for each other. Python keeps what it has compiled, in folders that git ignores, whatever a variable says.
    """
    os.environ["OMP_NUM_THREADS"] = "1"
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.dont_write_bytecode = False
    if config.getoption("markexpr") != "gpu":
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
    for variable in ("CHARGPT_HOME", "CHARGPT_TYPED_HOME"):
        os.environ.pop(variable, None)


def pytest_sessionstart(session: pytest.Session) -> None:
    """Not in the process that shares out the tests: the others would wait until it has imported what they import."""
    if hasattr(session.config, "workerinput") or not session.config.getoption("numprocesses", None):
        from hypothesis import HealthCheck, settings

        examples = 200 if session.config.getoption("markexpr") == "nightly" else 12  # which differ each time
        calm = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]  # fixtures that any number of examples can share
        settings.register_profile("any machine", deadline=None, max_examples=examples, suppress_health_check=calm)
        settings.load_profile("any machine")


def pytest_collection_finish() -> None:
    """What is imported by now stays: no later collection of garbage looks at it again, as in launch.py."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> None:
    """The programs come from a fork of this process, now that all is imported, and before a test has computed with threads."""
    if hasattr(os, "fork") and any("programs" in item.fixturenames for item in session.items):
        session.config.stash[PROGRAMS] = Programs()
        session.config.add_cleanup(session.config.stash[PROGRAMS].close)


@pytest.fixture(scope="session", autouse=True)
def session_root(tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config) -> Path:
    """The root of this test process, in which the runs and texts of the checkout do not exist."""
    root = make_root(tmp_path_factory.mktemp("root") / "project")
    set_up(root=root, precision=pytestconfig.getoption("precision"), step=pytestconfig.getoption("step"))
    return root


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """As after `pip install .`: the root is the current folder, `tmp_path`."""
    monkeypatch.setattr(project, "SOURCE", tmp_path)
    monkeypatch.setattr(project, "PRESETS", ROOT / "configs")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(autouse=True)
def one_thread() -> None:
    """Also after a test with more of them: tiny models are fastest so, and test processes do not fight for the cores."""
    import torch

    torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def default_signals() -> Iterator[None]:
    """The handlers of Ctrl-C, SIGTERM and a hangup are the default ones, also where the caller, like nohup, ignores some."""
    numbers = [signal.SIGINT, signal.SIGTERM, *([signal.SIGHUP] if hasattr(signal, "SIGHUP") else [])]
    before = [signal.getsignal(number) for number in numbers]
    for number in numbers:
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
    yield
    for number, handler in zip(numbers, before):
        signal.signal(number, handler)


@pytest.fixture(scope="session")
def text(tmp_path_factory) -> Path:
    """A file of 12,000 characters that a model can learn something from."""
    words = ["the", "sea", "and", "stone", "under", "a", "moving", "light", "keeps", "its", "own", "hours"]
    draw = random.Random(0)
    lines = (" ".join(draw.choices(words, k=7)).capitalize() + ".\n" for _ in range(400))
    path = tmp_path_factory.mktemp("text") / "sea.txt"
    path.write_text("".join(lines)[:12000], encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def learned(text: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that has learned the text a little."""
    from session_helpers import trained

    words = ["--config", "tiny", "train.max_steps=60", "train.sample_length=0", "runtime.threads=1"]
    return trained(text, tmp_path_factory.mktemp("learned") / "sea", *words)


@pytest.fixture(scope="session")
def programs(session_root: Path, pytestconfig: pytest.Config) -> Programs:
    """Programs of the project in child processes, which import nothing anew."""
    if not hasattr(os, "fork"):
        pytest.skip("needs fork, which POSIX has")
    programs = pytestconfig.stash[PROGRAMS]
    programs.ask(root=str(session_root), **{name: pytestconfig.getoption(name) for name in ("precision", "step")})
    return programs


@pytest.fixture(scope="session")
def kernel_cache() -> Path:
    """The user's folder of compiled C: nothing is compiled again in each test run, nor once for tests and once for programs."""
    return project.user_cache_folder() / "chargpt"


@pytest.fixture(scope="session")
def compiled(kernel_cache: Path) -> Callable[[Callable[[Path], CDLL]], CDLL]:
    """A function that calls a kernel's `load_kernel`; without a C compiler, the test skips."""

    def load(load_kernel: Callable[[Path], CDLL]) -> CDLL:
        try:
            return load_kernel(kernel_cache)
        except Unavailable as reason:
            assert not compiler.compilers(), reason
            pytest.skip("needs a C compiler")

    return load


@pytest.fixture
def no_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No library in the package, nor in this process, and no C compiler."""
    from chargpt.kernels import attention
    from chargpt.sampling import c_texts

    attention.load_kernel.cache_clear()
    c_texts.load_kernel.cache_clear()
    monkeypatch.setattr(compiler, "PACKAGED", tmp_path / "absent")
    monkeypatch.setattr(compiler, "ZIGLANG", "no_such_package")
    monkeypatch.setenv("PATH", str(tmp_path))


@pytest.fixture
def corpora() -> Path:
    """The folder of real texts; the test skips where they are absent."""
    if not CORPORA.is_dir():
        pytest.skip(f"needs the real texts in {CORPORA.name}/, which are not part of the project")
    return CORPORA
