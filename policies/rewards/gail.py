"""GAIL: generative adversarial imitation, a reward for steps that look like an expert's.

Ho and Ermon, 2016, https://arxiv.org/abs/1606.03476, algorithm 1: a discriminator learns to distinguish the expert's
recorded steps from the agent's, and its output determines the agent's reward.

    D(s, a) = sigmoid(f(s, a))
    L_f = -mean_expert[ log D ] - mean_agent[ log(1 - D) ] + c mean_between[ (|grad f| - 1)^2 ]
    r = -log(1 - D)   (positive)      r = log D   (negative)      r = log D - log(1 - D) = f   (logit)

The penalty (Gulrajani et al., 2017, https://arxiv.org/abs/1704.00028, eq. 3) is computed at points between features of
the expert's and the agent's steps; c = 0 leaves it out. Each gradient step draws equally many steps of both. Numbers in
observations are normalized by the mean and standard deviation of the expert's data, and clipped to [-5, 5].

A reward that is always positive favors long episodes, and a reward that is always negative favors short ones. So
`positive` alone may teach the task if ending an episode is bad, and `negative` if it is good. `logit` has both signs.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from minding.engine.buffers import DeviceTables
from minding.engine.buffers.dataset_rows import check_fields
from minding.engine.data.batch import Field, IndexedBatch, RowLayout
from minding.engine.data.dataset import Dataset
from minding.engine.data.observation import leaf_name, observation_leaves
from minding.engine.data.rollout import Rollout, named_leaves
from minding.engine.errors import CheckpointError, NonFiniteError
from minding.engine.process import runtime
from minding.engine.process.compiled import Compiled
from minding.engine.process.floats import flush_denormals
from minding.engine.process.runtime import ms, nn, ops
from minding.engine.seeding import SeedStreams, generator_state, restore_generator
from minding.engine.types import Array, LearnOutput, RewardEstimate, StateDict
from minding.policies.core.acting_network import narrow
from minding.policies.core.prepare_process import prepare
from minding.policies.learning.optim import Group
from minding.policies.learning.steps import Inputs, NetworkStep, Update
from minding.policies.networks.encoder import ObsEncoder
from minding.policies.networks.layers import MLP, ScalarLinear
from minding.policies.ops import primitives
from minding.policies.ops.primitives import after

_EPSILON = 1e-8
_BOUND = 5.0
"""Largest absolute value of observations, in standard deviations."""


class Discriminator(nn.Cell):
    """f(s, a): float32 (B,), above 0 for steps that look like the expert's.

    Args:
      spec: description of the environment's spaces.
      model: settings of the encoders.
      hidden: sizes of the hidden layers.
      rng: random generator for the initial weights.
    """

    def __init__(self, spec: Mapping[str, Any], model: Any, hidden: list[int], rng: np.random.Generator) -> None:
        super().__init__()
        action = spec["action"]
        self.kind, self.counts = action["kind"], [int(n) for n in action.get("nvec", [action.get("n", 0)])]
        self.action_size = sum(self.counts) if self.kind != "box" else math.prod(action["shape"])
        self.encoder = ObsEncoder(spec["observation"], model, rng, whitened=True)
        self.body = MLP(self.encoder.out_features + self.action_size, hidden, "tanh", math.sqrt(2), rng)
        self.head = ScalarLinear(self.body.out_features, 1.0, rng)
        self.on, self.off = ms.Tensor(np.float32(1.0)), ms.Tensor(np.float32(0.0))

    def features(self, obs, action):
        """The input of `logit`: the encoded observation joined with the action; discrete actions are one-hot."""
        return ops.Concat(-1)((self.encoder(obs), self.as_numbers(action)))

    def logit(self, features):
        """f, float32 (B,)."""
        return self.head(self.body(features))

    def as_numbers(self, action):
        if self.kind == "box":
            return ops.Reshape()(action, (-1, self.action_size))
        if self.kind == "discrete":
            return ops.OneHot()(ops.Reshape()(action, (-1,)), self.counts[0], self.on, self.off)
        parts: Any = ()
        for k in range(len(self.counts)):
            parts = (*parts, ops.OneHot()(action[:, k], self.counts[k], self.on, self.off))
        return ops.Concat(-1)(parts)

    def construct(self, obs, action):
        return self.logit(self.features(obs, action))


class GAILCell(NetworkStep):
    """Root cell: the discriminator and its optimizer. The first half of a minibatch are the expert's steps.

    Args:
      net: the discriminator.
      cfg: the section `policy.other.gail`.
    """

    metrics = ("gail_loss", "gail_expert", "gail_agent")

    def __init__(self, net: Discriminator, cfg: Any) -> None:
        super().__init__(net, {"net": Group(params=net.trainable_params(), rate=cfg.learning_rate)})
        self.penalty = float(cfg.gradient_penalty)
        self.slope = ms.grad(self.total)

    def total(self, features):
        """The sum of f over rows; its gradient has the gradient of f for each row."""
        return ops.ReduceSum()(self.net.logit(features))

    def loss(self, batch):
        features = self.net.features(batch["obs"], batch["action"])
        half = features.shape[0] // 2
        logit = self.net.logit(features)
        expert, agent = primitives.part(logit, 0, half), primitives.part(logit, half, half)
        # -log D = softplus(-f), -log(1 - D) = softplus(f)
        loss = primitives.mean(ops.Softplus()(-expert)) + primitives.mean(ops.Softplus()(agent))
        if self.penalty > 0.0:
            share = ops.ExpandDims()(batch["share"], -1)
            between = share * primitives.part(features, 0, half) + (1.0 - share) * primitives.part(features, half, half)
            slope = self.slope(ops.stop_gradient(between))
            norm = ops.Sqrt()(ops.ReduceSum()(ops.Square()(slope), -1) + _EPSILON)
            loss = loss + self.penalty * primitives.mean(ops.Square()(norm - 1.0))
        # The shares of the steps that are recognized.
        of_expert = primitives.mean(ops.Cast()(expert > 0.0, ms.float32))
        of_agent = primitives.mean(ops.Cast()(agent < 0.0, ms.float32))
        return loss, self.named((loss, of_expert, of_agent))

    def construct(self, batch):
        (_, metrics), grads = self.gradient(batch)
        norm = self.move(grads, batch, (metrics, grads))
        metrics["gail_loss"] = after(metrics["gail_loss"], norm)
        return metrics


class _DiscriminatorGraph(nn.Cell):
    """The discriminator as a separate graph."""

    def __init__(self, net: Discriminator) -> None:
        # Without a prefix, parameters keep the names that they have under the root.
        super().__init__(auto_prefix=False)
        self.net = net

    @ms.jit
    def construct(self, action, *obs):
        return self.net(obs, action)


class GAIL:
    """Estimates the rewards of rollouts from their similarity to an expert's data, and learns to distinguish both.

    Args:
      cfg: the compiled configuration; it uses ``policy.other.gail`` and, for the encoders, ``policy.model``.
      dataset: the expert's recorded steps.
    Raises:
      DataError: if the data do not have the observations or actions of the environment.
    """

    name = "gail"

    def __init__(self, cfg: Any, dataset: Dataset) -> None:
        prepare(cfg)
        self.cfg = cfg.policy.other.gail
        streams, spec = SeedStreams(cfg.seed), cfg.env.spec
        net = Discriminator(spec, cfg.policy.model, self.cfg.hidden, streams.generator("gail.init"))
        self.root = GAILCell(net, self.cfg)
        self.params = dict(self.root.parameters_and_names())
        self._update = Update(self.root, "gail.learn", ["obs", "action"])
        self._graph = Compiled(_DiscriminatorGraph(net), "gail.discriminator", expected=2)
        self._rng = streams.generator("gail.learn")
        self._digest = dataset.digest
        self._leaves = {leaf_name("obs", leaf): leaf for leaf in observation_leaves(spec["observation"])}
        fields = {name: leaf.field for name, leaf in self._leaves.items()}
        check_fields(dataset, fields)
        rows = dataset.rows([*fields, "action"], np.arange(len(dataset)))
        self._moments = {
            name: _moments_of(rows[name]) for name, leaf in self._leaves.items() if leaf.space["kind"] == "box"
        }
        self._expert = self._whitened(rows)
        floats = {name: dataclasses.replace(fields[name], dtype="float32") for name in self._moments}
        size = spec["action"].get("shape") or ([len(spec["action"]["nvec"])] if "nvec" in spec["action"] else [])
        dtype = "float32" if spec["action"]["kind"] == "box" else "int32"
        self._layout = RowLayout({**fields, **floats, "action": Field(tuple(size), dtype)})
        self._tables: DeviceTables | None = None

    @flush_denormals
    def estimate(self, rollout: Rollout) -> RewardEstimate:
        """Rewards of the steps of a rollout, by the discriminator before it learns from them; then it learns.

        Raises:
          NonFiniteError: if a reward is NaN or infinite.
        """
        count = math.prod(rollout.shape)
        steps = {**dict(named_leaves("obs", rollout.obs)), "action": rollout.action}
        agent = self._whitened({name: x.reshape(count, *x.shape[2:]) for name, x in steps.items()})
        rows = np.flatnonzero(rollout.transitions().reshape(-1))
        if not len(rows):
            return RewardEstimate(np.zeros(rollout.shape, np.float32), {})
        logit = self._logit(agent)[rows]
        if not np.isfinite(logit).all():
            raise NonFiniteError(
                "gail: a reward is NaN or infinite: look at the observations (`minding check-env`), or lower "
                "policy.other.gail.learning_rate"
            )
        metrics = self._learn(agent, rows).metrics
        # Rows in which an environment was reset have no reward.
        reward = np.zeros(count, np.float32)
        reward[rows] = _REWARDS[self.cfg.reward](logit)
        return RewardEstimate(reward.reshape(rollout.shape), {**metrics, "gail_reward": float(reward[rows].mean())})

    def _logit(self, rows: Mapping[str, Array]) -> Array:
        """f(s, a) of rows, float64 (n,)."""
        inputs = [runtime.to_device(narrow(rows[name])) for name in ("action", *self._leaves)]
        logit: Array = self._graph(*inputs).asnumpy().astype(np.float64)
        return logit

    def _learn(self, agent: Mapping[str, Array], rows: Array) -> LearnOutput:
        """Makes the gradient steps, on random rows of the expert and random `rows` of the agent."""
        experts, steps, half = len(self._expert["action"]), self.cfg.n_update, self.cfg.batch_size
        count = experts + len(agent["action"])
        if self._tables is None or self._tables.rows != count:
            self._tables = DeviceTables(self._layout, count)
            self._tables.write(0, self._layout.pack(self._expert))
        self._tables.write(experts, self._layout.pack(agent))
        drawn = self._rng.integers(0, experts, (steps, half)), experts + self._rng.choice(rows, (steps, half))
        index = np.concatenate(drawn, axis=1).astype(np.int32)
        inputs = Inputs(constants=dict(self.root.optim.rates(0.0)))
        if self.root.penalty > 0.0:
            inputs = dataclasses.replace(inputs, steps={"share": self._rng.random((steps, half), dtype=np.float32)})
        return self._update(IndexedBatch(self._layout, self._tables, index), inputs)

    def _whitened(self, rows: Mapping[str, Array]) -> dict[str, Array]:
        """The rows, with the numbers of observations normalized by the expert's moments, float32."""
        white = dict(rows)
        for name, (mean, scale) in self._moments.items():
            flat = rows[name].reshape(len(rows[name]), -1).astype(np.float32)
            white[name] = np.clip((flat - mean) * scale, -_BOUND, _BOUND).reshape(rows[name].shape)
        return white

    def state_dict(self) -> StateDict:
        """Copies of all parameters by name, the random stream, and the digest of the expert's data."""
        return {
            "params": {name: p.asnumpy().copy() for name, p in self.params.items()},
            "rng": generator_state(self._rng),
            "data": self._digest,
        }

    def load_state_dict(self, state: StateDict) -> None:
        """Writes saved values in place, so that the compiled graph uses them.

        Raises:
          CheckpointError: if the run learned from another expert's data.
        """
        if state["data"] != self._digest:
            raise CheckpointError(
                "gail: the run learned from other recorded data: give the folder that it started with"
            )
        for name, p in self.params.items():
            runtime.assign(p, state["params"][name])
        restore_generator(self._rng, state["rng"])


def _moments_of(rows: Array) -> tuple[Array, Array]:
    """Mean and inverse standard deviation of each number, float32; the inverse is 1 for numbers that never change."""
    flat = rows.reshape(len(rows), -1).astype(np.float64)
    deviation = flat.std(axis=0)
    scale = 1.0 / np.where(deviation > _EPSILON, deviation, 1.0)
    return flat.mean(axis=0).astype(np.float32), scale.astype(np.float32)


def _softplus(x: Array) -> Array:
    softplus: Array = np.logaddexp(0.0, x)
    return softplus


_REWARDS: Mapping[str, Callable[[Array], Array]] = {
    "positive": _softplus,
    "negative": lambda logit: -_softplus(-logit),
    "logit": lambda logit: logit,
}
"""Functions from f to the reward, by `policy.other.gail.reward`. In float64, none of them becomes infinite."""
