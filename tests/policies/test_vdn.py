"""VDN: one update on whole episodes against NumPy, and the game that it cannot solve."""

import numpy as np
import pytest
from fakes import discrete
from team_values import SMALL, SPACE, TeamTests, matrix_game, team_benches

pytestmark = pytest.mark.eager

FORGETS = {"policy.model.memory": "none"}
CONTRACT = {"vdn": (SPACE, discrete(3), {**SMALL, **FORGETS, "policy.learn.target.freq": 4})}
# Its state is that of IDQN, and a part of that of QMIX, which are resumed.
RESUMES = {}
ALTERNATIVES = ("policy.learn.target.kind=soft",)

built, bench = team_benches("vdn", learn={"grad_norm": 0.0, "gamma": 0.9, "double": False, "td_lambda": 0.0}, **FORGETS)


class TestUpdate(TeamTests):
    def errors(self, own, fixed, episode):
        value, following = (episode.there * episode.done).sum(1), (episode.there_then * episode.best).sum(1)
        return value - (episode.reward + episode.decay * following), np.ones(episode.length)


@pytest.mark.shared_graphs
@pytest.mark.slow
def test_the_two_step_game_is_not_solved():
    # Its best fit of 0, 1, 1 and 8 is 6.5 where both choose 1: it goes where 7 is.
    assert matrix_game("vdn") == 7.0
