"""`python -m chargpt decompress`: what is wrong with a file is one line, and nothing is written."""

import pytest
from helpers import publish_run

from chargpt.__main__ import main
from chargpt.terminal import UserError


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    return [str(publish_run(folder / name, steps=(step,))) for name, step in (("poems", 500), ("others", 1000))]


@pytest.fixture
def packed(runs, tmp_path):
    (tmp_path / "a.txt").write_bytes(b"abc def\n" * 5)
    main(["compress", runs[0], str(tmp_path / "a.txt")])
    (tmp_path / "a.txt").unlink()
    return tmp_path / "a.txt.cgpt"


def test_another_model_is_one_line(runs, packed, capsys):
    with pytest.raises(UserError, match="compressed with another model than that of .*others, of SHA-256 [0-9a-f]{16}..."):
        main(["decompress", runs[1], str(packed)])
    assert [path.name for path in packed.parent.iterdir()] == ["a.txt.cgpt"]


def test_a_damaged_file_is_one_line(runs, packed):
    data = bytearray(packed.read_bytes())
    data[60] ^= 1
    packed.write_bytes(data)
    with pytest.raises(UserError, match="damaged or cut off.*nothing was written"):
        main(["decompress", runs[0], str(packed)])
    assert [path.name for path in packed.parent.iterdir()] == ["a.txt.cgpt"]


def test_where_to_write_must_be_clear(runs, packed, tmp_path):
    other = packed.rename(tmp_path / "b")
    with pytest.raises(UserError, match="say where to write with --output"):
        main(["decompress", runs[0], str(other)])
    assert main(["decompress", runs[0], str(other), "--output", str(tmp_path / "c")]) == 0
    with pytest.raises(UserError, match="exists"):
        main(["decompress", runs[0], str(other), "--output", str(tmp_path / "c")])
