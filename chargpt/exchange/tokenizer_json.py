"""tokenizer.json: a vocabulary of characters or bytes in the format of the `tokenizers` library, and back.

Characters are a BPE vocabulary without merges. Bytes are GPT-2's byte-level alphabet, in which each byte value is a printable
character ("Language Models are Unsupervised Multitask Learners", 2019); its ids are the byte values themselves.
"""

import itertools
from typing import Any, Literal, get_args

from chargpt.config import NormalForm
from chargpt.errors import UserError
from chargpt.text.normalization import TextNormalizer
from chargpt.text.tokenizer import CODE_POINTS, FOLDED, Tokenizer

READABLE = "use a model whose tokens are single characters or single bytes"
# The token of folded characters; decoding replaces it by FOLDED.
FOLDED_NAME = "<folded>"
FINAL_SIGMA = "\N{GREEK SMALL LETTER FINAL SIGMA}"
BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}
FUSE = {"type": "Fuse"}
# What a model of whole characters has not, and what a tokenizer of them does not.
NO_PIECES = {
    **dict.fromkeys(("dropout", "continuing_subword_prefix", "end_of_word_suffix")),
    "fuse_unk": False,
    "byte_fallback": False,
}
NOTHING_ELSE: dict[str, Any] = {"truncation": None, "padding": None, "added_tokens": [], "post_processor": None}
FOLD_NEWLINES = [{"type": "Replace", "pattern": {"String": old}, "content": "\n"} for old in ("\r\n", "\r")]
LOWERCASE = {"type": "Lowercase"}
NEWLINES: tuple[Literal["keep", "fold"], ...] = ("keep", "fold")
REPLACE_FOLDED = {"type": "Replace", "pattern": {"String": FOLDED_NAME}, "content": FOLDED}


def byte_alphabet() -> list[str]:
    """The character that stands for each byte value: itself if it is printable in Latin-1, others from U+0100 on, in order."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = iter(range(0x100, 0x200))
    return [chr(byte if byte in printable else next(others)) for byte in range(256)]


def to_tokenizer_json(tokenizer: Tokenizer) -> dict[str, Any]:
    """The content of tokenizer.json. Raises UserError for a vocabulary that it cannot describe."""
    is_bytes, folded = tokenizer.characters is None, tokenizer.folded
    tokens = byte_alphabet() if tokenizer.characters is None else [*tokenizer.characters, *[FOLDED_NAME] * folded]
    if tokenizer.normalizer.lowercase and FINAL_SIGMA in (tokenizer.characters or ""):
        why = "since other programs would read a Greek capital sigma at the end of a word as a wrong letter"
        what = f"this run cannot be exported, {why}; train again with data.lowercase=false, and export that run"
        raise UserError(f"data.lowercase: {what}")
    vocabulary = {"vocab": {token: i for i, token in enumerate(tokens)}, "merges": [], "ignore_merges": False}
    decoder = {"type": "Sequence", "decoders": [REPLACE_FOLDED, FUSE]} if folded else FUSE
    return {
        "version": "1.0",
        "normalizer": _normalizer_json(tokenizer.normalizer),
        "pre_tokenizer": BYTE_LEVEL if is_bytes else None,
        "decoder": BYTE_LEVEL if is_bytes else decoder,
        "model": {"type": "BPE", "unk_token": FOLDED_NAME if folded else None, **NO_PIECES, **vocabulary},
        **NOTHING_ELSE,
    }


def from_tokenizer_json(data: dict[str, Any]) -> tuple[Tokenizer, list[int]]:
    """The tokenizer that a tokenizer.json describes, and for each of its ids the id in the file.

    The two differ when the file's characters are not in the order of their code points. Raises UserError, naming what it is,
    for a tokenizer of anything but single characters or the 256 byte values.
    """
    model: dict[str, Any] = data["model"] if isinstance(data.get("model"), dict) else {}
    _require(model.get("type", "BPE") in (None, "BPE") and model.get("merges") == [], "its tokens may be pieces of words")
    for field in NO_PIECES:
        _require(model.get(field) in (None, False, ""), f"its model has {field}")
    for field in NOTHING_ELSE:
        _require(data.get(field) in (None, [], BYTE_LEVEL), f"it has {field}")
    tokens, normalizer = _tokens(model.get("vocab")), _normalizer(data.get("normalizer"))
    ids, unknown, decoder = {token: i for i, token in enumerate(tokens)}, model.get("unk_token"), data.get("decoder")
    decoder = decoder if isinstance(decoder, dict) else {}
    if (before := data.get("pre_tokenizer")) is not None:
        exact = isinstance(before, dict) and {**BYTE_LEVEL, **before, "trim_offsets": False} == BYTE_LEVEL
        _require(exact, "a pre-tokenizer other than ByteLevel without prefix space and without regex")
        _require(decoder.get("type") == "ByteLevel", "a decoder other than ByteLevel")
        _require(sorted(tokens) == sorted(byte_alphabet()), "its byte-level vocabulary is not the 256 byte values")
        return Tokenizer(None, normalizer=normalizer), [ids[token] for token in byte_alphabet()]
    decoders = decoder.get("decoders") if decoder.get("type") == "Sequence" else [decoder]
    _require(decoders in ([FUSE], [REPLACE_FOLDED, FUSE]), "a decoder other than Fuse")
    _require(unknown is None or unknown in tokens, "its unknown token is not in the vocabulary")
    folded = [ids.pop(unknown)] if isinstance(unknown, str) else []
    characters, order = in_order(ids)
    return Tokenizer(characters, folded=bool(folded), normalizer=normalizer), order + folded


def in_order(ids: dict[str, int]) -> tuple[str, list[int]]:
    """The characters of a vocabulary in the order of their code points, and the id of each one.

    Raises UserError if a token is not one character.
    """
    _require(bool(ids), "its vocabulary is empty")
    for token in ids:
        whole = isinstance(token, str) and len(token) == 1 and not "\ud800" <= token <= "\udfff"
        _require(whole, f"the token {str(token)!r:.60} is not one character")
    characters = sorted(ids)
    return "".join(characters), [ids[character] for character in characters]


def _tokens(vocabulary: object) -> list[str]:
    """The tokens in the order of their ids, which are 0, 1, 2 and so on."""
    vocabulary = vocabulary if isinstance(vocabulary, dict) else {}
    _require(0 < len(vocabulary) <= CODE_POINTS, "it has no vocabulary, or a too large one")
    tokens = {i: token for token, i in vocabulary.items() if type(i) is int}
    _require(tokens.keys() == set(range(len(vocabulary))), "its ids are not 0, 1, 2 and so on")
    return [tokens[i] for i in range(len(tokens))]


def _normalizer_json(normalizer: TextNormalizer) -> dict[str, Any] | None:
    steps: list[dict[str, Any]] = FOLD_NEWLINES * (normalizer.newlines == "fold") + [LOWERCASE] * normalizer.lowercase
    if normalizer.normalize != "none":
        steps.append({"type": normalizer.normalize})
    return {"type": "Sequence", "normalizers": steps} if steps else None


def _normalizer(data: object) -> TextNormalizer:
    """The TextNormalizer that `_normalizer_json` described."""
    for newlines, lowercase, normalize in itertools.product(NEWLINES, (False, True), get_args(NormalForm)):
        normalizer = TextNormalizer(newlines=newlines, lowercase=lowercase, normalize=normalize)
        described = _normalizer_json(normalizer)
        single = [described["normalizers"][0]] if described and len(described["normalizers"]) == 1 else []
        if data in (described, *single):
            return normalizer
    raise UserError("tokenizer.json: its normalizer changes the text in a way that cannot be imported; use a model without one")


def _require(ok: bool, problem: str) -> None:
    if not ok:
        raise UserError(f"tokenizer.json: {problem}; {READABLE}")
