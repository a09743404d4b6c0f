"""A run that a verb looks into: its model, its corpus in the cache, and the text that the model is shown."""

import torch
from torch import Tensor

from chargpt.commands.options import say
from chargpt.config import RuntimeConfig
from chargpt.device import choose_device
from chargpt.project import project_root
from chargpt.runs.load import corpus_in_cache
from chargpt.runs.saved_state import NO_TEXT
from chargpt.sampling.loaded_model import LoadedModel, load_model
from chargpt.sampling.prompt import encode_prompt, read_prompt
from chargpt.terminal import UserError, one_line, shown
from chargpt.text.corpus import Corpus


def load_run(name: str, *, device: str) -> LoadedModel:
    """The model of the run `name`, after a line about it on standard error. Raises UserError."""
    try:
        place = choose_device(RuntimeConfig(device=device).device)
    except ValueError as error:
        raise UserError(f"--{error}") from None
    loaded, warnings = load_model(name, project_root() / "checkpoints", device=str(place))
    for warning in warnings:
        say(f"warning: {warning}")
    say(loaded.describe())
    return loaded


def corpus_of_run(loaded: LoadedModel) -> Corpus:
    """The encoded text that the run was trained on, see `corpus_in_cache`. Raises UserError if it is in no cache."""
    corpus = corpus_in_cache(loaded.config, loaded.tokenizer, loaded.fingerprint, root=project_root())
    if corpus is not None:
        return corpus
    if loaded.fingerprint == NO_TEXT and not loaded.texts:
        raise UserError(f"{loaded.run}: was imported without a text, so it has no validation part; give a text to this command")
    raise UserError(
        f"{loaded.run}: its training text is not in the cache; train.py --resume --run {loaded.run} encodes it again if it is "
        "unchanged"
    )


def part_of_text(text: str | None, loaded: LoadedModel, *, start: int, length: int, least: int = 1) -> tuple[Tensor, str]:
    """At most `length` ids (T,) of a text from `start` on, and a line that says which. Raises UserError below `least`.

    `text` is a file, or - for standard input; None is the validation part of the run's text. Characters that the model does not
    know are left out.
    """
    if text is None:
        ids, name = corpus_of_run(loaded).val, "the validation part"
    else:
        ids = torch.tensor(encode_prompt(read_prompt("", text), loaded.tokenizer, unknown="skip"), dtype=torch.long).numpy()
        name = "standard input" if text == "-" else shown(text)
    part = torch.from_numpy(ids[start : start + length].astype("int64"))
    if len(part) < least:
        known = f"{len(part)} of its characters are known to the model" + (f" after the first {start:,}" if start else "")
        raise UserError(f"{name}: {known}, but at least {least} are needed; give a longer text")
    return part, one_line(f"characters {start + 1:,} to {start + len(part):,} of {name} ({len(ids):,})")
