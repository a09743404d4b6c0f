"""`--to hf`: the folder is complete, and transformers computes the same logits from it, offline and without remote code."""

import json

import pytest
import torch
from exchange_helpers import EACH_KIND, VOCABULARIES, check_same, ids_of, options_of

from chargpt.exchange.hugging_face import write
from chargpt.sampling.options import SamplingOptions
from chargpt.sampling.stop_rules import text_of

FILES = {"README.md", "config.json", "generation_config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"}


def test_the_folder_is_complete(tmp_path, make_model, each_vocabulary):
    loaded = make_model(tokenizer=each_vocabulary)
    write(loaded, tmp_path / "out", options_of(loaded))
    assert {path.name for path in (tmp_path / "out").iterdir()} == FILES
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    tokenizer = json.loads((tmp_path / "out" / "tokenizer.json").read_text())
    assert config["vocab_size"] == len(tokenizer["model"]["vocab"]) == each_vocabulary.vocab_size
    generation = json.loads((tmp_path / "out" / "generation_config.json").read_text())
    assert generation.get("suppress_tokens", []) == list(each_vocabulary.never_sampled)
    assert "auto_map" not in config and config["eos_token_id"] is None


@EACH_KIND
def test_transformers_computes_the_run_and_writes_its_text(tmp_path, make_model, positions, bias, vocabulary):
    transformers = pytest.importorskip("transformers", reason="needs the package transformers")
    loaded = make_model(positions=positions, bias=bias, tokenizer=VOCABULARIES[vocabulary])
    write(loaded, tmp_path / "out", options_of(loaded))
    model = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "out", local_files_only=True, dtype=torch.float32)
    check_same(loaded, lambda ids: model.eval()(input_ids=torch.from_numpy(ids), use_cache=False).logits.numpy())
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "out", local_files_only=True)
    text = loaded.tokenizer.decode(ids_of(loaded))
    assert tokenizer(text, verbose=False)["input_ids"] == loaded.tokenizer.encode(text).tolist()
    prompt = "a cab\n"
    continuation = transformers.pipeline("text-generation", model=str(tmp_path / "out"), device="cpu")
    theirs = continuation(prompt, do_sample=False, max_new_tokens=18)[0]["generated_text"]
    generator = loaded.text_generator(SamplingOptions(temperature=0, length=18))
    ours = prompt
    for (added,) in generator.write([loaded.tokenizer.encode(prompt).tolist()], [0]):
        ours += text_of(added)
    assert theirs == ours
    if loaded.tokenizer.characters is not None:  # without a length, it writes up to the context
        assert len(continuation(prompt, do_sample=False)[0]["generated_text"]) == 24
