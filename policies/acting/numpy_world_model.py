"""A world model and its actor in NumPy, see `acting.numpy_layers` and `networks.world_model`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from minding.engine.types import Array
from minding.policies.acting.numpy_layers import MLP, Encoder, Head, Linear, Outputs
from minding.policies.acting.numpy_recurrent import GRU


class SymlogEncoder:
    """Observation leaves to features; see `networks.world_model.SymlogEncoder`.

    Args:
      squeezed: for each leaf, whether `symlog` is applied to it.
      encoder: encoder of the leaves.
      torso: hidden layers after the encoder.
    """

    def __init__(self, squeezed: Sequence[bool], encoder: Encoder, torso: MLP) -> None:
        self.squeezed, self.encoder, self.torso = tuple(squeezed), encoder, torso

    def __call__(self, leaves: Sequence[Array]) -> Array:
        return self.torso(self.encoder([symlog(x) if s else x for x, s in zip(leaves, self.squeezed)]))


class Latents:
    """Logits ``(B, S C)`` to one-hot latents ``(B, S C)``: the likeliest, or drawn by uniform numbers; see
    `networks.world_model.Latents`."""

    def __init__(self, choices: int, classes: int, uniform: float) -> None:
        self.choices, self.classes, self.uniform = choices, classes, np.float32(uniform)
        self.table = np.eye(classes, dtype=np.float32)

    def __call__(self, logits: Array, number: Array | None) -> Array:
        rows = logits.reshape(-1, self.classes)
        if number is None:
            place = rows.argmax(axis=-1)
        else:
            exp = np.exp(rows - rows.max(axis=-1, keepdims=True))
            exp *= (1.0 - self.uniform) / exp.sum(axis=-1, keepdims=True)
            exp += self.uniform / np.float32(self.classes)
            before = np.cumsum(exp, axis=-1) - exp
            place = np.maximum((before <= number.reshape(-1, 1)).sum(axis=-1) - 1, 0)
        return self.table[place].reshape(len(logits), -1)


class MixedCategoricalHead:
    """Log-probabilities ``(B, n)`` of a distribution that is mixed with a share `uniform` of the uniform one."""

    def __init__(self, linear: Linear, uniform: float) -> None:
        self.linear, self.uniform = linear, np.float32(uniform)

    def __call__(self, x: Array) -> Outputs:
        logits = self.linear(x)
        exp = np.exp(logits - logits.max(axis=-1, keepdims=True))
        share = (1.0 - self.uniform) / exp.sum(axis=-1, keepdims=True)
        return (np.log(exp * share + self.uniform / np.float32(logits.shape[-1])),)

    def action_rows(self, params: Outputs) -> Array:
        table = np.eye(params[0].shape[-1], dtype=np.float32)
        return table[params[0].argmax(axis=-1)]


class BoundedNormalHead:
    """Mean in [-1, 1] and standard deviation within `limits`, each ``(B, A)``."""

    def __init__(self, mean: Linear, deviation: Linear, limits: tuple[float, float], shift: float) -> None:
        self.mean, self.deviation, self.limits, self.shift = mean, deviation, limits, np.float32(shift)

    def __call__(self, x: Array) -> Outputs:
        low, high = self.limits
        share = 0.5 + 0.5 * np.tanh(0.5 * (self.deviation(x) + self.shift))
        return np.tanh(self.mean(x)), np.float32(low) + np.float32(high - low) * share

    def action_rows(self, params: Outputs) -> Array:
        return params[0]


class WorldActor:
    """Observation leaves, optional uniform numbers and memory rows -> (parameters of the head's distribution, new
    memory rows); see `networks.world_model.WorldActor`.

    Args:
      seen: encoder of the observation.
      transition: (layer for the last latent and action, GRU).
      posterior: (hidden layers, logits, latents, whether it sees the state of the GRU).
      policy: (hidden layers, head).
    """

    def __init__(
        self,
        seen: SymlogEncoder,
        transition: tuple[MLP, GRU],
        posterior: tuple[MLP, Linear, Latents, bool],
        policy: tuple[MLP, MixedCategoricalHead | BoundedNormalHead],
    ) -> None:
        self.seen, self.transition, self.posterior, self.policy = seen, transition, posterior, policy
        self.leaves = len(seen.squeezed)

    def __call__(self, leaves: Sequence[Array]) -> Outputs:
        (mix, memory), (hidden, logits, latents, is_full), (torso, head) = self.transition, self.posterior, self.policy
        rows = leaves[-1]
        number = leaves[self.leaves] if len(leaves) > self.leaves + 1 else None
        h, _ = memory(mix(rows[:, memory.size :]), rows[:, : memory.size])
        seen = self.seen(leaves[: self.leaves])
        z = latents(logits(hidden(np.concatenate([seen, h], axis=1) if is_full else seen)), number)
        params = head(torso(np.concatenate([h, z], axis=1)))
        return (*params, np.concatenate([h, z, head.action_rows(params)], axis=1))


def symlog(x: Array) -> Array:
    """sign(x) log(1 + |x|), float32."""
    x = x.astype(np.float32, copy=False)
    squeezed: Array = np.copysign(np.log1p(np.abs(x)), x)
    return squeezed


__all__ = ["BoundedNormalHead", "Head", "Latents", "MixedCategoricalHead", "SymlogEncoder", "WorldActor", "symlog"]
