"""All files below a folder, in a stable order."""

import os
from collections import Counter

from chargpt.text.walk import BROKEN, HIDDEN, walk


def test_files_come_in_order_without_hidden_ones_and_linked_folders(tmp_path):
    for name in ("b.txt", "a/z.txt", "a/.git/c.txt", ".hidden", "tests/d.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "loop").symlink_to(tmp_path)
    (tmp_path / "link.txt").symlink_to(tmp_path / "b.txt")
    (tmp_path / "self.txt").symlink_to(tmp_path / "self.txt")
    (tmp_path / "gone.txt").symlink_to(tmp_path / "nowhere")
    os.mkfifo(tmp_path / "pipe.txt")
    skipped = Counter()
    found = walk(tmp_path, skipped=skipped, skipped_folders=frozenset({"tests"}))
    assert [str(path.relative_to(tmp_path)) for path in found] == ["a/z.txt", "b.txt", "link.txt"]
    assert skipped == {HIDDEN: 2, BROKEN: 2}
