"""What the build adds to the wheel: the programs, the model, the presets, and the kernels, compiled.

In a checkout, model.py, train.py, sample.py and configs/ are at the top of the repository. In the wheel they are inside the
package, so that it installs one name, chargpt. Python loads the kernels by ctypes, so a wheel is for every Python of a
platform. Where there is no C compiler, the wheel has no kernels, and is for every platform. Those of pages
that learn need the package ziglang.
"""

import os
import platform
import re
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PLACES = {
    "model.py": "chargpt/model.py",
    "train.py": "chargpt/commands/train.py",
    "sample.py": "chargpt/commands/sample.py",
    "configs": "chargpt/configs",
}


class CustomBuildHook(BuildHookInterface):
    def dependencies(self) -> list[str]:
        """Published wheels have the kernel of pages that learn, which ziglang compiles; a user's own build does without it."""
        return ["ziglang"] if "CIBUILDWHEEL" in os.environ else []

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add the files; an editable installation uses those of the repository."""
        if version == "editable":
            return
        root = Path(self.root)
        build_data["force_include"] |= {str(root / source): target for source, target in PLACES.items()}
        sys.path.insert(0, self.root)
        from chargpt.kernels.build import build
        from chargpt.kernels.compiler import Unavailable

        self._compiled = tempfile.TemporaryDirectory()
        try:
            libraries = build(Path(self._compiled.name))
        except Unavailable as reason:
            self.app.display_warning(f"the wheel has no kernels: {reason}")
            return
        build_data["force_include"] |= {str(path): f"chargpt/kernels/lib/{path.name}" for path in libraries}
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{platform_tag()}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        if version != "editable":
            self._compiled.cleanup()


def platform_tag() -> str:
    """This platform, as the name of a wheel has it. The kernels are for one processor, also if Python is for two."""
    return re.sub(r"[-.]", "_", sysconfig.get_platform()).replace("universal2", platform.machine())
