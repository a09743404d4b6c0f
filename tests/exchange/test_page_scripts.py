"""The engine and the interface of an exported page in Node.js: what is predicted, drawn, shown and said, without a browser."""

import math

import numpy as np
import pytest
import torch
from page_helpers import VOCABULARIES, new_model, page_of
from scripts import needs_node, run_script

from chargpt.sampling.options import SamplingOptions
from chargpt.sampling.rules import NEVER
from chargpt.sampling.writer import distribution

pytestmark = needs_node
ENGINE, INTERFACE = '[^>]*id="engine"', ' type="module"'
# The texts of elements, and records as the engine sends them: an id, where its context began, its probability and the best ids.
SHOWN = """
const texts = id => $(id).children.map(child => typeof child === "string" ? child : child.textContent);
const given = (id, probability, top = [], from = 0) => append({ id, from, probability, top });
const idOfCharacter = character => tokenizer.encode(character).ids[0];
"""


@pytest.fixture(scope="module")
def sea(tmp_path_factory):
    """The page of a model of characters."""
    folder = tmp_path_factory.mktemp("sea")
    page_of(new_model(folder, VOCABULARIES["characters"]), folder / "page.html")
    return (folder / "page.html").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def folded(tmp_path_factory):
    """The page of a model whose last id stands for all rare characters."""
    folder = tmp_path_factory.mktemp("folded")
    page_of(new_model(folder, VOCABULARIES["folded"]), folder / "page.html")
    return (folder / "page.html").read_text(encoding="utf-8")


def test_the_best_ids_come_first_with_the_probabilities_of_the_model(sea):
    logits = torch.randn(40, generator=torch.Generator().manual_seed(2)).mul(3)
    probabilities = logits.softmax(dim=0)
    order = probabilities.argsort(descending=True).tolist()
    for chosen in (order[0], order[30]):
        found = run_script(sea, f"return [prediction(Float32Array.from({logits.tolist()}), {chosen}), TOP];", script=ENGINE)
        prediction, top = found
        assert prediction["probability"] == pytest.approx(probabilities[chosen].item(), rel=1e-4)
        assert [number for number, _ in prediction["top"]] == order[:top]
        assert [p for _, p in prediction["top"]] == pytest.approx(probabilities[order[:top]].tolist(), rel=1e-4)


@pytest.mark.parametrize(("temperature", "top_k"), [(1.0, 0), (0.5, 0), (2.0, 3), (1.0, 1)])
def test_draws_have_the_probabilities_of_the_temperature_and_the_top_k(sea, temperature, top_k):
    logits, never, draws = [0.0, 1.0, 2.5, -1.0, 9.0, 2.0], 4, 20_000
    code = f"""const random = new Random(7), counts = new Array({len(logits)}).fill(0);
    const settings = {{ temperature: {temperature}, topK: {top_k} }};
    for (let i = 0; i < {draws}; i++) counts[choose({logits}, settings, {never}, random)]++;
    return counts;"""
    allowed = np.array([logits], np.float32)
    allowed[0, never] = NEVER
    rules = SamplingOptions(temperature=temperature, top_k=top_k).rules_in_use()
    expected = distribution(allowed, rules, np.zeros((1, 1), np.int64))[0]
    counts = np.array(run_script(sea, code, script=ENGINE))
    assert (counts[expected == 0] == 0).all()
    assert counts / draws == pytest.approx(expected, abs=0.02)


def test_a_full_context_keeps_its_newer_half(sea):
    """Block size 6: the seventh id does not fit, and the model reads the last 3 again."""
    code = """const context = { ids: [] };
    const model = { shape: { block_size: 6 }, read: (c, id) => c.ids.push(id), contexts: [context] };
    const writer = new Writer(model, -1), text = [0, 1, 2, 3, 4, 5], seen = [];
    for (const [index] of writer.read(text)) seen.push(index);
    text.push(6);
    for (const [index] of writer.read(text)) seen.push(index);
    return [seen, writer.from, context.ids];"""
    seen, start, kept = run_script(sea, code, script=ENGINE)
    assert seen == [0, 1, 2, 3, 4, 5, 4, 5, 6] and start == 4 and kept == [4, 5, 6]


def test_a_text_ends_before_the_id_that_ends_an_item(sea):
    code = """const ids = [], read = (_, id) => (ids.push(id), [0, 1, 2, 3].map((next) => Number(next === id + 1)));
    const model = { shape: { block_size: 6 }, read, contexts: [{ ids }] }, text = [0];
    for (const _ of new Writer(model, -1, 3).write(text, { length: 10, seed: 1, temperature: 0 }));
    return text;"""
    assert run_script(sea, code, script=ENGINE) == [0, 1, 2]


def test_a_prompt_becomes_the_ids_of_its_characters(sea, folded):
    code = 'const { ids, unknown } = tokenizer.encode("The~ s\\nea"); return { ids: [...ids], unknown };'
    tokenizer = VOCABULARIES["characters"]
    found = run_script(sea, code, script=INTERFACE)
    assert found == {"ids": tokenizer.encode("The s\nea").tolist(), "unknown": ["~"]}
    found = run_script(folded, code, script=INTERFACE)
    assert found["ids"] == VOCABULARIES["folded"].encode("The~ s\nea").tolist() and found["unknown"] == ["~"]


def test_a_colour_begins_at_its_multiple_of_the_average(sea):
    """The validation loss of the model is 1.5 nats, its average in bits 1.5 / ln 2."""
    usual = 1.5 / math.log(2)
    bits = [times * usual + shift for times in (0.5, 1.5, 3) for shift in (-0.01, 0.01)]
    code = f"{SHOWN} for (const bits of {bits}) given(0, 2 ** -bits); return spans.map(span => span.className[1]);"
    assert run_script(sea, code, script=INTERFACE) == list("011223")


def test_a_chosen_character_is_shown_with_its_bits_and_all_alternatives_in_order(sea):
    code = f"""{SHOWN} const [e, a, h] = [..."eah"].map(idOfCharacter);
    given(e, NaN); given(h, 0.0625, [[e, 0.5], [a, 0.25]]); choose(1, {{ say: true }});
    const width = row => row.children[0].children[1].children[0].style.width;
    const name = row => row.children[0].attributes["aria-label"];
    const rows = $("choices").children.map(row => [row.textContent, row.className, name(row), width(row)]);
    return [$("what").textContent, rows, $("said").textContent];"""
    what, rows, said = run_script(sea, code, script=INTERFACE)
    assert "6.3 %, 4.0 bits of surprise" in what and "U+0068" in what
    assert rows == [
        ["e50 %", "", "e, 50 %", "50%"],
        ["a25 %", "", "a, 25 %", "25%"],
        ["h6.3 %", "taken", "h, 6.3 %, chosen", "6.25%"],
    ]
    assert said == "h, 6.3 %, 4.0 bits. Alternatives: e 50 %, a 25 %."


def test_the_attention_of_a_head_and_of_the_mean_names_the_characters_it_goes_to(sea):
    """Three heads in two layers look at "sea h": weights [layer][head][S] of the last character."""
    weights = torch.rand(2, 3, 4, generator=torch.Generator().manual_seed(3)).softmax(dim=-1)
    weights[1, 2] = torch.tensor([0.1, 0.7, 0.012, 0.188])
    code = f"""{SHOWN} tokenizer.encode("sea h").ids.forEach((id, i) => given(id, i ? 0.5 : NaN)); choose(4);
    const questions = posted.filter(message => message.kind === "inspect");
    looked({{ index: 4, weights: {weights.flatten(0, 1).tolist()}.map((head) => Float32Array.from(head)) }});
    const means = Array.from(headWeights(1, -1));
    $("layer").selectedIndex = 1; $("head").selectedIndex = 3; drawAttention();
    return [questions, means, texts("most").join("")];"""
    (question,), means, most = run_script(sea, code, script=INTERFACE)
    assert question["index"] == 4 and question["ids"] == VOCABULARIES["characters"].encode("sea ").tolist()
    assert means == pytest.approx(weights[1].mean(dim=0).tolist(), abs=1e-6)
    assert most == "Most: e 70 % (3 back), \u2423 19 % (the last one), s 10 % (4 back), a 1.2 % (2 back)"


def test_the_engine_gets_the_settings_of_the_form(sea):
    code = """const form = { seed: "12", temperature: "0.7", "top-k": "5", length: "300", prompt: "sea" };
    for (const [id, value] of Object.entries(form)) $(id).value = value;
    start();
    return posted.at(-1);"""
    message = run_script(sea, code, script=INTERFACE)
    settings = {key: message[key] for key in ("kind", "seed", "temperature", "topK", "length", "known")}
    assert settings == {"kind": "write", "seed": 12, "temperature": 0.7, "topK": 5, "length": 300, "known": 0}
    assert message["text"] == VOCABULARIES["characters"].encode("sea").tolist()


def test_an_alternative_replaces_the_character_and_forgets_what_follows(sea):
    code = f"""{SHOWN} const ids = tokenizer.encode("sea h").ids, a = ids[2]; ready = true; $("seed").value = "1";
    ids.forEach((id, i) => given(id, i ? 0.5 : NaN, [[a, 0.125]])); branch(3, a);
    return [records.map(record => record.id), records.at(-1).probability, posted.at(-1)];"""
    ids, probability, message = run_script(sea, code, script=INTERFACE)
    assert ids == VOCABULARIES["characters"].encode("seaa").tolist() == message["text"]
    assert probability == 0.125 and message["known"] == 4
