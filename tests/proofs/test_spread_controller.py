"""The two ends of the scale on which agents of simple_spread are measured."""

import numpy as np
import pytest

from proofs.spread_controller import controller, mean_return, random_play

pytest.importorskip("mpe2", reason="needs the extra 'mpe'")


def test_the_nearest_pair_goes_first_and_brakes():
    seen = np.zeros((1, 3, 18))
    # From agent to landmark: 0 is nearest to landmark 1, left of it; of the rest, 2 is nearest to 0, above it.
    seen[0, :, 4:10] = [[0.9, 0.9, -0.2, 0.1, 2, 2], [3, 3, 0.3, 0.3, -0.5, 1.0], [0.1, 0.4, 0.5, 0, 2, 2]]
    assert controller(seen).tolist() == [[1, 4, 4]]
    seen[0, 0, 0] = -1.0  # so fast to the left that it would pass the landmark
    assert controller(seen)[0, 0] == 2


def test_the_controller_is_far_better_than_random_play():
    rng = np.random.default_rng(0)
    random, _ = mean_return(lambda seen: random_play(rng, seen), 16)
    assert mean_return(controller, 16)[0] > random + 25
