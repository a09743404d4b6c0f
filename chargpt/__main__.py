"""`chargpt VERB ...` and `python -m chargpt VERB ...`. Each verb is a module in commands/; commands/verbs.py lists them."""

if __name__ == "__main__":  # imports this file as a module, runs its main() and exits
    if not __package__:  # called by the path of its folder, which Python then searches for modules
        import os
        import sys

        sys.path[0] = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    from chargpt import launch

    launch.command()

import sys

from chargpt.commands.verbs import ALIASES, DESTRUCTIVE, VERBS
from chargpt.errors import UserError, nearest
from chargpt.launch import import_program
from chargpt.program import best_effort_messages
from chargpt.project import command, version
from chargpt.screen import in_columns, wrapped

FIRST = {  # the commands of the first page: what follows the verb, and what it does
    "train": ("poems.txt --minutes 10", "train a model on your text; without a text, on the language reference of Python"),
    "sample": ("poems", "let it write; without a name, the newest run"),
    "runs": ("", "list the runs"),
    "report": ("poems", "a page for the browser: what the model has learned"),
    "export": ("poems --to html", "one page that writes text in any browser, offline"),
}


def main(argv: list[str] | None = None) -> int:
    """Run the verb that `argv` (default: the command line) begins with; without one, show five of them."""
    argv = sys.argv[1:] if argv is None else argv
    if not argv:
        print("Train a character-level GPT on your own text, and let it write.")
        for verb, (words, what) in FIRST.items():
            print(f"\n  {command(verb)} {words}".rstrip(), f"    {what}", sep="\n")
        print(f"\nAll commands: {command('--help')}. The options of one: {command('train')} --help.")
        return 0
    if argv[0] in ("-h", "--help"):
        print(f"usage: {command('COMMAND')} ...\n")
        print(*(wrapped(in_columns(verb, what)) for verb, (_, what) in VERBS.items()), sep="\n")
        return 0
    if argv[0] == "--version":
        print(f"chargpt {version()}")
        return 0
    if argv[0] not in VERBS:
        offered = [verb for verb in VERBS if verb not in DESTRUCTIVE]
        what_to_do = f"did you mean {ALIASES[argv[0]]}?" if argv[0] in ALIASES else nearest(argv[0], offered)
        raise UserError(f"{argv[0]}: no such command; {what_to_do}")
    module = import_program(VERBS[argv[0]][0])
    with best_effort_messages():  # the output is what counts
        return module.main(argv[1:])
