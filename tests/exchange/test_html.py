"""The page: what it holds, and in Chromium what it writes, shows and lets a person do."""

import hashlib
import json
import re
from base64 import b64decode

import numpy as np
import pytest
import torch
from page_helpers import VOCABULARIES, greedy, new_model, packed, page_of

from chargpt.errors import UserError
from chargpt.exchange import html
from chargpt.text.tokenizer import Tokenizer

HOSTILE = "</script><img src=x onerror=alert(1)><!--"


@pytest.fixture
def open_page(browser, tmp_path):
    """A function that exports a model and opens its page; anything unexpected in the page fails the test at the end."""
    contexts, problems = [], []

    def open_page(loaded, *, weights: str = "float16", name: str | None = None, texts: list[str] = ("sea.txt",), **view):
        path = tmp_path / "page.html"
        path.unlink(missing_ok=True)
        page_of(loaded, path, weights=weights, name=name, texts=list(texts))
        contexts.append(browser.new_context(**view))
        page = contexts[-1].new_page()
        page.on("console", lambda message: problems.append(message.text))
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("dialog", lambda dialog: problems.append(dialog.message))
        page.on("request", lambda request: None if request.url.startswith(("file:", "blob:")) else problems.append(request.url))
        page.goto(path.as_uri())
        finish(page)  # the first text, which the page writes by itself
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert problems == []


@pytest.fixture(scope="module")
def sea(tmp_path_factory):
    return new_model(tmp_path_factory.mktemp("runs"), VOCABULARIES["characters"], bias=True, positions="rotary")


def write(page, *, prompt: str = "", temperature: str = "0", length: int = 50, **settings: object) -> str:
    """Let the page write; returns the text that it shows."""
    page.fill("#prompt", prompt)
    page.locator("#temperature").evaluate("(e, v) => { e.value = v; e.dispatchEvent(new Event('input')); }", temperature)
    page.fill("#length", str(length))
    for name, value in settings.items():
        page.fill(f"#{name}", str(value))
    page.click("#start")
    finish(page)
    return text_of(page)


def finish(page) -> None:
    page.locator("#status", has_text="a second").wait_for()


def text_of(page) -> str:
    return "\n".join(page.locator(".line").evaluate_all("lines => lines.map(line => line.textContent)"))


@pytest.mark.parametrize("vocabulary", VOCABULARIES)
def test_the_greedy_text_is_that_of_python(tmp_path, open_page, vocabulary):
    loaded = new_model(tmp_path, VOCABULARIES[vocabulary])
    prompt = "The sea keeps its own moving light"  # longer than the context
    ids = loaded.tokenizer.encode_known(prompt)[0].tolist()
    expected = loaded.tokenizer.decode(ids + greedy(loaded, packed(loaded.model, "float16"), ids[-21:], 50))
    visible = re.sub(r"[\0-\x08\x0b-\x1f\x7f-\x9f]", lambda match: f"\\u{{{ord(match[0]):x}}}", expected)
    assert write(open_page(loaded), prompt=prompt) == visible.removesuffix("\n")


HARD_PROMPTS = {
    "emoji": "\U0001f469\u200d\U0001f680 The sea \U0001f1e9\U0001f1ea",
    "controls": "The\0 \x1b[2Jsea\x7f\x85\u2028\u202e\ufeff",
    "html": "<script>alert(1)</script><img src=x onerror=alert(1)>The sea",
    "surrogate": "The \ud800sea",
    "unknown only": "\u4e2d\u6587",
    "spaces": " \n\t\n ",
}


@pytest.mark.parametrize("vocabulary", VOCABULARIES)
def test_any_prompt_is_continued_and_nothing_in_it_is_obeyed(tmp_path, open_page, vocabulary):
    loaded = new_model(tmp_path, VOCABULARIES[vocabulary])
    page = open_page(loaded)
    for prompt in HARD_PROMPTS.values():
        page.locator("#prompt").evaluate("(e, parts) => { e.value = String.fromCharCode(...parts); }", utf_16(prompt))
        page.fill("#length", "20")
        page.evaluate("document.getElementById('status').textContent = ''")
        page.click("#start")
        finish(page)
        assert "20 characters" in page.text_content("#status")
        assert page.locator("img").count() == 0 and page.locator("script").count() == 3
        assert not set("\0\x1b\x85\u2028\u202e\ufeff") & set(page.inner_text("body")) - {"\ufeff"}


def utf_16(text: str) -> list[int]:
    """The numbers of which a string in JavaScript consists."""
    return np.frombuffer(text.encode("utf-16-le", "surrogatepass"), "<u2").tolist()


def test_a_prompt_of_five_million_characters_is_cut_and_the_page_says_so(open_page, sea):
    page = open_page(sea)
    page.locator("#prompt").evaluate(
        "e => { e.value = 'The sea keeps its own hours.\\n'.repeat(172414) + 'The moving stones'; }"
    )
    page.fill("#length", "20")
    page.evaluate("document.getElementById('status').textContent = ''")
    page.click("#start")
    page.locator("#status", has_text="a second").wait_for(timeout=20_000)
    assert page.locator(".line > span.prompt").count() == 20_000 and page.locator(".line > span").count() == 20_020
    assert "the page uses the last 20,000 of them" in page.text_content("#notice")
    assert "The moving stones" in text_of(page)


def test_writing_can_be_stopped_and_continued(open_page, sea):
    page = open_page(sea)
    page.fill("#length", "20000")
    page.click("#start")
    page.locator(".line > span").first.wait_for()
    assert page.text_content("#start") == "Stop"
    page.keyboard.press("Escape")
    page.locator("#start", has_text="Write").wait_for()
    stopped = text_of(page)
    assert 0 < len(stopped) < 20000
    page.wait_for_timeout(100)
    assert text_of(page) == stopped
    page.fill("#length", "30")
    page.click("#continue")
    finish(page)
    assert text_of(page).startswith(stopped) and len(text_of(page)) >= len(stopped) + 29


def test_the_keyboard_alone_is_enough(open_page, sea):
    page = open_page(sea)

    def press(*keys: str) -> None:
        for key in keys:
            page.keyboard.press(key)

    def focused() -> str:
        return page.evaluate("document.activeElement.id")

    press("Tab")
    assert focused() == "prompt"
    page.keyboard.type("The sea")
    stops = []
    for _ in range(9):
        press("Tab")
        stops.append(focused())
    assert stops[:5] == ["temperature", "top-k", "length", "seed", "start"]
    page.focus("#prompt")
    press("Control+Enter")
    finish(page)
    page.focus("#text")
    press("Home", "ArrowRight", "ArrowRight")
    assert page.text_content("#glyph") == "e"
    assert page.text_content("#said").startswith("e, ")  # what a screen reader says
    outline = page.locator("#text").evaluate("e => getComputedStyle(e).outlineStyle")
    assert outline == "solid"
    press("End", "ArrowUp", "ArrowDown")
    assert page.locator(".chosen").count() == 1
    press("Home", "ArrowRight", "ArrowRight", "ArrowRight", "Enter")
    assert page.evaluate("document.activeElement.closest('#choices') !== null")
    label = page.evaluate("document.activeElement.getAttribute('aria-label')").split(", ")[0]
    press("Enter")
    finish(page)
    assert text_of(page)[3] == {"space": " "}.get(label, label)
    press("Escape")
    assert page.locator(".chosen").count() == 0


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_phone_shows_everything_the_panel_below_the_text(open_page, sea, scheme):
    phone = {"viewport": {"width": 360, "height": 640}, "color_scheme": scheme, "has_touch": True}
    page = open_page(sea, name="a-very-long-name-" * 8, **phone)
    write(page, prompt="The" + "sea" * 60)
    for place in (3, 100, 200):
        page.locator(".line > span").nth(place).tap()
        page.locator("#heads").wait_for()
        sheet, panel, chosen = (page.locator(name).bounding_box() for name in ("#sheet", "aside", ".chosen"))
        assert sheet["y"] + sheet["height"] <= panel["y"] + 1  # it covers no text
        assert sheet["y"] - 1 <= chosen["y"] and chosen["y"] + chosen["height"] <= sheet["y"] + sheet["height"] + 1
        assert chosen["y"] >= 0 and panel["y"] + panel["height"] <= 640 + 1  # both are on the screen
    page.locator("#map canvas").nth(4).tap()
    assert [page.input_value(f"#{menu}") for menu in ("layer", "head")] == ["2 of 2", "2 of 3"]
    assert page.locator("#map .taken").count() == 1
    page.locator("footer summary").click()
    assert page.evaluate("document.documentElement.scrollWidth") == 360


def test_bytes_become_characters(tmp_path, open_page):
    page = open_page(new_model(tmp_path, VOCABULARIES["bytes"]))
    text = write(page, prompt="na\u00efve \u4e2d\u6587", temperature="1", length=30, seed=1)
    assert text.startswith("na\u00efve \u4e2d\u6587")
    page.locator(".line > span").nth(6).click()  # three bytes, shown as one character
    assert page.text_content("#glyph") == "E4" and page.text_content(".chosen") == "\u4e2d"
    page.focus("#text")
    page.keyboard.press("ArrowRight")
    assert page.text_content("#glyph") == "B8" and page.text_content(".chosen") == "\u4e2d"


def test_hostile_names_and_vocabularies_are_only_text(tmp_path, open_page):
    characters = "".join(sorted(set(HOSTILE + "\n\"'&\u2028\u202e\ufeff")))
    loaded = new_model(tmp_path, Tokenizer(characters))
    page = open_page(loaded, name=HOSTILE, texts=[HOSTILE, "\u202etxt.exe"])
    assert write(page, prompt=HOSTILE, temperature="2", length=300).startswith(HOSTILE)
    page.locator(".line > span").nth(4).click()
    page.locator("footer summary").click()
    assert page.text_content("h1") == page.title() == HOSTILE
    assert page.locator("img").count() == 0 and page.locator("script").count() == 3
    shown = page.inner_text("body")
    assert "\u202e" not in shown and "\u2028" not in shown and "\\u{202e}txt.exe" in shown


@pytest.mark.parametrize("learning", [None, {"numbers": {}, "code": {}}], ids=["writes", "learns"])
def test_a_page_can_load_nothing_and_run_nothing_else(tmp_path, sea, learning):
    page_of(sea, tmp_path / "page.html", learning=learning)
    source = (tmp_path / "page.html").read_text(encoding="utf-8")
    policy = re.search(r'http-equiv="Content-Security-Policy" content="(.*?)"', source)[1]
    assert policy.startswith("default-src 'none'; script-src 'sha256-") and "unsafe-inline" not in policy
    assert source.index("Content-Security-Policy") < source.index("<style>")  # it governs what comes after it
    digests = [
        hashlib.sha256(match.encode()).digest()
        for match in re.findall(r'<script type="module">(.*?)</script>', source, re.DOTALL)
    ]
    assert [b64decode(digest) for digest in re.findall(r"script-src 'sha256-(.*?)'", policy)] == digests
    assert not re.findall(r'(?:src|href|action)="|url\(|innerHTML|insertAdjacentHTML|document\.write|https?://', source)


def test_the_model_in_the_page_is_inert_ascii(tmp_path, sea):
    page_of(sea, tmp_path / "page.html", name=HOSTILE, texts=[HOSTILE])
    source = (tmp_path / "page.html").read_text(encoding="utf-8")
    data = re.search(r'id="about">(.*?)</script>', source)[1]
    assert data.isascii() and not set("<>&") & set(data)
    assert json.loads(data)["run"] == HOSTILE
    assert str(sea.path.parent.parent) not in source  # folders of texts and of the run are not published


def test_what_no_page_can_hold_is_a_user_error(tmp_path, sea, monkeypatch):
    with pytest.raises(UserError, match="a weight of 70000 is too large for float16"):
        html.pack(torch.tensor([1.0, -70000.0]), "float16")
    monkeypatch.setattr(html, "MAX_NUMBERS", 1000)
    with pytest.raises(UserError, match=r"too large for a web page, .*at most 1,000\); use --to gguf"):
        page_of(sea, tmp_path / "page.html")
    assert not (tmp_path / "page.html").exists()
