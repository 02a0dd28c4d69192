"""What the tests of algorithms of agents' values share: policies, episodes, and their networks in float64 NumPy."""

import copy
import warnings

import numpy as np
from action_values import linear, params, shift_target
from fakes import Batches, dict_of, discrete, draw_masks, mask_of, set_rate, space_of
from test_recurrent import gru_step, lstm_step

from minding import training
from minding.configs import compile_run
from minding.engine import Config, OnlineRLContext, Task
from minding.engine.buffers import SequenceBatch
from minding.engine.process.compiled import RecompileWarning
from minding.envs import make_evaluator_env
from minding.middleware.evaluator import play_episodes
from minding.policies import get_policy_class

SIGNATURES = 2
"""One for calls that move the target, one for the others."""
SEEN, ACTIONS, AGENTS = 4, 3, 3
SPACE = dict_of(action_mask=mask_of(ACTIONS), observation=space_of(SEEN))
SMALL = {"policy.model.memory_dim": 5}
LEARNS = {
    "run.max_env_step": 1600,
    # The probe's own, which is as far as the memory is unrolled.
    "env.max_episode_steps": 2,
    "policy.collect.n_sample": 8,
    "policy.model.memory_dim": 8,
    "policy.learn.batch_size": 16,
    "policy.learn.warmup": 64,
    "policy.learn.update_per_collect": 2,
    "policy.learn.learning_rate": 0.005,
    "policy.learn.target.freq": 20,
    "policy.other.buffer_size": 2000,
    "policy.other.eps.decay": 1000,
}
RESUMES = ("policy.model.memory_dim=8", "policy.learn.target.freq=5")
GATES = ("inputs.weight", "inputs.bias", "recurrent.weight", "recurrent.bias")
STEPS, TIME, EPISODES = 2, 4, 12


def make_policy(tiny_config, algorithm, **overrides):
    return get_policy_class(algorithm)(tiny_config(algorithm, SPACE, discrete(ACTIONS), **SMALL, **overrides))


def disturbed(policy):
    """Yields the policy with targets that differ and steps too small to change anything, then puts it back."""
    state = copy.deepcopy(policy.state_dict())
    rng = np.random.default_rng(7)
    shift_target(policy)
    for name, p in policy.root.parameters_and_names():
        if name.startswith("target_mixer."):
            p.asnumpy()[...] += rng.normal(0.0, 0.5, p.shape).astype(np.float32)
    set_rate(policy, 1e-12)
    yield policy
    policy.load_state_dict(state)
    set_rate(policy, policy.cfg.learn.learning_rate)


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


def batch_of(batches, rows, lengths, places=None):
    """A batch of the episodes, twice, with `places` steps each: the last row again behind the end."""
    length = len(rows["action"])
    flat = {name: values.reshape(length * EPISODES, *values.shape[2:]) for name, values in rows.items()}
    t = np.arange(places or length)[:, None]
    index = (np.minimum(t, lengths - 1) * EPISODES + np.arange(EPISODES)).astype(np.int32)
    made = batches(flat, np.stack([index] * STEPS))
    filled = np.stack([t < lengths] * STEPS)
    return SequenceBatch(layout=made.layout, tables=made.tables, index=made.index, filled=filled, burn_in=0)


def make_batches(policy):
    return Batches(policy, TIME * EPISODES)


# Formulas in float64


def agent_values(p, part, rows, b, m, length):
    """Q (length + 1, A) of agent m in episode b, observation by observation."""
    kept, last, found = np.zeros((1, 0)), np.zeros(ACTIONS), []
    weights = [p[name] for name in (f"{part}.memory.{layer}" for layer in GATES) if name in p]
    if weights:
        # A GRU has three gates and remembers what it returns, an LSTM has four and remembers as much again.
        units = weights[2].shape[1]
        kept = np.zeros((1, units * (len(weights[0]) // units - 2)))
    for t in range(length + 1):
        prefix, row = ("obs.", t) if t < length else ("next_obs.", length - 1)
        seen = rows[f"{prefix}observation"][row, b, m]
        x = np.concatenate([seen, last, np.eye(AGENTS)[m]]).astype(np.float64)[None]
        h = np.maximum(linear(p, f"{part}.torso.layers.0", x), 0.0)
        if weights:
            kept = (gru_step if kept.shape[1] == units else lstm_step)(weights, h, kept)
            h = kept[:, :units]
        q = linear(p, f"{part}.values", h)[0]
        found.append(np.where(rows[f"{prefix}action_mask"][row, b, m], q, -1e30))
        if t < length:
            last = np.eye(ACTIONS)[rows["action"][t, b, m]]
    return np.stack(found)


class Episode:
    """Values of one episode: `done` (L, M) of what was done, `best` (L, M) of what could be done next."""

    def __init__(self, p, rows, b, length, double):
        self.length = length
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


def check_update(policy, batches, error_of):
    """Loss and gradient of a call against the formula.

    Args:
      error_of: (parameters, parameters of the targets, `Episode`) -> errors of its steps, and how much each counts.
    """
    rows, lengths = episodes(policy, TIME, np.random.default_rng(3))
    deaths = (rows["obs.alive"] & ~rows["next_obs.alive"]).any(-1) & (np.arange(TIME)[:, None] < lengths)
    assert deaths.any(1).all()
    output = policy.learn_mode.forward(batch_of(batches, rows, lengths))
    p, double = params(policy), policy.cfg.learn.double
    taught = [Episode(p, rows, b, length, double) for b, length in enumerate(lengths)]

    def loss(own):
        errors, counts = [], []
        for b, length in enumerate(lengths):
            episode = Episode(own, rows, b, length, double)
            # What the online network chooses is a constant.
            episode.best = taught[b].best
            error, count = error_of(own, p, episode)
            errors.append(error.ravel())
            counts.append(count.ravel())
        errors, counts = np.concatenate(errors), np.concatenate(counts)
        return (counts * errors**2).sum() / counts.sum()

    expected = loss(p)
    assert abs(output.metrics["loss"] - expected) < 1e-5 * expected
    rng, optim = np.random.default_rng(11), policy.root.optim
    names = [name for name in p if name.startswith(("net.", "mixer."))]
    for name, moment in zip(names, optim.steps[0].m, strict=True):
        direction = rng.standard_normal(p[name].shape)
        up, down = (loss({**p, name: p[name] + step * direction}) for step in (1e-6, -1e-6))
        slope = (up - down) / 2e-6
        # Adam's first moment after two steps with the same gradient: 0.19 g.
        found = (moment.asnumpy().astype(np.float64) / 0.19 * direction).sum()
        assert abs(found - slope) < 2e-4 * max(1.0, abs(found)), name


def check_padding(policy, batches):
    """Episodes of one length give the same loss with and without places behind their end, to the bit."""
    rows, _ = episodes(policy, TIME, np.random.default_rng(5))
    lengths = np.full(EPISODES, TIME)
    state, losses = copy.deepcopy(policy.state_dict()), []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RecompileWarning)
        for places in (TIME, TIME + 7):
            policy.load_state_dict(state)
            metrics = policy.learn_mode.forward(batch_of(batches, rows, lengths, places)).metrics
            losses.append((metrics["loss"], metrics["q_value"]))
    assert losses[0] == losses[1]


def check_what_fills_up_means_nothing(policy, batches):
    """Rows behind the ends of episodes, whatever they hold, do not change a bit of the update."""
    rows, lengths = episodes(policy, TIME, np.random.default_rng(6))
    state, made = copy.deepcopy(policy.state_dict()), []
    for number in (0.0, 1e3):
        policy.load_state_dict(state)
        batch = batch_of(batches, rows, lengths)
        # Other rows in the places that only fill up.
        garbage = {name: values.copy() for name, values in rows.items()}
        behind = np.arange(TIME)[:, None] >= lengths
        for name in ("reward", "obs.observation"):
            garbage[name][behind] += number
        flat = {name: values.reshape(TIME * EPISODES, *values.shape[2:]) for name, values in garbage.items()}
        batch.tables.write(0, batch.layout.pack(flat))
        index = np.where(batch.filled, batch.index, (np.arange(TIME * EPISODES).reshape(TIME, -1))[None])
        last = np.take_along_axis(batch.index, batch.filled.sum(1, keepdims=True) - 1, 1)
        # The place right behind the end is that of the final observation.
        t = np.arange(TIME)[None, :, None]
        index = np.where(t == batch.filled.sum(1, keepdims=True), last, index).astype(np.int32)
        output = policy.learn_mode.forward(
            SequenceBatch(layout=batch.layout, tables=batch.tables, index=index, filled=batch.filled, burn_in=0)
        )
        made.append((output.metrics, {name: v.tobytes() for name, v in policy.state_dict()["params"].items()}))
    assert made[0] == made[1]


def matrix_game(algorithm, folder, *overrides):
    """What greedy agents earn in `TwoStep` after learning from random play."""
    user = Config(
        env=dict(env_id="minding.envs.games.two_step:TwoStep", collector_env_num=8, evaluator_env_num=1),
        policy=dict(
            type=algorithm,
            model=dict(hidden=[16], memory_dim=16),
            learn=dict(learning_rate=3e-3, warmup=160, update_per_collect=20, target=dict(freq=40)),
            collect=dict(n_sample=80),
            other=dict(buffer_size=2000, eps=dict(end=1.0)),
            eval=dict(freq=10**6),
        ),
        run=dict(max_env_step=4000, out_dir=str(folder)),
    )
    cfg, task = compile_run(user, overrides), Task()
    with task.start(ctx=OnlineRLContext()):
        policy = training.build(task, cfg)
        task.run(max_step=30)
    env = make_evaluator_env(cfg)
    try:
        return play_episodes(policy.eval_mode, env, 1, max_steps=2)[0].episode_return
    finally:
        env.close()
