"""The library: the five lines of the README, and that its numbers are the model's own."""

import math
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from helpers import publish_run

import chargpt
import sample
from chargpt.terminal import UserError
from chargpt.text.tokenizer import Tokenizer
from chargpt.training.evaluation import evaluate

ROOT = Path(sample.__file__).parent


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    return publish_run(tmp_path_factory.mktemp("runs") / "poems", steps=(500, 1000))


@pytest.fixture(scope="module")
def model(run):
    return chargpt.load(run)


def test_it_works_from_another_folder_and_importing_it_is_cheap(run, tmp_path):
    code = f"""
import sys
sys.path.append({str(ROOT)!r})
import chargpt
print("torch" in sys.modules)
model = chargpt.load({str(run)!r})
text = model.generate("abc", length=20, seed=1)
print(len(text), model.score("abcd") > 0, tuple(model.logits("abc").shape))
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.stdout == "False\n23 True (3, 11)\n", done.stderr


def test_a_run_is_found_by_its_name(run, installed):
    (installed / "checkpoints").symlink_to(run.parent)
    assert chargpt.load("poems").step == chargpt.load(run / "step-00000500").step == 500
    with pytest.raises(UserError, match="no run of that name"):
        chargpt.load("peoms")


@pytest.mark.parametrize(
    "options", [{}, {"temperature": 1.2, "top_k": 3}, {"stop": "a"}, {"lines": 2, "ban": "b"}, {"overflow": "exact"}]
)
def test_the_text_is_that_of_the_program(model, run, capsys, options):
    flags = [f"--{name.replace('_', '-')}={value}" for name, value in options.items()]
    assert sample.main([str(run), "--prompt", "ab", "--length", "60", "--seed", "7", *flags]) == 0
    assert capsys.readouterr().out == model.generate("ab", length=60, seed=7, **options) + "\n"


def test_without_a_seed_every_text_is_another(model):
    assert model.generate(length=60) != model.generate(length=60)


def test_a_score_is_the_mean_loss_over_windows_as_in_the_validation(model):
    text = "abcd efgh\n" * 7  # several windows, and a part of one
    ids = model.tokenizer.encode(text)
    assert model.score(text) == pytest.approx(evaluate(model.model, ids), abs=1e-6)
    one = -model.logits("abc").log_softmax(-1)[[0, 1], ids[1:3].tolist()].mean().item()
    assert model.score("abc") == pytest.approx(one, abs=1e-6)
    assert model.score("abc") < 2 * math.log(11)


def test_logits_are_the_models_in_float32(model):
    ids = torch.from_numpy(model.tokenizer.encode("ab\nc"))
    torch.testing.assert_close(model.logits("ab\nc"), model.model(ids[None])[0].detach())
    assert model.logits("ab").dtype == torch.float32 and not model.logits("ab").requires_grad


def test_what_cannot_be_scored_is_named(model):
    for text in ("", "a"):
        with pytest.raises(ValueError, match="use at least"):
            model.score(text)
    with pytest.raises(ValueError, match="empty"):
        model.logits("")
    with pytest.raises(ValueError, match="block_size"):
        model.logits("a" * 17)
    with pytest.raises(ValueError, match="not seen"):
        model.score("aÉ")
    with pytest.raises(ValueError, match="top_k"):
        model.generate(top_k=-1)


def test_a_model_of_bytes_is_scored_per_byte(tmp_path):
    model = chargpt.load(publish_run(tmp_path / "bytes", Tokenizer(None)))
    assert model.logits("中").shape == (3, 256)
    assert model.score("中") == pytest.approx(evaluate(model.model, model.tokenizer.encode("中")), abs=1e-6)


def test_a_damaged_best_checkpoint_is_a_warning(tmp_path):
    run = publish_run(tmp_path / "hurt", steps=(500, 1000))
    file = run / "step-00000500" / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-1] + b"x")
    with pytest.warns(UserWarning, match="newest checkpoint instead"):
        assert chargpt.load(run).step == 1000
