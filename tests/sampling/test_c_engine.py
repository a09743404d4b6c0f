"""The engine in C computes the logits of the model and chooses as the rules in Python and the engine in PyTorch do."""

import math
import os
import sys
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from helpers import clear_model, publish_run, weights_of, written
from hypothesis import HealthCheck, given, settings, strategies
from programs import Programs

from chargpt.kernels.compiler import PACKAGED
from chargpt.kernels.decode import load_kernel
from chargpt.model import GPT, GPTConfig
from chargpt.sampling import c_texts, rules
from chargpt.sampling.c_texts import LARGE_PAGE, PRECISIONS, CTexts, c_engine, c_writer, in_large_pages, rounded
from chargpt.sampling.options import SamplingOptions
from chargpt.sampling.torch_texts import torch_writer

VOCAB = 11


@pytest.fixture(scope="module")
def kernel(compiled):
    return compiled(load_kernel)


@pytest.fixture
def in_c(kernel):
    return lambda model, **more: c_writer(weights_of(model), model.config, kernel=kernel, **more)


@pytest.mark.parametrize("precision", PRECISIONS)
def test_any_number_of_texts_has_the_logits_of_the_model(kernel, precision):
    """Products of several rows are taken in tiles and pieces, and keys in blocks of 16 to 64."""
    model = clear_model(n_head=3, n_embd=132, block_size=70, vocab_size=70, scale=2.0)  # 132 and 528 inputs: some pieces
    weights = rounded(weights_of(model), precision)
    model.load_state_dict({name: torch.tensor(numbers) for name, numbers in weights.items()})
    ids = torch.randint(70, (33, 70))
    expected = model(ids).detach().numpy()
    for count in (1, 2, 3, 4, 5, 7, 8, 9, 16, 17, 31, 33):
        texts, read = CTexts(weights, model.config, count, kernel=kernel, precision=precision), 0
        for piece in (1, 14, 1, 17, 14, 16, 2, 5):  # up to 1, 15, 16, 33, 47, 63, 65, 70
            logits = texts.read(read, ids[:count, read : read + piece].numpy())
            read += piece
            assert np.abs(logits - expected[:count, read - 1]).max() < 1e-4


def agree(in_c, model: GPT, length: int, options: SamplingOptions, *seeds: int, **more) -> np.ndarray:
    """What both engines write."""
    prompts = [torch.randint(model.vocab_size, (3,), generator=torch.Generator().manual_seed(1)).tolist()]
    made = written(in_c(model), prompts, length, options, *seeds, **more)
    assert np.array_equal(made, written(torch_writer(model), prompts, length, options, *seeds, **more))
    return made


@pytest.mark.parametrize(
    "options",
    [
        dict(temperature=0),
        dict(temperature=1e30),
        dict(top_k=4),
        dict(top_k=10**17),
        dict(top_p=0.95, temperature=2.0),
        dict(min_p=0.2),
        dict(temperature=1.5, top_k=7, top_p=0.8, min_p=0.1),
        dict(repetition_penalty=3.0, temperature=0),
        dict(repetition_penalty=3.0, top_k=3, temperature=0.5),
    ],
    ids=str,
)
@pytest.mark.parametrize(("twins", "never_sampled"), [(False, (0, 3, 10)), (True, ())])
def test_every_setting_chooses_as_torch_does(in_c, options, never_sampled, twins):
    model = clear_model(block_size=64)
    if twins:  # every other id is exactly as likely as the one before
        with torch.no_grad():
            model.token_embedding.weight[1::2] = model.token_embedding.weight[:-1:2]
    agree(in_c, model, 70, SamplingOptions(**options), *range(3), never_sampled=never_sampled)


VALUES = {
    "repetition_penalty": strategies.sampled_from([1.0, 1.5, 4.0, 1e6, 1e300]),
    "temperature": strategies.sampled_from([0.0, 1.0]) | strategies.floats(0.05, 3),
    "top_k": strategies.integers(0, VOCAB + 1),
    "top_p": strategies.floats(0.05, 1),
    "min_p": strategies.floats(0, 0.6),
}


def test_every_rule_has_a_function_and_random_values():
    assert [*SamplingOptions().rules()] == [*VALUES] and all(callable(getattr(rules, name)) for name in VALUES)


@given(
    values=strategies.fixed_dictionaries({}, optional=VALUES),
    letters=strategies.integers(1, VOCAB),
    text=strategies.lists(strategies.integers(0, VOCAB - 1), min_size=1, max_size=60),
    banned=strategies.sets(strategies.integers(0, VOCAB - 2)),
)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_the_rules_in_c_are_those_of_the_reference(in_c, monkeypatch, values, letters, text, banned):
    """On the same logits: a change of one of the two fails here. With few letters, a text repeats itself."""
    writer, options = in_c(clear_model(block_size=64, scale=2.0)), SamplingOptions(**values)
    prompts = [[token_id % letters for token_id in text]]
    with monkeypatch.context() as patch:
        made = written(writer, prompts, 40, options, 0, 1, never_sampled=sorted(banned))
        patch.setattr(c_texts, "KNOWN_RULES", frozenset())
        assert np.array_equal(made, written(writer, prompts, 40, options, 0, 1, never_sampled=sorted(banned)))


@pytest.mark.parametrize("never_sampled", [(), tuple(range(0, 700, 2))])
@pytest.mark.parametrize("top_p", [1.0, 0.9])
def test_of_many_characters_each_is_drawn_as_by_torch(in_c, top_p, never_sampled):
    model = clear_model(block_size=64, vocab_size=700, scale=2.0)
    made = agree(in_c, model, 60, SamplingOptions(temperature=2.0, top_p=top_p), *range(20), never_sampled=never_sampled)
    assert len(np.unique(made)) > 200 and not {*made.flatten().tolist()} & set(never_sampled)


@pytest.mark.parametrize("bad", [math.nan, math.inf, 1e30])
def test_of_logits_that_are_not_finite_some_id_of_the_vocabulary_is_chosen(in_c, bad):
    for vocab_size in (5, 600):
        model = clear_model(vocab_size=vocab_size, block_size=16)
        torch.nn.init.constant_(model.token_embedding.weight, bad)
        for options in (SamplingOptions(temperature=0), SamplingOptions(repetition_penalty=2), SamplingOptions(top_p=0.5)):
            ids = written(in_c(model), [[1, 2, 3]], 15, options, 0, never_sampled=(0, vocab_size - 1))
            assert 0 <= ids.min() and ids.max() < vocab_size


def test_where_all_are_equal_the_lower_ids_go_first(in_c):
    model = clear_model()
    torch.nn.init.zeros_(model.token_embedding.weight)
    for options in (dict(temperature=0), dict(top_k=2), dict(top_p=0.5), dict(min_p=1.0), dict(top_k=2, top_p=0.1)):
        agree(in_c, model, 100, SamplingOptions(**options), 0)
    assert set(written(in_c(model), [[1]], 200, SamplingOptions(top_p=0.5), 0)[0].tolist()) == set(range(6))


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


def test_a_position_that_the_kernel_does_not_know_is_for_torch(kernel):
    config = clear_model().config
    assert c_engine(config)[1] == "cpu (compiled)"
    assert c_engine(SimpleNamespace(**vars(config) | {"positions": "fake"})) == (None, "cpu")


def in_a_process(programs: Programs, code: str) -> str:
    """The output of a program with `code`, in which `in_c` makes a writer."""
    start = """
import os, resource, sys, time, torch
from helpers import weights_of, written
from chargpt.kernels.decode import load_kernel
from chargpt.sampling.c_texts import c_writer
from chargpt.sampling.options import SamplingOptions
from chargpt.model import GPT, GPTConfig
def in_c(model): return c_writer(weights_of(model), model.config, kernel=load_kernel())
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
written(in_c(model), [[0]], 20, SamplingOptions(), 0)
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
pages = int(open("/proc/self/statm").read().split()[0])
resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + 10**9,) * 2)
try:
    written(in_c(model), [[0]], 2, SamplingOptions(), *[0] * 20000)
except MemoryError as error:
    print(error)
""",
    )
    assert said.startswith("20000 texts at once: not enough memory")


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="needs Linux to count threads")
def test_its_threads_end_with_it(in_c):
    torch.set_num_threads(2)
    before = set(os.listdir("/proc/self/task"))
    texts = in_c(clear_model()).new_texts(1)
    own = set(os.listdir("/proc/self/task")) - before  # a thread of another test may end meanwhile
    assert len(own) == 1
    del texts
    assert not own & set(os.listdir("/proc/self/task"))


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
gc.collect()  # ends the engine and its threads
print(threads() - before)
torch.ones(100_000).isfinite()
print(threads() - before)
""",
    )
    assert threads.split() == ["0", "0", "1"]
