"""What a training takes in memory: each copy of the weights that is kept is counted."""

import itertools

import pytest

from chargpt.config import Config, OptimConfig
from chargpt.planning.memory import bytes_of_state, memory_needed


@pytest.mark.parametrize("parameters", [1000, 10**7])
def test_every_kept_copy_of_the_weights_is_counted(parameters):
    def needed(start: float, average: float) -> tuple[int, int]:
        config = Config(optim=OptimConfig(start_decay=start, average_fraction=average))
        return bytes_of_state(config, parameters), memory_needed(config, parameters=parameters, vocab_size=60)

    for number in (0, 1):
        found = {pair: needed(*pair)[number] for pair in itertools.product((0.0, 0.1), repeat=2)}
        copy = found[0.1, 0.0] - found[0.0, 0.0]
        assert copy == found[0.0, 0.1] - found[0.0, 0.0] == 4 * parameters
        assert found[0.1, 0.1] == found[0.0, 0.0] + 2 * copy
