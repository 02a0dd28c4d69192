"""RND: random network distillation, a reward for observations that the agent has rarely seen.

Burda et al., 2018, https://arxiv.org/abs/1810.12894: a network learns to predict the outputs of a second network, whose
weights are random and fixed. It learns from the agent's observations, so a large error means that the agent has rarely
seen such an observation.

    e(s') = mean_k( f_k(s'; theta) - g_k(s') )^2       prediction error; theta minimizes its mean over the rollout
    r_i   = e(s') / sqrt(var(G)),   G_t = gamma_i G_{t-1} + e_t

s' are observations in which every number, and every pixel of images, is normalized by its running mean and standard
deviation and clipped to [-5, 5]. G is a discounted sum over all steps of an environment, across the ends of episodes.
The variance includes a sum of 0 in each environment before its first step, because equal errors in the first steps
would have no variance otherwise. While the variance is 0, errors are not divided.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from minding.engine.buffers import DeviceTables
from minding.engine.data.batch import IndexedBatch, RowLayout, minibatches
from minding.engine.data.observation import leaf_name, observation_leaves
from minding.engine.data.rollout import Rollout, named_leaves
from minding.engine.data.statistics import RunningMoments
from minding.engine.errors import NonFiniteError
from minding.engine.process import runtime
from minding.engine.process.floats import flush_denormals
from minding.engine.process.runtime import nn, ops
from minding.engine.seeding import SeedStreams, generator_state, restore_generator
from minding.engine.types import Array, RewardEstimate, StateDict
from minding.policies.core.prepare_process import prepare
from minding.policies.learning.optim import Group, Optimizer
from minding.policies.learning.steps import ALL_ROWS, PRIORITY, GradientStep, Inputs, Update
from minding.policies.networks.encoder import ObsEncoder
from minding.policies.networks.fused import fuse_layers
from minding.policies.networks.layers import MLP, Linear
from minding.policies.ops.policy_gradient import row_mean

_EPSILON = 1e-8
_BOUND = 5.0
"""Largest absolute value of observations, in standard deviations."""


class Features(nn.Cell):
    """Output features of an observation, float32 ``(B, dim)``."""

    def __init__(self, space: Mapping[str, Any], model: Any, hidden: list[int], dim: int, rng: np.random.Generator):
        super().__init__()
        self.encoder = ObsEncoder(space, model, rng, whitened=True)
        self.body = MLP(self.encoder.out_features, hidden, "relu", math.sqrt(2), rng)
        self.head = Linear(self.body.out_features, dim, math.sqrt(2), rng)

    def construct(self, leaves):
        return self.head(self.body(self.encoder(leaves)))


class RNDCell(GradientStep):
    """Root cell: the predictor, the random target network, and the optimizer of the predictor.

    Args:
      space: description of the observation space.
      model: settings of the encoders.
      cfg: the section `policy.other.rnd`.
      rng: random generator for the initial weights.
    """

    metrics = ("rnd_loss",)
    present_names = ("error",)
    # The priority of a row is its error under the weights before the first step.
    prioritized = True

    def __init__(self, space: Mapping[str, Any], model: Any, cfg: Any, rng: np.random.Generator) -> None:
        super().__init__()
        self.target = Features(space, model, cfg.hidden, cfg.dim, rng)
        # One layer more than the target, as in the paper.
        self.predictor = Features(space, model, [*cfg.hidden, cfg.hidden[-1]], cfg.dim, rng)
        group = Group(params=self.predictor.trainable_params(), rate=cfg.learning_rate)
        self.optim = Optimizer(predictor=group)
        self.gradient = self.optim.gradient(self.loss, "predictor")

    def errors(self, leaves):
        """Prediction errors, float32 (B,)."""
        return ops.ReduceMean()(ops.square(self.predictor(leaves) - self.target(leaves)), -1)

    def loss(self, batch):
        loss = row_mean(self.errors(batch["next_obs"]), batch)
        return loss, {"rnd_loss": loss}

    def present(self, rows):
        return {"error": self.errors(rows["next_obs"])}

    def construct(self, batch):
        (_, metrics), grads = self.gradient(batch)
        self.optim({"predictor": grads}, batch, metrics["rnd_loss"])
        metrics[PRIORITY] = batch["error"]
        return metrics


class RND:
    """Estimates intrinsic rewards of rollouts and learns from each of them.

    Args:
      cfg: the compiled configuration; it uses ``policy.other.rnd`` and, for the encoders, ``policy.model``.
    """

    name = "rnd"

    def __init__(self, cfg: Any) -> None:
        prepare(cfg)
        self.cfg = cfg.policy.other.rnd
        streams = SeedStreams(cfg.seed)
        space = cfg.env.spec["observation"]
        self.root = RNDCell(space, cfg.policy.model, self.cfg, streams.generator("rnd.init"))
        fuse_layers(self.root)
        self.params = dict(self.root.parameters_and_names())
        self._update = Update(self.root, "rnd.learn", ["next_obs"])
        fields, self._observations = {}, {}
        for leaf in observation_leaves(space):
            name, field = leaf_name("next_obs", leaf), leaf.field
            if leaf.space["kind"] == "box":
                # The moments of whitened fields, by field.
                self._observations[name] = RunningMoments((math.prod(field.shape),))
                field = dataclasses.replace(field, dtype="float32")
            fields[name] = field
        self._layout = RowLayout(fields)
        self._tables: DeviceTables | None = None
        self._rng = streams.generator("rnd.learn")
        # The discounted sums of each collector's environments, and the moments of all these sums.
        self._sums: dict[int, Array] = {}
        self._moments = RunningMoments()

    @flush_denormals
    def estimate(self, rollout: Rollout) -> RewardEstimate:
        """Intrinsic rewards of the steps of a rollout, from the errors before learning; then learns from the rollout.

        Raises:
          NonFiniteError: if an observation or an error is NaN or infinite.
        """
        steps, envs = rollout.shape
        successors = named_leaves("next_obs", rollout.next_obs())
        data = {name: leaf.reshape(steps * envs, *leaf.shape[2:]) for name, leaf in successors}
        rows = np.flatnonzero(rollout.transitions().reshape(-1))
        if not len(rows):
            return RewardEstimate(np.zeros(rollout.shape, np.float32), {})
        self._whiten(data, rows)
        (index, valid), tables = self._minibatches(rows, steps * envs), self._put(data)
        constants: dict[str, Array | float] = dict(self.root.optim.rates(0.0))
        constants[ALL_ROWS] = np.arange(steps * envs, dtype=np.int32)
        output = self._update(IndexedBatch(self._layout, tables, index, valid=valid), Inputs(constants=constants))
        errors = np.zeros(steps * envs, np.float32)
        assert output.priorities is not None
        errors[index.reshape(-1)] = output.priorities.reshape(-1)
        if not np.isfinite(errors).all():
            why = "rnd: a prediction error is NaN or infinite: lower policy.other.rnd.learning_rate"
            raise NonFiniteError(why, metrics=output.metrics)
        reward = self._scaled(errors.reshape(rollout.shape), rollout)
        return RewardEstimate(reward, {**output.metrics, "rnd_reward": float(reward.reshape(-1)[rows].mean())})

    def _whiten(self, data: dict[str, Array], rows: Array) -> None:
        """Normalizes observations, float32, by moments to which these rows are added first. Without normalization,
        observations of an unusual scale would seem novel forever."""
        for name, moments in self._observations.items():
            seen = data[name].reshape(len(data[name]), -1)
            moments.update(seen[rows])
            scale = 1.0 / np.sqrt(moments.var + _EPSILON)
            white = np.subtract(seen, moments.mean.astype(np.float32), dtype=np.float32)
            white *= scale.astype(np.float32)
            data[name] = np.clip(white, -_BOUND, _BOUND, out=white).reshape(data[name].shape)

    def _minibatches(self, rows: Array, count: int) -> tuple[Array, Array | None]:
        """Minibatches of `n_epoch` passes over the rows, each in its own random order, see `minibatches`."""
        return minibatches([self._rng.permutation(rows) for _ in range(self.cfg.n_epoch)], self.cfg.n_minibatch, count)

    def _put(self, data: Mapping[str, Array]) -> DeviceTables:
        rows = len(next(iter(data.values())))
        if self._tables is None or self._tables.rows != rows:
            self._tables = DeviceTables(self._layout, rows)
        self._tables.refill(data, "rnd, ctx.trajectories")
        return self._tables

    def _scaled(self, errors: Array, rollout: Rollout) -> Array:
        """Errors, divided by the standard deviation of their discounted sums."""
        if rollout.collector not in self._sums:
            self._sums[rollout.collector] = np.zeros(rollout.shape[1])
            self._moments.update(self._sums[rollout.collector])
        total, sums = self._sums[rollout.collector], np.empty(rollout.shape)
        for t, step in enumerate(errors):
            sums[t] = total = self.cfg.gamma * total + step
        self._sums[rollout.collector] = total
        self._moments.update(sums.reshape(-1))
        return (errors / (np.sqrt(self._moments.var) or 1.0)).astype(np.float32)

    def state_dict(self) -> StateDict:
        """Copies of all parameters by name, the moments, the sums, and the random stream."""
        return {
            "params": {name: p.asnumpy().copy() for name, p in self.params.items()},
            "observations": {name: moments.state_dict() for name, moments in self._observations.items()},
            "sums": {str(collector): total.copy() for collector, total in self._sums.items()},
            "moments": self._moments.state_dict(),
            "rng": generator_state(self._rng),
        }

    def load_state_dict(self, state: StateDict) -> None:
        """Writes saved values in place, so that the compiled graph uses them."""
        for name, p in self.params.items():
            runtime.assign(p, state["params"][name])
        for name, moments in self._observations.items():
            moments.load_state_dict(state["observations"][name])
        self._sums = {int(collector): np.array(total) for collector, total in state["sums"].items()}
        self._moments.load_state_dict(state["moments"])
        restore_generator(self._rng, state["rng"])
