"""Rewards for steps that a model of the agent's experience predicts badly.

    r_i = e / sqrt(var(G)),   G_t = gamma_i G_{t-1} + e_t

e is the error of a model's prediction for a step; the model learns from the agent's steps, so that a large error means
that the agent has rarely seen such a step. In observations every number, and every pixel of images, is normalized by
its running mean and standard deviation and clipped to [-5, 5]. G is a discounted sum over all steps of an environment,
across the ends of episodes. The variance includes a sum of 0 in each environment before its first step, because equal
errors in the first steps would have no variance otherwise. While the variance is 0, errors are not divided.
"""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from minding.engine.buffers import DeviceTables
from minding.engine.data.batch import IndexedBatch, minibatches
from minding.engine.data.observation import leaf_name, observation_leaves
from minding.engine.data.rollout import Rollout
from minding.engine.data.statistics import RunningMoments
from minding.engine.errors import NonFiniteError
from minding.engine.process.runtime import nn
from minding.engine.types import Array, StateDict
from minding.policies.learning.steps import ALL_ROWS, PRIORITY, GradientStep, Inputs
from minding.policies.networks.encoder import ObsEncoder
from minding.policies.networks.fused import fuse_layers
from minding.policies.networks.layers import MLP, Linear
from minding.policies.rewards.base import BOUND, LearnedReward

_EPSILON = 1e-8


class Features(nn.Cell):
    """Output features of an observation, float32 ``(B, dim)``."""

    def __init__(self, space: Mapping[str, Any], model: Any, hidden: list[int], dim: int, rng: np.random.Generator):
        super().__init__()
        self.encoder = ObsEncoder(space, model, rng, whitened=True)
        self.body = MLP(self.encoder.out_features, hidden, "relu", math.sqrt(2), rng)
        self.head = Linear(self.body.out_features, dim, math.sqrt(2), rng)

    def construct(self, leaves):
        return self.head(self.body(self.encoder(leaves)))


class NoveltyStep(GradientStep):
    """Base of the root cells. A subclass defines `errors` and `learned`."""

    proximal_names = ("error",)
    # The priority of a row is its error under the weights before the first step.
    prioritized = True

    def errors(self, rows):
        """Prediction errors of rows, float32 (B,)."""
        raise NotImplementedError

    def proximal(self, rows):
        return {"error": self.errors(rows)}

    def construct(self, batch):
        metrics = self.learned(batch)
        metrics[PRIORITY] = batch["error"]
        return metrics

    def learned(self, batch):
        """Makes the step; returns the metrics by name."""
        raise NotImplementedError


class NoveltyReward(LearnedReward):
    """Base of models that reward novelty, and learn from each rollout. A subclass defines `name`, `fields` and
    `make_cell`; ``next_obs`` is one of its fields."""

    def __init__(self, cfg: Any) -> None:
        super().__init__(cfg)
        self._gamma, self._passes, self._parts = self.cfg.gamma, self.cfg.n_epoch, self.cfg.n_minibatch
        # The moments of normalized fields, by field of the successor.
        self._observations = {
            leaf_name("next_obs", leaf): RunningMoments((math.prod(leaf.field.shape),))
            for leaf in observation_leaves(self.spec["observation"])
            if leaf.space["kind"] == "box"
        }
        # The discounted sums of each collector's environments, and the moments of all these sums.
        self._sums: dict[int, Array] = {}
        self._moments = RunningMoments()

    def make_cell(self, cfg: Any, rng: np.random.Generator) -> NoveltyStep:
        """The root cell, whose layers are then fused."""
        raise NotImplementedError

    def make_root(self, cfg: Any, rng: np.random.Generator) -> NoveltyStep:
        root = self.make_cell(cfg, rng)
        fuse_layers(root)
        return root

    def reward(self, data: dict[str, Array], rows: Array, rollout: Rollout) -> tuple[Array, Mapping[str, float]]:
        steps, envs = rollout.shape
        self._whiten(data, rows)
        (index, valid), tables = self._minibatches(rows, steps * envs), self._put(data)
        constants: dict[str, Array | float] = dict(self.root.optim.rates(0.0))
        constants[ALL_ROWS] = np.arange(steps * envs, dtype=np.int32)
        output = self._update(IndexedBatch(self._layout, tables, index, valid=valid), Inputs(constants=constants))
        errors = np.zeros(steps * envs, np.float32)
        assert output.priorities is not None
        errors[index.reshape(-1)] = output.priorities.reshape(-1)
        if not np.isfinite(errors).all():
            why = f"{self.name}: a prediction error is NaN or infinite: lower policy.other.{self.name}.learning_rate"
            raise NonFiniteError(why, metrics=output.metrics)
        return self._scaled(errors.reshape(rollout.shape), rollout).reshape(-1), output.metrics

    def _whiten(self, data: dict[str, Array], rows: Array) -> None:
        """Normalizes observations, float32, by moments to which the successors of these rows are added first. Without
        normalization, observations of an unusual scale would seem novel forever."""
        for name, moments in self._observations.items():
            moments.update(data[name].reshape(len(data[name]), -1)[rows])
            mean, scale = moments.mean.astype(np.float32), (1.0 / np.sqrt(moments.var + _EPSILON)).astype(np.float32)
            for field in {name, name.removeprefix("next_")} & data.keys():
                seen = data[field].reshape(len(data[field]), -1)
                white = np.subtract(seen, mean, dtype=np.float32)
                white *= scale
                data[field] = np.clip(white, -BOUND, BOUND, out=white).reshape(data[field].shape)

    def _minibatches(self, rows: Array, count: int) -> tuple[Array, Array | None]:
        """Minibatches of `n_epoch` passes over the rows, each in its own random order, see `minibatches`."""
        return minibatches([self._rng.permutation(rows) for _ in range(self._passes)], self._parts, count)

    def _put(self, data: Mapping[str, Array]) -> DeviceTables:
        rows = len(next(iter(data.values())))
        if self._tables is None or self._tables.rows != rows:
            self._tables = DeviceTables(self._layout, rows)
        self._tables.refill(data, f"{self.name}, ctx.trajectories")
        return self._tables

    def _scaled(self, errors: Array, rollout: Rollout) -> Array:
        """Errors, divided by the standard deviation of their discounted sums."""
        if rollout.collector not in self._sums:
            self._sums[rollout.collector] = np.zeros(rollout.shape[1])
            self._moments.update(self._sums[rollout.collector])
        total, sums = self._sums[rollout.collector], np.empty(rollout.shape)
        for t, step in enumerate(errors):
            sums[t] = total = self._gamma * total + step
        self._sums[rollout.collector] = total
        self._moments.update(sums.reshape(-1))
        return (errors / (np.sqrt(self._moments.var) or 1.0)).astype(np.float32)

    def state_dict(self) -> StateDict:
        """Copies of all parameters by name, the moments, the sums, and the random stream."""
        return {
            **super().state_dict(),
            "observations": {name: moments.state_dict() for name, moments in self._observations.items()},
            "sums": {str(collector): total.copy() for collector, total in self._sums.items()},
            "moments": self._moments.state_dict(),
        }

    def load_state_dict(self, state: StateDict) -> None:
        super().load_state_dict(state)
        for name, moments in self._observations.items():
            moments.load_state_dict(state["observations"][name])
        self._sums = {int(collector): np.array(total) for collector, total in state["sums"].items()}
        self._moments.load_state_dict(state["moments"])
