"""`python -m chargpt bench`: its options, and mistakes in one line. The tables are tested in test_tables.py."""

import os
import signal

import pytest

from chargpt.commands import bench
from chargpt.commands import bench_tables as tables
from chargpt.terminal import UserError


def test_the_tables_are_printed(monkeypatch, capsys):
    monkeypatch.setattr(tables, "tables", lambda device, sizes: iter([f"### {device}", *sizes]))
    assert bench.main(["--device", "cpu"]) == 0
    assert capsys.readouterr().out.splitlines() == ["### cpu", *tables.SIZES]


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
from chargpt.commands import bench_tables as tables
tables.tables = lambda *_: os.kill(os.getpid(), signal.SIGINT)
bench.main([])
"""
    done = programs.run(code=code)
    assert done.returncode == 128 + signal.SIGINT and done.stderr == b"stopped\n" and not done.stdout
