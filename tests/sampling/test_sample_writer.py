"""The samples of a training: those of its weights as they are, always from the same random numbers, and of no others."""

import pytest
import torch

from chargpt.interrupt import Interrupt
from chargpt.sampling.decoder import first_id, stream
from chargpt.sampling.sample_writer import SAMPLING, SampleWriter
from chargpt.text.tokenizer import Tokenizer
from model import GPT, POSITIONS, GPTConfig

CPU = torch.device("cpu")
TOKENIZER = Tokenizer("\nabcdefghij")


def random_model(positions: str = "learned", *, scale: float = 4.0) -> GPT:
    torch.manual_seed(0)
    model = GPT(
        GPTConfig(n_layer=2, n_head=2, n_embd=16, block_size=8, positions=positions, dropout=0.5), len(TOKENIZER.characters)
    )
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(scale)
    return model.train()


def writer_for(model: GPT, *, length: int = 60, seed: int = 5) -> SampleWriter:
    return SampleWriter(TOKENIZER, model.config, device=CPU, length=length, seed=seed)


@pytest.mark.parametrize("positions", POSITIONS)
def test_a_sample_is_the_text_of_the_plain_decoder(positions):
    model = random_model(positions)
    prompt, generator = torch.tensor([[first_id(TOKENIZER)]]), torch.Generator().manual_seed(5)
    expected = TOKENIZER.decode(int(id) for id in stream(model, prompt, 60, SAMPLING, generator=generator))
    assert writer_for(model).write(model, Interrupt()) == expected and len(expected) == 60 and model.training


def test_each_sample_is_of_the_weights_as_they_are_then():
    model = random_model()
    writer = writer_for(model)
    first, again = (writer.write(model, Interrupt()) for _ in range(2))
    with torch.no_grad():
        model.token_embedding.weight.copy_(model.token_embedding.weight.flip(0))
    assert first == again != writer.write(model, Interrupt())


def test_a_sample_takes_no_random_numbers_of_the_training():
    model = random_model()
    before = torch.get_rng_state()
    writer_for(model).write(model, Interrupt())
    assert torch.equal(torch.get_rng_state(), before)


def test_a_signal_cuts_a_sample_short_and_no_length_is_no_text():
    model, interrupt = random_model(), Interrupt()
    interrupt.signal = 2
    assert writer_for(model).write(model, interrupt) == "" == writer_for(model, length=0).write(model, Interrupt())
