"""A training that ends writes a report, which never makes it fail; a signal meanwhile ends the program."""

import os
import signal
from pathlib import Path

import pytest

from chargpt.pages.report_page import write_final_report

ROOT = Path(__file__).resolve().parents[2]


def test_the_report_is_in_the_run(run, corpus):
    label, said = write_final_report(run, corpus, device="cpu", if_stopped="stopped")
    assert label == "report" and said.endswith("report.html")
    assert "What it copies" in (run / "report.html").read_text(encoding="utf-8")


def test_a_failure_is_one_warning(run, corpus):
    (run / "report.html").mkdir()
    label, said = write_final_report(run, corpus, device="cpu", if_stopped="stopped")
    assert label == "warning" and "report.html: not written" in said and "\n" not in said
    assert not list(run.glob(".*tmp*"))
    label, said = write_final_report(run / "nothing", corpus, device="cpu", if_stopped="stopped")
    assert label == "warning" and "the run is complete without it" in said


@pytest.mark.skipif(os.name == "nt", reason="sends a signal")
def test_a_signal_ends_it_at_once(programs, run):
    code = f"""
import os, signal
from pathlib import Path
from chargpt.pages import report_page
from chargpt.interrupt import Interrupt
report_page.load_model = lambda *_, **__: os.kill(os.getpid(), signal.SIGTERM)
with Interrupt():
    report_page.write_final_report(Path({str(run)!r}), None, device="cpu", if_stopped="stopped")
print("went on")
"""
    done = programs.run(code=code)
    assert b"stopped" in done.stdout + done.stderr
    assert done.returncode == 128 + signal.SIGTERM and b"went on" not in done.stdout and b"Traceback" not in done.stderr
