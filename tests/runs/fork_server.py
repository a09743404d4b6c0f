"""Runs train.py many times for the price of one import: a child is forked for every line of arguments on standard input.

Prints the child's process id, and when it has ended its exit code (below 0: the signal that killed it).
"""

import json
import os

import train
from chargpt.terminal import run_program


def main() -> None:
    print("ready", flush=True)
    for line in open(0, encoding="utf-8", closefd=False):  # not sys.stdin, which a program may set up only before it is read
        child = os.fork()
        if child == 0:
            quiet = os.open(os.devnull, os.O_WRONLY)
            os.dup2(quiet, 1)
            os.dup2(quiet, 2)
            os._exit(run_program(lambda: train.main(json.loads(line))))
        print(child, flush=True)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


if __name__ == "__main__":
    main()
