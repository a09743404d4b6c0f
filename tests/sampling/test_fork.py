"""A forked child computes what its parent computes, to the bit, and never waits for threads, which only its parent has.

This file has no module of its own: it tests chargpt/processor.py, decode.c, torch and the library together.
"""

import multiprocessing
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from helpers import publish_run

import chargpt
from chargpt import LoadedModel
from chargpt.config import Config, DataConfig, TrainConfig
from chargpt.model import GPTConfig
from chargpt.sampling import surprisal
from chargpt.text.tokenizer import Tokenizer

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork, which POSIX has")

SECONDS = 120  # in which a child has to end: on an idle machine it takes less than one
TEXT = "the sea and the stone\n" * 200
IN_C = 2000  # characters, from which on C scores a text here
SHAPE = GPTConfig(n_layer=2, n_head=2, n_embd=64, block_size=400, bias=True)
CALLS: dict[str, Callable[[LoadedModel], object]] = {
    "generate": lambda model: model.generate(["the sea", "and"], lines=2, seed=1),
    "items": lambda model: model.items(3, seed=1, max_length=20),
    "next": lambda model: model.next("the sea", 5),
    "score in torch": lambda model: model.score(TEXT[:1200]),
    "score in C": lambda model: model.score([TEXT[:IN_C], "the sea"]),
    "logits": lambda model: model.logits(TEXT[:400]).numpy().tobytes(),
    "attention": lambda model: model.attention(TEXT[:400]).numpy().tobytes(),
}


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    config = Config(model=SHAPE, data=DataConfig(items="line"), train=TrainConfig(batch_size=1))
    return publish_run(tmp_path_factory.mktemp("runs") / "sea", Tokenizer("".join(sorted({*TEXT}))), shape=SHAPE, config=config)


@pytest.fixture
def model(path: Path, monkeypatch: pytest.MonkeyPatch) -> LoadedModel:
    """A model that is computed with all threads, as a larger one is."""
    monkeypatch.setattr(surprisal, "SMALL_WORK", 0)
    monkeypatch.setattr(surprisal, "WORTH_A_KERNEL", IN_C)
    return chargpt.load(path, device="cpu")


def holds_in_a_fork(check: Callable[[], bool]) -> bool:
    """Whether `check` holds in a child of this process, and ends there in time."""
    if (child := os.fork()) == 0:
        code = 99
        try:
            signal.alarm(SECONDS)  # which ends it
            code = 0 if check() else 98
        finally:
            os._exit(code)
    return os.waitpid(child, 0)[1] == 0


@pytest.mark.parametrize(("name", "threads"), [*((name, 3) for name in CALLS), ("generate", 1), ("score in C", 1)])
def test_a_child_and_its_own_child_compute_what_the_parent_does(model, name, threads):
    torch.set_num_threads(threads)
    expected = CALLS[name](model)

    def same() -> bool:
        return torch.get_num_threads() == threads and CALLS[name](model) == expected

    assert holds_in_a_fork(lambda: same() and holds_in_a_fork(same)) and same()


def test_a_child_computes_what_the_parent_did_not(model):
    """Torch alone has used its threads, and the library has not."""
    torch.set_num_threads(2)
    square = torch.ones(500, 500)
    assert (square @ square).sum() == 500**3
    assert holds_in_a_fork(lambda: model.score(TEXT[:1200]) > 0 and (square @ square).sum().item() == 500**3)


def test_a_pool_of_processes_scores_with_a_model_that_its_parent_has_used(model):
    torch.set_num_threads(2)
    texts = [TEXT[i : i + IN_C] for i in range(4)]
    expected = [model.score(text) for text in texts]
    with multiprocessing.get_context("fork").Pool(2) as pool:
        assert pool.map_async(model.score, texts).get(timeout=SECONDS) == expected


@pytest.mark.parametrize("threads", [1, 2])
def test_a_text_that_the_parent_has_begun_is_continued_or_dropped_by_a_child(model, threads):
    """The threads of decode.c that write it are the parent's."""
    torch.set_num_threads(threads)
    words = {"length": 300, "lines": 300, "seed": 1}
    whole, pieces = model.generate("the sea", **words), iter(model.stream("the sea", **words))
    begun = "".join(next(pieces) for _ in range(4))
    assert 7 < len(begun) < len(whole) - 100

    def drops() -> bool:
        nonlocal pieces
        del pieces  # and all that it holds of decode.c
        return True

    def continues() -> bool:
        return begun + "".join(pieces) == whole and drops()

    assert holds_in_a_fork(drops) and holds_in_a_fork(lambda: holds_in_a_fork(continues)) and continues()
