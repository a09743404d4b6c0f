"""`python -m chargpt embeddings`: the characters as the model sees them, for TensorBoard's projector and as a list."""

from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from chargpt.commands.frame import add_run_options, corpus_of_run, load_run, print_json, run_verb, verb_parser
from chargpt.files import publish_file
from chargpt.terminal import UserError, log, one_line, shown, whole_number

CONFIG = "projector_config.pbtxt"  # TensorBoard looks for this name
EMBEDDING = """embeddings {{
  tensor_name: "{name}"
  tensor_path: "projector-{name}.tsv"
  metadata_path: "projector-{name}-labels.tsv"
}}
"""


def main(argv: Sequence[str]) -> int:
    """Write the projector's files, and print which characters are alike. Returns the exit code. Raises UserError."""
    parser = verb_parser(
        "embeddings",
        "RUN [option ...]",
        "Write the embeddings of the characters for TensorBoard's projector, with the characters as labels, and "
        "list the characters that the model treats alike: those whose embeddings point in similar directions.",
    )
    add_run_options(parser)
    add = parser.add_argument
    add("--out", type=Path, metavar="FOLDER", help="where to write the files (default: the folder of the run)")
    add("--characters", type=whole_number(1), default=40, metavar="N", help="list the N most frequent characters (default: 40)")
    add("--nearest", type=whole_number(1), default=5, metavar="N", help="list N neighbours of each (default: 5)")
    add("--json", action="store_true", help="print the list as JSON")
    return run_verb(parser.parse_intermixed_args, argv, write_embeddings)


def write_embeddings(options: Namespace) -> None:
    """Write the files, and print the list."""
    from chargpt.analysis.characters import characters_of

    loaded = load_run(options.run, device=options.device)
    vectors = loaded.model.token_embedding.weight.detach().float().cpu().numpy()
    characters, counts = characters_of(range(len(vectors)), loaded.tokenizer), counts_of(loaded)
    folder = options.out or loaded.path.parent
    files = character_files(vectors, characters, counts)
    if loaded.model.config.positions == "learned":
        files |= position_files(loaded.model.position_embedding.weight.detach().float().cpu().numpy())
    write_projector(folder, files)
    log(f"written {CONFIG} and {len(files)} tables in {shown(folder)}")
    log(f"see them: python -m tensorboard.main --logdir {shown(folder)}   (choose Projector at the top)")
    listed = np.argsort(-counts, kind="stable") if counts is not None else np.arange(len(vectors))
    rows = neighbours(vectors, characters, listed[: options.characters], nearest=options.nearest)
    if options.json:
        print_json(rows)
    else:
        print(*map(line_of, rows), sep="\n")


def counts_of(loaded: Any) -> np.ndarray | None:
    """How often each character occurs in the run's text, (vocab_size,); None if the text is in no cache."""
    try:
        return np.asarray(corpus_of_run(loaded).counts)
    except UserError:
        return None


def character_files(vectors: np.ndarray, characters: Sequence[str], counts: np.ndarray | None) -> dict[str, str]:
    """The projector's tables for the embeddings (V, C) of `characters`: names and contents."""
    from chargpt.analysis.characters import CLASSES, FIRST, classes_of, shown_character

    labels = ["\t".join(["character", "id", "class", *(["count"] if counts is not None else [])])]
    for token_id, character in enumerate(characters):
        kind = CLASSES[int(classes_of([character])[0])].replace(CLASSES[FIRST], "letter")
        fields = [shown_character(character), str(token_id), kind, *([str(counts[token_id])] if counts is not None else [])]
        labels.append("\t".join(fields))
    return _files("characters", vectors, labels)


def position_files(vectors: np.ndarray) -> dict[str, str]:
    """The projector's tables for the embeddings (T, C) of the positions."""
    return _files("positions", vectors, [str(position) for position in range(1, len(vectors) + 1)])


def _files(name: str, vectors: np.ndarray, labels: Sequence[str]) -> dict[str, str]:
    rows = ("\t".join(f"{value:.6g}" for value in row) for row in vectors.tolist())
    return {f"projector-{name}.tsv": _lines(rows), f"projector-{name}-labels.tsv": _lines(labels)}


def _lines(rows: Any) -> str:
    return "".join(f"{row}\n" for row in rows)


def write_projector(folder: Path, files: dict[str, str]) -> None:
    """Write `files` into `folder`, and the projector's configuration that names them. Raises OSError."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        publish_file(folder / name, content.encode("utf-8", "backslashreplace"))
    names = [name for name in ("characters", "positions") if f"projector-{name}.tsv" in files]
    publish_file(folder / CONFIG, "".join(EMBEDDING.format(name=name) for name in names).encode())


def neighbours(vectors: np.ndarray, characters: Sequence[str], listed: np.ndarray, *, nearest: int) -> list[dict[str, Any]]:
    """For each of the ids `listed`, the characters with the most similar embeddings, by the cosine of their angle."""
    from chargpt.analysis.characters import shown_character

    directions = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
    rows = []
    for token_id in listed.tolist():
        cosines = directions @ directions[token_id]
        cosines[token_id] = -np.inf
        best = np.argsort(-cosines, kind="stable")[: min(nearest, len(vectors) - 1)]
        alike = [{"character": shown_character(characters[i]), "cosine": round(float(cosines[i]), 3)} for i in best.tolist()]
        rows.append({"character": shown_character(characters[token_id]), "nearest": alike})
    return rows


def line_of(row: dict[str, Any]) -> str:
    """A character and its neighbours as a line for a terminal."""
    alike = "   ".join(f"{one_line(other['character'])} {other['cosine']:.2f}" for other in row["nearest"])
    return f"{one_line(row['character']):<8}{alike}"
