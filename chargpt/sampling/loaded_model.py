"""A trained model ready for use: what `chargpt.load` returns, and what sample.py works with."""

import dataclasses
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from chargpt.config import Config
from chargpt.device import choose_device, one_thread
from chargpt.runs.load import find_checkpoint, restore_model
from chargpt.sampling.c_decoder import choose_decoder
from chargpt.sampling.decoder import Decoder
from chargpt.sampling.precision import round_weights
from chargpt.sampling.printing import text_of
from chargpt.sampling.prompt import encode_prompt
from chargpt.sampling.rules import Sampling
from chargpt.sampling.surprisal import surprisals
from chargpt.sampling.text_generator import TextGenerator
from chargpt.terminal import one_line
from chargpt.text.tokenizer import Tokenizer
from model import GPT


@dataclass(frozen=True, kw_only=True)
class LoadedModel:
    """The model of a checkpoint, in evaluation mode, with its tokenizer and settings."""

    path: Path  # the folder of the checkpoint
    step: int
    val_loss: float | None  # at this step, in nats per character; None if it was not evaluated there
    texts: list[str]  # what it was trained on, as train.py was given it; paths are absolute
    fingerprint: str  # of the encoded text
    model: GPT
    tokenizer: Tokenizer
    config: Config
    decoder: Callable[..., Decoder]  # the fastest class of decoder for the model on its device
    engine: str  # the decoder in words, for people
    environment: Mapping[str, str | int | bool]  # what it was trained with: the version of torch, the device, the threads

    @property
    def run(self) -> str:
        """The name of the run."""
        return self.path.resolve().parent.name

    def describe(self) -> str:
        """One line: the run, the step, the validation loss if it is known, the size of the model, and what it runs on."""
        loss = "" if self.val_loss is None else f", validation loss {round(self.val_loss, 4) + 0.0:.4f}"  # not -0.0000
        return f"{one_line(self.run)}, step {self.step:,}{loss}, {self.model.parameter_count():,} parameters, {self.engine}"

    def text_generator(self, sampling: Sampling, *, length: int, **options: Any) -> TextGenerator:
        """The TextGenerator of this model. `options` are its other fields. Raises ValueError as it does."""
        return TextGenerator(
            model=self.model, tokenizer=self.tokenizer, decoder=self.decoder, sampling=sampling, length=length, **options
        )

    def generate(self, prompt: str = "", *, length: int = 500, seed: int | None = None, **options: Any) -> str:
        """The text `prompt` and at most `length` characters that continue it, as sample.py prints them.

        The same seed and options give the same text; without a seed, each call gives another one. `options` are the fields of
        `Sampling` and `TextGenerator`: temperature, top_k, top_p, min_p, repetition_penalty, lines, stop, allow, ban, overflow.
        Raises ValueError for characters of the prompt that the model does not know, and for options out of range.
        """
        names = {field.name for field in dataclasses.fields(Sampling)}
        rules = {name: options.pop(name) for name in names & options.keys()}
        if isinstance(options.get("stop"), str):
            options["stop"] = [options["stop"]]
        generator = self.text_generator(Sampling(**rules), length=length, **options)
        ids = encode_prompt(prompt, self.tokenizer, unknown="error")
        seed = secrets.randbits(32) if seed is None else seed
        return self.tokenizer.decode(ids) + "".join(text_of(added) for (added,) in generator.write(ids, [seed]))

    def score(self, text: str, *, stride: int = 0) -> float:
        """The mean loss of the model on `text` in nats per character (lower is better); divide by math.log(2) for bits.

        The loss of a character is its negative log-likelihood given the characters before it. A window of block_size
        characters begins every `stride` characters; see `surprisals`. The default, 0, is block_size: a window does not see the
        ones before it, as in the validation loss. The first character of the text is not predicted. A model of bytes is scored
        per byte. Raises ValueError for less than two characters, for characters that the model does not know, and for a stride
        beyond block_size.
        """
        ids = encode_prompt(text, self.tokenizer, unknown="error")
        if len(ids) < 2:
            raise ValueError(f"text: {text!r} given; use at least two characters")
        if not 0 <= stride <= self.model.config.block_size:
            raise ValueError(f"stride: {stride} given; use at most the context, {self.model.config.block_size}")
        losses = surprisals(self.model, [np.array(ids)], stride=stride or self.model.config.block_size)
        return sum(part.sum(dtype=np.float64).item() for part in losses) / (len(ids) - 1)

    @torch.inference_mode()
    def logits(self, text: str) -> Tensor:
        """The logits (T, V) of a text of T characters, float32, on the CPU: row t scores the character that follows text[t].

        Raises ValueError for an empty text, for more than block_size characters, and for unknown characters.
        """
        return self.model(self._ids(text)[None])[0].float().cpu()

    @torch.inference_mode()
    def attention(self, text: str) -> Tensor:
        """The attention weights (n_layer, n_head, T, T) on a text of T characters, float32, on the CPU.

        Entry [layer, head, t, s] is how much text[t] attends to text[s]. Raises ValueError as `logits` does.
        """
        return self.model.attention(self._ids(text)[None])[:, 0].float().cpu()

    def _ids(self, text: str) -> Tensor:
        """The ids of `text` on the model's device, (T,)."""
        ids = torch.tensor(encode_prompt(text, self.tokenizer, unknown="error"), dtype=torch.long)
        if not len(ids):
            raise ValueError("text: empty; use at least one character")
        return ids.to(self.model.token_embedding.weight.device)


def load_model(
    run: str | None, checkpoints: Path, *, device: str = "auto", precision: str = "float32"
) -> tuple[LoadedModel, list[str]]:
    """The best checkpoint of `run` (see `find_checkpoint`) on `device`, its weights rounded to `precision`, and warnings.

    Raises UserError, and ValueError for an unknown precision.
    """
    place = choose_device(device)
    with one_thread():
        checkpoint, warnings = find_checkpoint(run, checkpoints)
        model, tokenizer, config = restore_model(checkpoint)
        round_weights(model, precision)
    decoder, engine = choose_decoder(place, config.model, precision=precision)
    state = checkpoint.state
    loaded = LoadedModel(
        path=checkpoint.path,
        step=checkpoint.step,
        val_loss=state.progress.val_loss if state.progress.evaluated == checkpoint.step else None,
        texts=state.texts,
        fingerprint=state.fingerprint,
        model=model.to(place).eval(),
        tokenizer=tokenizer,
        config=config,
        decoder=decoder,
        engine=engine if precision == "float32" else f"{engine}, weights in {precision}",
        environment=state.environment,
    )
    return loaded, warnings
