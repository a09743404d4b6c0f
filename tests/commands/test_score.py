"""The verb score answers a question about its options, and a mistake in them, before it imports torch."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("verb", ["score", "compress", "decompress"])
def test_help_needs_no_torch(verb):
    code = f"""
import sys
from chargpt.__main__ import main
try:
    main([{verb!r}, "--help"])
finally:
    print("torch" in sys.modules, file=sys.stderr)
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.stderr == "False\n" and f"python -m chargpt {verb} RUN" in done.stdout
