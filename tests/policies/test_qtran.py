"""QTRAN: one update on whole episodes against NumPy, and the game that QMIX cannot solve."""

import numpy as np
import pytest
from fakes import discrete
from team_values import (
    ONE_STEP,
    SMALL,
    SPACE,
    JointEpisode,
    TeamTests,
    matrix_game,
    np_joint,
    team_benches,
)

pytestmark = pytest.mark.eager

SIZES = {"policy.model.joint_hidden": [6], "policy.model.memory": "none"}
CONTRACT = {"qtran": (SPACE, discrete(3), {**SMALL, **SIZES, "policy.learn.target.freq": 4})}
# Its parts are those of QMIX, which is resumed.
RESUMES = {}
ALTERNATIVES = ("policy.learn.target.kind=soft",)
BEST, OTHER = 0.5, 2.0


built, bench = team_benches(
    "qtran",
    learn={"grad_norm": 0.0, "gamma": 0.9, "td_lambda": 0.7, "best_weight": BEST, "other_weight": OTHER},
    **SIZES,
)


class TestUpdate(TeamTests):
    parts = 3
    # That of WQMIX has the same family.
    test_places_behind_the_end_of_an_episode_change_no_bit_of_the_loss = None

    def errors(self, own, fixed, episode):
        each, constant = (JointEpisode(p, fixed, episode, self.rows, self.settings) for p in (own, fixed))
        more = np_joint(own, "mixer.state_value", episode.state)
        best = each.best.sum(1) - constant.joint_best + more
        other = np.minimum((episode.there * episode.done).sum(1) - constant.joint + more, 0.0)
        errors = each.joint - each.target, np.sqrt(BEST) * best, np.sqrt(OTHER) * other
        return np.stack(errors), np.ones((3, episode.length))


@pytest.mark.shared_graphs
@pytest.mark.slow
def test_the_matrix_game_is_solved(tmp_path):
    assert matrix_game("qtran", tmp_path, ONE_STEP) == 8.0
