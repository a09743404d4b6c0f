"""Train a character-level GPT: text in, run out.

The story: choose settings, read the text, build the model (or pick up a run where it stopped), then step, log,
evaluate, save, until the last step or a signal. What each word means is in chargpt/, one noun a file.
"""

import argparse
import dataclasses
import math
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import torch

from chargpt.arguments import Parser, number
from chargpt.checkpoint import mark_best, newest, prune, publish, remove_orphans, steps
from chargpt.config import Config, apply, apply_overrides, difference, read_yaml, to_dict, to_yaml
from chargpt.corpus import Corpus, load_corpus
from chargpt.errors import UserError, one_line, run_program, shown
from chargpt.evaluation import evaluate
from chargpt.generate import Sampling, first_id, stream
from chargpt.interrupt import Interrupt
from chargpt.metrics import Metrics
from chargpt.optim import learning_rate, load_optimizer_tensors, make_optimizer, optimizer_tensors, set_learning_rate
from chargpt.pace import Pace
from chargpt.restore import expected_weights, find_run, restore_model
from chargpt.runtime import Runtime, choose_device, choose_runtime
from chargpt.screen import Screen, clock
from chargpt.windows import Windows
from model import GPT

ROOT = Path(__file__).resolve().parent
CHECKPOINTS = ROOT / "checkpoints"
SAMPLING = Sampling(temperature=0.8)  # of the samples shown while training

# A resumed run may change how it goes on, never what it has been: these decide the model or which text a step reads.
FIXED = ("model.", "data.", "train.seed", "train.batch_size", "train.accumulate", "optim.name")


@dataclass
class Progress:
    """Where a run stands. With weights and optimizer, everything that the rest of the run depends on."""

    step: int = 0
    evaluated: int | None = None  # the step of the last evaluation
    val_loss: float | None = None
    best_loss: float | None = None
    best_step: int | None = None
    loss_sum: float = 0.0  # of the steps since the last log
    loss_count: int = 0


@dataclass
class Run:
    """A training under way: its folder, its settings, and the objects made from them."""

    folder: Path
    texts: list[str]
    config: Config
    runtime: Runtime
    corpus: Corpus
    model: GPT
    optimizer: torch.optim.Optimizer
    progress: Progress
    saved: Progress | None = None  # what the newest checkpoint holds


class NotFinite(Exception):
    """The loss or the gradient of a step is infinite or not a number."""


def parse_arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = Parser(
        prog="train.py",
        usage="train.py [TEXT ...] [--config FILE] [--run NAME] [--resume] [--minutes M] [--device D] [section.key=value ...]",
        description="Train a character-level GPT on a text; with no TEXT, on the language reference that every Python carries.",
    )
    parser.add_argument("words", nargs="*", metavar="TEXT", help="a file, several, a folder, - for standard input, or a named "
                        "corpus: python-docs (the default), python-source, shakespeare; and settings, section.key=value")
    parser.add_argument("--config", metavar="FILE", help="settings as YAML (default: configs/cpu.yaml or gpu.yaml, as the device)")
    parser.add_argument("--run", metavar="NAME", help="the run's name in checkpoints/, or a path (default: the text's name)")
    parser.add_argument("--resume", action="store_true", help="go on with a run that stopped: the newest, or --run NAME")
    parser.add_argument("--minutes", type=number, metavar="M", help="measure the speed, then take as many steps as fit into M")
    parser.add_argument("--device", metavar="D", help="auto, cpu, cuda, cuda:N or mps (the same as runtime.device=D)")
    arguments = parser.parse_intermixed_args(argv)
    arguments.texts = [word for word in arguments.words if not _is_setting(word)]
    arguments.settings = [word for word in arguments.words if _is_setting(word)]
    if arguments.device:
        arguments.settings.append(f"runtime.device={arguments.device}")
    if arguments.minutes is not None and not 0 < arguments.minutes < math.inf:
        raise UserError(f"--minutes: {arguments.minutes:g} given; use a number above 0")
    return arguments


def _is_setting(word: str) -> bool:
    return "=" in word and not Path(word).exists()


def new_run(arguments: argparse.Namespace) -> Run:
    """A run at step 0. Raises UserError if one of that name exists."""
    asked = apply_overrides(Config(), [setting for setting in arguments.settings if setting.startswith("runtime.")])
    file = _config_file(arguments.config, choose_device(asked.runtime.device).type)
    config = apply_overrides(apply(Config(), read_yaml(file), where=shown(file)), arguments.settings)
    runtime = choose_runtime(config.runtime)
    corpus = load_corpus(arguments.texts, config.data, root=ROOT, block_size=config.model.block_size)
    name = arguments.run or corpus.name
    folder = Path(name) if "/" in name else CHECKPOINTS / name
    if folder.is_dir() and steps(folder):
        raise UserError(f"{shown(folder)}: a run of this name exists; go on with it by --resume, or name another by --run NAME")
    torch.manual_seed(config.train.seed)
    model = GPT(config.model, corpus.tokenizer.vocab_size).to(runtime.device)
    say("settings", shown(file) + "".join(f", {setting}" for setting in arguments.settings))
    texts = [text if text == "-" or not Path(text).exists() else str(Path(text).resolve()) for text in arguments.texts]
    run = Run(folder, texts, config, runtime, corpus, model, make_optimizer(model, config.optim), Progress())
    folder.mkdir(parents=True, exist_ok=True)
    save(run)
    return run


def _config_file(given: str | None, device_type: str) -> Path:
    if given is None:
        return ROOT / "configs" / ("gpu.yaml" if device_type == "cuda" else "cpu.yaml")
    for path in (Path(given), ROOT / "configs" / given, ROOT / "configs" / f"{given}.yaml"):
        if path.is_file():
            return path
    presets = ", ".join(sorted(path.stem for path in (ROOT / "configs").glob("*.yaml")))
    raise UserError(f"{given}: no such file; give a YAML file, or one of {presets}")


def resumed_run(arguments: argparse.Namespace) -> Run:
    """The run as its newest valid checkpoint left it. Raises UserError when it cannot go on as the same run."""
    if arguments.texts or arguments.config:
        raise UserError("--resume: text and settings come from the run; leave out TEXT and --config, or start a new run with --run NAME")
    folder = find_run(arguments.run, CHECKPOINTS)
    remove_orphans(folder)
    checkpoint, warnings = newest(folder, expected=expected_weights)
    for warning in warnings:
        print(f"warning: {one_line(warning)}")
    model, tokenizer, saved = restore_model(checkpoint)
    config = apply_overrides(saved, arguments.settings)
    for change in difference(saved, config):
        if change.startswith(FIXED):
            raise UserError(f"{change}: cannot change in a run that has begun; start a new one with --run NAME")
        say("changed", change)
    runtime = choose_runtime(config.runtime)
    state = checkpoint.state
    corpus = load_corpus(state["texts"], config.data, root=ROOT, block_size=config.model.block_size, tokenizer=tokenizer)
    if corpus.fingerprint != state["fingerprint"]:
        raise UserError(f"{shown(folder)}: its text has changed since the run began; restore it, or start a new run with --run NAME")
    model.to(runtime.device)
    optimizer = make_optimizer(model, config.optim)
    load_optimizer_tensors(model, optimizer, checkpoint.training)
    progress = Progress(**state["progress"])
    run = Run(folder, state["texts"], config, runtime, corpus, model, optimizer, progress, saved=dataclasses.replace(progress))
    _say_what_differs(state["environment"], runtime)
    if run.progress.best_step == checkpoint.step:  # a crash may have come between the checkpoint and this mark
        mark_best(checkpoint.path, run.progress.best_loss)
    say("resumed", f"{shown(checkpoint.path)}, {config.train.max_steps - run.progress.step:,} steps to go")
    return run


def _say_what_differs(before: dict, runtime: Runtime) -> None:
    now = runtime.environment()
    changes = [f"{key} {before.get(key)} -> {value}" for key, value in now.items() if before.get(key) != value]
    if changes:
        print(f"warning: not the machine of before ({', '.join(changes)}): the run goes on, but not to the same bits")


def say(what: str, text: str) -> None:
    print(f"{what:<12}{text}", flush=True)


def describe(run: Run) -> None:
    """Print every choice that was made for the user."""
    config, model = run.config, run.config.model
    for line in run.corpus.describe():
        print(line)
    per_step = chars_per_step(config)
    total = config.train.max_steps * per_step
    say("model", f"{run.model.parameter_count():,} parameters: {model.n_layer} layers, {model.n_head} heads, width {model.n_embd}, "
        f"context {model.block_size}, {model.positions} positions, dropout {model.dropout:g}")
    say("machine", run.runtime.describe())
    say("training", f"{config.train.max_steps:,} steps of {per_step:,} characters, {total / len(run.corpus.train):.1f} times the text; "
        f"{config.optim.name}, rate {config.optim.learning_rate:g}, {config.optim.schedule} schedule")
    say("run", f"{shown(run.folder)}   (curves: tensorboard --logdir {shown(run.folder.parent)})")


def train(run: Run, *, interrupt: Interrupt, deadline: float | None) -> None:
    """Step, log, evaluate and save until the last step or a signal. `deadline`, on time.monotonic, fixes the last step."""
    config, progress = run.config, run.progress
    windows = Windows(
        run.corpus.train,
        config.model.block_size,
        batch_size=config.train.batch_size,
        accumulate=config.train.accumulate,
        seed=config.train.seed,
    )
    metrics = Metrics(run.folder, step=progress.step)
    screen = Screen(step=progress.step, total=config.train.max_steps)
    pace, timed = Pace(), False
    try:
        while True:
            with pace.aside():
                finished = evaluate_and_save(run, metrics, screen, interrupt)
            if finished:
                break
            loss, grad_norm = take_step(run, windows)
            progress.step += 1
            progress.loss_sum += loss
            progress.loss_count += 1
            pace.stepped()
            screen.advance()
            if pace.settled and not timed:
                timed = True
                fix_length(run, screen, pace, deadline)
            if progress.step % config.train.log_interval == 0:
                log_step(run, metrics, screen, grad_norm=grad_norm, steps_per_second=pace.lap())
    finally:
        screen.close()
        metrics.close()


def take_step(run: Run, windows: Windows) -> tuple[float, float]:
    """One update of the weights; returns the loss before it and the gradient's norm before clipping.

    Raises NotFinite, with the weights untouched, when either is not a number that one could learn from.
    """
    config, step = run.config, run.progress.step
    set_learning_rate(run.optimizer, learning_rate(step, config.optim, max_steps=config.train.max_steps))
    if config.model.dropout:
        torch.manual_seed((config.train.seed * 1_000_003 + step) % 2**63)  # dropout, like the batch, follows from (seed, step)
    run.model.train()
    loss = torch.zeros((), device=run.runtime.device)
    for micro in range(config.train.accumulate):
        inputs, targets = windows.batch(step, micro)
        with run.runtime.autocast():
            part = run.model(inputs.to(run.runtime.device), targets.to(run.runtime.device)) / config.train.accumulate
        part.backward()
        loss += part.detach()
    grad_norm = torch.nn.utils.clip_grad_norm_(run.model.parameters(), config.optim.grad_clip or math.inf)
    loss, grad_norm = loss.item(), grad_norm.item()
    if not (math.isfinite(loss) and math.isfinite(grad_norm)):
        raise NotFinite(f"step {step + 1:,}: loss {loss}, gradient norm {grad_norm}")
    run.optimizer.step()
    run.optimizer.zero_grad(set_to_none=True)
    return loss, grad_norm


def fix_length(run: Run, screen: Screen, pace: Pace, deadline: float | None) -> None:
    """The speed is known: say how long the run will take or, given a deadline, make it as long as fits."""
    train_config, step = run.config.train, run.progress.step
    if deadline is not None:
        fits = pace.steps_within(deadline - time.monotonic(), eval_interval=train_config.eval_interval)
        train_config = dataclasses.replace(train_config, max_steps=step + max(1, fits))
        run.config = dataclasses.replace(run.config, train=train_config)
        write_config(run)
        screen.set_total(train_config.max_steps)
    left = train_config.max_steps - step
    seconds = left * pace.seconds_per_step + pace.aside_seconds * (1 + left // train_config.eval_interval)
    screen.say(f"{'pace':<12}{1000 * pace.seconds_per_step:.1f} ms a step; {train_config.max_steps:,} steps, done in {clock(seconds)}")


def log_step(run: Run, metrics: Metrics, screen: Screen, *, grad_norm: float, steps_per_second: float) -> None:
    """Record the mean training loss since the last log, and how the step went."""
    progress, config = run.progress, run.config
    values = {
        "train/loss": progress.loss_sum / progress.loss_count,
        "lr": learning_rate(progress.step - 1, config.optim, max_steps=config.train.max_steps),
        "grad_norm": grad_norm,
        "chars_per_second": steps_per_second * chars_per_step(config),
    }
    progress.loss_sum, progress.loss_count = 0.0, 0
    metrics.log(progress.step, values)
    screen.show(progress.step, values)


def evaluate_and_save(run: Run, metrics: Metrics, screen: Screen, interrupt: Interrupt) -> bool:
    """Between two steps: evaluate if it is time, save if there is reason to; True when the run is over or stopped."""
    config, progress = run.config, run.progress
    last = progress.step >= config.train.max_steps
    improved = False
    if (last or progress.step % config.train.eval_interval == 0) and progress.evaluated != progress.step:
        improved = evaluate_run(run, metrics, screen, interrupt)
    due = improved or last or interrupt() or progress.step % config.checkpoint.interval == 0
    if due and progress.step and progress != run.saved:
        metrics.flush()
        save(run)
    return last or interrupt()


def evaluate_run(run: Run, metrics: Metrics, screen: Screen, interrupt: Interrupt) -> bool:
    """The loss over the whole validation part, and a sample; True when the loss is the lowest yet."""
    progress = run.progress
    with run.runtime.autocast():
        loss = evaluate(run.model, run.corpus.val, stop=interrupt)
    if loss is None:
        return False
    progress.evaluated, progress.val_loss = progress.step, loss
    improved = math.isfinite(loss) and (progress.best_loss is None or loss < progress.best_loss)
    if improved:
        progress.best_loss, progress.best_step = loss, progress.step
    values = {"val/loss": loss, "val/bits_per_char": loss / math.log(2)}
    screen.show(progress.step, values)
    if run.config.train.sample_length:
        values["sample"] = write_sample(run)
    metrics.log(progress.step, values)
    return improved


def write_sample(run: Run) -> str:
    """A text by the model as it is now, from a random state of its own."""
    tokenizer = run.corpus.tokenizer
    generator = torch.Generator(device=run.runtime.device).manual_seed(run.config.train.seed)
    prompt = torch.tensor([[first_id(tokenizer)]], device=run.runtime.device)
    with run.runtime.autocast():
        ids = stream(run.model, prompt, run.config.train.sample_length, SAMPLING, generator=generator,
                     never_sampled=tokenizer.never_sampled)
        return tokenizer.decode(int(id) for id in ids)


def save(run: Run) -> None:
    """Publish a checkpoint of this step, mark it if it is the best, drop the oldest ones."""
    progress = run.progress
    state = {
        "config": to_dict(run.config),
        "tokenizer": run.corpus.tokenizer.to_json(),
        "texts": run.texts,
        "fingerprint": run.corpus.fingerprint,
        "progress": dataclasses.asdict(progress),
        "val_loss": progress.val_loss if progress.evaluated == progress.step else None,
        "environment": run.runtime.environment(),
    }
    training = optimizer_tensors(run.model, run.optimizer)
    path = publish(run.folder, progress.step, weights=run.model.state_dict(), training=training, state=state)
    if progress.best_step == progress.step:
        mark_best(path, progress.best_loss)
    run.saved = dataclasses.replace(progress)
    for problem in prune(path, run.config.checkpoint.keep):
        say("warning", problem)


def write_config(run: Run) -> None:
    (run.folder / "config.yaml").write_text(to_yaml(run.config), encoding="utf-8")


def chars_per_step(config: Config) -> int:
    return config.train.batch_size * config.train.accumulate * config.model.block_size


def conclude(run: Run, interrupt: Interrupt) -> int:
    """Say how the run ended and what to type next; the exit code."""
    progress, name = run.progress, run.folder.name
    if interrupt():
        say("stopped", f"at step {progress.step:,}, saved; go on with: python train.py --run {name} --resume")
        return interrupt.exit_code
    say("done", f"validation loss {progress.val_loss:.4f} ({progress.val_loss / math.log(2):.4f} bits per character), "
        f"best {progress.best_loss:.4f} at step {progress.best_step:,}")
    say("sample", f"python sample.py {name}")
    return 0


def main(argv: list[str] | None = None) -> int:
    started = time.monotonic()
    arguments = parse_arguments(argv)
    run = resumed_run(arguments) if arguments.resume else new_run(arguments)
    describe(run)
    write_config(run)
    deadline = started + 60 * arguments.minutes if arguments.minutes else None
    with Interrupt() as interrupt:
        try:
            train(run, interrupt=interrupt, deadline=deadline)
        except NotFinite as problem:
            good = steps(run.folder)[-1]
            print(f"error: {problem}; stopped before it reached the weights. The last good checkpoint is {shown(good)}; "
                  "go on from it with --resume and a lower optim.learning_rate", file=sys.stderr)
            return 3
        if not interrupt() and run.config.train.sample_length:
            print(f"\n{write_sample(run).strip()}\n")
        return conclude(run, interrupt)


if __name__ == "__main__":
    sys.exit(run_program(main))
