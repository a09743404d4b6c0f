"""Write text with a trained model: run in, text out.

The text goes to standard output as it is made; what was chosen, and how fast it went, to standard error.
"""

import argparse
import dataclasses
import functools
import secrets
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from chargpt.arguments import Parser, number, whole_number
from chargpt.errors import UserError, one_line, run_program
from chargpt.tokenizer import Tokenizer

CHECKPOINTS = Path(__file__).resolve().parent / "checkpoints"
SEPARATOR = "-" * 15
TOGETHER = 32  # samples made in one batch: most of what batching gains, at a bounded memory


def parse_arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = Parser(
        prog="sample.py",
        usage="sample.py [RUN] [--prompt TEXT | --prompt-file FILE] [--length N] [--samples N] [--temperature T] [--top-k K] "
        "[--top-p P] [--min-p P] [--seed S] [--stop TEXT] [--unknown error|skip] [--overflow exact|refill] [--device D]",
        description="Write text with a trained model. The prompt comes first, then its continuation.",
    )
    add = parser.add_argument
    add("run", nargs="?", metavar="RUN", help="a run's name below checkpoints/, or the path of a run or of one of its step folders "
        "(default: the newest run); of a run, its best checkpoint writes")
    prompt = parser.add_mutually_exclusive_group()
    prompt.add_argument("--prompt", metavar="TEXT", default="", help="text to continue (default: none; the text starts on a new line)")
    prompt.add_argument("--prompt-file", metavar="FILE", help="the same from a UTF-8 file, every character of it; - is standard input")
    add("--length", type=whole_number(0), default=500, metavar="N", help="characters to write after the prompt (default: 500)")
    add("--samples", type=whole_number(1), default=1, metavar="N", help="texts to write, divided by a line of dashes (default: 1)")
    add("--temperature", type=number, default=0.8, metavar="T", help="0 takes the likeliest character each time, 1 is the model as "
        "trained, more is wilder (default: 0.8)")
    add("--top-k", type=whole_number(0), default=0, metavar="K", help="choose among the K likeliest characters (default: 0, all)")
    add("--top-p", type=number, default=1.0, metavar="P", help="choose among the fewest characters that are together as likely as P "
        "(default: 1, all)")
    add("--min-p", type=number, default=0.0, metavar="P", help="choose among characters at least P times as likely as the likeliest "
        "(default: 0, all)")
    add("--seed", type=whole_number(0), metavar="S", help="the same seed and options write the same text; sample i of seed S is the only "
        "one of seed S+i-1 (default: a new one, which is printed)")
    add("--stop", metavar="TEXT", help="end a sample where TEXT appears, without TEXT; a line in bash: --stop $'\\n'")
    add("--unknown", choices=("error", "skip"), default="error", help="what to do with characters of the prompt that the model has "
        "never seen (default: error)")
    add("--overflow", choices=("exact", "refill"), default="exact", help="past the model's context, either read its last block_size "
        "characters again for each new one, or, much faster, forget half of it whenever it is full (default: exact)")
    add("--device", metavar="D", default="auto", help="auto, cpu, cuda, cuda:N or mps (default: auto)")
    arguments = parser.parse_args(argv)
    if arguments.stop == "":
        raise UserError("--stop: '' given; use a text of at least one character")
    return arguments


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
    """The prompt's ids. Characters that the model has never seen are an error, or with `skip` left out and listed."""
    if unknown == "error":
        try:
            return tokenizer.encode(text).tolist()
        except UserError as error:
            raise UserError(f"{error}, or leave them out with --unknown skip") from None
    ids, skipped = tokenizer.encode_known(text)
    if skipped:
        say(f"skipped {len(skipped):,} characters that the model has never seen: {one_line(''.join(dict.fromkeys(skipped)))}")
    return ids.tolist()


def encode_stop(text: str, tokenizer: Tokenizer) -> str:
    """The stop text as the model would write it. Raises UserError if it never can."""
    ids, unknown = tokenizer.encode_known(text)
    if unknown or set(ids.tolist()) & set(tokenizer.never_sampled):
        raise UserError(f"--stop: {text!r} has characters that the model never writes; use another")
    return tokenizer.decode(ids)


def write_samples(write: Callable[[Sequence[int]], Iterator[list[str]]], *, echo: str, seed: int, samples: int) -> int:
    """Print what `write` makes of each seed, the first of a batch while it is made; the number of characters made."""
    made = 0
    for start in range(0, samples, TOGETHER):
        seeds = range(seed + start, seed + min(start + TOGETHER, samples))
        texts = [[] for _ in seeds]
        show(f"{SEPARATOR}\n{echo}" if start else echo)
        for pieces in write(seeds):
            show(pieces[0])
            for text, piece in zip(texts, pieces):
                text.append(piece)
        show("\n")
        for text in texts[1:]:
            show(f"{SEPARATOR}\n{echo}{''.join(text)}\n")
        made += sum(len(piece) for text in texts for piece in text)
    return made


def show(text: str) -> None:
    if text:
        sys.stdout.write(text)
        sys.stdout.flush()


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main(argv: list[str] | None = None) -> int:
    arguments = parse_arguments(argv)
    # Only now: torch takes a second or two to import, and a mistyped option is answered before that.
    from chargpt.config import RuntimeConfig
    from chargpt.continuation import Writer
    from chargpt.generate import Sampling, first_id
    from chargpt.restore import find_checkpoint, restore_model
    from chargpt.runtime import choose_device

    try:
        sampling = Sampling(**{field.name: getattr(arguments, field.name) for field in dataclasses.fields(Sampling)})
        device = choose_device(RuntimeConfig(device=arguments.device).device)
    except ValueError as error:
        field, _, problem = str(error).partition(":")
        raise UserError(f"--{field.replace('_', '-')}:{problem}") from None
    checkpoint, warnings = find_checkpoint(arguments.run, CHECKPOINTS)
    for warning in warnings:
        say(f"warning: {warning}")
    model, tokenizer, _ = restore_model(checkpoint)
    prompt = encode_prompt(read_prompt(arguments), tokenizer, arguments.unknown)
    stops = (encode_stop(arguments.stop, tokenizer),) if arguments.stop else ()
    seed = secrets.randbits(32) if arguments.seed is None else arguments.seed
    loss = checkpoint.state.get("val_loss")
    say(
        f"{checkpoint.path.parent.name}, step {checkpoint.step:,}, "
        + (f"validation loss {loss:.4f}, " if loss is not None else "")
        + f"{model.parameter_count():,} parameters, {device}; temperature {sampling.temperature:g}, top-k {sampling.top_k}, "
        f"top-p {sampling.top_p:g}, min-p {sampling.min_p:g}, seed {seed}"
    )
    writer = Writer(model=model.to(device), tokenizer=tokenizer, sampling=sampling, length=arguments.length, stops=stops,
                    overflow=arguments.overflow)
    started = time.monotonic()
    write = functools.partial(writer.write, prompt or [first_id(tokenizer)])
    made = write_samples(write, echo=tokenizer.decode(prompt), seed=seed, samples=arguments.samples)
    seconds = time.monotonic() - started
    say(f"{made:,} characters in {seconds:.1f} s, {made / seconds:,.0f} a second")
    return 0


if __name__ == "__main__":
    sys.exit(run_program(main))
