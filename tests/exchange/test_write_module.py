"""docs/write.mjs writes what the library writes, with the model of an exported page, and nothing else is needed."""

import json
import subprocess
from pathlib import Path

import pytest
from helpers import SHAPE, TOKENIZER, publish_run
from scripts import needs_node

import chargpt
from chargpt.__main__ import main
from chargpt.config import Config, DataConfig, TrainConfig
from chargpt.text.normalization import TextNormalizer
from chargpt.text.tokenizer import Tokenizer

MODULE = Path(__file__).parents[2] / "docs" / "write.mjs"
RUN = """
import { readFile } from "node:fs/promises";
const { open } = await import(process.argv[2]);
const model = open(await readFile(process.argv[3], "utf8"));
console.log(JSON.stringify(JSON.parse(process.argv[4]).map(([method, options]) => model[method](options))));
"""


def written(page: Path, *calls: tuple[str, dict]) -> list[str]:
    script = page.with_name("run.mjs")
    script.write_text(RUN)
    command = ["node", str(script), MODULE.as_uri(), str(page), json.dumps(calls)]
    return json.loads(subprocess.run(command, capture_output=True, check=True, timeout=60).stdout)


@needs_node
@pytest.mark.parametrize(
    "tokenizer",
    [TOKENIZER, Tokenizer("\n abcdefgh中", normalizer=TextNormalizer(lowercase=True)), Tokenizer(None)],
    ids=["characters", "lower case", "bytes"],
)
def test_it_writes_the_text_of_the_library(tokenizer, tmp_path, capsys):
    run, page = publish_run(tmp_path / "run", tokenizer), tmp_path / "page.html"
    assert main(["export", str(run), "--to", "html", str(page), "--write-only"]) == 0
    options = [{"prompt": prompt, "length": 40, "temperature": 0} for prompt in ("abc", "", "a b\nc")]
    likeliest = written(page, *(("write", one) for one in options))
    model = chargpt.load(run)
    assert [one["prompt"] + text for one, text in zip(options, likeliest)] == [model.generate(**one) for one in options]
    same, again, other = written(page, *(("write", {"length": 60, "seed": seed}) for seed in (1, 1, 2)))
    assert same == again != other and len(same) >= 20
    (stopped,) = written(page, ("write", {"length": 60, "seed": 1, "stop": same[9:11]}))
    assert stopped == same[: same.index(same[9:11])]


@needs_node
def test_an_item_has_the_label_and_the_beginning_that_are_asked_for(tmp_path, capsys):
    config = Config(model=SHAPE, train=TrainConfig(batch_size=1), data=DataConfig(items="line", label="file"))
    run, page = publish_run(tmp_path / "run", Tokenizer("\t\n abcdefgh"), config=config), tmp_path / "page.html"
    assert main(["export", str(run), "--to", "html", str(page), "--write-only"]) == 0
    options = {"label": "c", "prompt": "ab", "temperature": 0, "length": 30}
    (item,) = written(page, ("item", options))
    (text,) = written(page, ("write", {"prompt": "\nc\tab", "temperature": 0, "length": 30}))
    assert item == "ab" + text.partition("\n")[0]


@needs_node
def test_what_is_no_page_and_a_model_without_items_are_named(tmp_path, capsys):
    run, page, other = publish_run(tmp_path / "run"), tmp_path / "page.html", tmp_path / "other.html"
    assert main(["export", str(run), "--to", "html", str(page), "--write-only"]) == 0
    other.write_text("<html></html>")
    for file, words in ((page, "writes no items"), (other, "no page that chargpt has exported")):
        with pytest.raises(subprocess.CalledProcessError) as failed:
            written(file, ("item", {"label": "c"}))
        assert words in failed.value.stderr.decode()
