"""A TextGenerator writes within its settings, and refuses settings that its vocabulary cannot satisfy."""

import pytest
from helpers import clear_model

from chargpt.sampling.options import SamplingOptions
from chargpt.sampling.stop_rules import text_of
from chargpt.sampling.text_generator import TextGenerator
from chargpt.sampling.torch_texts import torch_writer
from chargpt.text.normalization import TextNormalizer
from chargpt.text.tokenizer import Tokenizer


def make(tokenizer: Tokenizer, **options) -> TextGenerator:
    writer = torch_writer(clear_model(tokenizer.vocab_size, n_layer=1, scale=1.0, block_size=16))
    return TextGenerator(writer=writer, tokenizer=tokenizer, options=SamplingOptions(**{"length": 60, **options}))


def written(generator: TextGenerator, prompt: str) -> str:
    ids = generator.tokenizer.encode(prompt).tolist()
    return text_of([character for (characters,) in generator.write([ids], [1]) for character in characters])


def test_only_allowed_characters_are_written():
    assert set(written(make(Tokenizer("\nabcd"), allow="abc", ban="b"), "d")) == set("ac")


def test_a_stop_text_is_normalised_as_the_training_text_was():
    tokenizer = Tokenizer("\nab", normalizer=TextNormalizer(lowercase=True))
    assert written(make(tokenizer, stop=["A"]), "b") == written(make(tokenizer, stop=["a"]), "b")


@pytest.mark.parametrize(
    ("tokenizer", "settings", "says"),
    [
        (Tokenizer("ab"), {"stop": ["é"]}, "stop: 'é' given"),
        (Tokenizer("ab"), {"allow": ""}, "allow: '' given"),
        (Tokenizer("ab"), {"ban": "ab"}, "ban: no character is left"),
        (Tokenizer("ab"), {"lines": 2}, "lines: 2 given"),
        (Tokenizer("ab", folded=True), {"stop": ["\ufffd"]}, "stop: "),
        (Tokenizer(None), {"ban": "é"}, "ban: 'é' given, but this model writes bytes"),
    ],
)
def test_settings_that_the_vocabulary_cannot_satisfy_are_named(tokenizer, settings, says):
    with pytest.raises(ValueError, match=f"^--{says}"):
        make(tokenizer, **settings)
