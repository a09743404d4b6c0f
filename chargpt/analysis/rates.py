"""The speed of training and sampling at one size, by the objects that train.py and sample.py use."""

import statistics
import time
from dataclasses import dataclass

import numpy as np
import torch

from chargpt.analysis.machine import synchronise
from chargpt.config import Config, TrainConfig, apply_overrides
from chargpt.sampling.c_decoder import choose_decoder
from chargpt.sampling.decoder import pieces
from chargpt.sampling.rules import Sampling
from chargpt.training.runtime import Runtime, choose_runtime
from chargpt.training.thread_waiting import ThreadWaiting
from chargpt.training.trainer import Trainer
from model import GPT, GPTConfig

WARM_UP = 3  # steps that are not timed: with compiling, the first compiles and the second records CUDA graphs
TEXT = 2**20  # characters


@dataclass(frozen=True, kw_only=True)
class Size:
    """A model and the batches that it is trained on."""

    model: GPTConfig
    batch_size: int
    vocab_size: int = 65

    @property
    def characters(self) -> int:
        """The characters of a step."""
        return self.batch_size * self.model.block_size


def runtime_for(size: Size, device: torch.device, *, compile: str = "off") -> tuple[Config, Runtime]:
    """The settings of a training of this size, and what it computes with."""
    config = Config(model=size.model, train=TrainConfig(batch_size=size.batch_size, chunks=1))
    config = apply_overrides(config, [f"runtime.device={device}", f"runtime.compile={compile}"])
    return config, choose_runtime(config, worth_compiling=True)


def training_seconds(size: Size, config: Config, runtime: Runtime, *, seconds: float = 2.0, least: int = 5) -> float:
    """The median time of a training step on random characters, from at least `least` steps and for at least `seconds`."""
    ids = np.random.default_rng(0).integers(0, size.vocab_size, max(TEXT, 2 * size.characters)).astype(np.uint16)
    trainer = Trainer(GPT(size.model, size.vocab_size), ids, config, runtime=runtime)
    times: list[float] = []
    with ThreadWaiting(runtime) as waiting:
        while len(times) < WARM_UP + least or sum(times[WARM_UP:]) < seconds:
            started = time.perf_counter()
            with waiting.watch():
                trainer.step()
            synchronise(runtime.device)
            times.append(time.perf_counter() - started)
    return statistics.median(times[WARM_UP:])


def sampling_speed(model: GPT, texts: int, *, seconds: float = 1.0) -> float:
    """Characters a second of so many texts together, which grow from one character to the whole context."""
    device = model.token_embedding.weight.device
    kind, _ = choose_decoder(device, model.config)
    with torch.inference_mode():
        decoder = kind(model, texts)
    start = torch.zeros(texts, 1, dtype=torch.long, device=device)
    generators = [torch.Generator().manual_seed(seed) for seed in range(texts)]

    def write(length: int) -> float:
        """Seconds for new texts of `length`."""
        decoder.length, decoder.window = 0, decoder.window[:, :0]
        started = time.perf_counter()
        for piece in pieces(decoder, start, length, Sampling(), generator=generators):
            piece.ids.tolist()  # waits for the device, as printing does
        return time.perf_counter() - started

    length = model.config.block_size - 1
    write(min(length, 8))
    times = [write(length)]
    while sum(times) < seconds:
        times.append(write(length))
    return texts * length / statistics.median(times)
