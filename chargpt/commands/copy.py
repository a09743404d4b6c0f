"""`python -m chargpt copy`: a second run like another one, for example to train it further and keep both."""

import shutil
from collections.abc import Sequence

from chargpt.commands.rename import tell, two_runs
from chargpt.errors import UserError, what_to_do
from chargpt.files import LOCK_NAME, publishing
from chargpt.formatting import shown
from chargpt.notices import Kind
from chargpt.runs.run import lock_run


def main(argv: Sequence[str]) -> int:
    """Copy the run that the options in `argv` name. Returns the exit code. Raises UserError."""
    source, target = two_runs("copy", "Copy a run with all its checkpoints. A run that is being trained is refused.", argv)
    lock = lock_run(source)
    try:
        with publishing(target) as path:
            shutil.copytree(source, path, symlinks=True, ignore=shutil.ignore_patterns(LOCK_NAME, ".*.tmp-*"))
    except OSError as error:  # of copytree: a list of errors
        raise UserError(f"{shown(target)}: not copied ({error.strerror or error}); {what_to_do(error)}") from None
    finally:
        lock.release()
    tell(Kind.COPIED, source, target)
    return 0
