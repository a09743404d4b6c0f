"""Write text with a trained model: run in, text out.

The story: find the run, read its best checkpoint, read the prompt, and let the model go on from there. Text goes to standard
output as it is made; what was chosen, and how fast it went, to standard error.
"""

import argparse
import contextlib
import dataclasses
import functools
import secrets
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from chargpt.arguments import Parser, number, numbers, whole_number
from chargpt.errors import UserError, one_line, run_program
from chargpt.tokenizer import Tokenizer

CHECKPOINTS = Path(__file__).resolve().parent / "checkpoints"


def parse_arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = Parser(
        prog="sample.py",
        usage="sample.py [RUN] [--prompt TEXT | --prompt-file FILE] [option ...]",
        description="Write text with a trained model: the prompt, then its continuation.",
    )
    parser.add_argument("run", nargs="?", metavar="RUN", help="a run's name below checkpoints/, or the path of a run or of one of "
                        "its checkpoints (default: the newest run); of a run, the best checkpoint writes")
    parser.add_argument("--device", metavar="D", default="auto", help="auto, cpu, cuda, cuda:N or mps (default: auto)")
    _add_text_options(parser.add_argument_group("what to write"))
    _add_choice_options(parser.add_argument_group("how the next character is chosen, in this order"))
    _add_output_options(parser.add_argument_group("how it is shown"))
    arguments = parser.parse_args(argv)
    if arguments.length is None:
        arguments.length = 1000 * arguments.lines or 500
    if arguments.seed is None:
        arguments.seed = secrets.randbits(32)
    if arguments.interactive:
        others = {"--json": arguments.json, "--samples": arguments.samples > 1, "several temperatures": len(arguments.temperatures) > 1,
                  "--prompt-file -": arguments.prompt_file == "-"}
        for other in [other for other, given in others.items() if given]:
            raise UserError(f"--interactive: {other} given as well; leave out one of the two")
    return arguments


def _add_text_options(group: Any) -> None:
    add = group.add_argument
    prompt = group.add_mutually_exclusive_group()
    prompt.add_argument("--prompt", metavar="TEXT", default="", help="text to continue (default: none, the text starts on a new line)")
    prompt.add_argument("--prompt-file", metavar="FILE", help="the same from a UTF-8 file, every character of it; - is standard input")
    add("--unknown", choices=("error", "skip"), default="error", help="what to do with characters of the prompt that the model has "
        "never seen (default: error)")
    add("--length", type=whole_number(0), metavar="N", help="characters to write at most (default: 500, or 1000 for each of --lines)")
    add("--lines", type=whole_number(1), default=0, metavar="N", help="end a sample with its Nth line")
    add("--stop", action="append", default=[], metavar="TEXT", help="end a sample where TEXT appears, without TEXT; may be repeated; "
        "an empty line, in bash: --stop $'\\n\\n'")
    add("--samples", type=whole_number(1), default=1, metavar="N", help="texts to write, a line of dashes between them (default: 1)")
    add("--seed", type=whole_number(0), metavar="S", help="the same seed and options write the same text; the Nth sample of seed S is "
        "the first of seed S + N - 1 (default: a new one, which is printed)")
    add("--overflow", choices=("exact", "refill"), default="exact", help="past the model's context: exact reads its last block_size "
        "characters again for every new one; refill drops half of it whenever it is full, which is much faster and, up to "
        "there, the same (default: exact)")


def _add_choice_options(group: Any) -> None:
    add = group.add_argument
    add("--allow", metavar="CHARACTERS", help="write only these")
    add("--ban", metavar="CHARACTERS", help="never write these")
    add("--repetition-penalty", type=number, default=1.0, metavar="R", help="in a passage that repeats more than 10 of the last 1024 "
        "characters, make each further one R times less likely than the one before (default: 1, off)")
    add("--temperature", type=numbers, default=[0.8], dest="temperatures", metavar="T", help="0 takes the likeliest character each time, 1 is the model as "
        "trained, more is wilder; several, as in 0.5,0.8,1.1, write the samples at each (default: 0.8)")
    add("--top-k", type=whole_number(0), default=0, metavar="K", help="among the K likeliest (default: 0, all)")
    add("--top-p", type=number, default=1.0, metavar="P", help="among the fewest that together have probability P (default: 1, all)")
    add("--min-p", type=number, default=0.0, metavar="P", help="among those at least P times as likely as the likeliest (default: 0, all)")


def _add_output_options(group: Any) -> None:
    form = group.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="a JSON object a line for each sample, with the log-probability of each character")
    form.add_argument("--surprise", action="store_true", help="colour each character by how little the model expected it")
    group.add_argument("--interactive", action="store_true", help="type, and watch the model go on: \\n is a new line, Enter alone "
                       "writes more, Ctrl-C stops the text, Ctrl-D leaves")


def read_prompt(arguments: argparse.Namespace) -> str:
    """The prompt as the user gave it. Standard input is read only when asked for, so that an idle one never blocks."""
    if arguments.prompt_file is None:
        return arguments.prompt
    name = "standard input" if arguments.prompt_file == "-" else arguments.prompt_file
    try:
        data = sys.stdin.buffer.read() if arguments.prompt_file == "-" else Path(name).read_bytes()
        return data.decode("utf-8-sig")
    except OSError as error:
        raise UserError(f"{name}: {error.strerror}; give a text file, or - for standard input") from None
    except UnicodeDecodeError as error:
        raise UserError(f"{name}: byte {error.start} is not UTF-8; save the prompt as UTF-8") from None


def encode_prompt(text: str, tokenizer: Tokenizer, unknown: str) -> list[int]:
    """The ids of a text to continue. Characters the model has never seen are an error, or with `skip` listed and left out."""
    if unknown == "error":
        return tokenizer.encode(text).tolist()
    ids, skipped = tokenizer.encode_known(text)
    if skipped:
        say(f"skipped {len(skipped):,} characters that the model has never seen: {one_line(''.join(dict.fromkeys(skipped)))}")
    return ids.tolist()


def options_of(kind: type, arguments: argparse.Namespace) -> dict[str, Any]:
    """The arguments that are fields of the dataclass `kind`."""
    return {field.name: getattr(arguments, field.name) for field in dataclasses.fields(kind) if field.name in arguments}


@contextlib.contextmanager
def options_named() -> Iterator[None]:
    """Turn a ValueError that begins with a field's name into a UserError that begins with the option's."""
    try:
        yield
    except ValueError as error:
        field, _, problem = str(error).partition(":")
        raise UserError(f"--{field.replace('_', '-')}:{problem}") from None


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main(argv: list[str] | None = None) -> int:
    arguments = parse_arguments(argv)
    # Only now: torch takes a second or two to import, and a mistyped option or --help is answered before that.
    from chargpt.config import RuntimeConfig
    from chargpt.conversation import converse
    from chargpt.generate import Sampling
    from chargpt.printer import LEGEND, JsonPrinter, TextPrinter, coloured, plain, print_samples
    from chargpt.restore import find_checkpoint, restore_model
    from chargpt.runtime import choose_device
    from chargpt.writer import Writer

    with options_named():
        device = choose_device(RuntimeConfig(device=arguments.device).device)
        samplings = [Sampling(temperature=temperature, **options_of(Sampling, arguments)) for temperature in arguments.temperatures]
    checkpoint, warnings = find_checkpoint(arguments.run, CHECKPOINTS)
    for warning in warnings:
        say(f"warning: {one_line(warning)}")
    model, tokenizer, _ = restore_model(checkpoint)
    encode = functools.partial(encode_prompt, tokenizer=tokenizer, unknown=arguments.unknown)
    prompt = encode(read_prompt(arguments))
    with options_named():
        writers = [Writer(model=model.to(device), tokenizer=tokenizer, sampling=sampling, **options_of(Writer, arguments)) for sampling in samplings]
    run, loss = checkpoint.path.resolve().parent.name, checkpoint.state.get("val_loss")
    said = f", validation loss {loss:.4f}" if isinstance(loss, float) else ""
    say(f"{one_line(run)}, step {checkpoint.step:,}{said}, {model.parameter_count():,} parameters, {device}; "
        f"{' / '.join(sampling.describe() for sampling in samplings)}, seed {arguments.seed}")
    paint = coloured if arguments.surprise else plain
    if arguments.surprise:
        say(LEGEND)
    if arguments.interactive:
        converse(writers[0], prompt, encode=encode, seed=arguments.seed, paint=paint)
        return 0
    started, made = time.monotonic(), 0
    printer = JsonPrinter(sys.stdout) if arguments.json else TextPrinter(sys.stdout, paint=paint)
    for writer in writers:
        facts = {"run": run, "step": checkpoint.step, **dataclasses.asdict(writer.sampling)}
        heading = f"temperature {writer.sampling.temperature:g}" if len(writers) > 1 else ""
        seeds = range(arguments.seed, arguments.seed + arguments.samples)
        made += print_samples(writer, prompt, printer, seeds=seeds, heading=heading, facts=facts)
    seconds = time.monotonic() - started
    say(f"{made:,} characters in {seconds:.1f} s, {made / seconds:,.0f} a second")
    return 0


if __name__ == "__main__":
    sys.exit(run_program(main))
