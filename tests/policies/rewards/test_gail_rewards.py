"""GAIL: its discriminator, loss and rewards against NumPy in float64, what it learns, and what it saves."""

import copy
import dataclasses
import functools

import numpy as np
import pytest
import recordings
from fakes import dict_of, discrete, space_of
from float64_networks import gradients, names_of, params
from numeric import numeric_gradient

from minding.engine.data import obs_trees
from minding.engine.data.rollout import Rollout
from minding.engine.errors import CheckpointError
from minding.policies.rewards.gail import GAIL

STEPS, ENVS, EXPERT = 6, 2, 40
SETTINGS = {
    "policy.other.gail.hidden": [8],
    "policy.other.gail.batch_size": 16,
    "policy.other.gail.n_update": 4,
    "policy.other.gail.learning_rate": 0.01,
}
SPACE = dict_of(a=space_of(3), b=discrete(2))


@functools.cache
def dataset(seed=1):
    """What an expert did: its observations lie elsewhere than those of `rollout`."""
    rng = np.random.default_rng(seed)
    obs = {"a": rng.normal(2.0, [0.5, 1.0, 2.0], (EXPERT + 1, 3)), "b": rng.integers(0, 2, EXPERT + 1)}
    episode = recordings.log(EXPERT, np.ones(EXPERT, int), obs=obs, terminated=False)
    data = recordings.dataset([episode], SPACE, recordings.choices(3))
    return dataclasses.replace(data, digest=f"expert {seed}")


@pytest.fixture(scope="module")
def make(tiny_config):
    def made(seed=1, **settings):
        return GAIL(tiny_config("gail", SPACE, discrete(3), **{**SETTINGS, **settings}), dataset(seed))

    return made


@pytest.fixture(scope="module")
def built(make):
    return make()


@pytest.fixture
def gail(built):
    state = copy.deepcopy(built.state_dict())
    yield built
    built.load_state_dict(state)
    built.kind = "positive"


def rollout(valid=None, value=0.0, seed=0):
    rng = np.random.default_rng(seed)
    a = rng.normal(value, 1.0, (STEPS + 1, ENVS, 3)).astype(np.float32)
    b = rng.integers(0, 2, (STEPS + 1, ENVS))
    action = rng.integers(0, 3, (STEPS, ENVS))
    none = np.zeros((STEPS, ENVS), bool)
    obs, last = (obs_trees.unflatten({"a": a[part], "b": b[part]}) for part in (slice(STEPS), STEPS))
    zeros = np.zeros((STEPS, ENVS), np.float32)
    return Rollout(obs, last, None, np.empty((0, 2), np.int64), action, zeros, none, none, valid, {})


def whitened(gail, a):
    expert = dataset().obs["a"].astype(np.float64)
    return np.clip((a - expert.mean(axis=0)) / expert.std(axis=0), -5.0, 5.0)


def features(gail, a, b, action, p=None):
    """What the discriminator judges, float64: each leaf through its own layer, and the action as ones and zeros."""
    p = p or params(gail)
    leaves = [whitened(gail, a), np.eye(2)[b]]
    layers = [[p[f"net.encoder.projections.{k}.{part}"] for part in ("weight", "bias")] for k in range(2)]
    parts = [np.tanh(leaf @ weight.T + bias) for leaf, (weight, bias) in zip(leaves, layers)]
    return np.concatenate([*parts, np.eye(3)[action]], axis=1)


def judged(p, x):
    hidden = np.tanh(x @ p["net.body.layers.0.weight"].T + p["net.body.layers.0.bias"])
    return hidden @ p["net.head.weight"][0] + p["net.head.bias"][0]


@pytest.mark.parametrize(
    ("kind", "formula"),
    [("positive", lambda d: -np.log(1.0 - d)), ("negative", np.log), ("logit", lambda d: np.log(d) - np.log(1.0 - d))],
)
def test_rewards_are_those_of_the_formula_before_it_learns(gail, kind, formula):
    gail.kind = kind
    given = rollout()
    a, b = given.obs["a"].reshape(-1, 3), given.obs["b"].reshape(-1)
    f = judged(params(gail), features(gail, a, b, given.action.reshape(-1)))
    wanted = formula(1.0 / (1.0 + np.exp(-f))).reshape(STEPS, ENVS)
    found = gail.estimate(given).reward
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, wanted, rtol=2e-4, atol=1e-5)


def loss_of(p, expert, agent, share, penalty):
    """The loss in float64; the gradient of a layer of tanh is written out."""
    between = share[:, None] * expert + (1.0 - share[:, None]) * agent
    hidden = np.tanh(between @ p["net.body.layers.0.weight"].T + p["net.body.layers.0.bias"])
    slope = ((1.0 - hidden**2) * p["net.head.weight"][0]) @ p["net.body.layers.0.weight"]
    norm = np.sqrt((slope**2).sum(axis=1) + 1e-8)
    cross = np.logaddexp(0.0, -judged(p, expert)).mean() + np.logaddexp(0.0, judged(p, agent)).mean()
    return cross + penalty * ((norm - 1.0) ** 2).mean()


@pytest.mark.parametrize("penalty", [0.0, 2.0])
def test_the_loss_and_its_gradients_are_those_of_the_formula(make, penalty, monkeypatch):
    gail = make(**{"policy.other.gail.gradient_penalty": penalty, "policy.other.gail.n_update": 1})
    told, update, given = [], gail._update, rollout(value=1.0)
    monkeypatch.setattr(gail, "_update", lambda *args: (told.append(args), update(*args))[1])
    p = params(gail)
    metrics = gail.estimate(given).metrics
    (batch, inputs), data = told[0], dataset()
    share = inputs.steps["share"][0].astype(np.float64) if penalty else np.zeros(16)
    parts = [
        np.concatenate([data.obs["a"], given.obs["a"].reshape(-1, 3)]),
        np.concatenate([data.obs["b"], given.obs["b"].reshape(-1)]),
        np.concatenate([data.action, given.action.reshape(-1)]),
    ]
    x = features(gail, *(part[batch.index[0]] for part in parts), p)
    expert, agent = x[:16], x[16:]
    assert metrics["gail_loss"] == pytest.approx(loss_of(p, expert, agent, share, penalty), rel=1e-5)
    assert metrics["gail_expert"] == (judged(p, expert) > 0).mean()
    assert metrics["gail_agent"] == (judged(p, agent) < 0).mean()
    found = dict(zip(names_of(gail), gradients(gail, "net"), strict=True))
    for name in ("net.body.layers.0.weight", "net.head.weight", "net.body.layers.0.bias"):
        wanted = numeric_gradient(
            lambda value, name=name: loss_of({**p, name: value}, expert, agent, share, penalty), p[name], 1e-5
        )
        np.testing.assert_allclose(found[name], wanted, rtol=1e-3, atol=2e-5, err_msg=name)


def test_experts_are_half_of_each_minibatch_and_resets_no_steps(gail, monkeypatch):
    batches = []
    update = gail._update
    monkeypatch.setattr(gail, "_update", lambda batch, inputs: (batches.append(batch), update(batch, inputs))[1])
    valid = np.zeros((STEPS, ENVS), bool)
    valid[2, 1] = valid[4, 0] = True
    gail.estimate(rollout(valid))
    index = batches[0].index
    assert index.shape == (4, 32)
    assert (index[:, :16] < EXPERT).all()
    assert set(index[:, 16:].ravel()) == {EXPERT + 2 * ENVS + 1, EXPERT + 4 * ENVS}
    nothing = gail.estimate(rollout(np.zeros((STEPS, ENVS), bool)))
    assert not nothing.reward.any()
    assert len(batches) == 1


def test_it_goes_on_exactly_from_what_it_saved(gail, make):
    gail.estimate(rollout())
    state = copy.deepcopy(gail.state_dict())
    expected = gail.estimate(rollout(seed=2))
    fresh = make()
    fresh.load_state_dict(state)
    found = fresh.estimate(rollout(seed=2))
    np.testing.assert_array_equal(found.reward, expected.reward)
    assert found.metrics == expected.metrics
    with pytest.raises(CheckpointError, match="the run learned from other recorded data"):
        make(seed=2).load_state_dict(state)
