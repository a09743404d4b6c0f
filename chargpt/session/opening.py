"""How a model of a run is opened: by a plan, after the model before, or as the first of several processes decides.

Others follow a model that memorises its text: it has something to teach. This is measured at the peak of its rate, since later
it could not go on. The last one learns from them as well as from the text.
"""

import dataclasses
import time
from pathlib import Path

import numpy as np
import torch

from chargpt.errors import UserError
from chargpt.formatting import shown
from chargpt.interrupt import Interrupt
from chargpt.model import GPT
from chargpt.notices import Kind, Notice
from chargpt.planning.budget import Budget
from chargpt.planning.cli import TrainOptions
from chargpt.planning.law import STUDENT_GAP
from chargpt.planning.plan import Decision, Opening
from chargpt.planning.speeds import Speeds
from chargpt.planning.teachers import for_last_model, keep_teachers, teachers_of_stage
from chargpt.runs.blank_model import blank_model
from chargpt.runs.checkpoint import TRAINING, Checkpoint, check_tensors
from chargpt.runs.checkpoint_schema import SavedState
from chargpt.runs.run import Run, new_run
from chargpt.runs.stage import Length, Models, Progress, Stage
from chargpt.text.corpus import Corpus, cached_corpus, load_corpus
from chargpt.training.evaluation import validation_split
from chargpt.training.group import Group
from chargpt.training.initialisation import initial_model
from chargpt.training.runtime import Runtime, choose_runtime
from chargpt.training.trainer import Trainer, TrainerState

STRETCHES = 8  # stretches of the training split, spread over it, on which the loss is measured


def open_plan(plan: Opening, options: TrainOptions, *, checkpoints: Path) -> Opening:
    """The first model of a new run, whose folder is made here. Raises UserError."""
    assert plan.folder is not None
    run = new_run(plan.folder, checkpoints, overwrite=options.overwrite)
    keep_teachers(plan.named, run.folder)
    return dataclasses.replace(plan, run=run)


def open_next_stage(run: Run, before: SavedState, corpus: Corpus, *, runtime: Runtime, budget: Budget) -> Opening:
    """The model that follows the one whose training ended in the state `before`, with that `budget`. Raises UserError."""
    stage, models, train = dataclasses.replace(before.stage, number=before.stage.number + 1), list[GPT](), before.config.train
    config = dataclasses.replace(before.config, train=dataclasses.replace(train, seed=(train.seed + 1) % 2**63))
    settings = dataclasses.replace(before.settings, values=config)
    if stage.is_last:
        settings, models = for_last_model(settings), teachers_of_stage(run.folder, stage)
    config = settings.values
    known = Speeds(corpus, models, processes=runtime.processes).time_model(config)
    number = stage.number
    budget = budget.next(stage.models.seconds_of(number), later=stage.models.seconds_after(number), known=known)
    run.begin_stage(stage.number)
    torch.manual_seed(config.train.seed)
    stage = dataclasses.replace(stage, length=Length.of(config, steps=budget.least(before.stage.length.steps)))
    progress = Progress(first_step=before.progress.first_step + before.progress.step)
    return Opening(
        state=dataclasses.replace(before, settings=settings, progress=progress, seconds_left=None, stage=stage),
        corpus=corpus,
        model=initial_model(config.model, corpus.tokenizer.vocab_size),
        teachers=models,
        run=run,
        runtime=runtime,
        budget=budget,
    )


def join_opening(decision: Decision, *, root: Path, group: Group, corpus: Corpus | None, runtime: Runtime | None) -> Opening:
    """The opening of a process that is not the first one, with text and machine of the model before. Raises UserError."""
    state, config = decision.state, decision.state.config
    tokenizer, fingerprint, growth = state.tokenizer, state.fingerprint, state.growth
    corpus = corpus or cached_corpus(state.texts, config.data, tokenizer, root=root, fingerprint=fingerprint, growth=growth)
    if corpus is None:  # on another machine
        block_size = config.model.block_size
        corpus = load_corpus(state.texts, config.data, root=root, block_size=block_size, tokenizer=tokenizer, growth=growth)
    if corpus.fingerprint != state.fingerprint:
        raise UserError("TEXT: differs from that of the first process; give every machine the same TEXT")
    decision.budget.started = time.perf_counter()  # that of another machine says nothing here, and only the first one decides
    return Opening(
        **vars(decision),
        corpus=corpus,
        model=blank_model(config.model, state.tokenizer.vocab_size),
        runtime=runtime or choose_runtime(config, state.environment, group=group),
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
        length=opening.state.stage.length,
    )
    trainer.progress = opening.state.progress.copy()
    if checkpoint is not None:
        tensors = trainer.optimizer.suitable(checkpoint.training)
        shapes = {name: tensor.shape for name, tensor in trainer.state().optimizer.items()}
        check_tensors(tensors, shapes, where=shown(checkpoint.path / TRAINING))
        trainer.load(trainer_state(checkpoint, opening.state))
    elif opening.run is not None and opening.state.stage.number == 1:
        saved = [*trainer.model.state_dict().values(), *trainer.optimizer.tensors().values()]
        opening.run.check_space(sum(tensor.nbytes for tensor in saved))
    return trainer


def trainer_state(checkpoint: Checkpoint, state: SavedState) -> TrainerState:
    """What a trainer continues from: the tensors of a checkpoint, with progress and length of `state`."""
    return TrainerState(checkpoint.weights, checkpoint.training, state.progress, state.stage.length)


def measure(trainer: Trainer, corpus: Corpus, interrupt: Interrupt) -> tuple[float, float] | None:
    """The losses of the model as it is on equal amounts of training and validation text; None if a signal came."""
    split, ids = validation_split(corpus.evaluation_ids, trainer.config.train.eval_chars), corpus.train
    if corpus.marks is not None:  # items are mixed, so the first ones are from everywhere; a stretch would begin inside one
        texts = [ids[: len(split)]]
    else:
        each = max(2, min(len(ids), len(split)) // STRETCHES)
        texts = [ids[start : start + each] for start in np.linspace(0, len(ids) - each, STRETCHES).astype(int)]
    *training, validation = (trainer.evaluate(part, marks=corpus.marks, interrupt=interrupt) for part in [*texts, split])
    known = [losses[0] for losses in training if losses is not None]
    if validation is None or len(known) < len(training):
        return None
    return sum(known) / len(known), validation[0]


def decide(training: float, validation: float, planned: Models) -> tuple[Models, Notice]:
    """The models of a run that has measured these losses, and what to say. If a loss is NaN, the others are trained too."""
    measured = f"its training text (loss {training:.2f} there, {validation:.2f} on validation text)"
    if not validation - training < STUDENT_GAP:
        why = f"this model begins to memorise {measured}, so the last one will learn from the predictions of each before it"
        return dataclasses.replace(planned, is_decided=True, why=why), Notice(Kind.MODELS, f"{planned.count}: {why}")
    why = f"this model does not memorise {measured}, so more models would not help"
    return Models(why=why), Notice(Kind.MODELS, f"one: {why}")


def describe_stage(stage: Stage, seed: int) -> list[Notice]:
    """Which model of a run begins or continues, with its seed, and from which it learns; nothing for the only one."""
    follows = "; the last model will learn from the predictions of this one"
    learns = ", learns from the text and from the predictions of each before it" if stage.is_last else follows
    return [Notice(Kind.STAGE, f"{stage.name}, with seed {seed}{learns}")] * stage.is_one_of_several
