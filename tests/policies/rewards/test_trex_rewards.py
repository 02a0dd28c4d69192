"""T-REX: pairs, loss and rewards against NumPy in float64, what it learns from ranks, and what it saves."""

import copy
import functools

import numpy as np
import pytest
import recordings
from fakes import discrete, space_of
from float64_networks import params

from minding.engine.data.rollout import Rollout
from minding.policies.rewards.trex import TREX

LENGTHS = np.array([7, 3, 9, 12, 5, 8])
"""Steps of the recorded episodes."""
RETURNS = np.array([2.0, 0.0, 2.0, 5.0, -1.0, 3.0])
SETTINGS = {
    "policy.other.trex.hidden": [8],
    "policy.other.trex.batch_size": 4,
    "policy.other.trex.n_update": 3,
    "policy.other.trex.length": 6,
    "policy.other.trex.learning_rate": 0.01,
}


@functools.cache
def dataset():
    """Episodes whose first number in observations is higher the better they are; the other ones are noise."""
    rng, made = np.random.default_rng(0), []
    for steps, total in zip(LENGTHS, RETURNS):
        obs, reward = rng.normal(0.0, 1.0, (steps + 1, 3)), np.zeros(steps)
        obs[:, 0] += total
        reward[-1] = total
        made.append(recordings.log(steps, rng.integers(0, 3, steps), obs=obs, reward=reward))
    return recordings.dataset(made, space_of(3), recordings.choices(3))


@pytest.fixture(scope="module")
def make(tiny_config):
    def made(**settings):
        cfg = tiny_config("trex", space_of(3), discrete(3), **{**SETTINGS, **settings})
        return TREX(cfg, dataset())

    return made


def rollout(first=0.0, seed=0):
    obs = np.random.default_rng(seed).normal(0.0, 1.0, (6, 2, 3)).astype(np.float32)
    obs[..., 0] += first
    none, zeros = np.zeros((5, 2), bool), np.zeros((5, 2), np.float32)
    action = np.zeros((5, 2), np.int64)
    return Rollout(obs[:5], obs[5], None, np.zeros((0, 2), np.int64), action, zeros, none, none, None, {})


def judged(p, obs):
    data = dataset().obs[""].astype(np.float64)
    x = np.clip((obs - data.mean(axis=0)) / data.std(axis=0), -5.0, 5.0)
    hidden = np.tanh(x @ p["net.body.layers.0.weight"].T + p["net.body.layers.0.bias"])
    return hidden @ p["net.head.weight"][0] + p["net.head.bias"][0]


def test_pairs_are_uniform_and_of_equal_length(make):
    model = make()
    worse, better = model._pairs((4000, 1))
    assert (RETURNS[worse] < RETURNS[better]).all()
    pairs, counts = np.unique(np.concatenate([worse, better], axis=1), axis=0, return_counts=True)
    # Fifteen pairs of six episodes, without the one of equal returns.
    assert len(pairs) == 14
    assert np.abs(counts - 4000 / 14).max() < 5 * np.sqrt(4000 / 14)
    index, within = (x.reshape(50, 2, 4, 6) for x in model._parts(50))
    number = np.searchsorted(LENGTHS.cumsum() - 1, index)
    for step in np.ndindex(50, 4):
        rows = [index[step[0], side, step[1]][within[step[0], side, step[1]] > 0] for side in (0, 1)]
        of = [np.unique(number[step[0], side, step[1]][within[step[0], side, step[1]] > 0]) for side in (0, 1)]
        assert len(of[0]) == len(of[1]) == 1
        length = min(6, LENGTHS[of[0][0]], LENGTHS[of[1][0]])
        assert all(len(each) == length and (np.diff(each) == 1).all() for each in rows)


@pytest.mark.parametrize("output", ["sigmoid", "standardized"])
def test_loss_and_rewards_are_those_of_the_formula(make, output, monkeypatch):
    model = make(**{"policy.other.trex.n_update": 1, "policy.other.trex.output": output})
    before, told, update = params(model), [], model._update
    monkeypatch.setattr(model, "_update", lambda *args: (told.append(args), update(*args))[1])
    found = model.estimate(rollout())
    (batch, inputs), data = told[0], dataset().obs[""]
    sums = (judged(before, data[batch.index[0]]) * inputs.steps["within"][0]).reshape(2, 4, 6).sum(axis=-1)
    assert found.metrics["trex_loss"] == pytest.approx(np.logaddexp(0.0, sums[0] - sums[1]).mean(), rel=1e-5)
    assert found.metrics["trex_accuracy"] == (sums[1] > sums[0]).mean()
    after = params(model)
    own = judged(after, data)
    z = (judged(after, rollout().obs) - own.mean()) / own.std()
    wanted = 1.0 / (1.0 + np.exp(-z)) if output == "sigmoid" else z
    np.testing.assert_allclose(found.reward, wanted, rtol=1e-3, atol=1e-4)
    # It has learned, and does not learn again.
    assert model.estimate(rollout()).metrics == found.metrics
    assert len(told) == 1


def test_it_learns_what_ranks_tell_and_resumes_exactly(make):
    model = make(**{"policy.other.trex.n_update": 200})
    assert model.state_dict()["fit"] == {}
    found = model.estimate(rollout(3.0))
    assert found.metrics["trex_accuracy"] > 0.9
    assert found.reward.mean() > model.estimate(rollout(-1.0)).reward.mean() + 0.3
    other = make()
    other.load_state_dict(copy.deepcopy(model.state_dict()))
    np.testing.assert_array_equal(other.estimate(rollout(3.0)).reward, found.reward)
