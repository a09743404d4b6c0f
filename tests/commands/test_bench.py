"""`python -m chargpt bench`: mistakes in one line, and a row for each measurement, with possible numbers."""

import functools
import os
import re
import signal

import pytest
import torch

from chargpt.analysis import speed
from chargpt.analysis.speed import Floor
from chargpt.commands import bench
from chargpt.model import GPTConfig
from chargpt.runs.blank_model import blank_model
from chargpt.terminal import UserError

SMALL = {"small": (2, 2, 64, 32, 4, 4)}
ROW = re.compile(r"\| (.+?) \| (.*) \|")


def test_the_tables_are_printed(monkeypatch, capsys):
    monkeypatch.setattr(bench, "tables", lambda device, sizes: iter([f"### {device}", *sizes]))
    assert bench.main(["--device", "cpu"]) == 0
    assert capsys.readouterr().out.splitlines() == ["### cpu", *bench.SIZES]


@pytest.mark.parametrize(
    "words, says",
    [
        (["--device", "tpu"], "--device: 'tpu' given; use auto, cpu, cuda, cuda:N or mps"),
        (["--device", "cuda:77"], "--device: cuda:77 given, but torch sees"),
        (["--devic=cpu"], "--devic=cpu: no such option; did you mean --device?"),
        (["poems"], "unrecognized arguments: poems"),
    ],
)
def test_a_mistake_is_one_line(words, says):
    with pytest.raises(UserError) as raised:
        bench.main(words)
    assert str(raised.value).startswith(says) and "\n" not in str(raised.value)


@pytest.mark.skipif(os.name == "nt", reason="sends a signal")
def test_ctrl_c_is_one_line(programs):
    code = """
import os, signal
from chargpt.commands import bench
bench.tables = lambda *_: os.kill(os.getpid(), signal.SIGINT)
bench.main([])
"""
    done = programs.run(code=code)
    assert done.returncode == 128 + signal.SIGINT and done.stderr == b"stopped\n" and not done.stdout


@pytest.fixture
def small_machine(monkeypatch):
    monkeypatch.setattr(speed, "CPU_SIDE", 64)
    for name in ("copy_speed", "read_speed"):
        monkeypatch.setattr(speed, name, functools.partial(getattr(speed, name), numbers=9999))


def test_every_measurement_has_a_row(small_machine, capsys):
    lines = "\n".join(bench.tables(torch.device("cpu"), SMALL, seconds=0.01)).splitlines()
    assert lines[0].startswith("### ") and "1 thread" in lines[0] and f"torch {torch.__version__}" in lines[0]
    rows = [match.groups() for match in map(ROW.fullmatch, lines) if match]
    names = [name for name, _ in rows]
    assert names == [
        "matrix products, float32", "matrix products, bfloat16", "copying, read plus written", "reading",
        "training", "small (2/2/64, 4 x 32)", "sampling", "small, context 32", "small, context 32",
    ]  # fmt: skip
    for _, cells in rows:
        numbers = [float(number.replace(",", "")) for number in re.findall(r"[\d,.]+", cells)]
        assert all(number > 0 for number in numbers)
    said = capsys.readouterr()
    assert said.out == "" and said.err.count("measuring ") == 6  # on standard error: the tables go to standard output


def test_a_share_is_the_least_time_of_the_measured_one(small_machine, monkeypatch):
    monkeypatch.setattr(speed, "training_seconds", lambda *_, **__: 0.5)
    monkeypatch.setattr(speed, "training_floor", lambda *_, **__: Floor(seconds=0.4, flop=1.0))
    monkeypatch.setattr(speed, "sampling_speed", lambda model, texts, **_: 100.0 * texts)
    monkeypatch.setattr(speed, "sampling_floor", lambda model, texts, **_: 0.0025 if texts == 1 else 0.005)
    lines = list(bench.tables(torch.device("cpu"), SMALL, seconds=0.01))
    assert "| small (2/2/64, 4 x 32) | 500.0 | 256 | 80 % |" in lines
    assert "| small, context 32 | 1 | 100 | 25 % |" in lines and "| small, context 32 | 32 | 3,200 | 50 % |" in lines


def test_what_takes_too_long_on_a_cpu_is_left_out_and_named(small_machine):
    lines = list(
        bench.tables(torch.device("cpu"), {**SMALL, "huge": (1000, 8, 4096, 2048, 64, 1)}, seconds=0.01, slow_step=5.0)
    )
    assert "huge" not in "".join(lines[:-1])
    assert re.fullmatch(r"\nNot measured: huge, because the products of a step would take \d+ seconds.", lines[-1])


@pytest.mark.parametrize("name", bench.SIZES)
def test_sizes_are_called_by_their_parameters(name):
    layers, heads, width, context, *_ = bench.SIZES[name]
    shape = GPTConfig(n_layer=layers, n_head=heads, n_embd=width, block_size=context)
    assert blank_model(shape, 65).parameter_count() / 1e6 == pytest.approx(float(name.removesuffix("M")), rel=0.02)
