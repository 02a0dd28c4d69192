"""What the tests of algorithms of action values share: policies, rows, their networks in float64 NumPy, and tests.

A file has the fixtures that `value_benches` makes, and classes of tests derived from those at the end.
"""

import dataclasses
from typing import ClassVar

import kit
import numpy as np
import pytest
from fakes import VECTOR, dict_of, discrete, draw_masks, mask_of
from float64_networks import names_of

from minding.engine.process.runtime import to_device

STEPS, BATCH, ROWS, ACTIONS = 2, 8, 32, 3
INDEX = np.tile(np.arange(BATCH), (STEPS, 1))
AT = np.arange(BATCH)
MASKED = dict_of(action_mask=mask_of(ACTIONS), observation=VECTOR)
LEARNS = {
    **kit.LEARNS,
    "run.max_env_step": 800,
    "policy.learn.learning_rate": 0.005,
    "policy.learn.target.freq": 20,
    "policy.other.eps.decay": 1000,
}
ALTERNATIVES = ("policy.learn.target.kind=soft", "policy.other.replay=prioritized")
PRIORITIZED = {"policy.other.replay": "prioritized"}
DUELING = {"policy.model.dueling": True}
KINDS = {"double, prioritized": PRIORITIZED, "plain, dueling": {**DUELING, "learn": {"double": False, "kappa": 0.5}}}
"""Those of algorithms of quantiles."""


# Policies and rows


def make_policy(algorithm, space=VECTOR, **settings):
    return kit.make_policy(algorithm, space, discrete(ACTIONS), **settings)


def shift_target(bench):
    """Moves the target network away from the online network; the `prepare` of `benches`."""
    rng = np.random.default_rng(7)
    for name, p in bench.root.target.parameters_and_names():
        if "normalizer" not in name:
            p.asnumpy()[...] += rng.normal(0.0, 0.5, p.shape).astype(np.float32)


def still_and_shifted(bench):
    """With a target that differs, and steps that are too small to change anything."""
    shift_target(bench)
    bench.hold_still()


def value_benches(algorithm, kinds, prepare=still_and_shifted, **settings):
    built, bench = kit.benches(algorithm, VECTOR, discrete(ACTIONS), ROWS, kinds, prepare, **settings)
    return built, bench, kit.each_of(kinds)


def random_rows(bench):
    """Rows with true ends among them, and with discounts of cut n-step returns."""
    rows = bench.rows(action=ACTIONS)
    rows["terminated"][::3], rows["terminated"][1::3] = 1.0, 0.0
    return rows


def learn(bench):
    """Learns twice from the first rows, with importance weights if the policy is prioritized.

    Returns:
      The rows of the batch by name, the weights, and what the learn mode returned.
    """
    values, weight = random_rows(bench), np.ones(BATCH)
    batch = bench.batch(values, INDEX)
    if bench.policy.learn_mode.prioritized:
        weight = np.linspace(0.1, 1.0, BATCH)
        batch = dataclasses.replace(batch, weight=np.tile(weight.astype(np.float32), (STEPS, 1)))
    output = bench.policy.learn_mode.forward(batch)
    return {name: each[:BATCH] for name, each in values.items()}, weight, output


# Formulas in float64


class Noise:
    """The numbers of noisy layers, taken in their order; None: of none."""

    def __init__(self, numbers):
        self.numbers = None if numbers is None else np.asarray(numbers, np.float64).ravel()

    def take(self, count):
        taken, self.numbers = self.numbers[:count], self.numbers[count:]
        return taken


def linear(p, name, x, noise=None):
    """A linear layer, or a noisy one with the weights that eq. 9 of its paper has."""
    if f"{name}.weight" in p:
        return x @ p[f"{name}.weight"].T + p[f"{name}.bias"]
    weight, bias = p[f"{name}.mean.weight"], p[f"{name}.mean.bias"]
    if noise is not None and noise.numbers is not None:
        inputs, outputs = noise.take(weight.shape[1]), noise.take(weight.shape[0])
        weight = weight + p[f"{name}.deviation.weight"] * np.outer(outputs, inputs)
        bias = bias + p[f"{name}.deviation.bias"] * outputs
    return x @ weight.T + bias


def np_features(p, part, x, noise=None):
    return np.maximum(linear(p, f"{part}.torso.layers.0", x.astype(np.float64), noise), 0.0)


def np_heads(p, part, features, noise=None):
    """Advantages (..., A * N) or, if the network has a value, what both make together."""
    outputs = linear(p, f"{part}.advantage", features, noise)
    if not any(name.startswith(f"{part}.value.") for name in p):
        return outputs
    value = linear(p, f"{part}.value", features, noise)[..., None, :]
    outputs = outputs.reshape(*outputs.shape[:-1], ACTIONS, -1)
    return (value + outputs - outputs.mean(axis=-2, keepdims=True)).reshape(*outputs.shape[:-2], -1)


def np_atoms(p, part, x, count, noise=None):
    """The atoms (B, A, N) of a `ReturnDistribution`; count: N, or -1 for as many as there are."""
    noise = Noise(noise)
    return np_heads(p, part, np_features(p, part, x, noise), noise).reshape(len(x), ACTIONS, count)


def np_quantiles(p, part, features, fractions):
    """The quantile function (B, A, N) of a network with six cosines at fractions (N,) or (B, N), one after another."""
    made = []
    for tau in np.broadcast_to(fractions, (len(features), np.shape(fractions)[-1])).T.astype(np.float64):
        cosines = np.cos(np.pi * np.arange(6) * tau[:, None])
        made.append(np_heads(p, part, features * np.maximum(linear(p, f"{part}.embedding.layers.0", cosines), 0.0)))
    return np.stack(made, axis=2)


def np_log_softmax(logits):
    shifted = logits - logits.max(axis=-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))


def np_huber(error, kappa=1.0):
    size = np.abs(error)
    return np.where(size <= kappa, 0.5 * error**2, kappa * (size - 0.5 * kappa))


def np_project(probability, x, support):
    low, step = support[0], support[1] - support[0]
    moved = np.zeros((len(probability), len(support)))
    for b, j in np.ndindex(*probability.shape):
        place = (np.clip(x[b, j], support[0], support[-1]) - low) / step
        lower = min(int(np.floor(place + 1e-12)), len(support) - 2)
        moved[b, lower] += probability[b, j] * (lower + 1 - place)
        moved[b, lower + 1] += probability[b, j] * (place - lower)
    return moved


def np_excess(m, loss):
    return loss + np.where(m > 0.0, m * np.log(np.maximum(m, 1e-300)), 0.0).sum(axis=1)


def np_quantile_huber(quantiles, levels, target, kappa):
    """Of quantiles (B, N) at levels (N,) or (B, N) and samples (B, M): (B,)."""
    u = target[:, None, :] - quantiles[:, :, None].astype(np.float64)
    weight = np.abs(np.broadcast_to(levels, quantiles.shape)[..., None] - (u < 0))
    return (weight * np_huber(u, kappa)).mean(axis=2).sum(axis=1)


def np_returns(rows, x):
    """R + gamma^k (1 - terminated) x for x (B, N) or (N,)."""
    decay = rows["discount"].astype(np.float64) * (1.0 - rows["terminated"])
    return rows["reward"].astype(np.float64)[:, None] + decay[:, None] * x


def best_actions(choosing, of_target, chosen_online):
    """The greedy actions by values (B, A), which the test data make those of the target only if it chose."""
    best = choosing.argmax(axis=1)
    assert (best != of_target.argmax(axis=1)).any() == chosen_online
    return best


def check_gradients(policy, losses, p):
    """The gradients of both steps against finite differences, in random directions of each parameter.

    Args:
      policy: after a learn call of two steps that changed nothing.
      losses: (parameters, step) -> the loss of a step.
      p: the parameters.
    """
    # Adam's first moment after two steps: 0.9 * 0.1 g_1 + 0.1 g_2.
    found = [moment.asnumpy().astype(np.float64) / 0.1 for moment in policy.root.optim.steps[0].m]
    kit.check_slopes(lambda x: 0.9 * losses(x, 0) + losses(x, 1), p, names_of(policy), found)


# Tests


class ActionValueTests:
    """Tests of an algorithm that learns action values, or distributions with these means, from transitions.

    A file gives the fixtures of `value_benches` and, in its class, what the methods at the beginning stand for.
    """

    algorithm: str
    model: ClassVar = {}
    """Settings of its networks."""
    drawn: ClassVar = {}
    """Entries of a batch that `td_target` reads besides a transition's, for 30 rows."""

    def values(self, p, part, obs):
        """The action values (B, A) by which a network chooses."""

    def draws(self, bench):
        """The random numbers of the next learn call, for each step."""
        return [None] * STEPS

    def goal(self, bench, p, rows, draw):
        """What a step learns, a constant; p: the parameters before it."""

    def step(self, bench, p, rows, goal, draw):
        """Losses of the rows, the values of what was done, and the errors that are their priorities, (B,) each."""

    def td_target(self, bench, batch):
        """What the root cell computes of a batch of 30 rows."""
        return bench.root.td_target(batch)

    def of_best(self, p, obs, best):
        """What the target network says of the actions `best`."""

    def best(self, bench, p, next_obs):
        of_target, online = self.values(p, "target", next_obs), bench.root.double
        return best_actions(self.values(p, "net", next_obs) if online else of_target, of_target, online)

    def check_update(self, bench):
        """Returns the rows, the parameters, what is learned in each step, and the metrics that were found."""
        p, draws = bench.params, self.draws(bench)
        rows, weight, output = learn(bench)
        goals = [self.goal(bench, p, rows, draw) for draw in draws]
        steps = [self.step(bench, p, rows, goal, draw) for goal, draw in zip(goals, draws)]
        loss = np.mean([(weight * each[0]).mean() for each in steps])
        kit.check_metrics(output.metrics, {"loss": loss, "q_value": np.mean([each[1].mean() for each in steps])})
        if bench.policy.learn_mode.prioritized:
            np.testing.assert_allclose(output.priorities, [each[2] for each in steps], rtol=1e-4, atol=1e-5)

        def loss_of(x, k):
            return (weight * self.step(bench, x, rows, goals[k], draws[k])[0]).mean()

        check_gradients(bench.policy, loss_of, p)
        return rows, p, goals, output.metrics

    def test_the_update_has_the_loss_and_gradient_of_its_formula(self, each):
        self.check_update(each)

    @pytest.mark.parametrize("double", [True, False])
    def test_the_next_action_is_the_best_legal_one(self, double):
        bench = kit.Bench(make_policy(self.algorithm, MASKED, **self.model), 1)
        shift_target(bench)
        bench.root.double = double
        rng = np.random.default_rng(5)
        obs, mask = rng.standard_normal((30, 4)).astype(np.float32), draw_masks((ACTIONS,), 30, rng)
        plain = {"reward": 0.0, "terminated": 0.0, "discount": 1.0}
        batch = {name: to_device(np.full(30, number, np.float32)) for name, number in plain.items()}
        batch |= {name: to_device(numbers) for name, numbers in self.drawn.items()}
        found = self.td_target(bench, {"next_obs": (to_device(mask), to_device(obs)), **batch})
        values = self.values(bench.params, "net" if double else "target", obs)
        best = np.where(mask, values, -np.inf).argmax(axis=1)
        assert (best != values.argmax(axis=1)).any()
        # Where a target has several parts, the first is what is learned.
        found = (found[0] if isinstance(found, tuple) else found).asnumpy()
        np.testing.assert_allclose(found, self.of_best(bench.params, obs, best), atol=1e-5)

    def test_it_acts_by_its_action_values(self, each):
        obs = np.random.default_rng(3).standard_normal((20, 4)).astype(np.float32)
        expected = self.values(each.params, "net", obs)
        np.testing.assert_allclose(each.policy.actors["eval"].outputs(obs)[0], expected, atol=1e-5)
        assert np.array_equal(each.policy.eval_mode.forward(obs), expected.argmax(axis=1))
