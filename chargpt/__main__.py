"""`python -m chargpt VERB ...`: each verb is the main function of one module."""

if __name__ == "__main__":  # imports this file as a module, runs its main() and exits
    import _signal  # needs no file

    _signal.signal(_signal.SIGINT, _signal.SIG_DFL)  # until `launch` sets a handler, Ctrl-C is no traceback
    from chargpt.launch import launch

    launch("chargpt.__main__")

import importlib
import sys

from chargpt.terminal import UserError, best_effort_messages, notice_line

VERBS = {  # verb: the module whose main(arguments) it is, and what it does
    "export": ("chargpt.commands.export", "a run in the format of another program: Hugging Face, GGUF, ONNX"),
    "import": ("chargpt.commands.import_run", "a run from a model of transformers or nanoGPT"),
    "text": ("chargpt.commands.text", "what a text is like, and what to expect of a model trained on it"),
    "bench": ("chargpt.commands.bench", "what this machine can do, and how close training and sampling come to it"),
    "runs": ("chargpt.commands.runs", "a list of the runs: text, size, loss, date, and how far each one is"),
    "report": ("chargpt.commands.report", "a page on a run, or on several: curves, samples, what it knows and what it copies"),
    "score": ("chargpt.commands.score", "how well a model predicts a text, in total, by line and by character"),
    "losses": ("chargpt.commands.losses", "where the loss sits: classes of characters, positions, confused pairs"),
    "trace": ("chargpt.commands.trace", "what a text, or what the model writes, has copied from the training text"),
    "attention": ("chargpt.commands.attention", "what each head attends to, as a page for the browser"),
    "embeddings": ("chargpt.commands.embeddings", "the characters as the model sees them, for TensorBoard's projector"),
    "compress": ("chargpt.commands.compress", "a file in as few bytes as the model's bits per character promise"),
    "decompress": ("chargpt.commands.decompress", "the original of a compressed file"),
}


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
