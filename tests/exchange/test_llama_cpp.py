"""llama.cpp writes the text that the run writes, and does not end before the length that it was given."""

import pytest

pytest.importorskip("gguf", reason="needs requirements-export.txt")
pytest.importorskip("xllamacpp", reason="needs xllamacpp")


@pytest.mark.nightly
def test_greedy_text_is_that_of_the_run(tmp_path, make_model):
    """Its first id is a newline, which must not end a text."""
    from chargpt.exchange.gguf_model import LlamaCpp, write_gguf

    loaded = make_model()
    write_gguf(tmp_path / "x.gguf", loaded.model, loaded.tokenizer)
    llama = LlamaCpp(tmp_path / "x.gguf", vocab_size=loaded.model.vocab_size, context=24)
    for prompt in ("a", "bad\n", "中 "):
        length = 24 - len(prompt) - 1
        expected = loaded.generate(prompt, length=length, temperature=0)
        assert prompt + llama.write(prompt, length) == expected
