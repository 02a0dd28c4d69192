"""Action masks: acting, learning and random actions are those of the legal actions."""

import numpy as np
import pytest
from fakes import VECTOR, Batches, dict_of, discrete, draw_masks, mask_of, multi_discrete, rows_of

from minding.engine.data import trees
from minding.engine.errors import ShapeError
from minding.envs import describe_env, make_env_manager
from minding.policies import get_policy_class
from minding.policies.acting.numpy_layers import ILLEGAL
from minding.policies.acting.sampling import Categorical
from minding.policies.core.acting_network import acting_network

ROWS, ACTIONS = 16, 5
OF_ACTION_VALUES = ("dqn", "qrdqn", "c51", "iqn", "rainbow")
GRID = {"env_id": "minding/MaskedGrid-v0", "info_keys": ["action_mask", "success"]}


def observations(mask, rng):
    return trees.from_nested(
        {"observation": rng.standard_normal((len(mask), 4)).astype(np.float32), "action_mask": mask}
    )


@pytest.fixture(scope="module")
def build(tiny_config):
    def make(algorithm, *counts, **overrides):
        action = discrete(counts[0]) if len(counts) == 1 else multi_discrete(*counts)
        space = dict_of(observation=VECTOR, action_mask=mask_of(*counts))
        return get_policy_class(algorithm)(tiny_config(algorithm, space, action, **overrides))

    return make


@pytest.fixture(scope="module")
def ppo(build):
    return build("ppo", ACTIONS, **{"policy.learn.learning_rate": 1e-3})


@pytest.fixture(scope="module")
def dqn(build):
    return build("dqn", ACTIONS, **{"policy.learn.gamma": 0.5})


# Acting


@pytest.mark.parametrize("backend", ["host", pytest.param("graph", marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    ("algorithm", "counts"),
    [
        *(("ppo", (5,)), ("ppo", (3, 2)), ("a3c", (5,)), ("bc", (3, 2))),
        *((algorithm, (5,)) for algorithm in OF_ACTION_VALUES),
    ],
)
def test_every_way_to_act_is_legal(build, algorithm, counts, backend):
    policy = build(algorithm, *counts, **{"policy.collect.backend": backend})
    rng = np.random.default_rng(0)
    mask = draw_masks(counts, 500, rng)
    obs = observations(mask, rng)
    ways = [policy.collect_mode.forward(obs)["action"], policy.collect_mode.forward(obs, random=True)["action"]]
    ways += [policy.eval_mode.forward(obs), policy.eval_mode.forward(np.asarray(obs.observation), action_mask=mask)]
    if algorithm in OF_ACTION_VALUES:
        ways.append(policy.collect_mode.forward(obs, eps=0.7)["action"])
    starts = np.cumsum([0, *counts[:-1]])
    for action in ways:
        assert np.take_along_axis(mask, action.reshape(500, -1) + starts, axis=1).all()
    assert np.array_equal(ways[2], ways[3])
    # Not always the first legal one, and with `random` all of them.
    assert len(np.unique(ways[1].reshape(500, -1)[:, 0])) == counts[0]


def test_host_and_graph_hide_the_same_actions(ppo):
    rng = np.random.default_rng(0)
    mask = draw_masks((ACTIONS,), 30, rng)
    obs = observations(mask, rng)
    host = ppo.actors["eval"].outputs(obs)[1]
    graph = acting_network(ppo.net, "graph", "act")([leaf for _, leaf in trees.leaves(obs)])[1]
    assert (host[~mask] == ILLEGAL).all()
    assert (graph[~mask] == ILLEGAL).all()
    np.testing.assert_allclose(host[mask], graph[mask], atol=1e-5)


class AlmostOne:
    """A generator whose every draw is the largest number below 1."""

    def random(self, size, dtype):
        return np.full(size, np.nextafter(np.float32(1), np.float32(0)), dtype)


def test_the_largest_draw_takes_the_last_legal_action():
    rng = np.random.default_rng(0)
    logits = rng.standard_normal((2000, 6)).astype(np.float32)
    logits[:, 4:] = ILLEGAL
    action, log_prob = Categorical().sample((logits,), AlmostOne())
    assert (action == 3).all()
    np.testing.assert_allclose(log_prob, Categorical().log_prob((logits,), action), atol=1e-5)


@pytest.mark.slow
def test_one_hundred_thousand_steps_without_an_illegal_action(tiny_config):
    spec = describe_env(GRID)
    for algorithm, kwargs in (("ppo", {}), ("dqn", {"eps": 0.3})):
        policy = get_policy_class(algorithm)(
            tiny_config(algorithm, spec["observation"], spec["action"]), modes=("collect",)
        )
        manager = make_env_manager(GRID, 100, 0)
        illegal = episodes = 0
        for _ in range(1000):
            mask = manager.obs.action_mask
            action = policy.collect_mode.forward(manager.obs, **kwargs)["action"]
            illegal += int((~mask[np.arange(100), action]).sum())
            episodes += len(manager.step(action).episodes)
        assert illegal == 0
        assert episodes > 4000
        manager.close()


# Learning


def values_of(policy, batches, mask, **changes):
    """Random rows with these masks, and as PPO would have recorded them."""
    rng = np.random.default_rng(1)
    values = rows_of(batches.layout, ROWS, rng)
    values["obs.action_mask"] = mask
    obs = trees.from_nested({name: values[f"obs.{name}"] for name in ("observation", "action_mask")})
    values.update(policy.collect_mode.forward(obs))
    return {**values, **changes}, obs


def test_ppo_computes_the_loss_of_the_legal_actions_and_leaves_the_others_alone(ppo):
    mask = draw_masks((ACTIONS,), ROWS, np.random.default_rng(3))
    mask[:, 4] = False
    mask[~mask.any(axis=1), 0] = True
    batches = Batches(ppo, ROWS)
    old = np.log(np.random.default_rng(1).uniform(0.3, 0.9, ROWS)).astype(np.float32)
    values, obs = values_of(ppo, batches, mask, log_prob=old)
    before = ppo.state_dict()["params"]
    logits = ppo.actors["eval"].outputs(obs)[1].astype(np.float64)
    expected = []
    for n in range(ROWS):
        legal = np.flatnonzero(mask[n])
        log_p = logits[n, legal] - np.log(np.exp(logits[n, legal]).sum())
        chosen = log_p[legal.tolist().index(values["action"][n])]
        expected.append((chosen, -(np.exp(log_p) * log_p).sum()))
    log_prob, entropy = np.array(expected).T
    metrics = ppo.learn_mode.forward(batches(values, np.arange(ROWS)[None])).metrics
    ratio = np.exp(log_prob - old)
    advantage = (values["advantage"] - values["advantage"].mean()) / (values["advantage"].std() + 1e-8)
    policy_loss = np.maximum(-advantage * ratio, -advantage * np.clip(ratio, 0.8, 1.2)).mean()
    assert metrics["entropy"] == pytest.approx(entropy.mean(), rel=1e-4)
    assert metrics["approx_kl"] == pytest.approx((ratio - 1 - np.log(ratio)).mean(), rel=1e-3)
    assert metrics["policy_loss"] == pytest.approx(policy_loss, rel=1e-4, abs=1e-5)
    after = ppo.state_dict()["params"]
    changed = (after["net.head.linear.weight"] != before["net.head.linear.weight"]).any(axis=1)
    assert changed.tolist() == [*mask.any(axis=0)[:4], False]


def test_dqn_takes_the_maximum_over_the_legal_next_actions(dqn):
    rng = np.random.default_rng(4)
    batches = Batches(dqn, ROWS)
    terminated = (np.arange(ROWS) < 4).astype(np.float32)
    next_mask = draw_masks((ACTIONS,), ROWS, rng)
    # A true end leaves no action.
    next_mask[:4] = False
    values = rows_of(batches.layout, ROWS, rng, {"action": 2})
    values.update({"terminated": terminated, "next_obs.action_mask": next_mask, "discount": np.full(ROWS, 0.5, "f")})
    leaves = [values[f"{place}.{name}"] for place in ("obs", "next_obs") for name in ("action_mask", "observation")]
    net, everything = dqn.actors["eval"].network, np.ones((ROWS, ACTIONS), bool)
    q = net(leaves[:2])[0].astype(np.float64)
    next_q = net([everything, leaves[3]])[0].astype(np.float64)
    # Online and target network are equal at the start. In some rows the best of all actions is illegal.
    best = np.where(next_mask, next_q, -np.inf).max(axis=1)
    assert (best < next_q.max(axis=1))[4:].any()
    target = values["reward"] + 0.5 * np.where(terminated, 0.0, best)
    error = q[np.arange(ROWS), values["action"]] - target
    loss = np.where(np.abs(error) <= 1, 0.5 * error**2, np.abs(error) - 0.5).mean()
    metrics = dqn.learn_mode.forward(batches(values, np.arange(ROWS)[None])).metrics
    assert metrics["loss"] == pytest.approx(loss, rel=1e-4)


# Use


def test_a_mask_given_apart_has_to_fit(ppo, tiny_config):
    obs, mask = np.zeros((2, 4), np.float32), np.ones((2, ACTIONS), bool)
    with pytest.raises(ShapeError, match=r"action_mask for ppo: expected bool \(N, 5\), got bool \(2, 4\)"):
        ppo.eval_mode.forward(obs, action_mask=mask[:, :4])
    with pytest.raises(ShapeError, match="row 1 allows no action"):
        ppo.eval_mode.forward(obs, action_mask=mask & np.array([[True], [False]]))
    with pytest.raises(ShapeError, match=r"expected action_mask .*, observation .*, got observation"):
        ppo.eval_mode.forward({"observation": obs})
    plain = get_policy_class("ppo")(tiny_config("ppo", VECTOR, discrete(ACTIONS)), modes=("eval",))
    with pytest.raises(ShapeError, match=r"the environment it was trained in has none; declare it with env.info_keys"):
        plain.eval_mode.forward(obs, action_mask=mask)


def test_the_normalizer_sees_the_observation_beside_the_mask(build):
    policy = build("ppo", ACTIONS, **{"policy.model.normalize_obs": True})
    batches = Batches(policy, ROWS)
    values, _ = values_of(policy, batches, draw_masks((ACTIONS,), ROWS, np.random.default_rng(0)))
    policy.learn_mode.forward(batches(values, np.arange(ROWS)[None]))
    ((_, normalizer),) = policy.normalizers.values()
    np.testing.assert_allclose(normalizer.moments.mean, values["obs.observation"].mean(axis=0), rtol=1e-6)
