"""A run that continues: its newest checkpoint, its text, wherever that is now, and what the user changes of it."""

import dataclasses
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from chargpt.config import DataConfig
from chargpt.errors import Command, Given, Message, Option, UserError
from chargpt.formatting import shown
from chargpt.notices import Kind, Notice
from chargpt.planning.budget import Budget, longest_run, steps_in
from chargpt.planning.chosen_for_time import GIVEN
from chargpt.planning.cli import TrainOptions
from chargpt.planning.memory import check_memory
from chargpt.planning.plan import Opening
from chargpt.planning.speeds import Speeds
from chargpt.planning.teachers import teachers_of_stage
from chargpt.runs.blank_model import blank_model
from chargpt.runs.checkpoint import TRAINING, Checkpoint, has_steps, newest_of, read_state, run_of
from chargpt.runs.checkpoint_schema import NO_TEXT, OTHERS, SavedState, what_changed
from chargpt.runs.listing import RunState
from chargpt.runs.load import find_run
from chargpt.runs.models import loss_of, restore_model
from chargpt.runs.run import Run, folder_of, typed_name
from chargpt.runs.stage import Length, Stage
from chargpt.screen import notice, screen
from chargpt.settings import COMMAND_LINE, Settings, Source, apply, difference
from chargpt.text.corpus import Corpus, absolute_paths, cache_folders, cached_corpus, load_corpus
from chargpt.text.source import DEFAULT
from chargpt.text.sources import absolute_text, can_be_read_again, run_name
from chargpt.text.tokenizer import UnknownCharacters
from chargpt.training.group import Group, check_batch
from chargpt.training.runtime import choose_runtime

# Where a resumed run reads and writes its text; the text itself stays.
PLACES = ("data.cache", "data.val_text")
OF_TORCH = ("threads", "attention")  # change bits only where torch computes steps, or perhaps a teacher, as a test measures
ONCE = "it cannot be read again"  # why standard input and pipes are not read
# A resumed run may not change these: they decide the model, or which text a step reads.
FIXED = ("model.", "data.", "train.seed", "train.batch_size", "train.accumulate", "optim.name")
# Settings that such a run can change, but not to 0 or from it: the optimizer's state has weights for them.
SWITCHES = ("optim.start_decay", "optim.average_fraction")


def open_saved(options: TrainOptions, *, root: Path, group: Group, started: float | None = None) -> Opening:
    """The run that `options` continue and change, whose time goes on from when the process `started`. Raises UserError."""
    if group.restarted_after_save:
        options = options_of_restart(options, root=root)
    run = Run(run_to_resume(options.run, options.texts, root / "checkpoints"))
    checkpoint, warnings = run.load_newest()
    saved = checkpoint.state
    other_model = what_changed(saved, lambda: loss_of(restore_model(checkpoint)))
    warnings += filter(None, [other_model])
    corpus, said = _corpus_of(checkpoint, options, root=root)
    state, budget, changes = _continued(checkpoint, options, corpus, started=started)
    if other_model and not state.is_finished:
        state = dataclasses.replace(state, stage=dataclasses.replace(state.stage, changed=checkpoint.step))
    check_batch(state.config.train.batch_size, group.size)
    vocab_size, on_machine = corpus.tokenizer.vocab_size, group.local_size
    check_memory(state.config, vocab_size=vocab_size, processes=group.size, on_machine=on_machine, has_begun=True)
    teachers = teachers_of_stage(run.folder, state.stage, digest_of_all=saved.environment.get("teachers"))
    if not state.is_finished:
        budget.known = Speeds(corpus, teachers, processes=group.size).time_model(state.config)
    return Opening(
        state=state,
        corpus=corpus,
        model=blank_model(state.config.model, vocab_size),
        teachers=teachers,
        saved=saved,
        checkpoint=checkpoint,
        run=run,
        runtime=choose_runtime(state.config, saved.environment, group=group),
        budget=budget,
        notices=(*(Notice(Kind.WARNING, line) for line in warnings), *said, *changes),
    )


def _continued(
    checkpoint: Checkpoint, options: TrainOptions, corpus: Corpus, *, started: float | None
) -> tuple[SavedState, Budget, list[Notice]]:
    """The state of a run with what the user changes of it, its time, and what to say of the changes. Raises UserError."""
    saved, characters, progress = checkpoint.state, len(corpus.train), checkpoint.state.progress.copy()
    if options.epochs is not None:
        epochs = {"max_steps": steps_in(options.epochs, saved.config, characters=characters)}
        typed = {**options.settings, "train": {**options.settings.get("train", {}), **epochs}}
        options = dataclasses.replace(options, settings=typed)
    settings, stage, changes = _settings_of(checkpoint, options)
    seconds = None if options.gives("train.max_steps") else saved.seconds_left
    seconds = seconds if options.minutes is None else 60 * options.minutes
    later = stage.models.seconds_after(stage.number)
    budget = Budget(None if seconds is None else seconds + later, started=started, later=later, extends=seconds is not None)
    steps = budget.least(stage.length.steps, step=checkpoint.step)
    if options.gives("train.max_epochs"):
        steps = min(steps, max(checkpoint.step, longest_run(settings.values, characters=characters)))
    if options.minutes is not None or steps != saved.stage.length.steps:
        progress.without_gain = 0
    stage = dataclasses.replace(stage, length=dataclasses.replace(stage.length, steps=steps))
    state = dataclasses.replace(saved, settings=settings, texts=corpus.texts, progress=progress, stage=stage)
    return state, budget, changes


def run_to_resume(name: str | None, texts: Sequence[str], checkpoints: Path) -> Path:
    """The folder of the run to continue: by its name, by its texts, or the newest one. Raises UserError if there is none."""
    by_text = folder_of(run_name(texts), checkpoints)
    return find_run(str(by_text) if name is None and texts and by_text.is_dir() else name, checkpoints)


def _corpus_of(checkpoint: Checkpoint, options: TrainOptions, *, root: Path) -> tuple[Corpus, list[Notice]]:
    """The text of a run that is resumed, or its copy in the cache, and a warning of that. Raises UserError."""
    state, run = checkpoint.state, typed_name(run_of(checkpoint.path), root / "checkpoints")
    anew = Command("train", "TEXT", Option("init_from", run), Option("run", "NAME"))
    places = {"cache": "", **options.given_among(PLACES).get("data", {})}  # that of another machine may not be here
    data = apply(state.config, {"data": places}, where=COMMAND_LINE).data
    if state.fingerprint == NO_TEXT:
        raise UserError(f"{run}: was imported without a text; start a new run from its weights with ", anew)
    texts = list(options.texts or state.texts)
    is_given = [absolute_text(text) for text in options.texts or state.texts] != state.texts or options.gives("data.val_text")
    read = [text for text in (*texts, data.val_text) if text]
    is_once = not is_given and any(text == "-" or (os.path.exists(text) and not can_be_read_again(text)) for text in read)
    corpus, problem = (None, ONCE) if is_once else _read_again(state, texts, data, root=root, is_given=is_given)
    if corpus is not None:
        return corpus, []
    if is_given:
        what = f": {' '.join(texts)} given, but the run {run!r} was trained on another text; leave out "
        raise UserError(Option("text"), what, Option("text"), ", or train the model of that run on this text with ", anew)
    gone = [text for text in read if os.path.isabs(text) and not os.path.exists(text)]
    what = f"{'standard input' if read[:1] == ['-'] else shown([*gone, *read, DEFAULT][0])}: {problem}"
    fingerprint, growth = state.fingerprint, state.growth
    for settings in (data, state.config.data):
        if kept := cached_corpus(state.texts, settings, state.tokenizer, root=root, fingerprint=fingerprint, growth=growth):
            goes_on = f"{what}; the run goes on with the text that it began with; for a new run on another text: "
            return kept, [] if is_once else [Notice(Kind.WARNING, Message(goes_on, anew))]
    place: str | Option = Option("data.val_text", "TEXT") if gone[:1] == [data.val_text] else "TEXT"
    again = Command("", Option("resume", True), Option("run", run), place)
    what += f", and no copy of it is in {', '.join(map(shown, cache_folders(state.config.data, root=root)))}"
    raise UserError(f"{what}; put it back, or give its new place: ", again, "; to train on another text: ", anew)


def _read_again(
    state: SavedState, texts: list[str], data: DataConfig, *, root: Path, is_given: bool
) -> tuple[Corpus | None, str]:
    """The text of a run, if it is still in `texts`, or why it is not. Raises UserError for texts that the user has given."""
    problem = "it has changed since the run began"
    try:
        block_size, growth = state.config.model.block_size, state.growth
        corpus = load_corpus(texts, data, root=root, block_size=block_size, tokenizer=state.tokenizer, growth=growth)
        return (corpus, "") if corpus.fingerprint == state.fingerprint else (None, problem)
    except UnknownCharacters:
        return None, problem
    except UserError:
        if is_given:
            raise
        return None, "it is not there any more"


def _settings_of(checkpoint: Checkpoint, options: TrainOptions) -> tuple[Settings, Stage, list[Notice]]:
    """The run's settings and stage with what the user changes. Raises UserError for a change that makes it another run."""
    saved, stage, notices = checkpoint.state.as_trained, checkpoint.state.stage, list[Notice]()
    settings = checkpoint.state.settings.give(options.settings, source=Source.USER, where=COMMAND_LINE)
    if any(map(options.gives, PLACES)):
        settings = dataclasses.replace(settings, values=absolute_paths(settings.values))
    given = [change for change in difference(saved, settings.values) if options.gives(change.key)]  # the program sets others
    for change in given:
        is_place = change.key == "data.cache" or (change.key == "data.val_text" and saved.data.val_text)
        fixed = (*FIXED, "train.teachers") if stage.number > 1 else FIXED
        is_switched = change.key in SWITCHES and bool(change.old) != bool(change.new)
        if (change.key.startswith(fixed) and not is_place) or is_switched:
            what = f"{change}: cannot change in a run that has begun; start a new one with "
            raise UserError(what, Option("run", "NAME"))
        if options.minutes is None or change.key != "train.max_steps":
            notices.append(Notice(Kind.CHANGED, str(change)))
    if options.minutes is not None or any(not change.key.startswith(OTHERS) for change in given):
        stage = dataclasses.replace(stage, changed=checkpoint.step)
    return *_changed(settings, stage, options, step=checkpoint.step), notices


def _changed(settings: Settings, stage: Stage, options: TrainOptions, *, step: int) -> tuple[Settings, Stage]:
    """Settings and stage of a run at `step`, with what was decided anew for the user's settings. Raises UserError."""
    gives, models, before = options.gives, stage.models, stage.length
    if gives("train.teachers"):
        models = dataclasses.replace(models, count=settings.values.train.teachers + 1, is_decided=True, why=GIVEN)
    if is_new_length := options.minutes is not None or gives("train.max_steps"):
        if not gives("train.max_epochs"):  # those were for another length
            train = dataclasses.replace(settings.values.train, max_epochs=0.0)
            settings = dataclasses.replace(settings, values=dataclasses.replace(settings.values, train=train))
    if is_new_length or gives("train.max_epochs"):
        models = dataclasses.replace(models, epochs=None)
    steps = settings.values.train.max_steps if gives("train.max_steps") else before.steps
    if steps < step:
        name, given = ("epochs", options.epochs) if gives("epochs") else ("train.max_steps", steps)
        raise UserError(Given(name, given, ", but "), f"the run has taken {step:,} steps already; give more")
    length = anew = Length.of(settings.values, steps=steps)
    if not is_new_length:
        warmup = anew.warmup if gives("optim.warmup_steps") else before.warmup
        interval = anew.interval if gives("train.eval_interval") else before.interval
        length = dataclasses.replace(before, warmup=warmup, interval=interval)
    return settings, dataclasses.replace(stage, models=models, length=length)


def options_of_restart(options: TrainOptions, *, root: Path) -> TrainOptions:
    """The options that continue, after a save, what `options` began. The checkpoint holds settings and what is left of time."""
    settings = options.given_among(PLACES)
    if options.resume:
        return dataclasses.replace(options, minutes=None, epochs=None, settings=settings)
    folder = folder_of(options.name, root / "checkpoints")
    return TrainOptions(settings=settings, run=str(folder), resume=True, verbose=options.verbose)


def continued(options: TrainOptions, *, root: Path) -> TrainOptions | None:
    """What a command that may be repeated means now: options that begin or continue a run; None if it needs no step."""
    restart = options_of_restart(options, root=root)
    if not has_steps(folder := Path(restart.run or "")):
        return options
    before = newest_of(folder, read_state)[0].config
    wished = apply(before, options.settings, where=COMMAND_LINE)
    typed = options.given_among(change.key for change in difference(before, absolute_paths(wished)))
    if not any(typed.values()) and not any(folder.rglob(TRAINING)) and RunState.of(folder).state == "finished":
        screen().saved(folder)
        notice(Kind.DONE, "this run is finished, and only what writes is left of it")
        return None
    # One that is gone is known by its place; the run has a copy.
    texts = [text if text == "-" or can_be_read_again(text) else str(Path(text).resolve()) for text in options.texts]
    return dataclasses.replace(restart, settings=typed, texts=texts)


def what_differs(before: Mapping[str, str | int | bool], now: Mapping[str, str | int | bool]) -> str:
    """A warning if a run whose environment was `before` may not continue with the same bits here; else empty."""
    is_in_c = before.get("step") == now["step"] != "torch" and "teachers" not in now
    found = {key: f"{key} {before.get(key)} -> {value}" for key, value in now.items() if before.get(key) != value}
    changes = [change for key, change in found.items() if not (is_in_c and key in OF_TORCH)]
    what = f"it is not computed as before ({', '.join(changes)}), so the losses from here on may differ slightly"
    return what * bool(changes)
