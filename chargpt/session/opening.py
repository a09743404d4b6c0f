"""What a session begins with: made by a plan, by a saved run, by the model before, or by the first of several processes."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from chargpt.config import Config
from chargpt.errors import UserError
from chargpt.model import GPT
from chargpt.planning.cli import TrainOptions
from chargpt.planning.memory import check_memory
from chargpt.planning.plan import Plan
from chargpt.planning.teachers import (
    another_seed,
    keep_teachers,
    models_of,
    seconds_of_stage,
    student_settings,
    teachers_of_stage,
)
from chargpt.planning.time_model import TimeModel, at_least_measurable, measured
from chargpt.runs.checkpoint import TRAINING, Checkpoint, check_tensors
from chargpt.runs.checkpoint_schema import Progress, SavedState
from chargpt.runs.models import blank_model
from chargpt.runs.run import Run, new_run
from chargpt.terminal import Notice, plural, shown
from chargpt.text.corpus import Corpus, cached_corpus, load_corpus
from chargpt.training.initialisation import initial_model
from chargpt.training.parallel import Group
from chargpt.training.runtime import Runtime, choose_runtime
from chargpt.training.trainer import Trainer, TrainerState


@dataclass(frozen=True, kw_only=True)
class Opening:
    """One model of a run, before its first step in this process."""

    state: SavedState  # its settings, vocabulary, progress and stage, as they are now
    corpus: Corpus
    model: GPT  # its weights, on the CPU; those of `checkpoint` replace them
    teachers: Sequence[GPT] = ()
    saved: SavedState | None = None  # what the newest checkpoint holds; None for a new model
    checkpoint: Checkpoint | None = None  # that one; None in a process that is not the first one
    run: Run | None = None  # where the first process writes
    worth_compiling: bool
    runtime: Runtime
    seconds: float | None  # the time limit of this model, from `Session.started` on; None: no limit
    is_extended: bool = False  # by --minutes, with --resume
    steps: int | None = None  # how many are expected to fit into `seconds`, if that is known
    time_model: TimeModel | None  # by some steps that were timed; None if no step is left
    notices: tuple[Notice, ...] = ()  # before the session begins
    choices: tuple[Notice, ...] = ()  # after the model and the time are described

    @property
    def config(self) -> Config:
        return self.state.config


def open_plan(plan: Plan, options: TrainOptions, *, checkpoints: Path, group: Group) -> Opening:
    """The first model of a new run; its folder is made here. Raises UserError."""
    config, corpus = plan.config, plan.corpus
    vocab_size = corpus.tokenizer.vocab_size
    check_memory(config, vocab_size=vocab_size, processes=group.size, on_machine=group.local_size)
    runtime = choose_runtime(config, worth_compiling=plan.worth_compiling, group=group)
    shares = f"each computes {plural(config.train.batch_size // group.size, 'window')} of a batch"
    on = f"{group.size} on {plural(group.size // group.local_size, 'machine')}; {shares}"
    processes = [Notice("processes", on)] if group.size > 1 else []
    run = new_run(plan.folder, checkpoints, overwrite=options.overwrite)
    keep_teachers(plan.teachers, run.folder)
    return Opening(
        state=SavedState(
            settings=plan.settings,
            tokenizer=corpus.tokenizer,
            texts=corpus.texts,
            fingerprint=corpus.fingerprint,
            progress=Progress(),
            environment={},
        ),
        corpus=corpus,
        model=plan.model,
        teachers=models_of(plan.teachers),
        run=run,
        worth_compiling=plan.worth_compiling,
        runtime=runtime,
        seconds=plan.seconds,
        steps=plan.steps,
        time_model=plan.time_model,
        notices=plan.notices,
        choices=(*plan.choices, *processes),
    )


def open_next_stage(run: Run, before: SavedState, corpus: Corpus, *, runtime: Runtime) -> Opening:
    """The model that follows the one whose training ended in the state `before`. Raises UserError."""
    stage, config = before.stage + 1, another_seed(before.config)
    settings, seconds, models = (
        dataclasses.replace(before.settings, values=config),
        seconds_of_stage(config, stage),
        list[GPT](),
    )
    if stage > config.train.teachers:
        settings, models = student_settings(settings), teachers_of_stage(run.folder, stage, config)
    config = at_least_measurable(settings.values, step=0, seconds=seconds)
    time_model = measured(config, corpus, models, processes=runtime.processes)
    run.begin_stage(stage)
    torch.manual_seed(config.train.seed)
    settings = dataclasses.replace(settings, values=config)
    progress = Progress(first_step=before.progress.first_step + before.progress.step)
    return Opening(
        state=dataclasses.replace(before, settings=settings, progress=progress, seconds_left=None, stage=stage),
        corpus=corpus,
        model=initial_model(config.model, corpus.tokenizer.vocab_size),
        teachers=models,
        run=run,
        worth_compiling=runtime.compile,
        runtime=runtime,
        seconds=seconds,
        time_model=time_model,
    )


def for_others(opening: Opening) -> Opening:
    """What the other processes get of the first one's `opening`: what it decided, without the text and the weights."""
    own = dict.fromkeys(("corpus", "model", "runtime", "checkpoint", "run"))
    return dataclasses.replace(opening, **own, notices=(), choices=())  # type: ignore[arg-type]  # `joined` fills them


def joined(given: Opening, *, root: Path, group: Group, corpus: Corpus | None, runtime: Runtime | None) -> Opening:
    """The opening of a process that is not the first one, from `for_others`; text and machine are those of the model before.

    Raises UserError.
    """
    state, config = given.state, given.config
    environment, worth_compiling = state.environment, given.worth_compiling
    runtime = runtime or choose_runtime(config, worth_compiling=worth_compiling, saved_environment=environment, group=group)
    corpus = corpus or cached_corpus(state.texts, config.data, root=root, fingerprint=state.fingerprint)
    if corpus is None:  # on another machine
        block_size = config.model.block_size
        corpus = load_corpus(state.texts, config.data, root=root, block_size=block_size, tokenizer=state.tokenizer)
    if corpus.fingerprint != state.fingerprint:
        raise UserError("TEXT: another text than that of the first process; give every machine the same one")
    return dataclasses.replace(
        given, corpus=corpus, runtime=runtime, model=blank_model(config.model, state.tokenizer.vocab_size)
    )


def make_trainer(opening: Opening, group: Group) -> Trainer:
    """The trainer of a session, with the state of a checkpoint if one is resumed. Raises UserError."""
    corpus, checkpoint = opening.corpus, opening.checkpoint
    trainer = Trainer(
        opening.model,
        corpus.train,
        opening.config,
        runtime=opening.runtime,
        marks=corpus.marks,
        group=group,
        teachers=opening.teachers,
    )
    trainer.progress = opening.state.progress.copy()
    if checkpoint is not None:
        tensors = trainer.optimizer.suitable(checkpoint.training)
        shapes = {name: tensor.shape for name, tensor in trainer.optimizer.tensors().items()}
        check_tensors(tensors, shapes, where=shown(checkpoint.path / TRAINING))
        trainer.load(TrainerState(checkpoint.weights, checkpoint.training, trainer.progress))
    elif opening.run is not None and opening.state.stage == 1:
        saved = [*trainer.model.state_dict().values(), *trainer.optimizer.tensors().values()]
        opening.run.check_space(sum(tensor.nbytes for tensor in saved))
    return trainer
