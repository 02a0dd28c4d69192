"""Optimizers inside a compiled update: named groups of parameters, each with its own method and settings.

Launching a kernel costs more than a step of Adam on a small tensor. On CPU, parameters can be placed one after another
in a block of memory, and an additional flat parameter covers the whole block: an optimizer or a target network then
needs one kernel instead of one per tensor. MindSpore does not know that they share memory, so a graph does not order
reads through one against writes through the other. Data dependencies keep the order instead: `Adam` and the target
networks take the results that must come first as an argument.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from minding.engine.annealing import Points, rate_left
from minding.engine.config.named import is_named, load_code
from minding.engine.errors import ConfigError
from minding.engine.process import runtime
from minding.engine.process.runtime import ms, nn, ops
from minding.engine.types import Array
from minding.policies.kernels import kernel, usable
from minding.policies.ops import primitives
from minding.policies.ops.primitives import after

_ALIGNMENT = 64
"""Alignment of each parameter in bytes, one cache line; without it, 256 x 256 products take an eighth longer."""
_FLOATS = _ALIGNMENT // 4
_numbers = itertools.count()
SHARE = "share"
"""Name of the input of updates with several learners: the share of a minibatch's rows that count, and that this learner
has, float32 (1,)."""


class Block:
    """Moves float32 parameters into one block of memory, in order, before any graph uses them.

    The parameters keep their names, shapes and values, and code that reads or writes them is unaffected.
    """

    def __init__(self, params: Sequence[ms.Parameter]) -> None:
        starts = [0, *itertools.accumulate(_padded(p.size) for p in params)]
        self._memory = _aligned_zeros(starts[-1])
        self._range = {id(p): (start, start + p.size) for p, start in zip(params, starts)}
        for p, start in zip(params, starts):
            view = self._memory[start : start + p.size].reshape(p.shape)
            view[...] = p.asnumpy()
            p.set_data(ms.from_numpy(view))

    def flat(self, params: Sequence[ms.Parameter] | None = None) -> ms.Parameter:
        """One parameter ``(n,)`` over the memory, including padding, of `params`, which must be adjacent in the
        block."""
        memory = self._memory
        if params is not None:
            memory = memory[self._range[id(params[0])][0] : _padded(self._range[id(params[-1])][1])]
        parameter = ms.Parameter(ms.Tensor(memory), name=f"flat.{next(_numbers)}", requires_grad=False)
        # The constructor copies the data, so the shared memory is set afterwards.
        parameter.set_data(ms.from_numpy(memory))
        return parameter


def hide(cell: nn.Cell, name: str, flat: ms.Parameter) -> None:
    """Makes a flat parameter an attribute of a cell, for use in `construct`, without adding it to the cell's state."""
    object.__setattr__(cell, name, flat)


def _padded(size: int) -> int:
    return -(-size // _FLOATS) * _FLOATS


def _aligned_zeros(count: int) -> Array:
    memory = np.zeros(count + _FLOATS, np.float32)
    start = -memory.ctypes.data % _ALIGNMENT // 4
    return memory[start : start + count]


STATISTICS = ("grad_norm", "grad_zero", "grad_nonfinite", "weight_norm", "update_ratio")
"""Statistics of a group of parameters: global norm of the gradients before scaling, shares of the gradients that are 0
and that are NaN or infinite, global norm of the parameters before the step, and ratio of the step's global norm to it
(0 if the parameters are all 0)."""


def joined(zero, values):
    """All entries of a tuple of float32 arrays as one array ``(n + 1,)``, preceded by `zero`, float32 (1,), so that
    even a single array is copied."""
    flat: Any = (zero,)
    for k in range(len(values)):
        flat = (*flat, ops.Reshape()(primitives.item(values, k), (-1,)))
    return ops.Concat()(flat)


def joined_after(zero, params, done):
    """`joined` parameters, read after `done`. Each one waits on its own: MindSpore ignores that a tuple has to wait."""
    read: Any = ()
    for k in range(len(params)):
        read = (*read, after(primitives.item(params, k), done))
    return joined(zero, read)


def step_statistics(grads, before, params):
    """`STATISTICS` of a step, followed by a 1 that counts the step: float32 (6,)."""
    count = grads.shape[0] - 1
    zeros = (_total(ops.Equal()(grads, 0.0)) - 1.0) / count
    odd = _total(ops.LogicalNot()(ops.IsFinite()(grads))) / count
    weight, step = _norm(before), _norm(params - before)
    return primitives.stacked((_norm(grads), zeros, odd, weight, ops.DivNoNan()(step, weight), ops.OnesLike()(weight)))


def _norm(x):
    return ops.Sqrt()(2.0 * ops.L2Loss()(x))


def _total(flags):
    return ops.ReduceSum()(ops.Cast()(flags, ms.float32), 0)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Group:
    """Parameters that are optimized with the same settings."""

    params: Sequence[ms.Parameter]
    rate: float
    anneal: bool = False
    kind: str = "linear"
    points: Points = ()
    method: str = "adam"
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    weight_decay: float = 0.0
    max_grad_norm: float = 0.0
    parts: Sequence[int] = ()

    def __post_init__(self) -> None:
        method_class(self.method)
        if self.weight_decay and self.method != "adamw":
            raise ConfigError(f"optimizer group: weight_decay={self.weight_decay} needs method 'adamw'")

    @classmethod
    def of(cls, net: Any, learn: Mapping[str, Any], **settings: Any) -> Group:
        """Parameters with the learning rate, schedule and optimizer of a `learn` configuration."""
        method = learn.get("optimizer", "adam")
        given = {
            "params": net if isinstance(net, (list, tuple)) else net.trainable_params(),
            "rate": learn["learning_rate"],
            "anneal": learn["anneal_lr"],
            "kind": learn["anneal_kind"],
            "points": learn["anneal_points"],
            "method": method,
            "betas": (0.9, 0.99) if method == "rmsprop" else (0.9, 0.999),
        }
        return cls(**{**given, **settings})

    @property
    def schedule(self) -> tuple[float, bool, str, Points]:
        """All settings on which the learning rate depends."""
        return self.rate, self.anneal, self.kind, self.points

    def rate_at(self, progress: float) -> float:
        """The learning rate after this share of the schedule, in [0, 1]."""
        return self.rate * rate_left(self.kind, progress, self.points) if self.anneal else self.rate


class Optimizer(nn.Cell):
    """Optimizes groups of parameters, each with its own method and settings."""

    def __init__(self, **groups: Group) -> None:
        super().__init__()
        self.groups = groups
        self.names = tuple(groups)
        self.rate_names = tuple(rate_name(name) for name in groups)
        self.steps = nn.CellList([method_class(group.method)(group) for group in groups.values()])
        self.watched, self.learners = False, 1
        first, *others = groups.values()
        alike = all(group.schedule == first.schedule for group in others)
        self.reported = (
            {"learning_rate": first} if alike else {f"learning_rate_{name}": groups[name] for name in groups}
        )

    def average(self, learners: int) -> None:
        """Makes updates that are compiled from now on average over learners, which have equal parts of each minibatch.
        Their inputs then contain `SHARE`."""
        self.learners = learners
        self.all_reduce = ops.AllReduce()
        self.zero = ms.Tensor(np.zeros(1, np.float32))

    def watch(self) -> None:
        """Makes updates that are compiled from now on record statistics of each step, see `take_statistics`."""
        self.watched = True
        self.zero = ms.Tensor(np.zeros(1, np.float32))
        zeros = np.zeros(len(STATISTICS) + 1, np.float32)
        # Sums over steps, which are not part of the cell's state.
        sums = [ms.Parameter(ms.Tensor(zeros), name=f"statistics.{n}", requires_grad=False) for n in self.names]
        object.__setattr__(self, "sums", tuple(sums))

    def take_statistics(self) -> dict[str, float]:
        """`STATISTICS` of each group as ``<name>_<group>``: means over the group's steps since the last call of this
        method. Empty without `watch`."""
        found: dict[str, float] = {}
        for name, sums in zip(self.names, self.sums if self.watched else ()):
            *totals, steps = sums.asnumpy().tolist()
            if steps:
                found.update({f"{what}_{name}": total / steps for what, total in zip(STATISTICS, totals)})
            runtime.assign(sums, np.zeros(len(STATISTICS) + 1, np.float32))
        return found

    def rates(self, progress: float) -> dict[str, float]:
        """The inputs of an update that `construct` reads: the learning rate of each group."""
        return {rate_name(name): group.rate_at(progress) for name, group in self.groups.items()}

    def step_rates(self, progress: Sequence[float]) -> dict[str, Array]:
        """`rates` for each gradient step of a call, float32 (K,); empty if all learning rates are constant."""
        if not any(group.anneal for group in self.groups.values()):
            return {}
        rates = {rate_name(name): [*map(group.rate_at, progress)] for name, group in self.groups.items()}
        return {name: np.array(values, np.float32) for name, values in rates.items()}

    def reported_rates(self, progress: Sequence[float]) -> dict[str, float]:
        """The mean learning rates of the steps of a call as metrics: a single one if all groups have the same schedule,
        else one per group."""
        return {name: sum(map(group.rate_at, progress)) / len(progress) for name, group in self.reported.items()}

    def block(self, name: str) -> Block | None:
        """The block that holds a group's parameters; None if each parameter has its own memory."""
        block: Block | None = self.steps[self.names.index(name)].block
        return block

    def gradient(self, loss: Callable[[Any], Any], *names: str) -> Callable[[Any], Any]:
        """Differentiates a loss with respect to the parameters of groups."""
        gradient: Callable[[Any], Any] = ms.value_and_grad(loss, None, self.parameters(*names), has_aux=True)
        return gradient

    def parameters(self, *names: str) -> ms.ParameterTuple:
        return ms.ParameterTuple([p for name in names for p in self.groups[name].params])

    def construct(self, grads, batch, reads):
        if self.learners > 1:
            grads = self.of_all_learners(grads, batch)
        moved: Any = ()
        norms: Any = ()
        for k in range(len(self.names)):
            if self.names[k] in grads:
                moved = (*moved, self.names[k])
                if self.watched:
                    norm = self.watched_step(k, grads[self.names[k]], batch[self.rate_names[k]], reads)
                else:
                    norm = self.steps[k](grads[self.names[k]], batch[self.rate_names[k]], reads)
                norms = (*norms, norm)
        return primitives.named(moved, norms)

    def of_all_learners(self, grads, batch):
        """The gradients of a minibatch, from the gradients of this learner's part of it. The loss is a mean over the
        rows that count (`ops.policy_gradient.row_mean`), so that learners weigh as much as they have of these rows. One
        reduction sums all gradients."""
        flat: Any = ()
        for k in range(len(self.names)):
            if self.names[k] in grads:
                flat = (*flat, joined(self.zero, grads[self.names[k]]) * batch[SHARE])
        total = self.all_reduce(ops.Concat()(flat))
        start = 0
        moved: Any = ()
        averaged: Any = ()
        for k in range(len(self.names)):
            if self.names[k] in grads:
                # `joined` begins with a zero.
                start = start + 1
                group: Any = ()
                for i in range(len(grads[self.names[k]])):
                    grad = primitives.item(grads[self.names[k]], i)
                    group = (*group, ops.Reshape()(primitives.part(total, start, grad.size), grad.shape))
                    start = start + grad.size
                moved, averaged = (*moved, self.names[k]), (*averaged, group)
        return primitives.named(moved, averaged)

    def watched_step(self, k, grads, rate, reads):
        """The step of group k, with statistics."""
        before = joined(self.zero, self.steps[k].params)
        norm = self.steps[k](grads, rate, (reads, before))
        found = step_statistics(joined(self.zero, grads), before, joined_after(self.zero, self.steps[k].params, norm))
        return after(norm, ops.AssignAdd()(self.sums[k], found))


class Method(nn.Cell):
    """Base of the methods, also of the user's own: ``construct(grads, rate, reads)`` makes a step.

    It gets the gradients, one per parameter, the learning rate, and what the step has to wait for (`Optimizer`). It
    writes `params` and returns the norm of the gradients before scaling, see `bounded`.
    """

    block: Block | None = None

    def __init__(self, group: Group) -> None:
        super().__init__()
        self.params = ms.ParameterTuple(group.params)
        self.count = len(group.params)
        self.beta1, self.beta2 = group.betas
        self.eps, self.max_grad_norm = group.eps, group.max_grad_norm
        self.weight_decay = group.weight_decay
        self.parts = tuple(group.parts) or (0,) * self.count
        self.half_square = ops.L2Loss()

    def zeros(self, name: str) -> ms.ParameterTuple:
        return ms.ParameterTuple(
            [
                ms.Parameter(ms.Tensor(np.zeros(p.shape, np.float32)), name=f"{name}.{i}", requires_grad=False)
                for i, p in enumerate(self.params)
            ]
        )

    def bounded(self, grads):
        """The gradients, those of each part scaled down to `max_grad_norm` if they exceed it, and the norm of all
        before scaling."""
        norm = ops.zeros((), ms.float32)
        if self.max_grad_norm <= 0:
            return grads, norm
        squares: Any = (norm,) * (max(self.parts) + 1)
        for k in range(self.count):
            part = self.parts[k]
            found = squares[part] + 2.0 * self.half_square(grads[k])
            squares = (*squares[:part], found, *squares[part + 1 :])
        clipped = []
        for k in range(self.count):
            of_part = ops.sqrt(squares[self.parts[k]])
            clipped.append(grads[k] * ops.minimum(self.max_grad_norm / (of_part + 1e-6), 1.0))
        for square in squares:
            norm = norm + square
        return clipped, ops.sqrt(norm)


class Adam(Method):
    """Adam (Kingma and Ba, 2015, https://arxiv.org/abs/1412.6980, algorithm 1) with the epsilon of the paper, and AdamW
    (Loshchilov and Hutter, 2019, https://arxiv.org/abs/1711.05101, algorithm 2).

        theta -= lr * m_hat / (sqrt(v_hat) + eps) + lr * weight_decay * theta

    `nn.Adam` adds epsilon before the bias correction of v, which makes a difference with PPO's epsilon of 1e-5. Here
    its kernel gets ``eps * sqrt(1 - beta2^t)``, which equals the paper. The learning rate is an input, so schedules
    never recompile. With this package's kernels, parameters, m and v are one block each, and one kernel updates all of
    them, see `flat`.
    """

    def __init__(self, group: Group) -> None:
        super().__init__(group)
        self.m, self.v = self.zeros("m"), self.zeros("v")
        self.beta1_power = ms.Parameter(ms.Tensor(np.float32(1.0)), name="beta1_power", requires_grad=False)
        self.beta2_power = ms.Parameter(ms.Tensor(np.float32(1.0)), name="beta2_power", requires_grad=False)
        if usable():
            self.block = Block(group.params)
            hide(self, "flat_params", self.block.flat())
            hide(self, "flat_m", Block(self.m).flat())
            hide(self, "flat_v", Block(self.v).flat())
            settings = [self.beta1, self.beta2, self.eps, self.max_grad_norm, self.weight_decay, *self.parts]
            self.settings = ms.Tensor(np.array(settings, np.float32))
            self.fused_adam = _fused_adam()
        self.adam = ops.Adam()

    def construct(self, grads, rate, reads):
        grads = ops.depend(grads, reads)
        if self.block is not None:
            blocks = (self.flat_params, self.flat_m, self.flat_v)
            return self.fused_adam(*blocks, self.beta1_power, self.beta2_power, rate, self.settings, *grads)
        grads, norm = self.bounded(grads)
        power1 = self.beta1_power * self.beta1
        power2 = self.beta2_power * self.beta2
        numbers = (power1, power2, rate, self.beta1, self.beta2, self.eps * ops.sqrt(1.0 - power2))
        done: Any = ()
        for i in range(self.count):
            if self.weight_decay > 0:
                grads_i = ops.depend(
                    grads[i], ops.assign(self.params[i], self.params[i] * (1.0 - rate * self.weight_decay))
                )
            else:
                grads_i = grads[i]
            done = (*done, self.adam(self.params[i], self.m[i], self.v[i], *numbers, grads_i))
        ops.assign(self.beta1_power, power1)
        ops.assign(self.beta2_power, power2)
        return ops.depend(norm, done)


class RMSProp(Method):
    """RMSProp (Hinton, 2012, https://www.cs.toronto.edu/~tijmen/csc321/slides/lecture_slides_lec6.pdf), with epsilon
    outside of the root, as in PyTorch and in the reference implementation of A3C.

        v = beta2 * v + (1 - beta2) * g^2
        theta -= lr * g / (sqrt(v) + eps)
    """

    def __init__(self, group: Group) -> None:
        super().__init__(group)
        self.v = self.zeros("v")

    def construct(self, grads, rate, reads):
        grads = ops.depend(grads, reads)
        grads, norm = self.bounded(grads)
        done: Any = ()
        for i in range(self.count):
            square = self.beta2 * self.v[i] + (1.0 - self.beta2) * ops.square(grads[i])
            moved = self.params[i] - rate * grads[i] / (ops.sqrt(square) + self.eps)
            done = (*done, ops.assign(self.v[i], square), ops.assign(self.params[i], moved))
        return ops.depend(norm, done)


METHODS: dict[str, type[Method]] = {"adam": Adam, "adamw": Adam, "rmsprop": RMSProp}


def method_class(name: str) -> type[Method]:
    """The class of a method of `METHODS`, or the one that ``policy.learn.optimizer`` names as ``module:Class``."""
    if not is_named(name):
        if name not in METHODS:
            raise ConfigError(f"optimizer group: expected method {', '.join(METHODS)}, got {name!r}")
        return METHODS[name]
    kind = load_code(name, "policy.learn.optimizer")
    if not (isinstance(kind, type) and issubclass(kind, Method)):
        raise ConfigError(
            f"policy.learn.optimizer={name!r}: expected a class derived from minding.policies.learning.optim.Method, "
            f"got {kind!r}"
        )
    return kind


def rate_name(group: str) -> str:
    """Name of the input that holds a group's learning rate."""
    return f"rate_{group}"


@functools.cache
def _fused_adam() -> Any:
    primitive = kernel("adam", lambda *shapes: ())
    # The kernel writes into its inputs; with this attribute it is never optimized away or reordered.
    primitive.add_prim_attr("side_effect_mem", True)
    return primitive
