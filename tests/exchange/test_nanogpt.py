"""nanoGPT's checkpoints: equal logits, its optimizer's state, its settings; and no pickle runs code or fills the memory."""

import argparse
import collections
import os
import pickle
import shlex
import sys
import tracemalloc
import zipfile

import pytest
import torch
from nanogpt_files import SETTINGS, SHAPE, Model, new_optimizer, take_step, write_files

from chargpt.errors import UserError
from chargpt.exchange.nanogpt import read_characters, read_nanogpt
from chargpt.runs.blank_model import blank_model

CHARACTERS = "\n abcdefgh中"


def nested(times: int) -> list:
    """A list of 2**times parts in a few bytes of a pickle: it contains a list twice, which contains another one twice."""
    value = []
    for _ in range(times):
        value = [value, value]
    return value


@pytest.fixture
def trained(request, tmp_path):
    """A model of nanoGPT's kind after three steps, with biases unless a test says otherwise, and its checkpoint's folder."""
    torch.manual_seed(0)
    bias = getattr(request, "param", True)
    model = Model(len(CHARACTERS), **{**SHAPE, "bias": bias})
    optimizer = new_optimizer(model)
    for _ in range(3):
        take_step(model, optimizer, torch.randint(11, (4, 24)), torch.randint(11, (4, 24)))
    return model, optimizer, write_files(tmp_path / "out", model, optimizer, CHARACTERS, step=3, bias=bias)


@pytest.fixture
def folder(trained):
    return trained[2]


EITHER = pytest.mark.parametrize("trained", [False, True], ids=["plain", "biases"], indirect=True)


@EITHER
@torch.no_grad()
def test_the_logits_are_equal(trained):
    model, _, folder = trained
    found = read_nanogpt(folder, meta=None)
    ours = blank_model(found.shape, found.tokenizer.vocab_size)
    ours.load_state_dict(found.weights)
    ids = torch.randint(11, (3, 24))
    assert (ours(ids) - model(ids)).abs().max() < 1e-5
    assert found.tokenizer.characters == CHARACTERS and found.step == 3 and found.shape.positions == "learned"


@EITHER
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
    assert "the state of the optimizer comes with the model, so training can go on exactly" in found.notes


def test_the_settings_are_kept_if_they_are_numbers(folder, tmp_path, trained):
    settings = read_nanogpt(folder, meta=None).settings
    assert settings["train"] == {"batch_size": 4, "accumulate": 2, "max_steps": 30, "eval_interval": 10, "log_interval": 5}
    assert settings["optim"]["schedule"] == "cosine" and settings["optim"]["final_fraction"] == pytest.approx(0.1)
    assert settings["optim"]["betas"] == [0.9, 0.99] and settings["optim"]["warmup_steps"] == 3
    config = {**SETTINGS, "lr_decay_iters": torch.zeros(3), "max_iters": nested(60)}
    other = write_files(tmp_path / "other", trained[0], None, CHARACTERS, step=0, bias=True, config=config)
    assert "max_steps" not in read_nanogpt(other, meta=None).settings["train"]


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
        ({"model": {"transformer.wte.weight": torch.nested.nested_tensor([torch.ones(2)])}}, "_rebuild_nested_tensor"),
        ({"model_args": None}, "it has no model_args"),
        ({"model_args": {**SHAPE, "vocab_size": 50304}}, "vocab_size is 50304"),
        ({"model_args": {**SHAPE, "vocab_size": 11, "n_layer": 10**7}}, "layers"),
        ({"model_args": {**SHAPE, "vocab_size": 11, "n_embd": 8}}, r"is \[11, 16\], but \[11, 8\]"),
        ({"model_args": {**SHAPE, "vocab_size": 11, "n_embd": 64}}, "too few for 100,"),
        ({"iter_num": -1}, "iter_num is -1"),
        ({"iter_num": 2**62}, "iter_num is"),
        ({"iter_num": 10**30}, "iter_num is 1000"),
        ({"iter_num": nested(60)}, "iter_num is of type list"),
        ({"model_args": {**SHAPE, "vocab_size": torch.zeros(3)}}, "vocab_size is None"),
        ({"model_args": {**SHAPE, "vocab_size": 11, "n_layer": nested(60)}}, "n_layer is None"),
    ],
)
def test_a_wrong_checkpoint_is_one_line_and_fills_no_memory(trained, tmp_path, changes, problem):
    folder = write_files(tmp_path / "wrong", trained[0], None, CHARACTERS, step=0, **changes)
    with pytest.raises(UserError, match=problem) as raised:
        read_nanogpt(folder, meta=None)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("part", ["weights", "moments"])
@pytest.mark.parametrize("trained", [False], indirect=True)
def test_numbers_that_are_not_finite_are_not_read(part, trained, tmp_path):
    model, optimizer, _ = trained
    tensors = model.state_dict() if part == "weights" else optimizer.state_dict()["state"][0]
    [*tensors.values()][-1].view(-1)[-1] = float("nan")
    folder = write_files(tmp_path / "wrong", model, optimizer, CHARACTERS, step=0, bias=False)
    if part == "weights":
        with pytest.raises(UserError, match="has numbers that are infinite or undefined; copy or export"):
            read_nanogpt(folder, meta=None)
    else:
        assert read_nanogpt(folder, meta=None).moments is None


@pytest.mark.parametrize("kind", [dict, argparse.Namespace])
def test_the_command_in_the_message_writes_a_clean_file(kind, trained, tmp_path, monkeypatch):
    """A path and a counter are no plain values, and they are left out, as is the state of the optimizer."""
    model, optimizer, expected = trained
    config = kind(**SETTINGS, where=tmp_path)
    folder = write_files(tmp_path / "a b", model, optimizer, CHARACTERS, step=3, bias=True, config=config)
    (folder / "meta.pkl").write_bytes(pickle.dumps({"stoi": collections.Counter({c: i for i, c in enumerate(CHARACTERS)})}))
    for name in ("ckpt.pt", "meta.pkl"):
        with pytest.raises(UserError, match=f"{name}: not opened, since it may run code: it is not .*; if you trust") as raised:
            read_nanogpt(folder, meta=None)
        words = shlex.split(str(raised.value).partition("clean it with this command: ")[2])
        assert words[:2] == ["python", "-c"]
        monkeypatch.setattr(sys, "argv", words[1::2])
        exec(words[2], {})
    found, expected = read_nanogpt(folder, meta=None), read_nanogpt(expected, meta=None)
    assert found.settings == expected.settings and found.step == 3 and found.tokenizer == expected.tokenizer
    assert found.weights.keys() == expected.weights.keys() and found.moments is None
    assert all(torch.equal(found.weights[name], expected.weights[name]) for name in expected.weights)


@pytest.mark.parametrize(
    "change",
    [
        lambda state: state.update(exp_avg=torch.zeros(2, 2)),
        lambda state: state.update(step=torch.zeros(3)),
        lambda state: state.update(step=torch.tensor(-5.0)),
        lambda state: state.update(step=float("inf")),
        lambda state: state.update(step=2**62),
        lambda state: state.update(exp_avg_sq=state["exp_avg_sq"] - 1),
    ],
)
def test_a_state_that_no_optimizer_writes_is_replaced_by_a_new_one(trained, tmp_path, change):
    model, optimizer, _ = trained
    state = optimizer.state_dict()
    state = {**state, "state": {number: dict(values) for number, values in state["state"].items()}}
    for values in state["state"].values():
        change(values)
    folder = write_files(tmp_path / "other", model, None, CHARACTERS, step=3, bias=True, optimizer=state)
    assert "the state of the optimizer is not in the checkpoint, and begins anew" in read_nanogpt(folder, meta=None).notes


def test_damaged_files_are_one_line(folder):
    data = (folder / "ckpt.pt").read_bytes()
    incomplete, other = "damaged or incomplete.*copy the file again", "not only weights and settings"
    for damaged, says in (
        (b"", incomplete),
        (data[:100], incomplete),
        (data[:-100], incomplete),
        (b"\x80\x02}q\x00.", other),
        (b"a text\n", "ckpt.pt: not a checkpoint of nanoGPT; give the folder"),
    ):
        (folder / "ckpt.pt").write_bytes(damaged)
        with pytest.raises(UserError, match=says) as raised:
            read_nanogpt(folder, meta=None)
        assert "\n" not in str(raised.value)


def test_a_wrong_vocabulary_is_one_line(folder):
    for meta, problem in (
        ({"stoi": {"a": 0, "b": 5}}, "not numbered from 0"),
        ({"stoi": {}}, "its vocabulary is empty"),
        ({"itos": {}}, "not the vocabulary of a character model"),
        ([1, 2], "not the vocabulary of a character model"),
        ({"stoi": {"th": 0}}, "'th' is not one character"),
        ({"stoi": {3: 0}}, "'3' is not one character"),
    ):
        (folder / "meta.pkl").write_bytes(pickle.dumps(meta))
        with pytest.raises(UserError, match=problem):
            read_nanogpt(folder, meta=None)


def test_a_checkpoint_of_every_kind_of_number_is_read(tmp_path):
    torch.manual_seed(0)
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        model = Model(len(CHARACTERS), **SHAPE).to(dtype)
        folder = write_files(tmp_path / "out", model, None, CHARACTERS, step=0)
        found = read_nanogpt(folder, meta=None).weights["blocks.1.mlp.up.weight"]
        assert torch.equal(found, model.transformer["h"][1]["mlp"]["c_fc"].weight.float())


HOSTILE = {  # the pickle of a checkpoint or of a vocabulary
    "a call that asks for memory": b"c__builtin__\nbytearray\n\x8a\x08" + (2**31).to_bytes(8, "little") + b"\x85R.",
    "an object with the largest number": b"}r\xff\xff\xff\xff.",
    "bytes of any size": b"\x96" + (2**31).to_bytes(8, "little") + b".",
    "no value": b".",
    "an instance of a class": b"(ios\nsystem\n.",
    "an extension": b"\x82\x01.",
    "a name that cannot be shown": b"c\x1b[31m\nred\n.",
}


@pytest.mark.parametrize("case", HOSTILE)
def test_a_hostile_pickle_is_one_line(tmp_path, case, recwarn, capfd):
    """A table of as many objects as the largest number says would take 32 GB."""
    (tmp_path / "meta.pkl").write_bytes(b"\x80\x02" + HOSTILE[case])
    with zipfile.ZipFile(tmp_path / "ckpt.pt", "w") as file:
        for name, content in (("data.pkl", b"\x80\x02" + HOSTILE[case]), ("version", b"3\n"), ("byteorder", b"little")):
            file.writestr(f"ckpt/{name}", content)
    for read in (lambda: read_characters(tmp_path / "meta.pkl"), lambda: read_nanogpt(tmp_path, meta=None)):
        with pytest.raises(UserError, match="not (only weights|the vocabulary)") as raised:
            tracemalloc.start()
            try:
                read()
            finally:
                _, most = tracemalloc.get_traced_memory()
                tracemalloc.stop()
        assert most < 2**26
        assert str(raised.value).isprintable() and not recwarn.list and capfd.readouterr() == ("", "")


def test_a_small_file_cannot_name_the_same_numbers_for_a_large_model(tmp_path):
    numbers, shape = torch.zeros(256, 64), {**SHAPE, "n_layer": 500, "n_embd": 64, "vocab_size": len(CHARACTERS)}
    model = {"transformer.wte.weight": numbers[: len(CHARACTERS)], "transformer.wpe.weight": numbers[:24]}
    for i in range(500):
        model[f"transformer.h.{i}.mlp.c_fc.weight"] = numbers
    torch.manual_seed(0)
    folder = write_files(tmp_path / "out", Model(3, **SHAPE), None, CHARACTERS, step=0, model=model, model_args=shape)
    with pytest.raises(UserError, match="bytes are too few for 24,"):
        read_nanogpt(folder, meta=None)


def test_a_flipped_bit_is_found_or_changes_nothing(trained):
    """Every record has a checksum; a bit in the padding between them has no meaning."""
    _, _, folder = trained
    expected, data = read_nanogpt(folder, meta=None), (folder / "ckpt.pt").read_bytes()
    refused = 0
    for place in range(0, len(data), 797):
        (folder / "ckpt.pt").write_bytes(data[:place] + bytes([data[place] ^ 1 << place % 8]) + data[place + 1 :])
        try:
            found = read_nanogpt(folder, meta=None)
        except UserError:
            refused += 1
            continue
        assert all(torch.equal(tensor, expected.weights[name]) for name, tensor in found.weights.items())
        assert all(torch.equal(tensor, expected.moments[name]) for name, tensor in found.moments.items())
        assert (found.settings, found.step, found.shape) == (expected.settings, expected.step, expected.shape)
    assert refused > len(data) // 797 // 2


def test_records_that_share_their_bytes_or_are_packed_are_refused(folder):
    """Otherwise reading each of 100,000 names would read the whole file again."""
    data = (folder / "ckpt.pt").read_bytes()
    with zipfile.ZipFile(folder / "ckpt.pt") as file:
        records, start = file.infolist(), file.start_dir
    largest = max(records, key=lambda record: record.file_size)
    with zipfile.ZipFile(folder / "ckpt.pt", "a") as file:
        for number in range(len(data) // largest.file_size + 1):
            copy = zipfile.ZipInfo(f"{largest.filename}{number}")
            copy.header_offset, copy.file_size, copy.CRC = largest.header_offset, largest.file_size, largest.CRC
            copy.compress_size = largest.compress_size
            file.filelist.append(copy)
        file._didModify, file.start_dir = True, start
    with pytest.raises(UserError, match="packed otherwise than torch.save"):
        read_nanogpt(folder, meta=None)
    with zipfile.ZipFile(folder / "ckpt.pt", "w", zipfile.ZIP_DEFLATED) as archive:  # kilobytes can hold gigabytes of zeros
        archive.writestr("archive/data.pkl", b"\0" * 10**6)
    with pytest.raises(UserError, match="packed otherwise than torch.save"):
        read_nanogpt(folder, meta=None)


def test_without_its_vocabulary_the_message_says_where_it_is(folder, tmp_path):
    (folder / "meta.pkl").rename(tmp_path / "elsewhere.pkl")
    with pytest.raises(UserError, match="--meta FILE"):
        read_nanogpt(folder, meta=None)
    assert read_nanogpt(folder, meta=tmp_path / "elsewhere.pkl").tokenizer.characters == CHARACTERS
    assert read_characters(tmp_path / "elsewhere.pkl")["a"] == 2
