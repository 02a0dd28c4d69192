"""The evaluation of policies on recorded data: their action values, and fitted Q evaluation.

Le et al., 2019, https://arxiv.org/abs/1903.08738, algorithm 3, with a target network as a moving average in place of a
sequence of regressions:

    y = clip(R + gamma (1 - terminated) Q_target(s', pi(s')), low, high)
    L = mean[ 1/2 (Q(s, a) - y)^2 ]

low and high bound the discounted sums of rewards; the functions in the paper are bounded likewise. These bounds and
layer normalization prevent the values of actions that were not recorded from growing without limit.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from minding.engine.buffers import DeviceTables
from minding.engine.config.config import Config
from minding.engine.data.batch import Field, IndexedBatch, RowLayout
from minding.engine.process import runtime
from minding.engine.process.compiled import Compiled
from minding.engine.process.runtime import ms, nn, ops
from minding.engine.seeding import SeedStreams
from minding.engine.types import Array
from minding.policies.learning.optim import Group, Optimizer
from minding.policies.learning.steps import GradientStep, Inputs
from minding.policies.learning.target import SoftTarget, equalize
from minding.policies.learning.update import Update
from minding.policies.networks.actor_critic import ActionValue, QNetwork
from minding.policies.networks.fused import fuse_layers
from minding.policies.networks.layers import Clip
from minding.policies.ops import primitives
from minding.policies.ops.primitives import after
from minding.policies.ops.values import chosen_value, half_square

_ROWS = 1024
"""Number of rows per call; it is always the same, so that one graph serves all calls."""


class _Values(nn.Cell):
    def __init__(self, root: GradientStep) -> None:
        # Without a prefix, parameters keep the names that they have under the root.
        super().__init__(auto_prefix=False)
        self.root = root

    @ms.jit
    def construct(self, action, *obs):
        return self.root.action_value(action, obs)


class ActionValues:
    """Q(s, a) by `GradientStep.action_value` of a root, under its current parameters."""

    def __init__(self, root: GradientStep, paths: Sequence[str], name: str) -> None:
        self._compiled, self._paths = Compiled(_Values(root), name), tuple(paths)

    def __call__(self, obs: Mapping[str, Array], action: Array) -> Array:
        """Q(s, a), float32 ``(n,)``, of observations ``(n, ...)`` by path and actions ``(n, ...)`` in the policy's own
        units."""
        inputs = [_as_rows(action), *(_as_rows(obs[path]) for path in self._paths)]
        found = []
        for start in range(0, len(action), _ROWS):
            block = [values[start : start + _ROWS] for values in inputs]
            count = len(block[0])
            padded = [np.concatenate([x, np.zeros((_ROWS - count, *x.shape[1:]), x.dtype)]) for x in block]
            found.append(self._compiled(*[runtime.to_device(x) for x in padded]).asnumpy()[:count].copy())
        return np.concatenate(found)


def _as_rows(values: Array) -> Array:
    """`values` in the dtype that gradient steps take: uint8, int32 or float32."""
    if values.dtype == np.uint8:
        return values
    return values.astype(np.int32 if values.dtype.kind in "iu" else np.float32)


RATE = 1e-3
"""Learning rate of Adam at the start of a fit; it is annealed to 0."""


class FittedQCell(GradientStep):
    """Root cell: a network of action values, its target network and the optimizer."""

    metrics = ("loss",)

    def __init__(
        self, net: nn.Cell, target: nn.Cell, discrete: bool, gamma: float, limits: tuple[float, float]
    ) -> None:
        super().__init__()
        self.net, self.target = net, target
        self.discrete, self.gamma = discrete, gamma
        self.within = Clip(*limits)
        self.optim = Optimizer(net=Group(params=net.trainable_params(), rate=RATE, anneal=True))
        self.move_target = SoftTarget(net, target, self.optim.block("net"))
        self.gradient = self.optim.gradient(self.loss, "net")

    def value(self, net, action, obs):
        return chosen_value(net(obs)[0], action) if self.discrete else net(action, obs)

    def action_value(self, action, obs):
        return self.value(self.net, action, obs)

    def loss(self, batch):
        following = self.value(self.target, batch["next_action"], batch["next_obs"])
        target = batch["reward"] + self.gamma * (1.0 - batch["terminated"]) * ops.stop_gradient(following)
        target = self.within(target)
        loss = primitives.mean(half_square(self.value(self.net, batch["action"], batch["obs"]) - target))
        return loss, {"loss": loss}

    def construct(self, batch):
        (_, metrics), grads = self.gradient(batch)
        done = self.optim({"net": grads}, batch, metrics)["net"]
        moved = self.move_target(batch["tau"], done)
        # A caller that waits for the metric waits for the whole step.
        return {"loss": after(metrics["loss"], (done, moved))}


class FittedQ:
    """A separate network that is fitted to the values of a policy, starting from the same weights for each
    policy."""

    def __init__(
        self,
        spec: Mapping[str, Any],
        model: Mapping[str, Any],
        fields: Mapping[str, Field],
        gamma: float,
        limits: tuple[float, float],
        seed: int,
    ) -> None:
        rng, discrete = SeedStreams(seed).generator("fitted_q"), spec["action"]["kind"] == "discrete"
        # The settings of some algorithms lack these keys.
        complete = Config({"dueling": False, **model, "memory": "none", "norm": "layer"})
        net, target = ((QNetwork if discrete else ActionValue)(spec, complete, rng) for _ in range(2))
        # All values start at 0: a random start decays only as fast as rewards add up.
        for head in (net.advantage, net.value) if discrete else (net.value,):
            for p in () if head is None else head.get_parameters():
                runtime.assign(p, np.zeros(p.shape, np.float32))
        equalize(net, target)
        self.root = FittedQCell(net, target, discrete, gamma, limits)
        fuse_layers(self.root)
        self._layout = RowLayout({**fields, "next_action": fields["action"], "reward": Field(), "terminated": Field()})
        self._tables: DeviceTables | None = None
        self._update = Update(
            self.root, "fitted_q", ["obs", "next_obs", "action", "next_action", "reward", "terminated"]
        )
        paths = [name.partition(".")[2] for name in fields if name.partition(".")[0] == "obs"]
        self.values: ActionValues = ActionValues(self.root, paths, "fitted_q.values")
        self._params = dict(self.root.parameters_and_names())
        self._initial = {name: p.asnumpy().copy() for name, p in self._params.items()}

    @property
    def fields(self) -> Sequence[str]:
        """Names of the row fields that `learn` takes."""
        return tuple(self._layout.fields)

    def restart(self) -> None:
        """Resets weights, target and optimizer to their initial values; moments of observations stay."""
        moments = (".normalizer.",)
        for name, p in self._params.items():
            if not any(part in name for part in moments):
                runtime.assign(p, self._initial[name])

    def learn(self, rows: Mapping[str, Array], steps: int, progress: float, tau: float) -> float:
        """Makes gradient steps in one compiled call, on arrays ``(steps * B, ...)`` by name of `fields`, B rows per
        step, with `next_action`, the policy's action in the next state; returns the mean loss."""
        count = len(rows["reward"])
        if self._tables is None or self._tables.rows != count:
            self._tables = DeviceTables(self._layout, count)
        self._tables.refill(rows, "fitted Q evaluation")
        index = np.arange(count, dtype=np.int32).reshape(steps, -1)
        rates = self.root.optim.rates(progress)
        batch = IndexedBatch(self._layout, self._tables, index)
        return self._update(batch, Inputs(constants={**rates, "tau": tau})).metrics["loss"]
