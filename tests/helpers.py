"""What several test files call: saved states, run folders with random models, and the bits of a run."""

import hashlib
import json
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from chargpt.config import Config, ModelConfig, OptimConfig, TrainConfig
from chargpt.model import GPT, GPTConfig
from chargpt.planning.cli import settings_in
from chargpt.runs.checkpoint import publish
from chargpt.runs.checkpoint_schema import SavedState
from chargpt.runs.metrics import EVENT
from chargpt.runs.stage import Length, Models, Progress, Stage
from chargpt.sampling.c_texts import CTexts
from chargpt.sampling.options import SamplingOptions
from chargpt.sampling.writer import NewIds, Texts, Writer
from chargpt.settings import COMMAND_LINE, Settings, Source, apply
from chargpt.standard import model_source
from chargpt.text.tokenizer import Tokenizer
from chargpt.training.batches import Batches
from chargpt.training.item_batches import ItemBatches

TINY_FILE = str(Path(__file__).with_name("tiny.yaml"))
TOKENIZER = Tokenizer("\n abcdefgh中")
# A run in which evaluations, logs and saves come at different steps.
SHORT_RUN = "--config tiny train.max_steps=12 train.eval_interval=4 train.log_interval=1 checkpoint.interval=3".split()
SHORT_RUN += ["train.sample_length=5", "runtime.threads=1"]
SHAPE = GPTConfig(n_layer=1, n_head=2, n_embd=16, block_size=16, bias=True)


class Clock:
    """A replacement of the module `time` that goes on where a test says so. To ask for a thread's own time takes 1 ms."""

    def __init__(self) -> None:
        self.now, self.worked = 1000.0, 0.0  # seconds
        self.slowness = 1.0  # how many times longer work takes than on an idle machine

    def perf_counter(self) -> float:
        return self.now

    def process_time(self) -> float:
        return self.worked

    def thread_time(self) -> float:
        self.now, self.worked = self.now + 0.001 * self.slowness, self.worked + 0.001
        return self.worked

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def wait_for(has_come: Callable[[], object], *, seconds: float = 120) -> None:
    """Return when this has come; raise TimeoutError if it does not."""
    end = time.monotonic() + seconds
    while not has_come():
        if time.monotonic() > end:
            raise TimeoutError
        time.sleep(0.01)


def after_each_piece(patch: pytest.MonkeyPatch, action: Callable[[], None]) -> None:
    """Call `action` after each piece of text that an engine writes, compiled or not."""

    def observed(write: Callable[..., NewIds]) -> Callable[..., NewIds]:
        def write_and_act(*given: object, **named: object) -> NewIds:
            piece = write(*given, **named)
            action()
            return piece

        return write_and_act

    for engine in (Texts, CTexts):
        patch.setattr(engine, "write", observed(engine.write))


def clear_model(vocab_size: int = 11, *, scale: float = 4.0, **shape: object) -> GPT:
    """A model whose logits differ clearly: weights larger than at the start of training, and biases that are not zero."""
    torch.manual_seed(0)
    config = GPTConfig(**{"n_layer": 2, "n_head": 2, "n_embd": 16, "block_size": 8, "bias": True, **shape})
    model = GPT(config, vocab_size).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(scale) if parameter.dim() > 1 else parameter.add_(0.1 * torch.randn_like(parameter))
    return model


def weights_of(model: GPT) -> dict[str, np.ndarray]:
    """The weights of a model, in the same memory."""
    return {name: parameter.detach().numpy() for name, parameter in model.named_parameters()}


def written(writer: Writer, prompts: list[list[int]], length: int, options: SamplingOptions, *seeds: int, **more) -> np.ndarray:
    """The ids (B, length) that continue the prompts, or one prompt for each seed. `more` are options of `Writer.pieces`."""
    prompts = prompts if len(prompts) == len(seeds) else prompts * len(seeds)
    return np.concatenate([piece.ids for piece in writer.pieces(prompts, length, options, seeds=seeds, **more)]).T


def saved_state(
    step: int,
    *,
    shape: GPTConfig = SHAPE,
    tokenizer: Tokenizer = TOKENIZER,
    val_loss: float | None = 1.5,
    best_step: int | None = None,
    **changes: object,
) -> SavedState:
    """The state of a run that was evaluated at `step`, the best one if no `best_step` is given, unless `val_loss` is None.

    `changes` may have its `number`.
    """
    evaluated, best = (None, None) if val_loss is None else (step, step if best_step is None else best_step)
    losses = {"val_loss": val_loss, "best_loss": val_loss, "lowest_loss": val_loss}
    progress = Progress(step=step, evaluated=evaluated, best_step=best, **losses)
    one = Config(model=ModelConfig(**vars(shape)), train=TrainConfig(batch_size=1))  # so that any block_size is allowed
    config, number = changes.pop("config", one), changes.pop("number", 1)
    state = {
        "settings": Settings(config),
        "stage": Stage(number=number, models=Models(count=number), length=Length.of(config)),
        "tokenizer": tokenizer,
        "texts": ["poems.txt"],
        "fingerprint": "0" * 64,
        "progress": progress,
        "environment": {"device": "cpu"},
        "model_source": model_source(),
    }
    return SavedState(**{**state, **changes})


def random_weights(step: int, *, shape: GPTConfig = SHAPE, tokenizer: Tokenizer = TOKENIZER) -> dict[str, torch.Tensor]:
    """The weights of a model that is different for each step."""
    torch.manual_seed(step)
    return GPT(shape, tokenizer.vocab_size).state_dict()


def publish_run(
    folder: Path,
    tokenizer: Tokenizer = TOKENIZER,
    *,
    shape: GPTConfig = SHAPE,
    steps: tuple[int, ...] = (500,),
    val_loss: float | None = 1.5,
    **changes: object,
) -> Path:
    """A run of random models, a different one for each step; its best checkpoint is the first. `changes` are of its state."""
    folder.mkdir(parents=True)
    for step in steps:
        state = saved_state(step, shape=shape, tokenizer=tokenizer, val_loss=val_loss, best_step=steps[0], **changes)
        publish(folder, weights=random_weights(step, shape=shape, tokenizer=tokenizer), training={}, state=state)
    return folder


def batch_of(batches: Batches | ItemBatches, step: int, micro: int = 0, rows: slice = slice(None)) -> tuple[Tensor, Tensor]:
    """Inputs and targets (B, T) of these rows of a micro-batch, on a CPU."""
    return batches.windows(batches.fetch(step, micro, rows))


def length_of(config: OptimConfig, steps: int) -> Length:
    """The length of a run of so many steps."""
    return Length.of(Config(optim=config), steps=steps)


def last_step(run: Path) -> Path:
    """The folder of the newest checkpoint."""
    return sorted(run.glob("step-*"))[-1]


def bits(run: Path) -> dict[str, str]:
    """SHA-256 of the final weights and of the optimizer's state."""
    files = ("model.safetensors", "training.safetensors")
    return {name: hashlib.sha256((last_step(run) / name).read_bytes()).hexdigest() for name in files}


def logged(run: Path) -> list[dict]:
    """The measurements of metrics.jsonl."""
    return [line for line in log_of(run) if EVENT not in line]


def log_of(run: Path) -> list[dict]:
    """The lines of metrics.jsonl."""
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text(encoding="utf-8").split("\n")[:-1]]


def logged_without_speed(run: Path) -> list[dict]:
    """The same, without what differs from run to run."""
    return [{key: value for key, value in line.items() if key != "chars_per_second"} for line in logged(run)]


def apply_overrides(config: Config, words: Iterable[str]) -> Config:
    """`config` with the settings of section.key=value words, as the command line sets them."""
    return apply(config, settings_in(words), where=COMMAND_LINE)


def given(*words: str) -> Settings:
    """The defaults with the settings of section.key=value words, which a user has given."""
    return Settings().give(settings_in(words), source=Source.USER, where=COMMAND_LINE)
