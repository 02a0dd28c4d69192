"""WQMIX: one update on whole episodes against NumPy, with both weightings, and the game that QMIX cannot solve."""

import numpy as np
import pytest
from fakes import discrete
from kit import each_of
from team_values import ONE_STEP, SMALL, SPACE, JointEpisode, TeamTests, matrix_game, team_benches
from test_qmix import MIXER, np_mix

pytestmark = pytest.mark.eager

SIZES = {**MIXER, "policy.model.joint_hidden": [6], "policy.model.memory": "none"}
CONTRACT = {"wqmix": (SPACE, discrete(3), {**SMALL, **SIZES, "policy.learn.target.freq": 4})}
# Its parts are those of QMIX, which is resumed.
RESUMES = {}
ALTERNATIVES = ("policy.learn.weighting=central", "policy.learn.target.kind=soft")
ALPHA = 0.25
KINDS = {"optimistic": {}, "central": {"learn": {"weighting": "central", "double": False}}}

built, _ = team_benches(
    "wqmix", kinds=KINDS, learn={"grad_norm": 0.0, "gamma": 0.9, "td_lambda": 0.7, "error_weight": ALPHA}, **SIZES
)

bench = each_of(KINDS)


class TestUpdate(TeamTests):
    parts = 2

    def errors(self, own, fixed, episode):
        each, constant = (JointEpisode(p, fixed, episode, self.rows, self.settings) for p in (own, fixed))
        error = np_mix(own, "mixer.monotonic", episode.there * episode.done, episode.state) - each.target
        counted = error < 0.0
        if self.settings.weighting == "central":
            counted = constant.is_best | (constant.target > constant.joint_best)
        weight = np.where(counted, 1.0, ALPHA)
        return np.stack([np.sqrt(weight) * error, each.joint - each.target]), np.ones((2, episode.length))


@pytest.mark.shared_graphs
@pytest.mark.slow
def test_the_matrix_game_is_solved():
    assert matrix_game("wqmix", ONE_STEP) == 8.0
