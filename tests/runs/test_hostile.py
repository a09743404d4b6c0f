"""Run folders made by somebody who means harm: no code of theirs runs, no memory fills, no reader hangs.

Every checksum in them is right wherever it can be: whoever writes a file can compute its sum.
"""

import hashlib
import io
import json
import os
import pickle
import random
import re
import signal
import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from helpers import random_weights, saved_state

import sample
import train
from chargpt.errors import UserError
from chargpt.files import remove_left_behind
from chargpt.formatting import one_line, shown
from chargpt.model import GPTConfig
from chargpt.runs import checkpoint
from chargpt.runs.checkpoint_schema import FORMAT, CheckpointError
from chargpt.runs.run import OWN
from chargpt.text.tokenizer import Tokenizer

MODEL = GPTConfig(n_layer=1, n_head=2, n_embd=16, block_size=8, bias=True)
MANY = 10**12
ONE_GIB = 1 << 30
Spoil = Callable[[Path], object]


def publish(run: Path) -> Path:
    """An honest checkpoint, for the cases to spoil."""
    tokenizer = Tokenizer("\nabc")
    weights = random_weights(0, shape=MODEL, tokenizer=tokenizer)
    training = {f"{name}/exp_avg": tensor.clone() for name, tensor in weights.items()}
    state = saved_state(100, shape=MODEL, tokenizer=tokenizer, val_loss=None)
    return checkpoint.publish(run, weights=weights, training=training, state=state)


@contextmanager
def bounded(seconds: int = 150) -> Iterator[None]:  # on a slow and busy machine; hanging takes for ever
    """Fails when the block takes longer, or makes the process more than 1 GiB larger (as far as Linux tells)."""

    def give_up(*_: object) -> None:
        raise AssertionError(f"still at it after {seconds} s")

    before = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(seconds)
    status = Path("/proc/self/status")
    measured = status.exists()
    if measured:
        Path("/proc/self/clear_refs").write_text("5")  # sets the high-water mark down to what is used now
        start = int(re.search(r"VmHWM:\s+(\d+)", status.read_text())[1]) * 1024
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
    if measured:
        assert int(re.search(r"VmHWM:\s+(\d+)", status.read_text())[1]) * 1024 - start < ONE_GIB


# --- the forger's tools ---------------------------------------------------------------------------------------------------


def seal(path: Path, body: bytes) -> None:
    """A JSON file with a right checksum; `body` is all but the opening brace."""
    path.write_bytes(f'{{"sha256": "{hashlib.sha256(body).hexdigest()}",\n'.encode() + body)


def reseal(path: Path, change: Callable[[dict], object]) -> None:
    """Change a state.json and make its checksum right again."""
    document = json.loads((path / "state.json").read_bytes())
    document.pop("sha256")
    change(document)
    seal(path / "state.json", json.dumps(document)[1:].encode())


def rewrite(path: Path, old: bytes, new: bytes) -> None:
    """Change the text of a state.json and make its checksum right again."""
    body = (path / "state.json").read_bytes().split(b"\n", 1)[1]
    assert old in body
    seal(path / "state.json", body.replace(old, new))


def put(path: Path, name: str, data: bytes) -> None:
    """Replace a tensor file and make its checksum right again."""
    (path / name).write_bytes(data)
    fingerprint = {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    reseal(path, lambda document: document["files"].update({name: fingerprint}))


def sparse(path: Path, size: int) -> None:
    """`size` bytes that take no room on the disk."""
    with open(path, "wb") as file:
        file.truncate(size)
    if path.suffix == ".safetensors":
        reseal(path.parent, lambda document: document["files"][path.name].update(bytes=size))


def pack(header: Any, payload: bytes = b"", *, length: int | None = None) -> bytes:
    """A safetensors file with whatever header."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + payload


def tensor(shape: list[int], start: int, end: int, dtype: str = "F32") -> dict:
    return {"dtype": dtype, "shape": shape, "data_offsets": [start, end]}


class Payload:
    """What a pickle of this runs when it is opened carelessly: a file beside the run shows it."""

    def __init__(self, path: Path) -> None:
        self.command = f"touch {path.parent.parent}/canary"

    def __reduce__(self) -> tuple:
        return os.system, (self.command,)


def saved_by_torch(value: object, **options: Any) -> bytes:
    buffer = io.BytesIO()
    torch.save(value, buffer, **options)
    return buffer.getvalue()


# --- cases: each spoils the honest checkpoint `path` ----------------------------------------------------------------------

WEIGHTS, TRAINING, STATE = "model.safetensors", "training.safetensors", "state.json"
FEWER = Tokenizer("ab").to_json()


def in_place(name: str, make: Callable[[Path], object]) -> Spoil:
    """Something else in place of a file."""
    return lambda path: (path / name).unlink() or make(path / name)


def sealed(body: bytes) -> Spoil:
    return lambda path: seal(path / STATE, body)


def loss(literal: bytes) -> Spoil:
    return lambda path: rewrite(path, b'"best_loss": null', b'"best_loss": ' + literal)


def document(change: Callable[[dict], object]) -> Spoil:
    """A change of the whole state.json."""
    return lambda path: reseal(path, change)


def shape(**changes: object) -> Spoil:
    return document(lambda d: d["state"]["config"]["model"].update(changes))


def content(name: str, data: bytes) -> Spoil:
    return lambda path: put(path, name, data)


def tensors(change: Callable[[dict], object], name: str = WEIGHTS) -> Spoil:
    """A change of the tensors in a file."""

    def spoil(path: Path) -> None:
        found = safetensors.torch.load((path / name).read_bytes())
        change(found)
        put(path, name, safetensors.torch.save(found))

    return spoil


SPECIAL_FILES: dict[str, Spoil] = {
    f"{name}: {kind}": in_place(name, make)
    for name in (WEIGHTS, TRAINING, STATE)
    for kind, make in {
        "link to zeros without end": lambda file: file.symlink_to("/dev/zero"),
        "link to a file elsewhere": lambda file: file.symlink_to("/etc/passwd"),
        "pipe nobody writes to": os.mkfifo,
        "socket": lambda file: socket.socket(socket.AF_UNIX).bind(os.path.relpath(file)),
        "folder": os.mkdir,
        "missing": lambda file: None,
        "a terabyte of nothing": lambda file: sparse(file, 1 << 40),
    }.items()
}
HEADERS: dict[str, Spoil] = {
    f"{name}: {kind}": content(name, data)
    for name in (WEIGHTS, TRAINING)
    for kind, data in {
        "a header of 2^64 - 1 bytes": pack({}, length=(1 << 64) - 1),
        "a header that is no JSON": pack(b"{'a'"),
        "a deep header": pack(b'{"a":' * 500_000),
        "a trillion elements": pack({"a": tensor([MANY], 0, 4 * MANY)}, bytes(16)),
        "a trillion elements in four bytes": pack({"a": tensor([MANY], 0, 4)}, bytes(4)),
        "a product beyond 64 bits": pack({"a": tensor([1 << 40, 1 << 40], 0, 0)}),
        "an unknown type": pack({"a": tensor([1], 0, 4, "PYOBJ")}, bytes(4)),
        "a type without arithmetic": pack({"a": tensor([4], 0, 4, "F8_E8M0")}, bytes(4)),
    }.items()
}
OTHERS: dict[str, Spoil] = {
    "state.json: deep lists": sealed(b'"format": ' + b"[" * 1_000_000),
    "state.json: deep objects": sealed(b'"state": ' + b'{"a":' * 1_000_000),
    "state.json: more than it may be": sealed(b'"format": 1, "state": "' + b" " * (9 << 20) + b'"}'),
    "state.json: 3 MiB of empty lists": sealed(b'"format": 1, "state": [' + b"[]," * (1 << 20) + b"[]]}"),
    "state.json: not UTF-8": sealed(b'"format": "\xff\xfe"}'),
    "state.json: a NUL": sealed(b'"format": 1\0}'),
    "state.json: a loss of NaN": loss(b"NaN"),
    "state.json: a loss of 10^999": loss(b"1e999"),
    "state.json: a loss of a million digits": loss(b"9" * 1_000_000),
    "state.json: another format": document(lambda d: d.update(format=FORMAT + 1)),
    "state.json: no files": document(lambda d: d.pop("files")),
    "state.json: no state": document(lambda d: d.pop("state")),
    "state.json: a model as large as the world": shape(n_layer=MANY, n_embd=MANY),
    "state.json: a model without end": shape(block_size=10**4000),
    "state.json: a width as text": shape(n_embd="__import__('os')"),
    "model.safetensors: of a smaller model": shape(n_layer=2),
    "model.safetensors: of more characters": document(lambda d: d["state"].update(tokenizer=FEWER)),
    "model.safetensors: its sum is a number": document(lambda d: d["files"].update({WEIGHTS: 7})),
    "model.safetensors: one missing": tensors(lambda t: t.pop("norm.weight")),
    "model.safetensors: one more": tensors(lambda t: t.update({"\x1b[2J\nerror: forged": torch.zeros(1)})),
    "model.safetensors: another shape": tensors(lambda t: t.update({"norm.weight": torch.zeros(1, 16)})),
    "model.safetensors: another type": tensors(lambda t: t.update({"norm.weight": torch.zeros(16).double()})),
    "model.safetensors: not a number": tensors(lambda t: t["norm.weight"][3:4].fill_(float("nan"))),
    "training.safetensors: not a number": tensors(lambda t: t["norm.weight/exp_avg"].fill_(float("nan")), TRAINING),
    "training.safetensors: 10 MB": content(TRAINING, safetensors.torch.save({"a": torch.zeros(2_500_000)})),
    "model.safetensors: ten thousand names": content(WEIGHTS, pack({f"{i:0600}": tensor([0], 0, 0) for i in range(10_000)})),
    "model.safetensors: nothing, 2^62 times": content(WEIGHTS, pack({"a": tensor([0, 1 << 62], 0, 0)})),
    "model.safetensors: a pickle": lambda path: put(path, WEIGHTS, pickle.dumps(Payload(path))),
    "model.safetensors: saved by torch": lambda path: put(path, WEIGHTS, saved_by_torch({"a": Payload(path)})),
    "model.safetensors: saved by an old torch": lambda path: put(
        path, WEIGHTS, saved_by_torch(Payload(path), _use_new_zipfile_serialization=False)
    ),
    "model.safetensors: the right one, but a link": lambda path: (
        (path / WEIGHTS).rename(path / "own") and (path / WEIGHTS).symlink_to("own")
    ),
}
CASES = {**SPECIAL_FILES, **HEADERS, **OTHERS}


@pytest.fixture
def spoiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: str) -> Iterator[Path]:
    """A checkpoint spoiled in one way, the only one of its run; afterwards, no code of it must have run."""
    monkeypatch.setenv("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", "1")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run").mkdir()
    path = publish(tmp_path / "run")
    CASES[case](path)
    yield path
    assert not (tmp_path / "canary").exists()


@pytest.mark.parametrize("case", CASES)
def test_a_hostile_checkpoint_is_refused_in_one_line(spoiled: Path, case: str) -> None:
    with bounded(), pytest.raises(CheckpointError) as caught:
        checkpoint.load(spoiled)
    message = one_line(caught.value)
    assert message.startswith(f"{shown(spoiled)}/{case.split(':')[0]}: ") and len(message) < 600


SOME = [*SPECIAL_FILES][::6] + [*HEADERS][::8] + [*OTHERS][::8]
# Sampling never opens training.safetensors.
PROGRAMS = [("resume", case) for case in SOME] + [("sample", case) for case in SOME if not case.startswith("training")]


@pytest.mark.parametrize(("program", "case"), PROGRAMS)
def test_a_hostile_run_ends_a_program_in_one_line(spoiled: Path, program: str) -> None:
    with bounded(), pytest.raises(UserError) as caught:
        if program == "sample":
            sample.main([str(spoiled.parent), "--device", "cpu", "--length", "1"])
        else:
            train.main(["--resume", "--run", str(spoiled.parent), "--device", "cpu"])
    assert len(one_line(caught.value)) < 600


def test_the_honest_checkpoint_loads(tmp_path: Path) -> None:
    """Else the refusals above would prove nothing."""
    path = publish(tmp_path)
    reseal(path, lambda document: None)
    tensors(lambda found: None)(path)
    checkpoint.load(path)


NASTY = [None, True, -1, 2**63, 10**400, 1.5, 1e308, "", "a" * 10_000, "F64", "\ud800", [], [[]], {}, {"a": {}}, [0] * 1000]


def mutated(value: Any, chance: random.Random) -> Any:
    """A copy of a JSON value in which something is replaced, taken away or put under another name."""
    if not isinstance(value, (dict, list)) or not value or chance.random() < 0.2:
        return chance.choice(NASTY)
    copy = value.copy()
    key = chance.choice([*copy] if isinstance(copy, dict) else range(len(copy)))
    taken = mutated(copy.pop(key), chance)
    if isinstance(copy, list):
        copy[key:key] = [taken] * chance.choice([0, 1, 1, 2])
    elif chance.random() < 0.9:
        copy[chance.choice([key, key, key, "__class__", "\0"])] = taken
    return copy


def test_structure_spoiled_at_random(tmp_path: Path) -> None:
    path, chance, refused = publish(tmp_path), random.Random(0), 0
    honest = {name: (path / name).read_bytes() for name in (WEIGHTS, TRAINING, STATE)}
    with bounded():
        for _ in range(50):
            for name, data in honest.items():
                (path / name).write_bytes(data)
            name, at = chance.choice([*honest]), chance.randrange(64)
            data, end = honest[name], 8 + struct.unpack("<Q", honest[name][:8])[0]  # of the header
            if name == STATE:
                document = {key: value for key, value in json.loads(data).items() if key != "sha256"}
                seal(path / name, json.dumps(mutated(document, chance))[1:].encode())
            elif chance.random() < 0.5:
                put(path, name, data[:at] + chance.randbytes(4) + data[at + 4 :])
            else:
                put(path, name, pack(mutated(json.loads(data[8:end]), chance), data[end:]))
            try:
                found = checkpoint.load(path)
            except CheckpointError as error:
                refused += 1
                assert len(str(error)) < 1000
            else:
                assert {name: tuple(tensor.shape) for name, tensor in found.weights.items()} == found.state.weight_shapes()
                assert all(tensor.isfinite().all() for tensor in [*found.weights.values(), *found.training.values()])
    assert refused > 25


def test_step_folders_that_are_something_else(tmp_path: Path) -> None:
    honest = publish(tmp_path)
    (tmp_path / "step-00000200").symlink_to("step-00000200")
    (tmp_path / "step-00000300").write_bytes(b"{}")
    (tmp_path / "step-00000400").mkdir()
    os.mkfifo(tmp_path / "step-00000500")
    (tmp_path / "step-00000600").symlink_to("/dev")
    for name in ("step-1", "step-00000700.tmp", "step-0000000x", f"step-{'9' * 200}", f"step-{'١' * 8}", "step-00000800\n"):
        (tmp_path / name).mkdir()
    with bounded():
        found, lines = checkpoint.newest(tmp_path)
    assert found.path == honest and len(lines) == 5
    with bounded():
        remove_left_behind(tmp_path, OWN)
        assert checkpoint.prune(honest, 1, best_step=100) == []


def test_clearing_up_does_not_follow_links(tmp_path: Path) -> None:
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "file").write_bytes(b"mine")
    run = tmp_path / "run"
    run.mkdir()
    (run / ".step-00000001.tmp-999999997").symlink_to(tmp_path / "precious")
    (run / ".best.json.tmp-999999998").symlink_to(tmp_path / "precious" / "file")
    (run / ".step-00000002.tmp-999999999").mkdir()
    (run / ".step-00000002.tmp-999999999" / "link").symlink_to(tmp_path / "precious")
    (run / f".step-00000003.tmp-{os.getpid()}").symlink_to(tmp_path / "precious")
    remove_left_behind(run, OWN)
    assert os.listdir(run) == []
    assert (tmp_path / "precious" / "file").read_bytes() == b"mine"
