"""Of what a model and n-grams say of a label, as much counts as makes the labels of held-out items most likely."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from chargpt.analysis.item_facts import SHARES, _chances, _shares


@given(st.integers(0, 2**32), st.sampled_from(SHARES[1:]), st.booleans())
def test_what_knows_nothing_of_the_labels_counts_little_and_what_is_too_sure_is_calibrated(seed, wanted, is_first):
    draw = np.random.default_rng(seed)
    knows, noise = draw.normal(size=(2, 600, 4)) * 3
    prior = np.log([0.4, 0.3, 0.2, 0.1])
    labels = [int(draw.choice(4, p=row / row.sum())) for row in _chances(prior + wanted * knows)]
    found = [knows, noise] if is_first else [noise, knows]
    shares = _shares(found, prior, dict(enumerate(labels)))
    places = [SHARES.index(share) for share in shares[:: 1 if is_first else -1]]
    order = sorted(SHARES)
    assert abs(order.index(SHARES[places[0]]) - order.index(wanted)) <= 1 and SHARES[places[1]] <= 0.1
    assert _shares(found, prior, {}) == (SHARES[0], SHARES[0])
