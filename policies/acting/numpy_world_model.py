"""The acting part of a world model in NumPy, see `networks.world_model`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from minding.engine.types import Array
from minding.policies.acting.numpy_layers import GRU, MLP, ActionMask, Encoder, Linear, Outputs


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


class MixedChoicesHead:
    """Joined log-probabilities ``(B, sum nvec)`` of several `MixedCategoricalHead`; `stops`: the end of each but the
    last."""

    def __init__(self, parts: Sequence[MixedCategoricalHead], stops: Sequence[int]) -> None:
        self.parts, self.stops = list(parts), list(stops)

    def __call__(self, x: Array) -> Outputs:
        return (np.concatenate([part(x)[0] for part in self.parts], axis=1),)

    def action_rows(self, params: Outputs) -> Array:
        joined = zip(self.parts, np.split(params[0], self.stops, axis=1))
        return np.concatenate([part.action_rows((own,)) for part, own in joined], axis=1)


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
    memory rows); see `networks.world_model.WorldActor`."""

    def __init__(
        self,
        is_full: bool,
        seen: SymlogEncoder,
        mix: MLP,
        memory: GRU,
        hidden: MLP,
        logits: Linear,
        latents: Latents,
        policy: MLP,
        head: MixedCategoricalHead | MixedChoicesHead | BoundedNormalHead,
        mask: ActionMask | None,
    ) -> None:
        self.is_full, self.seen, self.mix, self.memory = is_full, seen, mix, memory
        self.hidden, self.logits, self.latents = hidden, logits, latents
        self.policy, self.head, self.mask = policy, head, mask
        self.leaves = len(seen.squeezed)

    def __call__(self, leaves: Sequence[Array]) -> Outputs:
        rows, size = leaves[-1], self.memory.size
        number = leaves[self.leaves] if len(leaves) > self.leaves + 1 else None
        h, _ = self.memory(self.mix(rows[:, size:]), rows[:, :size])
        seen = self.seen(leaves[: self.leaves])
        hidden = self.hidden(np.concatenate([seen, h], axis=1) if self.is_full else seen)
        z = self.latents(self.logits(hidden), number)
        params = self.head(self.policy(np.concatenate([h, z], axis=1)))
        if self.mask is not None:
            params = (self.mask(params[0], leaves),)
        return (*params, np.concatenate([h, z, self.head.action_rows(params)], axis=1))


def symlog(x: Array) -> Array:
    """sign(x) log(1 + |x|), float32."""
    x = x.astype(np.float32, copy=False)
    squeezed: Array = np.copysign(np.log1p(np.abs(x)), x)
    return squeezed


class TwoHotNumber:
    """Features ``(B, F)`` to numbers ``(B,)``: symexp of the mean of a distribution over `bins` (in symlog)."""

    def __init__(self, torso: MLP, logits: Linear, bins: Array) -> None:
        self.torso, self.logits, self.bins = torso, logits, bins

    def __call__(self, x: Array) -> Array:
        logits = self.logits(self.torso(x))
        exp = np.exp(logits - logits.max(axis=-1, keepdims=True))
        return symexp((exp / exp.sum(axis=-1, keepdims=True)) @ self.bins)


def symexp(x: Array) -> Array:
    """sign(x) (exp(|x|) - 1), the inverse of `numpy_world_model.symlog`."""
    expanded: Array = np.copysign(np.expm1(np.abs(x)), x)
    return expanded
