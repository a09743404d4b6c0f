"""A sealed file comes back equal, and any change to it is noticed."""

import json
import os
from hashlib import sha256

import pytest

from chargpt.runs.sealed_json import JSON_LIMIT, CheckpointError, read_bounded, seal, unseal

DOCUMENT = {"a": [1, 2.5, None, "é中"], "b": {}}


def test_a_document_comes_back(tmp_path):
    path = tmp_path / "state.json"
    path.write_bytes(seal(DOCUMENT, path))
    assert unseal(path) == DOCUMENT
    assert json.loads(path.read_text())["sha256"]  # plain JSON for every other tool


def test_numbers_that_are_not_finite_are_neither_written_nor_read(tmp_path):
    with pytest.raises(ValueError):
        seal({"loss": float("nan")}, tmp_path / "x")
    path = tmp_path / "state.json"
    sealed = seal({"loss": 123456}, path)
    body = sealed.split(b"\n", 1)[1].replace(b"123456", b"1e9999")
    path.write_bytes(f'{{"sha256": "{sha256(body).hexdigest()}",\n'.encode() + body)
    with pytest.raises(CheckpointError, match="1e9999"):
        unseal(path)


def test_reading_is_bounded_and_does_not_wait(tmp_path):
    with pytest.raises(CheckpointError, match="more than"):
        seal({"x": "a" * JSON_LIMIT}, tmp_path / "x")
    (tmp_path / "large").write_bytes(b"x" * 100)
    assert read_bounded(tmp_path / "large", limit=100) == b"x" * 100
    with pytest.raises(CheckpointError, match="100 bytes"):
        read_bounded(tmp_path / "large", limit=99)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(CheckpointError, match="not a regular file"):
        read_bounded(tmp_path / "pipe", limit=99)
