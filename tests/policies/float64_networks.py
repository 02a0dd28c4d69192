"""Actors and critics with one hidden layer in float64 NumPy, and the gradients of what uses them."""

import numpy as np
from numeric import numeric_gradient


def params(policy):
    return {name: value.astype(np.float64) for name, value in policy.state_dict()["params"].items()}


def moved(before, after):
    """The parts of the policy whose parameters differ, without the optimizer."""
    return {name.split(".")[0] for name in before if not np.array_equal(before[name], after[name])} - {"optim"}


def actor(p, part, obs):
    """Actions (B, A) of a `DeterministicActor`."""
    head = f"{part}.head.linear"
    return np.tanh(_hidden(p, part, obs) @ p[f"{head}.weight"].T + p[f"{head}.bias"])


def value(p, part, action, obs):
    """Values (B,) of an `ActionValue`."""
    return quantiles(p, part, action, obs)[:, 0]


def quantiles(p, part, action, obs):
    """Quantiles (B, M) of an `ActionQuantiles`."""
    features = _hidden(p, part, np.concatenate([obs, action], axis=1))
    return features @ p[f"{part}.value.weight"].T + p[f"{part}.value.bias"]


def choice_values(p, part, numbers, obs, owners=None):
    """Values (B, n) of `ChoiceValues`; owners: the choice of each number, where a value depends on its own only."""

    def passed(numbers):
        features = _hidden(p, part, np.concatenate([obs, numbers], axis=1))
        return features @ p[f"{part}.values.weight"].T + p[f"{part}.values.bias"]

    if owners is None:
        return passed(numbers)
    return np.stack([passed(numbers * (owners == k))[:, k] for k in range(len(p[f"{part}.values.bias"]))], axis=1)


def own_value(p, part, obs):
    """Values (B,) of a `StateValue`."""
    return (_hidden(p, part, obs) @ p[f"{part}.value.weight"].T + p[f"{part}.value.bias"])[:, 0]


def linear_head(p, part, name, obs):
    """What a linear layer of the head of an acting network with a ReLU layer returns, (B, A)."""
    head = f"{part}.head.{name}"
    return _hidden(p, part, obs) @ p[f"{head}.weight"].T + p[f"{head}.bias"]


def squashed(p, part, obs, noise):
    """Actions (..., B, A) of a `SquashedActor` and their log-probabilities (..., B)."""
    mean, log_std = linear_head(p, part, "mean", obs), np.clip(linear_head(p, part, "log_std", obs), -20.0, 2.0)
    u, noise = mean + np.exp(log_std) * noise, noise.astype(np.float64)
    # log(1 - tanh(u)^2) without a difference of nearly equal numbers.
    slope = 2.0 * (np.log(2.0) - u - np.logaddexp(0.0, -2.0 * u))
    log_prob = -0.5 * noise**2 - log_std - 0.5 * np.log(2 * np.pi) - slope
    return np.tanh(u), log_prob.sum(axis=-1)


def state_value(p, obs):
    """Values (B,) of an `ActorCritic`."""
    return (_tanh(p, "net.critic", obs) @ p["net.value.weight"].T + p["net.value.bias"])[:, 0]


def scores(p, torso, obs):
    """Logits (B, n), or means (B, A), of an `ActorCritic` (torso "net.actor") or a `PolicyNetwork` ("net.torso")."""
    return _tanh(p, torso, obs) @ p["net.head.linear.weight"].T + p["net.head.linear.bias"]


def categorical(logits, action):
    """Log-probabilities and entropies, (B,) each."""
    log_p = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    return log_p[np.arange(len(action)), action], -(np.exp(log_p) * log_p).sum(axis=1)


def normal(mean, log_std, action):
    """Log-probabilities (B,) and the entropy."""
    z = (action - mean) / np.exp(log_std)
    constant = 0.5 * np.log(2 * np.pi)
    return (-0.5 * z**2 - log_std - constant).sum(axis=1), (log_std + 0.5 + constant).sum()


def _tanh(p, part, x):
    return np.tanh(x @ p[f"{part}.layers.0.weight"].T + p[f"{part}.layers.0.bias"])


def _hidden(p, part, x):
    return np.maximum(x @ p[f"{part}.torso.layers.0.weight"].T + p[f"{part}.torso.layers.0.bias"], 0.0)


def finite_differences(loss, p, part, step=1e-6):
    """Central differences of a loss for all parameters of a part, in their order."""
    names = [name for name in p if name == part or name.startswith(f"{part}.")]
    return [numeric_gradient(lambda x, name=name: loss({**p, name: x}), p[name], step) for name in names]


def names_of(policy, group="net"):
    names = {id(p): name for name, p in policy.params.items()}
    return [names[id(p)] for p in policy.root.optim.groups[group].params]


def gradients(policy, group):
    """Those of the first gradient step, of a group of the optimizer: Adam's first moment is a tenth of them."""
    optim = policy.root.optim
    return [m.asnumpy().astype(np.float64) / 0.1 for m in optim.steps[optim.names.index(group)].m]
