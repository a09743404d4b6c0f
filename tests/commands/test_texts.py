"""The texts of a verb are read as in training, and come in small pieces."""

import dataclasses

import pytest
from helpers import publish_run

import chargpt
from chargpt.commands.texts import PIECE, open_texts
from chargpt.config import DataConfig
from chargpt.sampling.loaded_model import load_model
from chargpt.terminal import UserError
from chargpt.text.corpus import load_corpus
from chargpt.text.normalization import TextNormalizer
from chargpt.text.tokenizer import Tokenizer


@pytest.fixture
def run(tmp_path):
    return publish_run(tmp_path / "run")


def test_a_text_is_read_with_the_normaliser_of_the_run(tmp_path):
    tokenizer = Tokenizer("\nab", normalizer=TextNormalizer(newlines="fold", lowercase=True))
    loaded = chargpt.load(publish_run(tmp_path / "run", tokenizer))
    (tmp_path / "a.txt").write_bytes("\ufeffAB\r\nb\r".encode())
    with open_texts([str(tmp_path / "a.txt")], loaded) as (text,):
        assert "".join(text.pieces(tokenizer, loaded.config.data)) == "ab\nb\n"


@pytest.mark.parametrize("tokenizer", [Tokenizer("\nab中"), Tokenizer(None)], ids=["characters", "bytes"])
def test_pieces_are_small_and_complete(tmp_path, tokenizer):
    content = "ab中\n" * PIECE
    (tmp_path / "a.txt").write_text(content, encoding="utf-8", newline="")
    loaded = chargpt.load(publish_run(tmp_path / "run", tokenizer))
    with open_texts([str(tmp_path / "a.txt")], loaded) as (text,):
        pieces = list(text.pieces(tokenizer, loaded.config.data))
    assert max(map(len, pieces)) <= PIECE
    assert pieces[0][:0].join(pieces) == (content if tokenizer.characters else content.encode())


def test_a_folder_gives_several_texts_and_a_missing_file_is_one_line(tmp_path, run):
    loaded = chargpt.load(run)
    for name in "ab":
        (tmp_path / f"{name}.txt").write_text(name * 20)
    with open_texts([str(tmp_path)], loaded) as texts:
        assert [text.label[-5:] for text in texts] == ["a.txt", "b.txt"]
    with pytest.raises(UserError, match="no such file"), open_texts(["nothing.txt"], loaded):
        pass


def test_without_a_name_the_text_is_the_validation_part_of_the_run(installed, tmp_path):
    (tmp_path / "a.txt").write_text("abc\n" * 100)
    corpus = load_corpus([str(tmp_path / "a.txt")], DataConfig(), root=tmp_path, block_size=8)
    run = publish_run(tmp_path / "run", corpus.tokenizer, fingerprint=corpus.fingerprint)
    loaded, _ = load_model(str(run), tmp_path, device="cpu")
    with open_texts([], loaded) as (text,):
        assert "".join(text.pieces(loaded.tokenizer, loaded.config.data)) == "abc\n" * 10
        bytes_of_it = b"".join(text.pieces(Tokenizer(None), loaded.config.data))  # for a model with another vocabulary
        assert bytes_of_it == b"abc\n" * 10
        upper = Tokenizer("\nabcx", normalizer=TextNormalizer(lowercase=True))
        assert "".join(text.pieces(upper, loaded.config.data)) == "abc\n" * 10
    other = dataclasses.replace(loaded, fingerprint="1" * 64)
    with pytest.raises(UserError, match="not in the cache"), open_texts([], other):
        pass
