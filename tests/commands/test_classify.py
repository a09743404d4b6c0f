"""The table of confusions of `classify`."""

from collections import Counter
from types import SimpleNamespace

from chargpt.commands.classify import confusions


def test_a_long_label_is_cut_with_an_ellipsis():
    labels = ["elf", "a" * 12, "b" * 13]
    guesses = SimpleNamespace(labels=labels, confusion=Counter({(label, label): 1 for label in labels}), accuracy=1.0)
    head = confusions(guesses)[1].split()
    assert head == ["right", "elf", "a" * 12, "b" * 11 + "…"]
