"""Train a character-level GPT: text in, run out.

The story: choose settings, begin a run (or pick one up where it stopped), then step, log, evaluate and save until the
last step or a signal. What each word means is in chargpt/, one noun a file.
"""

import argparse
import contextlib
import dataclasses
import itertools
import math
import os
import shlex
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from chargpt.config import Config, apply, apply_overrides, read_yaml, to_dict
from chargpt.device import choose_device
from chargpt.interrupt import Interrupt
from chargpt.runs.checkpoint import Checkpoint, steps
from chargpt.runs.load import find_checkpoint, settings_of, tokenizer_of
from chargpt.runs.run import Progress, Run, begin, folder_of, resume, roll_back, save, say, write_config
from chargpt.sampling.decoder import first_id, stream
from chargpt.sampling.rules import Sampling
from chargpt.terminal import BestEffortStream, Parser, UserError, number, one_line, run_program, shown
from chargpt.text.corpus import Corpus
from chargpt.text.report import examine, outlook
from chargpt.training.batches import Windows
from chargpt.training.evaluation import evaluate
from chargpt.training.metrics import Metrics
from chargpt.training.optimizers import Optimizer, learning_rate
from chargpt.training.progress_bar import Screen, clock
from chargpt.training.recipes import suited
from chargpt.training.time_budget import SETTLING_STEPS, Pace

ROOT = Path(__file__).resolve().parent
CHECKPOINTS = ROOT / "checkpoints"
SAMPLING = Sampling(temperature=0.8)  # of the samples shown while training
MOST_ROLLBACKS = 3
SWEEP_STEPS = 200  # at each rate that --find-lr tries
MINUTES_WORTH_COMPILING = 3  # in fewer, compiling for a GPU would take too large a part of them; a guess


class NotFinite(Exception):
    """A loss, a gradient or a weight is infinite or not a number, and the batch of `step` is to blame."""

    def __init__(self, what: str, *, step: int) -> None:
        super().__init__(f"step {step + 1:,}: {what}")
        self.step = step


def parse_arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = Parser(
        prog="train.py",
        usage="train.py [TEXT ...] [--config FILE] [--run NAME] [--resume] [--minutes M] [--device D] [--init-from RUN] "
        "[--vocab-from RUN] [--find-lr] [section.key=value ...]",
        description="Train a character-level GPT on a text; with no TEXT, on the language reference that every Python carries.",
    )
    add = parser.add_argument
    add(
        "words",
        nargs="*",
        metavar="TEXT",
        help="a file, several, a folder, - for standard input, or a named corpus: "
        "python-docs (the default), python-source, shakespeare; and settings, section.key=value",
    )
    add("--config", metavar="FILE", help="settings as YAML, or a preset's name (default: cpu or gpu, as the device is)")
    add("--run", metavar="NAME", help="the run's name in checkpoints/, or a path (default: the text's name)")
    add("--resume", action="store_true", help="go on with a run that stopped: the newest, or --run NAME")
    add("--minutes", type=number, metavar="M", help="measure the speed, then take as many steps as fit into M minutes")
    add("--device", metavar="D", help="auto, cpu, cuda, cuda:N or mps (the same as runtime.device=D)")
    add("--init-from", metavar="RUN", help="start from the weights of a run, matched by character, instead of random ones")
    add(
        "--find-lr",
        action="store_true",
        help="instead of a run: short trainings at a range of learning rates, and a suggestion",
    )
    add("--vocab-from", metavar="RUN", help="use the vocabulary of a run; a character that it lacks is an error")
    arguments = parser.parse_intermixed_args(argv)
    arguments.texts = [word for word in arguments.words if not _is_setting(word)]
    arguments.settings = [word for word in arguments.words if _is_setting(word)]
    if "" in arguments.texts:
        raise UserError("TEXT: an empty name given; is a variable of your shell unset?")
    if len({os.path.abspath(text) for text in arguments.texts}) < len(arguments.texts):
        raise UserError("TEXT: the same text given twice; its validation part would be learned too")
    if arguments.device is not None:
        arguments.settings.append(f"runtime.device={arguments.device}")
    if arguments.minutes is not None and not 0 < arguments.minutes < math.inf:
        raise UserError(f"--minutes: {arguments.minutes:g} given; use a number above 0")
    if arguments.find_lr and (arguments.resume or arguments.minutes is not None):
        raise UserError(
            "--find-lr: trains a few hundred steps again and again from the start; leave out --resume and --minutes"
        )
    begins = (arguments.config, arguments.init_from, arguments.vocab_from)
    if arguments.resume and (arguments.texts or any(option is not None for option in begins)):
        raise UserError(
            "--resume: text, settings and weights come from the run; leave out TEXT, --config, --init-from and "
            "--vocab-from, or start a new run with --run NAME"
        )
    return arguments


def _is_setting(word: str) -> bool:
    return "=" in word and not os.path.exists(word)


def new_run(arguments: argparse.Namespace) -> Run:
    """A run at step 0, with the settings of a preset or file and of the command line."""
    asked = apply_overrides(Config(), [setting for setting in arguments.settings if setting.startswith("runtime.")])
    file = _config_file(arguments.config, choose_device(asked.runtime.device).type)
    config = apply(Config(), read_yaml(file), where=shown(file))
    source, vocabulary = None, None
    if arguments.init_from is not None:
        source = _checkpoint_of(arguments.init_from)
        config = apply(config, {"model": to_dict(settings_of(source))["model"]}, where=arguments.init_from)
    if arguments.vocab_from is not None:
        vocabulary = tokenizer_of(_checkpoint_of(arguments.vocab_from))
    config = apply_overrides(config, arguments.settings)
    given = {setting.partition("=")[0].strip() for setting in arguments.settings}
    if arguments.minutes is not None:
        given.add("train.max_steps")
        if arguments.minutes < MINUTES_WORTH_COMPILING and config.runtime.compile == "auto":
            config = apply_overrides(config, ["runtime.compile=off"])

    def suit(config: Config, corpus: Corpus) -> Config:
        """A preset that nobody asked for follows the text."""
        if arguments.config is not None:
            return config
        config, chosen = suited(config, characters=len(corpus.train), vocab_size=corpus.tokenizer.vocab_size, given=given)
        if chosen:
            say("chosen", chosen)
        return config

    run = begin(
        arguments.texts, config, name=arguments.run, checkpoints=CHECKPOINTS, vocabulary=vocabulary, source=source, suit=suit
    )
    say("settings", shown(file) + "".join(f", {setting}" for setting in arguments.settings))
    return run


def _checkpoint_of(name: str) -> Checkpoint:
    checkpoint, warnings = find_checkpoint(name, CHECKPOINTS)
    for warning in warnings:
        say("warning", one_line(warning))
    return checkpoint


def _config_file(given: str | None, device_type: str) -> Path:
    if given is None:
        return ROOT / "configs" / ("gpu.yaml" if device_type == "cuda" else "cpu.yaml")
    for path in (Path(given), ROOT / "configs" / given, ROOT / "configs" / f"{given}.yaml"):
        if path.is_file():
            return path
    presets = ", ".join(sorted(path.stem for path in (ROOT / "configs").glob("*.yaml")))
    raise UserError(f"--config: {given!r} is no file; give a YAML file, or one of {presets}")


def describe(run: Run) -> None:
    """Print every choice that was made for the user."""
    config, model = run.config, run.config.model
    for line in run.corpus.describe():
        print(line)
    if run.saved is None:  # a new run: look at its text before spending time on it
        for line in examine(run.corpus):
            print(line)
    total = config.train.max_steps * run.chars_per_step
    evaluated = len(validation_part(run)) - 1
    if evaluated < len(run.corpus.val) - 1:
        say("evaluated", f"on the first {evaluated:,} characters of the validation part; train.eval_chars=0 takes all")
    say(
        "model",
        f"{run.model.parameter_count():,} parameters: {model.n_layer} layers, {model.n_head} heads, width {model.n_embd}, "
        f"context {model.block_size}, {model.positions} positions, dropout {model.dropout:g}",
    )
    say("machine", run.runtime.describe())
    say(
        "training",
        f"{config.train.max_steps:,} steps of {run.chars_per_step:,} characters, "
        f"{total / len(run.corpus.train):.1f} times the text; "
        f"{config.optim.name}, rate {config.optim.learning_rate:g}, {config.optim.schedule} schedule",
    )
    say("run", f"{shown(run.folder)}   (curves: tensorboard --logdir {shown(run.folder.parent)})")


def train(run: Run, *, interrupt: Interrupt, deadline: float | None) -> None:
    """Step, log, evaluate and save until the last step or a signal. `deadline`, on time.monotonic, fixes the last step."""
    config, progress = run.config, run.progress
    windows = batches_of(run)
    loss_of = run.runtime.loss_of(run.weights.working.train())
    metrics = Metrics(run.folder, step=-1 if run.saved is None else progress.step)
    screen = Screen(step=progress.step, total=config.train.max_steps)
    pace, look, ahead = Pace(), None, config.train.max_steps - progress.step
    try:
        while True:
            with pace.aside():
                finished = evaluate_and_save(run, metrics, screen, interrupt)
            if finished:
                break
            grad_norm = take_step(run, windows, loss_of)
            pace.stepped()
            screen.advance()
            if progress.step % config.train.log_interval == 0 and progress.loss_count:
                log_step(run, metrics, screen, grad_norm=grad_norm, steps_per_second=pace.lap())
            # A run may be shorter than it takes to be sure of its pace; a quarter of it has to do then.
            if look is None and (pace.settled or pace.steps > SETTLING_STEPS and pace.steps >= ahead // 4):
                look = fix_length(run, metrics, screen, pace, deadline)
                speed = run.chars_per_step / pace.seconds_per_step
                screen.say(outlook(run.corpus, run.config, parameters=run.model.parameter_count(), characters_per_second=speed))
            elif progress.step == look and deadline is not None:
                look = fix_length(run, metrics, screen, pace, deadline)  # once more: machines grow tired
    finally:
        screen.close()
        metrics.close()


def batches_of(run: Run) -> Windows:
    """The windows of the training part, a batch for each step."""
    model, train_config, runtime = run.config.model, run.config.train, run.runtime
    return Windows(
        run.corpus.train,
        model.block_size,
        batch_size=train_config.batch_size,
        accumulate=train_config.accumulate,
        seed=train_config.seed,
        device=runtime.device,
        resident=runtime.holds(run.corpus.train),
    )


def take_step(run: Run, windows: Windows, loss_of: Callable[[Tensor, Tensor], Tensor]) -> float:
    """One update of the weights by the gradient of `loss_of(inputs, targets)`; its norm before clipping.

    Raises NotFinite, with the weights untouched, when loss or gradient is not a number that one could learn from.
    """
    config, progress, step = run.config, run.progress, run.progress.step
    if step in progress.skipped:
        progress.step += 1
        return 0.0
    if config.model.dropout:
        torch.manual_seed((config.train.seed * 1_000_003 + step) % 2**63)  # dropout, like the batch, follows from (seed, step)
    total = torch.zeros((), device=run.runtime.device)
    for micro in range(config.train.accumulate):
        part = loss_of(*windows.batch(step, micro)) / config.train.accumulate
        run.weights.add_gradient(part)
        total += part.detach()
    loss, grad_norm = torch.stack(
        (total, run.weights.gradient_norm())
    ).tolist()  # the one wait for a GPU, if the text lies there
    if not (math.isfinite(loss) and math.isfinite(grad_norm)):
        raise NotFinite(f"loss {loss}, gradient norm {grad_norm}", step=step)
    longest = config.optim.grad_clip or math.inf
    if grad_norm > longest:
        run.weights.gradient *= longest / grad_norm
    run.optimizer.step(rate_of(run, step))
    progress.step += 1
    progress.loss_sum += loss
    progress.loss_count += 1
    return grad_norm


def rate_of(run: Run, step: int) -> float:
    """The learning rate of a step: the schedule's, halved by every rollback."""
    return learning_rate(step, run.config.optim, max_steps=run.config.train.max_steps) * 0.5 ** len(run.progress.skipped)


def end_in(minutes: float, run: Run, *, started: float) -> float:
    """When, on time.monotonic, a run of so many minutes is to end. It gets as many steps as it takes to see how many fit."""
    least = run.progress.step + SETTLING_STEPS + 1
    train_config = dataclasses.replace(run.config.train, max_steps=max(least, run.config.train.max_steps))
    run.config = dataclasses.replace(run.config, train=train_config)
    unseen = min(2.0, 0.6 * minutes)  # seconds before this clock starts and after the last evaluation
    return started + 60 * minutes - unseen


def fix_length(run: Run, metrics: Metrics, screen: Screen, pace: Pace, deadline: float | None) -> int:
    """The speed is known: say how long the run will take or, given a deadline, make it as long as fits.

    Returns the step at which to look again, halfway to the end, or 0 when little is left.
    """
    train_config, step = run.config.train, run.progress.step
    pace.measure()
    if deadline is not None:
        fits = pace.steps_within(deadline - time.monotonic(), eval_interval=train_config.eval_interval)
        train_config = dataclasses.replace(train_config, max_steps=step + max(1, fits))
        warmup = min(run.config.optim.warmup_steps, train_config.max_steps // 2)  # as it is now, should the run become longer
        run.config = dataclasses.replace(
            run.config, train=train_config, optim=dataclasses.replace(run.config.optim, warmup_steps=warmup)
        )
        write_config(run)
        save_logged(run, metrics)  # from here on a resumed run knows its length
        screen.set_total(train_config.max_steps)
    left = train_config.max_steps - step
    seconds = left * pace.seconds_per_step + pace.aside_seconds * (1 + left // train_config.eval_interval)
    screen.say(
        f"{'pace':<12}{1000 * pace.seconds_per_step:.1f} ms a step; {train_config.max_steps:,} steps, done in {clock(seconds)}"
    )
    return step + left // 2 if left > train_config.max_steps // 16 else 0


def log_step(run: Run, metrics: Metrics, screen: Screen, *, grad_norm: float, steps_per_second: float) -> None:
    """Record the mean training loss since the last log, and how the step went."""
    progress = run.progress
    values = {
        "train/loss": progress.loss_sum / progress.loss_count,
        "lr": rate_of(run, progress.step - 1),
        "grad_norm": grad_norm,
    }
    if steps_per_second:
        values["chars_per_second"] = steps_per_second * run.chars_per_step
    progress.loss_sum, progress.loss_count = 0.0, 0
    metrics.log(progress.step, values)
    screen.show(progress.step, values)


def evaluate_and_save(run: Run, metrics: Metrics, screen: Screen, interrupt: Interrupt) -> bool:
    """Between two steps: evaluate if it is time, save if there is reason to; True when the run is over or stopped."""
    config, progress = run.config, run.progress
    last = progress.step >= config.train.max_steps or out_of_patience(run)
    if (last or progress.step % config.train.eval_interval == 0) and progress.evaluated != progress.step:
        evaluate_run(run, metrics, screen, interrupt)
        last = progress.step >= config.train.max_steps or out_of_patience(run)
    improved = progress.best_step == progress.step
    resaved = run.saved is not None and run.saved[0].step == progress.step  # evaluated or changed since it was saved
    due = improved or resaved or last or interrupt() or progress.step % config.checkpoint.interval == 0
    if due and run.saved != (progress, config):
        save_logged(run, metrics)
    return last or interrupt()


def save_logged(run: Run, metrics: Metrics) -> None:
    """A checkpoint of weights that are finite, once everything up to it is logged on disk."""
    if not run.weights.finite():
        raise NotFinite("it made weights that are not finite", step=run.progress.step - 1)
    metrics.flush()
    save(run)


def out_of_patience(run: Run) -> bool:
    """Whether the last `train.patience` evaluations have brought no better loss."""
    progress, allowed = run.progress, run.config.train.patience
    return bool(allowed and progress.best_step is not None) and (
        progress.evaluated - progress.best_step >= allowed * run.config.train.eval_interval
    )


def validation_part(run: Run) -> np.ndarray:
    """What an evaluation goes over: all of the validation part or, of a large one, the first `train.eval_chars` predictions.

    150,000 of them fix the loss to about 0.004; more would only cost time.
    """
    limit = run.config.train.eval_chars
    return run.corpus.val[: limit + 1] if limit else run.corpus.val


def evaluate_run(run: Run, metrics: Metrics, screen: Screen, interrupt: Interrupt) -> None:
    """The loss over the validation part, and a sample. Nothing of it when a signal comes."""
    progress = run.progress
    loss = evaluate(run.weights.working, validation_part(run), stop=interrupt)
    if loss is None:
        return
    if not math.isfinite(loss):
        raise NotFinite(f"the validation loss after it is {loss}", step=progress.step - 1)
    sample = write_sample(run, interrupt)
    if interrupt():
        return
    progress.evaluated, progress.val_loss = progress.step, loss
    if progress.best_loss is None or loss < progress.best_loss:
        progress.best_loss, progress.best_step = loss, progress.step
    values = {"val/loss": loss, "val/bits_per_char": loss / math.log(2)}
    screen.show(progress.step, values)
    metrics.log(progress.step, values | ({"sample": sample} if sample else {}))


def write_sample(run: Run, interrupt: Interrupt) -> str:
    """A text by the model as it is now, from a random state of its own, cut short when a signal comes."""
    tokenizer, device = run.corpus.tokenizer, run.runtime.device
    prompt = torch.tensor([[first_id(tokenizer)]], device=device)
    generator = torch.Generator().manual_seed(run.config.train.seed)
    length = run.config.train.sample_length
    ids = stream(run.weights.working, prompt, length, SAMPLING, generator=generator, never_sampled=tokenizer.never_sampled)
    return tokenizer.decode(int(id) for id in itertools.takewhile(lambda _: not interrupt(), ids))


def train_to_the_end(run: Run, *, interrupt: Interrupt, deadline: float | None) -> int:
    """`train`, and what follows when a step is not finite or the run stops; the exit code."""
    while True:
        try:
            train(run, interrupt=interrupt, deadline=deadline)
            return conclude(run, interrupt)
        except NotFinite as problem:
            if run.config.train.on_nonfinite == "stop" or len(run.progress.skipped) >= MOST_ROLLBACKS:
                print(
                    f"error: {problem}; nothing of it was saved. The last good checkpoint is {shown(steps(run.folder)[-1])}; go on "
                    f"from it with --resume --run {_name(run)} and a lower optim.learning_rate, or with "
                    "train.on_nonfinite=rollback",
                    file=sys.stderr,
                )
                return 3
            back = roll_back(run, problem.step)
            say("rollback", f"{problem}; back to {shown(back)}, at half the rate and without that batch")


def conclude(run: Run, interrupt: Interrupt) -> int:
    """Say how the run ended and what to type next; the exit code."""
    progress = run.progress
    if interrupt():
        say("stopped", f"at step {progress.step:,}, saved; go on with: python train.py --resume --run {_name(run)}")
        return interrupt.exit_code
    if run.config.train.sample_length:
        print(f"\n{write_sample(run, interrupt).strip()}\n")
    if progress.step < run.config.train.max_steps:
        say(
            "ended",
            f"at step {progress.step:,}: no better validation loss in {run.config.train.patience} evaluations; go on with "
            f"--resume --run {_name(run)} train.patience=0",
        )
    say(
        "done",
        f"validation loss {progress.val_loss:.4f} ({progress.val_loss / math.log(2):.4f} bits per character), "
        f"best {progress.best_loss:.4f} at step {progress.best_step:,}",
    )
    say("sample", f"python sample.py {_name(run)}")
    return 0


def find_lr(arguments: argparse.Namespace) -> int:
    """Instead of a run: short trainings at a range of rates, all from the same weights on the same batches.

    The loss is the training loss of the last steps, text not seen before unless it is short: the validation part has no say.
    """
    from chargpt.training.rate_finder import record, suggestion, sweep  # only here: it needs a library that draws

    with tempfile.TemporaryDirectory() as aside, Interrupt() as interrupt:
        name, arguments.run = arguments.run, f"{aside}/run"
        run = new_run(arguments)
        folder = folder_of(run.corpus.name if name is None else name, CHECKPOINTS)
        folder = folder.with_name(f"{folder.name}-find-lr")
        folder.mkdir(parents=True, exist_ok=True)
        optim = dataclasses.replace(run.config.optim, warmup_steps=min(run.config.optim.warmup_steps, SWEEP_STEPS // 10))
        train_config = dataclasses.replace(run.config.train, max_steps=SWEEP_STEPS)
        windows, loss_of, start = batches_of(run), run.runtime.loss_of(run.weights.working), run.weights.vector.clone()

        def loss_at(rate: float) -> float:
            run.config = dataclasses.replace(
                run.config, train=train_config, optim=dataclasses.replace(optim, learning_rate=rate)
            )
            run.weights.vector.copy_(start)
            run.weights.refresh()
            run.optimizer, run.progress = Optimizer(run.weights, run.config.optim), Progress()
            losses = []
            with contextlib.suppress(NotFinite):
                while len(losses) < SWEEP_STEPS and not interrupt():
                    take_step(run, windows, loss_of)
                    losses.append(run.progress.loss_sum)
            if interrupt():
                return math.nan
            loss = (losses[-1] - losses[-21]) / 20 if len(losses) == SWEEP_STEPS else math.inf
            say("rate", f"{rate:.4f}: loss {loss:.3f}" if loss < math.inf else f"{rate:.4f}: diverged")
            return loss

        say("sweep", f"{SWEEP_STEPS} steps at each rate, the schedule included, until one is clearly too high")
        curve = list(sweep(loss_at, stop=interrupt))
    if not any(loss < math.inf for _, loss in curve):
        if interrupt():
            return interrupt.exit_code
        raise UserError("--find-lr: every rate diverged; look for a setting that is far off, such as optim.weight_decay")
    best = suggestion(curve)
    say("drawn", f"{shown(record(curve, folder))}   (and in tensorboard --logdir {shown(folder.parent)})")
    say("suggested", f"optim.learning_rate={best:.1e}")
    return interrupt.exit_code


def _name(run: Run) -> str:
    """What to call the run by on a command line."""
    return shlex.quote(run.folder.name if run.folder.parent == CHECKPOINTS else shown(run.folder))


def main(argv: list[str] | None = None) -> int:
    started = time.monotonic()
    arguments = parse_arguments(argv)
    if arguments.find_lr:
        return find_lr(arguments)
    if arguments.resume:
        run = resume(arguments.run, arguments.settings, checkpoints=CHECKPOINTS)
    else:
        run = new_run(arguments)
    deadline = None if arguments.minutes is None else end_in(arguments.minutes, run, started=started)
    # From here on no reader that leaves (`| head`, a closed terminal) may cost the run.
    forgiving = (
        contextlib.redirect_stdout(BestEffortStream(sys.stdout)),
        contextlib.redirect_stderr(BestEffortStream(sys.stderr)),
    )
    with forgiving[0], forgiving[1], Interrupt() as interrupt:
        describe(run)
        write_config(run)
        return train_to_the_end(run, interrupt=interrupt, deadline=deadline)


if __name__ == "__main__":
    sys.exit(run_program(main))
