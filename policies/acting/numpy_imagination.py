"""Imagination of a world model in NumPy, see `networks.predictions`."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from minding.engine.types import Array
from minding.policies.acting.numpy_layers import MLP, Linear
from minding.policies.acting.numpy_recurrent import GRU
from minding.policies.acting.numpy_world_model import Latents


class Imagined(NamedTuple):
    """The predictions of a world model for B environments at one step."""

    obs: list[Array]
    """Leaves ``(B, ...)`` in the units of the observation; choices as integers."""
    reward: Array
    """The reward of the step that led here, ``(B,)``."""
    going: Array
    """The probability that the episode continues, ``(B,)``."""


class TwoHotNumber:
    """Features ``(B, F)`` to numbers ``(B,)``: symexp of the mean of a distribution over `bins` (in symlog)."""

    def __init__(self, torso: MLP, logits: Linear, bins: Array) -> None:
        self.torso, self.logits, self.bins = torso, logits, bins

    def __call__(self, x: Array) -> Array:
        logits = self.logits(self.torso(x))
        exp = np.exp(logits - logits.max(axis=-1, keepdims=True))
        return symexp((exp / exp.sum(axis=-1, keepdims=True)) @ self.bins)


class Continuation:
    """Features ``(B, F)`` to the probability that the episode continues, ``(B,)``."""

    def __init__(self, torso: MLP, logit: Linear) -> None:
        self.torso, self.logit = torso, logit

    def __call__(self, x: Array) -> Array:
        going: Array = 0.5 + 0.5 * np.tanh(0.5 * self.logit(self.torso(x)).reshape(-1))
        return going


class PredictedLeaf(NamedTuple):
    """One leaf of an observation within a row of predicted numbers.

    Attributes:
      shape: shape of the leaf.
      scale: factor for predicted pixels; None for vectors, whose symlog is predicted, and for choices.
      choices: number of classes of each choice; empty for numbers and pixels.
    """

    shape: tuple[int, ...]
    scale: float | None
    choices: tuple[int, ...]

    @property
    def size(self) -> int:
        """Number of predicted values."""
        return sum(self.choices) or math.prod(self.shape)

    def of(self, row: Array) -> Array:
        """Converts predicted numbers ``(B, size)`` to the leaf ``(B, ...)``."""
        if self.choices:
            parts = np.split(row, np.cumsum(self.choices)[:-1], axis=1)
            return np.stack([part.argmax(axis=1) for part in parts], axis=1).reshape(-1, *self.shape)
        numbers = symexp(row) if self.scale is None else row * np.float32(self.scale)
        return numbers.reshape(-1, *self.shape)


class Decoder:
    """Features ``(B, F)`` to the leaves of an observation, in the observation's units."""

    def __init__(self, torso: MLP, linear: Linear, leaves: Sequence[PredictedLeaf]) -> None:
        self.torso, self.linear, self.leaves = torso, linear, tuple(leaves)

    def __call__(self, x: Array) -> list[Array]:
        row = self.linear(self.torso(x))
        parts = np.split(row, np.cumsum([leaf.size for leaf in self.leaves])[:-1], axis=1)
        return [leaf.of(part) for leaf, part in zip(self.leaves, parts)]


class Imagination:
    """Predicts the results of given actions from states (h, z), ``(B, D + S C)``, with the likeliest latents.

    Args:
      transition: (layer for the last latent and action, GRU).
      prior: (hidden layers, logits, latents).
      predictions: (observation, reward, continuation).
    """

    def __init__(
        self,
        transition: tuple[MLP, GRU],
        prior: tuple[MLP, Linear, Latents],
        predictions: tuple[Decoder, TwoHotNumber, Continuation],
    ) -> None:
        self.transition, self.prior, self.predictions = transition, prior, predictions

    @property
    def state_size(self) -> int:
        """Number of values in a state, D + S C."""
        latents = self.prior[2]
        return self.transition[1].size + latents.choices * latents.classes

    def __call__(self, states: Array, actions: Array) -> Iterator[Imagined]:
        """Yields the predictions after each action.

        Args:
          states: float32 ``(B, D + S C)``, the states in which the first actions are taken.
          actions: float32 ``(H, B, A)``, with choices as one-hot.
        """
        (mix, memory), (hidden, logits, latents) = self.transition, self.prior
        observation, reward, continuation = self.predictions
        for action in actions:
            h, z = states[:, : memory.size], states[:, memory.size :]
            h, _ = memory(mix(np.concatenate([z, action], axis=1)), h)
            states = np.concatenate([h, latents(logits(hidden(h)), None)], axis=1)
            yield Imagined(observation(states), reward(states), continuation(states))


def symexp(x: Array) -> Array:
    """sign(x) (exp(|x|) - 1), the inverse of `numpy_world_model.symlog`."""
    expanded: Array = np.copysign(np.expm1(np.abs(x)), x)
    return expanded
