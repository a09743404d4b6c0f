"""Where the folders of presets, runs and texts are, and how a person calls the program: in a checkout, and when installed."""

import os
import re
import shlex
import sys
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent
SOURCE = PACKAGE.parent  # in a checkout, its top
CACHES = {"win32": ["AppData", "Local"], "darwin": ["Library", "Caches"]}  # in the home folder
CACHE_VARIABLE = {"win32": "LOCALAPPDATA", "darwin": "HOME"}.get(sys.platform, "XDG_CACHE_HOME")  # that moves them
NO_START = "none"  # in place of the name of a start, for a training: initial weights
# The folder of everything that the program writes; and the same as --home had it, if that named it.
HOME, TYPED_HOME = "CHARGPT_HOME", "CHARGPT_TYPED_HOME"
SET_HOME = f"set {HOME} to a folder that can be written"
PLAIN_ON_WINDOWS = re.compile(r"[\w./:\\+=@-]+")
# The log of a run, what it is doing, and the page about it, in its folder.
METRICS, STATUS, REPORT = "metrics.jsonl", "status.json", "report.html"
# The folder of a checkpoint in that of a run: its step, and which time that was saved; and the file by which a run is known.
STEP_NAME, STATE = re.compile(r"step-([0-9]{8,15})(?:\.([0-9]{1,9}))?"), "state.json"
PRESETS = PACKAGE / "configs"  # in an installed package: the wheel has a copy of configs/ there


def is_checkout() -> bool:
    """Whether this is a copy of the repository. Otherwise chargpt is installed."""
    return (SOURCE / "train.py").is_file()


def version() -> str:
    """The version of this checkout, or of the installed package. pyproject.toml is the one place that has it."""
    import importlib.metadata  # only here, since it takes time
    import tomllib

    if (top := model_file().parent) != PACKAGE:
        return tomllib.loads((top / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    return importlib.metadata.version("chargpt")


def model_file() -> Path:
    """model.py: at the top of a checkout; in an installed package, chargpt/model.py."""
    return (PACKAGE.parent if (PACKAGE.parent / "train.py").is_file() else PACKAGE) / "model.py"


def project_root() -> Path:
    """The folder of checkpoints/ and data/: CHARGPT_HOME, or the repository in a checkout, or the current one if installed."""
    return named_home() or (SOURCE if is_checkout() else Path.cwd())


def named_home() -> Path | None:
    """The folder of CHARGPT_HOME; None if it is not set."""
    return Path(named).absolute() if (named := os.environ.get(HOME)) else None


def set_home(folder: str) -> None:
    """From now on, in this process and in those that it starts, this is the folder of everything that the program writes."""
    os.environ |= {HOME: os.path.abspath(folder), TYPED_HOME: folder}


def typed_home() -> str:
    """The folder of --home, which the next command needs, too; empty without it."""
    return os.environ.get(TYPED_HOME, "")


def presets_folder() -> Path:
    """The folder of the presets."""
    return SOURCE / "configs" if is_checkout() else PRESETS


def command(verb: str) -> str:
    """How a person calls a verb here: `python train.py`, or from another folder its path, or `chargpt VERB`."""
    if not is_checkout():
        return f"chargpt {verb}"
    is_program, here = verb in ("train", "sample"), Path("chargpt")
    is_here = here.is_dir() and here.samefile(PACKAGE)
    if is_here and not is_program:
        return f"python -m chargpt {verb}"
    program = f"{verb}.py" if is_program else "chargpt"
    path = program if is_here else shell_word(str(SOURCE / program))
    return f"python {path}" + f" {verb}" * (not is_program)


def shell_word(text: str) -> str:
    """`text` as one word of a command line of this system's shell, quoted if it must be."""
    if os.name != "nt":
        return shlex.quote(text)
    return text if PLAIN_ON_WINDOWS.fullmatch(text) else f'"{text}"'


def user_cache_folder() -> Path:
    """Where this user keeps what can be made again, by CHARGPT_HOME or the system. Raises RuntimeError without a home."""
    if home := named_home():
        return home / "cache"
    named = "" if sys.platform == "darwin" else os.environ.get(CACHE_VARIABLE, "")
    if Path(named).is_absolute():  # XDG: a relative path is ignored
        return Path(named)
    try:
        return Path.home().joinpath(*CACHES.get(sys.platform, [".cache"]))
    except RuntimeError:
        raise RuntimeError(f"this user has no home folder in which to keep compiled code; {SET_HOME}") from None
