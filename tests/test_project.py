"""Where runs are: in the repository's folder in a checkout, and in the current folder once the library is installed."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[1]


@pytest.mark.parametrize("is_checkout", [True, False])
def test_the_root_is_the_checkout_or_else_the_current_folder(tmp_path, is_checkout):
    site, here = tmp_path / "site", tmp_path / "here"
    here.mkdir()
    for name in ("__init__.py", "project.py"):
        (site / "chargpt").mkdir(parents=True, exist_ok=True)
        shutil.copy(REPOSITORY / "chargpt" / name, site / "chargpt")
    code = "from chargpt.project import project_root; print(project_root())"
    environment = {"PYTHONPATH": str(REPOSITORY if is_checkout else site), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run([sys.executable, "-c", code], cwd=here, env=environment, capture_output=True, text=True)
    assert Path(done.stdout.strip()).resolve() == (REPOSITORY if is_checkout else here).resolve(), done.stderr
