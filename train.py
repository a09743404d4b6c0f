"""Train a character-level GPT: text in, run out.

The steps: read the options; begin a run, or continue one; step, log, evaluate and save until the run is finished or a signal
comes; say how it ended. Everything that this file calls is in chargpt/.
"""

import itertools
import math
import sys
import time
from pathlib import Path

import torch

from chargpt.interrupt import Interrupt
from chargpt.runs.run import Run, folder_of
from chargpt.runs.saved_state import SavedState
from chargpt.sampling.decoder import first_id, stream
from chargpt.sampling.rules import Sampling
from chargpt.terminal import UserError, best_effort_output, one_line, run_program, say, shown
from chargpt.text.corpus import Corpus
from chargpt.training.evaluation import evaluate, validation_part
from chargpt.training.monitor import Monitor
from chargpt.training.options import TrainOptions, parse_options
from chargpt.training.preview import describe, outlook
from chargpt.training.progress_bar import clock
from chargpt.training.rate_finder import STEPS, record, short_config, suggestion, try_rates
from chargpt.training.runtime import choose_runtime
from chargpt.training.startup import Training, new_model, new_run, resume_run, roll_back
from chargpt.training.time_budget import TimeBudget
from chargpt.training.trainer import NotFinite, Trainer

ROOT = Path(__file__).resolve().parent
CHECKPOINTS = ROOT / "checkpoints"
SAMPLING = Sampling(temperature=0.8)  # of the samples shown during training
MOST_ROLLBACKS = 3


def main(argv: list[str] | None = None) -> int:
    started = time.monotonic()
    options = parse_options(argv)
    if options.find_lr:
        return find_learning_rate(options)
    training = resume_run(options, root=ROOT) if options.resume else new_run(options, root=ROOT)
    seconds = seconds_for(options, training.run)
    with best_effort_output(), Interrupt() as interrupt:
        print(*describe(*training), sep="\n", flush=True)
        training.run.write_config(training.trainer.config)
        return train_to_the_end(training, interrupt, started=started, seconds=seconds)


def seconds_for(options: TrainOptions, run: Run) -> float | None:
    """How long the run may take, from the start of this program; None for as long as it takes."""
    if options.minutes is not None:
        return 60 * options.minutes - min(2.0, 0.6 * options.minutes)  # the rest passes before the start and after the end
    return run.saved.seconds_left if run.saved else None


def train_to_the_end(training: Training, interrupt: Interrupt, *, started: float, seconds: float | None) -> int:
    """Train, say how it ended, and return the exit code. A step that is not finite ends the run or rolls it back."""
    trainer, corpus, run = training
    while True:
        try:
            train(trainer, corpus, run, interrupt, started=started, seconds=seconds)
            return conclude(trainer, corpus, run, interrupt)
        except NotFinite as problem:
            if trainer.config.train.on_nonfinite == "stop" or len(trainer.progress.skipped) >= MOST_ROLLBACKS:
                print(
                    f"error: {problem}; this step was not saved. The last good checkpoint is {shown(run.last_checkpoint())}; "
                    f"continue from it with --resume --run {run.name(CHECKPOINTS)} and a lower optim.learning_rate, or with "
                    "train.on_nonfinite=rollback",
                    file=sys.stderr,
                )
                return 3
            back = roll_back(trainer, run, without=problem.step)
            say("rollback", f"{problem}; back to {shown(back)}, at half the rate and without that batch")


def train(trainer: Trainer, corpus: Corpus, run: Run, interrupt: Interrupt, *, started: float, seconds: float | None) -> None:
    """The loop: evaluate and save when due, stop when finished, step, report."""
    progress, train_config = trainer.progress, trainer.config.train
    budget = TimeBudget(steps_left=train_config.max_steps - progress.step, seconds=seconds, started=started)
    with Monitor(run.folder, step=progress.step, total=train_config.max_steps, is_new=run.saved is None) as monitor:
        while True:
            with budget.outside_steps():
                if should_evaluate(trainer):
                    evaluate_and_sample(trainer, corpus, monitor, interrupt)
                if should_save(trainer, run, interrupt):
                    save(trainer, corpus, run, monitor, budget)
            if trainer.is_finished or interrupt():
                return
            step = trainer.step()
            budget.step_done()
            monitor.step_done()
            if progress.step % train_config.log_interval == 0 and progress.loss_count:
                speed = budget.steps_per_second() * trainer.config.chars_per_step
                monitor.log_training(progress.step, progress.take_mean_loss(), step, chars_per_second=speed)
            if budget.is_due(progress.step):
                plan_length(trainer, corpus, run, monitor, budget)


def should_evaluate(trainer: Trainer) -> bool:
    progress = trainer.progress
    due = trainer.is_finished or progress.step % trainer.config.train.eval_interval == 0
    return due and progress.evaluated != progress.step


def evaluate_and_sample(trainer: Trainer, corpus: Corpus, monitor: Monitor, interrupt: Interrupt) -> None:
    """The loss over the validation part, and a sample; neither counts when a signal comes."""
    progress = trainer.progress
    part = validation_part(corpus.val, trainer.config.train.eval_chars)
    loss = evaluate(trainer.weights.working, part, interrupt=interrupt)
    if loss is None:
        return
    if not math.isfinite(loss):
        raise NotFinite(f"the validation loss after it is {loss}", step=progress.step - 1)
    sample = write_sample(trainer, corpus, interrupt)
    if not interrupt():
        progress.record_evaluation(loss)
        monitor.log_evaluation(progress.step, loss, sample=sample)


def write_sample(trainer: Trainer, corpus: Corpus, interrupt: Interrupt) -> str:
    """A text by the model as it is now, from a generator of its own. A signal cuts it short."""
    tokenizer, train_config = corpus.tokenizer, trainer.config.train
    prompt = torch.tensor([[first_id(tokenizer)]], device=trainer.runtime.device)
    generator = torch.Generator().manual_seed(train_config.seed)
    never_sampled = tokenizer.never_sampled
    model, length = trainer.weights.working, train_config.sample_length
    ids = stream(model, prompt, length, SAMPLING, generator=generator, never_sampled=never_sampled)
    return tokenizer.decode(int(id) for id in itertools.takewhile(lambda _: not interrupt(), ids))


def should_save(trainer: Trainer, run: Run, interrupt: Interrupt) -> bool:
    progress, saved = trainer.progress, run.saved
    if saved and (saved.progress, saved.config) == (progress, trainer.config):
        return False
    is_best = progress.best_step == progress.step
    saved_before = saved is not None and saved.progress.step == progress.step  # and evaluated or changed since
    is_due = progress.step % trainer.config.checkpoint.interval == 0
    return is_best or saved_before or is_due or trainer.is_finished or interrupt()


def save(trainer: Trainer, corpus: Corpus, run: Run, monitor: Monitor, budget: TimeBudget) -> None:
    """Publish a checkpoint of finite weights, after everything logged so far is on disk."""
    trainer.check_weights()
    monitor.flush()
    weights, optimizer, progress = trainer.state()
    state = SavedState(
        config=trainer.config,
        tokenizer=corpus.tokenizer,
        texts=corpus.texts,
        fingerprint=corpus.fingerprint,
        progress=progress,
        environment=trainer.runtime.environment(),
        seconds_left=budget.seconds_left(),
    )
    for problem in run.save(state, weights=weights, training=optimizer):
        say("warning", one_line(problem))


def plan_length(trainer: Trainer, corpus: Corpus, run: Run, monitor: Monitor, budget: TimeBudget) -> None:
    """The speed is known: fit the run to its time, if that is limited, and say how long it takes and what to expect."""
    is_first, step, eval_interval = budget.is_first, trainer.progress.step, trainer.config.train.eval_interval
    budget.measure()
    if budget.deadline is not None:
        trainer.set_length(step + max(1, budget.steps_that_fit(eval_interval=eval_interval)))
        monitor.set_total(trainer.config.train.max_steps)
    max_steps = trainer.config.train.max_steps
    budget.plan(step, max_steps)
    if budget.deadline is not None:
        run.write_config(trainer.config)
        save(trainer, corpus, run, monitor, budget)  # from now on a resumed run knows its length
    seconds = budget.seconds_for(max_steps - step, eval_interval=eval_interval)
    pace = f"{1000 * budget.seconds_per_step:.1f} ms a step; {max_steps:,} steps, done in {clock(seconds)}"
    monitor.say(f"{'pace':<12}{pace}")
    if is_first:
        speed, parameters = trainer.config.chars_per_step / budget.seconds_per_step, trainer.model.parameter_count()
        monitor.say(outlook(corpus, trainer.config, parameters=parameters, characters_per_second=speed))


def conclude(trainer: Trainer, corpus: Corpus, run: Run, interrupt: Interrupt) -> int:
    """Say how the run ended and what to type next; returns the exit code."""
    progress, name = trainer.progress, run.name(CHECKPOINTS)
    if interrupt():
        say("stopped", f"at step {progress.step:,}, saved; continue with: python train.py --resume --run {name}")
        return interrupt.exit_code
    if trainer.config.train.sample_length:
        print(f"\n{write_sample(trainer, corpus, interrupt).strip()}\n")
    if progress.step < trainer.config.train.max_steps:
        patience = trainer.config.train.patience
        again = f"continue with --resume --run {name} train.patience=0"
        say("ended", f"at step {progress.step:,}: no better validation loss in {patience} evaluations; {again}")
    bits = progress.val_loss / math.log(2)
    best = f"best {progress.best_loss:.4f} at step {progress.best_step:,}"
    say("done", f"validation loss {progress.val_loss:.4f} ({bits:.4f} bits per character), {best}")
    say("sample", f"python sample.py {name}")
    return 0


def find_learning_rate(options: TrainOptions) -> int:
    """--find-lr: short trainings at a range of rates, a picture of the losses, and a suggestion. Returns the exit code."""
    with Interrupt() as interrupt:
        model, corpus, config = new_model(options, root=ROOT)
        folder = folder_of(corpus.name if options.run is None else options.run, CHECKPOINTS)
        folder = folder.with_name(f"{folder.name}-find-lr")
        folder.mkdir(parents=True, exist_ok=True)
        config = short_config(config)
        say("sweep", f"{STEPS} steps at each rate, with its own schedule, until one is clearly too high")
        curve = []
        for rate, loss in try_rates(model, corpus.train, config, runtime=choose_runtime(config), interrupt=interrupt):
            say("rate", f"{rate:.4f}: loss {loss:.3f}" if loss < math.inf else f"{rate:.4f}: diverged")
            curve.append((rate, loss))
    if not any(loss < math.inf for _, loss in curve):
        if interrupt():
            return interrupt.exit_code
        raise UserError("--find-lr: every rate diverged; check for an extreme setting, such as optim.weight_decay")
    say("drawn", f"{shown(record(curve, folder))}   (and in tensorboard --logdir {shown(folder.parent)})")
    say("suggested", f"optim.learning_rate={suggestion(curve):.1e}")
    return interrupt.exit_code


if __name__ == "__main__":
    sys.exit(run_program(main))
