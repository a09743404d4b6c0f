"""What is said about a training before it begins."""

import pytest
import torch
from text_helpers import ROOT

from chargpt.config import Config, DataConfig, TrainConfig
from chargpt.terminal import UserError
from chargpt.text.corpus import load_corpus
from chargpt.training.preview import main, outlook, trial
from chargpt.training.runtime import Runtime
from model import GPT, GPTConfig


@pytest.mark.parametrize(
    "steps, expected", [(1, "not see all"), (300, "no overfitting"), (900, "little"), (9000, "overfitting expected, the best")]
)
def test_the_outlook_counts_epochs_and_warns(steps, expected, tmp_path):
    (tmp_path / "text.txt").write_text("ab" * 5000)
    data = DataConfig(cache=str(tmp_path / "cache"), val_fraction=0.5)
    corpus = load_corpus([str(tmp_path / "text.txt")], data, root=tmp_path, block_size=4)
    config = Config(model=GPTConfig(block_size=10), train=TrainConfig(max_steps=steps, batch_size=5))
    said = outlook(corpus, config, parameters=10_000, characters_per_second=1000)
    assert expected in said and f"{steps / 100:.1f} epochs for 10,000 parameters" in said


def test_a_trial_counts_parameters_and_measures_speed():
    config = Config(model=GPTConfig(n_layer=1, n_head=1, n_embd=8, block_size=8))
    parameters, speed = trial(config, 5, Runtime(device=torch.device("cpu"), precision=torch.float32, threads=1))
    assert parameters == GPT(config.model, 5).parameter_count() and speed > 100


def test_the_program_prints_what_it_found(tmp_path, capsys):
    arguments = [f"data.cache={tmp_path}", "--config", str(ROOT / "configs" / "tiny.yaml")]
    assert main(arguments) == 0
    output = capsys.readouterr().out
    assert output.startswith("text        python-docs: ") and "\nto beat     gzip " in output and "\noutlook     " in output
    with pytest.raises(UserError, match="nothing.txt: no such file"):
        main([*arguments, "nothing.txt"])
