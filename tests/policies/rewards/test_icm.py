"""ICM: its errors, loss and gradients against NumPy in float64, and what it saves; see also `test_rnd.py`."""

import copy

import numpy as np
import pytest
from action_values import linear
from fakes import composite, dict_of, discrete, multi_discrete, space_of
from float64_networks import gradients, names_of, params
from numeric import numeric_gradient

from minding.engine.data import obs_trees
from minding.engine.data.rollout import Rollout
from minding.engine.process.runtime import ms
from minding.policies.networks.encoder import ActionNumbers
from minding.policies.rewards.icm import ICM

STEPS, ENVS = 5, 2
SETTINGS = {
    "policy.other.icm.weight": 1.0,
    "policy.other.icm.hidden": [8],
    "policy.other.icm.dim": 4,
    "policy.other.icm.n_minibatch": 1,
    "policy.other.icm.gamma": 0.5,
    "policy.other.icm.beta": 0.3,
}
ACTIONS = {"choices": discrete(3), "numbers": space_of(2)}


@pytest.fixture(scope="module")
def make(tiny_config):
    def made(action):
        return ICM(tiny_config("ppo", dict_of(a=space_of(3), b=discrete(2)), action, **SETTINGS))

    return made


def rollout(action, seed=0):
    rng = np.random.default_rng(seed)
    a = rng.normal(3.0, 2.0, (STEPS + 1, ENVS, 3)).astype(np.float32)
    b = rng.integers(0, 2, (STEPS + 1, ENVS))
    obs, last = (obs_trees.unflatten({"a": a[part], "b": b[part]}) for part in (slice(STEPS), STEPS))
    taken = rng.integers(0, 3, (STEPS, ENVS)) if action["kind"] == "discrete" else rng.normal(size=(STEPS, ENVS, 2))
    ended, zeros = np.zeros((STEPS, ENVS), bool), np.zeros((STEPS, ENVS), np.float32)
    # The successor of a step at an end is not the next observation.
    ended[2, 1] = True
    final = obs_trees.unflatten({"a": np.full((1, 3), 9.0, np.float32), "b": np.array([1])})
    taken = taken if action["kind"] == "discrete" else taken.astype(np.float32)
    return Rollout(obs, last, final, np.array([[2, 1]]), taken, zeros, ended, np.zeros_like(ended), None, {})


def features(p, a, b):
    parts = [np.tanh(linear(p, f"features.encoder.projections.{k}", x)) for k, x in enumerate((a, b))]
    hidden = np.maximum(linear(p, "features.body.layers.0", np.concatenate(parts, axis=1)), 0.0)
    return linear(p, "features.head", hidden)


def judged(p, given, kind):
    """Errors (T * N,), and the losses of the forward and of the inverse model."""
    following = given.next_obs()
    moments = following.a.reshape(-1, 3).astype(np.float64)
    mean, deviation = moments.mean(axis=0), np.sqrt(moments.var(axis=0) + 1e-8)
    now, then = (
        features(p, np.clip((x.a.reshape(-1, 3) - mean) / deviation, -5, 5), np.eye(2)[x.b.reshape(-1)])
        for x in (given.obs, following)
    )
    taken = given.action.reshape(STEPS * ENVS, *given.action.shape[2:])
    numbers = np.eye(3)[taken] if kind == "choices" else taken.astype(np.float64)
    hidden = np.maximum(linear(p, "ahead.0.layers.0", np.concatenate([now, numbers], axis=1)), 0.0)
    errors = 0.5 * np.square(linear(p, "ahead.1", hidden) - then).sum(axis=1)
    hidden = np.maximum(linear(p, "inverse.layers.0", np.concatenate([now, then], axis=1)), 0.0)
    found = linear(p, "head.linear", hidden)
    if kind == "choices":
        likely = found[np.arange(len(taken)), taken] - np.log(np.exp(found).sum(axis=1))
    else:
        likely = -0.5 * (np.square(taken - found) + np.log(2 * np.pi)).sum(axis=1)
    return errors, errors.mean(), -likely.mean()


def total(p, given, kind):
    _, ahead, inverse = judged(p, given, kind)
    return 0.7 * inverse + 0.3 * ahead


@pytest.mark.parametrize("kind", ACTIONS)
def test_rewards_loss_and_gradients_are_those_of_the_formula(make, kind):
    icm, given = make(ACTIONS[kind]), rollout(ACTIONS[kind])
    p = params(icm)
    found = icm.estimate(given)
    errors, ahead, inverse = judged(p, given, kind)
    sums = [np.zeros(ENVS)]
    for step in errors.reshape(STEPS, ENVS):
        sums.append(0.5 * sums[-1] + step)
    np.testing.assert_allclose(found.reward.reshape(-1), errors / np.std(sums), rtol=2e-4)
    assert found.metrics["icm_loss"] == pytest.approx(0.7 * inverse + 0.3 * ahead, rel=1e-5)
    assert (found.metrics["icm_forward"], found.metrics["icm_inverse"]) == pytest.approx((ahead, inverse), rel=1e-5)
    slopes = dict(zip(names_of(icm), gradients(icm, "net"), strict=True))
    assert not any(name.endswith("log_std") for name in slopes)
    for name in ("features.head.bias", "features.encoder.projections.0.bias", "ahead.1.bias", "head.linear.bias"):
        wanted = numeric_gradient(lambda value, name=name: total({**p, name: value}, given, kind), p[name], 1e-5)
        np.testing.assert_allclose(slopes[name], wanted, rtol=1e-3, atol=2e-5, err_msg=name)
    state = copy.deepcopy(icm.state_dict())
    first = icm.estimate(rollout(ACTIONS[kind], 1)).reward
    icm.load_state_dict(state)
    np.testing.assert_array_equal(icm.estimate(rollout(ACTIONS[kind], 1)).reward, first)


@pytest.mark.parametrize(
    ("space", "given", "wanted"),
    [
        (multi_discrete(3, 2), [[2, 1], [0, 0]], [[0, 0, 1, 0, 1], [1, 0, 0, 1, 0]]),
        (space_of(2, 1), [[[0.5], [1.0]]], [[0.5, 1.0]]),
        (composite(2, numbers=2), [[1.0, 0.5, -0.5]], [[0, 1, 0.5, -0.5]]),
    ],
)
def test_actions_are_numbers_or_ones_and_zeros(space, given, wanted):
    cell = ActionNumbers(space)
    dtype = np.int32 if space["kind"] == "multi_discrete" else np.float32
    np.testing.assert_array_equal(cell(ms.Tensor(np.array(given, dtype))).asnumpy(), wanted)
    assert cell.out_features == len(wanted[0])
