import functools
import math
import sys
from dataclasses import fields
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from helpers import publish_run
from hypothesis import HealthCheck, given, settings, strategies
from programs import Programs

from chargpt.kernels.compiler import PACKAGED
from chargpt.kernels.decode import load_kernel
from chargpt.model import GPT, POSITIONS, GPTConfig
from chargpt.sampling.c_decoder import CDecoder, choose_decoder
from chargpt.sampling.c_texts import LARGE_PAGE, PRECISIONS, in_large_pages
from chargpt.sampling.decoder import Decoder, pieces
from chargpt.sampling.options import SamplingOptions
from chargpt.sampling.stored_weights import round_weights

VOCAB = 11


@pytest.fixture(scope="module")
def kernel(compiled):
    return compiled(load_kernel)


@pytest.fixture
def c_decoder(kernel):
    return functools.partial(CDecoder, kernel=kernel)


def random_model(*, vocab_size: int = VOCAB, scale: float = 4.0, **shape) -> GPT:
    """A model whose logits differ clearly: weights larger than at the start of training, and biases that are not zero."""
    torch.manual_seed(0)
    model = GPT(
        GPTConfig(**{"n_layer": 2, "n_head": 2, "n_embd": 16, "block_size": 8, "bias": True, **shape}), vocab_size
    ).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(scale) if parameter.dim() > 1 else parameter.add_(0.1 * torch.randn_like(parameter))
    return model


def written(
    model: GPT,
    decoder,
    length: int,
    sampling: SamplingOptions,
    *seeds: int,
    prompt_length: int = 3,
    overflow: str = "exact",
    **options,
):
    """Ids (length, B) that continue a prompt, one text for each seed."""
    prompt = torch.randint(model.token_embedding.num_embeddings, (1, prompt_length), generator=torch.Generator().manual_seed(1))
    generators = [torch.Generator().manual_seed(seed) for seed in seeds]
    writing = decoder(model, len(seeds), overflow=overflow)
    made = pieces(writing, prompt.expand(len(seeds), -1), length, sampling, generator=generators, **options)
    return torch.cat([piece.ids for piece in made])


SHAPES = [
    dict(n_layer=1, n_head=1, n_embd=2, vocab_size=1),
    dict(n_head=3, n_embd=6, vocab_size=5),  # fewer panels of hidden units than threads
    dict(n_layer=3, n_head=3, n_embd=30, vocab_size=65),
    dict(n_head=4, n_embd=128, block_size=150, vocab_size=300),
    dict(n_head=2, n_embd=132, block_size=64, vocab_size=130),
]


@pytest.mark.parametrize(("threads", "bias"), [(1, True), (3, False)])
@pytest.mark.parametrize("positions", POSITIONS)
@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: f"{shape['n_head']} of {shape['n_embd']}")
def test_the_logits_are_the_models(c_decoder, positions, bias, threads, shape):
    torch.set_num_threads(threads)
    model = random_model(positions=positions, bias=bias, **{**shape, "scale": 2.0})
    T = model.config.block_size
    ids = torch.randint(shape["vocab_size"], (3, T))
    expected, decoder, read = model(ids), c_decoder(model, 3), 0
    for piece in (1, 2, 1, T - 4):
        read += piece
        torch.testing.assert_close(decoder.read(ids[:, read - piece : read]), expected[:, read - 1].detach(), rtol=0, atol=1e-4)


@pytest.mark.parametrize("precision", PRECISIONS)
def test_any_number_of_texts_has_the_logits_of_the_model(kernel, precision):
    """Products of several rows are taken in tiles and pieces, and keys in blocks of 16 to 64."""
    model = random_model(n_head=3, n_embd=132, block_size=70, vocab_size=70, scale=2.0)  # 132 and 528 inputs: some pieces
    round_weights(model, precision)
    ids = torch.randint(70, (33, 70))
    expected = model(ids).detach()
    for texts in (1, 2, 3, 4, 5, 7, 8, 9, 16, 17, 31, 33):
        decoder, read = CDecoder(model, texts, kernel=kernel, precision=precision), 0
        for piece in (1, 14, 1, 17, 14, 16, 2, 5):  # up to 1, 15, 16, 33, 47, 63, 65, 70
            read += piece
            logits = decoder.read(ids[:texts, read - piece : read])
            torch.testing.assert_close(logits, expected[:texts, read - 1], rtol=0, atol=1e-4)


@pytest.mark.parametrize("positions", POSITIONS)
@pytest.mark.parametrize("temperature", [0.0, 0.7, 1.0])
@pytest.mark.parametrize("prompt_length", [1, 24])
def test_the_text_is_that_of_the_plain_generate_also_past_the_block(c_decoder, positions, temperature, prompt_length):
    model = random_model(positions=positions)
    prompt = torch.randint(VOCAB, (1, prompt_length), generator=torch.Generator().manual_seed(1))
    for seed in range(2):
        expected = model.generate(prompt, 24, temperature=temperature, generator=torch.Generator().manual_seed(seed))
        ids = written(model, c_decoder, 24, SamplingOptions(temperature=temperature), seed, prompt_length=prompt_length)
        assert ids.flatten().tolist() == expected[0, prompt_length:].tolist()


@pytest.mark.parametrize("block_size", [7, 100])
@pytest.mark.parametrize("overflow", ["exact", "refill"])
def test_many_texts_are_those_of_the_torch_decoder(c_decoder, block_size, overflow):
    torch.set_num_threads(2)
    model = random_model(block_size=block_size)
    for prompt_length in (1, 99):
        options = dict(prompt_length=prompt_length, overflow=overflow)
        expected = written(model, Decoder, 6, SamplingOptions(), *range(19), **options)
        assert torch.equal(written(model, c_decoder, 6, SamplingOptions(), *range(19), **options), expected)


@pytest.mark.parametrize(
    "sampling",
    [
        SamplingOptions(temperature=0),
        SamplingOptions(temperature=1e-320),
        SamplingOptions(temperature=1e30),
        SamplingOptions(top_k=1),
        SamplingOptions(top_k=4),
        SamplingOptions(top_k=10**17),
        SamplingOptions(top_p=1e-9),
        SamplingOptions(top_p=0.6),
        SamplingOptions(top_p=0.95, temperature=2.0),
        SamplingOptions(min_p=0.2),
        SamplingOptions(min_p=1.0),
        SamplingOptions(temperature=1.5, top_k=7, top_p=0.8, min_p=0.1),
        SamplingOptions(repetition_penalty=3.0, temperature=0),
        SamplingOptions(repetition_penalty=3.0, top_k=3, temperature=0.5),
    ],
    ids=SamplingOptions.describe,
)
@pytest.mark.parametrize(("twins", "never_sampled"), [(False, (0, 3, 10)), (True, ())])
def test_every_setting_chooses_as_the_torch_decoder_does(c_decoder, sampling, never_sampled, twins):
    model = random_model(block_size=64)
    if twins:  # every other id is exactly as likely as the one before
        with torch.no_grad():
            model.token_embedding.weight[1::2] = model.token_embedding.weight[:-1:2]
    options = dict(never_sampled=never_sampled, overflow="refill")
    expected = written(model, Decoder, 70, sampling, *range(3), **options)
    assert torch.equal(written(model, c_decoder, 70, sampling, *range(3), **options), expected)


SAMPLINGS = strategies.builds(
    SamplingOptions,
    temperature=strategies.floats(0.05, 3),
    top_k=strategies.integers(0, VOCAB + 1),
    top_p=strategies.floats(0.05, 1),
    min_p=strategies.floats(0, 0.6),
    repetition_penalty=strategies.sampled_from([1.0, 1.5, 4.0]),
)


@given(sampling=SAMPLINGS)
@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_random_settings_choose_as_the_torch_decoder_does(c_decoder, sampling):
    """The rules are written twice, in rules.py and in decode.c: a change of one of the two fails here."""
    model = random_model(block_size=64)
    expected = written(model, Decoder, 60, sampling, 0, 1, 2)
    assert torch.equal(written(model, c_decoder, 60, sampling, 0, 1, 2), expected)


@pytest.mark.parametrize("never_sampled", [(), tuple(range(0, 700, 2))])
@pytest.mark.parametrize("top_p", [1.0, 0.9])
def test_of_many_characters_each_is_drawn_as_by_the_torch_decoder(c_decoder, top_p, never_sampled):
    sampling = SamplingOptions(temperature=2.0, top_p=top_p)
    model = random_model(block_size=64, vocab_size=700, scale=2.0)
    options = dict(never_sampled=never_sampled, overflow="refill")
    expected = written(model, Decoder, 60, sampling, *range(20), **options)
    assert torch.equal(written(model, c_decoder, 60, sampling, *range(20), **options), expected)
    assert len(expected.unique()) > 200 and not set(expected.unique().tolist()) & set(never_sampled)


@pytest.mark.parametrize("bad", [math.nan, math.inf, 1e30])
def test_of_logits_that_are_not_finite_some_id_of_the_vocabulary_is_chosen(c_decoder, bad):
    for vocab_size in (5, 600):
        model = random_model(vocab_size=vocab_size, block_size=16)
        torch.nn.init.constant_(model.token_embedding.weight, bad)
        for sampling in (SamplingOptions(temperature=0), SamplingOptions(), SamplingOptions(top_p=0.5)):
            ids = written(model, c_decoder, 15, sampling, 0, never_sampled=(0, vocab_size - 1), overflow="refill")
            assert 0 <= ids.min() and ids.max() < vocab_size


def test_where_all_are_equal_the_lower_ids_go_first(c_decoder):
    model = random_model()
    torch.nn.init.zeros_(model.token_embedding.weight)
    for options in (dict(temperature=0), dict(top_k=2), dict(top_p=0.5), dict(min_p=1.0), dict(top_k=2, top_p=0.1)):
        sampling = SamplingOptions(**options)
        expected = written(model, Decoder, 100, sampling, 0, overflow="refill")
        assert torch.equal(written(model, c_decoder, 100, sampling, 0, overflow="refill"), expected)
    assert set(written(model, c_decoder, 200, SamplingOptions(top_p=0.5), 0).flatten().tolist()) == set(range(6))


def test_log_probabilities_are_the_models_own(c_decoder):
    model = random_model(block_size=64)
    options = dict(generator=torch.Generator().manual_seed(0), never_sampled=(1, 2))
    made = list(pieces(c_decoder(model, 1), torch.tensor([[5]]), 60, SamplingOptions(temperature=0.3, top_k=2), **options))
    assert len(made) < 20  # so some pieces hold many
    ids, values = (torch.cat(column) for column in zip(*made))
    expected = model(torch.cat((torch.tensor([5]), ids[:, 0]))[None]).log_softmax(-1)[0, :-1].gather(-1, ids).detach()
    torch.testing.assert_close(values, expected, rtol=0, atol=1e-4)


@pytest.mark.parametrize("size", [1, LARGE_PAGE, 3 * LARGE_PAGE + 5])
@pytest.mark.parametrize("has_large_pages", [True, False])
def test_memory_in_large_pages_is_aligned_and_stays_as_long_as_it_is_used(size, has_large_pages, monkeypatch):
    """Also on a system without large pages, such as Windows and macOS."""
    if not has_large_pages:
        monkeypatch.delattr("mmap.MADV_HUGEPAGE", raising=False)
    vectors = [in_large_pages(size) for _ in range(2)]
    for value, vector in enumerate(vectors, 1):
        vector.fill(value)
    assert all(len(vector) == size and vector.ctypes.data % 64 == 0 for vector in vectors)
    ends = [vector[-1:] for vector in vectors]
    del vectors
    assert [end.item() for end in ends] == [1, 2]


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> str:
    return str(publish_run(tmp_path_factory.mktemp("runs") / "tiny"))


def test_without_a_compiler_the_text_is_the_same(programs, kernel, run, tmp_path):
    if PACKAGED.is_dir() or find_spec("ziglang"):
        pytest.skip("needs a program without the libraries of a wheel and without the package ziglang")
    command = ["sample", run, "--seed", "1", "--length", "60"]
    plain = programs.run(*command, environment={"PATH": "", "HOME": str(tmp_path)})
    assert b"parameters, cpu (not compiled: no C compiler found; " in plain.stderr
    compiled = programs.run(*command)
    assert b"parameters, cpu (compiled); " in compiled.stderr and compiled.stdout == plain.stdout != b""


def test_a_position_that_the_kernel_does_not_know_is_decoded_in_torch(kernel):
    config, cpu = random_model().config, torch.device("cpu")
    decoder, name = choose_decoder(cpu, config)
    assert decoder.func is CDecoder and name == "cpu (compiled)"
    fake = SimpleNamespace(**{field.name: getattr(config, field.name) for field in fields(config)} | {"positions": "fake"})
    assert choose_decoder(cpu, fake) == (Decoder, "cpu")


def in_a_process(programs: Programs, code: str) -> str:
    """The output of a program with `code`, in which `decoder` makes a decoder in C."""
    start = """
import functools, os, resource, sys, time, torch
from chargpt.kernels.decode import load_kernel
from chargpt.sampling.c_decoder import CDecoder
from chargpt.sampling.decoder import pieces
from chargpt.sampling.options import SamplingOptions
from chargpt.sampling.stored_weights import round_weights
from chargpt.model import GPT, GPTConfig
decoder = functools.partial(CDecoder, kernel=load_kernel())
"""
    done = programs.run(code=start + code, timeout=100)
    assert done.returncode == 0, done.stderr
    return done.stdout.decode()


needs_linux = pytest.mark.skipif(sys.platform != "linux", reason="needs Linux to measure memory and to choose cores")


@needs_linux
def test_a_large_block_takes_memory_only_for_what_is_written(programs, kernel):
    grown = in_a_process(
        programs,
        """
model = GPT(GPTConfig(n_layer=64, n_head=1, n_embd=2, block_size=2**18, positions="rotary"), 5).eval()
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
list(pieces(decoder(model, 1), torch.zeros(1, 1, dtype=torch.long), 20, SamplingOptions(), generator=torch.Generator()))
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
""",
    )
    assert int(grown) < 100_000  # KB; the whole cache is 1 GB


@needs_linux
def test_too_little_memory_for_the_cache_is_an_error(programs, kernel):
    said = in_a_process(
        programs,
        """
model = GPT(GPTConfig(n_layer=64, n_head=1, n_embd=2, block_size=64), 5).eval()
prompt, generators = torch.zeros(20000, 1, dtype=torch.long), [torch.Generator()] * 20000
pages = int(open("/proc/self/statm").read().split()[0])
resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + 10**9,) * 2)
try:
    list(pieces(decoder(model, 20000), prompt, 2, SamplingOptions(), generator=generators))
except MemoryError as error:
    print(error)
""",
    )
    assert said.startswith("20000 texts at once: not enough memory")


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="needs Linux to count threads")
def test_its_threads_end_with_it(c_decoder):
    torch.set_num_threads(2)
    before = len(list(Path("/proc/self/task").iterdir()))
    decoder = c_decoder(random_model(), 1)
    assert len(list(Path("/proc/self/task").iterdir())) == before + 1
    del decoder
    assert len(list(Path("/proc/self/task").iterdir())) == before


@needs_linux
def test_reading_and_arranging_weights_starts_no_threads(programs, kernel, tmp_path):
    """Threads of torch would wait for one another: beside other programs, for longer than all the rest takes."""
    run = publish_run(tmp_path / "wide", shape=GPTConfig(n_layer=1, n_head=2, n_embd=128, block_size=8))
    threads = in_a_process(
        programs,
        f"""
import chargpt, gc
torch.set_num_threads(2)
def threads(): return len(os.listdir("/proc/self/task"))
before = threads()
model = chargpt.load({str(run)!r}, device="cpu")
print(threads() - before)
model.generate(length=2, seed=1)
gc.collect()  # ends the decoder and its threads
print(threads() - before)
torch.ones(100_000).isfinite()
print(threads() - before)
""",
    )
    assert threads.split() == ["0", "0", "1"]
