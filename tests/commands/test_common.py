"""What verbs share: options first, then torch; a run, its text in the cache, and a part of a text."""

import subprocess
import sys
from pathlib import Path

import pytest

from chargpt.commands import losses, score
from chargpt.commands.common import load_run, part_of_text
from chargpt.commands.verbs import VERBS
from chargpt.errors import UserError
from chargpt.project import command

ROOT = Path(__file__).parents[2]


def test_help_needs_no_torch():
    code = """
import sys
from chargpt.__main__ import main
from chargpt.planning.ahead import check_command_line
for verb in sys.argv[1:]:
    try:
        check_command_line(["--help"]) if verb == "train" else main([verb, "--help"])
    except SystemExit:
        assert "torch" not in sys.modules, verb
"""
    done = subprocess.run([sys.executable, "-c", code, *VERBS], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert not done.stderr and all(f"usage: {command(verb)} " in done.stdout for verb in VERBS)


def test_a_part_of_a_text(run, corpus, tmp_path):
    loaded = load_run(str(run), device="cpu")
    ids, place = part_of_text(None, loaded, start=3, length=5)
    assert (
        ids.tolist() == corpus.val[3:8].tolist()
        and place == f"characters 4 to 8 of the {len(corpus.val):,} in the validation split"
    )
    (tmp_path / "a\x1b.txt").write_text("the~sea")
    ids, place = part_of_text(str(tmp_path / "a\x1b.txt"), loaded, start=0, length=50)
    assert corpus.tokenizer.decode(ids.tolist()) == "thesea" and "\x1b" not in place
    assert place.endswith("without 1 character that the model has never seen: ~")


def test_a_start_is_a_run_of_its_name_unless_there_is_one(run, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text.txt").write_text("The sea is calm.\nThe night is long.\n" * 3)
    assert score.main(["english", "text.txt"]) == 0 and score.main([str(run), "english", "text.txt"]) == 0
    assert "english" in capsys.readouterr().out
    with pytest.raises(UserError, match="^english: comes with the program, without its texts; give a TEXT"):
        losses.main(["english"])
    Path(tmp_path, "english").symlink_to(run)
    assert load_run("english", device="cpu").path.resolve().parent == run.resolve()
