"""`python -m chargpt compress` and what it shares with decompress."""

import pytest
from helpers import publish_run

from chargpt.__main__ import main
from chargpt.commands.compress import describe_speed, free_target
from chargpt.kernels.compiler import Unavailable
from chargpt.terminal import UserError


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return str(publish_run(tmp_path_factory.mktemp("runs") / "poems"))


@pytest.mark.parametrize("content", [b"", b"abc def\n" * 9, b"\xff\0abc"], ids=["empty", "text", "bytes"])
def test_a_file_comes_back(run, tmp_path, capsys, content):
    file = tmp_path / "a.txt"
    file.write_bytes(content)
    assert main(["compress", run, str(file)]) == 0
    assert "read back" in capsys.readouterr().err
    file.unlink()
    assert main(["decompress", run, f"{file}.cgpt"]) == 0
    assert file.read_bytes() == content


def test_mistakes_are_one_line_and_nothing_is_written(run, tmp_path):
    (tmp_path / "a.txt").write_bytes(b"abc")
    with pytest.raises(UserError, match="--stride: 17 given; use at most the context of the model, 16"):
        main(["compress", run, str(tmp_path / "a.txt"), "--stride", "17"])
    with pytest.raises(OSError):
        main(["compress", run, str(tmp_path / "missing.txt")])
    with pytest.raises(UserError, match="exists; remove it"):
        main(["compress", run, str(tmp_path / "a.txt"), "--output", str(tmp_path / "a.txt")])
    with pytest.raises(UserError, match="its folder does not exist or cannot be written to"):
        main(["compress", run, str(tmp_path / "a.txt"), "--output", str(tmp_path / "none" / "a.cgpt")])
    assert [path.name for path in tmp_path.iterdir()] == ["a.txt"]


def test_without_a_compiler_it_says_at_the_start_how_slow_it_is(run, tmp_path, monkeypatch, capsys):
    def unavailable():
        raise Unavailable("no C compiler found; to install one: sudo apt install gcc")

    monkeypatch.setattr("chargpt.kernels.exact.load_kernel", unavailable)
    (tmp_path / "a.txt").write_bytes(b"abc def")
    assert main(["compress", run, str(tmp_path / "a.txt")]) == 0
    first = capsys.readouterr().err.splitlines()[0]
    assert first.startswith("warning: not compiled: no C compiler found; to install one: sudo apt install gcc; about ")
    assert "bytes a second; 7 bytes take about " in first


def test_a_link_is_not_replaced(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    with pytest.raises(UserError, match="exists"):
        free_target(tmp_path / "link")
    assert free_target(tmp_path / "new") == tmp_path / "new"


def test_a_clock_that_stood_still_is_no_error():
    assert describe_speed(3_000_000, 1.5) == "1.5 s, 2,000,000 bytes a second"
    assert describe_speed(5, 0.0) == "0.0 s, 0 bytes a second"
