"""FQF: its network and one update against NumPy, and the slope of its fractions against the distance they minimize."""

import dataclasses

import numpy as np
from action_values import (
    ACTIONS,
    ALTERNATIVES,
    AT,
    DUELING,
    PRIORITIZED,
    ActionValueTests,
    linear,
    np_features,
    np_heads,
    np_quantile_huber,
    np_returns,
    still_and_shifted,
    value_benches,
)
from fakes import VECTOR, discrete
from numeric import value

from minding.engine.process.runtime import ms, to_device

COUNT = 5
SMALL = {"policy.model.n_cosines": 6, "policy.model.n_fractions": COUNT}
CONTRACT = {
    "fqf": (
        VECTOR,
        discrete(ACTIONS),
        {**SMALL, **PRIORITIZED, "policy.learn.target.freq": 4, "policy.model.dueling": True},
    )
}
# Its state has the parts of DQN, which is resumed.
RESUMES = {}
__all__ = ["ALTERNATIVES"]


def prepare(bench):
    """As for the others, with shares that differ."""
    still_and_shifted(bench)
    rng = np.random.default_rng(4)
    for p in bench.policy.net.proposal.get_parameters():
        p.asnumpy()[...] = rng.normal(0.0, 0.3, p.shape)


KINDS = {"double, prioritized": PRIORITIZED, "plain, dueling": {**DUELING, "learn": {"double": False, "kappa": 0.5}}}
built, bench, each = value_benches("fqf", KINDS, prepare, learn={"grad_norm": 0.0}, **SMALL)


def shares_of(p, features):
    logits = linear(p, "net.proposal", features)
    shares = np.exp(logits - logits.max(-1, keepdims=True))
    return shares / shares.sum(-1, keepdims=True)


def middles_of(shares):
    return np.cumsum(shares, -1) - 0.5 * shares


def quantiles_at(p, part, features, fractions):
    """The quantile function (B, A, N) of features (B, F) at fractions (B, N), one after another."""
    made = []
    for tau in fractions.T:
        cosines = np.cos(np.pi * np.arange(6) * tau[:, None])
        made.append(np_heads(p, part, features * np.maximum(linear(p, f"{part}.embedding.layers.0", cosines), 0.0)))
    return np.stack(made, axis=2)


@dataclasses.dataclass
class Goal:
    """Constants of a step: fractions, their shares, and the returns."""

    shares: np.ndarray
    middles: np.ndarray
    returns: np.ndarray


class TestUpdate(ActionValueTests):
    algorithm = "fqf"
    model = SMALL
    fractions = np.tile(np.float32([0.2, 0.6]), (30, 1))

    def values(self, p, part, obs):
        shares = shares_of(p, np_features(p, "net", obs))
        return (quantiles_at(p, part, np_features(p, part, obs), middles_of(shares)) * shares[:, None]).sum(2)

    def td_target(self, bench, batch):
        return bench.root.td_target(batch, to_device(self.fractions))

    def of_best(self, p, obs, best, fractions=fractions):
        return quantiles_at(p, "target", np_features(p, "target", obs), fractions)[np.arange(len(obs)), best]

    def goal(self, bench, p, rows, draw):
        shares = shares_of(p, np_features(p, "net", rows["obs"]))
        middles, best = middles_of(shares), self.best(bench, p, rows["next_obs"])
        return Goal(shares, middles, np_returns(rows, self.of_best(p, rows["next_obs"], best, middles)))

    def step(self, bench, p, rows, goal, draw):
        features, kappa = np_features(p, "net", rows["obs"]), bench.settings.kappa
        chosen = quantiles_at(p, "net", features, goal.middles)[AT, rows["action"]]
        loss = np_quantile_huber(chosen, goal.middles, goal.returns, kappa) / kappa
        found, expected = ((goal.shares * x).sum(1) for x in (chosen, goal.returns))
        return loss, found, np.abs(expected - found)


def test_fractions_descend_the_distance_of_the_quantiles(bench):
    net, rng = bench.policy.net, np.random.default_rng(3)
    # Z = sum_j w_aj psi_j (1 - cos(pi tau)) rises with tau, as a quantile function does.
    for p in net.embedding.get_parameters():
        p.asnumpy()[...] = 0.0
    net.embedding.layers[0].weight.asnumpy()[:, 1], net.embedding.layers[0].bias.asnumpy()[...] = -1.0, 1.0
    net.advantage.weight.asnumpy()[...] = rng.random(net.advantage.weight.shape)
    obs, action = rng.standard_normal((4, 4)).astype(np.float32), np.array([0, 1, 2, 0])
    features = np_features(bench.params, "net", obs)
    rise = (features @ bench.params["net.advantage.weight"].T)[np.arange(4), action]

    def distance(p):
        """Eq. 3 of the paper, by the integral of 1 - cos(pi tau)."""
        shares = shares_of(p, features)
        ends, middles = np.cumsum(shares, -1), middles_of(shares)

        def area(tau):
            return tau - np.sin(np.pi * tau) / np.pi

        above = area(ends) - 2.0 * area(middles) + area(ends - shares)
        # Left and right of each middle there is as much of the step itself.
        return (rise[:, None] * above).sum(1).mean()

    def numbers(leaf, taken):
        seen = net.torso(net.encoder((leaf,)))
        _, ends, middles = net.proposed(seen)
        quantiles = net.quantiles_of(seen, ms.ops.stop_gradient(middles))
        chosen = ms.ops.stop_gradient(quantiles[ms.Tensor(np.arange(4)), taken])
        return bench.root.of_fractions(seen, ends, chosen, taken).mean()

    params = ms.ParameterTuple(net.proposal.trainable_params())
    found = ms.grad(numbers, None, params)(to_device(obs), to_device(action.astype(np.int32)))
    for p, gradient in zip(("weight", "bias"), found, strict=True):
        p, start = f"net.proposal.{p}", bench.params
        direction = rng.standard_normal(start[p].shape)
        up, down = (distance({**start, p: start[p] + step * direction}) for step in (1e-5, -1e-5))
        np.testing.assert_allclose((value(gradient) * direction).sum(), (up - down) / 2e-5, rtol=1e-3, atol=1e-5)
