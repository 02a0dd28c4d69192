"""MAPPO: one update against float64 NumPy with masks and deaths, its moments, and what acts and values."""

import kit
import numpy as np
import pytest
from action_values import linear, np_huber, np_log_softmax
from fakes import VECTOR, composite, dict_of, discrete, draw_masks, mask_of, space_of, tiny_config
from float64_networks import finite_differences, gradients
from team_values import GATES
from test_recurrent import gru_step
from treevalue import FastTreeValue

from minding.engine.data.rollout import Rollout
from minding.engine.process.runtime import assign
from minding.middleware.return_estimators import rows_with_advantages
from minding.policies.families.central_critic import PopArt
from minding.policies.mappo import MAPPO

pytestmark = pytest.mark.eager

SEEN = dict_of(action_mask=mask_of(3), observation=space_of(4))
STATE = space_of(5)
MEMORY = {"policy.model.memory": "gru", "policy.model.memory_dim": 5}
CONTRACT = {
    "mappo": (SEEN, discrete(3), {"policy.model.normalize_obs": True}),
    "mappo, memory": (SEEN, composite(3, numbers=2), MEMORY),
    "mappo, box": (dict_of(a=VECTOR, b=discrete(2)), space_of(2, 2), {"policy.learn.value_norm": False}),
}
LEARNS = {"policy.collect.n_sample": 64, "policy.learn.learning_rate": 0.01, "policy.learn.n_minibatch": 2}
RESUMES = {
    "MAPPO with a memory, for agents of a team who leave, come late and have masks": (
        "agent_worlds:Squad",
        (
            *("env.env_kwargs={leave: 2, late: 1, mask: info}", "env.info_keys=[action_mask, load]"),
            *("env.team_reward=true", "policy.model.memory=gru", "policy.model.memory_dim=8"),
        ),
    )
}
ALTERNATIVES = ("policy.model.memory=gru", "policy.learn.n_minibatch=2")
AGENTS = 2
STEPS, ENVS = 4, 3
ROWS = STEPS * ENVS * AGENTS
RATE = 0.01


def team_config(state=STATE, **overrides):
    cfg = tiny_config("mappo", SEEN, discrete(3), team=("a", "b"), **{"policy.learn.learning_rate": RATE, **overrides})
    cfg.env.spec.update(num_agents=AGENTS, agents={"names": ["a", "b"], "state": state, "team_reward": False})
    return cfg


def team_obs(num_envs=8, seed=0, state_offset=0.0):
    rng = np.random.default_rng(seed)
    return FastTreeValue(
        {
            "action_mask": draw_masks([3], num_envs * AGENTS, rng).reshape(num_envs, AGENTS, 3),
            "alive": np.arange(num_envs * AGENTS).reshape(num_envs, AGENTS) % 3 > 0,
            "observation": rng.standard_normal((num_envs, AGENTS, 4)).astype(np.float32),
            "state": rng.standard_normal((num_envs, 5)).astype(np.float32) + np.float32(state_offset),
        }
    )


@pytest.fixture(scope="module")
def made():
    memory = {**MEMORY, "policy.learn.value_clip": False}
    return {
        kind: kit.Bench(MAPPO(team_config(**{"policy.learn.huber_delta": 0.8}, **own)), ROWS, kind)
        for kind, own in (("plain", {}), ("gru", memory))
    }


@pytest.fixture
def benches(made):
    """They, as they were built, but for moments that are not those of the start."""
    for bench in made.values():
        bench.restore().policy.net.critic.value.update(np.float32([1.0, 4.0]), 0.9)
    return made


@pytest.fixture(params=["plain", "gru"])
def bench(benches, request):
    return benches[request.param]


def rows_for(bench):
    """A rollout's rows; some agents are not there, and some rows of sequences are those of resets."""
    rng = np.random.default_rng(0)
    rows = bench.rows(**{"central.agent_id": AGENTS, "obs.agent_id": AGENTS, "action": 3})
    rows["obs.action_mask"] = draw_masks([3], ROWS, rng)
    rows["action"] = rows["obs.action_mask"].argmax(axis=1)
    rows["central.alive"] = (rng.random(ROWS) < 0.6).astype(np.float32)
    rows["log_prob"] = np.log(rng.uniform(0.2, 0.9, ROWS)).astype(np.float32)
    rows["return"] = 2.5 + 2.0 * rows["return"]
    rows["value"] = 2.5 + 2.0 * rows["value"]
    if "valid" in rows:
        rows["valid"] = (rng.random(ROWS) < 0.8).astype(np.float32)
        rows["memory"] = np.tanh(rows["memory"])
    return {name: v.astype(np.float32) if v.dtype == np.float64 else v for name, v in rows.items()}


class Update:
    """The rows of one gradient step, and what MAPPO makes of them, in float64."""

    def __init__(self, policy, rows, index):
        self.learn = policy.cfg.learn
        self.rows = {name: values[index] for name, values in rows.items()}
        self.remembers = "memory" in rows

    def features(self, p):
        rows = self.rows
        obs = np.concatenate([rows["obs.observation"], np.eye(AGENTS)[rows["obs.agent_id"]]], -1).astype(np.float64)
        if not self.remembers:
            return obs
        weights = [p[f"net.memory.{name}"] for name in GATES]
        h, made = self.rows["memory"][0].astype(np.float64), []
        for seen, begun in zip(obs, self.rows["begun"]):
            h = gru_step(weights, seen, h * (1.0 - begun[:, None]))
            made.append(h)
        return np.stack(made)

    def outputs(self, p):
        """Log-probabilities, entropies and normalized values."""
        features = self.features(p)
        logits = linear(p, "net.head.linear", np.tanh(linear(p, "net.actor.layers.0", features)))
        logits = np.where(self.rows["obs.action_mask"], logits, -1e30)
        flat = logits.reshape(-1, 3)
        log_p = np_log_softmax(flat)
        chosen = log_p[np.arange(len(flat)), self.rows["action"].ravel()]
        entropy = -(np.exp(log_p) * np.where(np.exp(log_p) > 0, log_p, 0.0)).sum(1)
        alive = self.rows["central.alive"][..., None]
        seen = [features * alive, self.rows["central.state"] * alive, np.eye(AGENTS)[self.rows["central.agent_id"]]]
        torso = np.tanh(linear(p, "net.critic.torso.layers.0", np.concatenate(seen, axis=-1)))
        value = linear(p, "net.critic.value.linear", torso)[..., 0]
        return chosen.reshape(value.shape), entropy.reshape(value.shape), value

    @property
    def valid(self):
        return self.rows.get("valid", np.ones_like(self.rows["return"]))

    def metrics(self, p, advantage, moments):
        """`advantage`: as it was handed in; `moments`: the mean and deviation of the returns."""
        log_prob, entropy, value = self.outputs(p)
        rows, learn, valid = self.rows, self.learn, self.valid
        acting = valid * rows["central.alive"]
        mean, deviation = moments
        target, old = (rows["return"] - mean) / deviation, (rows["value"] - mean) / deviation
        ratio = np.exp(log_prob - rows["log_prob"])
        surrogate = np.maximum(-advantage * ratio, -advantage * np.clip(ratio, 0.8, 1.2))
        errors = np_huber(value - target, learn.huber_delta)
        if learn.value_clip:
            clipped = old + np.clip(value - old, -0.2, 0.2)
            errors = np.maximum(errors, np_huber(clipped - target, learn.huber_delta))
        found = {
            "policy_loss": (surrogate * acting).sum() / acting.sum(),
            "value_loss": (errors * valid).sum() / valid.sum(),
            "entropy": (entropy * acting).sum() / acting.sum(),
            "approx_kl": ((ratio - 1.0 - np.log(ratio)) * acting).sum() / acting.sum(),
            "clip_fraction": ((np.abs(ratio - 1.0) > 0.2) * acting).sum() / acting.sum(),
        }
        total = found["policy_loss"] + learn.value_weight * found["value_loss"]
        return {**found, "loss": total - learn.entropy_weight * found["entropy"]}


def index_of(kind):
    """One step on every second agent of an environment, twice."""
    if kind == "gru":
        return np.arange(ROWS).reshape(STEPS, ENVS * AGENTS)[None, :, [4, 1, 0]]
    return np.arange(ROWS)[None, ::2]


def moments_of(bench):
    value = bench.policy.net.critic.value
    return float(value.mean.asnumpy()[0]), float(value.deviation.asnumpy()[0])


def test_the_update_has_the_loss_and_gradient_of_its_formula(bench):
    bench.hold_still()
    rows, index = rows_for(bench), index_of(bench.kind)
    metrics = bench.learn(rows, index).metrics
    # Those of after the moments have taken in the returns.
    p, step, moments = bench.params, Update(bench.policy, rows, index[0]), moments_of(bench)
    acting = step.valid * step.rows["central.alive"] > 0
    assert 0 < acting.sum() < (step.valid > 0).sum()
    given = step.rows["advantage"].astype(np.float64)
    advantage = (given - given[acting].mean()) / (given[acting].std() + 1e-8)
    kit.check_metrics(metrics, step.metrics(p, advantage, moments), rel=1e-4)
    trained = [name for name, x in bench.policy.params.items() if name.startswith("net.") and x.requires_grad]
    own = {name: p[name] for name in trained}
    slopes = finite_differences(lambda q: step.metrics({**p, **q}, advantage, moments)["loss"], own, "net")
    norm = np.sqrt(sum((slope**2).sum() for slope in slopes))
    assert metrics["grad_norm"] == pytest.approx(norm, rel=1e-3)
    for found, slope in zip(gradients(bench.policy, "net"), slopes, strict=True):
        np.testing.assert_allclose(found, min(10.0 / norm, 1.0) * slope, rtol=2e-3, atol=2e-5)


def test_the_moments_take_each_return_once_without_resets(bench, monkeypatch):
    rows, index, calls = rows_for(bench), index_of(bench.kind), []
    monkeypatch.setattr(bench.policy.net.critic.value, "update", lambda *given: calls.append(given), raising=False)
    bench.policy.inputs(bench.batch(rows, np.concatenate([index, index])), 0.0)
    chosen = np.sort(index.ravel())
    if bench.kind == "gru":
        chosen = chosen[rows["valid"][chosen] > 0]
    ((returns, decay),) = calls
    assert np.array_equal(returns, rows["return"][chosen])
    assert decay == bench.settings.value_norm_decay


def test_moments_are_over_all_updates_the_newest_most():
    rng, decay = np.random.default_rng(0), 0.8
    head, given = PopArt(3, rng), [rng.normal(5.0 * k, 1.0 + k, 50).astype(np.float32) for k in range(4)]
    for returns in given:
        head.update(returns, decay)
    weight = decay ** np.arange(3, -1, -1)
    weight /= weight.sum()
    mean = sum(w * x.mean(dtype=np.float64) for w, x in zip(weight, given))
    square = sum(w * (x.astype(np.float64) ** 2).mean() for w, x in zip(weight, given))
    assert head.mean.asnumpy() == pytest.approx(mean, rel=1e-5)
    assert head.deviation.asnumpy() == pytest.approx(np.sqrt(square - mean**2), rel=1e-5)


def test_the_first_rollout_is_clipped_around_recorded_values(benches):
    """Its moments are the first ones; before them the head, which they leave alone, spoke in units of the returns."""
    bench = benches["plain"]
    bench.hold_still()
    policy, value = bench.policy, bench.policy.net.critic.value
    for parameter, number in ((value.mean, 0), (value.deviation, 1), (value.variance, 1), (value.updates, 0)):
        assign(parameter, np.full(1, number, np.float32))
    rows, index = rows_for(bench), index_of("plain")
    every = Update(policy, rows, slice(None))
    rows["value"] = every.outputs(bench.params)[2].astype(np.float32)
    step = Update(policy, rows, index[0])
    metrics = bench.learn(rows, index).metrics
    mean, deviation = moments_of(bench)
    assert mean > 1.0
    assert value.updates.asnumpy() == 1.0
    target = (step.rows["return"] - mean) / deviation
    # No value has moved, so that none is outside of the clip.
    unclipped = np_huber(step.outputs(bench.params)[2] - target, step.learn.huber_delta)
    assert metrics["value_loss"] == pytest.approx(unclipped.mean(), rel=1e-5)


def test_new_moments_keep_values_in_units_of_returns():
    rng = np.random.default_rng(0)
    head, x = PopArt(3, rng), rng.standard_normal((6, 3)).astype(np.float32)
    weight = head.linear.weight.asnumpy().copy()
    head.update(np.float32([-20.0, -30.0]), 0.9)
    # A head that has learned nothing starts at the mean.
    assert np.array_equal(head.linear.weight.asnumpy(), weight)
    form = head.host()
    assert form.raw(form(x)) == pytest.approx(-25.0 + 5.0 * (x @ weight[0]), rel=1e-5)
    before = form.raw(form(x))
    head.update(np.float32([100.0, 40.0, 2.0]), 0.9)
    assert head.deviation.asnumpy() > 20.0
    assert form.raw(form(x)) == pytest.approx(before, rel=1e-5)
    head.update(np.zeros(4, np.float32), 0.0)
    assert head.deviation.asnumpy() == pytest.approx(0.01)


# Acting


def test_agents_act_by_observation_and_are_valued_by_state(benches):
    for kind, bench in benches.items():
        policy = bench.policy
        obs, mode = team_obs(), policy.collect_mode
        mode.reset()
        record = mode.forward(obs)
        assert record["value"].shape == (8, AGENTS)
        memory = record.get("memory")
        value = mode.value(obs, memory)
        np.testing.assert_array_equal(value, record["value"])
        # Where the agent is there, the state matters, else nothing but its place.
        other = team_obs(state_offset=1.0)
        there = obs.alive
        assert (mode.value(other, memory) != value)[there].all()
        for m in range(AGENTS):
            assert len(np.unique(value[~there[:, m], m])) == 1
        assert len(np.unique(value[~there])) == AGENTS
        # Execution is decentralized.
        alone = {name: obs[name] for name in ("observation", "action_mask")}
        policy.eval_mode.reset()
        action = policy.eval_mode.forward(obs)
        policy.eval_mode.reset()
        assert np.array_equal(policy.eval_mode.forward(alone), action)
        assert np.take_along_axis(obs.action_mask, action[..., None], 2).all(), kind


def test_what_acts_is_what_learns(bench):
    """The first step on its own data: no ratio differs from 1, and the values are those recorded."""
    mode, kind = bench.policy.collect_mode, bench.kind
    bench.hold_still()
    mode.reset()
    steps = []
    for t in range(STEPS):
        obs = team_obs(ENVS, seed=t)
        central = {"agent_id": np.tile(np.arange(AGENTS), (ENVS, 1)), "alive": obs.alive}
        central["state"] = np.repeat(obs.state[:, None], AGENTS, axis=1)
        own = {f"obs.{name}": obs[name] for name in ("observation", "action_mask")}
        own["obs.agent_id"] = central["agent_id"]
        steps.append({**own, **{f"central.{name}": x for name, x in central.items()}, **mode.forward(obs)})
    rows = {name: np.stack([s[name] for s in steps]).reshape(ROWS, *steps[0][name].shape[2:]) for name in steps[0]}
    fixed = {"begun": np.zeros(ROWS, bool), "valid": np.ones(ROWS, bool)} if kind == "gru" else {}
    rows = {**rows, **fixed, "advantage": np.ones(ROWS, np.float32), "return": rows["value"]}
    metrics = bench.learn(rows, index_of(kind)).metrics
    assert abs(metrics["approx_kl"]) < 1e-6
    assert metrics["clip_fraction"] == 0.0
    assert metrics["value_loss"] < 1e-9


# Advantages of teams


@pytest.mark.parametrize("team_reward", [True, False])
def test_a_teams_later_reward_belongs_to_who_has_left(team_reward):
    """One environment, three steps: agent 1 leaves after the first, and the episode ends."""
    alive = np.array([[1, 1], [1, 0], [1, 0]], bool)[:, None]
    reward = np.float32([[[1, 3]], [[5, 0]], [[7, 0]]])
    value = np.float32([[[10, 20]], [[30, 40]], [[50, 60]]])
    end = np.array([[False], [False], [True]])
    obs = {"alive": alive, "observation": np.zeros((3, 1, 2, 1)), "state": np.arange(6.0).reshape(3, 1, 2)}
    rollout = Rollout(
        obs=FastTreeValue(obs),
        last_obs=FastTreeValue({name: x[0] for name, x in obs.items()}),
        final_obs=FastTreeValue({**{name: x[2] for name, x in obs.items()}, "alive": np.zeros((1, 2), bool)}),
        ends=np.array([[2, 0]]),
        action=np.zeros((3, 1, 2)),
        reward=reward.sum(axis=2) if team_reward else reward,
        terminated=end,
        truncated=np.zeros_like(end),
        valid=None,
        record={"value": value},
        last_value=np.zeros((1, 2), np.float32),
        final_value=np.full((1, 2), 99.0, np.float32),
    )
    data = rows_with_advantages(rollout, gamma=0.5, gae_lambda=1.0, outlives=True)
    returns, valid = data["return"].reshape(3, 2), data["valid"].reshape(3, 2)
    if team_reward:
        assert valid.all()
        assert returns.tolist() == [[4 + 0.5 * 8.5, 8.25], [5 + 0.5 * 7, 8.5], [7, 7]]
    else:
        assert valid.tolist() == alive[:, 0].tolist()
        assert returns[valid].tolist() == [1 + 0.5 * 8.5, 3, 8.5, 7]
    assert data["central.agent_id"].tolist() == [0, 1] * 3
    assert data["central.alive"].tolist() == alive.ravel().tolist()
    assert data["central.state"].tolist() == [[0, 1], [0, 1], [2, 3], [2, 3], [4, 5], [4, 5]]
