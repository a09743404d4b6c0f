"""A model in one file, which is read as a run: what a page keeps, and what `export --to safetensors` writes.

Its header has the shape of the model, its vocabulary, and what is known of its training. Anybody may have written it.
"""

import json
from pathlib import Path

import numpy as np
import safetensors.numpy

from chargpt.config import Config
from chargpt.formatting import shown
from chargpt.runs.checkpoint import Checkpoint, check_tensors
from chargpt.runs.checkpoint_schema import JSON_LIMIT, NO_TEXT, DamagedError, SavedState, read_bounded
from chargpt.runs.model_shape import MAX_NUMBERS, check_size
from chargpt.runs.progress import Progress
from chargpt.runs.stage import Length, Stage
from chargpt.settings import Settings, apply
from chargpt.standard import UNCHANGED
from chargpt.text.tokenizer import Tokenizer


def load_kept(path: Path) -> Checkpoint:
    """The model in a file, checked. Raises UserError."""
    data = read_bounded(path, limit=4 * MAX_NUMBERS + JSON_LIMIT)
    try:
        size = int.from_bytes(data[:8], "little")
        if size > JSON_LIMIT:
            raise ValueError(f"its header has {size:,} bytes")
        found = json.loads(data[8 : 8 + size])["__metadata__"]
        shape, vocabulary, known = (json.loads(found.get(name, "{}")) for name in ("model", "vocabulary", "state"))
        tokenizer, config = Tokenizer.from_json(vocabulary), apply(Config(), {"model": shape}, where="model")
        check_size(config.model, tokenizer.vocab_size)
        config = apply(config, {"data": vars(tokenizer.settings(config.data))}, where="vocabulary")
        loss = None if known.get("val_loss") is None else float(known["val_loss"])
        progress = Progress(step=int(known.get("step", 0)))
        if loss is not None:
            progress.record_evaluation(loss)
        state = SavedState(
            settings=Settings(config),
            tokenizer=tokenizer,
            texts=[],
            fingerprint=NO_TEXT,
            progress=progress,
            environment={},
            stage=Stage(length=Length.of(config)),
            model_source=UNCHANGED,  # a page computes what this one does
        )
        if SavedState.from_json(json.loads(json.dumps(state.to_json(), allow_nan=False))) != state:
            raise ValueError("its state is none that a run has")
        weights = safetensors.numpy.load(data)
    except Exception as error:  # any kind of invalid data is reported in the same way
        raise DamagedError(f"{shown(path)}: not a model that a page or this program has kept ({str(error):.200})") from error
    check_tensors(weights, state.weight_shapes(), where=shown(path))
    for name, numbers in weights.items():
        if not np.isfinite(numbers).all():
            raise DamagedError(f"{shown(path)}: damaged, {name:.80} has numbers that are infinite or undefined")
    return Checkpoint(path, weights, {}, state)
