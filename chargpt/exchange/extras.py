"""Packages that only an export needs: those of requirements-export.txt."""

import importlib.util
import sys
from importlib.metadata import version

from chargpt.terminal import UserError

INSTALL = f"{sys.executable} -m pip install -r requirements-export.txt"


def installed(package: str) -> bool:
    """Whether a package can be imported; it is not imported."""
    return importlib.util.find_spec(package) is not None


def require(package: str, *, target: str) -> None:
    """Raise UserError, with what to run, unless `package` is installed, which `--to target` needs."""
    if not installed(package):
        raise UserError(f"--to {target}: needs the package {package}; run {INSTALL}")


def not_checked(program: str) -> str:
    """The sentence for an export that could not be loaded again, because its program is not installed."""
    return f"Not checked with {program}, which is not installed (requirements-export.txt)."


def version_of(package: str) -> str:
    """The version of an installed package."""
    return version(package)
