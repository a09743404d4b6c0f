"""A run that is ready to write, with torch or without."""

from collections.abc import Container, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from chargpt.config import Config
from chargpt.runs.checkpoint import Checkpoint
from chargpt.sampling.options import SamplingOptions
from chargpt.sampling.text_generator import TextGenerator, Writer
from chargpt.terminal import one_line
from chargpt.text.tokenizer import Tokenizer


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class LoadedRun:
    """A checkpoint, and what writes with its model."""

    path: Path  # the folder of the checkpoint
    step: int
    val_loss: float | None  # at this step, in nats per character; None if it was not evaluated there
    texts: list[str]  # what it was trained on, as train.py was given it; paths are absolute
    fingerprint: str  # of the encoded text
    tokenizer: Tokenizer
    config: Config
    environment: Mapping[str, str | int | bool]  # what it was trained with: the version of torch, the device, the threads
    engine: str  # the decoder in words, for people
    parameters: int  # their number
    writer: Writer

    @property
    def run(self) -> str:
        """The name of the run."""
        return self.path.resolve().parent.name

    def describe(self) -> str:
        """One line: the run, the step, the validation loss if it is known, the size of the model, and what it runs on."""
        loss = "" if self.val_loss is None else f", validation loss {round(self.val_loss, 4) + 0.0:.4f}"  # not -0.0000
        return f"{one_line(self.run)}, step {self.step:,}{loss}, {self.parameters:,} parameters, {self.engine}"

    def text_generator(self, options: SamplingOptions, *, excluded: Container[str] | None = None) -> TextGenerator:
        """The TextGenerator of this model. Raises ValueError as it does."""
        return TextGenerator(writer=self.writer, tokenizer=self.tokenizer, options=options, excluded=excluded)


def facts_of(checkpoint: Checkpoint) -> dict[str, Any]:
    """The fields of a LoadedRun that its checkpoint alone decides."""
    state = checkpoint.state
    return {
        "path": checkpoint.path,
        "step": checkpoint.step,
        "val_loss": state.progress.val_loss if state.progress.evaluated == checkpoint.step else None,
        "texts": state.texts,
        "fingerprint": state.fingerprint,
        "tokenizer": state.tokenizer,
        "config": state.config,
        "environment": state.environment,
        "parameters": state.parameters,
    }
