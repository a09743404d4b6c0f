"""`--to hf`: the folder is complete, and transformers computes the same logits from it, offline and without remote code."""

import itertools
import json

import pytest
from exchange_helpers import VOCABULARIES

from chargpt.exchange.export import installed
from chargpt.exchange.hugging_face import write
from chargpt.model import POSITIONS
from chargpt.sampling.printing import text_of
from chargpt.sampling.rules import Sampling

FILES = {"README.md", "config.json", "generation_config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"}


def test_the_folder_is_complete(tmp_path, make_model, make_options, each_vocabulary, monkeypatch):
    monkeypatch.setattr("chargpt.exchange.hugging_face.installed", lambda package: False)
    loaded = make_model(tokenizer=each_vocabulary)
    (line,) = write(loaded, tmp_path / "out", make_options(loaded))
    assert {path.name for path in (tmp_path / "out").iterdir()} == FILES
    assert "Not checked with transformers" in line and "Not checked" in (tmp_path / "out" / "README.md").read_text()
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    tokenizer = json.loads((tmp_path / "out" / "tokenizer.json").read_text())
    assert config["vocab_size"] == len(tokenizer["model"]["vocab"]) == each_vocabulary.vocab_size
    generation = json.loads((tmp_path / "out" / "generation_config.json").read_text())
    assert generation.get("suppress_tokens", []) == list(each_vocabulary.never_sampled)
    assert "auto_map" not in config and config["eos_token_id"] is None


KINDS = list(itertools.product(POSITIONS, [False, True], VOCABULARIES))
EVERY_KIND = [0, 10, 17]  # every kind of positions, every vocabulary, with and without biases; the others are nightly


@pytest.mark.skipif(not installed("transformers"), reason="needs requirements-export.txt")
@pytest.mark.parametrize(
    ("positions", "bias", "vocabulary"),
    [pytest.param(*kind, marks=[] if i in EVERY_KIND else pytest.mark.nightly) for i, kind in enumerate(KINDS)],
)
def test_transformers_writes_the_same_greedy_text(tmp_path, make_model, make_options, positions, bias, vocabulary):
    """AutoModelForCausalLM and AutoTokenizer within `write`, and the pipeline from the finished folder."""
    from transformers import pipeline

    loaded = make_model(positions=positions, bias=bias, tokenizer=VOCABULARIES[vocabulary])
    (line,) = write(loaded, tmp_path / "out", make_options(loaded))
    assert "differ by at most" in line and "AutoTokenizer gives the same ids" in line
    prompt = "a cab\n"
    continuation = pipeline("text-generation", model=str(tmp_path / "out"), device="cpu")
    theirs = continuation(prompt, do_sample=False, max_new_tokens=18)[0]["generated_text"]
    generator = loaded.text_generator(Sampling(temperature=0), length=18)
    ours = prompt
    for (added,) in generator.write(loaded.tokenizer.encode(prompt).tolist(), [0]):
        ours += text_of(added)
    assert theirs == ours
    if loaded.tokenizer.characters is not None:  # without a length, it writes up to the context
        assert len(continuation(prompt, do_sample=False)[0]["generated_text"]) == 24
