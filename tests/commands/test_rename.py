"""A run gets another name or a second one like it, and nothing that is typed is guessed to mean its end."""

import pytest
from helpers import publish_run

from chargpt.__main__ import main
from chargpt.commands.rename import TITLE
from chargpt.commands.verbs import DESTRUCTIVE, VERBS
from chargpt.errors import UserError
from chargpt.runs.run import lock_run


@pytest.fixture
def poems(installed):
    """A run with a page that names it, as the end of a training writes it."""
    folder = publish_run(installed / "checkpoints" / "poems&co", steps=(0, 10))
    (folder / "report.html").write_text(f"<title>{TITLE.format('poems&amp;co')}</title>poems&amp;co of a poet")
    return folder


def content(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("step-*/*")}


@pytest.mark.parametrize("verb", ["rename", "copy"])
@pytest.mark.parametrize("new", ["lion", "elsewhere/b", "elsewhere/a/new/b"])
def test_it_has_the_new_name_everywhere_and_the_same_checkpoints(verb, new, poems, installed, capsys):
    (installed / "elsewhere").mkdir()
    before, target = content(poems), installed / ("checkpoints/lion" if new == "lion" else new)
    assert main([verb, "poems&co", new]) == 0 and content(target) == before
    assert poems.exists() == (verb == "copy") and not (target / ".lock").exists()
    assert (target / "report.html").read_text() == f"<title>{TITLE.format(target.name)}</title>poems&amp;co of a poet"
    assert f"-> {target.relative_to(installed)}; its name is {new}" in capsys.readouterr().out


@pytest.mark.parametrize("verb", ["rename", "copy"])
def test_a_name_that_is_taken_or_no_name_and_a_run_in_training(verb, poems, installed):
    publish_run(installed / "checkpoints" / "other")
    for new, says in (("other", "other: exists; give a name that is not taken"), (" x", "Windows, a shell or this program")):
        with pytest.raises(UserError, match=says):
            main([verb, "poems&co", new])
    with lock_run(poems):
        for new in ("lion", "./lion")[verb == "rename" :]:  # a training would not find its run in another folder
            with pytest.raises(UserError, match="another process is training this run"):
                main([verb, "poems&co", new])
        if verb == "rename":  # the training goes on under the new name
            assert main([verb, "poems&co", "lion"]) == 0


def typos(word: str) -> list[str]:
    """The words with a letter less, more or other, or two letters in each other's place."""
    cuts = [(word[:i], word[i:]) for i in range(len(word) + 1)]
    fewer, swapped = [a + b[1:] for a, b in cuts if b], [a + b[1] + b[0] + b[2:] for a, b in cuts if b[1:]]
    return [*fewer, *swapped, *(a + c + b[other:] for a, b in cuts for c in "aemtv" for other in (0, 1))]


def test_no_destructive_verb_is_ever_a_guess():
    for typed in {*typos("remove"), *typos("rename"), *typos("resume"), *typos("delete")} - {*VERBS}:
        if typed in ("delete", "del", "rm", "clean", ""):  # known words
            continue
        with pytest.raises(UserError) as error:
            main([typed])
        assert not any(f"did you mean {verb}" in str(error.value) for verb in DESTRUCTIVE), typed
