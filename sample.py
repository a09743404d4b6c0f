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
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from chargpt.terminal import Parser, UserError, number, numbers, one_line, run_program, whole_number
from chargpt.text.tokenizer import Tokenizer

CHECKPOINTS = Path(__file__).resolve().parent / "checkpoints"


def parse_arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = Parser(
        prog="sample.py",
        usage="sample.py [RUN] [--prompt TEXT | --prompt-file FILE] [option ...]",
        description="Write text with a trained model: the prompt, then its continuation.",
    )
    parser.add_argument(
        "run",
        nargs="?",
        metavar="RUN",
        help="a run's name below checkpoints/, the path of a run, or of one of its checkpoints "
        "(default: the newest run, its best checkpoint)",
    )
    parser.add_argument("--device", metavar="D", default="auto", help="auto, cpu, cuda, cuda:N or mps (default: auto)")
    add_text_options(parser.add_argument_group("what to write"))
    add_choice_options(parser.add_argument_group("how the next character is chosen, in this order"))
    add_output_options(parser.add_argument_group("how it is shown"))
    arguments = parser.parse_args(argv)
    if arguments.length is None:
        arguments.length = 1000 * arguments.lines or 500
    if arguments.unseen and not arguments.lines:
        raise UserError("--unseen: leaves out lines, and needs --lines N to know how many to write")
    if arguments.seed is None:
        arguments.seed = secrets.randbits(32)
    alone = {
        "--json": arguments.json,
        "--samples": arguments.samples > 1,
        "several temperatures": len(arguments.temperatures) > 1,
        "--prompt-file -": arguments.prompt_file == "-",
    }
    if arguments.interactive and any(alone.values()):
        other = next(option for option, given in alone.items() if given)
        raise UserError(f"--interactive: {other} given as well; leave out one of the two")
    return arguments


def add_text_options(group: Any) -> None:
    add = group.add_argument
    either = group.add_mutually_exclusive_group().add_argument
    either("--prompt", metavar="TEXT", default="", help="text to continue (default: none, the text begins on a new line)")
    either("--prompt-file", metavar="FILE", help="the same from a UTF-8 file, every character of it; - is standard input")
    add(
        "--unknown",
        choices=("error", "skip"),
        default="error",
        help="what to do with characters of the prompt that the model has never seen (default: error)",
    )
    add(
        "--length",
        type=whole_number(0),
        metavar="N",
        help="write at most N characters (default: 500, or 1000 for each of --lines)",
    )
    add("--lines", type=whole_number(1), default=0, metavar="N", help="end a text with its Nth line")
    add(
        "--unseen", action="store_true", help="with --lines: leave out lines that stand in the text that the model learned from"
    )
    add(
        "--stop",
        action="append",
        default=[],
        metavar="TEXT",
        help="end a text before TEXT appears; may be given several times; in bash $'\\n\\n' is an empty line",
    )
    add(
        "--samples",
        type=whole_number(1),
        default=1,
        metavar="N",
        help="write N texts, a line of dashes between them (default: 1)",
    )
    add(
        "--seed",
        type=whole_number(0),
        metavar="S",
        help="the same seed and options write the same text; the Nth sample of seed S is the first of seed S + N - 1 "
        "(default: a new one, which is printed)",
    )
    add(
        "--overflow",
        choices=("exact", "refill"),
        default="exact",
        help="past the model's block_size: exact reads the last block_size characters again for every new one; refill, much "
        "faster, forgets half of them whenever the block is full; up to there the two are the same (default: exact)",
    )


def add_choice_options(group: Any) -> None:
    add = group.add_argument
    add("--allow", metavar="CHARACTERS", help="write no others")
    add("--ban", metavar="CHARACTERS", help="never write these")
    add(
        "--repetition-penalty",
        type=number,
        default=1.0,
        metavar="R",
        help="in a passage that repeats more than 10 of the last 1024 characters, each further one gets R times less likely "
        "(default: 1, off)",
    )
    add(
        "--temperature",
        dest="temperatures",
        type=numbers,
        default=[0.8],
        metavar="T",
        help="0 takes the likeliest each time, 1 is the model as trained, more is wilder; 0.5,0.8,1.1 writes the samples at "
        "each of these (default: 0.8)",
    )
    add("--top-k", type=whole_number(0), default=0, metavar="K", help="only the K likeliest (default: 0, all)")
    add(
        "--top-p",
        type=number,
        default=1.0,
        metavar="P",
        help="only the fewest that together have probability P (default: 1, all)",
    )
    add(
        "--min-p",
        type=number,
        default=0.0,
        metavar="P",
        help="only what is at least P times as likely as the likeliest (default: 0, all)",
    )


def add_output_options(group: Any) -> None:
    either = group.add_mutually_exclusive_group().add_argument
    either("--json", action="store_true", help="an object a line for each sample, with the log-probability of each character")
    either("--surprise", action="store_true", help="colour each character by how little the model expected it")
    group.add_argument(
        "--interactive",
        action="store_true",
        help="type, and watch the model go on: \\n is a new line, Enter alone writes more, Ctrl-C stops the "
        "text, Ctrl-D leaves",
    )


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
        distinct = "".join(dict.fromkeys(skipped))
        say(f"skipped {len(skipped):,} characters that the model has never seen: {one_line(distinct)}")
    return ids.tolist()


def lines_learned(checkpoint: Any, config: Any, tokenizer: Tokenizer) -> Callable[[str], bool]:
    """Whether a line stands in the text that the model of `checkpoint` learned from. Raises UserError if that is gone."""
    from chargpt.runs.load import corpus_of, without_cache
    from chargpt.sampling.known_lines import Known

    return Known(corpus_of(checkpoint, without_cache(config), root=CHECKPOINTS.parent).train, tokenizer)


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
    from chargpt.device import choose_device
    from chargpt.runs.load import find_checkpoint, restore_model
    from chargpt.sampling.c_decoder import fastest_scribe
    from chargpt.sampling.decoder import Sampling
    from chargpt.sampling.interactive import converse
    from chargpt.sampling.printing import LEGEND, JsonPrinter, TextPrinter, coloured, plain, print_samples
    from chargpt.sampling.text_generator import Writer

    with options_named():
        device = choose_device(RuntimeConfig(device=arguments.device).device)
        chosen = options_of(Sampling, arguments)
        samplings = [Sampling(temperature=temperature, **chosen) for temperature in arguments.temperatures]
    checkpoint, warnings = find_checkpoint(arguments.run, CHECKPOINTS)
    for warning in warnings:
        say(f"warning: {one_line(warning)}")
    model, tokenizer, config = restore_model(checkpoint)
    encode = functools.partial(encode_prompt, tokenizer=tokenizer, unknown=arguments.unknown)
    prompt = encode(read_prompt(arguments))
    scribe, engine = fastest_scribe(device)
    leave_out = lines_learned(checkpoint, config, tokenizer) if arguments.unseen else None
    with options_named():
        writer = Writer(
            model=model.to(device),
            tokenizer=tokenizer,
            sampling=samplings[0],
            scribe=scribe,
            leave_out=leave_out,
            **options_of(Writer, arguments),
        )

    run, loss = checkpoint.path.resolve().parent.name, checkpoint.state.progress.val_loss
    quality = f", validation loss {loss:.4f}" if isinstance(loss, float) else ""
    say(
        f"{one_line(run)}, step {checkpoint.step:,}{quality}, {model.parameter_count():,} parameters, {engine}; "
        f"{' / '.join(sampling.describe() for sampling in samplings)}, seed {arguments.seed}"
    )
    if arguments.surprise:
        say(LEGEND)
    paint = coloured if arguments.surprise else plain
    if arguments.interactive:
        converse(writer, prompt, encode=encode, seed=arguments.seed, paint=paint)
        return 0

    printer = JsonPrinter(sys.stdout) if arguments.json else TextPrinter(sys.stdout, paint=paint)
    seeds = range(arguments.seed, arguments.seed + arguments.samples)
    started = time.monotonic()
    made = print_samples(writer, samplings, prompt, seeds, printer=printer, facts={"run": run, "step": checkpoint.step})
    seconds = time.monotonic() - started
    say(f"{made:,} characters in {seconds:.1f} s, {made / seconds:,.0f} a second")
    return 0


if __name__ == "__main__":
    sys.exit(run_program(main))
