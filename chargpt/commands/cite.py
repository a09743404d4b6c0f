"""`python -m chargpt cite`: what a run was, in the words of a paper, and how to make it again."""

from collections.abc import Sequence

from chargpt.commands.common import verb_parser
from chargpt.errors import Command, Option
from chargpt.formatting import one_line, plural, shown
from chargpt.project import project_root, version
from chargpt.runs.checkpoint_schema import NO_TEXT
from chargpt.runs.listing import RunState
from chargpt.runs.load import find_run
from chargpt.runs.repeat import beginning_with, is_there, missing, models_in


def main(argv: Sequence[str]) -> int:
    """Print the facts on a run, how to repeat it, and a line to cite. Returns the exit code. Raises UserError."""
    about = """Print what a paper says of a run: the text with its hash, the version, the steps that its models took, how to
    train it again, and a line to cite."""
    parser = verb_parser("cite", "RUN", about)
    parser.add_argument("run", metavar="RUN", help="a run in checkpoints/, or its path")
    folder = find_run(parser.parse_args(list(argv)).run, project_root() / "checkpoints")
    models = models_in(folder)
    last, size = models[-1], RunState.of(folder).parameters
    parameters = "? parameters" if size is None else plural(size, "parameter")
    text = "none; it was imported without one" if last.fingerprint == NO_TEXT else f"SHA-256 {last.fingerprint}"
    names = one_line(", ".join(last.text_names))
    print(f"text      {names}, {text} (of its documents, vocabulary and split)")
    machine = one_line(", ".join(f"{name} {value}" for name, value in last.environment.items() if name != "teachers"))
    print(f"version   chargpt {version()} reads it; model.py {last.model_source[:12]}; {machine}")
    for number, state in enumerate(models, 1):
        steps = f"{state.progress.step:,} of {plural(state.stage.length.steps, 'step')}"
        print(f"model {number}   {steps}, {parameters}, seed {state.config.train.seed}")
    start = last.stage.start
    more = [beginning_with(start)] if start and is_there(start, folder) else []
    print(f"again     {Command('train', 'TEXT', Option('config', shown(folder / 'config.yaml')), *more, Option('run', 'NEW'))}")
    nothing = "nothing: on the same machine, this gives the same run to the bit"
    print(*(f"missing   {one_line(what)}" for what in missing(models, folder) or [nothing]), sep="\n")
    loss = "" if last.progress.best_loss is None else f", validation loss {last.progress.best_loss:.4f} nats per character"
    what = f"{folder.name}: a character-level GPT of {parameters}, trained with chargpt {version()}"
    brief = text.replace(last.fingerprint, last.fingerprint[:12])
    steps = " and ".join(f"{state.progress.step:,}" for state in models)
    print(f"cite      {what} for {steps} steps on {names} ({brief}), seed {models[0].config.train.seed}{loss}.")
    return 0
