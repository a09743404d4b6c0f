"""tokenizer.json holds the vocabulary exactly: it comes back equal, and the tokenizers library gives the same ids."""

import itertools
import json
import sys
import unicodedata
from typing import get_args

import pytest

from chargpt.config import NormalForm
from chargpt.errors import UserError
from chargpt.exchange.tokenizer_json import from_tokenizer_json, to_tokenizer_json
from chargpt.text.normalization import TextNormalizer
from chargpt.text.tokenizer import Tokenizer

NORMALIZERS = [
    TextNormalizer(newlines=newlines, lowercase=lowercase, normalize=normalize)
    for newlines, lowercase, normalize in itertools.product(("keep", "fold"), (False, True), get_args(NormalForm))
]
TEXT = "Hello, wörld!\r\nA  b\\c\t<script> 中文 😀 ﬁ e\u0301 \r\n\n  x"


def through_json(document: dict) -> dict:
    return json.loads(json.dumps(document))


@pytest.mark.parametrize("normalizer", NORMALIZERS, ids=str)
@pytest.mark.parametrize("kind", ["characters", "folded", "bytes"])
def test_a_vocabulary_comes_back_as_it_was(kind, normalizer):
    characters = None if kind == "bytes" else "".join(sorted(set(TEXT)))
    tokenizer = Tokenizer(characters, folded=kind == "folded", normalizer=normalizer)
    found, ids = from_tokenizer_json(through_json(to_tokenizer_json(tokenizer)))
    assert found == tokenizer and ids == list(range(tokenizer.vocab_size))


def test_characters_in_another_order_are_sorted_and_their_ids_are_kept():
    document = to_tokenizer_json(Tokenizer("abc"))
    document["model"]["vocab"] = {"b": 0, "c": 1, "a": 2}
    tokenizer, ids = from_tokenizer_json(document)
    assert tokenizer.characters == "abc" and ids == [2, 0, 1]


@pytest.mark.parametrize(
    "change, problem",
    [
        ({"model": {"merges": [["a", "b"]]}}, "pieces of words"),
        ({"model": {"vocab": {"a": 0, "the": 1}}}, "'the' is not one character"),
        ({"model": {"vocab": {"a": 0, "b": 7}}}, "ids are not 0, 1, 2"),
        ({"model": {"vocab": {"a": 0, "\ud800": 1}}}, "not one character"),
        ({"model": {"vocab": {}}}, "no vocabulary"),
        ({"model": {"type": "Unigram"}}, "pieces of words"),
        ({"model": {"fuse_unk": True}}, "its model has fuse_unk"),  # several unknown characters would be one id
        ({"added_tokens": [{"id": 0, "content": "<s>"}]}, "it has added_tokens"),
        ({"normalizer": {"type": "StripAccents"}}, "its normalizer .* cannot be imported"),
        ({"pre_tokenizer": {"type": "Whitespace"}}, "a pre-tokenizer other than"),
        ({"post_processor": {"type": "TemplateProcessing"}}, "it has post_processor"),
        ({"decoder": {"type": "WordPiece"}}, "a decoder other than"),
        ({"truncation": {"max_length": 3}}, "it has truncation"),
        ({"model": "none"}, "pieces of words"),
    ],
)
def test_what_cannot_be_represented_is_named_in_one_line(change, problem):
    document = to_tokenizer_json(Tokenizer("ab"))
    for key, value in change.items():
        document[key] = {**document[key], **value} if key == "model" and isinstance(value, dict) else value
    with pytest.raises(UserError, match=problem) as raised:
        from_tokenizer_json(document)
    assert "\n" not in str(raised.value)


def test_greek_capitals_in_lower_case_are_refused():
    with pytest.raises(UserError, match="sigma"):
        to_tokenizer_json(Tokenizer("ας", normalizer=TextNormalizer(lowercase=True)))
    to_tokenizer_json(Tokenizer("ας"))


@pytest.mark.parametrize("normalizer", NORMALIZERS, ids=str)
def test_the_tokenizers_library_gives_the_same_ids_and_text(normalizer):
    library = pytest.importorskip("tokenizers", reason="needs the package tokenizers")
    known = normalizer.apply(TEXT)
    for tokenizer in (
        Tokenizer("".join(sorted(set(known))), normalizer=normalizer),
        Tokenizer("".join(sorted(set(known) - set("x中"))), folded=True, normalizer=normalizer),
        Tokenizer(None, normalizer=normalizer),
    ):
        theirs = library.Tokenizer.from_str(json.dumps(to_tokenizer_json(tokenizer)))
        ids = tokenizer.encode(TEXT).tolist()
        assert theirs.encode(TEXT).ids == ids
        assert theirs.decode(ids) == tokenizer.decode(ids)


@pytest.mark.nightly
def test_the_tokenizers_library_changes_every_character_in_the_same_way():
    """Except for rare characters that came to Unicode after the tables of the library, such as U+32FF."""
    library = pytest.importorskip("tokenizers", reason="needs the package tokenizers")
    characters = [chr(point) for point in range(sys.maxunicode + 1)]
    characters = [character for character in characters if unicodedata.category(character) not in ("Cn", "Cs")]
    for normalizer in NORMALIZERS[1:]:
        document = to_tokenizer_json(Tokenizer("a", normalizer=normalizer))
        theirs = library.Tokenizer.from_str(json.dumps(document)).normalizer
        different = [c for c in characters if theirs.normalize_str(c) != normalizer.apply(c)]
        assert len(different) < 200 and all(c > "\u2000" for c in different), different[:20]
