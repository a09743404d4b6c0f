"""Labels from the text of an item, from the header of a sequence, and columns by number."""

import pytest

from chargpt.config import DataConfig
from chargpt.errors import UserError
from chargpt.text.formats import recognise
from chargpt.text.items import items_in
from chargpt.text.report import examine

TUNES = "".join(f"X:{n}\nM:{'6/8' if n % 2 else '3/4'}\nK: {'DG'[n % 2]} \n|a{n}|\n\n" for n in range(20))
GENES = "".join(f">g{n} made up{' Homo' * (n % 2)} [{'cat' if n % 2 else 'big dog'}]\nAC{'GT' * n}\n" for n in range(20))
UNIPROT = GENES.replace("[", "OS=").replace("]", " OX=9 PE=1")
SMILES = "".join(f"C{'N' * n}\tmol {n % 2}\n" for n in range(20))
# A file, what is an item, its label, and the labels that are found.
COLOURS = "".join(f"{n} {'red' if n % 2 else 'blue'}\n" for n in range(9))
LABELS = {
    "a line of the item": ("a.abc", TUNES, "paragraph", "(?m)^K:(.*)", {"D", "G"}),
    "each line has a beginning": ("a.abc", TUNES, "paragraph", "^M:(.*)", {"3/4", "6/8"}),
    "a part of a line": ("a.txt", COLOURS, "line", r"(red|blue)$", {"red", "blue"}),
    "a field": ("a.csv", "n,x\n" + "".join(f"{n},a{n % 2}b{n}\n" for n in range(9)), "x", r"^(a\d)", {"a0", "a1"}),
    "header": ("a.fasta", GENES, "line", "header", {f"g{n}" for n in range(20)}),
    "word of a header": ("a.fasta", GENES, "line", "header[1]", {"made"}),
    "its last word": ("a.fasta", GENES, "line", "header[-1]", {"[cat]", "dog]"}),
    "organism, NCBI": ("a.fasta", GENES, "line", "organism", {"cat", "big dog"}),
    "organism, UniProt": ("a.fasta", UNIPROT, "line", "organism", {"cat", "big dog"}),
    "pattern in a header": ("a.fasta", GENES, "line", r"made (\w+)", {"up"}),
    "numbers": ("a.smi", SMILES, "1", "2", {"mol 0", "mol 1"}),
    "numbers, spaces": ("a.smi", SMILES.replace("\t", " "), "1", "2", {"mol 0", "mol 1"}),
    "numbers, commas": ("a.csv", SMILES.replace("\t", ","), "1", "2", {"mol 0", "mol 1"}),
    "a column of that name": ("a.csv", "2,1\n" + SMILES.replace("\t", ","), "2", "1", {"mol 0", "mol 1"}),
}  # fmt: skip


@pytest.mark.parametrize("name", LABELS)
def test_a_label_comes_from_where_it_is(name, tmp_path, load):
    file, content, items, label, labels = LABELS[name]
    (tmp_path / file).write_text(content)
    corpus = load(tmp_path / file, items=items, label=label)
    assert corpus.items is not None and set(corpus.items.labels) == labels
    found = [item for ids in (corpus.train, corpus.val) for item in items_in(ids, corpus.tokenizer, has_labels=True)]
    assert (
        len(found)
        == corpus.items.items
        == content.count({"paragraph": "X:", "line": "\n"}.get(items, "\n")) // (2 if file == "a.fasta" else 1)
        - (items in ("x", "2"))
    )
    assert all("\t" not in text and text for _, text in found)


def test_the_first_item_is_no_header_with_numbers(tmp_path, load):
    for name, content in {"a.smi": "CO\nCN\nCC\n", "b.smi": "CO\tx\nCN\ty\nCC\tz\n", "c.smi": "CO x y\nCN\nCC z\n" * 9}.items():
        (tmp_path / name).write_text(content)
        corpus = load(tmp_path / name, items="1")
        assert recognise(".smi", content, field="1").delimiter == {"a.smi": "\t", "b.smi": "\t", "c.smi": " "}[name]
        assert {
            item.text for ids in (corpus.train, corpus.val) for item in items_in(ids, corpus.tokenizer, has_labels=False)
        } == {
            "CO",
            "CN",
            "CC",
        }


@pytest.mark.parametrize("label", ["^(a", "^K:.*(?=x)", "^(?:a|b)"])
def test_a_wrong_pattern_is_one_line(label):
    with pytest.raises(ValueError, match="regular expression with a group"):
        DataConfig(items="line", label=label)


def test_labels_that_occur_once_are_warned_of(tmp_path, load):
    (tmp_path / "a.fasta").write_text(GENES)
    for label, count in (("header", 1), ("organism", 0)):
        said = [str(notice) for notice in examine(load(tmp_path / "a.fasta", items="line", label=label))]
        assert sum("20 of 20 labels occur once" in line for line in said) == count


def test_a_label_that_fasta_has_not_is_named(tmp_path, load):
    (tmp_path / "a.fa").write_text(GENES)
    with pytest.raises(UserError, match=r"is FASTA; use file or folder, header .*organism"):
        load(tmp_path / "a.fa", items="line", label="species")
