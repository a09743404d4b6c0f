"""How much memory a training takes, and whether the device has it: on a CPU, a run that cannot fit is refused before its first
step. A GPU computes fewer rows at once then, which takes longer, so such a model is not among those that are compared.
"""

import torch

from chargpt.config import Config
from chargpt.device import choose_device, choose_precision, memory_free
from chargpt.errors import NoMemory, Option
from chargpt.runs.checkpoint_schema import parameter_count
from chargpt.training.runtime import may_be_in_c

# Numbers that a step keeps for each layer and channel of a character: on a CPU measured, 22 to 27 with attention in C, else 25
# to 34; on a GPU counted by torch's allocator, 17 to 19, with rotary positions 19 to 22. And for each entry of the vocabulary
# and character: logits, probabilities and their gradients.
KEPT_PER_CHANNEL, KEPT_ON_GPU, KEPT_PER_LOGIT = 29, 20, 5
# Bytes for each parameter: weights, gradient and two of the optimizer, in float32; and for each copy of the weights that
# `optim.start_decay` and `optim.average_fraction` keep.
BYTES_PER_PARAMETER, BYTES_OF_KEPT_WEIGHTS = 16, 4
# Gradients that steps compiled from C keep at most, in float32: one for each part of the batch. They pack each matrix twice.
PARTS_OF_BATCH = 8


def memory_needed(
    config: Config, *, vocab_size: int, device: str = "cpu", precision: torch.dtype = torch.float32, processes: int = 1
) -> int:
    """About how many bytes one of the `processes` takes beyond torch: weights, gradient, optimizer, and what a step keeps.
    `device` is the kind of it, and `precision` that of the working weights."""
    per_channel, parameters = KEPT_ON_GPU if device == "cuda" else KEPT_PER_CHANNEL, parameter_count(config.model, vocab_size)
    kept = precision.itemsize * per_channel * config.model.n_layer * config.model.n_embd + 4 * KEPT_PER_LOGIT * vocab_size
    windows = config.train.batch_size // processes
    by_torch = windows * config.model.block_size * kept
    in_c = (4 * min(PARTS_OF_BATCH, windows) + 2 * precision.itemsize) * parameters
    return bytes_of_state(config, parameters) + max(by_torch, in_c if device == "cpu" and may_be_in_c(config) else 0)


def bytes_of_state(config: Config, parameters: int) -> int:
    """The bytes of weights, gradient and optimizer."""
    kept = bool(config.optim.start_decay) + bool(config.optim.average_fraction)
    return (BYTES_PER_PARAMETER + BYTES_OF_KEPT_WEIGHTS * kept) * parameters


def check_memory(
    config: Config, *, vocab_size: int, processes: int = 1, on_machine: int = 1, has_begun: bool = False, at_once: bool = False
) -> None:
    """Raise NoMemory, with the setting to lower, if the training of `config` cannot fit. No model is made for it. The
    `processes` share each batch; those `on_machine`, this one, share its memory. A run that `has_begun` keeps its batch. On a
    GPU, which each process has for itself, everything fits, unless a step is to be computed `at_once`."""
    device = choose_device(config.runtime.device)
    free, precision = memory_free(device), choose_precision(config.runtime.precision, device)
    needed = memory_needed(config, vocab_size=vocab_size, device=device.type, precision=precision, processes=processes)
    if device.type == "cpu" and free is not None:
        free //= on_machine
    if free is None or needed <= free or not (device.type == "cpu" or at_once):
        return
    size = f"memory: training needs about {needed / 1e9:.1f} GB, and only {free / 1e9:.1f} GB are free"
    size += f" for each of {on_machine} processes" if on_machine > 1 else ""
    if has_begun:
        raise NoMemory(f"{size}; close other programs, or use another machine or another ", Option("device"))
    state = bytes_of_state(config, parameter_count(config.model, vocab_size))
    fits = int((free - state) / (needed - state) * config.train.batch_size) // processes * processes
    if fits < processes:
        raise NoMemory(f"{size}; use a smaller model, by model.n_embd, model.n_layer or model.block_size")
    batch = Option("train.batch_size", fits)
    raise NoMemory(f"{size}; use ", batch, " or less (train.accumulate=2 uses two such batches in each step)")
