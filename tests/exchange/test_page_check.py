"""The engine of a page, under Node.js, computes what PyTorch computes."""

import itertools
import json
import subprocess

import numpy as np
import pytest
import torch
from page_helpers import TEXT, VOCABULARIES, greedy, logits_of, new_model, packed, page_of, run_engine
from scripts import needs_node

from chargpt.exchange import html
from chargpt.model import POSITIONS
from chargpt.sampling.rules import NEVER, Sampling, distribution
from chargpt.text.tokenizer import Tokenizer


@pytest.fixture
def page(tmp_path):
    """A function that writes a page and returns its path."""

    def write(loaded, weights: str = "float16"):
        page_of(loaded, tmp_path / "page.html", weights=weights)
        return tmp_path / "page.html"

    return write


KINDS = list(itertools.product(POSITIONS, [False, True], VOCABULARIES))
EVERY_KIND = [0, 10, 17]  # every kind of positions, every vocabulary, with and without biases; the others are nightly


@needs_node
@pytest.mark.parametrize(
    ("positions", "bias", "vocabulary"),
    [pytest.param(*kind, marks=[] if i in EVERY_KIND else pytest.mark.nightly) for i, kind in enumerate(KINDS)],
)
def test_logits_and_greedy_text_are_those_of_pytorch(tmp_path, page, positions, bias, vocabulary):
    loaded = new_model(tmp_path, VOCABULARIES[vocabulary], positions=positions, bias=bias)
    ids = loaded.tokenizer.encode_known(TEXT)[0].tolist()
    windows = [ids[:21], ids[21:28], ids[28:29]]  # a full context, groups and single positions, one position
    logits, written = run_engine(page(loaded), windows, vocab_size=loaded.tokenizer.vocab_size, length=60)
    same_weights = packed(loaded.model, "float16")
    np.testing.assert_allclose(logits, logits_of(same_weights, windows), atol=2e-5)
    np.testing.assert_allclose(logits, logits_of(loaded.model, windows), atol=1e-2)
    assert np.ptp(logits, axis=1).min() > 1  # the logits of these models are not all alike
    assert written == greedy(loaded, same_weights, windows[0], 60)


@needs_node
@pytest.mark.parametrize(
    "shape", [{}, {"n_embd": 10, "n_head": 2, "block_size": 1}, {"n_embd": 32, "n_head": 1, "block_size": 40}]
)
@pytest.mark.parametrize("engine", ["WebAssembly", "JavaScript"])
def test_both_kernels_compute_models_of_any_shape(tmp_path, page, engine, shape):
    loaded = new_model(tmp_path, Tokenizer("ab"), bias=True, **shape)
    windows = [([0, 1, 1, 0, 1] * 10)[: loaded.model.config.block_size]]
    logits, written = run_engine(page(loaded), windows, vocab_size=2, length=30, engine=engine)
    np.testing.assert_allclose(logits, logits_of(packed(loaded.model, "float16"), windows), atol=2e-5)
    assert len(written) == 30


@needs_node
def test_int8_weights_are_computed_as_they_are_packed(tmp_path, page):
    loaded = new_model(tmp_path, VOCABULARIES["characters"], bias=True)
    windows = [loaded.tokenizer.encode(TEXT)[:21].tolist()]
    logits, _ = run_engine(page(loaded, "int8"), windows, vocab_size=loaded.tokenizer.vocab_size, length=0)
    np.testing.assert_allclose(logits, logits_of(packed(loaded.model, "int8"), windows), atol=2e-5)
    assert np.abs(logits - logits_of(loaded.model, windows)).max() > 1e-3  # int8 is not float16


DRAW = """
const { choose, prediction, Random } = require(process.argv[1]);
const { logits, count, cases } = JSON.parse(require("fs").readFileSync(0, "utf8"));
const drawn = cases.map(({ never, ...settings }) => {
  const random = new Random(1);
  return Array.from({ length: count }, () => choose(Float32Array.from(logits), settings, never, random));
});
console.log(JSON.stringify({ drawn, top: prediction(Float32Array.from(logits), 0).top }));
"""


@needs_node
def test_draws_follow_the_probabilities_of_the_most_likely_characters():
    torch.manual_seed(0)
    logits, count = torch.randn(12), 2000
    cases = list(itertools.product([0.5, 1, 2], [0, 1, 3, 11, 12, 99], [-1, int(logits.argmax())]))
    question = {"logits": logits.tolist(), "count": count}
    question["cases"] = [{"temperature": t, "topK": k, "never": never} for t, k, never in cases]
    command = ["node", "-e", DRAW, str(html.TEMPLATE.with_name("engine.js"))]
    answer = json.loads(subprocess.run(command, input=json.dumps(question), capture_output=True, text=True, check=True).stdout)
    for (temperature, top_k, never), drawn in zip(cases, answer["drawn"]):
        allowed = logits.clone()
        allowed[[never] if never >= 0 else []] = NEVER
        probabilities = distribution(allowed[None], Sampling(temperature=temperature, top_k=top_k))[0].double()
        shares = torch.bincount(torch.tensor(drawn), minlength=12) / count
        assert not shares[probabilities == 0].any(), (temperature, top_k, never)
        errors = (probabilities * (1 - probabilities) / count).sqrt()
        assert ((shares - probabilities).abs() <= 4.5 * errors + 1e-9).all(), (temperature, top_k, never)
    most_likely = logits.softmax(0).topk(8)
    assert [token_id for token_id, _ in answer["top"]] == most_likely.indices.tolist()
    np.testing.assert_allclose([share for _, share in answer["top"]], most_likely.values, rtol=1e-5)
