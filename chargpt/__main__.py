"""`python -m chargpt VERB ...`: each verb is the main function of one module in commands/, and commands/verbs.py lists them."""

if __name__ == "__main__":  # imports this file as a module, runs its main() and exits
    import _signal  # needs no file

    _signal.signal(_signal.SIGINT, _signal.SIG_DFL)  # until `launch` sets a handler, Ctrl-C is no traceback
    from chargpt.launch import launch

    launch("chargpt.__main__")

import importlib
import sys

from chargpt.commands.verbs import VERBS
from chargpt.terminal import UserError, best_effort_messages, notice_line


def main(argv: list[str] | None = None) -> int:
    """Run the verb that `argv` (default: the command line) begins with; without one, list the verbs."""
    argv = sys.argv[1:] if argv is None else argv
    if not argv or argv[0] in ("-h", "--help"):
        print("usage: python -m chargpt VERB ...\n")
        print(*(notice_line(verb, what) for verb, (_, what) in VERBS.items()), sep="\n")
        return 0
    if argv[0] not in VERBS:
        raise UserError(f"{argv[0]}: no such verb; use one of {', '.join(VERBS)}")
    module = importlib.import_module(VERBS[argv[0]][0])
    with best_effort_messages():  # the output is what counts
        return module.main(argv[1:])
