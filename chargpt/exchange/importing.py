"""What a reader of another program's files returns, and how it becomes a run on disk."""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from chargpt.config import Config, DataConfig, ModelConfig
from chargpt.errors import Command, Message, Option, UserError, resuming
from chargpt.exchange.layouts import with_biases
from chargpt.exchange.tensor_file import AGAIN
from chargpt.formatting import shown
from chargpt.model import POSITIONS
from chargpt.notices import Kind
from chargpt.planning.cli import TrainOptions, by_fields
from chargpt.planning.initial_settings import load_settings
from chargpt.project import presets_folder
from chargpt.runs.blank_model import LOADED_SOURCE, blank_model, gpt_config
from chargpt.runs.checkpoint_schema import NO_TEXT, SavedState, check_size
from chargpt.runs.load import load_kept
from chargpt.runs.models import loss_of
from chargpt.runs.run import Run, new_folder, new_run
from chargpt.runs.stage import Length, Progress, Stage
from chargpt.screen import notice
from chargpt.settings import COMMAND_LINE, Settings, Source, Tree, apply, names_in
from chargpt.standard import is_standard
from chargpt.text.corpus import Corpus, absolute_paths, load_corpus
from chargpt.text.tokenizer import Tokenizer
from chargpt.training.evaluation import evaluate, validation_split
from chargpt.training.optimizers import make_optimizer
from chargpt.training.runtime import choose_runtime
from chargpt.training.weights import FlatWeights


@dataclass(frozen=True, kw_only=True)
class ImportedModel:
    """A model from another program."""

    program: str
    shape: ModelConfig
    tokenizer: Tokenizer
    weights: dict[str, Tensor]  # by our names, float32
    settings: dict[str, dict[str, Any]] = field(default_factory=dict)  # of its training, {section: {key: value}}, unchecked
    step: int = 0  # steps taken
    moments: Mapping[str, Tensor] | None = None  # the state of AdamW, by our names; None if there is none
    notes: list[str] = field(default_factory=list)  # what is different now, as sentences


def brief(value: object) -> str:
    """A value that another program's file holds, for a message: a text or a number, at most 40 characters, or its type.

    Only these are formatted: lists that contain a list twice, which contains another twice, become gigabytes of text.
    """
    plain = value is None or isinstance(value, (str, float)) or isinstance(value, int) and value.bit_length() < 200
    return f"{value!s:.40}" if plain else f"of type {type(value).__name__}"


def checked_shape(where: str, *, vocab_size: int, **fields: Any) -> ModelConfig:
    """A shape from numbers that anybody may have written. Raises UserError unless a model of that size may be built."""
    for name in ("n_layer", "n_head", "n_embd", "block_size"):
        if type(fields[name]) is not int or not 1 <= fields[name] < 2**31:
            raise UserError(f"{where}: damaged, {name} is {brief(fields[name])}, and not a whole number of 1 or more; {AGAIN}")
    try:
        shape = ModelConfig(**fields)
    except (TypeError, ValueError) as error:
        raise UserError(f"{where}: {error}") from None
    check_size(shape, vocab_size)
    return shape


def imported(
    program: str, shape: ModelConfig, tokenizer: Tokenizer, weights: dict[str, Tensor], *, ids: Sequence[int], **others: Any
) -> ImportedModel:
    """An ImportedModel of `weights` whose rows of embeddings are in the order of `ids`. `others` are its further fields.

    The shape gets biases if a bias is not zero, and the kind of positions whose table this is, if model.py computes it.
    """
    embedding = "token_embedding.weight"
    weights[embedding] = weights[embedding][list(ids)]
    found = dict[str, Any]()  # of the shape
    weights, found["bias"] = with_biases(weights)
    table = weights.get("position_embedding.weight")
    for positions, new_table in POSITIONS.items():
        if table is not None and new_table and torch.equal(table, new_table(gpt_config(shape), len(table))):
            del weights["position_embedding.weight"]
            found["positions"] = positions
    shape = dataclasses.replace(shape, **found)
    return ImportedModel(program=program, shape=shape, tokenizer=tokenizer, weights=weights, **others)


def of_page(path: Path) -> ImportedModel:
    """What a page has kept in one file, or `export --to safetensors` has written. Raises UserError."""
    kept = load_kept(path)
    state, weights = kept.state, {name: torch.as_tensor(numbers) for name, numbers in kept.weights.items()}
    step, shape, tokenizer = state.progress.step, state.config.model, state.tokenizer
    return ImportedModel(program=path.name, shape=shape, tokenizer=tokenizer, weights=weights, step=step)


def save_run(
    imported: ImportedModel, texts: Sequence[str], *, name: str, preset: str | None, settings: Tree, root: Path
) -> Path:
    """Save a new run and say what it is; returns its folder. Raises UserError, also if a run of that name exists."""
    new_folder(name, root / "checkpoints")  # before anything that takes time
    config = _settings(imported, preset, settings, presets=presets_folder())
    model = blank_model(imported.shape, imported.tokenizer.vocab_size)
    if not is_standard(imported.shape):
        what = "is a GPT-2, and model.py computes something else; import it with the model.py that comes with chargpt"
        raise UserError(f"{imported.program}: {what}")
    model.load_state_dict(imported.weights, assign=True)  # the tensors themselves, without a copy
    corpus, progress = None, Progress(step=imported.step)
    if texts:
        size, asked = config.model.block_size, settings.get("data", {})
        corpus = load_corpus(texts, config.data, root=root, block_size=size, tokenizer=imported.tokenizer, asked=asked)
        split = validation_split(corpus.val, config.train.eval_chars)
        progress.record_evaluation(evaluate(model, split, marks=corpus.marks))
    stage = Stage(length=Length.of(config))
    state = SavedState(
        settings=Settings(config),
        tokenizer=imported.tokenizer,
        texts=[] if corpus is None else corpus.texts,
        fingerprint=NO_TEXT if corpus is None else corpus.fingerprint,
        progress=progress,
        stage=stage,
        environment=choose_runtime(config).environment(),
        model_source=LOADED_SOURCE,
        model_loss=loss_of(model),
    )
    optimizer = make_optimizer(FlatWeights(model, torch.float32), config.optim)
    if imported.moments is not None and config.optim.name == "adamw":
        optimizer.load({**optimizer.tensors(), **imported.moments})
    run = new_run(new_folder(name, root / "checkpoints"), root / "checkpoints")
    problems = run.save(state, weights=model.state_dict(), training=optimizer.tensors())
    for problem in [*problems, *filter(None, [run.write_config(config, stage)])]:
        notice(Kind.WARNING, problem)
    _report(imported, run, corpus, state, root=root)
    return run.folder


def _settings(imported: ImportedModel, preset: str | None, settings: Tree, *, presets: Path) -> Config:
    """The settings of a preset, with those of the imported training, with those of the command line."""
    options = TrainOptions(config=preset)
    config = load_settings(options, presets=presets, model=imported.shape, model_from=imported.program).loaded.values
    data = dataclasses.asdict(imported.tokenizer.normalizer)
    if data["newlines"] == "keep":  # which no file of another program says: line ends are decided as for any text
        data["newlines"] = DataConfig().newlines
    data["vocabulary"] = "bytes" if imported.tokenizer.characters is None else "characters"
    for tree in (imported.settings, {"data": data}):
        config = apply(config, tree, where=imported.program)
    for key in names_in(settings):
        if key.startswith("model.") and key != "model.dropout":
            raise UserError(f"{key}: the imported weights decide this; leave it out")
    return absolute_paths(by_fields(Settings(config).give(settings, source=Source.USER, where=COMMAND_LINE), settings).values)


def _report(imported: ImportedModel, run: Run, corpus: Corpus | None, state: SavedState, *, root: Path) -> None:
    """Say what was imported, what is different now, and what to type next."""
    shape, progress = imported.shape, state.progress
    notice(
        Kind.IMPORTED,
        f"{imported.program}, step {imported.step:,}: {shape.n_layer} layers, {shape.n_head} heads, width {shape.n_embd}, "
        f"context {shape.block_size}, a vocabulary of {imported.tokenizer.vocab_size:,}, model.positions={shape.positions}",
    )
    for note in imported.notes:
        notice(Kind.NOTE, note)
    for kind, text, _ in corpus.describe() if corpus is not None else []:
        notice(kind, text)
    if corpus is not None:
        notice(Kind.LOSS, f"{progress.val_loss:.4f} on the validation split (the lower, the better)")
    name = run.name(root / "checkpoints")
    notice(Kind.RUN, shown(run.folder))
    notice(Kind.SAMPLE, Command("sample", name))
    if corpus is None:
        again = "   (to go on exactly where it stopped, add TEXT to the import command)" if imported.moments else ""
        notice(Kind.TRAIN, Message(Command("train", "TEXT", Option("init_from", name)), again))
        return
    is_finished = progress.step >= state.stage.length.steps  # without more steps, nothing is left to train
    longer = [Option("train.max_steps", progress.step + max(1, progress.step // 5))] * is_finished
    notice(Kind.RESUME, resuming(name, *longer, verb="train"))
