"""Rewards that are learned from recorded data.

Numbers in observations are normalized by the mean and standard deviation of the data, and clipped to [-5, 5]. The rows
of the data stay on the device; the rows of a rollout follow them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from minding.engine.buffers import DeviceTables
from minding.engine.buffers.dataset_rows import check_fields
from minding.engine.data.dataset import Dataset
from minding.engine.data.observation import leaf_name, observation_leaves
from minding.engine.errors import CheckpointError, NonFiniteError
from minding.engine.process import runtime
from minding.engine.process.compiled import Compiled
from minding.engine.process.runtime import ms, nn, ops
from minding.engine.types import Array, StateDict
from minding.policies.core.acting_network import narrow
from minding.policies.learning.optim import Group
from minding.policies.learning.steps import NetworkStep
from minding.policies.ops import primitives
from minding.policies.ops.primitives import after
from minding.policies.rewards.base import BOUND, LearnedReward

_EPSILON = 1e-8


class RecordedStep(NetworkStep):
    """Base of the root cells: a network and its optimizer. A subclass defines `loss`; the first of its metrics is the
    loss."""

    def __init__(self, net: nn.Cell, cfg: Any) -> None:
        super().__init__(net, {"net": Group(params=net.trainable_params(), rate=cfg.learning_rate)})

    def construct(self, batch):
        (_, metrics), grads = self.gradient(batch)
        norm = self.move(grads, batch, (metrics, grads))
        first = self.metrics[0]
        metrics[first] = after(metrics[first], norm)
        return metrics


def told_apart(logit):
    """The cross-entropy of a discriminator whose minibatch begins with as many steps of the expert as of the agent.

        -mean_expert[ log D ] - mean_agent[ log(1 - D) ],   D = sigmoid(logit)

    Args:
      logit: float32 (2B,).
    """
    half = logit.shape[0] // 2
    expert, agent = primitives.part(logit, 0, half), primitives.part(logit, half, half)
    # -log D = softplus(-f), -log(1 - D) = softplus(f)
    loss = primitives.mean(ops.Softplus()(-expert)) + primitives.mean(ops.Softplus()(agent))
    of_expert = primitives.mean(ops.Cast()(expert > 0.0, ms.float32))
    of_agent = primitives.mean(ops.Cast()(agent < 0.0, ms.float32))
    return loss, of_expert, of_agent


class _NetworkGraph(nn.Cell):
    """The network as a separate graph."""

    def __init__(self, net: nn.Cell) -> None:
        # Without a prefix, parameters keep the names that they have under the root.
        super().__init__(auto_prefix=False)
        self.net = net

    @ms.jit
    def construct(self, *fields):
        return self.net(*fields)


class RecordedReward(LearnedReward):
    """Base of models with recorded data. A subclass defines `name`, `fields`, `make_root` and `reward`.

    The network of the root cell is called with one array per row field, in the order of the layout.
    """

    def __init__(self, cfg: Any, dataset: Dataset) -> None:
        super().__init__(cfg)
        self._digest, self._count = dataset.digest, len(dataset)
        self._steps, self._size = self.cfg.n_update, self.cfg.batch_size
        boxes = [leaf for leaf in observation_leaves(self.spec["observation"]) if leaf.space["kind"] == "box"]
        check_fields(dataset, self._layout.fields)
        rows = dataset.rows(self._layout.fields, np.arange(len(dataset)))
        # By field of the observation.
        self._moments = {leaf_name("obs", leaf): _moments_of(rows[leaf_name("obs", leaf)]) for leaf in boxes}
        self._recorded = self._whitened(rows)
        self._graph = Compiled(_NetworkGraph(self.root.net), f"{self.name}.network", expected=2)

    @classmethod
    def of(cls, cfg: Any, dataset: Dataset, policy: Any) -> RecordedReward:
        """The model for a chain in which a policy acts."""
        return cls(cfg, dataset)

    def scores(self, rows: Mapping[str, Array]) -> Array:
        """The network's output for rows, float64 (n,)."""
        inputs = [runtime.to_device(narrow(rows[name])) for name in self._layout.fields]
        output: Array = self._graph(*inputs).asnumpy().astype(np.float64)
        return output

    def check_finite(self, reward: Array) -> None:
        """Refuses rewards that are NaN or infinite."""
        if not np.isfinite(reward).all():
            raise NonFiniteError(
                f"{self.name}: a reward is NaN or infinite: look at the observations (`minding check-env`), or lower "
                f"policy.other.{self.name}.learning_rate"
            )

    def with_recorded(self, agent: Mapping[str, Array] | None = None) -> DeviceTables:
        """Tables of the recorded rows, followed by rows of the agent."""
        count = self._count + (0 if agent is None else len(next(iter(agent.values()))))
        if self._tables is None or self._tables.rows != count:
            self._tables = DeviceTables(self._layout, count)
            self._tables.write(0, self._layout.pack(self._recorded))
        if agent is not None:
            self._tables.write(self._count, self._layout.pack(agent))
        return self._tables

    def drawn(self, rows: Array) -> Array:
        """Row numbers of the gradient steps, int32 (K, 2B): random rows of the expert, then random `rows` of the agent
        (`n_update` steps of `batch_size` rows each)."""
        experts, shape = self._count, (self._steps, self._size)
        both = self._rng.integers(0, experts, shape), experts + self._rng.choice(rows, shape)
        return np.concatenate(both, axis=1).astype(np.int32)

    def _whitened(self, rows: Mapping[str, Array]) -> dict[str, Array]:
        """The rows, with the numbers of observations normalized by the moments of the data, float32."""
        white = dict(rows)
        for name, (mean, scale) in self._moments.items():
            for field in {name, f"next_{name}"} & rows.keys():
                flat = rows[field].reshape(len(rows[field]), -1).astype(np.float32)
                white[field] = np.clip((flat - mean) * scale, -BOUND, BOUND).reshape(rows[field].shape)
        for name in {"terminated"} & rows.keys():
            white[name] = rows[name].astype(np.float32)
        return white

    def state_dict(self) -> StateDict:
        """Copies of all parameters by name, the random stream, and the digest of the data."""
        return {**super().state_dict(), "data": self._digest}

    def load_state_dict(self, state: StateDict) -> None:
        """Writes saved values in place, so that the compiled graph uses them."""
        if state["data"] != self._digest:
            raise CheckpointError(
                f"{self.name}: the run learned from other recorded data: give the folder that it started with"
            )
        super().load_state_dict(state)


def _moments_of(rows: Array) -> tuple[Array, Array]:
    """Mean and inverse standard deviation of each number, float32; the inverse is 1 for numbers that never change."""
    flat = rows.reshape(len(rows), -1).astype(np.float64)
    deviation = flat.std(axis=0)
    scale = 1.0 / np.where(deviation > _EPSILON, deviation, 1.0)
    return flat.mean(axis=0).astype(np.float32), scale.astype(np.float32)
