"""QTRAN: one update on whole episodes against NumPy, in both forms, and the game that QMIX cannot solve."""

import numpy as np
import pytest
import team_values as team
from fakes import discrete
from kit import each_of

pytestmark = pytest.mark.eager

SIZES = {"policy.model.joint_hidden": [6], "policy.model.memory": "none"}
CONTRACT = {"qtran": (team.SPACE, discrete(3), {**team.SMALL, **SIZES, "policy.learn.target.freq": 4})}
# Its parts are those of QMIX, which is resumed.
RESUMES = {}
ALTERNATIVES = ("policy.learn.counterfactual=true", "policy.learn.target.kind=soft")
BEST, OTHER = 0.5, 2.0
KINDS = {"counterfactual": {"learn": {"counterfactual": True}}, "base": {}}

built, _ = team.team_benches(
    "qtran",
    kinds=KINDS,
    learn={"grad_norm": 0.0, "gamma": 0.9, "td_lambda": 0.7, "best_weight": BEST, "other_weight": OTHER},
    **SIZES,
)

bench = each_of(KINDS)


class TestUpdate(team.TeamTests):
    parts = 3

    def errors(self, own, fixed, episode):
        each, constant = (team.JointEpisode(p, fixed, episode, self.rows, self.settings) for p in (own, fixed))
        there, more = episode.there, team.np_joint(own, "mixer.state_value", episode.state)
        best = each.best.sum(1) - constant.joint_best + more
        done = there * episode.done
        if self.settings.counterfactual:
            # The sum of the agents' values, in which one agent takes each of its legal actions.
            total = done.sum(1)[:, None, None] - done[..., None] + each.q[:-1]
            joint = [[constant.if_one_had_done(m, a) for a in range(team.ACTIONS)] for m in range(team.AGENTS)]
            gaps = total - np.moveaxis(joint, -1, 0) + more[:, None, None]
            gaps[each.q[:-1] < -1e29] = np.inf
            other = np.sqrt((there * np.square(gaps.min(-1))).mean(-1))
        else:
            other = np.minimum(done.sum(1) - constant.joint + more, 0.0)
        errors = each.joint - each.target, np.sqrt(BEST) * best, np.sqrt(OTHER) * other
        return np.stack(errors), np.ones((3, episode.length))


@pytest.mark.shared_graphs
@pytest.mark.slow
def test_the_matrix_game_is_solved():
    assert team.matrix_game("qtran", team.ONE_STEP) == 8.0
