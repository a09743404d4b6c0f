"""The engine in C computes the logits of the model and chooses as the rules in Python and the engine in PyTorch do.

It also computes with weights in fewer bytes: how far they are from the originals, and that they are those of PyTorch.
"""

import math
import os
import sys
import tracemalloc
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from helpers import clear_model, publish_run, weights_of, written
from hypothesis import given
from hypothesis import strategies as st
from programs import Programs
from sampling_values import VALUES

from chargpt.kernels.compiler import PACKAGED
from chargpt.model import GPT, GPTConfig
from chargpt.sampling import c_texts
from chargpt.sampling.c_texts import (
    PRECISIONS,
    CTexts,
    c_engine,
    c_writer,
    in_large_pages,
    load_kernel,
    pack,
    round_weights,
    unpack,
)
from chargpt.sampling.options import SamplingOptions
from chargpt.sampling.torch_texts import torch_writer
from chargpt.sampling.writer import Texts

VOCAB = 11
SMALLER = PRECISIONS[1:]


@pytest.fixture(scope="module")
def kernel(compiled):
    return compiled(load_kernel)


@pytest.fixture(scope="module")
def in_c(kernel):
    return lambda model, **more: c_writer(weights_of(model), model.config, kernel=kernel, **more)


def rounded_model(vocab_size: int, precision: str, **shape: object) -> GPT:
    model = clear_model(vocab_size, **{"scale": 2.0, **shape})
    weights = round_weights(weights_of(model), precision)
    model.load_state_dict({name: torch.tensor(numbers) for name, numbers in weights.items()})
    return model


TILES = dict(n_head=3, n_embd=132, block_size=70)  # 132 and 528 inputs: some pieces
TEXTS = (1, 2, 3, 4, 5, 7, 8, 9, 16, 17, 31, 33)


@pytest.mark.parametrize(
    ("vocab_size", "threads", "precision", "counts", "shape"),
    [
        (70, 1, "float32", TEXTS, dict(positions="learned", **TILES)),
        (70, 2, "bfloat16", TEXTS[::2], dict(positions="sinusoidal", **TILES)),
        (70, 3, "int8", TEXTS[1::2], dict(positions="rotary", **TILES)),
        (1, 3, "float32", (3,), dict(n_layer=1, n_head=1, n_embd=2)),
        (5, 3, "float32", (3,), dict(n_head=3, n_embd=6, bias=False, positions="rotary")),  # fewer panels than threads
        (65, 1, "bfloat16", (1, 3), dict(n_layer=3, n_head=3, n_embd=30, block_size=40, positions="rotary")),
        (65, 3, "int8", (1, 3), dict(n_layer=3, n_head=3, n_embd=30, block_size=40, bias=False, positions="sinusoidal")),
        (300, 3, "float32", (3,), dict(n_head=4, n_embd=128, block_size=150, positions="sinusoidal", bias=False)),
    ],
    ids=str,
)
def test_any_number_of_texts_has_the_logits_of_the_model(kernel, vocab_size, threads, precision, counts, shape):
    """Products of several rows are taken in tiles and pieces, and keys in blocks of 16 to 64."""
    torch.set_num_threads(threads)
    model, block_size = rounded_model(vocab_size, precision, **shape), shape.get("block_size", 8)
    ids = torch.randint(vocab_size, (max(counts), block_size))
    expected, exact = (one(ids).detach().numpy() for one in (model, clear_model(vocab_size, **{"scale": 2.0, **shape})))
    for count in counts:
        texts, read = CTexts(weights_of(model), model.config, count, kernel=kernel, precision=precision), 0
        for piece in (1, 2, 1, 11, 1, 17, 14, 16, 2, 5, 80):  # up to 1, 3, 4, 15, 16, 33, 47, 63, 65, 70, 150
            read, before = min(read + piece, block_size), read
            if read > before:
                logits = texts.read(before, ids[:count, before:read].numpy())
                assert np.abs(logits - expected[:count, read - 1]).max() < 1e-4
                if precision != "float32":  # the bound can tell rounded weights apart
                    assert np.abs(logits - exact[:count, read - 1]).max() > 2e-4


@given(
    values=st.fixed_dictionaries({}, optional={name: VALUES[name] for name in c_texts.RULES}),
    letters=st.integers(1, VOCAB),
    text=st.lists(st.integers(0, VOCAB - 1), min_size=1, max_size=60),
    banned=st.sets(st.integers(0, VOCAB - 2)),
    equals=st.sampled_from([1, 1, 2, VOCAB]),
)
def test_the_rules_in_c_are_those_of_the_reference(in_c, monkeypatch, values, letters, text, banned, equals):
    """On the same logits: a change of one of the two fails here. With few letters, a text repeats itself.

    Each id is exactly as likely as others beside it, `equals` in all; of equals, the lower ones go first.
    """
    model, options = clear_model(block_size=64, scale=2.0), SamplingOptions(**values)
    with torch.no_grad():
        model.token_embedding.weight.copy_(model.token_embedding.weight[torch.arange(VOCAB) // equals * equals])
    writer, prompts = in_c(model), [[token_id % letters for token_id in text]]
    with monkeypatch.context() as patch:
        made = written(writer, prompts, 40, options, 0, 1, never_sampled=sorted(banned))
        patch.setattr(c_texts.CTexts, "write", Texts.write)
        assert np.array_equal(made, written(writer, prompts, 40, options, 0, 1, never_sampled=sorted(banned)))
    assert not banned & {*made.flatten().tolist()}


@pytest.mark.parametrize(("top_p", "never_sampled"), [(1.0, ()), (0.9, tuple(range(0, 700, 2)))])
def test_of_many_characters_each_is_drawn_as_by_torch(in_c, top_p, never_sampled):
    model, options = clear_model(block_size=64, vocab_size=700, scale=2.0), SamplingOptions(temperature=2.0, top_p=top_p)
    made, by_torch = (
        written(writer, [[1, 4, 2]], 60, options, *range(20), never_sampled=never_sampled)
        for writer in (in_c(model), torch_writer(model))
    )
    assert np.array_equal(made, by_torch)
    assert len(np.unique(made)) > 200 and not {*made.flatten().tolist()} & set(never_sampled)


@pytest.mark.parametrize("bad", [math.nan, math.inf, 1e30])
def test_of_logits_that_are_not_finite_some_id_of_the_vocabulary_is_chosen(in_c, bad):
    for vocab_size in (5, 600):
        model = clear_model(vocab_size=vocab_size, block_size=16)
        torch.nn.init.constant_(model.token_embedding.weight, bad)
        for options in (SamplingOptions(temperature=0), SamplingOptions(repetition_penalty=2), SamplingOptions(top_p=0.5)):
            ids = written(in_c(model), [[1, 2, 3]], 15, options, 0, never_sampled=(0, vocab_size - 1))
            assert 0 <= ids.min() and ids.max() < vocab_size


@pytest.mark.parametrize("size", [1, c_texts.LARGE_PAGE, 3 * c_texts.LARGE_PAGE + 5])
def test_memory_in_large_pages_is_aligned_and_stays_as_long_as_it_is_used(size):
    vectors = [in_large_pages(size) for _ in range(2)]
    for value, vector in enumerate(vectors, 1):
        vector.fill(value)
    assert all(len(vector) == size and vector.ctypes.data % c_texts.LARGE_PAGE == 0 for vector in vectors)
    ends = [vector[-1:] for vector in vectors]
    del vectors
    assert [end.item() for end in ends] == [1, 2]


@given(st.integers(1, 9), st.integers(1, 40), st.integers(0, 2**31))
def test_each_stored_number_is_as_close_as_promised_and_stays_when_it_is_stored_again(rows, columns, seed):
    """The rows have very different sizes."""
    random = np.random.default_rng(seed)
    sizes = 10.0 ** random.integers(-6, 7, (rows, 1))
    matrix = (sizes * random.standard_normal((rows, columns))).astype(np.float32)
    read = {precision: unpack(*pack(matrix, precision)) for precision in PRECISIONS}
    assert np.array_equal(read["float32"], matrix)
    assert np.array_equal(read["bfloat16"], torch.from_numpy(matrix).bfloat16().float().numpy())
    assert (np.abs(read["int8"] - matrix) <= np.abs(matrix).max(axis=1, keepdims=True) / 254 * (1 + 1e-5)).all()
    for precision in SMALLER:
        (numbers, scales), (again, new_scales) = pack(matrix, precision), pack(read[precision], precision)
        assert np.array_equal(again, numbers)
        assert scales is None or np.allclose(new_scales, scales, rtol=3e-7, atol=0)


@pytest.mark.parametrize("precision", SMALLER)
def test_only_matrices_are_rounded(precision):
    exact = weights_of(clear_model())
    for name, numbers in round_weights(exact, precision).items():
        assert np.array_equal(numbers, exact[name]) == (numbers.ndim == 1 or name.startswith("position")), name


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> str:
    return str(publish_run(tmp_path_factory.mktemp("runs") / "tiny"))


def test_without_a_compiler_the_text_is_the_same(programs, kernel, run, tmp_path):
    if PACKAGED.is_dir() or find_spec("ziglang"):
        pytest.skip("needs a program without the libraries of a wheel and without the package ziglang")
    command = ["sample", run, "--seed", "1", "--length", "60"]
    plain = programs.run(*command, environment={"PATH": "", "HOME": str(tmp_path), "CUDA_VISIBLE_DEVICES": ""})
    assert b"parameters, cpu (not compiled: no C compiler found; " in plain.stderr
    compiled = programs.run(*command)
    assert b"parameters, cpu (compiled); " in compiled.stderr and compiled.stdout == plain.stdout != b""


def test_a_position_that_the_kernel_does_not_know_is_for_torch(kernel):
    config = clear_model().config
    assert c_engine(config)[1] == "cpu (compiled)"
    assert c_engine(SimpleNamespace(**vars(config) | {"positions": "fake"})) == (None, "cpu")


def in_a_process(programs: Programs, code: str) -> str:
    """The output of a program with `code`, in which `in_c` makes a writer."""
    start = """
import os, resource, torch
from helpers import weights_of, written
from chargpt.sampling.c_texts import c_writer, load_kernel
from chargpt.sampling.options import SamplingOptions
from chargpt.model import GPT, GPTConfig
def in_c(model): return c_writer(weights_of(model), model.config, kernel=load_kernel())
"""
    done = programs.run(code=start + code, timeout=100)
    assert done.returncode == 0, done.stderr
    return done.stdout.decode()


needs_linux = pytest.mark.skipif(sys.platform != "linux", reason="needs Linux to measure memory and to choose cores")


@needs_linux
def test_a_large_block_takes_memory_only_for_what_is_written_and_too_little_of_it_is_an_error(programs, kernel):
    code = """
model = GPT(GPTConfig(n_layer=64, n_head=1, n_embd=2, block_size=2**18, positions="rotary"), 5).eval()
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
written(in_c(model), [[0]], 20, SamplingOptions(), 0)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
model = GPT(GPTConfig(n_layer=64, n_head=1, n_embd=2, block_size=64), 5).eval()
pages = int(open("/proc/self/statm").read().split()[0])
resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + 10**8,) * 2)
try:
    written(in_c(model), [[0]], 2, SamplingOptions(), *[0] * 2000)
except MemoryError as error:
    print(error)
"""
    grown, said = in_a_process(programs, code).splitlines()
    assert int(grown) < 100_000  # KB; the whole cache is 1 GB
    assert said.startswith("2000 texts at once: not enough memory")


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="needs Linux to count threads")
def test_its_threads_end_with_it(in_c):
    torch.set_num_threads(2)
    before = set(os.listdir("/proc/self/task"))
    texts = in_c(clear_model()).new_texts(1)
    own = set(os.listdir("/proc/self/task")) - before  # a thread of another test may end meanwhile
    assert len(own) == 1
    del texts
    assert not own & set(os.listdir("/proc/self/task"))


def test_its_weights_are_kept_once(kernel):
    model = GPT(GPTConfig(n_layer=4, n_head=1, n_embd=256, block_size=8), VOCAB)
    weights, size = weights_of(model), 2 * sum(each.numel() for each in model.parameters())
    tracemalloc.start()
    texts = CTexts(weights, model.config, 1, kernel=kernel, precision="bfloat16")
    kept = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert size < kept < 1.6 * size and texts


@needs_linux
def test_reading_and_arranging_weights_starts_no_threads(programs, kernel, tmp_path):
    """Threads of torch would wait for one another: beside other programs, for longer than all the rest takes."""
    run = publish_run(tmp_path / "wide", shape=GPTConfig(n_layer=1, n_head=2, n_embd=128, block_size=8))
    code = f"""
import chargpt, gc
torch.set_num_threads(2)
def threads(): return len(os.listdir("/proc/self/task"))
before = threads()
model = chargpt.load({str(run)!r}, device="cpu")
print(threads() - before)
model.generate(length=2, seed=1)
gc.collect()  # ends the engine and its threads
print(threads() - before)
torch.ones(100_000).isfinite()
print(threads() - before)
"""
    assert in_a_process(programs, code).split() == ["0", "0", "1"]
