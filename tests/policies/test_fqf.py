"""FQF: its network and one update against NumPy, and the slope of its fractions against the distance they minimize."""

import dataclasses

import action_values as av
import numpy as np
from fakes import VECTOR, discrete
from numeric import value

from minding.engine.process.runtime import ms, to_device

COUNT = 5
SMALL = {"policy.model.n_cosines": 6, "policy.model.n_fractions": COUNT}
CONTRACT = {"fqf": (VECTOR, discrete(3), {**SMALL, **av.PRIORITIZED, **av.DUELING, "policy.learn.target.freq": 4})}
# Its state has the parts of DQN, which is resumed.
RESUMES = {}
ALTERNATIVES = av.ALTERNATIVES


def prepare(bench):
    """As for the others, with shares that differ."""
    av.still_and_shifted(bench)
    rng = np.random.default_rng(4)
    for p in bench.policy.net.proposal.get_parameters():
        p.asnumpy()[...] = rng.normal(0.0, 0.3, p.shape)


built, bench, each = av.value_benches("fqf", av.KINDS, prepare, learn={"grad_norm": 0.0}, **SMALL)


def shares_of(p, features):
    logits = av.linear(p, "net.proposal", features)
    shares = np.exp(logits - logits.max(-1, keepdims=True))
    return shares / shares.sum(-1, keepdims=True)


def middles_of(shares):
    return np.cumsum(shares, -1) - 0.5 * shares


@dataclasses.dataclass
class Goal:
    """Constants of a step: fractions, their shares, and the returns."""

    shares: np.ndarray
    middles: np.ndarray
    returns: np.ndarray


class TestUpdate(av.ActionValueTests):
    algorithm = "fqf"
    model = SMALL
    fractions = np.tile(np.float32([0.2, 0.6]), (30, 1))

    def values(self, p, part, obs):
        shares = shares_of(p, av.np_features(p, "net", obs))
        return (av.np_quantiles(p, part, av.np_features(p, part, obs), middles_of(shares)) * shares[:, None]).sum(2)

    def td_target(self, bench, batch):
        return bench.root.td_target(batch, to_device(self.fractions))

    def of_best(self, p, obs, best, fractions=fractions):
        return av.np_quantiles(p, "target", av.np_features(p, "target", obs), fractions)[np.arange(len(obs)), best]

    def goal(self, bench, p, rows, draw):
        shares = shares_of(p, av.np_features(p, "net", rows["obs"]))
        middles, best = middles_of(shares), self.best(bench, p, rows["next_obs"])
        return Goal(shares, middles, av.np_returns(rows, self.of_best(p, rows["next_obs"], best, middles)))

    def step(self, bench, p, rows, goal, draw):
        features, kappa = av.np_features(p, "net", rows["obs"]), bench.settings.kappa
        chosen = av.np_quantiles(p, "net", features, goal.middles)[av.AT, rows["action"]]
        loss = av.np_quantile_huber(chosen, goal.middles, goal.returns, kappa) / kappa
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
    features = av.np_features(bench.params, "net", obs)
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
