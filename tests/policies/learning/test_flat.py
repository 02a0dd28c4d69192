"""Flat parameters: who reads a single parameter sees what was written through the flat one, in order."""

import numpy as np
import pytest
from fakes import needs_kernels

from minding.engine.process.runtime import ms, nn, ops, to_device
from minding.policies.learning import optim
from minding.policies.learning.optim import Group, Optimizer
from minding.policies.learning.target import CopyTarget, SoftTarget, equalize
from minding.policies.networks.layers import MLP, Linear

STEPS, ROWS, RATE, TAU = 60, 8, 0.05, 0.2


class Net(nn.Cell):
    """Two layers whose sizes are no multiples of anything."""

    def __init__(self):
        super().__init__()
        self.body = MLP(3, [5], "tanh", None, np.random.default_rng(0))
        self.head = Linear(5, 1, None, np.random.default_rng(1))

    def construct(self, x):
        return self.head(self.body(x)).reshape((-1,))


class Train(nn.Cell):
    """Regression to a moving target, many steps in one loop; the metric reads a parameter that no gradient reads."""

    def __init__(self, kind):
        super().__init__()
        self.net, self.target = Net(), Net()
        self.optim = Optimizer(net=Group(params=self.net.trainable_params(), rate=RATE))
        equalize(self.net, self.target)
        self.move = kind(self.net, self.target, self.optim.block("net"))
        self.gradient = ms.value_and_grad(self.loss, None, ms.ParameterTuple(self.net.trainable_params()))

    def loss(self, x, goal):
        return ops.square(self.net(x) - goal).mean()

    @ms.jit
    def construct(self, x, rate, move):
        i = ops.zeros((), ms.int32)
        biases = ops.zeros((), ms.float32)
        while i < move.shape[0]:
            goal = 0.5 * self.target(x) + 1.0
            loss, grads = self.gradient(x, goal)
            bias = self.net.head.bias.sum()
            done = self.optim({"net": grads}, {"rate_net": rate}, (loss, bias))["net"]
            self.move(move[i], done)
            biases = biases + bias
            i = i + 1
        return biases


def weights(net):
    return [p.asnumpy().copy() for p in net.get_parameters()]


def np_train(start, x, move, is_soft):
    params = [p.astype(np.float64) for p in start]
    target, x = [p.copy() for p in params], x.astype(np.float64)
    m, v, biases = [0.0] * 4, [0.0] * 4, 0.0
    for t, tau in enumerate(move, 1):
        goal = 0.5 * (np.tanh(x @ target[0].T + target[1]) @ target[2].T + target[3])[:, 0] + 1.0
        hidden = np.tanh(x @ params[0].T + params[1])
        error = 2.0 * ((hidden @ params[2].T + params[3])[:, 0] - goal)[:, None] / len(x)
        inner = (error @ params[2]) * (1.0 - hidden**2)
        grads = [inner.T @ x, inner.sum(0), error.T @ hidden, error.sum(0)]
        biases += params[3].sum()
        for k, g in enumerate(grads):
            m[k], v[k] = 0.9 * m[k] + 0.1 * g, 0.999 * v[k] + 0.001 * g**2
            params[k] = params[k] - RATE * (m[k] / (1 - 0.9**t)) / (np.sqrt(v[k] / (1 - 0.999**t)) + 1e-8)
        share = tau if is_soft else float(tau > 0)
        target = [(1 - share) * a + share * b for a, b in zip(target, params)]
    return params, target, biases


MOVES = {
    "soft": (SoftTarget, np.full(STEPS, TAU, np.float32)),
    "copy": (CopyTarget, (np.arange(STEPS) % 7 == 6).astype(np.float32)),
}


@needs_kernels
@pytest.mark.parametrize("kind", ["soft", pytest.param("copy", marks=pytest.mark.slow)])
def test_no_read_sees_an_early_or_late_value(kind, monkeypatch):
    target_kind, move = MOVES[kind]
    x = np.random.default_rng(2).standard_normal((ROWS, 3)).astype(np.float32)
    inputs = [to_device(x), to_device(np.array(RATE, np.float32)), to_device(move)]
    start = weights(Net())
    found = {}
    for form in ("flat", "plain"):
        with monkeypatch.context() as patch:
            patch.setattr(optim, "usable", lambda form=form: form == "flat")
            train = Train(target_kind)
        assert (train.optim.block("net") is not None) == (form == "flat")
        biases = float(train(*inputs))
        found[form] = [*weights(train.net), *weights(train.target), biases]
    expected = np_train(start, x, move, kind == "soft")
    for a, b, e in zip(found["flat"], found["plain"], [*expected[0], *expected[1], expected[2]]):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(a, e, rtol=2e-3, atol=2e-4)
