"""Actions in the units of a policy and in the units of the environment."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from minding.engine.data.action_trees import COMPOSITE
from minding.engine.data.batch import Field
from minding.engine.data.observation import random_legal
from minding.engine.errors import ShapeError
from minding.engine.types import Array


def action_field(space: Mapping[str, Any]) -> Field:
    """The row field of actions in a policy's units, from the description of its action space."""
    if space["kind"] == "discrete":
        return Field((), "int32")
    if space["kind"] == "multi_discrete":
        return Field((len(space["nvec"]),), "int32")
    return Field(tuple(space["shape"]))


def random_actions(
    space: Mapping[str, Any], lead: tuple[int, ...], rng: np.random.Generator, mask: Array | None = None
) -> Array:
    """Draws actions ``(*lead, ...)`` in the policy's units uniformly; given a mask ``(*lead, A)``, only legal ones."""
    counts = space.get("nvec", [space.get("n")])
    if space["kind"] == "box":
        return rng.uniform(-1.0, 1.0, size=(*lead, *space["shape"])).astype(np.float32)
    if space["kind"] == COMPOSITE:
        mask = np.ones((*lead, sum(counts)), bool) if mask is None else mask
        chosen = random_legal(mask, counts, rng).reshape(*lead, -1)
        return np.concatenate([chosen, rng.uniform(-1.0, 1.0, size=(*lead, len(space["low"])))], -1, dtype=np.float32)
    if mask is None:
        size = lead if space["kind"] == "discrete" else (*lead, len(counts))
        return rng.integers(0, counts[0] if space["kind"] == "discrete" else counts, size=size)
    action = random_legal(mask, counts, rng)
    return action.reshape(*lead, -1) if space["kind"] == "multi_discrete" else action


class ActionAdapter:
    """Turns batches of a policy's actions into actions of the environment.

    On the policy's side, Discrete and MultiDiscrete actions count from 0, a MultiDiscrete of several axes is flattened
    to one axis, and the actions of a rescaled Box lie in [-1, 1]. Box actions are clipped to the environment's bounds.
    Actions of Tuple and Dict spaces are rows on both sides, see `engine.data.action_trees`; in a composite row, the
    bounds of a choice are its first and last value.

    Args:
      agents: M, if a row holds the actions of M agents, ``(N, M, ...)``; None for a single agent.

    Attributes:
      row_shape: shape of the actions of one environment: `shape`, or ``(M, *shape)`` with several agents.
      low, high: the environment's bounds, ``(*shape)``.
    """

    def __init__(self, space: Mapping[str, Any], agents: int | None = None) -> None:
        self.shape: tuple[int, ...] = tuple(space["shape"])
        self._lead = () if agents is None else (agents,)
        self.row_shape = (*self._lead, *self.shape)
        self.dtype: np.dtype[Any] = np.dtype(space["dtype"])
        self.continuous = space["kind"] in ("box", COMPOSITE)
        self._policy_shape = self.shape
        if self.continuous:
            self._take_bounds(space)
        else:
            self.start = np.asarray(space["start"], np.int64)
            self._shifted = bool(self.start.any())
            if self.shape:
                self._policy_shape = (math.prod(self.shape),)

    def _take_bounds(self, space: Mapping[str, Any]) -> None:
        nvec, start = (np.asarray(space.get(key, ()), self.dtype) for key in ("nvec", "start"))
        self.choices, self.rescaled = len(nvec), bool(space["rescaled"])
        shape = (self.shape[0] - self.choices,) if self.choices else self.shape
        low, high = (np.full(shape, np.asarray(space[end], self.dtype), self.dtype) for end in ("low", "high"))
        half = (high.astype(np.float64) - low) / 2 if self.rescaled else np.ones(shape)
        middle = low + half if self.rescaled else np.zeros(shape)
        own = (np.full_like(low, -1), np.ones_like(high)) if self.rescaled else (low, high)

        def joined(of_choices: Array, of_numbers: Array) -> Array:
            of_numbers = of_numbers.astype(self.dtype)
            return np.concatenate([of_choices, of_numbers]) if self.choices else of_numbers

        self.low, self.high = joined(start, low), joined(start + nvec - 1, high)
        self.scale, self.middle = joined(np.ones_like(nvec), half), joined(start, middle)
        self.policy_limits = joined(np.zeros_like(nvec), own[0]), joined(nvec - 1, own[1])

    def __call__(self, action: Array) -> Array:
        """Converts the policy's actions ``(N, ...)`` to the environment's: a new array ``(N, *row_shape)``."""
        action = self._checked(action, self._policy_shape)
        if self.continuous:
            if self.rescaled or self.choices:
                action = action * self.scale
                action += self.middle
            return self._clipped(action)
        counted = action.reshape(-1, *self.row_shape)
        return (counted + self.start if self._shifted else counted).astype(self.dtype)

    def adopt(self, action: Array) -> Array:
        """Returns actions ``(N, *row_shape)`` in the environment's units as a new array in its dtype, clipped to its
        bounds."""
        action = self._checked(action, self.shape)
        return self._clipped(action) if self.continuous else action.astype(self.dtype)

    def invert(self, action: Array) -> Array:
        """Returns the policy's actions for actions of the environment, ``(N, *shape)``: the inverse of a call, but for
        clipping. If a Box allows only one value, the policy's action is 0."""
        action = self._checked(action, self.shape)
        if not self.continuous:
            counted: Array = (action.astype(np.int64) - self.start).reshape(-1, *self._policy_shape)
            return counted
        if not (self.rescaled or self.choices):
            return action.astype(np.float32)
        scale = np.where(self.scale == 0, 1, self.scale)
        own: Array = ((action - self.middle) / scale).astype(np.float32)
        return own

    def _checked(self, action: Array, shape: tuple[int, ...]) -> Array:
        action = np.asarray(action)
        shape = (*self._lead, *shape)
        kinds = "f" if self.continuous else "iu"
        if action.shape[1:] != shape or not action.ndim or action.dtype.kind not in kinds:
            kind = "float" if self.continuous else "integer"
            sizes = "".join(f", {size}" for size in shape) or ","
            rows = "one row per environment" if not self._lead else f"of {self._lead[0]} agents in each environment"
            raise ShapeError(f"action: expected {kind} (N{sizes}), {rows}, got {action.dtype} {action.shape}")
        return action

    def _clipped(self, action: Array) -> Array:
        # Clipped after scaling, which may exceed the bounds by a rounding error.
        clipped = np.minimum(np.maximum(action, self.low), self.high)
        return clipped.astype(self.dtype, copy=False)
