"""What the build adds to the wheel: the programs, the model, the presets and compiled kernels.

In a checkout, model.py, train.py, sample.py and configs/ are at the top of the repository. In the wheel they are inside the
package, so that it installs one name, chargpt.
"""

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
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add the files; an editable installation uses those of the repository."""
        if version != "editable":
            root = Path(self.root)
            build_data["force_include"] |= {str(root / source): target for source, target in PLACES.items()}
