"""From a run on disk to a model in memory: which run is meant, and the model in its checkpoint."""

import dataclasses
import difflib
import fnmatch
import glob
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from chargpt.config import Config
from chargpt.errors import Command, Message, Option, UserError, Words, resuming, shell_word
from chargpt.project import command
from chargpt.runs.checkpoint import STEP_NAME, Checkpoint, best, has_steps, load, newest, steps
from chargpt.runs.checkpoint_schema import NO_TEXT
from chargpt.runs.run import TEACHER
from chargpt.runs.sealed_json import CheckpointError
from chargpt.runs.starts import load_start, start_names
from chargpt.terminal import shown
from chargpt.text.tokenizer import Tokenizer

if TYPE_CHECKING:  # finding and reading a run needs neither torch nor a text
    from chargpt.model import GPT
    from chargpt.text.corpus import Corpus

MAX_LISTED = 10  # checkpoints that an error message names
MAX_RUNS = 5


def find_run(name: str | None, checkpoints: Path) -> Path:
    """The folder of the run `name`: one in `checkpoints`, its path, or a path into it. None: that with the newest checkpoint.

    Raises UserError when there is no such run.
    """
    if name is None:
        newest = max(_runs(checkpoints), key=lambda run: steps(run)[-1].stat().st_mtime, default=None)
        if newest is None:
            raise UserError(f"{shown(checkpoints)}: there is no run yet; train one with ", Command("train"))
        return newest
    candidates = [Path(name) if Path(name).name not in ("", "..") else Path(os.path.abspath(name))]  # "." has no name
    if name and Path(name).name == name:  # a plain name, not a path such as ../runs/a
        candidates.insert(0, checkpoints / name)
    for folder in candidates:
        if name and has_steps(folder):
            return folder
        if name and folder.exists() and (inside := next(filter(has_steps, folder.absolute().parents), None)):
            return inside  # a path into a run is that run
    if STEP_NAME.fullmatch(Path(name).name) and Path(name).parent.is_dir() and (found := steps(Path(name).parent)):
        listed = ", ".join(path.name for path in found[-MAX_LISTED:])
        raise UserError(f"{name}: no such checkpoint; {len(found)} in this run, use {listed}")
    if name:
        from chargpt.text.formats import refuse_checkpoint  # only a mistake needs the decompressors

        refuse_checkpoint(Path(name))
        for folder in candidates:
            if (folder / "config.yaml").is_file() and not folder.with_name(f"{folder.name}{TEACHER}").exists():
                raise UserError(f"{shown(folder)}: this run has no checkpoint; train it again, under the same name")
    raise UserError(f"{name or repr(name)}: no run of that name or path; ", _other_runs(name, checkpoints))


def _other_runs(name: str, checkpoints: Path) -> Words:
    """What to do if there is no run `name`."""
    if name in start_names():
        return Message("it is the name of a start; give it as ", Option("start", name))
    known = [run.name for run in _runs(checkpoints)]
    teacher = [run for run in known if run == f"{name}{TEACHER}"]  # of several runs, the last has not begun
    if close := teacher or difflib.get_close_matches(name, known, n=1):
        return f"did you mean {close[0]}?"
    if not known:
        return Message("train one first with ", Command("train"))
    more = f"; {command('runs')} lists all" if len(known) > MAX_RUNS else ""
    return f"use {'one of ' * (len(known) > 1)}{', '.join(known[:MAX_RUNS])}{more}"


def _runs(checkpoints: Path) -> list[Path]:
    return [folder for folder in run_folders(checkpoints) if _is_run(folder)]


def run_folders(checkpoints: Path) -> list[Path]:
    """The folders in `checkpoints`, also those of runs that have no checkpoint yet, sorted by name."""
    if not checkpoints.is_dir():
        return []
    return sorted(folder for folder in checkpoints.iterdir() if folder.is_dir() and not folder.name.startswith("."))


def expand_patterns(names: Sequence[str], checkpoints: Path) -> list[str]:
    """`names`, with the runs that match in place of each pattern such as `poems*`. Each name is there once.

    A pattern without a slash matches names in `checkpoints`, another one paths. Raises UserError for one that matches nothing.
    """
    expanded: dict[str, None] = {}
    for name in names:
        if not glob.has_magic(name) or (checkpoints / name).is_dir():  # a name may hold brackets
            expanded[name] = None
            continue
        if Path(name).name == name:
            matches = [run.name for run in _runs(checkpoints) if fnmatch.fnmatchcase(run.name, name)]
        else:
            matches = [path for path in sorted(glob.glob(name)) if _is_run(Path(path))]
        if not matches:
            known = ", ".join(run.name for run in _runs(checkpoints)[:MAX_LISTED])
            what_to_do = f"use {known}" if known else f"train one first with {command('train')}"
            raise UserError(f"{name}: no run matches this pattern; {what_to_do}")
        expanded.update(dict.fromkeys(matches))
    return list(expanded)


def _is_run(folder: Path) -> bool:
    """Whether `folder` holds checkpoints. False for a folder that cannot be listed, so that it hides no other run."""
    try:
        return bool(steps(folder))
    except CheckpointError:
        return False


def find_checkpoint(name: str | None, checkpoints: Path, *, start: str | None = None) -> tuple[Checkpoint, list[Words]]:
    """The weights that `name` means, the path of one checkpoint or the best of a run (see `find_run`), and warnings.

    `start` is the name of a start that comes with the program, in place of a run.
    A run that was stopped before its first evaluation after step 0 gives its newest checkpoint: the best one, that of step 0,
    has learned nothing from the text. Raises UserError when there is none that can be used.
    """
    if start is not None:
        return load_start(start), []
    if name and Path(name).exists():
        path = Path(name).absolute()
        if step := next((one for one in (path, *path.parents) if STEP_NAME.fullmatch(one.name)), None):
            return load(step, training=False), []
    run = find_run(name, checkpoints)
    checkpoint, problems = best(run)
    warnings: list[Words] = [*problems]
    if checkpoint.step == 0 and len(steps(run)) > 1:
        later, skipped = newest(run, training=False)
        if later.step > 0 and not later.state.progress.evaluated:
            note = f"{shown(later.path)}: the run stopped before this checkpoint was evaluated; it is used, not that of step 0"
            return later, [*warnings, *skipped, note]
    elif checkpoint.step == 0 and _is_run(teacher := run.with_name(run.name + TEACHER)):
        what = f"{shown(run)}: this run is at step 0 and has learned nothing yet; continue it with "
        return checkpoint, [Message(what, resuming(shown(run)), f", or use {shell_word(shown(teacher))}")]
    return checkpoint, warnings


def restore_model(checkpoint: Checkpoint) -> "tuple[GPT, Tokenizer, Config]":
    """The model of a checkpoint, on the CPU; its tokenizer; its settings."""
    from chargpt.runs.blank_model import blank_model

    state = checkpoint.state
    model = blank_model(state.config.model, state.tokenizer.vocab_size)
    model.load_state_dict(checkpoint.weights)
    return model, state.tokenizer, state.config


def without_cache(config: Config) -> Config:
    """`config` with the default cache for encoded texts: a run from elsewhere must not choose where this machine writes."""
    return dataclasses.replace(config, data=dataclasses.replace(config.data, cache=""))


def corpus_in_cache(config: Config, tokenizer: Tokenizer, fingerprint: str, *, root: Path) -> "Corpus | None":
    """The encoded text that a run was trained on; None if it is in no cache.

    Only caches are read, the project's and then that of `config`: a checkpoint from elsewhere may name any file as its text,
    and that file is neither opened nor encoded.
    """
    from chargpt.text.corpus import cached_corpus

    for settings in (without_cache(config), config):
        corpus = cached_corpus([], settings.data, root=root, fingerprint=fingerprint)
        if corpus is not None and corpus.tokenizer == tokenizer:
            return corpus
    return None


def corpus_of(checkpoint: Checkpoint, config: Config, *, root: Path) -> "Corpus":
    """The corpus that a run was trained on, by its settings. Raises UserError if its text has changed or is gone.

    Standard input and pipes cannot be read again; their encoded copy is looked for in the cache of `config`, the default one
    and the one that the run recorded.
    """
    from chargpt.text.corpus import cache_folders, cached_corpus, load_corpus
    from chargpt.text.sources import can_be_read_again

    state = checkpoint.state
    if state.fingerprint == NO_TEXT:
        run = shown(checkpoint.path.parent)
        raise UserError(
            f"{run}: was imported without a text; start a new run from its weights with ",
            Option("init_from", run),
            ", or import it with a text",
        )
    texts = filter(None, [*state.texts, config.data.val_text])
    once = [text for text in texts if text == "-" or (Path(text).exists() and not can_be_read_again(text))]
    if not once:
        block_size = config.model.block_size
        corpus = load_corpus(state.texts, config.data, root=root, block_size=block_size, tokenizer=state.tokenizer)
    else:
        found = cached_corpus(state.texts, config.data, root=root, fingerprint=state.fingerprint)
        found = found or cached_corpus(state.texts, state.config.data, root=root, fingerprint=state.fingerprint)
        if found is None:
            folders = ", ".join(map(shown, cache_folders(state.config.data, root=root)))
            raise UserError(
                f"{'standard input' if once[0] == '-' else once[0]}: cannot be read again, and its encoded copy is not in "
                f"{folders}; restore it, or start a new run with ",
                Option("run", "NAME"),
            )
        corpus = found
    if corpus.fingerprint != state.fingerprint or corpus.tokenizer.to_json() != state.tokenizer.to_json():
        run = shown(checkpoint.path.parent)
        raise UserError(
            f"{run}: its text has changed or was removed after the run began; restore it, or start a new run with ",
            Option("run", "NAME"),
        )
    return corpus
