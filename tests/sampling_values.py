"""Random values of each sampling rule: numbers that its option takes."""

from functools import partial

from hypothesis import strategies as st

from chargpt.sampling.options import LARGEST, SMALLEST, SamplingOptions
from chargpt.terminal import UserError

NUMBERS = st.integers(0, 12) | st.floats(0.05, 1) | st.sampled_from([0, SMALLEST, 1, 1.5, 4, 1e6, 10**17, 1e30, LARGEST])


def is_taken(name: str, value: float) -> bool:
    try:
        return SamplingOptions(**{name: value}) is not None
    except UserError:
        return False


VALUES = {name: NUMBERS.filter(partial(is_taken, name)) for name in SamplingOptions().rules()}
