"""What the tests of algorithms of action values share: policies, batches, and their networks in float64 NumPy.

A test file has fixtures `built`, its policies by kind, `batch_of`, made by `batches_of`, and
`policies`, which yields from `disturbed`.
"""

import copy
import dataclasses

import numpy as np
from fakes import VECTOR, Batches, dict_of, discrete, draw_masks, mask_of, rows_of, set_rate

from minding.engine.data.batch import RowLayout
from minding.engine.process.runtime import to_device
from minding.policies import get_policy_class

STEPS, BATCH, ROWS, ACTIONS = 2, 8, 32, 3
INDEX = np.tile(np.arange(BATCH), (STEPS, 1))
AT = np.arange(BATCH)
MASKED = dict_of(action_mask=mask_of(ACTIONS), observation=VECTOR)
SIGNATURES = 2
"""One for calls that move the target, one for the others."""
LEARNS = {
    "run.max_env_step": 1600,
    "policy.collect.n_sample": 8,
    "policy.learn.batch_size": 32,
    "policy.learn.warmup": 64,
    "policy.learn.update_per_collect": 4,
    "policy.other.buffer_size": 2000,
    "policy.learn.learning_rate": 0.005,
    "policy.learn.target.freq": 20,
    "policy.other.eps.decay": 1000,
}
ALTERNATIVES = ("policy.learn.target.kind=soft", "policy.other.replay=prioritized")
PRIORITIZED = {"policy.other.replay": "prioritized"}


def contract_cases(algorithm, **small):
    """The contract table's cases of an algorithm: with a dueling network, with priorities, and with a mask.

    Args:
      small: settings of all, by their key in `policy.model`.
    """
    model = {f"policy.model.{key}": size for key, size in small.items()}
    dueling = {**model, "policy.learn.target.freq": 4, "policy.model.dueling": True}
    return {
        algorithm: (VECTOR, discrete(ACTIONS), dueling),
        f"{algorithm}, prioritized": (VECTOR, discrete(ACTIONS), {**model, **PRIORITIZED}),
        f"{algorithm}, masked": (MASKED, discrete(ACTIONS), model),
    }


# Policies and batches


def make_policy(tiny_config, algorithm, space=VECTOR, **overrides):
    return get_policy_class(algorithm)(tiny_config(algorithm, space, discrete(ACTIONS), **overrides))


def batches_of(built):
    """(kind, rows) -> a batch of the first rows, twice."""
    batches = {kind: Batches(policy, ROWS) for kind, policy in built.items()}
    return lambda kind, values: batches[kind](values, INDEX)


def random_rows(policy):
    """Rows with true ends among them, and with discounts of cut n-step returns."""
    rows = rows_of(RowLayout(policy.learn_mode.fields), ROWS, np.random.default_rng(0), {"action": ACTIONS})
    rows["terminated"][::3], rows["terminated"][1::3] = 1.0, 0.0
    return rows


def shift_target(policy):
    """Moves the target network away from the online network."""
    rng = np.random.default_rng(7)
    for name, p in policy.root.target.parameters_and_names():
        if "normalizer" in name:
            continue
        p.asnumpy()[...] += rng.normal(0.0, 0.5, p.shape).astype(np.float32)


def disturbed(built):
    """Yields the policies with targets that differ and steps too small to change anything, then puts them back."""
    states = {kind: copy.deepcopy(policy.state_dict()) for kind, policy in built.items()}
    for policy in built.values():
        shift_target(policy)
        set_rate(policy, 1e-12)
    yield built
    for kind, policy in built.items():
        policy.load_state_dict(states[kind])
        set_rate(policy, policy.cfg.learn.learning_rate)


def learn(policy, batch_of, kind):
    """Learns from random rows, with importance weights if the policy is prioritized.

    Returns:
      The rows of the batch by name, the weights, and what the learn mode returned.
    """
    values, weight = random_rows(policy), np.ones(BATCH)
    batch = batch_of(kind, values)
    if policy.learn_mode.prioritized:
        weight = np.linspace(0.1, 1.0, BATCH)
        batch = dataclasses.replace(batch, weight=np.tile(weight.astype(np.float32), (STEPS, 1)))
    output = policy.learn_mode.forward(batch)
    return {name: each[:BATCH] for name, each in values.items()}, weight, output


# Formulas in float64


def params(policy):
    """All parameters by name."""
    return {name: array.astype(np.float64) for name, array in policy.state_dict()["params"].items()}


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
    """One hidden layer."""
    return np.maximum(linear(p, f"{part}.torso.layers.0", x.astype(np.float64), noise), 0.0)


def np_atoms(p, part, x, count, noise=None):
    """The atoms (B, A, N) of a `ReturnDistribution`, dueling if it has a value."""
    noise = Noise(noise)
    features = np_features(p, part, x, noise)
    atoms = linear(p, f"{part}.advantage", features, noise).reshape(-1, ACTIONS, count)
    if any(name.startswith(f"{part}.value.") for name in p):
        atoms = linear(p, f"{part}.value", features, noise)[:, None] + atoms - atoms.mean(axis=1, keepdims=True)
    return atoms


def np_log_softmax(logits):
    shifted = logits - logits.max(axis=-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))


def np_huber(error, kappa=1.0):
    size = np.abs(error)
    return np.where(size <= kappa, 0.5 * error**2, kappa * (size - 0.5 * kappa))


def np_project(probability, x, support):
    """Algorithm 1 of C51's paper with its loop over the atoms."""
    low, step = support[0], support[1] - support[0]
    moved = np.zeros((len(probability), len(support)))
    for b, j in np.ndindex(*probability.shape):
        place = (np.clip(x[b, j], support[0], support[-1]) - low) / step
        lower = min(int(np.floor(place + 1e-12)), len(support) - 2)
        moved[b, lower] += probability[b, j] * (lower + 1 - place)
        moved[b, lower + 1] += probability[b, j] * (place - lower)
    return moved


def np_quantile_huber(quantiles, levels, target, kappa):
    """The formula with a loop over pairs, (B,); levels (N,) or (B, N)."""
    loss, levels = np.zeros(len(quantiles)), np.broadcast_to(levels, quantiles.shape)
    for b, i, j in np.ndindex(*quantiles.shape, target.shape[1]):
        u = float(target[b, j]) - float(quantiles[b, i])
        loss[b] += abs(float(levels[b, i]) - (u < 0)) * np_huber(u, kappa) / target.shape[1]
    return loss


def np_returns(rows, x):
    """R + gamma^k (1 - terminated) x for x (B, N) or (N,)."""
    decay = rows["discount"].astype(np.float64) * (1.0 - rows["terminated"])
    return rows["reward"].astype(np.float64)[:, None] + decay[:, None] * x


def check_gradients(policy, losses, p):
    """The gradients of both steps against finite differences, in random directions of each parameter.

    Args:
      policy: after a learn call of two steps that changed nothing.
      losses: (parameters, step) -> the loss of a step.
      p: the parameters.
    """
    rng, optim = np.random.default_rng(11), policy.root.optim
    names = [name for name in p if name.startswith("net.")]
    for name, moment in zip(names, optim.steps[0].m, strict=True):
        for direction in rng.standard_normal((2, *p[name].shape)):
            up, down = ({**p, name: p[name] + step * direction} for step in (1e-6, -1e-6))
            slopes = [(losses(up, k) - losses(down, k)) / 2e-6 for k in range(STEPS)]
            # Adam's first moment after two steps: 0.9 * 0.1 g_1 + 0.1 g_2.
            found = (moment.asnumpy().astype(np.float64) / 0.1 * direction).sum()
            assert abs(found - (0.9 * slopes[0] + slopes[1])) < 1e-4 * max(1.0, abs(found)), name


def best_actions(choosing, of_target, chosen_online):
    """The greedy actions by values (B, A), which the test data make those of the target only if it chose."""
    best = choosing.argmax(axis=1)
    assert (best != of_target.argmax(axis=1)).any() == chosen_online
    return best


def check_masked_choice(policy, double, values):
    """The target of rows without a reward is made of the next atoms of the best legal actions.

    Args:
      policy: one for `MASKED` observations.
      double: whether the online network chooses.
      values: (parameters, part, observations) -> the network's values (B, A).

    Returns:
      The observations, what `td_target` returns, and the actions whose atoms it must be made of.
    """
    policy.root.double = double
    shift_target(policy)
    rng = np.random.default_rng(5)
    obs, mask = rng.standard_normal((30, 4)).astype(np.float32), draw_masks((ACTIONS,), 30, rng)
    plain = {"reward": 0.0, "terminated": 0.0, "discount": 1.0}
    batch = {name: to_device(np.full(30, number, np.float32)) for name, number in plain.items()}
    target = policy.root.td_target({"next_obs": (to_device(mask), to_device(obs)), **batch})
    means = values(params(policy), "net" if double else "target", obs)
    best = np.where(mask, means, -np.inf).argmax(axis=1)
    assert (best != means.argmax(axis=1)).any()
    return obs, target, best
