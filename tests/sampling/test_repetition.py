import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from chargpt.sampling import repetition
from chargpt.sampling.repetition import FREE, WINDOW, Repetition


def longest_repetition(text: list[int], token_id: int) -> int:
    """By definition: the length of the longest end of text + [id] that stands in `text` already."""
    whole = text + [token_id]
    ends = (whole[-n:] for n in range(len(text), 1, -1))
    return next((len(end) for end in ends if any(text[i : i + len(end)] == end for i in range(len(text) - len(end) + 1))), 0)


@given(st.lists(st.integers(0, 1), min_size=2, max_size=40))
@settings(max_examples=100, deadline=None)
def test_the_excess_is_what_the_longest_repetition_has_beyond_the_free_length(text):
    excess = Repetition(torch.tensor([text])).excess(3)
    assert excess.tolist() == [[max(0, longest_repetition(text, token_id) - FREE) for token_id in range(3)]]


def test_each_text_of_a_batch_is_looked_at_alone():
    prompts = torch.randint(2, (5, 400), generator=torch.Generator().manual_seed(0))
    together = Repetition(prompts).excess(2)
    assert together.tolist() == [Repetition(prompt.unsqueeze(0)).excess(2).tolist()[0] for prompt in prompts] and together.any()


def test_only_the_window_is_looked_at(monkeypatch):
    monkeypatch.setattr(repetition, "WINDOW", 40)
    passage = list(range(20))
    assert Repetition(torch.tensor([passage + [30] * 5 + passage[:12]])).excess(31)[0, 12] > 0
    assert Repetition(torch.tensor([passage + [30] * 25 + passage[:12]])).excess(31)[0, 12] == 0


def test_a_long_text_stays_within_the_window():
    looking = Repetition(torch.zeros(1, 3 * WINDOW, dtype=torch.long))
    looking.append(torch.tensor([0]))
    assert looking.ids.shape == looking.matched.shape == (1, WINDOW)


def test_the_penalty_begins_beyond_the_free_length():
    passage = list(range(FREE - 1))
    assert not Repetition(torch.tensor([passage + [50] + passage])).excess(60).any()  # with the 50 it would be just FREE long
    assert Repetition(torch.tensor([passage + [50] + passage + [50]])).excess(60).tolist()[0] == [1] + [0] * 59
