"""The page shows every part of one run or of several, within 2 MB, without script, and hostile text as text."""

import base64
import dataclasses
import html
import io
import re

import numpy as np
import pytest
import torch
from PIL import Image
from scripts import Elements

from chargpt.analysis.copies import Novelty
from chargpt.analysis.measured_run import Effort, measure_run
from chargpt.commands.common import load_run
from chargpt.config import CheckpointConfig, OptimConfig
from chargpt.pages.report_page import (
    MAP_LEVELS,
    curves,
    differences,
    head_pictures,
    report_page,
    settings,
)
from chargpt.runs.metrics import MetricsLog
from chargpt.settings import Settings, Source
from chargpt.text.suffix_array import open_or_make_index

HEADINGS = ["Loss", "What it wrote", "What it was trained on", "What surprises it", "Which characters are hard to predict"]
PASSAGES = [(45, 2, "a sea"), (9, 31, "b")]
HEADINGS += ["What it copies", "What its heads look at", "Settings and machine"]
OWN = re.compile(r"data:image/png;base64,|#run-\d+(-\d+)?$")  # what the page may show and link to
HOSTILE = "</style></p><script>alert(1)</script><img src=//e.x>\x1b[31m\u202e'\"\0"
LOG = MetricsLog(
    curves={
        "val/loss": [(0, 4.0), (100, 2.0), (200, 1.5)],
        "train/loss": [(step, 4 - step / 80) for step in range(20, 201, 20)],
        "chars_per_second": [(step, 1000.0) for step in range(20, 201, 20)],
        "lr": [(step, 1e-3) for step in range(20, 201, 20)],
    },
    samples=[(0, "xq"), (100, "the se"), (200, "the sea")],
)


@pytest.fixture(scope="module")
def report(run, corpus):
    effort = Effort(characters=400, sample_length=60, sample_seconds=10)
    measured = measure_run(load_run(str(run), device="cpu"), corpus, index=open_or_make_index(corpus), effort=effort)
    return dataclasses.replace(measured, logs=[LOG])


def with_state(report, **changes):
    """The same report with changes of its state."""
    return dataclasses.replace(report, state=dataclasses.replace(report.state, **changes))


def loads(page: Elements) -> list[str]:
    """The values of attributes that load something, or that a policy without inline styles or scripts would ignore."""
    given = [pair for one in page.all for pair in one.attributes.items()]
    return [value for name, value in given if name in ("src", "href", "style") or name.startswith("on")]


def test_one_run_has_every_part(report):
    content = report_page([report])
    assert re.findall("<h2>(.*?)</h2>", content) == HEADINGS
    assert all(f'id="{target}"' in content for target in re.findall(r'href="#(.*?)"', content))
    assert "1.5000" in content and "step 200, loss 1.50" in content and "script-src 'none'" in content
    assert len(content.encode()) < 2e6
    page = Elements(content)
    assert loads(page) and all(map(OWN.match, loads(page))) and "script" not in page.tags


def test_several_runs_share_the_charts(report):
    other = dataclasses.replace(report, val_loss=0.5)  # of the same seed, so that it is no other one of a group
    content = report_page([report, other])
    assert len(re.findall("<h2>Loss</h2>", content)) == 1 and len(re.findall("<h2>What it wrote</h2>", content)) == 2
    first_chart = re.search("<svg.*?</svg>", content, re.DOTALL)[0]
    assert all(f"series-{i} {kind}" in first_chart for i in (0, 1) for kind in ("line", "faint"))
    best_first = ["run (2)", "run (1)"]  # two runs of one name
    assert re.findall(r"<h2>(run \(\d\))</h2>", content) == best_first
    assert re.findall(r"(run \(\d\))</a>", content) == 2 * best_first  # the rows of the table, and the samples below it
    assert [re.sub("<.*?>", "", cell) for cell in re.findall(r"<th><span.*?</th>", content)] in ([], best_first)
    assert all(f'id="{target}"' in content for target in re.findall(r'href="#(.*?)"', content))
    assert len(report_page([report] * 10).encode()) < 2e6


def test_the_table_of_runs_has_bits_and_the_usual_speed(report):
    log = MetricsLog(curves={"chars_per_second": [(1, 100.0), (2, 4000.0), (3, 2000.0)]})  # the first step is slow
    changed = dataclasses.replace(report, val_loss=1.5, ngram_loss=1.75, logs=[log], step=200)
    table = re.search('<table class="runs">(.*?)</table>', report_page([changed, changed]), re.DOTALL)[1]
    row = ["1.5000 (2.164)", "1.7500", f"{report.state.parameters:,}", "200 of 3,000", "2,000"]
    assert re.findall('<td class="number">(.*?)</td>', table) == 2 * row


def test_the_strong_line_is_the_validation_loss_and_the_pale_one_the_training_loss(report):
    for runs in ([report], [report, dataclasses.replace(report, name="other")]):
        for chart in curves([[run] for run in runs])[0]:
            titles = re.findall("<title>(.*?)</title>", chart)
            expected = [f"validation, step {step}: {loss:g}" for step, loss in LOG.curve("val/loss")]
            assert [title.split(", ", len(runs) - 1)[-1] for title in titles] == expected * len(runs)
            for kind, metric in (("line", "val/loss"), ("faint", "train/loss")):
                paths = re.findall(rf'class="series-\d {kind}" d="M(.*?)"', chart)
                assert [len(path.split("L")) for path in paths] == [len(LOG.curve(metric))] * len(runs)


def test_all_that_was_measured_has_a_row(report):
    passages = [dataclasses.replace(report.copies.passages[0], length=n, copies=c, content=t) for n, c, t in PASSAGES]
    copies = dataclasses.replace(report.copies, here=Novelty(45, {}), unseen=Novelty(27, {}), passages=passages)
    content = report_page([dataclasses.replace(report, copies=copies)])
    assert "<b>45 characters</b>; in as much text that the model has not read, 27." in content

    def rows(heading: str) -> list[list[str]]:
        table = re.search(f"<th[^>]*>{heading}</th>.*?</table>", content, re.DOTALL)[0]
        return [re.findall("<td[^>]*>(?:<span[^>]*>)?(.*?)(?:</span>)?</td>", row) for row in table.split("</tr>")[1:-1]]

    assert rows("length") == [["45", "2", "a sea"], ["9", "31", "b"]]
    confused = [
        (row.character, row.prediction, f"{row.times}", f"{row.share_of_mistakes:.1%}") for row in report.losses.confused
    ]
    assert [tuple(map(html.unescape, row)) for row in rows("text has")] == confused and len(confused) > 1
    bars = [row.name for row in report.losses.classes] + [f"{row.loss:.2f}" for row in report.losses.positions]
    assert all(f">{html.escape(bar)}" in content for bar in bars)
    scored = re.findall(r'<span class="loss">([\d.]+)</span>', content)
    assert scored == [f"{line.mean:.2f}" for line in [*report.worst, *report.best]]
    names = [key for _, rows in settings(report) for key, _ in rows]
    assert re.findall("<dt>(.*?)</dt>", content.split('<div class="settings">')[1]) == names
    assert len(re.findall("<img alt", content)) == report.heads.weights.shape[0] * report.heads.weights.shape[1]


def test_the_settings_that_differ_are_a_table(report):
    config = dataclasses.replace(report.state.config, checkpoint=CheckpointConfig(interval=7))
    other = with_state(report, settings=Settings(config))
    assert differences([report, other]) == []  # what the program set, and what decides nothing
    config = dataclasses.replace(
        config, optim=OptimConfig(learning_rate=0.125), model=dataclasses.replace(config.model, n_layer=3)
    )
    sources = {"optim.learning_rate": Source.USER, "checkpoint.interval": Source.USER}
    other = with_state(report, settings=Settings(config, sources))
    rows = differences([report, other])
    assert rows[:2] == [("optim.learning_rate", ["0.003", "0.125"]), ("checkpoint.interval", ["500", "7"])]
    assert rows[2:] == [("model.n_layer", ["1", "3"])]
    other = dataclasses.replace(other, val_loss=9.0)
    assert "<tr><th>optim.learning_rate</th><td>0.003</td><td>0.125</td></tr>" in report_page([other, report])
    other = with_state(other, texts=["/home/me/<other>.txt"], fingerprint="1" * 64)
    assert differences([report, other])[0][1][1] == "<other>.txt"
    assert differences([report, report]) == [] and "All settings are equal" in report_page([report, report])
    assert ("cannot be compared" in report_page([report, other])) and "cannot be compared" not in report_page([report, report])


def test_hostile_text_stays_text(report):
    plain = Elements(report_page([report]))
    log = MetricsLog(curves=LOG.curves, samples=[(0, HOSTILE), (200, HOSTILE)])
    passages = [dataclasses.replace(passage, content=HOSTILE) for passage in report.copies.passages]
    copies = dataclasses.replace(report.copies, texts=[HOSTILE], passages=passages)
    confused = [dataclasses.replace(row, character=HOSTILE, prediction=HOSTILE) for row in report.losses.confused]
    lines = [dataclasses.replace(line, text=HOSTILE.ljust(len(line.text))[: len(line.text)]) for line in report.worst]
    hostile = dataclasses.replace(
        report,
        **dict.fromkeys(("name", "excerpt", "engine"), HOSTILE),
        **dict.fromkeys(("worst", "best", "opening"), lines),
        missing=[HOSTILE],
        state=dataclasses.replace(report.state, texts=[HOSTILE], environment={HOSTILE: HOSTILE}),
        logs=[log],
        copies=copies,
        losses=dataclasses.replace(report.losses, confused=confused),
        heads=dataclasses.replace(report.heads, characters=HOSTILE),
    )
    for content in (report_page([hostile]), report_page([hostile, hostile])):
        found = Elements(content)
        assert {*found.tags} <= {*plain.tags} and all(map(OWN.match, loads(found)))
        assert not re.search("[\0-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u206f]", content)


def test_each_model_of_a_run_has_its_curve_and_the_rest_is_about_the_last_one(report):
    later = [(200 + step, loss / 2) for step, loss in LOG.curve("val/loss")]
    second = MetricsLog(stage=2, curves={"val/loss": later}, samples=[(200, "ab"), (400, "abc")])
    progress = dataclasses.replace(report.state.progress, first_step=200, best_sample="")
    stage = dataclasses.replace(report.state.stage, number=2)
    staged = dataclasses.replace(with_state(report, stage=stage, progress=progress), logs=[LOG, second], step=200)
    assert staged.log.curve("val/loss") == [(0, 2.0), (100, 1.0), (200, 0.75)] and staged.log.samples[-1] == (200, "abc")
    content = report_page([staged])
    assert all(f"model {stage}, validation" in content for stage in (1, 2)) and "abc" in content


def test_a_run_that_logged_nothing_has_a_page(report):
    bare = dataclasses.replace(
        report, logs=[MetricsLog()], losses=None, copies=None, heads=None, ngram_loss=None, missing=["reason"]
    )
    content = report_page([bare])
    assert "Nothing was logged" in content and "Not shown: reason" in content


def test_it_fits_a_phone(report, browser, tmp_path):
    long = "a long name without a space ".replace(" ", "") * 20
    hostile = with_state(report, environment={long: long}, texts=[long])
    hostile = dataclasses.replace(hostile, name=long, missing=[long], excerpt=long)
    (tmp_path / "page.html").write_text(report_page([report, hostile]), encoding="utf-8")
    page = browser.new_page(viewport={"width": 360, "height": 740}, color_scheme="dark")
    problems = []
    page.on("console", lambda message: problems.append(message.text))
    page.goto((tmp_path / "page.html").as_uri())
    assert page.evaluate("document.documentElement.scrollWidth") == 360 and problems == []


# Pictures of heads


def opacity(url: str) -> np.ndarray:
    picture = Image.open(io.BytesIO(base64.b64decode(url.removeprefix("data:image/png;base64,"))))
    return np.asarray(picture.convert("RGBA"))[..., 3] / 255


def test_opacity_is_the_root_of_the_weight():
    torch.manual_seed(0)
    weights = torch.randn(2, 3, 20, 20).tril().masked_fill(torch.ones(20, 20).triu(1).bool(), -torch.inf).softmax(dim=-1)
    pictures = head_pictures(weights, most_bytes=10**6)
    assert [len(layer) for layer in pictures] == [3, 3]
    for layer in range(2):
        for head in range(3):
            assert np.abs(opacity(pictures[layer][head]) - weights[layer, head].sqrt().numpy()).max() <= 0.51 / (MAP_LEVELS - 1)


def test_pictures_shrink_until_they_fit():
    weights = torch.rand(2, 2, 100, 100)
    whole = head_pictures(weights, most_bytes=10**6)
    smaller = head_pictures(weights, most_bytes=sum(len(url) for layer in whole for url in layer) - 1)
    assert opacity(whole[0][0]).shape == (100, 100) and opacity(smaller[0][0]).shape == (64, 64)
    assert head_pictures(weights, most_bytes=10) == []
