"""Names of other programs are answered with ours, and nothing that is given is run."""

import pytest

from chargpt.__main__ import main
from chargpt.aliases import ALIASES, alias
from chargpt.config import Config
from chargpt.errors import UserError
from chargpt.planning.ahead import check_command_line
from chargpt.planning.cli import TrainOptions, settings_in
from chargpt.planning.initial_settings import load_settings
from chargpt.project import presets_folder
from chargpt.sampling.cli import parse_options as parse_sample
from chargpt.settings import KEYS, apply

NANOGPT = """
out_dir eval_interval log_interval eval_iters eval_only always_save_checkpoint wandb_log wandb_project wandb_run_name dataset
gradient_accumulation_steps batch_size block_size n_layer n_head n_embd dropout bias learning_rate max_iters weight_decay beta1
beta2 grad_clip decay_lr warmup_iters lr_decay_iters min_lr backend dtype compile num_samples max_new_tokens
""".split()
OTHERS = "data_dir rnn_size num_layers seq_length max_epochs gpu gpuid primetext start_text prime prefix wandb".split()
OPTIONS = "--epochs --minutes --run --start --init-from --device --prompt --length --samples --precision --ban-word".split()


def meant(name: str) -> str:
    """The first word of what a name of theirs means on the command line."""
    return str(ALIASES[name]).split(" ")[0].rstrip(",")


def test_every_name_means_something_that_exists():
    for name in ALIASES:
        word = meant(name)
        assert word in (*KEYS, *OPTIONS, "TEXT", "TensorBoard", "torchrun", "python"), name


@pytest.mark.parametrize("parse", [check_command_line, parse_sample])
@pytest.mark.parametrize("form", ["--{} 3", "--{}=3"])
def test_each_option_of_another_program_is_one_line_that_names_ours(parse, form):
    for name in [*NANOGPT, *OTHERS]:
        for typed in {name, name.replace("_", "-")}:
            with pytest.raises(UserError, match=f"^--{typed}: no such option; did you mean ") as raised:
                parse(["poems.txt", *form.format(typed).split()])
            assert meant(name) in str(raised.value) and "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--batch_size=32", "--n_layer", "4"], "--batch_size: no such option; did you mean train.batch_size?"),
        (["x.txt", "lr=1e-3"], "lr=1e-3: not a setting; did you mean optim.learning_rate?"),
        (["x.txt", "epochs=3"], "did you mean --epochs?"),
        (["x.txt", "train.max_iters=3"], "did you mean train.max_steps?"),
        (["-data_dir", "data"], "-data_dir: no such option; did you mean TEXT, the path of a text?"),
        (["x.txt", "start=english"], "start=english: not a setting; did you mean --start NAME?"),
        (["--dtype", "x"], "did you mean runtime.precision, or --precision of sample.py?"),
    ],
)
def test_what_is_typed_for_training(words, says):
    with pytest.raises(UserError) as raised:
        check_command_line(words)
    assert says in str(raised.value)


def test_what_is_typed_for_sampling_and_as_a_verb():
    with pytest.raises(UserError, match=r"did you mean --prompt\?$"):
        parse_sample(["--primetext", "The sea"])
    with pytest.raises(UserError, match=r"did you mean runtime.precision of train.py, or --precision\?$"):
        parse_sample(["--dtype", "x"])
    with pytest.raises(UserError, match="plot: no such command; did you mean report?"):
        main(["plot"])
    for parse in (parse_sample, lambda words: main(["runs", *words])):
        with pytest.raises(UserError, match=r"--batch_size: no such option; did you mean train.batch_size of train.py\?$"):
            parse(["--batch_size", "3"])
    assert parse_sample(["--prompt=--start_text"]).prompt == "--start_text"


def test_a_file_of_settings_may_have_such_names_too():
    with pytest.raises(UserError, match="a.yaml: train.max_iters: no such key; did you mean train.max_steps?"):
        apply(Config(), {"train": {"max_iters": 5}}, where="a.yaml")
    with pytest.raises(UserError, match="not a setting; write section.key=value"):
        settings_in(["nothing=5"])
    assert str(alias("--batch-size")) == "train.batch_size" and not alias("poems")


def test_a_configuration_of_nanogpt_is_one_line_and_is_not_run(tmp_path):
    path = tmp_path / "train_sea.py"
    path.write_text(f"import os\nos.mkdir({str(tmp_path / 'trace')!r})\nn_layer = 2\n")
    for given in (str(path), "config/train_shakespeare_char.py"):
        with pytest.raises(UserError, match="is Python code, which is not run; give its settings, such as train.max_st"):
            load_settings(TrainOptions(config=given), presets=presets_folder())
    assert not (tmp_path / "trace").exists()
