"""A trained model ready for use: what `chargpt.load` returns, and what sample.py works with.

A text on a CPU needs no torch, whose import takes seconds: decode.c writes it. Torch computes everything else, and writes where
decode.c cannot be had, or where a GPU is faster.
"""

import ctypes
import importlib
import itertools
import math
import random
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Unpack, overload

import numpy as np

from chargpt.canonical import stored_as
from chargpt.config import Config
from chargpt.errors import Given, Option, TextTooShort, UserError, Words, nearest, resuming, warn
from chargpt.formatting import one_line
from chargpt.option_table import PathLike, check, named, whole
from chargpt.processor import may_have_gpu, prepare_forks
from chargpt.project import project_root, shell_word
from chargpt.runs.checkpoint import run_of
from chargpt.runs.checkpoint_schema import NO_TEXT, what_changed
from chargpt.runs.load import STARTS, find_checkpoint
from chargpt.runs.stage import Stage
from chargpt.sampling.c_texts import FASTER_THAN_GPU, Weights, c_engine, c_writer, round_weights, supports
from chargpt.sampling.item_writer import ItemWriter, draw_labels, known_items
from chargpt.sampling.options import UNKNOWN, ItemKeywords, Precision, SamplingOptions, TextKeywords, Unknown, texts_by_name
from chargpt.sampling.rules import RandomNumbers, probabilities
from chargpt.sampling.stop_rules import text_of
from chargpt.sampling.text_generator import TextGenerator
from chargpt.sampling.writer import Writer
from chargpt.standard import model_loss
from chargpt.text.item_stream import Item, end_in, item_prompt
from chargpt.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from torch import Tensor

    from chargpt.model import GPT
    from chargpt.text.corpus import Corpus

LISTED = 12  # labels that an error lists


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
    stage: Stage  # which model of its run this is, and what was decided about it
    environment: Mapping[str, str | int | bool]  # what it was trained with: the version of torch, the device, the threads
    parameters: int  # their number
    weights: Weights
    precision: str  # to which the weights are rounded
    device: str  # auto only where there may be a GPU
    changed: str = ""  # how model.py computes something else than when it trained the model; empty if it does not

    def __repr__(self) -> str:
        return f"<chargpt.LoadedModel {self._what()}>"  # what runs it is decided, and compiled, when it is first used

    def __getstate__(self) -> dict[str, Any]:
        """For a pickle or a copy: without decode.c, which belongs to this process."""
        return {name: value for name, value in vars(self).items() if name != "_in_c"}

    @property
    def run(self) -> str:
        """The name of the run."""
        return run_of(self.path.resolve()).name

    def describe(self, texts: int = 1) -> str:
        """One line: the run, the step, the validation loss if it is known, the size of the model, and what writes `texts`."""
        return f"{self._what()}, {self.engine(texts)}"

    def _what(self) -> str:
        loss = "" if self.val_loss is None else f", validation loss {round(self.val_loss, 4) + 0.0:.4f}"  # not -0.0000
        path, run = self.path.resolve(), run_of(self.path.resolve())
        which = "" if run in (path, path.parent) else f", {path.parent.name}"  # a later model of the run
        return f"{one_line(self.run)}{which}, step {self.step:,}{loss}, {self.parameters:,} parameters"

    def engine(self, texts: int = 1) -> str:
        """What writes so many texts, for people."""
        return self._engine(texts)[1] + (f", weights in {self.precision}" if self.precision != "float32" else "")

    @cached_property
    def _torch_device(self) -> str:
        if self.device != "auto":
            return self.device
        from chargpt.device import choose_device

        return str(choose_device(self.device))

    @cached_property
    def _in_c(self) -> tuple[ctypes.CDLL | None, str]:
        return c_engine(self.config.model)

    def _engine(self, texts: int) -> tuple[ctypes.CDLL | None, str]:
        """The library in C, if it writes so many texts, and what to call what does."""
        is_small = self.device == "auto" and self.parameters * texts < FASTER_THAN_GPU
        kernel, told = self._in_c if is_small or self._torch_device == "cpu" else (None, "")
        return kernel, told if kernel is not None or self._torch_device == "cpu" else self._torch_device

    @cached_property
    def model(self) -> "GPT":
        """The model in torch, in evaluation mode. On a CPU, it has the weights in the same memory."""
        import torch

        from chargpt.device import one_thread
        from chargpt.runs.blank_model import blank_model

        with one_thread():
            model = blank_model(self.config.model, self.tokenizer.vocab_size)
            model.load_state_dict({name: torch.from_numpy(numbers) for name, numbers in self.weights.items()}, assign=True)
        return model.to(self._torch_device).eval()

    def writer(self, texts: int = 1) -> Writer:
        """What continues so many texts: decode.c, as long as model.py computes what it does. A notebook may replace a part."""
        kernel, _ = self._engine(texts)
        if kernel is not None and supports(self.config.model):
            return c_writer(self.weights, self.config.model, kernel=kernel, precision=self.precision)
        from chargpt.sampling.torch_texts import torch_writer

        return torch_writer(self.model)

    def text_generator(
        self, options: SamplingOptions, *, excluded: Container[str] | None = None, texts: int = 1
    ) -> TextGenerator:
        """The TextGenerator of this model for so many texts. Raises ValueError as it does."""
        return TextGenerator(writer=self.writer(texts), tokenizer=self.tokenizer, options=options, excluded=excluded)

    def model_loss(self) -> float | None:
        """What model.py makes of these weights, on ids that stand for nothing: see `model_loss` of standard.py."""
        texts = self.writer().new_texts(1)
        read = lambda ids: np.concatenate([texts.read(i, np.array([[new]])) for i, new in enumerate(ids)])  # noqa: E731
        return model_loss(read, self.config.model, self.tokenizer.vocab_size)

    def find_corpus(self) -> "Corpus | None":
        """The encoded text that it was trained on; None if it is in no cache, see `cached_corpus`."""
        from chargpt.text.corpus import cached_corpus  # writing needs no text

        return cached_corpus(self.texts, self.config.data, self.tokenizer, root=project_root(), fingerprint=self.fingerprint)

    def corpus(self, asks: Words = "") -> "Corpus":
        """The same for the option that `asks` for it, if one does. Raises UserError if it is in no cache."""
        if corpus := self.find_corpus():
            return corpus
        if self.path.parent == STARTS:
            raise UserError(asks or self.run, ": comes with the program, without its texts; give a TEXT, or a run of yours")
        if self.fingerprint == NO_TEXT and not self.texts:
            raise UserError(asks or self.run, ": the run was imported without a text; import it again with TEXT")
        what = ": the prepared training text of this run is gone; if the text is unchanged, prepare it again with "
        raise UserError(asks or self.run, what, resuming(self.run, verb="train"))

    def writes_items(self, asks: str, *, of_text: object) -> bool:
        """Whether this run writes items: it was trained on some, and nothing is asked for that is `of_text`.

        `asks` is the option that asks for items; empty for none. Raises UserError for it if the run has none.
        """
        if asks and not self.config.data.items:
            what = f": the run {self.run!r} was not trained on items; leave it out, or train with "
            raise UserError(Option(asks), what, Option("data.items", "line"))
        return bool(self.config.data.items) and not of_text

    def labels(self, label: str | None = None) -> Mapping[str, int]:
        """How often each label is written: as in the training text, or `label` alone; empty without any. Raises UserError."""
        if not self.config.data.label_fields:
            if label is not None:
                raise UserError(Given("label", label, ", but "), f"the run {self.run!r} has no labels; leave out the label")
            return {}
        corpus = self.corpus(Option("label")) if label is None else self.find_corpus()
        known = {} if corpus is None or corpus.items is None else corpus.items.labels
        if label is None:
            return known
        label = stored_as(self.tokenizer.normalizer.apply(" ".join(label.split())), known)
        if not known or label in known:
            return {label: 1}
        meant = [name for name in known if name.casefold() == label.casefold()]
        if len(meant) != 1:
            folded = {name.casefold(): name for name in reversed(known)}  # of two, the more frequent one
            otherwise = f"use one of {listed_labels(known)}"
            raise UserError(Given("label", label), nearest(label.casefold(), folded, otherwise=otherwise))
        return {meant[0]: 1}

    def item_writer(self, wanted: SamplingOptions, *, beginning: str) -> ItemWriter:
        """What writes the `wanted` items, each with this `beginning`. Raises UserError."""
        self.writes_items("items", of_text=False)
        if not wanted.longest:
            raise UserError(Given("length", wanted.length), "use 1 or more, since an item has at least one character")
        labels, generator = self.labels(wanted.label), self.text_generator(wanted.for_one(), texts=wanted.items)
        known = known_items(self.corpus(Option("new"))) if wanted.new else frozenset[str]()
        return ItemWriter(generator=generator, wanted=wanted, labels=labels, known=known, beginning=beginning)

    @overload
    def generate(self, prompt: str = "", **options: Unpack[TextKeywords]) -> str: ...

    @overload
    def generate(self, prompt: list[str] | tuple[str, ...], **options: Unpack[TextKeywords]) -> list[str]: ...

    @named
    def generate(self, prompt: str | Sequence[str] = "", **options: Unpack[TextKeywords]) -> str | list[str]:
        """The text `prompt` and its continuation, as sample.py prints them; for a list of prompts, a list of texts.

        A text has at most `length` characters after the prompt (None: 500, or 1000 for each of `lines`). It ends with `lines`
        lines (0: no limit), or before the first of the texts `stop`, which with `keep_stop` is its end. With `unique`, its
        lines are whole and not blank, no line occurs twice, each begins with the last line of the prompt, and a warning says so
        if there are fewer than `lines`. With `lines`, none has one of the `ban_word`, in any case.

        The same `seed` and options give the same text; None is a random seed. The prompt with index i of a list draws from
        `seed` + i, so its text is the one that this prompt gives alone with that seed.

        `temperature` 0 always takes the most likely character; 1 is the model as trained. `top_k` keeps the k most likely
        characters (0: all), `top_p` the fewest whose probabilities sum to p (1: all), and `min_p` those at least p times as
        likely as the most likely one (0: all). `repetition_penalty` R makes each character of a repeated passage after the
        tenth R times less likely (1: off). `allow` are the only characters to write, `ban` those never to write.
        docs/sampling.md has every rule, and `overflow`: what the model reads beyond block_size. `unknown="skip"` leaves out
        characters of the prompt that the model does not know; otherwise they raise ValueError, as options out of range do.

        A run on items writes one item for each prompt, which is how it begins, unless `lines` or `stop` asks for a text. Its
        label is `label`, or drawn by the frequencies in the training text, and is not part of the text. See `items` for many.
        """
        generator, begun, ids, seeds = self._begin(prompt, **options)
        written, problem = generator.continuations(ids, seeds)
        if problem is not None:
            warn(problem)
        texts = [beginning + text_of(added) for beginning, added in zip(begun, written)]
        return texts[0] if isinstance(prompt, str) else texts

    @named
    def stream(self, prompt: str = "", **options: Unpack[TextKeywords]) -> Iterator[str]:
        """The text that `generate` gives with the same options, in pieces as it is written: the prompt, then its continuation.

        Raises ValueError as `generate` does.
        """
        generator, beginning, ids, seeds = self._begin(*texts_by_name("prompt", prompt, several=False).values(), **options)
        added = (text_of(characters) for (characters,) in generator.write(ids, seeds))
        return filter(None, itertools.chain(beginning, added))

    def _begin(
        self, prompt: str | Sequence[str], **options: Unpack[TextKeywords]
    ) -> tuple[TextGenerator, list[str], list[list[int]], list[int]]:
        """What writes, how each text begins, the ids that are continued, and their seeds. Raises UserError."""
        chosen = SamplingOptions(**options)
        asks, of_text = "" if chosen.label is None else "label", chosen.lines or chosen.stop
        if asks and of_text:
            what = "= is for a list of items, and lines= and stop= are for other text; leave out label=, or lines= and stop="
            raise UserError(Option(asks), what)
        is_items = self.writes_items(asks, of_text=of_text)
        ids = self._encoded(texts_by_name("prompt", prompt), chosen.unknown)
        begun, first = [self.tokenizer.decode(one) for one in ids], _seed(chosen.seed)
        seeds = list(range(first, first + len(ids)))
        if is_items:
            labels, length = self.labels(chosen.label), chosen.longest if chosen.length is None else chosen.length
            chosen = replace(chosen, length=length, stop=end_in(self.tokenizer))
            for i, beginning in enumerate(begun):
                (name,), (seeds[i],) = draw_labels(labels, RandomNumbers(seeds[i]), 1)
                ids[i] = self.tokenizer.encode(item_prompt(self.tokenizer, name, beginning)).tolist()
        return self.text_generator(chosen, texts=len(ids)), begun, ids, seeds

    @named
    def items(self, count: int = 10, *, prompt: str = "", **options: Unpack[ItemKeywords]) -> list[Item]:
        """`count` items of a run on items, as sample.py writes them: each with its `label` and its `text`.

        Without a `label`, each label occurs as often as in the training text; it is "" for a run without labels. Each item
        begins with `prompt`. With `unique`, no item occurs twice, and with `new`, no item is one of the training text. `match`
        is a regular expression that occurs in each item, in which ^ and $ are the ends of a line. An item has from `min_length`
        to `max_length` characters (None: 1000). The other options are those of `generate`.

        There are fewer items, and a warning says so, if 1,000 in a row do not fit the options. Raises ValueError as `generate`
        does, and for a run that was not trained on items.
        """
        wanted = SamplingOptions(items=check("count", count, whole(1)), **options)
        wanted = replace(wanted, seed=_seed(wanted.seed))
        (ids,) = self._encoded(texts_by_name("prompt", prompt, several=False), wanted.unknown)
        items = [*(writer := self.item_writer(wanted, beginning=self.tokenizer.decode(ids)))]
        if writer.problem:
            warn(writer.problem)
        return items

    @named
    def next(self, prompt: str = "", count: int = 10, *, unknown: Unknown = "error") -> list[tuple[str, float]]:
        """The `count` characters that are most likely to follow `prompt`, with their probabilities, the likeliest first.

        The probabilities are those of the model, without any sampling rule. A model of bytes predicts a byte; those beyond
        ASCII are shown as escapes such as \\xe4. Raises ValueError as `generate` does.
        """
        (ids,) = self._encoded(texts_by_name("prompt", prompt, several=False), unknown)
        return self.next_after(ids, check("count", count, whole(1)))

    def next_after(self, ids: Sequence[int], count: int) -> list[tuple[str, float]]:
        """The same after `ids`; without any, at the beginning of a text."""
        writer = self.writer()
        read = [*ids][-writer.block_size :] or [self.tokenizer.first_id]
        chances = probabilities(writer.new_texts(1).read(0, np.array([read])))[0]
        best = np.argsort(-chances, kind="stable")[:count].tolist()
        is_bytes = self.tokenizer.characters is None
        return [(f"\\x{i:02x}" if is_bytes and i > 127 else self.tokenizer.decode([i]), float(chances[i])) for i in best]

    @overload
    def score(self, text: str, *, stride: int = 0, unknown: Unknown = "error") -> float: ...

    @overload
    def score(self, text: list[str] | tuple[str, ...], *, stride: int = 0, unknown: Unknown = "error") -> list[float]: ...

    @named
    def score(self, text: str | Sequence[str], *, stride: int = 0, unknown: Unknown = "error") -> float | list[float]:
        """The mean loss of the model on `text` in nats per character (lower is better); divide by math.log(2) for bits.

        For a list of texts, a list of losses, computed together; they differ by less than 0.00001 from those of each alone.
        A text of the list with less than two characters has no loss: it is nan, and a warning counts them.

        The loss of a character is its negative log-likelihood given the characters before it. A window of block_size
        characters begins every `stride` characters, and predicts those that none before it has predicted. The default, 0, is
        block_size: a window does not see the ones before it, as in the validation loss. The first character of the text is not
        predicted. A model of bytes is scored per byte. `unknown="skip"` leaves out characters that the model does not know.
        Raises ValueError for those characters otherwise, for one text with less than two characters, and for a stride beyond
        block_size.
        """
        from chargpt.sampling.surprisal import total_losses

        given = texts_by_name("text", text)
        texts, stride = self._to_predict(given, stride, unknown)
        short = [name for name, ids in zip(given, texts) if len(ids) < 2]
        if short and isinstance(text, str):
            raise TextTooShort(Given("text", text), "use at least two characters that the model knows")
        if short:
            what = f"{len(short):,} of {len(texts):,} texts have less than two characters that the model knows"
            warn(f"{what}, the first is {short[0]}; their losses are nan")
        totals = total_losses(self.model, texts, stride=stride)
        losses = [total / (len(ids) - 1) if len(ids) > 1 else math.nan for total, ids in zip(totals.tolist(), texts)]
        return losses[0] if isinstance(text, str) else losses

    def item_losses(self, items: Sequence[Item]) -> np.ndarray:
        """The loss of each item and its end, given its label, in nats, float64, (len(items),), as in the validation.

        For a run on items. Characters that the model does not know are left out.
        """
        from chargpt.sampling.surprisal import total_losses

        tokenizer, end = self.tokenizer, end_in(self.tokenizer)
        before = {label: tokenizer.encode_known(item_prompt(tokenizer, label))[0] for label in {item.label for item in items}}
        texts = [np.append(before[item.label], tokenizer.encode_known(item.text + end)[0]) for item in items]
        given = [len(before[item.label]) - 1 for item in items]
        return total_losses(self.model, texts, stride=self.config.model.block_size, given=given)

    @named
    def logits(self, text: str) -> "Tensor":
        """The logits (T, V) of a text of T characters, float32, on the CPU: row t scores the character that follows text[t].

        Raises ValueError for an empty text, for more than block_size characters, and for unknown characters.
        """
        with self._reading(text) as ids:
            return self.model(ids)[0].float().cpu()

    @named
    def attention(self, text: str) -> "Tensor":
        """The attention weights (n_layer, n_head, T, T) on a text of T characters, float32, on the CPU.

        Entry [layer, head, t, s] is how much text[t] attends to text[s]. Raises ValueError as `logits` does.
        """
        from chargpt.runs.models import attention_of

        with self._reading(text) as ids:
            return attention_of(self.model, ids)[:, 0].float().cpu()

    @named
    def hidden_states(self, text: str) -> "Tensor":
        """What the model computes of a text of T characters: (n_layer + 1, T, n_embd), float32, on the CPU.

        Entry [0] are the embeddings, and [i] what block i has written. Raises ValueError as `logits` does.
        """
        from chargpt.runs.models import hidden_states_of

        with self._reading(text) as ids:
            return hidden_states_of(self.model, ids)[:, 0].float().cpu()

    @named
    def losses(self, text: str, *, stride: int = 0, unknown: Unknown = "error") -> np.ndarray:
        """The loss of each character of `text` in nats, float32, (T,), whose mean is `score`; that of the first one is nan.

        The other arguments and the errors are those of `score`.
        """
        from chargpt.sampling.surprisal import losses_of

        (ids,), stride = self._to_predict(texts_by_name("text", text, several=False), stride, unknown)
        if len(ids) < 2:
            raise TextTooShort(Given("text", text), "use at least two characters that the model knows")
        found = np.concatenate([*losses_of(self.model, ids, stride=stride)])
        return np.concatenate([np.array([np.nan], np.float32), found])

    @named
    def export(
        self,
        to: Literal["hf", "gguf", "html", "safetensors"],
        out: PathLike | None = None,
        *,
        weights: Literal["float16", "int8"] = "float16",
        learns: bool = True,
        force: bool = False,
    ) -> Path:
        """Write the model in the format of another program, as `python -m chargpt export` does, and return where it is.

        `out` is the file or folder; None is the name of the run and of the format. `weights` and `learns` are of a page (html).
        Only with `force` is an earlier export replaced. Raises ValueError, and NotWritten, a RuntimeError.
        """
        exchange = importlib.import_module("chargpt.exchange.export")  # a package above this one
        on_cpu = replace(self, device="cpu")
        return exchange.export(on_cpu, to, out, weights=weights, learns=learns, force=force, tell=warn)

    @contextmanager
    def _reading(self, text: str) -> Iterator["Tensor"]:
        """The ids of `text` on the model's device, (1, T), and inside, how torch reads them."""
        import torch

        from chargpt.sampling.surprisal import threads_for

        size = self.config.model.block_size
        (text,) = texts_by_name("text", text, several=False).values()
        ids = self.tokenizer.encode(text, name="text", what_to_do="remove them")
        if not 1 <= len(ids) <= size:
            what = f"{len(ids):,} characters" if len(ids) else "empty"
            raise UserError(f"text: {what}; use 1 to {size:,} characters, the model's block_size")
        with threads_for(self.model, len(ids)), torch.inference_mode():
            yield torch.tensor(ids, device=self.model.token_embedding.weight.device)[None]

    def _to_predict(self, texts: Mapping[str, str], stride: int, unknown: str) -> tuple[list[np.ndarray], int]:
        """The ids (T,) of each of the `texts`, and after how many of them a window begins. Raises UserError."""
        size = self.config.model.block_size
        if check("stride", stride, whole(0)) > size:
            raise UserError(Given("stride", stride), f"use {size} or less, the characters the model reads at once")
        return [np.array(ids, np.int64) for ids in self._encoded(texts, unknown)], stride or size

    def _encoded(self, texts: Mapping[str, str], unknown: str) -> list[list[int]]:
        """The ids of each of the `texts`, by their names in messages. Raises UserError."""
        if check("unknown", unknown, UNKNOWN) == "skip":
            return [self.tokenizer.encode_known(text)[0].tolist() for text in texts.values()]
        return [self.tokenizer.encode(text, name=name).tolist() for name, text in texts.items()]


def _seed(given: int | None) -> int:
    """The seed that is given, or a random one."""
    return random.SystemRandom().getrandbits(32) if given is None else given


def listed_labels(labels: Iterable[str]) -> str:
    """The first LISTED of the labels, as they are typed in a shell, and how many more there are."""
    words = [shell_word(label) for label in labels]
    return ", ".join(words[:LISTED]) + (f" and {len(words) - LISTED:,} more" if len(words) > LISTED else "")


@named
def load(
    run: PathLike | None = None, *, start: str | None = None, device: str = "auto", precision: Precision = "float32"
) -> LoadedModel:
    """The trained model of `run`, its best checkpoint: see `LoadedModel`.

    `run` is the name of a run in the folder checkpoints, the path of a run, or the path of one of its checkpoints;
    None is the newest run. `start` names a model that comes with the program, in place of a run. `device` is auto, cpu, cuda,
    cuda:N or mps. `precision`, to which the weights are rounded, is float32, bfloat16 or int8. Warns if the best checkpoint is
    damaged and another one is used. Raises ValueError for another precision, if there is no such run or start, and if no
    checkpoint of it can be used.
    """
    name = None if run is None else str(run)
    if start is not None and name is not None:
        raise UserError(f"start={start!r}: given together with run={name!r}; leave one out")
    loaded, problems = load_model(name, project_root() / "checkpoints", start=start, device=device, precision=precision)
    for problem in problems:
        warn(problem)
    return loaded


def load_model(
    run: str | None, checkpoints: Path, *, start: str | None = None, device: str = "auto", precision: str = "float32"
) -> tuple[LoadedModel, list[Words]]:
    """The best checkpoint of `run` (see `find_checkpoint`) for `device`, its weights rounded to `precision`, and warnings.

    `start` is the name of a start that comes with the program, in place of a run. Raises UserError.
    """
    if device == "auto" and not may_have_gpu():
        device = "cpu"
    if device not in ("auto", "cpu"):
        from chargpt.device import choose_device

        device = str(choose_device(device))
    checkpoint, warnings = find_checkpoint(run, checkpoints, start=start)
    prepare_forks()
    state = checkpoint.state
    loaded = LoadedModel(
        path=checkpoint.path,
        step=checkpoint.step,
        val_loss=state.progress.val_loss if state.progress.evaluated == checkpoint.step else None,
        texts=state.texts,
        fingerprint=state.fingerprint,
        tokenizer=state.tokenizer,
        config=state.config,
        stage=state.stage,
        environment=state.environment,
        parameters=state.parameters,
        weights=round_weights(checkpoint.stored_weights, precision),
        precision=precision,
        device=device,
    )
    exact = replace(loaded, weights=checkpoint.stored_weights, precision="float32")
    loaded = replace(loaded, changed=what_changed(state, exact.model_loss))
    return loaded, [*warnings, *filter(None, [loaded.changed])]
