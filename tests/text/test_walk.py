"""All files below a folder, in a stable order."""

from chargpt.text.walk import walk


def test_files_come_in_order_without_hidden_ones_and_linked_folders(tmp_path):
    for name in ("b.txt", "a/z.txt", "a/.git/c.txt", ".hidden", "tests/d.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "loop").symlink_to(tmp_path)
    (tmp_path / "link.txt").symlink_to(tmp_path / "b.txt")
    hidden = []
    found = walk(tmp_path, hidden=hidden, skipped_folders=frozenset({"tests"}))
    assert [str(path.relative_to(tmp_path)) for path in found] == ["a/z.txt", "b.txt", "link.txt"]
    assert sorted(path.name for path in hidden) == [".git", ".hidden"]
