"""What the tests of algorithms of agents' values share: policies, episodes, and their networks in float64 NumPy."""

import kit
import numpy as np
import pytest
from action_values import linear, still_and_shifted
from fakes import dict_of, discrete, draw_masks, mask_of, space_of
from test_recurrent import gru_step, lstm_step

from minding import training
from minding.configs import compile_run
from minding.engine import Config, OnlineRLContext, Task
from minding.engine.buffers import SequenceBatch
from minding.envs import make_evaluator_env
from minding.middleware.evaluator import play_episodes

SEEN, ACTIONS, AGENTS = 4, 3, 3
SPACE = dict_of(action_mask=mask_of(ACTIONS), observation=space_of(SEEN))
SMALL = {"policy.model.memory_dim": 5}
LEARNS = {
    **kit.LEARNS,
    "run.max_env_step": 800,
    # The probe's own, which is as far as the memory is unrolled.
    "env.max_episode_steps": 2,
    "policy.model.memory_dim": 8,
    "policy.learn.batch_size": 16,
    "policy.learn.update_per_collect": 2,
    "policy.learn.learning_rate": 0.005,
    "policy.learn.target.freq": 20,
    "policy.other.eps.decay": 1000,
}
RESUMES = ("policy.model.memory_dim=8", "policy.learn.target.freq=5")
GATES = ("inputs.weight", "inputs.bias", "recurrent.weight", "recurrent.bias")
STEPS, TIME, EPISODES = 2, 4, 12


def disturbed(bench):
    """With targets that differ, and steps too small to change anything."""
    still_and_shifted(bench)
    rng = np.random.default_rng(7)
    for name, p in bench.root.parameters_and_names():
        if name.startswith("target_mixer."):
            p.asnumpy()[...] += rng.normal(0.0, 0.5, p.shape).astype(np.float32)


def team_benches(algorithm, **settings):
    return kit.benches(
        algorithm, SPACE, discrete(ACTIONS), TIME * EPISODES, prepare=disturbed, **SMALL, **kit.RAW, **settings
    )


# Episodes


def episodes(policy, length, rng):
    """Episodes of any length up to `length`, with masks, deaths and late arrivals, that end in both ways.

    Returns:
      Rows (length, EPISODES, ...) by field, in which places behind an end hold what means nothing, and the lengths.
    """
    lengths = 1 + np.arange(EPISODES) % length
    there = np.ones((length + 1, EPISODES, AGENTS), bool)
    for b in range(EPISODES):
        # One of the others is always there.
        m, t = b % (AGENTS - 1), lengths[b] - b // length % lengths[b]
        there[t:, b, m] = False
        if b % 5 == 4:
            there[:t, b, m], there[t:, b, m] = False, True
    rows, shape = {}, (length, EPISODES)
    for name, field in policy.learn_mode.fields.items():
        leaf = name.removeprefix("next_obs.").removeprefix("obs.")
        if leaf == "alive":
            rows[name] = there[1:] if name.startswith("next") else there[:-1]
        elif leaf == "action_mask":
            rows[name] = draw_masks((ACTIONS,), length * EPISODES * AGENTS, rng).reshape(*shape, AGENTS, ACTIONS)
        elif leaf == "action":
            rows[name] = rng.integers(0, ACTIONS, (*shape, AGENTS))
        elif leaf == "terminated":
            ends = np.arange(length)[:, None] == lengths - 1
            rows[name] = (ends & (np.arange(EPISODES) % 3 > 0)).astype(np.float32)
        else:
            rows[name] = rng.standard_normal((*shape, *field.shape)).astype(np.float32)
    for name in [name for name in rows if name.startswith("obs.")]:
        # What follows a row is what the next one begins with.
        rows[name][1:] = rows[f"next_{name}"][:-1]
    # What was done is legal, but for those who are not there.
    legal = np.take_along_axis(rows["obs.action_mask"], rows["action"][..., None], -1)[..., 0]
    rows["action"] = np.where(legal, rows["action"], rows["obs.action_mask"].argmax(-1))
    return rows, lengths


def batch_of(bench, rows, lengths, places=None):
    """A batch of the episodes, twice, with `places` steps each: the last row again behind the end."""
    length = len(rows["action"])
    flat = {name: values.reshape(length * EPISODES, *values.shape[2:]) for name, values in rows.items()}
    t = np.arange(places or length)[:, None]
    index = (np.minimum(t, lengths - 1) * EPISODES + np.arange(EPISODES)).astype(np.int32)
    made = bench.batch(flat, np.stack([index] * STEPS))
    filled = np.stack([t < lengths] * STEPS)
    return SequenceBatch(layout=made.layout, tables=made.tables, index=made.index, filled=filled, burn_in=0)


# Formulas in float64


def agent_values(p, part, rows, b, m, length):
    """Q (length + 1, A) of agent m in episode b, observation by observation; (length + 1, A, K) of a joint value."""
    kept, last, found = np.zeros((1, 0)), np.zeros(ACTIONS), []
    weights = [p[name] for name in (f"{part}.memory.{layer}" for layer in GATES) if name in p]
    if weights:
        # A GRU has three gates and remembers what it returns, an LSTM has four and remembers as much again.
        units = weights[2].shape[1]
        kept = np.zeros((1, units * (len(weights[0]) // units - 2)))
    for t in range(length + 1):
        prefix, row = ("obs.", t) if t < length else ("next_obs.", length - 1)
        seen = rows[f"{prefix}observation"][row, b, m]
        x = np.concatenate([seen, np.eye(AGENTS)[m], last]).astype(np.float64)[None]
        h = np.maximum(linear(p, f"{part}.torso.layers.0", x), 0.0)
        if weights:
            kept = (gru_step if kept.shape[1] == units else lstm_step)(weights, h, kept)
            h = kept[:, :units]
        q = linear(p, f"{part}.values", h)[0]
        legal = rows[f"{prefix}action_mask"][row, b, m]
        found.append(q.reshape(ACTIONS, -1) if "joint" in part else np.where(legal, q, -1e30))
        if t < length:
            last = np.eye(ACTIONS)[rows["action"][t, b, m]]
    return np.stack(found)


class Episode:
    """Values of one episode: `done` (L, M) of what was done, `best` (L, M) of what could be done next."""

    def __init__(self, p, rows, b, length, double):
        self.length, self.b = length, b
        each = [
            (agent_values(p, "net", rows, b, m, length), agent_values(p, "target", rows, b, m, length))
            for m in range(AGENTS)
        ]
        at = np.arange(length)
        self.done = np.stack([q[at, rows["action"][:length, b, m]] for m, (q, _) in enumerate(each)], 1)
        self.best = np.stack([target[at + 1, (q if double else target)[1:].argmax(-1)] for q, target in each], 1)
        self.there, self.there_then = (rows[f"{name}.alive"][:length, b].astype(float) for name in ("obs", "next_obs"))
        self.reward = rows["reward"][:length, b].astype(np.float64)
        self.decay = 0.9 * (1.0 - rows["terminated"][:length, b])
        if "obs.state" in rows:
            self.state, self.state_then = (rows[f"{name}.state"][:length, b] for name in ("obs", "next_obs"))


def lambda_returns(reward, decay, following, td_lambda):
    """r + decay ((1 - lambda) v + lambda y'), from the last step back; behind it y' is v. (L, ...) each."""
    returns, later = [], following[-1]
    for r, d, v in zip(reward[::-1], decay[::-1], following[::-1]):
        later = r + d * ((1.0 - td_lambda) * v + td_lambda * later)
        returns.append(later)
    return np.stack(returns[::-1])


class JointEpisode:
    """What `JointQLearning` compares in an `Episode`: the joint values of what was done and of the best actions, (L,),
    whether these are the same, and the targets.

    The actions that are best are those of the parameters `fixed`.
    """

    def __init__(self, own, fixed, episode, rows, settings):
        b, length = episode.b, episode.length
        at, actions = np.arange(length), rows["action"][:length, b]
        q, target, joint, following, self.q = (
            np.stack([agent_values(p, part, rows, b, m, length) for m in range(AGENTS)], 1)
            for p, part in (
                (fixed, "net"),
                (fixed, "target"),
                (own, "mixer.joint.net"),
                (fixed, "target_mixer.joint.net"),
                (own, "net"),
            )
        )
        joint = joint[:-1]
        best, best_then = q[:-1].argmax(-1), (q if settings.double else target)[1:].argmax(-1)
        there, each = episode.there, (at[:, None], np.arange(AGENTS))
        self.is_best = ((best == actions) | (there == 0.0)).all(-1)
        self.best = there * self.q[(*each, best)]
        joint *= there[..., None, None]

        def of_all(*chosen):
            return np_joint(own, "mixer.joint", episode.state, joint[chosen].reshape(length, -1))

        self.joint, self.joint_best = of_all(*each, actions), of_all(*each, best)
        self.if_one_had_done = lambda m, a: of_all(*each, np.where(np.arange(AGENTS) == m, a, actions))
        then = episode.there_then[..., None] * following[at[:, None] + 1, each[1], best_then]
        following = np_joint(fixed, "target_mixer.joint", episode.state_then, then.reshape(length, -1))
        self.target = lambda_returns(episode.reward, episode.decay, following, 0.7)


def np_joint(p, part, *inputs):
    """A value (L,) by two layers of the inputs."""
    hidden = linear(p, f"{part}.torso.layers.0", np.concatenate(inputs, -1).astype(np.float64))
    return linear(p, f"{part}.value", np.maximum(hidden, 0.0))[:, 0]


class TeamTests:
    """Tests of an algorithm that learns from whole episodes; a file gives the fixtures of `team_benches`."""

    parts = 1
    """How many errors of each step the loss has."""

    def errors(self, own, fixed, episode):
        """Errors of the steps of an `Episode` by parameters and those of the targets, and how much each counts."""

    def test_the_update_has_the_loss_and_gradient_of_its_formula(self, bench):
        policy = bench.policy
        rows, lengths = episodes(policy, TIME, np.random.default_rng(3))
        deaths = (rows["obs.alive"] & ~rows["next_obs.alive"]).any(-1) & (np.arange(TIME)[:, None] < lengths)
        assert deaths.any(1).all()
        output = policy.learn_mode.forward(batch_of(bench, rows, lengths))
        p, double = bench.params, bench.settings.double
        taught = [Episode(p, rows, b, length, double) for b, length in enumerate(lengths)]
        self.rows, self.settings = rows, bench.settings

        def loss(own):
            errors, counts = [], []
            for b, length in enumerate(lengths):
                episode = Episode(own, rows, b, length, double)
                # What the online network chooses is a constant.
                episode.best = taught[b].best
                error, count = self.errors(own, p, episode)
                errors.append(error.ravel())
                counts.append(count.ravel())
            errors, counts = np.concatenate(errors), np.concatenate(counts)
            return self.parts * (counts * errors**2).sum() / counts.sum()

        assert output.metrics["loss"] == pytest.approx(loss(p), rel=1e-5)
        names = [name for name in p if name.startswith(("net.", "mixer."))]
        # Adam's first moment after two steps with the same gradient: 0.19 g.
        found = [moment.asnumpy().astype(np.float64) / 0.19 for moment in policy.root.optim.steps[0].m]
        kit.check_slopes(loss, p, names, found, rel=2e-4, abs=2e-4)


TWO_STEP = "minding.envs.games.two_step:TwoStep"
ONE_STEP = "minding.envs.games.matrix_game:MatrixGame"

PLAY = (
    *("run.max_env_step=4000", "policy.collect.n_sample=80", "policy.other.buffer_size=2000"),
    *("policy.learn.learning_rate=3e-3", "policy.learn.warmup=160", "policy.learn.update_per_collect=20"),
    *("policy.learn.target.freq=40", "policy.other.eps.end=1.0", "policy.model.memory_dim=16"),
    # Lambda-returns would be those of random play.
    "policy.learn.td_lambda=0.0",
)


def matrix_game(algorithm, game=TWO_STEP):
    """What greedy agents earn in a game of payoffs after learning from random play."""
    return greedy_return(algorithm, game, 18, *PLAY)


def greedy_return(algorithm, game, iterations, *settings):
    """What greedy agents earn in an episode of a game after some iterations."""
    env = {"env_id": game, "collector_env_num": 8, "evaluator_env_num": 1}
    user = Config(env=env, policy={"type": algorithm, "model": {"hidden": [16]}})
    cfg, task = compile_run(user, ["policy.eval.freq=1000000", *settings]), Task()
    with task.start(ctx=OnlineRLContext()):
        policy = training.build(task, cfg)
        task.run(max_step=iterations)
    env = make_evaluator_env(cfg)
    try:
        return play_episodes(policy.eval_mode, env, 1, max_steps=2)[0].episode_return
    finally:
        env.close()
