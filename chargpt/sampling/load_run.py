"""A run is loaded for writing. Where decode.c computes its model, torch is not imported: it takes seconds."""

from collections.abc import Sequence
from pathlib import Path

from chargpt.errors import Words
from chargpt.kernels.compiler import Unavailable
from chargpt.kernels.decode import RULES, load_kernel, supports
from chargpt.processor import may_have_gpu
from chargpt.runs.checkpoint import Checkpoint
from chargpt.runs.load import find_checkpoint
from chargpt.sampling.c_writer import CWriter
from chargpt.sampling.loaded_run import LoadedRun, facts_of
from chargpt.sampling.options import SamplingOptions

COMPILED = "cpu (compiled)"  # the engine, for people


def load_run(
    run: str | None,
    checkpoints: Path,
    *,
    start: str | None = None,
    device: str,
    precision: str,
    samplings: Sequence[SamplingOptions],
) -> tuple[LoadedRun, list[Words]]:
    """The best checkpoint of `run` for writing with these `samplings`, and warnings: see `load_model`.

    `start` is the name of a start that comes with the program, in place of a run.

    It is in C without torch on a CPU, in float32, for a model and rules that decode.c knows. Raises UserError, and ValueError
    for an unknown device or precision.
    """
    rules_are_known = all(sampling.rules_in_use().keys() <= RULES for sampling in samplings)
    if precision == "float32" and rules_are_known and (device == "cpu" or device == "auto" and not may_have_gpu()):
        checkpoint, warnings = find_checkpoint(run, checkpoints, start=start)
        if (writer := _writer_in_c(checkpoint)) is not None:
            return LoadedRun(writer=writer, engine=COMPILED, **facts_of(checkpoint)), warnings
    from chargpt.sampling.loaded_model import load_model

    return load_model(run, checkpoints, start=start, device=device, precision=precision)


def _writer_in_c(checkpoint: Checkpoint) -> CWriter | None:
    """What writes with the model of a checkpoint in C; None if decode.c does not know this model or cannot be loaded."""
    config, tokenizer = checkpoint.state.config.model, checkpoint.state.tokenizer
    if not supports(config):
        return None
    try:
        kernel = load_kernel()
    except Unavailable:
        return None
    weights = {name: tensor.numbers for name, tensor in checkpoint.stored_weights.items()}
    return CWriter(weights=weights, config=config, vocab_size=tokenizer.vocab_size, kernel=kernel)
