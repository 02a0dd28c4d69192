"""The base of reward models: rows from a rollout, the compiled learner, and the saved state.

A model gives each step of a rollout a reward before it learns from the rollout. `novelty` has the base of models that
learn from what the agent sees, `recorded` the base of models that also have recorded data.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from minding.engine.buffers import DeviceTables
from minding.engine.data.actions import action_field
from minding.engine.data.batch import Field, RowLayout
from minding.engine.data.observation import leaf_name, observation_leaves
from minding.engine.data.rollout import Rollout, named_leaves
from minding.engine.process import runtime
from minding.engine.process.floats import flush_denormals
from minding.engine.seeding import SeedStreams, generator_state, restore_generator
from minding.engine.types import Array, RewardEstimate, StateDict
from minding.policies.core.prepare_process import prepare
from minding.policies.learning.update import Update

BOUND = 5.0
"""Largest absolute value of observations, in standard deviations."""


class LearnedReward:
    """Base of reward models. A subclass defines `name`, `fields`, `make_root` and `reward`."""

    name: ClassVar[str]
    fields: ClassVar[tuple[str, ...]]

    def __init__(self, cfg: Any) -> None:
        prepare(cfg)
        self.cfg = cfg.policy.other[self.name]
        self.spec, streams = cfg.env.spec, SeedStreams(cfg.seed)
        self.root = self.make_root(cfg, streams.generator(f"{self.name}.init"))
        self.params = dict(self.root.parameters_and_names())
        self._update = Update(self.root, f"{self.name}.learn", self.fields)
        self._rng = streams.generator(f"{self.name}.learn")
        self._layout = RowLayout(row_fields(self.spec, self.fields))
        self._tables: DeviceTables | None = None

    def make_root(self, cfg: Any, rng: np.random.Generator) -> Any:
        """The root cell, given the compiled configuration and the random stream of initial weights."""
        raise NotImplementedError

    def reward(self, data: dict[str, Array], rows: Array, rollout: Rollout) -> tuple[Array, Mapping[str, float]]:
        """Rewards (T * N,) of all rows, of which only some count, before learning, and the metrics of learning; `data`:
        the fields of all rows, ``(T * N, ...)`` by name, which may be changed."""
        raise NotImplementedError

    @flush_denormals
    def estimate(self, rollout: Rollout) -> RewardEstimate:
        """Rewards of the steps of a rollout, from the model before it learns from them; then it learns."""
        rows = np.flatnonzero(rollout.transitions().reshape(-1))
        if not len(rows):
            return RewardEstimate(np.zeros(rollout.shape, np.float32), {})
        reward, metrics = self.reward(_flat(rollout, self.fields), rows, rollout)
        reward = reward.astype(np.float32)
        mean = float(reward[rows].mean())
        return RewardEstimate(reward.reshape(rollout.shape), {**metrics, f"{self.name}_reward": mean})

    def state_dict(self) -> StateDict:
        """Copies of all parameters by name, and the random stream."""
        params = {name: p.asnumpy().copy() for name, p in self.params.items()}
        return {"params": params, "rng": generator_state(self._rng)}

    def load_state_dict(self, state: StateDict) -> None:
        """Writes saved values in place, so that the compiled graph uses them."""
        for name, p in self.params.items():
            runtime.assign(p, state["params"][name])
        restore_generator(self._rng, state["rng"])


def row_fields(spec: Mapping[str, Any], names: Sequence[str]) -> dict[str, Field]:
    """The row fields of these names; observations that are normalized are float32."""
    fields: dict[str, Field] = {}
    for name in names:
        if name in ("obs", "next_obs"):
            for leaf in observation_leaves(spec["observation"]):
                field = leaf.field
                if leaf.space["kind"] == "box":
                    field = dataclasses.replace(field, dtype="float32")
                fields[leaf_name(name, leaf)] = field
        else:
            fields[name] = action_field(spec["action"]) if name == "action" else Field()
    return fields


def _flat(rollout: Rollout, names: Sequence[str]) -> dict[str, Array]:
    """Fields of all rows of a rollout, ``(T * N, ...)`` by name."""
    given: dict[str, Array] = {}
    for name in names:
        if name in ("obs", "next_obs"):
            given.update(named_leaves(name, rollout.obs if name == "obs" else rollout.next_obs()))
        else:
            given[name] = getattr(rollout, name)
    count = math.prod(rollout.shape)
    return {name: values.reshape(count, *values.shape[2:]) for name, values in given.items()}
