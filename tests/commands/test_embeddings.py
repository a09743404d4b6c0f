"""TensorBoard's projector reads the tables, and neighbours are those with the smallest angle."""

import json

import numpy as np
from tensorboard.plugins.projector.projector_config_pb2 import ProjectorConfig

from chargpt.commands.embeddings import CONFIG, character_files, main, neighbours, write_projector


def read_config(folder) -> ProjectorConfig:
    from google.protobuf import text_format

    return text_format.Parse((folder / CONFIG).read_text(), ProjectorConfig())


def test_the_projector_finds_the_tables(run, capsys):
    assert main([str(run), "--characters", "4", "--nearest", "2"]) == 0
    config = read_config(run)
    assert [embedding.tensor_name for embedding in config.embeddings] == ["characters", "positions"]
    for embedding in config.embeddings:
        vectors = np.loadtxt(run / embedding.tensor_path)
        labels = (run / embedding.metadata_path).read_text(encoding="utf-8").splitlines()
        header = int("\t" in labels[0])  # TensorBoard takes the first line for names if it has several columns
        assert len(vectors) == len(labels) - header
    assert len(capsys.readouterr().out.splitlines()) == 4


def test_hostile_characters_are_labels_of_one_line(tmp_path):
    characters = ["\t", "\n", "\r", "\x1b", "\u202e", "\u2028", "<", "中"]
    write_projector(tmp_path, character_files(np.eye(8), characters, np.arange(8)))
    labels = (tmp_path / "projector-characters-labels.tsv").read_text(encoding="utf-8").split("\n")[1:-1]
    assert [label.split("\t")[0] for label in labels] == ["⇥", "↵", "\\r", "\\x1b", "\\u202e", "\\u2028", "<", "中"]
    assert all(label.count("\t") == 3 for label in labels)


def test_neighbours_have_the_smallest_angle():
    vectors = np.array([[1.0, 0], [2, 0.1], [0, 3], [-1, 0], [0, 0]])
    rows = neighbours(vectors, list("abcde"), np.array([0]), nearest=2)
    assert [other["character"] for other in rows[0]["nearest"]] == ["b", "c"] and rows[0]["nearest"][0]["cosine"] > 0.99
    assert len(neighbours(vectors, list("abcde"), np.array([4]), nearest=9)[0]["nearest"]) == 4


def test_another_folder_and_json(run, tmp_path, capsys):
    assert main([str(run), "--out", str(tmp_path / "p"), "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)) > 4 and read_config(tmp_path / "p").embeddings
    assert not (run / CONFIG).exists()
