"""The page holds the weights of the reference, opens, follows the mouse and the keyboard, and shows hostile text as text."""

import base64
import json
import re
import zlib

import numpy as np
import pytest
import torch
from helpers import SHAPE

from chargpt.analysis.heads import measure_heads
from chargpt.model import GPT, causal_mask, reference_attention
from chargpt.pages.attention_page import attention_page, pack

HOSTILE = "</script><b>&\"'\x1b[31m\u202eabc\u2066\u0301\n\t" * 2 + "é中\U0001f600"


def page_of(weights: torch.Tensor, characters: str | list[str]) -> str:
    return attention_page(measure_heads(weights, characters), about="a <run>", place="its \u202etext")


def random_weights(T: int, *, layers: int = 2, heads: int = 3) -> torch.Tensor:
    scores = 3 * torch.randn(layers, heads, T, T, generator=torch.Generator().manual_seed(1))
    return scores.masked_fill(~causal_mask(T), float("-inf")).softmax(dim=-1)


def data_of(content: str, element_id: str) -> object:
    return json.loads(re.search(f'<script type="application/json" id="{element_id}">(.*?)</script>', content, re.DOTALL)[1])


def test_the_weights_are_those_of_the_reference_attention():
    torch.manual_seed(0)
    model = GPT(SHAPE, 10).eval()
    idx = torch.randint(0, 10, (1, SHAPE.block_size))
    weights = model.attention(idx)[:, 0]
    with torch.no_grad():
        x, _ = model._embed(idx)
        q, k, v = model.blocks[0].attn.heads(model.blocks[0].norm_1(x))
        _, expected = reference_attention(q, k, v, mask=causal_mask(SHAPE.block_size)[None, None])
    assert (weights[0] - expected[0]).abs().max() < 1e-5
    levels = np.frombuffer(zlib.decompress(pack(weights)), np.uint8).reshape(*weights.shape[:2], -1)
    rows, columns = np.tril_indices(SHAPE.block_size)
    assert np.abs((levels / 255.0) ** 2 - weights.numpy()[:, :, rows, columns]).max() <= 0.004
    packed = base64.b64decode(data_of(page_of(weights, "ab" * 8), "weights"))
    assert zlib.decompress(packed) == levels.tobytes()


def test_hostile_text_is_escaped():
    content = page_of(random_weights(len(HOSTILE)), HOSTILE)
    assert not re.search("[\0-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u206f]", content)
    assert content.count("<b>") == content.count("</b>") == 0 and "a &lt;run&gt;" in content
    assert content.count("<script") == content.count("</script>") == 3  # two of data, one of ours


@pytest.fixture
def opened(browser, tmp_path):
    """A function that opens a page of these weights and characters and returns playwright's page; problems fail the test."""
    problems = []

    def open_page(weights, characters, **view):
        path = tmp_path / "page.html"
        path.write_text(page_of(weights, characters), encoding="utf-8")
        shown = browser.new_page(**view)
        shown.on("pageerror", lambda problem: problems.append(str(problem)))
        shown.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
        shown.goto(path.as_uri())
        shown.wait_for_selector("body[data-state=complete]", timeout=30_000)
        return shown

    yield open_page
    assert not problems


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_fits_a_phone(opened, scheme):
    page = opened(random_weights(60), "Lorem ipsum " * 5, viewport={"width": 360, "height": 740}, color_scheme=scheme)
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    page.get_by_role("heading", name="Measures").click()
    table = page.locator(".wide", has=page.locator("#measures"))
    assert table.evaluate("e => e.scrollWidth > e.clientWidth && getComputedStyle(e).backgroundImage.includes('gradient')")
    table.evaluate("e => { e.scrollLeft = 100; }")
    name, box = page.locator("#measures td").first.bounding_box(), table.bounding_box()
    assert name["x"] == box["x"]  # the head's name stays where it is


def test_a_click_on_a_column_sorts_the_heads_by_it_and_one_on_a_row_shows_it(opened):
    weights = random_weights(24)
    page = opened(weights, "Lorem ipsum dolor sit am")
    page.get_by_role("heading", name="Measures").click()
    entropy, orders = measure_heads(weights, "Lorem ipsum dolor sit am").entropy, []
    for _ in range(2):
        page.get_by_role("button", name="entropy").click()
        orders.append(page.locator("#measures tbody td:first-child").all_text_contents())
    assert orders[0] == sorted(orders[1], key=lambda name: -entropy[int(name[0]) - 1, int(name[2]) - 1])
    assert orders[1] == orders[0][::-1]
    page.locator("#measures tbody tr").last.click()
    assert page.locator("#grid [aria-pressed=true]").text_content() == orders[1][-1]
