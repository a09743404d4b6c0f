"""Reads a checkpoint of nanoGPT: ckpt.pt, and meta.pkl with its characters.

Both are pickles, which can name any function. Only those are called with which torch makes tensors and containers.
"""

import io
import pickle
import pickletools
import re
import warnings
import zipfile
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from chargpt.aliases import ALIASES
from chargpt.config import ModelConfig
from chargpt.errors import UserError
from chargpt.exchange.importing import ImportedModel, brief, checked_shape, imported
from chargpt.exchange.layouts import NANOGPT, read_weights
from chargpt.exchange.tensor_file import OUTPUT, TensorSource, check_file
from chargpt.exchange.tokenizer_json import in_order
from chargpt.formatting import one_line, shown
from chargpt.project import shell_word
from chargpt.runs.checkpoint_schema import MAX_NUMBERS, MAX_STEPS, read_bounded
from chargpt.text.formats import CHECKPOINT
from chargpt.text.tokenizer import CODE_POINTS, Tokenizer

VOCABULARY = "meta.pkl"
MAX_PICKLED = 32 << 20  # bytes of a pickle, without the numbers of tensors
MAX_BYTES = 3 * 4 * MAX_NUMBERS + (64 << 20)  # of a checkpoint: the weights, and two moments of each
ZIP_START, PICKLE_START = b"PK\x03\x04", b"\x80"  # the first bytes
EMBEDDING = "token_embedding.weight"  # our name of what is OUTPUT there
GIVE = "give the folder that nanoGPT's own train.py wrote"
BUFFERS = r"transformer\.h\.\d+\.attn\.bias"  # masks, which its slower attention keeps
# What nanoGPT's checkpoints call; its vocabularies call nothing.
CALLED = {"collections OrderedDict", "torch._utils _rebuild_tensor_v2", "torch._utils _rebuild_parameter"} | {
    f"torch {kind}Storage" for kind in ("Float", "Double", "Half", "BFloat16", "Long", "Int", "Bool")
}
# Instructions of a pickle that call by other names, or that take memory by a number alone.
REFUSED = {"STACK_GLOBAL", "INST", "OBJ", "NEWOBJ", "NEWOBJ_EX", "EXT1", "EXT2", "EXT4", "BYTEARRAY8", "NEXT_BUFFER"}
# Commands that write a file anew with what is needed of it; they run whatever code is in it.
CLEAN_CHECKPOINT = """python -c "import os, sys, torch; p = sys.argv[1]; c = torch.load(p, 'cpu', weights_only=False); \
s = c.get('config', {}); torch.save({'model': {k: v.detach().clone() for k, v in c['model'].items()}, \
'model_args': dict(c['model_args']), 'iter_num': int(c['iter_num']), \
'config': {k: v for k, v in getattr(s, '__dict__', s).items() if type(v) in (bool, int, float, str)}}, p + '.new'); \
os.replace(p + '.new', p)" """
CLEAN_VOCABULARY = """python -c "import pickle, sys; p = sys.argv[1]; m = pickle.load(open(p, 'rb')); \
pickle.dump({'stoi': {str(c): int(i) for c, i in m['stoi'].items()}}, open(p, 'wb'))" """
# Its settings that mean what ours mean.
SETTINGS = """dropout batch_size gradient_accumulation_steps max_iters eval_interval log_interval learning_rate weight_decay
    grad_clip warmup_iters""".split()


def read_nanogpt(folder: Path, *, meta: Path | None) -> ImportedModel:
    """The model in a folder with ckpt.pt; `meta` is its meta.pkl (None: in the same folder). Raises UserError."""
    path = folder / CHECKPOINT
    where, checkpoint = shown(path), _load(path)
    characters, ids = in_order(read_characters(folder / VOCABULARY if meta is None else meta))
    tensors = _tensors(checkpoint.get("model"), where)
    shape = _shape(checkpoint.get("model_args"), where, len(ids))
    numbers = 12 * shape.n_layer * shape.n_embd**2 + (shape.block_size + len(ids)) * shape.n_embd
    if 2 * numbers > path.stat().st_size:  # otherwise a small file could name the same numbers for every layer
        raise UserError(f"{where}: cut off, {path.stat().st_size:,} bytes are too few for {numbers:,} weights; copy it again")
    source = TensorSource(where, tensors)
    weights = read_weights(source, NANOGPT, shape, len(ids))
    source.check_all_read(weights[EMBEDDING], except_for=BUFFERS)
    settings, notes = _settings(checkpoint.get("config"))
    step = checkpoint.get("iter_num")
    if type(step) is not int or not 0 <= step < MAX_STEPS:
        raise UserError(f"{where}: its step iter_num is {brief(step)}, and a whole number is needed; {GIVE}")
    moments = _moments(checkpoint.get("optimizer"), tensors, shape, ids)
    state = "comes with the model, so training can go on exactly" if moments else "is not in the checkpoint, and begins anew"
    notes.append(f"the state of the optimizer {state}")
    tokenizer = Tokenizer(characters)
    return imported("nanoGPT", shape, tokenizer, weights, ids=ids, settings=settings, step=step, moments=moments, notes=notes)


def read_characters(path: Path) -> dict[str, int]:
    """The characters and their ids in a meta.pkl. Raises UserError for a pickle of anything but plain containers."""
    if not path.exists():
        what = "no such file; give the meta.pkl of the training data, in nanoGPT's data folder, as --meta FILE"
        raise UserError(f"{shown(path)}: {what}")
    check_file(path, most=MAX_PICKLED)
    try:
        pickled = read_bounded(path, limit=MAX_PICKLED)
        _check_calls(pickled, ())
        found = dict(_Containers(io.BytesIO(pickled)).load()["stoi"])
    except UserError:
        raise
    except Exception as error:  # any kind of invalid pickle is reported in the same way
        raise _refused(path, "the vocabulary of a character model", error, CLEAN_VOCABULARY) from None
    if len(found) > CODE_POINTS or {i for i in found.values() if type(i) is int} != set(range(len(found))):
        raise UserError(f"{shown(path)}: its characters are not numbered from 0 on; make it again with nanoGPT's prepare.py")
    return found


def _plain(values: Mapping[Any, Any]) -> dict[str, Any]:
    """The texts and numbers among `values`. Comparisons of lists may never end."""
    kinds = (str, int, float, type(None))
    return {key: value for key, value in values.items() if type(key) is str and isinstance(value, kinds)}


def _load(path: Path) -> dict[str, Any]:
    """The dictionary in a checkpoint. Its tensors are read when they are used."""
    check_file(path, most=MAX_BYTES)
    try:
        with zipfile.ZipFile(path) as archive:
            entries = archive.infolist()
            pickled = max((entry.file_size for entry in entries if entry.filename.endswith("data.pkl")), default=0)
            # A packed entry could grow without limit when it is read, and so could entries that share their bytes.
            is_packed = any(entry.compress_type != zipfile.ZIP_STORED for entry in entries)
            if is_packed or sum(entry.file_size for entry in entries) > path.stat().st_size or pickled > MAX_PICKLED:
                raise UserError(f"{shown(path)}: packed otherwise than torch.save does it; use the original file")
            if damaged := archive.testzip():
                raise UserError(f"{shown(path)}: damaged, the checksum of {damaged:.80} differs; copy the file again")
            for entry in entries:
                if entry.filename.endswith("data.pkl"):
                    _check_calls(archive.read(entry), CALLED)
        with warnings.catch_warnings(action="ignore"):
            checkpoint = torch.load(path, "cpu", weights_only=True, mmap=True)
    except UserError:
        raise
    except Exception as error:  # any kind of invalid file is reported in the same way
        with open(path, "rb") as file:
            start = file.read(len(ZIP_START))
        if isinstance(error, zipfile.BadZipFile) and start in (ZIP_START, b""):
            raise UserError(f"{shown(path)}: damaged or incomplete, its end is missing; copy the file again") from None
        if start == ZIP_START or start.startswith(PICKLE_START):
            raise _refused(path, "only weights and settings", error, CLEAN_CHECKPOINT) from None
        checkpoint = None
    if not isinstance(checkpoint, dict):
        raise UserError(f"{shown(path)}: not a checkpoint of nanoGPT; {GIVE}")
    return checkpoint


def _check_calls(pickled: bytes, called: Collection[str]) -> None:
    """Raise ValueError for a pickle that calls anything but `called`, or takes more memory than it has bytes."""
    for instruction, argument, _ in pickletools.genops(pickled):
        if instruction.name in REFUSED or (instruction.name == "GLOBAL" and argument not in called):
            raise ValueError(f"it calls {str(argument)[:80] if instruction.name == 'GLOBAL' else instruction.name}")


class _Containers(pickle._Unpickler):
    """In Python: the one in C keeps objects by number in an array, and a number of 4 bytes would make it 32 GB large."""

    def find_class(self, module: str, name: str) -> Any:
        raise ValueError(f"{module}.{name} is no plain container")


def _refused(path: Path, what: str, error: Exception, clean: str) -> UserError:
    """The error for a pickle with anything else in it, with the command that writes a clean one."""
    to_do = f"if you trust who made it, clean it with this command: {clean}{shell_word(shown(path))}"
    return UserError(f"{shown(path)}: not opened, since it may run code: it is not {what} ({one_line(error)[:200]}); {to_do}")


def _tensors(model: object, where: str) -> dict[str, Tensor]:
    """The tensors of the model in their order, without the prefix that torch.compile adds."""
    found: Mapping[Any, Any] = model if isinstance(model, Mapping) else {None: None}
    if not all(isinstance(name, str) and isinstance(tensor, Tensor) for name, tensor in found.items()):
        raise UserError(f"{where}: not a checkpoint of nanoGPT, since it holds no model; {GIVE}")
    return {name.removeprefix("_orig_mod."): tensor for name, tensor in found.items()}


def _shape(arguments: object, where: str, vocab_size: int) -> ModelConfig:
    """The shape in model_args."""
    if not isinstance(arguments, Mapping):
        raise UserError(f"{where}: not a checkpoint of nanoGPT, since it has no model_args; {GIVE}")
    arguments = _plain(arguments)
    if arguments.get("vocab_size") != vocab_size:
        found = f"vocab_size is {brief(arguments.get('vocab_size'))}, and meta.pkl has {vocab_size:,} characters"
        raise UserError(f"{where}: {found}; give the meta.pkl of the text that the checkpoint was trained on")
    fields = {name: arguments.get(name) for name in ("n_layer", "n_head", "n_embd", "block_size")}
    return checked_shape(where, vocab_size=vocab_size, **fields)


def _settings(config: object) -> tuple[dict[str, dict[str, Any]], list[str]]:
    """The settings of the training in our names, unchecked, and what could not be kept."""
    config = _plain(config) if isinstance(config, Mapping) else {}
    settings: dict[str, dict[str, Any]] = {"model": {}, "train": {}, "optim": {"name": "adamw"}}
    for name in SETTINGS:
        if name in config:
            section, _, key = str(ALIASES[name]).partition(".")
            settings[section][key] = config[name]
    optim, notes = settings["optim"], list[str]()
    if "beta1" in config and "beta2" in config:
        optim["betas"] = [config["beta1"], config["beta2"]]
    if config.get("decay_lr") is False:
        optim |= {"schedule": "linear", "decay_fraction": 0.0}
        return settings, notes
    optim["schedule"] = "cosine"
    rate, least = config.get("learning_rate"), config.get("min_lr")
    if isinstance(rate, (int, float)) and isinstance(least, (int, float)) and 0 < least <= rate:
        optim["final_fraction"] = least / rate
    if config.get("lr_decay_iters") != config.get("max_iters"):
        notes.append("the learning rate falls until train.max_steps, since nanoGPT's lr_decay_iters does not exist here")
    return settings, notes


def _moments(optimizer: Any, tensors: dict[str, Tensor], shape: ModelConfig, ids: list[int]) -> dict[str, Tensor] | None:
    """The state of nanoGPT's AdamW in our names; None if it is not as its train.py writes it.

    Its parameters are numbered: first the matrices and embeddings in the order of the model, then all others.
    """
    names = [name for name in tensors if name != OUTPUT and not re.fullmatch(BUFFERS, name)]
    names.sort(key=lambda name: len(tensors[name].shape) < 2)
    try:
        states = [optimizer["state"][number] for number in range(len(names))]
        counts = [state["step"] for state in states]
        (step,) = {float(count) for count in counts}
        if not (step.is_integer() and 0 <= step < MAX_STEPS):
            return None
        moments = {"step": torch.tensor(step)}
        for quantity in ("exp_avg", "exp_avg_sq"):
            found = {name: state[quantity] for name, state in zip(names, states)}
            source = TensorSource(quantity, found)
            ours = read_weights(source, NANOGPT, shape, len(ids))
            ours[EMBEDDING] = ours[EMBEDDING][ids]
            moments |= {f"{name}/{quantity}": tensor for name, tensor in ours.items()}
    except (AttributeError, KeyError, IndexError, TypeError, ArithmeticError, RuntimeError, ValueError):
        return None  # a UserError is a ValueError; torch raises a RuntimeError for tensors of an unusual kind
    squares = (tensor for name, tensor in moments.items() if name.endswith("/exp_avg_sq"))
    return moments if all((tensor >= 0).all() for tensor in squares) else None
