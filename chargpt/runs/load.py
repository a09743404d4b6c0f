"""Which run is meant, and which of its checkpoints."""

import dataclasses
import difflib
import glob
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from chargpt.config import Config
from chargpt.errors import Command, Message, Option, UserError, Words, resuming
from chargpt.project import command
from chargpt.runs.checkpoint import (
    KEPT,
    STEP_NAME,
    Checkpoint,
    best,
    has_steps,
    load,
    newest,
    newest_stage,
    run_of_stage,
    stage_folder,
    steps,
)
from chargpt.runs.checkpoint_schema import CheckpointError
from chargpt.runs.kept import load_kept
from chargpt.runs.run import settle
from chargpt.runs.starts import load_start, start_names
from chargpt.terminal import shown
from chargpt.text.tokenizer import Tokenizer

if TYPE_CHECKING:  # finding and reading a run needs no text
    from chargpt.text.corpus import Corpus

MAX_LISTED = 10  # checkpoints that an error message names
MAX_RUNS = 5


def find_run(name: str | None, checkpoints: Path) -> Path:
    """The folder of the run `name`: one in `checkpoints`, its path, or a path into it. None: that with the newest checkpoint.

    Raises UserError when there is no such run.
    """
    if name is None:
        runs = [(steps(stage_folder(run, newest_stage(run)))[-1].stat().st_mtime, run) for run in _runs(checkpoints)]
        if not runs:
            raise UserError(f"{shown(checkpoints)}: there is no run yet; train one with ", Command("train"))
        return max(runs)[1]
    candidates = places_of(name, checkpoints)
    for folder in candidates if name else []:
        settle(folder)
        inside = (folder, *folder.absolute().parents) if folder.exists() else ()
        if run := next(filter(has_steps, inside), None):  # a path into a run is that run
            return run_of_stage(run)
    step = next((path for path in (Path(name), *Path(name).parents) if STEP_NAME.fullmatch(path.name)), None)
    if step and step.parent.is_dir() and (found := steps(step.parent)):  # it may have been removed since
        listed = ", ".join(path.name for path in found[-MAX_LISTED:])
        raise UserError(f"{name}: no such checkpoint; {len(found)} in this run, use {listed}")
    if name:
        from chargpt.text.formats import refuse_checkpoint  # only a mistake needs the decompressors

        refuse_checkpoint(Path(name))
        for folder in candidates:
            if (folder / "config.yaml").is_file():
                raise UserError(f"{shown(folder)}: this run has no checkpoint; train it again, under the same name")
    raise UserError(f"{name or repr(name)}: no run of that name or path; ", _other_runs(name, checkpoints))


def places_of(name: str, checkpoints: Path) -> list[Path]:
    """Where the run `name` may be: in `checkpoints` if it is a plain name, not a path such as ../runs/a, and at that path."""
    path = Path(name) if Path(name).name not in ("", "..") else Path(os.path.abspath(name))  # "." has no name
    return [checkpoints / name, path] if Path(name).name == name else [path]


def _other_runs(name: str, checkpoints: Path) -> Words:
    """What to do if there is no run `name`."""
    if name in start_names():
        return Message("it is the name of a start; give it as ", Option("start", name))
    known = [run.name for run in _runs(checkpoints)]
    if close := difflib.get_close_matches(name, known, n=1):
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
        is_name = Path(name).name == name
        pattern = f"{glob.escape(str(checkpoints))}/{name}" if is_name else name
        matches = [Path(path).name if is_name else path for path in sorted(glob.glob(pattern)) if _is_run(Path(path))]
        if not matches:
            raise UserError(f"{name}: no run matches this pattern; ", _other_runs(name, checkpoints))
        expanded.update(dict.fromkeys(matches))
    return list(expanded)


def _is_run(folder: Path) -> bool:
    """Whether `folder` holds checkpoints. False for a folder that cannot be listed, so that it hides no other run."""
    try:
        return bool(steps(folder))
    except CheckpointError:
        return False


def find_checkpoint(name: str | None, checkpoints: Path, *, start: str | None = None) -> tuple[Checkpoint, list[Words]]:
    """The weights that `name` means, one checkpoint, a kept file or the best of a run (see `find_run`), and warnings.

    `start` is the name of a start that comes with the program, in place of a run. Of several models in a run, it is the newest
    one that has taken a step. A run that was stopped before its first evaluation after step 0 gives its newest checkpoint: the
    best one, that of step 0, has learned nothing from the text. Raises UserError when there is none that can be used.
    """
    if start is not None:
        return load_start(start), []
    if name and Path(name).exists():
        path = Path(name).absolute()
        if step := next((one for one in (path, *path.parents) if STEP_NAME.fullmatch(one.name)), None):
            return load(step, training=False), []
        if path.suffix == KEPT and path.is_file():
            return load_kept(path), []
    run = find_run(name, checkpoints)
    place = stage_folder(run, newest_stage(run, learned=True))
    if name and run_of_stage(Path(name).absolute()) == run.absolute() != Path(name).absolute():
        place = Path(name)  # the path of one of its models
    checkpoint, problems = best(place)
    warnings: list[Words] = [*problems]
    stage = checkpoint.state.stage
    if stage.is_one_of_several and not stage.is_last:
        what = f"this run trains {stage.models.count} models, and has stopped at model {stage.number}; to finish it: "
        warnings.append(Message(f"{shown(run)}: {what}", resuming(shown(run), verb="train")))
    if checkpoint.step == 0 and len(steps(place)) > 1:
        later, skipped = newest(place, training=False)
        if later.step > 0 and not later.state.progress.evaluated:
            note = f"{shown(later.path)}: this newest checkpoint is used, though its validation loss was not measured"
            return later, [*warnings, *skipped, note]
    return checkpoint, warnings


def without_cache(config: Config) -> Config:
    """`config` with the default cache for encoded texts: a run from elsewhere must not choose where this machine writes."""
    return dataclasses.replace(config, data=dataclasses.replace(config.data, cache=""))


def corpus_in_cache(
    config: Config, tokenizer: Tokenizer, fingerprint: str, *, texts: Sequence[str], root: Path
) -> "Corpus | None":
    """The encoded text that a run with these settings and `texts` was trained on; None if it is in no cache.

    Only caches are read, the project's and then that of `config`: a checkpoint from elsewhere may name any file as its text,
    and that file is neither opened nor encoded.
    """
    from chargpt.text.corpus import cached_corpus

    for settings in (without_cache(config), config):
        corpus = cached_corpus(texts, settings.data, root=root, fingerprint=fingerprint)
        if corpus is not None and corpus.tokenizer == tokenizer:
            return corpus
    return None
