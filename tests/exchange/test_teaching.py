"""In Chromium, a page is taught a text: it learns, stops, goes on, keeps and saves what it learned, and sends nothing."""

import random

import numpy as np
import pytest
from page_helpers import VOCABULARIES, new_model
from scripts import Elements

from chargpt.exchange import html, learning
from chargpt.exchange.export import ExportOptions
from chargpt.kernels.compiler import Unavailable
from chargpt.sampling.loaded_model import load_model
from chargpt.training.evaluation import evaluate

NAMES, VERBS = "sea stone light hour wave wind salt boat night lamp".split(), "waits sleeps sings burns".split()
HOSTILE = "</script><img src=x onerror=alert(1)>\u202e.txt"


def poem(lines: int, *, seed: int = 1) -> str:
    draw = random.Random(seed)
    line = lambda: f"The {draw.choice(NAMES)} {draw.choice(VERBS)} by the {draw.choice(NAMES)}.\n"  # noqa: E731
    return "".join(line() for _ in range(lines))


@pytest.fixture(scope="module")
def needed():
    """What a page needs to learn; the test skips without the package ziglang."""
    try:
        return learning.needed()
    except Unavailable as reason:
        pytest.skip(f"needs the package ziglang: {reason}")


@pytest.fixture
def teach(browser, needed, tmp_path):
    """A function that opens a page and teaches it; anything unexpected in the page fails the test at the end."""
    context, problems = browser.new_context(accept_downloads=True), []

    def teach(loaded, material: str, *, begins: str = "nothing", minutes: float = 0.05, path=None, **view):
        if path is None:
            path = tmp_path / "page.html"
            html.write(loaded, path, ExportOptions(name="sea", texts=[], learning=needed))
        page = context.new_page()
        page.on("console", lambda message: problems.append(message.text))
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("request", lambda request: None if request.url.startswith(("file:", "blob:")) else problems.append(request.url))
        page.goto(path.as_uri())
        page.evaluate(
            "minutes => { $ = document.getElementById('minutes').options[0]; $.textContent = $.value = minutes; }", str(minutes)
        )
        if not page.locator("#teach").evaluate("e => e.open"):
            page.click("#teach > summary")
        page.get_by_label("Text: paste it, or drop files here").fill(material)  # by the names that a screen reader says
        page.get_by_label("Begin with").select_option(begins)
        page.get_by_label("Minutes").select_option(str(minutes))
        page.get_by_role("button", name="Teach").press("Enter")
        return page

    yield teach
    context.close()
    assert problems == []


def finish(page) -> str:
    """What the page says of a lesson that has ended."""
    page.locator("#learn", has_text="Teach").wait_for(timeout=60_000)
    page.locator("#status", has_text="a second").wait_for()
    return page.text_content("#lesson")


def kept(page, tmp_path):
    """The model that the page keeps, as a run."""
    with page.expect_download() as download:
        page.get_by_role("button", name="Keep the model").press("Enter")
    path = tmp_path / "kept.safetensors"
    download.value.save_as(path)
    return load_model(str(path), tmp_path, device="cpu")[0]


def greedy(page, length: int) -> str:
    """What the page continues "The " with at temperature 0."""
    page.fill("#prompt", "The ")
    page.locator("#temperature").evaluate("e => { e.value = 0; e.dispatchEvent(new Event('input')); }")
    page.fill("#length", str(length))
    page.evaluate("document.getElementById('status').textContent = ''")
    page.click("#start")
    page.locator("#status", has_text="a second").wait_for()
    return "\n".join(page.locator(".line").evaluate_all("lines => lines.map(line => line.textContent)"))


def test_a_blank_page_learns_and_its_model_writes_the_same_in_python(teach, tmp_path):
    text = poem(300)
    page = teach(None, text)
    assert finish(page).startswith("Done. On text that it has not read, it is as unsure as if it chose among")
    loaded = kept(page, tmp_path)
    ids = loaded.tokenizer.encode(text).astype(np.uint8)
    assert loaded.val_loss == pytest.approx(evaluate(loaded.model, ids[int(0.9 * len(ids)) :]), abs=1e-4)
    assert loaded.val_loss < 1.6 and loaded.step > 0  # it has learned: a character of it has an entropy of 2.6
    assert loaded.generate("The ", temperature=0, length=60).rstrip("\n") == greedy(page, 60)
    html.write(loaded, tmp_path / "again.html", ExportOptions(name="again", texts=[]))  # a page again


def test_a_lesson_stops_goes_on_and_is_saved_with_the_page(teach, tmp_path):
    page = teach(None, poem(200), minutes=0.5)
    page.locator("#pace", has_text="a second").wait_for(timeout=60_000)
    page.click("#learn")
    assert finish(page).startswith("Stopped.") and page.is_visible("#resume")
    page.click("#resume")
    page.locator("#pace", has_text="a second").wait_for(timeout=60_000)
    page.click("#learn")
    finish(page)
    with page.expect_download() as download:
        page.click("#save")
    download.value.save_as(tmp_path / "saved.html")
    written = greedy(page, 40)
    page.reload()
    page.get_by_role("button", name="Go on with \u201cpasted text\u201d").press("Enter")
    page.locator("#status", has_text="a second").wait_for()
    assert greedy(page, 40) == written and page.is_visible("#keep")
    again = teach(None, poem(200, seed=2), begins="model", path=tmp_path / "saved.html")
    assert finish(again).startswith("Done.")
    elements = Elements((tmp_path / "saved.html").read_text(encoding="utf-8"))
    assert elements.tags.count("script") > 10 and written


def test_a_page_of_a_model_learns_characters_that_it_does_not_know(teach, tmp_path):
    loaded = new_model(tmp_path, VOCABULARIES["folded"], n_embd=32, n_head=2, positions="rotary", bias=True)
    page = teach(loaded, poem(60).replace("sea", "s\u00eaa \u4e2d"), begins="model")
    assert finish(page).startswith("Done.")
    vocabulary = kept(page, tmp_path).tokenizer
    assert set("\u00ea\u4e2dbT") < set(vocabulary.characters) and vocabulary.folded


def test_a_long_text_that_is_pasted_is_a_file(teach):
    page = teach(None, "")
    page.locator("#material").evaluate(
        """(field, text) => {
      const clipboardData = new DataTransfer();
      clipboardData.setData("text/plain", text);
      field.dispatchEvent(new ClipboardEvent("paste", { clipboardData, bubbles: true, cancelable: true }));
    }""",
        poem(800),
    )
    assert page.evaluate("[...document.getElementById('files').files].map(file => file.name)") == ["pasted text"]
    page.click("#learn")
    assert finish(page).startswith("Done.")


def test_a_file_that_is_gone_is_one_clear_line(teach, tmp_path):
    page, path = teach(None, ""), tmp_path / "gone.txt"
    path.write_text(poem(9), encoding="utf-8")
    page.set_input_files("#files", path)
    path.unlink()
    page.click("#learn")
    page.locator("#lesson", has_text="It could not learn: ").wait_for()


def test_a_short_text_is_one_clear_line_and_a_hostile_one_stays_text(teach, tmp_path):
    page = teach(None, "too short")
    page.locator("#lesson", has_text="It could not learn: the text has 10 characters, and 200 are needed").wait_for()
    (tmp_path / "hostile").mkdir()
    path = tmp_path / "hostile" / HOSTILE.replace("/", "\u2215")
    path.write_text((HOSTILE + "\n") * 40, encoding="utf-8")
    page.fill("#material", HOSTILE * 10)
    page.set_input_files("#files", path)
    page.click("#learn")
    finish(page)
    assert page.locator("img").count() == 0 and "onerror" in page.text_content("#practice")
    assert "\u202e" not in page.inner_text("body")
