"""What is typed means what is stored, whichever of Unicode's forms either is in."""

import unicodedata
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from text_helpers import text_of, write

from chargpt.canonical import canonical, known_form, path_on_disk, stored_as
from chargpt.config import DataConfig
from chargpt.runs.load import places_of
from chargpt.text.corpus import load_corpus
from chargpt.text.tokenizer import Tokenizer

LETTERS = st.text("abộéçñü한글が й\n", min_size=1, max_size=20)
FORM = st.sampled_from(["NFC", "NFD"])


@given(LETTERS, FORM, FORM)
def test_a_prompt_has_the_ids_of_the_text_in_whatever_form_it_is_typed(text, stored, typed):
    text = unicodedata.normalize(stored, text)
    tokenizer = Tokenizer("".join(sorted({*text})))
    assert tokenizer.decode(tokenizer.encode(unicodedata.normalize(typed, text))) == text
    assert not tokenizer.encode_known(unicodedata.normalize(typed, text))[1]


@given(LETTERS, LETTERS)
def test_a_text_that_is_known_as_it_is_typed_stays_and_any_other_stays_equivalent(text, known):
    assert known_form(text, frozenset(text + known)) == text
    assert canonical(known_form(text, frozenset(known))) == canonical(text)


@given(st.lists(LETTERS, min_size=1), FORM, FORM, st.randoms())
def test_what_is_stored_is_found_in_any_form(names, stored, typed, random):
    names = [unicodedata.normalize(stored, name) for name in names]
    one = random.choice(names)
    assert stored_as(unicodedata.normalize(typed, one), names) == one
    assert stored_as("Zz", names) == "Zz"


@settings(max_examples=20)
@given(st.lists(st.text("aéộ한", min_size=1, max_size=5), min_size=1, max_size=3), FORM, FORM)
def test_files_and_runs_are_found_by_their_names_in_any_form(tmp_path, parts, stored, typed):
    tmp_path = tmp_path / f"{len([*tmp_path.iterdir()])}"
    path = tmp_path.joinpath(*(unicodedata.normalize(stored, part) for part in parts), "x.txt")
    write(path, "text")
    assert path.samefile(path_on_disk(unicodedata.normalize(typed, str(path))))
    (tmp_path / "runs" / path.parent.name / "step-00000001").mkdir(parents=True, exist_ok=True)
    places = places_of(unicodedata.normalize(typed, path.parent.name), tmp_path / "runs")
    assert any(place.is_dir() for place in places)


@pytest.mark.parametrize("form", ["NFC", "NFD"])
def test_a_column_its_value_and_a_pattern_are_found_in_any_form(form, tmp_path):
    normalized = unicodedata.normalize
    table = "Größe,Rêve\n" + "né,eins ist da\nfou,zwei ist da\n" * 3
    write(tmp_path / normalized(form, "été") / "a.csv", normalized(form, table))
    for typed in ("NFC", "NFD"):
        asked = {"field": "Rêve", "where": "Größe=né", "pattern": "*.csv"}
        config = DataConfig(
            format="fields", cache=str(tmp_path / "c"), **{key: normalized(typed, one) for key, one in asked.items()}
        )
        corpus = load_corpus([normalized(typed, str(tmp_path / "été"))], config, root=tmp_path, block_size=1)
        assert text_of(corpus) == "eins ist da\n" * 2 + "eins ist da"


@settings(max_examples=20)
@given(st.lists(st.tuples(st.sampled_from(["été", "Märchen"]), FORM), min_size=4, max_size=12), FORM, st.booleans())
def test_labels_that_differ_by_their_form_are_one_and_a_pattern_finds_both(tmp_path, labels, typed, is_pattern):
    """In a column, or in the items."""
    names = [unicodedata.normalize(form, name) for name, form in labels]
    rows = [f"{name},{'abcdefghijkl'[n]} {name}" for n, name in enumerate(names)]
    path = write(tmp_path / f"{len([*tmp_path.iterdir()])}.csv", "\n".join(["label,item", *rows]))
    label = "re:(Märchen|été)" if is_pattern else "label"
    asked = {"items": "item", "format": "fields", "label": unicodedata.normalize(typed, label), "cache": str(tmp_path / "c")}
    corpus = load_corpus([str(path)], DataConfig(**asked), root=tmp_path, block_size=1)
    assert corpus.items is not None
    assert sorted(corpus.items.labels.values()) == sorted(Counter(name for name, _ in labels).values())
