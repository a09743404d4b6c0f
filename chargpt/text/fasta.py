"""FASTA: sequences, each after a header. In a list of items a sequence is an item; else a file is read as it is."""

import re
from collections.abc import Iterator

from chargpt.config import DataConfig
from chargpt.errors import Message, Option
from chargpt.text.kind import Kind, Reads, Record, Structure, Text, blocks_in
from chargpt.text.source import Source

HEADER = re.compile(">(.*)")
SPECIES = re.compile(r"\[([^\[\]]+)\]\s*$|\bOS=(.+?)(?= [A-Z]{2}=|$)")  # as NCBI and as UniProt writes it
SEQUENCE, ORGANISM, LINE = "sequence", "organism", "header line"


def _sequences(text: Text) -> Iterator[Record]:
    """The words of a header are fields: `header` is the first one, `header[1]` the second, `header[-1]` the last."""
    for line, header, lines in blocks_in(text, HEADER):
        words, species = header[1].split(), SPECIES.search(header[1])
        fields = {"header": (words or [""])[0], ORGANISM: next(filter(None, species.groups()), "") if species else ""}
        for number, word in enumerate(words):
            fields |= {f"header[{number}]": word, f"header[{number - len(words)}]": word}
        yield Record(line, {**fields, LINE: header[1], SEQUENCE: "".join("".join(lines).split())})


def _advice(source: Source, structure: Structure, config: DataConfig) -> Message:
    rename = "" if source.suffix in FASTA.suffixes else "give it a name that ends in .fasta, and "
    return Message(f", with its headers; for its sequences alone, one item each, {rename}add ", Option("data.items", "line"))


FASTA = Kind(
    name="FASTA",
    suffixes=(".fa", ".fasta", ".fna", ".faa", ".ffn"),
    begins=r">[^\n]*\n[A-Za-z*-]{10,}\s*\n([A-Za-z*-]+\s*\n|>)",
    records=_sequences,
    reads=Reads.ITEMS,
    fields=("header", "header[1]", ORGANISM, SEQUENCE),
    field=SEQUENCE,
    pattern_field=LINE,
    advice=_advice,
)
