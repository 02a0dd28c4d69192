"""QMIX: one update on whole episodes against NumPy, its mixer, and the game that tells it from VDN."""

import numpy as np
import pytest
from action_values import linear
from fakes import discrete, needs_kernels
from numeric import value
from team_values import AGENTS, LEARNS, SMALL, SPACE, TeamTests, lambda_returns, matrix_game, team_benches
from team_values import RESUMES as SETTINGS

from minding.engine.process.runtime import ms, to_device
from minding.policies.networks.fused import fuse_layers, plain_layers
from minding.policies.networks.team_networks import MonotonicMixer

pytestmark = pytest.mark.eager

MIXER = {"policy.model.mixer_dim": 4, "policy.model.hypernet_dim": 6}
CONTRACT = {"qmix": (SPACE, discrete(3), {**SMALL, **MIXER, "policy.learn.target.freq": 4})}
RESUMES = {"QMIX": ("agent_worlds:Parts", (*SETTINGS, "policy.model.mixer_dim=8"))}
ALTERNATIVES = ("policy.learn.target.kind=soft",)
__all__ = ["LEARNS"]

built, bench = team_benches("qmix", learn={"grad_norm": 0.0, "gamma": 0.9, "td_lambda": 0.7}, **MIXER)


def np_mix(p, part, q, state):
    hidden = [np.maximum(linear(p, f"{part}.hidden.{k}.layers.0", state.astype(np.float64)), 0.0) for k in range(3)]
    weight1 = np.abs(linear(p, f"{part}.weight1", hidden[0])).reshape(len(q), AGENTS, -1)
    weight2 = np.abs(linear(p, f"{part}.weight2", hidden[1]))
    mixed = np.einsum("bm,bme->be", q, weight1) + linear(p, f"{part}.bias1", state)
    return (np.where(mixed > 0, mixed, np.expm1(mixed)) * weight2).sum(1) + linear(p, f"{part}.bias2", hidden[2])[:, 0]


class TestUpdate(TeamTests):
    def errors(self, own, fixed, episode):
        value = np_mix(own, "mixer", episode.there * episode.done, episode.state)
        following = np_mix(fixed, "target_mixer", episode.there_then * episode.best, episode.state_then)
        return value - lambda_returns(episode.reward, episode.decay, following, 0.7), np.ones(episode.length)


@pytest.mark.parametrize("form", [pytest.param(fuse_layers, marks=needs_kernels), plain_layers])
def test_the_value_of_the_team_never_falls_with_that_of_an_agent(bench, form):
    policy = bench.policy
    rng = np.random.default_rng(0)
    smallest, largest = [], []
    for seed in range(5):
        mixer = MonotonicMixer(policy.spec, policy.cfg.model, np.random.default_rng(seed))
        for p in mixer.get_parameters():
            p.asnumpy()[...] = 2.0 * rng.standard_normal(p.shape)
        form(mixer)
        q, state = (rng.normal(0.0, 3.0, (200, size)).astype(np.float32) for size in (AGENTS, 2))
        slope = value(ms.grad(lambda q, s, mixer=mixer: mixer(q, (s,)).sum())(to_device(q), to_device(state)))
        smallest.append(slope.min())
        largest.append(slope.max())
    assert min(smallest) >= 0.0
    assert max(largest) > 1.0


@pytest.mark.shared_graphs
@pytest.mark.slow
def test_the_two_step_game_is_solved():
    # The sum of two values cannot tell what both do from what one does: see the test of VDN.
    assert matrix_game("qmix") == 8.0
