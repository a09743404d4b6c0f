"""An imported model is a run: it samples and scores as before, is started from, and with its text it is resumed."""

import pytest
import torch
from exchange_helpers import options_of
from helpers import batch_of
from nanogpt_files import SHAPE, Model, new_optimizer, take_step, write_files
from session_helpers import opened

from chargpt.config import ModelConfig
from chargpt.errors import UserError
from chargpt.exchange import hugging_face, tensor_file
from chargpt.exchange.hugging_face import read_folder
from chargpt.exchange.importing import checked_shape, imported, of_page, save_run
from chargpt.exchange.nanogpt import read_nanogpt
from chargpt.model import GPT, GPTConfig
from chargpt.planning.cli import parse_options, settings_in
from chargpt.planning.plan import make_plan
from chargpt.runs.checkpoint import newest
from chargpt.sampling.loaded_model import load_model
from chargpt.session.resuming import open_saved
from chargpt.text.corpus import load_corpus
from chargpt.text.tokenizer import Tokenizer
from chargpt.training.group import Group


@pytest.fixture
def root(tmp_path, monkeypatch):
    """A folder for runs, with a preset."""
    (tmp_path / "small.yaml").write_text("train: {batch_size: 4, max_steps: 40, eval_chars: 500}\n")
    monkeypatch.setattr("chargpt.exchange.importing.presets_folder", lambda: tmp_path)
    return tmp_path


@pytest.fixture
def nanogpt(tmp_path, text):
    """A model of nanoGPT's kind, its optimizer, and its checkpoint after two steps."""
    characters = "".join(sorted(set(text.read_text())))
    torch.manual_seed(0)
    model = Model(len(characters), **SHAPE)
    optimizer = new_optimizer(model)
    for _ in range(2):
        take_step(model, optimizer, torch.randint(len(characters), (4, 24)), torch.randint(len(characters), (4, 24)))
    return model, optimizer, write_files(tmp_path / "out", model, optimizer, characters, step=2)


def save(model, root, texts=(), **changes):
    settings = settings_in(changes.pop("settings", []))
    return save_run(
        model, [*map(str, texts)], **{"name": "new", "preset": "small", "settings": settings, "root": root, **changes}
    )


@pytest.mark.parametrize("form, read", [(hugging_face, read_folder), (tensor_file, of_page)])
def test_without_a_text_it_is_sampled_from_and_started_from(form, read, tmp_path, root, make_model, text, capsys):
    loaded = make_model()
    form.write(loaded, tmp_path / "model", options_of(loaded))
    save(read(tmp_path / "model"), root)
    again, warnings = load_model("new", root / "checkpoints", device="cpu")
    assert not warnings and again.val_loss is None
    assert torch.equal(again.logits("a cab"), loaded.logits("a cab"))
    assert again.generate("a", length=30, seed=1) == loaded.generate("a", length=30, seed=1)
    options = parse_options(
        [str(text), "--config", "shakespeare-cpu", "--init-from", "new", "model.dropout=0.1", "train.max_steps=1"]
    )
    started = make_plan(options, root=root).model
    assert torch.equal(started.blocks[0].mlp.up.weight, loaded.model.blocks[0].mlp.up.weight)
    with pytest.raises(UserError, match="imported without a text"):
        open_saved(parse_options(["--resume", "--run", "new"]), root=root, group=Group())


def test_the_next_steps_are_those_that_nanogpt_would_take(root, nanogpt, text):
    """The same batches at the same rate: what nanoGPT's AdamW does with its state, the resumed run does as well."""
    model, optimizer, folder = nanogpt
    save(read_nanogpt(folder, meta=None), root, [text], settings=["runtime.precision=float32", "runtime.device=cpu"])
    resumed = opened(["--resume", "--run", "new"], root=root)
    trainer = resumed.trainer
    assert trainer.progress.step == 2 and trainer.config.train.max_steps == 30 and trainer.config.chars_per_step == 4 * 2 * 24
    for step in range(2, 5):
        for group in optimizer.param_groups:
            group["lr"] = trainer.rate_of(step)
        optimizer.zero_grad()
        for chunk in range(2):
            inputs, targets = batch_of(trainer._batches, step, chunk)
            logits = model(inputs.long())
            (torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.long().flatten()) / 2).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        trainer.step()
    ours = trainer.model.state_dict()
    assert (ours["token_embedding.weight"] - model.lm_head.weight).abs().max() < 1e-5
    assert (ours["blocks.1.mlp.up.weight"] - model.transformer["h"][1]["mlp"]["c_fc"].weight).abs().max() < 1e-5
    resumed.run._lock.release()


def test_the_text_is_evaluated_and_recorded(root, nanogpt, text, capsys):
    save(read_nanogpt(nanogpt[2], meta=None), root, [text])
    checkpoint, _ = newest(root / "checkpoints" / "new")
    assert checkpoint.state.progress.val_loss == checkpoint.state.progress.best_loss > 0
    assert checkpoint.state.texts == [str(text)]
    corpus = load_corpus([str(text)], checkpoint.state.config.data, root=root, block_size=24)
    assert corpus.fingerprint == checkpoint.state.fingerprint
    said = capsys.readouterr().out
    assert "python train.py --resume --run new" in said and "the state of the optimizer comes with the model" in said
    assert checkpoint.training["blocks.0.attn.qkv.weight/exp_avg"].any()


def test_what_is_printed_after_an_import_trains_on(root, nanogpt, text, capsys):
    """nanoGPT's run was finished; the command gives it more steps. Without a text, the line says what is needed."""
    model, optimizer, folder = nanogpt
    settings = {"batch_size": 2, "max_iters": 10, "eval_interval": 10}
    write_files(folder, model, optimizer, "".join(sorted(set(text.read_text()))), step=10, config=settings)
    save(read_nanogpt(folder, meta=None), root, [text])
    (words,) = (line.split()[1:] for line in capsys.readouterr().out.splitlines() if line.startswith("resume "))
    assert words == ["python", "train.py", "--resume", "--run", "new", "train.max_steps=12"]
    assert opened(words[2:], root=root).trainer.config.train.max_steps == 12
    save(read_nanogpt(folder, meta=None), root, name="other")
    said = " ".join(capsys.readouterr().out.split())
    assert "python train.py TEXT --init-from other (to go on exactly where it stopped, add TEXT to" in said


def test_settings_of_the_command_line_win_but_the_shape_stays(root, nanogpt):
    model = read_nanogpt(nanogpt[2], meta=None)
    save(model, root, settings=["train.max_steps=77", "model.dropout=0.2"])
    config = load_model("new", root / "checkpoints", device="cpu")[0].config
    assert (config.train.max_steps, config.model.dropout, config.optim.learning_rate) == (77, 0.2, 1e-3)
    assert config.data.newlines == "auto"  # so that a text from Windows is read as one from elsewhere
    with pytest.raises(UserError, match="model.n_layer: the imported weights decide this; leave it out"):
        save(model, root, name="other", settings=["model.n_layer=9"])
    with pytest.raises(UserError, match="a run of this name exists"):
        save(model, root)


def test_what_a_hostile_checkpoint_or_another_text_would_bring_is_one_line(tmp_path, root, nanogpt):
    model = read_nanogpt(nanogpt[2], meta=None)
    (tmp_path / "other.txt").write_text("中文" * 500)
    with pytest.raises(UserError, match="the model has never seen"):
        save(model, root, [tmp_path / "other.txt"])
    model.settings["train"]["batch_size"] = 10**30
    with pytest.raises(UserError, match="nanoGPT: train.batch_size") as raised:
        save(model, root)
    assert "\n" not in str(raised.value) and not (root / "checkpoints").exists()


@pytest.mark.parametrize("value", [0, -1, 2**40, True, "2", None, 1.0])
def test_only_sensible_whole_numbers_make_a_shape(value):
    fields = {"n_layer": 1, "n_head": 1, "n_embd": 8, "block_size": 8}
    assert checked_shape("x", vocab_size=5, **fields) == ModelConfig(**fields)
    with pytest.raises(UserError, match="n_layer is"):
        checked_shape("x", vocab_size=5, **{**fields, "n_layer": value})


def test_sinusoidal_positions_and_missing_biases_are_recognised():
    shape = GPTConfig(n_layer=1, n_head=1, n_embd=8, block_size=8)
    weights = GPT(shape, 3).state_dict()
    table = GPT(GPTConfig(n_layer=1, n_head=1, n_embd=8, block_size=8, positions="sinusoidal"), 3).position_table(8)
    plain = imported("x", shape, Tokenizer("abc"), dict(weights), ids=[2, 0, 1])
    assert (plain.shape.positions, plain.shape.bias) == ("learned", False)
    assert torch.equal(plain.weights["token_embedding.weight"], weights["token_embedding.weight"][[2, 0, 1]])
    sinusoidal = imported("x", shape, Tokenizer("abc"), {**weights, "position_embedding.weight": table}, ids=[0, 1, 2])
    assert sinusoidal.shape.positions == "sinusoidal" and "position_embedding.weight" not in sinusoidal.weights
