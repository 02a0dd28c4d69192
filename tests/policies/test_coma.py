"""COMA: one update against float64 NumPy, the game that needs both agents."""

import kit
import numpy as np
import pytest
from action_values import linear, np_log_softmax
from fakes import dict_of, discrete, draw_masks, mask_of, space_of
from team_values import GATES, TWO_STEP, greedy_return
from test_recurrent import gru_step
from treevalue import FastTreeValue

pytestmark = pytest.mark.eager

ACTIONS, SEEN, AGENTS, SIZE = 3, 4, 3, 5
SPACE = dict_of(action_mask=mask_of(ACTIONS), observation=space_of(SEEN))
SMALL = {"policy.model.memory_dim": SIZE, "policy.model.critic_hidden": [8]}
CONTRACT = {"coma": (SPACE, discrete(ACTIONS), {**SMALL, "policy.model.normalize_obs": True})}
RESUMES = {
    "COMA for agents of a team who leave, come late and have masks": (
        "agent_worlds:Squad",
        (
            *("env.env_kwargs={leave: 2, late: 1, mask: info}", "env.info_keys=[action_mask]"),
            *("policy.model.memory_dim=8", "policy.learn.target.freq=5", "policy.learn.n_minibatch=2"),
        ),
    )
}
ALTERNATIVES = (
    *("policy.learn.target.kind=soft", "policy.learn.normalize_advantage=false", "policy.model.critic_state=false"),
)
TIME, RATE = 4, 0.01
ENDS = [(kind, t) for kind in ("terminated", "truncated", "reset") for t in range(TIME)]
"""One environment each: what happens in it, and in which step."""
ENVS = len(ENDS) + 1
ROWS = TIME * ENVS


# The update

LEARN = {"learning_rate": RATE, "gamma": 0.9, "td_lambda": 0.7, "grad_norm": 0.0, "entropy_weight": 0.1}
SETTINGS = {**SMALL, "learn": {**LEARN, "target.freq": 3}}


def disturbed(bench):
    rng = np.random.default_rng(3)
    for cell in (bench.root.net, bench.root.critic, bench.root.target):
        for p in cell.get_parameters():
            p.asnumpy()[...] += rng.normal(0.0, 0.3, p.shape).astype(np.float32)


KINDS = {
    "plain": {},
    "two minibatches": {"learn": {"n_minibatch": 2}},
    "without the state": {"policy.model.critic_state": False},
}
built, bench = kit.benches("coma", SPACE, discrete(ACTIONS), ROWS, KINDS, disturbed, **SETTINGS)


def rows_for(bench):
    """A rollout (T, N) with an end, a time limit and a reset in every step; agents are missing and leave."""
    rng, lead = np.random.default_rng(0), (TIME, ENVS)
    drawn = bench.rows(action=ACTIONS)
    rows = {name: values.reshape(*lead, *values.shape[1:]) for name, values in drawn.items()}
    ended, cut, valid = np.zeros(lead, np.float32), np.zeros(lead, np.float32), np.ones(lead, np.float32)
    for n, (kind, t) in enumerate(ENDS):
        cut[t, n] = 1.0
        if kind == "terminated":
            ended[t, n] = 1.0
        elif kind == "reset":
            valid[t, n], cut[max(t - 1, 0), n] = 0.0, 1.0
    rows.update(terminated=ended, cut=cut, valid=valid)
    # Who has left stays away.
    leaves = rng.integers(1, TIME + 4, (ENVS, AGENTS))
    there = np.arange(TIME + 1)[:, None, None] < leaves
    rows["obs.alive"], rows["next_obs.alive"] = there[:-1], there[1:]
    for when in ("obs", "next_obs"):
        shape = (*lead, AGENTS, ACTIONS)
        rows[f"{when}.action_mask"] = draw_masks([ACTIONS], ROWS * AGENTS, rng).reshape(shape)
    mask = rows["obs.action_mask"]
    legal = np.take_along_axis(mask, rows["action"][..., None], -1)[..., 0]
    rows["action"] = np.where(legal, rows["action"], mask.argmax(-1))
    rows["log_prob"] = np.log(rng.uniform(0.1, 0.9, rows["log_prob"].shape)).astype(np.float32)
    rows["memory"] = np.tanh(rows["memory"])
    rows["memory"][..., SIZE:] = np.eye(ACTIONS)[rng.integers(0, ACTIONS, (*lead, AGENTS))]
    return rows


def learn(bench, rows, places=None):
    """Two steps on the rollout, or on the columns of it in `places`."""
    flat = {name: values.reshape(ROWS, *values.shape[2:]) for name, values in rows.items()}
    index = np.arange(ROWS).reshape(TIME, ENVS)
    return bench.learn(flat, np.stack([index[:, each] for each in places or [slice(None)] * 2]))


def one_hot(action):
    return np.eye(ACTIONS)[action]


class Oracle:
    """The gradient step on a rollout, by the formulas; arrays are (T, N, M, ...)."""

    def __init__(self, policy, rows, noise):
        self.rows, self.learn = rows, policy.cfg.learn
        self.sees_state = policy.cfg.model.critic_state
        self.noise = noise.reshape(TIME, ENVS, AGENTS, ACTIONS)
        self.there, self.there_then = (rows[f"{when}.alive"].astype(np.float64) for when in ("obs", "next_obs"))
        self.taken = one_hot(rows["action"]) * self.there[..., None]
        self.last = rows["memory"][..., SIZE:].astype(np.float64)
        self.valid = np.repeat(rows["valid"][..., None], AGENTS, -1).astype(np.float64)
        self.acting = self.valid * self.there

    # The actor

    def step(self, p, when, t, last, h):
        """(h', logits) of all agents from what they see in row t."""
        seen = self.rows[f"{when}.observation"][t].astype(np.float64)
        agent = np.broadcast_to(np.eye(AGENTS), (ENVS, AGENTS, AGENTS))
        x = np.maximum(linear(p, "net.torso.layers.0", np.concatenate([seen, agent, last], -1)), 0.0)
        weights = [p[f"net.memory.{name}"] for name in GATES]
        h = gru_step(weights, x.reshape(-1, x.shape[-1]), h.reshape(-1, SIZE)).reshape(ENVS, AGENTS, SIZE)
        mask = self.rows[f"{when}.action_mask"][t]
        return h, np.where(mask, linear(p, "net.values", h), -1e30)

    def acted(self, p):
        """Logits in all rows and in their true successors."""
        h, made, following = self.rows["memory"][0, ..., :SIZE].astype(np.float64), [], []
        for t in range(TIME):
            if t:
                h = h * (1.0 - self.rows["cut"][t - 1])[:, None, None]
            h, logits = self.step(p, "obs", t, self.last[t], h)
            made.append(logits)
            following.append(self.step(p, "next_obs", t, one_hot(self.rows["action"][t]), h)[1])
        return np.stack(made), np.stack(following)

    # The critic

    def q(self, p, part, when, there, taken, last):
        agents = np.broadcast_to(np.eye(AGENTS), (TIME, ENVS, AGENTS, AGENTS))
        seen = np.concatenate([self.rows[f"{when}.observation"], agents], -1) * there[..., None]
        made = []
        for m in range(AGENTS):
            others = taken.copy()
            others[:, :, m] = 0.0
            joint = [each.reshape(TIME, ENVS, -1) for each in (others, last)]
            place = np.broadcast_to(np.eye(AGENTS)[m], (TIME, ENVS, AGENTS))
            state = [self.rows[f"{when}.state"]] if self.sees_state else []
            x = np.concatenate([seen[:, :, m], *state, *joint, place], -1)
            made.append(linear(p, f"{part}.values", np.maximum(linear(p, f"{part}.torso.layers.0", x), 0.0)))
        return np.stack(made, 2)

    def present_q(self, p):
        return self.q(p, "critic", "obs", self.there, self.taken, self.last * self.there[..., None])

    def chosen(self, q, action, there):
        action = np.where(there > 0, action, 0)
        return np.take_along_axis(q, action[..., None], -1)[..., 0]

    def target(self, p):
        rows, gamma, share = self.rows, self.learn.gamma, self.learn.td_lambda
        action = (self.acted(p)[1] + self.noise).argmax(-1)
        for t in range(TIME - 1):
            goes = rows["cut"][t] == 0
            action[t, goes] = rows["action"][t + 1, goes]
        there, last = self.there_then, self.taken * self.there_then[..., None]
        q = self.q(p, "target", "next_obs", there, one_hot(action) * there[..., None], last)
        value, following = self.chosen(q, action, there), None
        made = np.zeros((TIME, ENVS, AGENTS))
        for t in reversed(range(TIME)):
            for n in range(ENVS):
                goes = t < TIME - 1 and rows["cut"][t, n] == 0
                ahead = (1 - share) * value[t, n] + share * following[n] if goes else value[t, n]
                made[t, n] = rows["reward"][t, n] + gamma * (1.0 - rows["terminated"][t, n]) * ahead
            following = made[t]
        return made

    def critic(self, p, target):
        value = self.chosen(self.present_q(p), self.rows["action"], self.there)
        return {"critic_loss": mean(0.5 * (value - target) ** 2, self.valid), "q_value": mean(value, self.valid)}

    def constants(self, p):
        """What the actor's step takes as given: how much each row weighs, its log-ratio, and the size of advantages."""
        q, pi = self.present_q(p), np.exp(np_log_softmax(self.acted(p)[0]))
        advantage = self.of_taken(q) - (pi * q).sum(-1)
        size = np.sqrt(mean(advantage**2, self.acting))
        log_ratio = np.log(np.where(self.acting > 0, self.of_taken(pi), 1.0)) - self.rows["log_prob"]
        return np.minimum(np.exp(log_ratio), 2.0) * advantage / size, log_ratio, size

    def actor(self, p, fixed):
        """The loss of the actor and what is reported of it; `fixed`: see `constants`."""
        weight, log_ratio, size = fixed
        logits = self.acted(p)[0]
        log_pi = np_log_softmax(logits)
        entropy = mean(entropies(log_pi), self.acting)
        loss = -mean(weight * self.of_taken(log_pi), self.acting)
        kl = mean(np.exp(log_ratio) - 1.0 - log_ratio, self.acting)
        reported = {"actor_loss": loss, "entropy": entropy, "approx_kl": kl, "advantage": size}
        return loss - self.learn.entropy_weight * entropy, reported

    def of_taken(self, x):
        return np.take_along_axis(x, self.rows["action"][..., None], -1)[..., 0]


def mean(x, weight):
    return (x * weight).sum() / weight.sum()


def entropies(log_pi):
    return -(np.exp(log_pi) * np.where(log_pi > -1e20, log_pi, 0.0)).sum(-1)


def oracle_of(bench, rows):
    """The next step, with the noise that it will draw."""
    return Oracle(bench.policy, rows, bench.upcoming().gumbel(size=(ROWS, AGENTS, ACTIONS)))


def test_losses_and_gradients_are_those_of_the_formulas(bench):
    bench.hold_still()
    rows = rows_for(bench)
    step, p = oracle_of(bench, rows), bench.params
    assert 0 < (step.valid - step.acting).sum() < step.acting.sum()
    metrics, target, fixed = learn(bench, rows).metrics, step.target(p), step.constants(p)
    kit.check_metrics(metrics, {**step.critic(p, target), **step.actor(p, fixed)[1]})
    losses = {"net": lambda x: step.actor(x, fixed)[0], "critic": lambda x: step.critic(x, target)["critic_loss"]}
    # Adam's first moment after one step of the actor, and two of the critic with the same gradient.
    for optim, (part, loss), share in zip(bench.root.optim.steps, losses.items(), (0.1, 0.19)):
        found = [m.asnumpy().astype(np.float64) / share for m in optim.m]
        names = [name for name in p if name.startswith(f"{part}.")]
        kit.check_slopes(loss, p, names, found, rel=2e-4, abs=1e-6)


@pytest.mark.parametrize("steps", [2, pytest.param(1, marks=pytest.mark.slow)])
def test_the_actor_follows_the_critics_last_step(bench, steps):
    rows, before, places = rows_for(bench), bench.params, [slice(None)] * steps
    step = oracle_of(bench, rows)
    metrics, after = learn(bench, rows, places).metrics, bench.params
    powers = [float(optim.beta1_power.asnumpy()) for optim in bench.root.optim.steps]
    assert powers == pytest.approx([0.9, 0.9**steps])
    # It is judged by the critic after that step.
    judged = {**before, **{name: x for name, x in after.items() if name.startswith("critic.")}}
    kit.check_metrics(metrics, step.actor(judged, step.constants(judged))[1])
    targets = [name for name in before if name.startswith("target.")]
    # It is after three steps.
    for _ in range(2 // steps):
        assert all(np.array_equal(before[name], bench.params[name]) for name in targets)
        learn(bench, rows, places)
    assert not any(np.array_equal(after[name], bench.params[name]) for name in targets)


@pytest.mark.slow
def test_the_actor_steps_with_each_minibatch_of_the_last_pass(built):
    bench = built("two minibatches")
    bench.hold_still()
    rows = rows_for(bench)
    step, halves = oracle_of(bench, rows), (slice(0, ENVS // 2), slice(ENVS // 2, ENVS // 2 * 2))
    metrics = learn(bench, rows, halves * 3).metrics
    powers = [float(optim.beta1_power.asnumpy()) for optim in bench.root.optim.steps]
    assert powers == pytest.approx([0.9**2, 0.9**6])
    entropy = entropies(np_log_softmax(step.acted(bench.params)[0]))
    expected = [mean(entropy[:, half], step.acting[:, half]) for half in halves]
    assert metrics["entropy"] == pytest.approx(np.mean(expected), rel=1e-5)


@pytest.mark.slow
def test_without_the_state_the_critic_sees_the_same_but_for_it(built):
    bench = built("without the state")
    bench.hold_still()
    rows = rows_for(bench)
    step, p = oracle_of(bench, rows), bench.params
    kit.check_metrics(learn(bench, rows).metrics, step.critic(p, step.target(p)))


def team_obs(count, seed=0):
    rng = np.random.default_rng(seed)
    return FastTreeValue(
        {
            "action_mask": draw_masks([ACTIONS], count * AGENTS, rng).reshape(count, AGENTS, ACTIONS),
            "alive": np.ones((count, AGENTS), bool),
            "observation": rng.standard_normal((count, AGENTS, SEEN)).astype(np.float32),
            "state": rng.standard_normal((count, 2)).astype(np.float32),
        }
    )


def test_what_has_acted_is_the_policy_that_learns(bench):
    mode, rows = bench.policy.collect_mode, rows_for(bench)
    mode.reset()
    bench.hold_still()
    rows.update(valid=np.ones((TIME, ENVS), np.float32), cut=np.zeros((TIME, ENVS), np.float32))
    rows["obs.alive"] = np.ones_like(rows["obs.alive"])
    for t in range(TIME):
        obs = team_obs(ENVS, t)
        if t == 2:
            rows["cut"][1, 0] = 1.0
            mode.reset([0])
        record = mode.forward(obs)
        legal = np.take_along_axis(obs.action_mask, record["action"][..., None], -1)
        assert legal.all()
        assert record["memory"][0, :, SIZE:].sum() == (0 if t in (0, 2) else AGENTS)
        seen = {f"obs.{name}": obs[name] for name in ("action_mask", "observation", "state")}
        for name, values in {**seen, **record}.items():
            rows[name][t] = values
    metrics = learn(bench, rows).metrics
    assert abs(metrics["approx_kl"]) < 1e-6
    # Another action before would have been another policy.
    rows["memory"][1:, :, :, SIZE:] = np.roll(rows["memory"][1:, :, :, SIZE:], 1, -1)
    assert learn(bench, rows).metrics["approx_kl"] > 1e-4


# Acting


@pytest.mark.shared_graphs
@pytest.mark.slow
def test_the_two_step_game_is_solved():
    # Whoever explores too little stays with the sure 7.
    settings = (
        *("run.max_env_step=6400", "env.collector_env_num=16", "policy.collect.n_sample=64"),
        *("policy.model.memory_dim=16", "policy.model.critic_hidden=[32]"),
        *("policy.learn.learning_rate=0.01", "policy.learn.critic_learning_rate=0.01"),
        *("policy.learn.entropy_weight=1.0", "policy.learn.normalize_advantage=false"),
        *("policy.learn.target.kind=soft", "policy.learn.target.tau=0.1"),
    )
    assert greedy_return("coma", TWO_STEP, 100, *settings) == 8.0
