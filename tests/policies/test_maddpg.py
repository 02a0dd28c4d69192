"""MADDPG: one update against float64 NumPy with masks and deaths, for discrete and continuous actions."""

import copy

import kit
import numpy as np
import pytest
from fakes import dict_of, discrete, draw_masks, mask_of, space_of, tiny_config
from float64_networks import actor, linear_head, own_value

from minding.policies import get_policy_class

SPACES = {
    "discrete": (dict_of(action_mask=mask_of(3), observation=space_of(4)), discrete(3)),
    "box": (dict_of(observation=space_of(4)), space_of(2)),
}
CONTRACT = {
    "maddpg": (*SPACES["discrete"], {"policy.model.normalize_obs": True}),
    "maddpg, box": (*SPACES["box"], {"policy.model.central": False}),
}
LEARNS = {
    **kit.LEARNS,
    "policy.collect.random_steps": 200,
    "policy.learn.learning_rate": 0.01,
    "policy.learn.update_per_collect": 8,
    "policy.learn.tau": 0.05,
}
RESUMES = {
    "MADDPG with agents who leave, come late and act in spaces of different sizes": (
        "agent_worlds:Mixed",
        ("env.env_kwargs={actions: box, leave: 2, late: 1}", "policy.collect.noise.kind=ou"),
    ),
}
ALTERNATIVES = ("env.env_id=agent_worlds:Mixed", "env.env_kwargs={actions: box}", "policy.collect.noise.kind=ou")
BATCH, AGENTS, RATE, TAU = 12, 3, 0.01, 0.25
KINDS = [*SPACES, "team"]


def make(kind):
    observation, action = SPACES["box" if kind == "box" else "discrete"]
    learn = {"learning_rate": RATE, "tau": TAU, "grad_norm": 0.0, "temperature": 0.7}
    cfg = tiny_config("maddpg", observation, action, **{f"policy.learn.{key}": x for key, x in learn.items()})
    cfg.policy.learn.logit_weight = 0.1
    cfg.env.spec.agents.team_reward = kind == "team"
    return kit.Bench(get_policy_class("maddpg")(cfg), BATCH, kind)


@pytest.fixture(scope="module")
def made():
    """Policies for discrete and for continuous actions with rewards of each agent, and one for a team's reward."""
    return {kind: make(kind) for kind in KINDS}


@pytest.fixture
def benches(made):
    """They, as they were built, with targets that differ from the networks."""
    for bench in made.values():
        bench.restore()
        rng = np.random.default_rng(3)
        for cell in (bench.root.net, bench.root.target_net, bench.root.target_critics):
            for p in cell.get_parameters():
                p.asnumpy()[...] += rng.normal(0.0, 0.3, p.shape).astype(np.float32)
    return made


def rows_for(bench):
    """Rows in which agents are missing, leave and come, episodes end, and others are cut by a time limit."""
    rng, rows = np.random.default_rng(0), bench.rows(action=3)
    for when in ("obs", "next_obs"):
        rows[f"{when}.alive"] = rng.random((BATCH, AGENTS)) < 0.7
        if f"{when}.action_mask" in rows:
            rows[f"{when}.action_mask"] = draw_masks([3], BATCH * AGENTS, rng).reshape(BATCH, AGENTS, 3)
    rows["terminated"] = (np.arange(BATCH) % 4 == 0).astype(np.float32)
    if rows["action"].dtype == np.float32:
        rows["action"] = np.tanh(rows["action"])
    return rows


class Step:
    """A gradient step on all rows, by the formulas."""

    def __init__(self, policy, rows, noise):
        self.rows, self.noise, self.learn = rows, noise, policy.cfg.learn
        self.discrete = policy.spec["action"]["kind"] == "discrete"
        self.team = policy.spec["agents"]["team_reward"]
        self.alive = rows["obs.alive"].astype(np.float64)
        self.counted = np.ones_like(self.alive) if self.team else self.alive
        action = np.eye(3)[rows["action"]] if self.discrete else rows["action"].astype(np.float64)
        self.taken = action * self.alive[..., None]

    def output(self, p, part, m, when):
        """Logits or actions (B, A) of the actor of agent m."""
        seen, net = self.rows[f"{when}.observation"][:, m].astype(np.float64), f"{part}.nets.{m}"
        if not self.discrete:
            return actor(p, net, seen)
        return np.where(self.rows[f"{when}.action_mask"][:, m], linear_head(p, net, "linear", seen), -1e30)

    def q(self, p, part, m, actions, when):
        seen = self.rows[f"{when}.observation"].astype(np.float64)
        joint = [each for k in range(AGENTS) for each in (seen[:, k], actions[:, k])]
        return own_value(p, f"{part}.nets.{m}", np.concatenate(joint, axis=1))

    def drawn(self, output, m, k):
        """The action of an actor's output; of logits the best with Gumbel noise."""
        return np.eye(3)[(output + self.noise[k][:, m]).argmax(axis=1)] if self.discrete else output

    def targets(self, p):
        there = self.rows["next_obs.alive"].astype(np.float64)
        actions = [self.drawn(self.output(p, "target_net", m, "next_obs"), m, 1) for m in range(AGENTS)]
        actions = np.stack(actions, axis=1) * there[..., None]
        going = self.rows["discount"] * (1.0 - self.rows["terminated"])
        made = []
        for m in range(AGENTS):
            value = going * self.q(p, "target_critics", m, actions, "next_obs")
            made.append(self.rows["reward"] + value if self.team else self.rows["reward"][:, m] + there[:, m] * value)
        return made

    def critic_loss(self, p, targets):
        errors = [0.5 * (self.q(p, "critics", m, self.taken, "obs") - targets[m]) ** 2 for m in range(AGENTS)]
        return sum(mean(error, self.counted[:, m]) for m, error in enumerate(errors))

    def value_of(self, p, m, own):
        actions = self.taken.copy()
        actions[:, m] = own
        return self.q(p, "critics", m, actions, "obs")

    def actor_loss(self, p):
        loss = 0.0
        for m in range(AGENTS):
            output = self.output(p, "net", m, "obs")
            loss -= mean(self.value_of(p, m, self.drawn(output, m, 0)), self.alive[:, m])
            loss += self.penalty(output, m)
        return loss

    def penalty(self, logits, m):
        if not self.discrete:
            return 0.0
        legal = self.rows["obs.action_mask"][:, m]
        square = np.where(legal, logits, 0.0) ** 2
        return self.learn.logit_weight * mean(square.sum(axis=1) / legal.sum(axis=1), self.alive[:, m])

    def linearised(self, p, fixed):
        """What has the straight-through gradient at `fixed`: the values' slopes there times the soft actions."""
        loss = 0.0
        for m in range(AGENTS):
            own = self.drawn(self.output(fixed, "net", m, "obs"), m, 0)
            slope = np.stack([self.slope(fixed, m, own, k) for k in range(own.shape[1])], axis=1)
            output = self.output(p, "net", m, "obs")
            if self.discrete:
                scores = (output + self.noise[0][:, m]) / self.learn.temperature
                soft = np.exp(scores - scores.max(axis=1, keepdims=True))
                loss += self.penalty(output, m) - mean(
                    (slope * soft / soft.sum(1, keepdims=True)).sum(1), self.alive[:, m]
                )
            else:
                loss -= mean((slope * output).sum(axis=1), self.alive[:, m])
        return loss

    def slope(self, p, m, own, k, step=1e-6):
        up, down = own.copy(), own.copy()
        up[:, k] += step
        down[:, k] -= step
        return (self.value_of(p, m, up) - self.value_of(p, m, down)) / (2 * step)


def mean(x, weight):
    return (x * weight).sum() / max(weight.sum(), 1e-8)


def step_of(bench, rows):
    """The step that the next update makes, with the noise that it will draw."""
    return Step(bench.policy, rows, bench.upcoming().gumbel(size=(2, 1, BATCH, AGENTS, 3))[:, 0])


@pytest.mark.parametrize("kind", KINDS)
def test_losses_and_gradients_are_those_of_the_formulas_and_targets_follow(benches, kind):
    bench = benches[kind]
    rows, p = rows_for(bench), bench.params
    step = step_of(bench, rows)
    metrics = bench.learn(rows).metrics
    targets, new = step.targets(p), bench.params
    # Actors are judged by the critics after their step.
    after = {**p, **{name: x for name, x in new.items() if name.startswith("critics.")}}
    q = [mean(step.q(p, "critics", m, step.taken, "obs"), step.counted[:, m]) for m in range(AGENTS)]
    expected = {"critic_loss": step.critic_loss(p, targets), "q_value": sum(q), "actor_loss": step.actor_loss(after)}
    kit.check_metrics(metrics, {name: number / AGENTS for name, number in expected.items()}, rel=1e-4)
    losses = {
        "critics": (lambda x: step.critic_loss(x, targets), p, "critics"),
        "actors": (lambda x: step.linearised(x, after), after, "net"),
    }
    kit.check_gradients(bench.policy, losses, rtol=1e-3)
    for name in new:
        if name.startswith("target_"):
            wanted = (1 - TAU) * p[name] + TAU * new[kit.online(name)]
            np.testing.assert_allclose(new[name], wanted, rtol=1e-5, atol=1e-6)
        elif not name.startswith("optim"):
            assert not np.array_equal(p[name], new[name])


def test_what_agents_do_and_see_that_are_not_there_changes_nothing(benches):
    bench = benches["discrete"]
    rows, start, found = rows_for(bench), copy.deepcopy(bench.policy.state_dict()), []
    gone = ~rows["obs.alive"]
    other = {
        "action": np.where(gone, 2 - rows["action"], rows["action"]),
        "reward": np.where(gone, np.float32(7.0), rows["reward"]),
    }
    for changes in ({}, other):
        bench.policy.load_state_dict(start)
        bench.learn({**rows, **changes})
        found.append(bench.params)
    kit.check_bits(*found)


def test_each_agent_acts_by_its_own_network(benches):
    for kind, policy in ((kind, bench.policy) for kind, bench in benches.items()):
        rng = np.random.default_rng(1)
        seen = rng.standard_normal((5, 1, 4)).astype(np.float32).repeat(AGENTS, axis=1)
        obs = {"observation": seen, "alive": np.ones((5, AGENTS), bool)}
        if kind != "box":
            obs["action_mask"] = np.ones((5, AGENTS, 3), bool)
        rows = policy.eval_mode.actor.rows(obs)
        made = policy.actors["eval"].outputs(rows)[0].reshape(5, AGENTS, -1)
        leaves = [seen[:, 0]] if kind == "box" else [obs["action_mask"][:, 0], seen[:, 0]]
        for m, net in enumerate(policy.net.nets):
            np.testing.assert_array_equal(made[:, m], net.host()(leaves)[0])
        assert len(np.unique(made[0], axis=0)) == AGENTS


def test_discrete_actions_are_drawn_and_continuous_ones_have_noise(benches):
    policies = {kind: bench.policy for kind, bench in benches.items()}
    obs = {"observation": np.zeros((500, AGENTS, 4), np.float32), "alive": np.ones((500, AGENTS), bool)}
    noisy = policies["box"].collect_mode.forward(obs)["action"] - policies["box"].eval_mode.forward(obs)
    assert 0.05 < noisy.std() < 0.15
    obs["action_mask"] = np.tile(np.array([True, False, True]), (500, AGENTS, 1))
    drawn = policies["discrete"].collect_mode.forward(obs)["action"]
    assert all(set(column) == {0, 2} for column in drawn.T)
    assert all(len(set(column)) == 1 for column in policies["discrete"].eval_mode.forward(obs).T)


def test_critics_see_their_own_agent_alone_where_they_are_not_central(tiny_config):
    cfg = tiny_config("maddpg", *SPACES["box"], **{"policy.model.central": False})
    critics = get_policy_class("maddpg")(cfg).root.critics
    assert [net.seen for net in critics.nets] == [(0,), (1,), (2,)]
    assert critics.nets[0].torso.layers[0].weight.shape == (8, 6)
