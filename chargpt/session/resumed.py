"""A run that continues: its newest checkpoint, its text, and its settings with what the user changes."""

import dataclasses
import os
from collections.abc import Sequence
from pathlib import Path

from chargpt.config import COMMAND_LINE, Settings, Source, Tree, apply, difference
from chargpt.errors import Command, Message, Option, UserError
from chargpt.planning.cli import TrainOptions
from chargpt.planning.memory import check_memory
from chargpt.planning.teachers import teachers_of_stage
from chargpt.planning.time_model import at_least_measurable, longest_run, measured, steps_in
from chargpt.runs.checkpoint import Checkpoint, run_of
from chargpt.runs.checkpoint_schema import NO_TEXT
from chargpt.runs.load import find_run, without_cache
from chargpt.runs.models import blank_model
from chargpt.runs.run import Run, folder_of
from chargpt.session.opening import Opening
from chargpt.terminal import Notice, shown
from chargpt.text.corpus import Corpus, absolute_paths, cached_corpus, load_corpus
from chargpt.text.sources import DEFAULT, absolute_text, cache_folders, can_be_read_again, run_name
from chargpt.text.tokenizer import UnknownCharacters
from chargpt.training.parallel import Group, check_batch
from chargpt.training.runtime import choose_runtime

# Where a resumed run reads and writes its text; the text itself stays.
PLACES = ("cache", "val_text")  # of section data
ONCE = "it cannot be read again"  # why standard input and pipes are not read
# A resumed run may not change these: they decide the model, or which text a step reads.
FIXED = ("model.", "data.", "train.seed", "train.batch_size", "train.accumulate", "train.start", "optim.name")
# Settings that such a run can change, but not to 0 or from it: the optimizer's state has weights for them.
SWITCHES = ("optim.start_decay", "optim.average_fraction")


def open_saved(options: TrainOptions, *, root: Path, group: Group) -> Opening:
    """The run that `options` continue, as its newest valid checkpoint left it, with the settings that they change.

    Raises UserError if there is none, if another process trains it, or if it cannot continue as the same run.
    """
    if group.restarted_after_save:
        options = options_of_restart(options, root=root)
    run = Run(run_to_resume(options.run, options.texts, root / "checkpoints"))
    checkpoint, skipped = run.load_newest()
    notices = [Notice("warning", line) for line in skipped]
    saved = checkpoint.state
    if saved.stage == 0:
        what = f"{shown(run.folder)}: the first of several runs of an earlier version; it can write text, but not continue; "
        raise UserError(what, "to train, start again with ", Option("run", "NAME"))
    corpus, changes = _corpus_of(checkpoint, options, root=root)
    notices, characters = notices + changes, len(corpus.train)
    if options.epochs is not None:
        train = {
            **options.settings.get("train", {}),
            "max_steps": steps_in(options.epochs, saved.config, characters=characters),
        }
        options = dataclasses.replace(options, epochs=None, settings={**options.settings, "train": train})
    settings, changes = _settings_of(checkpoint, options)
    seconds = saved.seconds_left if options.minutes is None else 60 * options.minutes
    if options.minutes is None and options.gives("train.max_steps"):
        seconds = None
    config = at_least_measurable(settings.values, step=checkpoint.step, seconds=seconds)
    if options.gives("train.max_epochs"):
        longest = max(checkpoint.step, longest_run(config, characters=characters))
        train_config = dataclasses.replace(config.train, max_steps=min(config.train.max_steps, longest))
        config = dataclasses.replace(config, train=train_config)
    models = teachers_of_stage(run.folder, saved.stage, config, digest_of_all=saved.environment.get("teachers"))
    check_batch(config.train.batch_size, group.size)
    vocab_size = corpus.tokenizer.vocab_size
    check_memory(config, vocab_size=vocab_size, processes=group.size, on_machine=group.local_size, has_begun=True)
    progress = saved.progress.copy()
    if options.minutes is not None or config.train.max_steps != saved.config.train.max_steps:
        progress.without_gain = 0
    settings = dataclasses.replace(settings, values=config)
    worth_compiling, environment = saved.environment.get("compile") is True, saved.environment
    is_finished = progress.is_finished(config.train)
    return Opening(
        state=dataclasses.replace(saved, settings=settings, texts=corpus.texts, progress=progress),
        corpus=corpus,
        model=blank_model(config.model, vocab_size),
        teachers=models,
        saved=saved,
        checkpoint=checkpoint,
        run=run,
        worth_compiling=worth_compiling,
        runtime=choose_runtime(config, worth_compiling=worth_compiling, saved_environment=environment, group=group),
        seconds=seconds,
        is_extended=seconds is not None,
        time_model=None if is_finished else measured(config, corpus, models, processes=group.size),
        notices=(*notices, *changes),
    )


def run_to_resume(name: str | None, texts: Sequence[str], checkpoints: Path) -> Path:
    """The folder of the run to continue: by its name, by its texts, or the newest one. Raises UserError if there is none."""
    by_text = folder_of(run_name(texts), checkpoints)
    return find_run(str(by_text) if name is None and texts and by_text.is_dir() else name, checkpoints)


def _corpus_of(checkpoint: Checkpoint, options: TrainOptions, *, root: Path) -> tuple[Corpus, list[Notice]]:
    """The text of a run that is resumed, and a warning if it has changed since. Raises UserError.

    If it has changed or is gone, the run goes on with the encoded copy in the cache. A text that the user gives is read in
    place of the one that the run recorded, which may have moved. A cache that the user gives is read and written.
    """
    state, folder = checkpoint.state, run_of(checkpoint.path)
    config = apply(without_cache(state.config), _places(options), where=COMMAND_LINE)
    data, run = config.data, folder.name if folder.parent == root / "checkpoints" else shown(folder)
    anew = Command("", Option("init_from", run), Option("run", "NAME"))
    if state.fingerprint == NO_TEXT:
        raise UserError(f"{run}: was imported without a text; start a new run from its weights with ", anew)
    is_same = not options.texts or [absolute_text(text) for text in options.texts] == state.texts
    is_same = is_same and not options.gives("data.val_text")
    texts = list(options.texts or state.texts)
    read = [text for text in (*texts, data.val_text) if text]
    is_once = any(text == "-" or (os.path.exists(text) and not can_be_read_again(text)) for text in read)
    problem = ONCE if is_once and is_same else "it has changed since the run began"
    try:
        if problem != ONCE:
            size = config.model.block_size
            corpus = load_corpus(texts, data, root=root, block_size=size, tokenizer=state.tokenizer)
            if corpus.fingerprint == state.fingerprint:
                return corpus, []
    except UnknownCharacters:
        pass
    except UserError:
        if not is_same:
            raise
        problem = "it is not there any more"
    if not is_same:
        what = f": {' '.join(texts)} given, which is not the text of the run {run}; leave "
        raise UserError(Option("text"), what, Option("text"), " out, or train on it from the weights of this run with ", anew)
    gone = [text for text in read if os.path.isabs(text) and not os.path.exists(text)]
    name = "standard input" if read[:1] == ["-"] else shown([*gone, *read, DEFAULT][0])
    for settings in (data, state.config.data):
        if kept := cached_corpus(state.texts, settings, root=root, fingerprint=state.fingerprint):
            goes_on = f"{name}: {problem}; the run goes on with the text that it began with; for another text, use "
            return kept, [] if problem == ONCE else [Notice("warning", Message(goes_on, anew))]
    folders = ", ".join(map(shown, cache_folders(state.config.data, root=root)))
    place: str | Option = Option("data.val_text", "TEXT") if gone[:1] == [data.val_text] else "TEXT"
    again = Command("", Option("resume", True), Option("run", run), place)
    what = f"{name}: {problem}, and its encoded copy is not in {folders}; if it has moved, give its new place: "
    raise UserError(what, again, "; for another text, use ", anew)


def _settings_of(checkpoint: Checkpoint, options: TrainOptions) -> tuple[Settings, list[Notice]]:
    """The run's settings with those that the user changes. Raises UserError for a change that makes it another run."""
    saved, notices = checkpoint.state.config, list[Notice]()
    if options.minutes is not None or options.gives("train.max_steps"):  # --minutes had chosen them for another length
        train = dataclasses.replace(saved.train, min_evaluations=0, max_epochs=0.0)
        saved = dataclasses.replace(saved, train=train, optim=dataclasses.replace(saved.optim, replanned=(0.0, 0.0)))
    before = dataclasses.replace(checkpoint.state.settings, values=saved)
    settings = before.give(options.settings, source=Source.USER, where=COMMAND_LINE)
    config = settings.values
    if _places(options):
        config = dataclasses.replace(config, data=absolute_paths(config.data))
    if config.train.max_steps < checkpoint.step:
        given = f"{config.train.max_steps:,} given, but the run has taken {checkpoint.step:,} steps already"
        raise UserError(f"train.max_steps: {given}; give more")
    for change in difference(saved, config):
        is_place = change.key == "data.cache" or (change.key == "data.val_text" and saved.data.val_text)
        fixed = (*FIXED, "train.teachers") if checkpoint.state.stage > 1 else FIXED
        is_switched = change.key in SWITCHES and bool(change.old) != bool(change.new)
        if (change.key.startswith(fixed) and not is_place) or is_switched:
            what = f"{change}: cannot change in a run that has begun; start a new one with "
            raise UserError(what, Option("run", "NAME"))
        if options.minutes is None or change.key != "train.max_steps":
            notices.append(Notice("changed", str(change)))
    return dataclasses.replace(settings, values=config), notices


def options_of_restart(options: TrainOptions, *, root: Path) -> TrainOptions:
    """For processes that torchrun has started again after a save: the options that continue the run which `options` began.

    The checkpoint holds the settings that were given, and what is left of --minutes.
    """
    settings = _places(options)
    if options.resume:
        return dataclasses.replace(options, minutes=None, epochs=None, settings=settings)
    folder = folder_of(run_name(options.texts) if options.run is None else options.run, root / "checkpoints")
    return TrainOptions(settings=settings, run=str(folder), resume=True, verbose=options.verbose)


def _places(options: TrainOptions) -> Tree:
    """Those of the settings that say where a text is read and written."""
    places = {key: value for key, value in options.settings.get("data", {}).items() if key in PLACES}
    return {"data": places} if places else {}
