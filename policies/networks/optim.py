"""Adam inside a compiled update."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from minding.engine.process.runtime import ms, nn, ops
from minding.policies.kernels import kernel, usable
from minding.policies.networks import flat


class Adam(nn.Cell):
    """Adam (Kingma and Ba, 2015, https://arxiv.org/abs/1412.6980, algorithm 1) with the epsilon of the paper.

        theta -= lr * m_hat / (sqrt(v_hat) + eps)

    `nn.Adam` adds epsilon before the bias correction of v; with PPO's 1e-5 that differs. Its kernel is used with
    ``eps * sqrt(1 - beta2^t)``, which makes both equal. The learning rate is an input, so schedules never recompile.
    With our own kernels, parameters and moments lie in one block each, and one kernel changes them all, see `flat`.

    Args:
      params: the parameters to update; no other optimizer holds them.
      eps: numerical floor of the denominator.
      max_grad_norm: gradients are scaled down to this global L2 norm; 0 leaves them unchanged.
    """

    def __init__(self, params: Sequence[ms.Parameter], *, eps: float = 1e-8, max_grad_norm: float = 0.0) -> None:
        super().__init__()
        self.params = ms.ParameterTuple(params)
        self.count = len(params)
        self.m = ms.ParameterTuple([self._zeros(f"m.{i}", p.shape) for i, p in enumerate(params)])
        self.v = ms.ParameterTuple([self._zeros(f"v.{i}", p.shape) for i, p in enumerate(params)])
        self.beta1, self.beta2, self.eps, self.max_grad_norm = 0.9, 0.999, eps, max_grad_norm
        self.beta1_power = ms.Parameter(ms.Tensor(np.float32(1.0)), name="beta1_power", requires_grad=False)
        self.beta2_power = ms.Parameter(ms.Tensor(np.float32(1.0)), name="beta2_power", requires_grad=False)
        self.block = flat.Block(params) if usable() else None
        if self.block is not None:
            flat.hide(self, "flat_params", self.block.flat())
            flat.hide(self, "flat_m", flat.Block(self.m).flat())
            flat.hide(self, "flat_v", flat.Block(self.v).flat())
            self.settings = ms.Tensor(np.array([self.beta1, self.beta2, eps, max_grad_norm], np.float32))
            self.fused_adam = _fused_adam()
        self.adam = ops.Adam()
        self.half_square = ops.L2Loss()

    @staticmethod
    def _zeros(name: str, shape: Sequence[int]) -> ms.Parameter:
        return ms.Parameter(ms.Tensor(np.zeros(shape, np.float32)), name=name, requires_grad=False)

    def construct(self, grads, learning_rate, reads):
        """One step.

        Args:
          grads: one per parameter.
          learning_rate: float32 scalar or (1,).
          reads: a tensor or a tuple of them: what was computed from the parameters besides the gradients, such as the
            loss. The step waits for it, which nothing else ensures, see `flat`.

        Returns:
          The global gradient norm before clipping (0 when `max_grad_norm` is 0), known after the step.
        """
        grads = ops.depend(grads, reads)
        if self.block is not None:
            blocks = (self.flat_params, self.flat_m, self.flat_v)
            return self.fused_adam(*blocks, self.beta1_power, self.beta2_power, learning_rate, self.settings, *grads)
        norm = ops.zeros((), ms.float32)
        if self.max_grad_norm > 0:
            norm = ops.sqrt(2.0 * self.half_squares(grads))
            scale = ops.minimum(self.max_grad_norm / (norm + 1e-6), 1.0)
            clipped = []
            for grad in grads:
                clipped.append(grad * scale)
            grads = clipped
        power1 = self.beta1_power * self.beta1
        power2 = self.beta2_power * self.beta2
        numbers = (power1, power2, learning_rate, self.beta1, self.beta2, self.eps * ops.sqrt(1.0 - power2))
        done: Any = ()
        for i in range(self.count):
            done = (*done, self.adam(self.params[i], self.m[i], self.v[i], *numbers, grads[i]))
        ops.assign(self.beta1_power, power1)
        ops.assign(self.beta2_power, power2)
        return ops.depend(norm, done)

    def half_squares(self, grads):
        total = self.half_square(grads[0])
        for grad in grads[1:]:
            total = total + self.half_square(grad)
        return total


@functools.cache
def _fused_adam() -> Any:
    primitive = kernel("adam", lambda *shapes: (), lambda *dtypes: dtypes[0])
    # It writes into its inputs: never left out, and in order.
    primitive.add_prim_attr("side_effect_mem", True)
    return primitive
