"""An update of two networks as PPO makes it, written with MindSpore alone: the measure of what MindSpore keeps."""

from __future__ import annotations

import numpy as np

from minding.engine.process.runtime import ms, nn, ops

STEPS = 16
"""Gradient steps of one call."""


class PlainUpdate(nn.Cell):
    """Actor and critic of two hidden layers of 64, their loss, and Adam in a compiled loop."""

    def __init__(self) -> None:
        super().__init__()
        self.actor = nn.CellList([nn.Dense(4, 64), nn.Dense(64, 64), nn.Dense(64, 2)])
        self.critic = nn.CellList([nn.Dense(4, 64), nn.Dense(64, 64), nn.Dense(64, 1)])
        params = self.trainable_params()
        self.params = ms.ParameterTuple(params)
        self.m, self.v = (
            ms.ParameterTuple(
                [ms.Parameter(ms.Tensor(np.zeros(p.shape, np.float32)), name=f"{name}.{p.name}") for p in params]
            )
            for name in ("m", "v")
        )
        self.count = len(params)
        self.adam = ops.Adam()
        self.rate = ms.Tensor(1e-3, ms.float32)
        self.gradient = ms.value_and_grad(self.loss, None, self.params, has_aux=True)

    def forward(self, x, layers):
        for layer in layers:
            x = ops.tanh(layer(x))
        return x

    def loss(self, x, y):
        logits, value = self.forward(x, self.actor), self.forward(x, self.critic)
        log_prob = logits - ops.log(ops.exp(logits).sum(axis=-1, keepdims=True))
        ratio = ops.exp(log_prob[:, 0] - y[:, 0])
        policy_loss = -ops.minimum(ratio * y[:, 1], ops.clamp(ratio, 0.8, 1.2) * y[:, 1]).mean()
        value_loss = ops.square(value[:, 0] - y[:, 1]).mean()
        return policy_loss + value_loss, (policy_loss, value_loss)

    @ms.jit
    def construct(self, x, y):
        i, total = ops.zeros((), ms.int32), ops.zeros((), ms.float32)
        while i < STEPS:
            (loss, _), grads = self.gradient(x, y)
            for k in range(self.count):
                self.adam(self.params[k], self.m[k], self.v[k], 0.9, 0.999, self.rate, 0.9, 0.999, 1e-8, grads[k])
            total = total + loss
            i = i + 1
        return total
