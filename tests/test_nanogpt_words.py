"""What people type who come from nanoGPT is answered in our words, and a file of its configuration is not executed."""

import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import train
from chargpt import nanogpt_words
from chargpt.config import Config, apply_overrides
from chargpt.nanogpt_words import SAMPLE, TRAIN, UNUSED, check_words, in_our_words, read_config
from chargpt.planning.cli import parse_options
from chargpt.planning.settings import load_settings
from chargpt.sampling.options import parse_options as parse_sample
from chargpt.terminal import UserError

PRESETS = Path(__file__).parents[1] / "configs"
# The options of nanoGPT's train.py and sample.py.
THEIR_TRAIN = """
out_dir eval_interval log_interval eval_iters eval_only always_save_checkpoint init_from wandb_log wandb_project
wandb_run_name dataset gradient_accumulation_steps batch_size block_size n_layer n_head n_embd dropout bias
learning_rate max_iters weight_decay beta1 beta2 grad_clip decay_lr warmup_iters lr_decay_iters min_lr backend device
dtype compile
""".split()
THEIR_SAMPLE = "init_from out_dir start num_samples max_new_tokens temperature top_k seed device dtype compile".split()
TRAIN_OPTIONS, SAMPLE_OPTIONS = ("--device", "--init-from"), ("--device", "--temperature", "--seed", "--top-k")
CONFIG = """# a file of nanoGPT's configuration
import time
out_dir = 'out-sea'
eval_interval = 10 # often
eval_iters = 200
wandb_run_name = 'ft-' + str(time.time())
always_save_checkpoint = False
dataset = 'sea'
gradient_accumulation_steps = 1 * 2
batch_size = 4
block_size = 32
n_layer = 1
n_head = 2
n_embd = 16
dropout = 0.0
learning_rate = 1e-3
max_iters = 6
min_lr = 1e-4
beta2 = 0.99
warmup_iters = 2
# device = 'cuda'
device = 'cpu'
compile = False
"""


@pytest.mark.parametrize("form", ["--{name} 3", "--{name}=3", "{name}=3", "--{dashes}=3"])
@pytest.mark.parametrize(("parse", "names"), [(parse_options, THEIR_TRAIN), (parse_sample, THEIR_SAMPLE)])
def test_each_option_of_nanogpt_is_one_line_that_says_what_to_write(parse, names, form):
    for name in names:
        words = form.format(name=name, dashes=name.replace("_", "-")).split()
        ours = SAMPLE_OPTIONS if parse is parse_sample else TRAIN_OPTIONS
        if words[0].partition("=")[0] in ours:
            parse(words)
            continue
        with pytest.raises(UserError) as caught:
            parse(words)
        said = str(caught.value)
        assert said.startswith(words[0].partition("=")[0] + ": ") and "\n" not in said
        assert "; write " in said and ("3" in said or "TEXT" in said) or "; leave out " in said


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--batch_size=32", "--n_layer", "4"], "write train.batch_size=32 model.n_layer=4"),
        (["x.txt", "lr=1e-3"], "write optim.learning_rate=1e-3"),
        (["--lr", "1e-3", "--wandb_log=True"], "write optim.learning_rate=1e-3, and leave out wandb_log (TensorBoard"),
        (["--compile=False", "--bias=True"], "write runtime.compile=off model.bias=true"),
        (["--init_from=resume", "--out_dir=out"], "write --resume --run out"),
        (["--init_from=gpt2-xl"], "gpt2-xl is a model of tokens"),
        (["--beta1=0.8", "--beta2=0.9"], "write optim.betas=0.8,0.9"),
        (["--min_lr=1e-4", "--learning_rate=1e-3"], "optim.final_fraction=0.1"),
        (["--min_lr=x", "--learning_rate=y"], "leave out min_lr"),
        (["--decay_lr=False"], "optim.schedule=linear optim.decay_fraction=0 optim.warmup_steps=0"),
        (["--decay_lr=False", "--warmup_iters=5", "--min_lr=1"], "optim.decay_fraction=0 optim.warmup_steps=0"),
        (["--max_new_tokens=100"], "an option of sample.py; after the training, write python sample.py --length 100"),
        (["--top-k", "5", "--batch_size=3"], "an option of sample.py; after the training, write python sample.py --top-k 5"),
        (["config/train_shakespeare_char.py"], "no such file; write shakespeare --config shakespeare-cpu"),
        (["--config=config/train_shakespeare_char.py"], "no such file; write shakespeare --config shakespeare-cpu"),
        (["--dataset=shakespeare_char"], "write shakespeare"),
        (["--dataset=openwebtext"], "write TEXT"),
        (["--max_iters"], "write train.max_steps=VALUE"),
        (["--out_dir=a b"], "write --run 'a b'"),
        (["--num-epochs", "3"], "write --epochs 3"),
        (["--dtype=float16"], "write runtime.precision=bfloat16"),
    ],
)
def test_values_are_translated_too(words, says):
    with pytest.raises(UserError) as caught:
        parse_options(words)
    assert says in str(caught.value)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--start=a b", "--num_samples", "2"], "write --prompt 'a b' --samples 2"),
        (["--start", "FILE:p.txt"], "write --prompt-file p.txt"),
        (["--out_dir=out", "--max_new_tokens=5"], "write sample.py out --length 5"),
        (["start=a"], "write --prompt a"),
        (["--compile=False"], "leave out compile (sampling"),
    ],
)
def test_options_of_sampling_are_translated(words, says):
    with pytest.raises(UserError) as caught:
        parse_sample(words)
    assert says in str(caught.value)


def test_values_and_files_that_look_like_options_are_left_alone(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("start=1").write_text("")
    assert parse_sample(["--prompt", "start=5"]).prompt == "start=5"
    assert parse_sample(["start=1"]).run == "start=1"
    assert parse_sample(["--prompt=--start"]).prompt == "--start"
    assert parse_options(["start=1"]).texts == ["start=1"]


def test_every_translation_is_a_setting_that_exists():
    for name, template in TRAIN.items():
        if "=" in template:
            value = {
                "bias": "True",
                "compile": "False",
                "dtype": "float32",
                "n_head": "2",
                "n_embd": "32",
                "dropout": "0.1",
            }.get(name, "1")
            apply_overrides(Config(), in_our_words({name: value}, TRAIN)[0])
    assert {*THEIR_TRAIN} <= {*TRAIN, *UNUSED} and {*THEIR_SAMPLE} <= {*SAMPLE, *UNUSED}


def test_a_mistyped_option_is_answered_without_torch():
    code = "import sys; from chargpt.planning.cli import parse_options\ntry: parse_options(['--batch_size=3'])\n"
    code += "except ValueError: sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=PRESETS.parent, timeout=60).returncode == 0


def test_a_configuration_of_nanogpt_is_printed_as_a_command_that_works(text, tmp_path, capsys):
    path = tmp_path / "train_sea.py"
    path.write_text(CONFIG)
    with pytest.raises(
        UserError, match="a configuration of nanoGPT, which is not executed; use the command above; left out: ev"
    ):
        train.main([str(text), "--config", str(path)])
    program, script, *words = shlex.split(capsys.readouterr().out)
    assert (program, script, words[:5]) == ("python", "train.py", [str(text), "--run", "out-sea", "--device", "cpu"])
    config = load_settings(None, parse_options(words).settings, presets=PRESETS).config
    assert (config.model.n_layer, config.model.block_size, config.train.accumulate, config.train.max_steps) == (1, 32, 2, 6)
    assert (config.optim.betas, config.optim.schedule, config.optim.final_fraction) == ((0.9, 0.99), "cosine", 0.1)
    place = [f"data.cache={tmp_path}/cache", "train.sample_length=0", "runtime.threads=1"]
    assert train.main([str(text), "--run", f"{tmp_path}/run", *words[3:], *place]) == 0


@pytest.mark.parametrize("form", [["{file}"], ["--config", "{file}"], ["--config={file}"]])
@pytest.mark.parametrize(
    ("words", "has", "has_not"),
    [
        (["--device=cuda", "--max_iters=9"], ["TEXT", "--device=cuda", "train.max_steps=9"], ["cpu", "train.max_steps=6"]),
        (["--n_layer", "3", "--wandb_log=True"], ["model.n_layer=3"], ["model.n_layer=1", "wandb"]),
        (["a b.txt", "--run", "mine"], ["'a b.txt'", "--run mine"], ["TEXT", "out-sea"]),
        (["--minutes", "5", "model.n_layer=2"], ["--minutes 5", "model.n_layer=2"], ["train.max_steps", "model.n_layer=1"]),
        (["--epochs=2", "lr=1e-2"], ["--epochs=2", "optim.learning_rate=1e-2"], ["train.max_steps"]),
        (["runtime.device=cuda"], ["runtime.device=cuda"], ["--device"]),
    ],
)
def test_a_configuration_and_what_is_typed_with_it_become_one_command(tmp_path, capsys, form, words, has, has_not):
    path = tmp_path / "config" / "train_sea.py"
    path.parent.mkdir()
    path.write_text(CONFIG)
    with pytest.raises(UserError, match="a configuration of nanoGPT, which is not executed; use the command above"):
        parse_options([*(word.format(file=path) for word in form), *words])
    out = capsys.readouterr().out
    assert out.count("\n") == 1 and all(word in out for word in has) and not any(word in out for word in has_not)
    parse_options(shlex.split(out)[2:])


HOSTILE = {
    "code": "n_layer = __import__('os').mkdir('trace')\nbatch_size = open('trace', 'w')\nn_head = 2\nn_embd = exec('x')",
    "nesting": f"n_layer = {'(' * 140}1{')' * 140}\nn_head = {'-' * 250}1\nn_embd = 8\nbatch_size = {'[' * 270}",
    "a number without end": f"n_layer = {'9' * 250} * {'9' * 40}\nn_head = 10 ** 10 ** 10\nn_embd = 1",
    "control characters": "out_dir = '\\x1b[31mred\\n'\nn_layer = 2\nn_head = 2",
    "a shell": "out_dir = '$(touch trace); `touch trace`'\ndevice = '; touch trace'\nn_layer = 2",
    "bytes": "n_layer = 2\nn_head = 2\n\x00\x01",
    "a long file": "n_layer = 2\nn_head = 2\n" + "# \n" * 100_000,
    "a long line": "n_layer = 2\nn_head = '" + "x" * 50_000 + "'",
}


@pytest.mark.parametrize("content", HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_configuration_is_one_line_and_runs_nothing(tmp_path, monkeypatch, capsys, content):
    monkeypatch.chdir(tmp_path)
    Path("x.py").write_text(content)
    with pytest.raises(UserError) as caught:
        load_settings("x.py", [], presets=PRESETS)
    out = capsys.readouterr().out
    assert "\n" not in str(caught.value) and out.count("\n") <= 1 and out.strip().isprintable()
    assert not Path("trace").exists()
    if out:
        done = subprocess.run(["sh", "-c", out.replace("python train.py", "echo", 1)], capture_output=True, timeout=30)
        assert done.returncode == 0 and not Path("trace").exists()


def test_yaml_is_not_taken_for_a_configuration_of_nanogpt():
    assert not any(read_config(path) for path in PRESETS.glob("*.yaml"))


def test_words_after_two_dashes_are_texts():
    check_words(["--", "--start"], SAMPLE, known=())
    assert nanogpt_words.is_gpt2("gpt2") and not nanogpt_words.is_gpt2("poems")


@pytest.mark.parametrize("name", ["minutes", "epochs"])
def test_an_option_typed_as_a_setting_is_answered_with_the_option(name):
    with pytest.raises(UserError) as caught:
        parse_options(["poems.txt", f"{name}=3"])
    assert str(caught.value).startswith(f"{name}:")
    assert f"write --{name} 3" in str(caught.value)
