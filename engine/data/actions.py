"""Actions in the units of a policy and in the units of the environment."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from minding.engine.errors import ShapeError
from minding.engine.types import Array


class ActionAdapter:
    """Turns batches of a policy's actions into actions of the environment.

    On the policy's side, Discrete and MultiDiscrete actions count from 0, a MultiDiscrete of several axes is flattened
    to one axis, and the actions of a rescaled Box lie in [-1, 1]. Box actions are clipped to the environment's bounds.

    Args:
      space: the environment's action space, as `envs.describe_actions` describes it; with several agents, the space
        of each agent.
      agents: M, if a row holds the actions of M agents, ``(N, M, ...)``; None for a single agent.

    Attributes:
      shape: shape of one action of the environment.
      row_shape: shape of the actions of one environment: `shape`, or ``(M, *shape)`` with several agents.
      dtype: dtype of the environment's actions.
      continuous: whether the space is a Box. Only a Box has the attributes below.
      low, high: the environment's bounds, ``(*shape)``.
      rescaled: whether the policy acts in [-1, 1].
      scale, middle: the environment's action is ``action * scale + middle``, clipped to its bounds.
    """

    def __init__(self, space: Mapping[str, Any], agents: int | None = None) -> None:
        self.shape: tuple[int, ...] = tuple(space["shape"])
        self._lead = () if agents is None else (agents,)
        self.row_shape = (*self._lead, *self.shape)
        self.dtype: np.dtype[Any] = np.dtype(space["dtype"])
        self.continuous = space["kind"] == "box"
        self._policy_shape = self.shape
        if self.continuous:
            self.low, self.high = self._filled(space["low"]), self._filled(space["high"])
            self.rescaled = bool(space["rescaled"])
            half = (self.high.astype(np.float64) - self.low) / 2 if self.rescaled else np.ones(self.shape)
            middle = self.low + half if self.rescaled else np.zeros(self.shape)
            self.scale, self.middle = half.astype(self.dtype), middle.astype(self.dtype)
        else:
            self.start = np.asarray(space["start"], np.int64)
            self._shifted = bool(self.start.any())
            if self.shape:
                self._policy_shape = (math.prod(self.shape),)

    @property
    def policy_limits(self) -> tuple[Array, Array]:
        """Bounds of the policy's own Box actions."""
        return (np.full_like(self.low, -1), np.ones_like(self.high)) if self.rescaled else (self.low, self.high)

    def __call__(self, action: Array) -> Array:
        """Converts the policy's actions ``(N, ...)`` to the environment's: a new array ``(N, *row_shape)``.

        Raises:
          ShapeError: if the shape or the kind of number does not fit the space.
        """
        action = self._checked(action, self._policy_shape)
        if self.continuous:
            if self.rescaled:
                action = action * self.scale
                action += self.middle
            return self._clipped(action)
        counted = action.reshape(-1, *self.row_shape)
        return (counted + self.start if self._shifted else counted).astype(self.dtype)

    def adopt(self, action: Array) -> Array:
        """Returns actions in the environment's units as a new array in its dtype, clipped to its bounds.

        Args:
          action: ``(N, *row_shape)``.

        Raises:
          ShapeError: if the shape or the kind of number does not fit the space.
        """
        action = self._checked(action, self.shape)
        return self._clipped(action) if self.continuous else action.astype(self.dtype)

    def invert(self, action: Array) -> Array:
        """Returns the policy's actions for actions of the environment, ``(N, *shape)``: the inverse of a call.

        Clipping is not undone. If a Box allows only one value, the policy's action is 0.

        Raises:
          ShapeError: if the shape or the kind of number does not fit the space.
        """
        action = self._checked(action, self.shape)
        if not self.continuous:
            counted: Array = (action.astype(np.int64) - self.start).reshape(-1, *self._policy_shape)
            return counted
        if not self.rescaled:
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

    def _filled(self, bound: Any) -> Array:
        return np.full(self.shape, np.asarray(bound, self.dtype), self.dtype)
