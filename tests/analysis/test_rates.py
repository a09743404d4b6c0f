"""The speed of training and sampling is measured on the program's own objects."""

import pytest
import torch

from chargpt.analysis.rates import WARM_UP, Size, runtime_for, sampling_speed, training_seconds
from chargpt.sampling import decoder
from chargpt.training.trainer import Trainer
from model import GPT, GPTConfig

SIZE = Size(model=GPTConfig(n_layer=1, n_head=2, n_embd=16, block_size=8), batch_size=4)
CPU = torch.device("cpu")


def test_a_step_is_timed_after_the_first_ones(monkeypatch):
    steps, step = [], Trainer.step
    monkeypatch.setattr(Trainer, "step", lambda self: steps.append(step(self)) or steps[-1])
    config, runtime = runtime_for(SIZE, CPU)
    seconds = training_seconds(SIZE, config, runtime, seconds=0.0, least=2)
    assert seconds > 0 and len(steps) == WARM_UP + 2
    assert config.chars_per_step == SIZE.characters == 32 and not runtime.compile


@pytest.mark.parametrize("texts", [1, 3])
def test_characters_a_second_count_every_text(texts, monkeypatch):
    seconds = iter(range(1000))  # a clock that goes on by one second between two looks
    monkeypatch.setattr("chargpt.analysis.rates.time.perf_counter", lambda: next(seconds))
    model = GPT(SIZE.model, SIZE.vocab_size).eval()
    monkeypatch.setattr("chargpt.analysis.rates.choose_decoder", lambda device, config: (decoder.Decoder, "torch"))
    assert sampling_speed(model, texts, seconds=0.5) == 7 * texts
