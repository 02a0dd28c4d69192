"""The formulas of actors and critics of teams in float64, and the rows of their tests."""

import kit
import numpy as np
from fakes import dict_of, discrete, draw_masks, mask_of, space_of, tiny_config
from float64_networks import actor, linear_head, own_value

from minding.policies import get_policy_class

SPACES = {
    "discrete": (dict_of(action_mask=mask_of(3), observation=space_of(4)), discrete(3)),
    "box": (dict_of(observation=space_of(4)), space_of(2)),
}
BATCH, AGENTS, RATE, TAU = 12, 3, 0.01, 0.25


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
    """A gradient step of MADDPG or MATD3 on all rows, by the formulas.

    Args:
      policy: the policy.
      rows: the rows, by field.
      noise: float (2, B, M, A), of the actions and of the next actions.
    """

    def __init__(self, policy, rows, noise):
        self.rows, self.noise, self.learn = rows, noise, policy.cfg.learn
        self.critics = policy.root.critics.n_critics
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
        """Values (N, B) of all critics of agent m."""
        seen = self.rows[f"{when}.observation"].astype(np.float64)
        joint = [each for k in range(AGENTS) for each in (seen[:, k], actions[:, k])]
        joint = np.concatenate(joint, axis=1)
        return np.stack([own_value(p, f"{part}.nets.{k * AGENTS + m}", joint) for k in range(self.critics)])

    def drawn(self, output, m, k):
        """The action of an actor's output; of logits the best with Gumbel noise."""
        if self.discrete:
            return np.eye(3)[(output + self.noise[k][:, m]).argmax(axis=1)]
        return np.clip(output + self.noise[k][:, m], -1.0, 1.0) if k else output

    def next_action(self, p, m):
        """The next action of agent m (B, A), and what is added to its value."""
        return self.drawn(self.output(p, "target_net", m, "next_obs"), m, 1), 0.0

    def targets(self, p):
        there = self.rows["next_obs.alive"].astype(np.float64)
        actions, bonus = zip(*(self.next_action(p, m) for m in range(AGENTS)))
        actions = np.stack(actions, axis=1) * there[..., None]
        going = self.rows["discount"] * (1.0 - self.rows["terminated"])
        made = []
        for m in range(AGENTS):
            value, own = self.q(p, "target_critics", m, actions, "next_obs").min(axis=0), there[:, m] * bonus[m]
            if self.team:
                made.append(self.rows["reward"] + going * (value + own))
            else:
                made.append(self.rows["reward"][:, m] + going * (there[:, m] * value + own))
        return made

    def critic_loss(self, p, targets):
        errors = [0.5 * (self.q(p, "critics", m, self.taken, "obs") - targets[m]) ** 2 for m in range(AGENTS)]
        return sum(mean(error.sum(axis=0), self.counted[:, m]) for m, error in enumerate(errors))

    def q_value(self, p):
        values = [self.q(p, "critics", m, self.taken, "obs")[0] for m in range(AGENTS)]
        return sum(mean(value, self.counted[:, m]) for m, value in enumerate(values)) / AGENTS

    def value_of(self, p, m, own):
        actions = self.taken.copy()
        actions[:, m] = own
        return self.judged(self.q(p, "critics", m, actions, "obs"))

    def judged(self, q):
        """The value that the actor of an agent raises, from those of its critics (N, B)."""
        return q[0]

    def actor_loss(self, p):
        loss = 0.0
        for m in range(AGENTS):
            output = self.output(p, "net", m, "obs")
            loss -= mean(self.value_of(p, m, self.drawn(output, m, 0)), self.alive[:, m])
            loss += self.penalty(output, m)
        return loss

    def penalty(self, logits, m):
        """What is added to the loss of an agent besides its value."""
        if not self.discrete:
            return 0.0
        legal = self.rows["obs.action_mask"][:, m]
        square = np.where(legal, logits, 0.0) ** 2
        return self.learn.logit_weight * mean(square.sum(axis=1) / legal.sum(axis=1), self.alive[:, m])

    def linearised(self, p, fixed):
        """A function with the straight-through gradient at `fixed`: the values' slopes there times the soft actions."""
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


def check_step(bench, rows, step, metrics_of=None):
    """The next step on these rows is as `step` says: metrics, gradients, and targets that move."""
    p = bench.params
    metrics, targets, new = bench.learn(rows).metrics, step.targets(p), bench.params
    # Actors are judged by the critics after their step.
    after = {**p, **{name: x for name, x in new.items() if name.startswith("critics.")}}
    expected = {
        "critic_loss": step.critic_loss(p, targets) / AGENTS,
        "q_value": step.q_value(p),
        "actor_loss": step.actor_loss(after) / AGENTS,
        **(metrics_of(p) if metrics_of else {}),
    }
    kit.check_metrics(metrics, expected, rel=1e-4)
    losses = {
        "critics": (lambda x: step.critic_loss(x, targets), p, "critics"),
        "actor": (lambda x: step.linearised(x, after), after, "net"),
    }
    kit.check_gradients(bench.policy, losses, rtol=1e-3)
    for name in new:
        if name.startswith("target_"):
            wanted = (1 - TAU) * p[name] + TAU * new[kit.online(name)]
            np.testing.assert_allclose(new[name], wanted, rtol=1e-5, atol=1e-6)
        elif not name.startswith("optim"):
            assert not np.array_equal(p[name], new[name])


def differ(bench):
    """Changes networks and targets, so that each differs from the others."""
    rng = np.random.default_rng(3)
    for part in ("net", "target_net", "target_critics"):
        for p in getattr(bench.root, part).get_parameters() if hasattr(bench.root, part) else ():
            p.asnumpy()[...] += rng.normal(0.0, 0.3, p.shape).astype(np.float32)


def make(algorithm, kind, learn=None, **settings):
    """A policy for discrete or continuous actions; with the kind "team", its agents share a reward."""
    observation, action = SPACES["box" if kind == "box" else "discrete"]
    learn = {"learning_rate": RATE, "tau": TAU, "grad_norm": 0.0, **(learn or {})}
    settings.update({f"policy.learn.{key}": x for key, x in learn.items()})
    cfg = tiny_config(algorithm, observation, action, **settings)
    cfg.env.spec.agents.team_reward = kind == "team"
    return kit.Bench(get_policy_class(algorithm)(cfg), BATCH, kind)
