"""Independent Q-learning: one update on whole episodes against NumPy, and what an agent remembers of itself."""

import numpy as np
import pytest
from fakes import discrete
from team_values import ACTIONS, AGENTS, SEEN, SMALL, SPACE, TeamTests, lambda_returns, team_benches
from treevalue import FastTreeValue

pytestmark = pytest.mark.eager

KEPT = 10
"""Numbers that an LSTM of 5 units remembers."""
CONTRACT = {"idqn": (SPACE, discrete(3), {**SMALL, "policy.learn.target.freq": 4, "policy.model.normalize_obs": True})}
RESUMES = {}
"""QMIX's has its agents, and a mixer beside them."""
ALTERNATIVES = ("policy.learn.target.kind=soft",)

built, bench = team_benches(
    "idqn", learn={"grad_norm": 0.0, "gamma": 0.9, "td_lambda": 0.7}, **{"policy.model.memory": "lstm"}
)


class TestUpdate(TeamTests):
    def errors(self, own, fixed, episode):
        reward = np.broadcast_to(episode.reward.reshape(episode.length, -1), episode.best.shape)
        decay = episode.decay[:, None] * episode.there_then
        return episode.done - lambda_returns(reward, decay, episode.best, 0.7), episode.there


def test_an_agent_remembers_what_it_saw_and_did_and_who_it_is(bench):
    policy, rng, mode = bench.policy, np.random.default_rng(0), bench.policy.collect_mode
    mode.reset()
    remembered = np.zeros((4, AGENTS, KEPT + ACTIONS), np.float32)
    network = policy.net.host()
    for _ in range(3):
        seen = rng.standard_normal((4, AGENTS, SEEN)).astype(np.float32)
        mask = np.ones((4, AGENTS, ACTIONS), bool)
        mask[..., 1] = False
        obs = FastTreeValue({"observation": seen, "action_mask": mask, "alive": np.ones((4, AGENTS), bool)})
        record = mode.forward(obs, eps=0.7)
        np.testing.assert_allclose(record["memory"], remembered, atol=1e-6)
        assert not (record["action"] == 1).any()
        agent = np.tile(np.arange(AGENTS), 4)
        leaves = (mask.reshape(-1, ACTIONS), agent, seen.reshape(-1, SEEN), remembered.reshape(4 * AGENTS, -1))
        q, rows = network(leaves)
        greedy = q.argmax(1).reshape(4, AGENTS)
        assert np.array_equal(rows.reshape(4, AGENTS, -1)[..., KEPT:].argmax(-1), greedy)
        remembered = np.concatenate([rows.reshape(4, AGENTS, -1)[..., :KEPT], np.eye(ACTIONS)[record["action"]]], -1)
        remembered = remembered.astype(np.float32)
        np.testing.assert_allclose(mode.memory, remembered, atol=1e-6)
    assert (record["action"] != greedy).any()
    mode.reset(np.array([2]))
    assert not mode.memory[2].any()
    assert mode.memory[[0, 1, 3]].any(axis=(1, 2)).all()
