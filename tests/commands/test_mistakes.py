"""A mistake in the options of a verb, or in what they name, is one line, and nothing is written."""

import os

import pytest

from chargpt.__main__ import main
from chargpt.errors import UserError

MISTAKES = [
    ("attention {run} --out {here}", "--out: .* which is a folder; give a file name, such as .*page.html"),
    ("attention {run} --out {here}/poems.txt", "poems.txt' given; the name of a page ends in .html"),
    ("attention {run} --out {here}/none/a.html", "its folder does not exist"),
    ("attention {run} {here}/none.txt", "none.txt"),
    ("attention {run} {here}/short.txt --text sea", "--text: given with the file .*leave one of them out"),
    ("attention {run} --start 5000", "needs two or more; use a smaller --start"),
    ("attention {run} {here}/empty.txt", "needs two or more; give a longer text"),
    ("attention {run} --device tpu", "--device: 'tpu' given"),
    ("export absent --to hf", "absent: no run of that name"),
    ("export {run}", "--to"),
    ("export {run} --to pdf", "invalid choice"),
    ("export {run} --to hf {here}/nowhere/out", "give a new name, in a folder that exists"),
    ("export {run} --to hf --weights int8", "works only with --to html"),
    ("import {here} --run x", "holds neither config.json nor ckpt.pt"),
    ("import {here}/absent --run x", "holds neither"),
    ("import {here} --run x --meta y", "holds no ckpt.pt of nanoGPT; leave it out"),
    ("import {here}", "--run"),
    ("import", "required"),
    ("import {here} --run x --rum y", "no such option"),
    ("report", "RUN"),
    ("report sonnets*", "no run matches"),
    ("score {run} {here}/short.txt --stride 17", "--stride: 17 given; use 16 or less, the characters the model reads at once"),
    ("score nothing {here}/short.txt", "no run of that name"),
    ("score {run} {here}/short.txt --top 2", "--top: given without"),
    ("score {run} {here}/short.txt data.field=body", "data.field: 'body' given"),
    ("score {run} {here}/empty.txt", "empty.txt: too short; give a text of two characters"),
    ("score {run} {here}/one.txt", "one.txt: too short; give a text of two characters"),
    ("score {run} nothing.txt", "no such file"),
    ("trace {run} {here}/none.txt", "none.txt"),
    ("trace {run} --temperature -1", "--temperature"),
    ("trace {run} {here}/empty.txt", "empty.txt: 0 characters; give a text"),
]


@pytest.mark.parametrize("words, problem", MISTAKES, ids=[words for words, _ in MISTAKES])
def test_a_mistake_is_one_line_and_writes_nothing(run, tmp_path, words, problem):
    for name, content in (("short", "The sea"), ("empty", ""), ("one", "s")):
        (tmp_path / f"{name}.txt").write_text(content)
    before = sorted(os.listdir(tmp_path))
    with pytest.raises(UserError, match=problem) as raised:
        main([word.format(run=run, here=tmp_path) for word in words.split()])
    assert "\n" not in str(raised.value) and sorted(os.listdir(tmp_path)) == before


@pytest.mark.parametrize("verb", ["score", "trace"])
def test_a_text_that_is_not_in_the_cache_is_one_line(run, corpus, verb):
    (run.parent / "cache" / corpus.fingerprint / "entry.json").unlink(missing_ok=True)
    with pytest.raises(UserError, match="is gone; .* prepare it again with python train.py --resume"):
        main([verb, str(run)])
