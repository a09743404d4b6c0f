"""What a real GPU computes: the numbers of the CPU, and from recorded kernels those of launched ones."""

from collections.abc import Iterator

import numpy as np
import pytest
import torch
from gpu.programs import KINDS, VOCABULARY, config_of

from chargpt import graphs
from chargpt.model import GPT, POSITIONS, GPTConfig
from chargpt.notices import Kind
from chargpt.sampling.options import SamplingOptions
from chargpt.sampling.torch_texts import torch_writer
from chargpt.sampling.writer import Writer
from chargpt.training.initialisation import initial_model
from chargpt.training.runtime import choose_runtime
from chargpt.training.trainer import NotFinite, Trainer

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")]
STEPS = 12
RULES = ({}, {"temperature": 0}, {"top_k": 5, "top_p": 0.9, "min_p": 0.02}, {"repetition_penalty": 2})
# A walk in small steps, from which a model soon learns something.
IDS = (np.random.default_rng(0).integers(-2, 3, 50_000).cumsum() % VOCABULARY).astype(np.uint8)
EXACT = ("runtime.deterministic=true", "model.dropout=0.2")
# How far losses in these precisions may be from those of a CPU in float32, nats.
BOUNDS = {"float32": 1e-3, "tf32": 1e-2, "bfloat16": 5e-2, "float16": 2e-2}


@pytest.fixture(autouse=True)
def free_memory() -> Iterator[None]:
    yield
    torch.cuda.set_per_process_memory_fraction(1.0)
    torch.cuda.empty_cache()


def trainer_of(*settings: str) -> Trainer:
    config = config_of("model.dropout=0", "optim.warmup_steps=1", *settings)
    torch.manual_seed(0)
    return Trainer(initial_model(config.model, VOCABULARY), IDS, config, runtime=choose_runtime(config))


def losses(trainer: Trainer, steps: int = STEPS) -> list[float]:
    """Of `steps` steps; the GPU is asked for them at the end of each."""
    with trainer.runtime.applied():
        return [trainer.step().loss for _ in range(steps)]


@pytest.mark.parametrize("precision", BOUNDS)
@pytest.mark.parametrize(
    "settings", [[], ["train.accumulate=3"], *(KINDS[name] for name in KINDS if " " in name)], ids=" ".join
)
def test_losses_are_those_of_the_cpu(settings, precision):
    cpu = losses(trainer_of("runtime.precision=float32", *settings, "runtime.device=cpu"))
    gpu = losses(trainer_of(f"runtime.precision={precision}", *settings))
    assert cpu[-1] < cpu[0] - 0.02 and gpu == pytest.approx(cpu, abs=BOUNDS[precision])


@pytest.mark.parametrize("settings", KINDS.values(), ids=KINDS)
def test_recorded_kernels_compute_what_launched_ones_do(settings, monkeypatch):
    """Dropout, too, whose random numbers a graph takes from the seed of the step."""
    recorded = trainer_of(*EXACT, *settings)
    losses(recorded)
    assert not recorded.notices
    monkeypatch.setattr(graphs, "WARM_UP", 10**9)
    launched = trainer_of(*EXACT, *settings)
    assert losses(launched) == pytest.approx(losses(trainer_of(*EXACT, *settings)), abs=0)
    assert torch.equal(recorded.weights.vector, launched.weights.vector)


@pytest.mark.parametrize("settings", KINDS.values(), ids=KINDS)
def test_a_resumed_training_has_the_bits_of_one_that_never_stopped(settings):
    whole, first = trainer_of(*EXACT, *settings), trainer_of(*EXACT, *settings)
    losses(whole)
    losses(first, 5)
    later = trainer_of(*EXACT, *settings)
    with later.runtime.applied():
        later.load(first.state())
    losses(later, STEPS - 5)
    assert torch.equal(later.weights.vector, whole.weights.vector)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_a_step_that_is_not_finite_changes_nothing(precision):
    trainer = trainer_of(f"runtime.precision={precision}")
    losses(trainer, 5)
    trainer.weights.working.norm.weight.data.mul_(float("nan"))
    before = trainer.weights.vector.clone()  # in float32, these are the working weights
    with pytest.raises(NotFinite, match="step 6"):
        losses(trainer, 1)
    torch.testing.assert_close(trainer.weights.vector, before, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("positions", POSITIONS)
def test_an_evaluation_has_the_loss_of_the_cpu(positions):
    settings = ("runtime.precision=float32", f"model.positions={positions}")
    gpu, cpu = trainer_of(*settings), trainer_of(*settings, "runtime.device=cpu")
    found = [one.evaluate(IDS[:20_000], marks=None, interrupt=None) for one in (gpu, cpu)]
    assert found[0] == pytest.approx(found[1], abs=1e-5)


@pytest.mark.parametrize("gigabytes", [0.3, 0.4, 0.5, 0.75])
def test_what_does_not_fit_is_computed_in_parts(gigabytes):
    """Wherever memory ends: in a first step, in one that is recorded, or not at all."""
    settings = ("runtime.precision=float32", "train.batch_size=2048")
    whole = losses(trainer_of(*settings), 5)
    torch.cuda.empty_cache()
    used = torch.cuda.memory_reserved()
    total = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction(min(1.0, (used + gigabytes * 2**30) / total))
    limited = trainer_of(*settings)
    assert losses(limited, 5) == pytest.approx(whole, abs=1e-3)
    assert all(notice.kind is Kind.MEMORY for notice in limited.notices) and (limited.notices or gigabytes > 0.4)


def test_a_compiled_training_learns_the_same():
    settings = ("runtime.precision=float32",)
    compiled = losses(trainer_of(*settings, "runtime.compile=on"))
    assert compiled == pytest.approx(losses(trainer_of(*settings)), abs=1e-3)


def texts_of(writer: Writer, count: int, options: SamplingOptions) -> tuple[np.ndarray, np.ndarray]:
    pieces = list(writer.pieces([[1, 2]] * count, 200, options, seeds=range(count)))
    return np.concatenate([piece.ids for piece in pieces]), np.concatenate([piece.log_probabilities for piece in pieces])


@pytest.mark.parametrize("positions", POSITIONS)
@pytest.mark.parametrize("options", RULES, ids=str)
@pytest.mark.parametrize("count", [1, 3])
def test_texts_are_those_of_the_cpu(positions, options, count):
    """Beyond the context of 64 characters, too."""
    torch.manual_seed(0)
    model = GPT(GPTConfig(n_layer=2, n_head=2, n_embd=64, block_size=64, positions=positions), VOCABULARY).eval()
    cpu = texts_of(torch_writer(model), count, SamplingOptions(**options))
    gpu = texts_of(torch_writer(model.to("cuda")), count, SamplingOptions(**options))
    assert np.array_equal(gpu[0], cpu[0])
    assert gpu[1] == pytest.approx(cpu[1], abs=1e-4)
