"""A trained model ready for use: what `chargpt.load` returns, and what sample.py works with.

A text on a CPU needs no torch, whose import takes seconds: decode.c writes it. Torch computes everything else, and writes where
decode.c cannot be had.
"""

import ctypes
import random
import warnings
from collections.abc import Container, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, overload

import numpy as np

from chargpt.config import Config
from chargpt.errors import UserError, Words, in_python, python_errors
from chargpt.processor import may_have_gpu
from chargpt.runs.checkpoint import run_of
from chargpt.runs.load import find_checkpoint
from chargpt.sampling.c_texts import Weights, c_engine, c_writer, rounded
from chargpt.sampling.options import SamplingOptions, checked, listed, one_of, short, whole
from chargpt.sampling.printing import text_of, too_few_lines
from chargpt.sampling.prompt import first_id
from chargpt.sampling.text_generator import TextGenerator
from chargpt.sampling.writer import Writer
from chargpt.terminal import one_line
from chargpt.text.items import Item, ItemMarks, end_in, item_prompt
from chargpt.text.tokenizer import MAX_LISTED, Tokenizer, UnknownCharacters, character_name

if TYPE_CHECKING:
    from torch import Tensor

    from chargpt.model import GPT

UNKNOWN = one_of("error", "skip")  # what to do with characters that the model does not know
SMALL_WORK = 2e9  # operations, about 0.03 s of one core; with less, several threads wait for one another longer than they gain


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class LoadedModel:
    """The model of a checkpoint with its tokenizer and settings. Torch gets the weights when it is first needed."""

    path: Path  # the folder of the checkpoint
    step: int
    val_loss: float | None  # at this step, in nats per character; None if it was not evaluated there
    texts: list[str]  # what it was trained on, as train.py was given it; paths are absolute
    fingerprint: str  # of the encoded text
    tokenizer: Tokenizer
    config: Config
    environment: Mapping[str, str | int | bool]  # what it was trained with: the version of torch, the device, the threads
    parameters: int  # their number
    weights: Weights
    precision: str  # to which the weights are rounded
    device: str

    def __repr__(self) -> str:
        return f"<chargpt.LoadedModel {self.describe()}>"

    def __getstate__(self) -> dict[str, Any]:
        """For a pickle or a copy: without decode.c, which belongs to this process."""
        return {name: value for name, value in vars(self).items() if name not in ("_engine", "writer")}

    @property
    def run(self) -> str:
        """The name of the run."""
        return run_of(self.path.resolve()).name

    def describe(self) -> str:
        """One line: the run, the step, the validation loss if it is known, the size of the model, and what it runs on."""
        loss = "" if self.val_loss is None else f", validation loss {round(self.val_loss, 4) + 0.0:.4f}"  # not -0.0000
        stage = self.path.resolve().parent.name
        which = f", {stage}" if stage != self.run else ""  # a later model of the run
        return f"{one_line(self.run)}{which}, step {self.step:,}{loss}, {self.parameters:,} parameters, {self.engine}"

    @property
    def engine(self) -> str:
        """What writes, for people."""
        return self._engine[1] + (f", weights in {self.precision}" if self.precision != "float32" else "")

    @cached_property
    def _engine(self) -> tuple[ctypes.CDLL | None, str]:
        return c_engine(self.config.model) if self.device == "cpu" else (None, self.device)

    @cached_property
    def model(self) -> "GPT":
        """The model in torch, in evaluation mode. On a CPU, it has the weights in the same memory."""
        import torch

        from chargpt.device import one_thread
        from chargpt.runs.blank_model import blank_model

        with one_thread():
            model = blank_model(self.config.model, self.tokenizer.vocab_size)
            model.load_state_dict({name: torch.from_numpy(numbers) for name, numbers in self.weights.items()}, assign=True)
        return model.to(self.device).eval()

    @cached_property
    def writer(self) -> Writer:
        """What continues texts."""
        kernel, _ = self._engine
        if kernel is None:
            from chargpt.sampling.torch_texts import torch_writer

            return torch_writer(self.model)
        return c_writer(self.weights, self.config.model, kernel=kernel, precision=self.precision)

    def text_generator(self, options: SamplingOptions, *, excluded: Container[str] | None = None) -> TextGenerator:
        """The TextGenerator of this model. Raises ValueError as it does."""
        return TextGenerator(writer=self.writer, tokenizer=self.tokenizer, options=options, excluded=excluded)

    @property
    def item_marks(self) -> ItemMarks | None:
        """The ids that divide a text into items; None for a run that was not trained on items."""
        data = self.config.data
        return ItemMarks.of(self.tokenizer, has_labels=bool(data.label_fields)) if data.items else None

    @overload
    def generate(
        self,
        prompt: str = "",
        *,
        length: int | None = None,
        lines: int = 0,
        unique: bool = False,
        stop: str | Sequence[str] = (),
        keep_stop: bool = False,
        seed: int | None = None,
        temperature: float = 0.8,
        top_k: int = 0,
        top_p: float = 1.0,
        min_p: float = 0.0,
        repetition_penalty: float = 1.0,
        allow: str | None = None,
        ban: str | None = None,
        overflow: Literal["refill", "exact"] = "refill",
        unknown: Literal["error", "skip"] = "error",
    ) -> str: ...

    @overload
    def generate(self, prompt: list[str] | tuple[str, ...], **options: Any) -> list[str]: ...

    def generate(self, prompt: str | Sequence[str] = "", **options: Any) -> str | list[str]:
        """The text `prompt` and its continuation, as sample.py prints them; for a list of prompts, a list of texts.

        A text has at most `length` characters after the prompt (None: 500, or 1000 for each of `lines`). It ends with `lines`
        lines (0: no limit), or before the first of the texts `stop`, which with `keep_stop` is its end. With `unique`, its
        lines are whole and not blank, no line occurs twice, each begins with the last line of the prompt, and a warning says so
        if there are fewer than `lines`.

        The same `seed` and options give the same text; None is a random seed. The prompt with index i of a list draws from
        `seed` + i, so its text is the one that this prompt gives alone with that seed, up to the rounding of float32.

        `temperature` 0 always takes the most likely character; 1 is the model as trained. `top_k` keeps the k most likely
        characters (0: all), `top_p` the fewest whose probabilities sum to p (1: all), and `min_p` those at least p times as
        likely as the most likely one (0: all). `repetition_penalty` R makes each character of a repeated passage after the
        tenth R times less likely (1: off). `allow` are the only characters to write, `ban` those never to write. `overflow`
        says what the model reads beyond block_size characters: see docs/sampling.md. `unknown="skip"` leaves out characters of
        the prompt that the model does not know; otherwise they raise ValueError, as options out of range do.
        """
        with python_errors():
            chosen = SamplingOptions(**options)
            generator = self.text_generator(chosen)
        first = random.SystemRandom().getrandbits(32) if chosen.seed is None else chosen.seed
        prompts = self._encoded(*listed("prompt", prompt), chosen.unknown)
        written = generator.continuations(prompts, range(first, first + len(prompts)))
        if chosen.unique and (problem := too_few_lines(written, lines=chosen.lines, length=chosen.limit)):
            warnings.warn(in_python(problem), stacklevel=2)
        texts = [self.tokenizer.decode(ids) + text_of(added) for ids, added in zip(prompts, written)]
        return texts[0] if isinstance(prompt, str) else texts

    def next(
        self, prompt: str = "", count: int = 10, *, unknown: Literal["error", "skip"] = "error"
    ) -> list[tuple[str, float]]:
        """The `count` characters that are most likely to follow `prompt`, with their probabilities, the likeliest first.

        The probabilities are those of the model, without any sampling rule. A model of bytes predicts a byte; those beyond
        ASCII are shown as escapes such as \\xe4. Raises ValueError as `generate` does.
        """
        with python_errors():
            checked("unknown", unknown, UNKNOWN)
            count = checked("count", count, whole(1))
        (ids,) = self._encoded(*listed("prompt", prompt), unknown)
        return self.next_after(ids, count)

    def next_after(self, ids: Sequence[int], count: int) -> list[tuple[str, float]]:
        """The same after `ids`; without any, at the beginning of a text."""
        chances = np.exp(self.writer.log_probabilities(list(ids) or [first_id(self.tokenizer)]))
        best = np.argsort(-chances, kind="stable")[:count].tolist()
        is_bytes = self.tokenizer.characters is None
        return [(f"\\x{i:02x}" if is_bytes and i > 127 else self.tokenizer.decode([i]), float(chances[i])) for i in best]

    @overload
    def score(self, text: str, *, stride: int = 0, unknown: Literal["error", "skip"] = "error") -> float: ...

    @overload
    def score(
        self, text: list[str] | tuple[str, ...], *, stride: int = 0, unknown: Literal["error", "skip"] = "error"
    ) -> list[float]: ...

    def score(
        self, text: str | Sequence[str], *, stride: int = 0, unknown: Literal["error", "skip"] = "error"
    ) -> float | list[float]:
        """The mean loss of the model on `text` in nats per character (lower is better); divide by math.log(2) for bits.

        For a list of texts, a list of losses. Short texts are computed together, many times faster than one at a time, and
        their losses differ by less than 0.00001 from those of the same texts alone.

        The loss of a character is its negative log-likelihood given the characters before it. A window of block_size
        characters begins every `stride` characters; see `surprisals`. The default, 0, is block_size: a window does not see the
        ones before it, as in the validation loss. The first character of the text is not predicted. A model of bytes is scored
        per byte. `unknown="skip"` leaves out characters that the model does not know. Raises ValueError for those characters
        otherwise, for less than two characters, and for a stride beyond block_size.
        """
        from chargpt.sampling.surprisal import surprisals, total_losses

        size = self.config.model.block_size
        with python_errors():
            checked("unknown", unknown, UNKNOWN)
            stride = checked("stride", stride, whole(0))
        if stride > size:
            raise UserError(f"stride={stride}: use at most the context, {size}")
        given, names = listed("text", text)
        texts = [np.array(ids, np.int64) for ids in self._encoded(given, names, unknown)]
        for ids, one, name in zip(texts, given, names):
            if len(ids) < 2:
                raise UserError(f"{name}={short(one)}: use at least two characters that the model knows")
        if isinstance(text, str):
            with self.threads(min(len(texts[0]), size)):
                total = sum(part.sum(dtype=np.float64).item() for part in surprisals(self.model, texts, stride=stride or size))
            return total / (len(texts[0]) - 1)
        totals = total_losses(self.model, texts, stride=stride or size, threads=self.threads)
        return [total / (len(ids) - 1) for total, ids in zip(totals.tolist(), texts)]

    def item_losses(self, items: Sequence[Item]) -> np.ndarray:
        """The loss of each item and its end, given its label, in nats, float64, (len(items),), as in the validation.

        For a run on items. Characters that the model does not know are left out.
        """
        from chargpt.sampling.surprisal import total_losses

        end, texts, given = end_in(self.tokenizer), list[np.ndarray](), list[int]()
        before = {item.label: self.tokenizer.encode_known(item_prompt(self.tokenizer, item.label))[0] for item in items}
        for item in items:
            given.append(len(before[item.label]) - 1)
            texts.append(np.concatenate((before[item.label], self.tokenizer.encode_known(item.text + end)[0])))
        return total_losses(self.model, texts, stride=self.config.model.block_size, threads=self.threads, given=given)

    def logits(self, text: str) -> "Tensor":
        """The logits (T, V) of a text of T characters, float32, on the CPU: row t scores the character that follows text[t].

        Raises ValueError for an empty text, for more than block_size characters, and for unknown characters.
        """
        import torch

        ids = self._ids(text)
        with self.threads(len(ids)), torch.inference_mode():
            return self.model(ids[None])[0].float().cpu()

    def attention(self, text: str) -> "Tensor":
        """The attention weights (n_layer, n_head, T, T) on a text of T characters, float32, on the CPU.

        Entry [layer, head, t, s] is how much text[t] attends to text[s]. Raises ValueError as `logits` does.
        """
        import torch

        ids = self._ids(text)
        with self.threads(len(ids)), torch.inference_mode():
            return self.model.attention(ids[None])[:, 0].float().cpu()

    def threads(self, ids: int) -> AbstractContextManager[None]:
        """Inside, torch computes with one thread if reading `ids` ids is little work; then the number is what it was."""
        from chargpt.device import one_thread

        return one_thread() if 2 * self.parameters * ids < SMALL_WORK else nullcontext()

    def _ids(self, text: str) -> "Tensor":
        """The ids of `text` on the model's device, (T,)."""
        if not isinstance(text, str):
            raise UserError(f"text={short(text)}: use one str")
        ids, unknown = self.tokenizer.encode_known(text)
        if unknown:  # without them, a row would belong to another character
            named = ", ".join(map(character_name, dict.fromkeys(unknown[:MAX_LISTED])))
            what = f"text: characters the model has not seen: {named}; remove them"
            raise UnknownCharacters(what, characters=unknown)
        size = self.config.model.block_size
        if not 1 <= len(ids) <= size:
            what = f"{len(ids):,} characters" if len(ids) else "empty"
            raise UserError(f"text: {what}; use 1 to {size:,} characters, the model's block_size")
        import torch

        return torch.tensor(ids, dtype=torch.long, device=self.model.token_embedding.weight.device)

    def _encoded(self, texts: Sequence[str], names: Sequence[str], unknown: str) -> list[list[int]]:
        """The ids of each of the `texts`, which messages call `names`. Raises UserError."""
        encoded = []
        with python_errors():
            for text, name in zip(texts, names):
                known = self.tokenizer.encode_known(text)[0] if unknown == "skip" else self.tokenizer.encode(text, name=name)
                encoded.append(known.tolist())
        return encoded


def load_model(
    run: str | None, checkpoints: Path, *, start: str | None = None, device: str = "auto", precision: str = "float32"
) -> tuple[LoadedModel, list[Words]]:
    """The best checkpoint of `run` (see `find_checkpoint`) for `device`, its weights rounded to `precision`, and warnings.

    `start` is the name of a start that comes with the program, in place of a run.
    Raises UserError.
    """
    if device != "cpu" and (device != "auto" or may_have_gpu()):
        from chargpt.device import choose_device

        device = str(choose_device(device))
    checkpoint, warnings = find_checkpoint(run, checkpoints, start=start)
    state = checkpoint.state
    loaded = LoadedModel(
        path=checkpoint.path,
        step=checkpoint.step,
        val_loss=state.progress.val_loss if state.progress.evaluated == checkpoint.step else None,
        texts=state.texts,
        fingerprint=state.fingerprint,
        tokenizer=state.tokenizer,
        config=state.config,
        environment=state.environment,
        parameters=state.parameters,
        weights=rounded({name: tensor.numbers for name, tensor in checkpoint.stored_weights.items()}, precision),
        precision=precision,
        device="cpu" if device == "auto" else device,
    )
    return loaded, warnings
