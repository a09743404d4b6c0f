"""How several processes begin: chunks and processes fit, texts agree, and a restarted process finds its own run."""

import dataclasses
import json
import socket
from pathlib import Path

import pytest
from helpers import saved_state

import train
from chargpt.config import Config, RuntimeConfig, TrainConfig, apply_overrides
from chargpt.parallel.group import Group
from chargpt.planning.cli import parse_options
from chargpt.project import project_root
from chargpt.session.processes import Decisions, _words_of, check_processes, compare, compare_options, data_of_machine
from chargpt.session.resumed import options_of_restart
from chargpt.terminal import UserError
from chargpt.training.runtime import choose_runtime

CPU = Config(runtime=RuntimeConfig(device="cpu", precision="float32", threads=1))


class Others(Group):
    """A group in which the others have said something already."""

    def __init__(self, size: int, said: list[list]) -> None:
        self.size, self.said = size, said

    def meet(self, name: str, text: str) -> list[str]:
        return [text, *map(json.dumps, self.said)]


@pytest.mark.parametrize(("chunks", "size", "fits"), [(8, 1, True), (8, 8, True), (8, 2, True), (1, 2, False), (4, 8, False)])
def test_processes_share_the_chunks_evenly(chunks, size, fits):
    config = dataclasses.replace(CPU, train=TrainConfig(chunks=chunks))
    if fits:
        check_processes(config, Others(size, []))
    else:
        with pytest.raises(UserError, match=f"use {chunks}, or a smaller power of two"):
            check_processes(config, Others(size, []))


def test_another_text_on_another_machine_is_an_error_and_another_environment_a_warning():
    here = choose_runtime(CPU).environment() | {"teachers": "0123456789ab"}
    assert compare(Others(3, [["", here], ["a" * 64, here]]), "a" * 64, here) == []
    with pytest.raises(UserError, match="rank 2 has another text"):
        compare(Others(3, [["", here], ["b" * 64, here]]), "a" * 64, here)
    (warning,) = compare(Others(2, [["a" * 64, {**here, "threads": 7}]]), "a" * 64, here)
    assert warning.label == "warning" and "rank 1 differs from rank 0 (threads 1 -> 7)" in warning.text
    (warning,) = compare(Others(2, [["a" * 64, {**here, "teachers": "ba9876543210"}]]), "a" * 64, here)
    assert "(teachers 0123456789ab -> ba9876543210)" in warning.text


def test_on_another_machine_paths_may_differ_and_nothing_else():
    """Each of the others publishes its machine, its options, and its options without paths."""

    def compare_with(host: str, *words: str) -> None:
        other = parse_options(words)
        published = [host, _words_of(other, paths=True), _words_of(other, paths=False)]
        options = parse_options(["a.txt", "--run", "a", "train.seed=1", "data.cache=a"])
        compare_options(options, Others(2, [published]))

    compare_with(socket.gethostname(), "a.txt", "--run", "a", "train.seed=1", "data.cache=a")
    compare_with("elsewhere", "/b.txt", "--run", "/b", "train.seed=1", "data.cache=/b")
    with pytest.raises(UserError, match="TEXT: a.txt on rank 0 and b.txt on rank 1; give every process the same options"):
        compare_with(socket.gethostname(), "b.txt", "--run", "a", "train.seed=1", "data.cache=a")
    with pytest.raises(UserError, match="settings: train.seed=1 on rank 0 and train.seed=2 on rank 1"):
        compare_with("elsewhere", "/b.txt", "train.seed=2", "data.cache=/b")


def test_another_machine_reads_its_text_at_its_own_paths(text, tmp_path):
    """All other settings are those of the first process."""
    first = apply_overrides(Config(), ["data.lowercase=true", "data.val_text=/first/val.txt", "data.cache=/first"])
    first_decided = Decisions(saved_state(0, config=first), saved=None, worth_compiling=False, seconds=None)
    own = parse_options([str(text), "data.lowercase=false", f"data.val_text={tmp_path}/val.txt"])
    data = data_of_machine(first_decided, own)
    assert (data.lowercase, data.val_text, data.cache) == (True, f"{tmp_path}/val.txt", str(Path("/first").resolve()))


def test_a_restart_resumes_its_run_once_that_has_a_checkpoint(text, tmp_path):
    words = [str(text), "--config", "tiny", "--run", f"{tmp_path}/run", f"data.cache={tmp_path}/cache", "train.max_steps=2"]
    options = parse_options([*words, "--minutes", "5"])
    assert options_of_restart(options, root=project_root()) == options
    assert train.main(words) == 0
    again = options_of_restart(options, root=project_root())
    assert again.resume and again.run == f"{tmp_path}/run" and again.texts == [] and again.minutes is None
    assert again.settings == [f"data.cache={tmp_path}/cache"]  # the others are in the checkpoint
    resumed = ["--resume", "--run", f"{tmp_path}/run", f"data.cache={tmp_path}/cache"]
    again = options_of_restart(parse_options([*resumed, "--minutes", "5", "train.max_steps=9"]), root=project_root())
    assert again == parse_options(resumed), "the checkpoint says what is left of the minutes, and holds the settings"
