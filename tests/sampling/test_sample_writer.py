"""The samples of a training: those of its weights as they are, always from the same random numbers, and of no others."""

import signal

import pytest
import torch
from helpers import after_each_piece, clear_model, written

from chargpt.interrupt import Interrupt
from chargpt.model import GPT, POSITIONS
from chargpt.sampling import sample_writer
from chargpt.sampling.c_texts import load_kernel
from chargpt.sampling.options import SamplingOptions
from chargpt.sampling.sample_writer import SampleWriter
from chargpt.sampling.torch_texts import torch_writer
from chargpt.text.tokenizer import Tokenizer

TOKENIZER = Tokenizer("\nabcdefghij")


def random_model(**shape) -> GPT:
    return clear_model(len(TOKENIZER.characters), dropout=0.5, **shape).train()


def writer_for(model: GPT) -> SampleWriter:
    return SampleWriter(TOKENIZER, model.config, device=torch.device("cpu"), length=60, seed=5)


def expected_text(model: GPT) -> str:
    ids = written(torch_writer(model.eval()), [[TOKENIZER.first_id]], 60, SamplingOptions(), 5)[0]
    model.train()
    return TOKENIZER.decode(ids.tolist())


@pytest.mark.parametrize("positions", POSITIONS)
def test_a_sample_is_the_text_of_the_plain_decoder_and_is_made_by_the_compiled_one(compiled, positions, monkeypatch):
    compiled(load_kernel)  # or skip
    model, pieces = random_model(positions=positions), []
    expected = expected_text(model)
    after_each_piece(monkeypatch, lambda: pieces.append(1))
    assert writer_for(model).write(model, Interrupt()) == expected and len(expected) == 60 and model.training
    assert len(pieces) < 60 / 2  # one at a time, without the kernel


@pytest.mark.parametrize("problem", ["no compiler", "no memory"])
def test_without_the_compiled_decoder_the_text_is_the_same(problem, monkeypatch):
    def no_memory(*_: object, **__: object) -> None:
        raise MemoryError

    if problem == "no compiler":
        monkeypatch.setattr(sample_writer, "c_engine", lambda _: (None, ""))
    else:
        monkeypatch.setattr(sample_writer, "c_writer", no_memory)
    model = random_model()
    writer = writer_for(model)
    assert [writer.write(model, Interrupt()) for _ in range(2)] == 2 * [expected_text(model)]


def test_beside_a_gpu_the_samples_of_a_large_model_are_written_there(monkeypatch):
    model, asked = random_model(), list[int]()
    monkeypatch.setattr(sample_writer, "c_engine", lambda shape: asked.append(1) or (None, ""))
    for most, count in ((model.parameter_count(), 0), (model.parameter_count() + 1, 1)):
        monkeypatch.setattr(sample_writer, "FASTER_THAN_GPU", most)
        SampleWriter(TOKENIZER, model.config, device=torch.device("meta"), length=9, seed=5)
        assert len(asked) == count


def test_each_sample_is_of_the_weights_as_they_are_then():
    model = random_model()
    writer = writer_for(model)
    first, again = (writer.write(model, Interrupt()) for _ in range(2))
    with torch.no_grad():
        model.token_embedding.weight.copy_(model.token_embedding.weight.flip(0))
    assert first == again != writer.write(model, Interrupt())


def test_a_signal_cuts_a_sample_short(monkeypatch):
    model, interrupt, done = random_model(), Interrupt(), []

    def stop_after_two() -> None:
        done.append(1)
        if len(done) == 2:
            interrupt.signal = signal.SIGINT

    after_each_piece(monkeypatch, stop_after_two)
    text = writer_for(model).write(model, interrupt)
    assert 0 < len(text) < 60 and expected_text(model).startswith(text)
