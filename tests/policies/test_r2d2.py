"""R2D2: one update on replayed sequences against NumPy, row by row, and the memory that it starts from."""

import action_values as av
import numpy as np
import pytest
from fakes import discrete
from test_dreamer import ENVS, TIME, history
from test_recurrent import gru_step, lstm_step

from minding import training
from minding.configs import compile_run
from minding.configs.chains.sequence_replay import sequence_buffer
from minding.engine import Config, OnlineRLContext, Task
from minding.engine.data.returns import rescaled, unscaled
from minding.middleware import OffPolicyLearner

pytestmark = pytest.mark.eager

SMALL = {"policy.model.memory_dim": 5, "policy.learn.length": 4, "policy.other.priority.stride": 1}
CONTRACT = {
    "r2d2": (
        av.MASKED,
        discrete(3),
        {**SMALL, "policy.learn.burn_in": 1, "policy.learn.target.freq": 4, "policy.model.dueling": True},
    )
}
LEARNS = {
    **av.LEARNS,
    "policy.model.memory_dim": 8,
    "policy.learn.batch_size": 8,
    "policy.learn.length": 4,
    "policy.learn.burn_in": 0,
    "policy.learn.nstep": 1,
    "policy.other.replay": "uniform",
    "policy.other.priority.stride": 4,
}
RESUMES = {
    "R2D2, an LSTM and a reward for novelty": (
        "minding/RepeatPrevious-v0",
        (
            *("policy.model.memory=lstm", "policy.model.memory_dim=8", "policy.learn.target.freq=5"),
            *("policy.learn.length=6", "policy.learn.burn_in=3", "policy.other.priority.stride=3"),
            "policy.other.icm.weight=0.5",
        ),
    )
}
ALTERNATIVES = ("policy.learn.target.kind=soft", "policy.other.replay=uniform")
BATCH = 12

KINDS = {
    "gru": {"learn": {"nstep": 2, "burn_in": 2}},
    "lstm": {
        **{"policy.model.memory": "lstm", "policy.model.dueling": True, "policy.other.replay": "uniform"},
        "learn": {"nstep": 9, "burn_in": 0, "rescale": False, "double": False},
    },
}
"""With a GRU, double, on prioritized sequences with burn-in; with an LSTM and the target's choice."""


def with_a_buffer(bench):
    """Its buffer has episodes of any length that end either way; the first rows are overwritten."""
    av.still_and_shifted(bench)
    bench.buffer = sequence_buffer(bench.policy.config, bench.policy)
    rows = history(bench.buffer.fields, 3, share=0.2)
    for part in np.array_split(np.arange(TIME * ENVS), 3):
        bench.buffer.push({name: values[part] for name, values in rows.items()})


ALWAYS = {**SMALL, "policy.other.buffer_size": 60}
built, bench, _ = av.value_benches("r2d2", KINDS, with_a_buffer, learn={"grad_norm": 0.0}, **ALWAYS)


# Formulas in float64


class Sequences:
    """The sequences (T, B) of one gradient step, and what R2D2 makes of them, row by row."""

    def __init__(self, policy, batch, k):
        self.learn, self.dim = policy.cfg.learn, policy.cfg.model.memory_dim
        self.step = gru_step if policy.cfg.model.memory == "gru" else lstm_step
        fields = {name: batch.layout.read(batch.tables.host, name, batch.index[k]) for name in batch.layout.fields}
        self.rows = {name: v.astype(np.float64) if v.dtype == np.float32 else v for name, v in fields.items()}
        self.filled, self.learned = batch.filled[k], batch.learned[k, self.learn.burn_in :]
        self.weight = np.ones(BATCH) if batch.weight is None else batch.weight[k]

    def after(self, p, part, obs, h):
        weights = [p[f"{part}.memory.{name}"] for name in WEIGHTS]
        return self.step(weights, obs, h)

    def values(self, p, part, h):
        features = np.maximum(av.linear(p, f"{part}.torso.layers.0", h[..., : self.dim]), 0.0)
        return av.np_heads(p, part, features)

    def remembered(self, p, part):
        h = self.rows["memory"][0]
        for t in range(self.learn.burn_in):
            h = np.where(self.filled[t][:, None], self.after(p, part, self.rows["obs"][t], h), h)
        return h

    def unrolled(self, p, part, h):
        made = []
        for obs in self.rows["obs"][self.learn.burn_in :]:
            h = self.after(p, part, obs, h)
            made.append(h)
        return np.stack(made)

    def targets(self, p):
        """(T, B); each successor is seen once with what is remembered after its row."""
        burn_in, count = self.learn.burn_in, self.learn.length
        next_obs, reward, terminated = (self.rows[name][burn_in:] for name in ("next_obs", "reward", "terminated"))
        q = {}
        for part in ("net", "target"):
            h = self.unrolled(p, part, self.remembered(p, part))
            flat = self.after(p, part, next_obs.reshape(-1, 4), h.reshape(-1, h.shape[-1]))
            q[part] = self.values(p, part, flat)
        best = av.best_actions(q["net" if self.learn.double else "target"], q["target"], self.learn.double)
        following = q["target"][np.arange(len(best)), best].reshape(count, BATCH)
        y = np.zeros((count, BATCH))
        for t, b in zip(*np.nonzero(self.learned)):
            k = 0
            while k < self.learn.nstep and t + k < count and self.learned[t + k, b]:
                y[t, b] += self.learn.gamma**k * reward[t + k, b]
                k += 1
            value = following[t + k - 1, b]
            value = unscaled(value) if self.learn.rescale else value
            y[t, b] += self.learn.gamma**k * (1.0 - terminated[t + k - 1, b]) * value
        return rescaled(y) if self.learn.rescale else y

    def chosen(self, p, before):
        """Q (T, B) of the actions taken, with what is remembered before the first row."""
        q = self.values(p, "net", self.unrolled(p, "net", before))
        return np.take_along_axis(q, self.rows["action"][self.learn.burn_in :, :, None], 2)[..., 0]

    def loss(self, p, before, y):
        losses = self.weight * av.np_huber(self.chosen(p, before) - y)
        return losses[self.learned].sum() / self.learned.sum()


WEIGHTS = ("inputs.weight", "inputs.bias", "recurrent.weight", "recurrent.bias")


@pytest.mark.parametrize("kind", ["gru", "lstm"])
def test_the_update_has_the_loss_and_gradient_of_its_formula(built, kind):
    bench = built(kind)
    policy, p, batch = bench.policy, bench.params, bench.buffer.sample(av.STEPS, BATCH)
    if batch.weight is not None:
        batch.weight[:] = np.linspace(0.1, 1.0, BATCH)
    each = [Sequences(policy, batch, k) for k in range(av.STEPS)]
    burn_in, learned = policy.cfg.learn.burn_in, batch.learned[:, policy.cfg.learn.burn_in :]
    # Any burn-in and any length, and sequences that stop at a true end, at a time limit and in the middle.
    assert set(batch.filled[:, :burn_in].sum(axis=1).ravel()) == set(range(burn_in + 1))
    assert set(learned.sum(axis=1).ravel()) == {1, 2, 3, 4}
    output = policy.learn_mode.forward(batch)

    before, y = [s.remembered(p, "net") for s in each], [s.targets(p) for s in each]
    assert output.metrics["loss"] == pytest.approx(np.mean([s.loss(p, *z) for s, *z in zip(each, before, y)]), rel=1e-5)
    q = [s.chosen(p, h) for s, h in zip(each, before)]
    assert output.metrics["q_value"] == pytest.approx(
        np.mean([found[s.learned].mean() for s, found in zip(each, q)]), rel=1e-5
    )
    if kind == "gru":
        assert not output.priorities[:, :burn_in].any()
        errors = np.where(learned, np.abs(np.stack(q) - np.stack(y)), 0.0)
        np.testing.assert_allclose(output.priorities[:, burn_in:], errors, rtol=1e-4, atol=1e-5)
    else:
        assert output.priorities is None
    # Nothing flows back into the burn-in or the targets.
    av.check_gradients(policy, lambda p, k: each[k].loss(p, before[k], y[k]), p)


def test_collected_values_are_recorded_for_first_priorities(built):
    obs, mode = np.random.default_rng(1).standard_normal((6, 4)).astype(np.float32), built("gru").policy.collect_mode
    mode.reset()
    assert mode.record_fields == ("q_value", "value", "memory")
    record, (q, rows) = mode.forward(obs, eps=0.5), mode.actor.outputs(obs, np.zeros((6, 5), np.float32))
    assert np.array_equal(record["q_value"], q[np.arange(6), record["action"]])
    assert np.array_equal(record["value"], q.max(axis=1))
    assert np.array_equal(mode.memory, rows)
    assert np.array_equal(mode.value(obs), mode.actor.outputs(obs, rows)[0].max(axis=1))
    assert built("lstm").policy.collect_mode.record_fields == ("memory",)


def chain(*overrides):
    user = Config(
        env={"env_id": "minding/RepeatPrevious-v0", "env_kwargs": {"delay": 1, "answers": 6}, "collector_env_num": 2},
        policy={"type": "r2d2", "model": {"hidden": [8], "memory_dim": 5}},
    )
    small = ("policy.collect.n_sample=8", "policy.learn.length=4", "policy.other.priority.stride=2")
    return compile_run(user, [*small, *overrides])


def test_replayed_sequences_hold_the_collected_memory():
    task = Task()
    with task.start(ctx=OnlineRLContext()):
        policy = training.build(task, chain())
        learner = next(m for m in task.members if isinstance(m, OffPolicyLearner))
        # Shorter than the warm-up.
        task.run(max_step=8)
        batch = learner._buffer.sample(1, 40)
    rows = {name: batch.layout.read(batch.tables.host, name, batch.index[0]) for name in ("obs", "memory")}
    memory, filled = policy.net.memory.host(), batch.filled[0]
    following = [memory(obs, before)[1] for obs, before in zip(rows["obs"], rows["memory"])]
    for t in range(len(filled) - 1):
        there = filled[t] & filled[t + 1]
        np.testing.assert_allclose(rows["memory"][t + 1][there], following[t][there], atol=1e-6)
    assert filled[1:].sum() > 100
    assert rows["memory"].any()
