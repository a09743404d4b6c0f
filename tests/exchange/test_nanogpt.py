"""nanoGPT's checkpoints: equal logits, its optimizer's state, its settings; and no pickle runs code or fills the memory."""

import os
import pickle
import zipfile

import pytest
import torch
from nanogpt_files import SETTINGS, SHAPE, Model, new_optimizer, take_step, write_files

from chargpt.exchange.nanogpt import read_characters, read_nanogpt
from chargpt.runs.model_shape import blank_model
from chargpt.terminal import UserError

CHARACTERS = "\n abcdefgh中"


@pytest.fixture(params=[False, True], ids=["plain", "biases"])
def trained(request, tmp_path):
    """A model of nanoGPT's kind after three steps, and the folder of its checkpoint."""
    torch.manual_seed(0)
    model = Model(len(CHARACTERS), **{**SHAPE, "bias": request.param})
    optimizer = new_optimizer(model)
    for _ in range(3):
        take_step(model, optimizer, torch.randint(11, (4, 24)), torch.randint(11, (4, 24)))
    return model, optimizer, write_files(tmp_path / "out", model, optimizer, CHARACTERS, step=3, bias=request.param)


@pytest.fixture
def folder(trained):
    return trained[2]


@torch.no_grad()
def test_the_logits_are_equal(trained):
    model, _, folder = trained
    found = read_nanogpt(folder, meta=None)
    ours = blank_model(found.shape, found.tokenizer.vocab_size)
    ours.load_state_dict(found.weights)
    ids = torch.randint(11, (3, 24))
    assert (ours(ids) - model(ids)).abs().max() < 1e-5
    assert found.tokenizer.characters == CHARACTERS and found.step == 3 and found.shape.positions == "learned"


def test_the_state_of_the_optimizer_is_found_by_name(trained):
    model, optimizer, folder = trained
    found = read_nanogpt(folder, meta=None)
    assert found.moments["step"] == 3
    theirs = model.transformer["h"][1]["mlp"]["c_fc"].weight
    for quantity in ("exp_avg", "exp_avg_sq"):
        assert torch.equal(found.moments[f"blocks.1.mlp.up.weight/{quantity}"], optimizer.state[theirs][quantity])
        assert torch.equal(
            found.moments[f"norm.weight/{quantity}"], optimizer.state[model.transformer["ln_f"].weight][quantity]
        )
    assert "the optimizer continues with its own state" in found.notes


def test_the_settings_are_kept(folder):
    settings = read_nanogpt(folder, meta=None).settings
    assert settings["train"] == {"batch_size": 4, "accumulate": 2, "max_steps": 30, "eval_interval": 10, "log_interval": 5}
    assert settings["optim"]["schedule"] == "cosine" and settings["optim"]["final_fraction"] == pytest.approx(0.1)
    assert settings["optim"]["betas"] == [0.9, 0.99] and settings["optim"]["warmup_steps"] == 3


def test_a_vocabulary_in_another_order_is_sorted(tmp_path):
    torch.manual_seed(0)
    model = Model(3, **SHAPE)
    found = read_nanogpt(write_files(tmp_path / "out", model, None, "cab", step=0), meta=None)
    assert found.tokenizer.characters == "abc" and "the optimizer begins with a new state" in found.notes
    assert torch.equal(found.weights["token_embedding.weight"], model.lm_head.weight[[1, 2, 0]])


def test_a_compiled_model_with_masks_is_read(trained, tmp_path):
    model, _, _ = trained
    weights = {f"_orig_mod.{name}": tensor for name, tensor in model.state_dict().items()}
    weights["_orig_mod.transformer.h.0.attn.bias"] = torch.ones(1, 1, 24, 24)
    bias = "transformer.ln_f.bias" in model.state_dict()
    folder = write_files(tmp_path / "compiled", model, None, CHARACTERS, step=0, bias=bias, model=weights)
    assert read_nanogpt(folder, meta=None).shape.bias == bias


def test_a_damaged_optimizer_state_is_left_out(trained, tmp_path):
    model, optimizer, _ = trained
    state = optimizer.state_dict()
    state["state"][0]["exp_avg"] = torch.zeros(2, 2)
    folder = write_files(tmp_path / "bad", model, None, CHARACTERS, step=3, optimizer=state)
    assert read_nanogpt(folder, meta=None).moments is None


class Attack:
    """Unpickling it would create a file."""

    def __init__(self, path) -> None:
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize("where", ["ckpt.pt", "meta.pkl", "inside meta.pkl"])
def test_no_code_in_a_pickle_runs(folder, tmp_path, where):
    trace = tmp_path / "trace"
    if where == "ckpt.pt":
        torch.save({"model": Attack(trace)}, folder / "ckpt.pt")
    else:
        (folder / "meta.pkl").write_bytes(
            pickle.dumps(Attack(trace) if where == "meta.pkl" else {"stoi": {"a": Attack(trace)}})
        )
    with pytest.raises(UserError) as raised:
        read_nanogpt(folder, meta=None)
    assert not trace.exists() and "\n" not in str(raised.value)


@pytest.mark.parametrize(
    "changes, problem",
    [
        ({"model": None}, "holds no model"),
        ({"model": {"transformer.wte.weight": torch.nested.nested_tensor([torch.ones(2)])}}, "holds no model"),
        ({"model_args": None}, "holds no model_args"),
        ({"model_args": {**SHAPE, "vocab_size": 50304}}, "vocab_size is 50304"),
        ({"model_args": {**SHAPE, "vocab_size": 11, "n_layer": 10**7}}, "layers"),
        ({"model_args": {**SHAPE, "vocab_size": 11, "n_embd": 32}}, "not"),
        ({"iter_num": -1}, "iter_num is -1"),
        ({"iter_num": 10**30}, "iter_num is"),
    ],
)
def test_a_wrong_checkpoint_is_one_line(trained, tmp_path, changes, problem):
    folder = write_files(tmp_path / "wrong", trained[0], None, CHARACTERS, step=0, **changes)
    with pytest.raises(UserError, match=problem) as raised:
        read_nanogpt(folder, meta=None)
    assert "\n" not in str(raised.value)


def nested(times: int) -> list:
    """A list of 2**times parts in a few bytes of a pickle: it contains a list twice, which contains another one twice."""
    value = []
    for _ in range(times):
        value = [value, value]
    return value


@pytest.mark.parametrize(
    "changes, problem",
    [
        ({"iter_num": nested(60)}, "iter_num is of type list"),
        ({"iter_num": 10**600}, "iter_num is of type int"),
        ({"model_args": {**SHAPE, "vocab_size": torch.zeros(3)}}, "vocab_size is None"),
        ({"model_args": {**SHAPE, "vocab_size": 11, "n_layer": nested(60)}}, "n_layer is None"),
    ],
)
def test_no_value_of_a_checkpoint_fills_the_memory(trained, tmp_path, changes, problem):
    folder = write_files(tmp_path / "wrong", trained[0], None, CHARACTERS, step=0, **changes)
    with pytest.raises(UserError, match=problem):
        read_nanogpt(folder, meta=None)


def test_settings_that_are_no_numbers_are_ignored(tmp_path, trained):
    config = {**SETTINGS, "lr_decay_iters": torch.zeros(3), "max_iters": nested(60)}
    bias = "transformer.ln_f.bias" in trained[0].state_dict()
    folder = write_files(tmp_path / "other", trained[0], None, CHARACTERS, step=0, bias=bias, config=config)
    assert "max_steps" not in read_nanogpt(folder, meta=None).settings["train"]


@pytest.mark.parametrize(
    "change",
    [
        lambda state: state.update(step=torch.zeros(3)),
        lambda state: state.update(step=torch.tensor(-5.0)),
        lambda state: state.update(step=float("inf")),
        lambda state: state.update(step=10**400),
        lambda state: state.update(step=torch.zeros(1, device="meta")),
        lambda state: state.update(exp_avg=state["exp_avg"].to("meta")),
        lambda state: state.update(exp_avg_sq=state["exp_avg_sq"] - 1),
    ],
)
def test_a_state_that_no_optimizer_writes_is_replaced_by_a_new_one(trained, tmp_path, change):
    model, optimizer, _ = trained
    state = optimizer.state_dict()
    state = {**state, "state": {number: dict(values) for number, values in state["state"].items()}}
    for values in state["state"].values():
        change(values)
    bias = "transformer.ln_f.bias" in model.state_dict()
    folder = write_files(tmp_path / "other", model, None, CHARACTERS, step=3, bias=bias, optimizer=state)
    assert "the optimizer begins with a new state" in read_nanogpt(folder, meta=None).notes


def test_damaged_files_are_one_line(folder):
    data = (folder / "ckpt.pt").read_bytes()
    for damaged in (b"", data[:100], data[:-100], b"\x80\x02}q\x00.", os.urandom(500)):
        (folder / "ckpt.pt").write_bytes(damaged)
        with pytest.raises(UserError, match="not a checkpoint of tensors") as raised:
            read_nanogpt(folder, meta=None)
        assert "\n" not in str(raised.value)


def test_a_packed_checkpoint_is_refused_before_it_is_unpacked(folder):
    """A few kilobytes of zip can hold gigabytes of zeros."""
    with zipfile.ZipFile(folder / "ckpt.pt", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("archive/data.pkl", b"\0" * 10**6)
    with pytest.raises(UserError, match="not as torch.save writes it"):
        read_nanogpt(folder, meta=None)


@pytest.mark.parametrize(
    "meta, problem",
    [
        ({"stoi": {"a": 0, "b": 5}}, "ids are not 0, 1, 2"),
        ({"stoi": {}}, "its vocabulary is empty"),
        ({"itos": {}}, "not the vocabulary of a character model"),
        ([1, 2], "not the vocabulary of a character model"),
        ({"stoi": {"th": 0}}, "'th' is not one character"),
        ({"stoi": {3: 0}}, "'3' is not one character"),
    ],
)
def test_a_wrong_vocabulary_is_one_line(folder, meta, problem):
    (folder / "meta.pkl").write_bytes(pickle.dumps(meta))
    with pytest.raises(UserError, match=problem):
        read_nanogpt(folder, meta=None)


def test_a_pickle_of_ten_bytes_reserves_no_memory(folder):
    """It numbers an object 2**31 - 1, and the unpickler's table of objects would take 32 GB."""
    (folder / "meta.pkl").write_bytes(b"\x80\x02}r\xff\xff\xff\x7f.")
    with pytest.raises(UserError, match="it refers to an object 2,147,483,647"):
        read_nanogpt(folder, meta=None)


def test_a_pickle_whose_keys_take_forever_is_refused(folder):
    key = ()
    for _ in range(60):
        key = (key, key)
    (folder / "meta.pkl").write_bytes(pickle.dumps([(key, 0)]).replace(b"]", b"}", 1))
    with pytest.raises(UserError, match="it contains .*TUPLE"):
        read_nanogpt(folder, meta=None)


@pytest.mark.parametrize("protocol", range(6))
def test_a_vocabulary_of_every_protocol_is_read(folder, protocol):
    ids = {character: id for id, character in enumerate(CHARACTERS)}
    meta = {"vocab_size": 11, "itos": {id: character for character, id in ids.items()}, "stoi": ids}
    (folder / "meta.pkl").write_bytes(pickle.dumps(meta, protocol))
    assert read_characters(folder / "meta.pkl") == ids


def test_without_its_vocabulary_the_message_says_where_it_is(folder, tmp_path):
    (folder / "meta.pkl").rename(tmp_path / "elsewhere.pkl")
    with pytest.raises(UserError, match="--meta FILE"):
        read_nanogpt(folder, meta=None)
    assert read_nanogpt(folder, meta=tmp_path / "elsewhere.pkl").tokenizer.characters == CHARACTERS
    assert read_characters(tmp_path / "elsewhere.pkl")["a"] == 2
