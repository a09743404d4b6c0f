"""Random values of each sampling rule: numbers that its option takes."""

from functools import partial

from hypothesis import strategies as st

from chargpt.errors import UserError
from chargpt.sampling.options import LARGEST, SMALLEST, SamplingOptions

SPECIAL = st.sampled_from([0, 1.5, 4, 10**17, SMALLEST, LARGEST])
NUMBERS = st.just(1) | st.floats(0.05, 1) | st.integers(2, 12) | SPECIAL


def is_taken(name: str, value: float) -> bool:
    try:
        return SamplingOptions(**{name: value}) is not None
    except UserError:
        return False


VALUES = {name: NUMBERS.filter(partial(is_taken, name)) for name in SamplingOptions().rules()}
