"""Parts of networks that NumPy computes in another way than MindSpore, see `compositions`."""

from collections.abc import Sequence

import numpy as np

from minding.engine.types import Array
from minding.policies.acting import arrays
from minding.policies.acting.compositions import Actor
from minding.policies.acting.numpy_layers import MLP, Encoder, Layer, Linear, Outputs


class SupportMean:
    """The mean of categorical distributions: logits ``(B, A, N)`` over the support ``(N,)`` -> ``(B, A)``."""

    def __init__(self, support: Array) -> None:
        self.support = support

    def __call__(self, atoms: Array) -> Array:
        weights = np.exp(atoms - atoms.max(axis=-1, keepdims=True))
        mean: Array = (weights @ self.support) / weights.sum(axis=-1)
        return mean


class ChoiceValues:
    """Parameters ``(B, A)`` and leaves -> values of the choices ``(B, n)``.

    Args:
      owned: float32 ``(n, 1, A)``, 1 where a parameter belongs to a choice, if a value depends on no others; else None.
    """

    def __init__(self, encoder: Encoder, torso: MLP, values: Linear, owned: Array | None) -> None:
        self.encoder, self.torso, self.values, self.owned = encoder, torso, values, owned

    def __call__(self, numbers: Array, leaves: Sequence[Array]) -> Array:
        features = self.encoder(leaves)
        if self.owned is None:
            return self.values(self.torso(np.concatenate([features, numbers], axis=-1)))
        passes = [self.torso(np.concatenate([features, numbers * own], axis=-1)) for own in self.owned]
        return np.stack([self.values(x)[:, k] for k, x in enumerate(passes)], axis=1)


class AgentActors:
    """The leaves, including the agent numbers -> the outputs of the agents' networks, ``(B, A)`` each; each row is
    computed by the network of its agent."""

    def __init__(self, nets: Sequence[Actor], place: int) -> None:
        self.nets, self.place = list(nets), place

    def __call__(self, leaves: Sequence[Array]) -> Outputs:
        own = list(leaves)
        agent = own.pop(self.place).reshape(-1)
        made: Outputs = ()
        for m, net in enumerate(self.nets):
            rows = np.flatnonzero(agent == m)
            if len(rows):
                outputs = net([leaf[rows] for leaf in own])
                made = made or tuple(np.empty((len(agent), x.shape[-1]), x.dtype) for x in outputs)
                for whole, part in zip(made, outputs, strict=True):
                    whole[rows] = part
        return made


class Latents:
    """Logits ``(B, S C)`` to one-hot latents ``(B, S C)``: the likeliest, or drawn by uniform numbers; see
    `networks.world_model.Latents`."""

    def __init__(self, classes: int, uniform: float) -> None:
        self.uniform = np.float32(uniform)
        self.table = np.eye(classes, dtype=np.float32)

    def __call__(self, logits: Array, number: Array | None) -> Array:
        rows = logits.reshape(-1, len(self.table))
        if number is None:
            place = rows.argmax(axis=-1)
        else:
            exp = np.exp(rows - rows.max(axis=-1, keepdims=True))
            exp *= (1.0 - self.uniform) / exp.sum(axis=-1, keepdims=True)
            exp += self.uniform / np.float32(len(self.table))
            before = np.cumsum(exp, axis=-1) - exp
            place = np.maximum((before <= number.reshape(-1, 1)).sum(axis=-1) - 1, 0)
        return self.table[place].reshape(len(logits), -1)


class MixedCategoricalHead:
    """Log-probabilities ``(B, n)`` of a distribution that is mixed with a share `uniform` of the uniform one."""

    def __init__(self, linear: Layer, table: Array, uniform: float) -> None:
        self.linear, self.table, self.uniform = linear, table, np.float32(uniform)

    def __call__(self, x: Array) -> Outputs:
        logits = self.linear(x)
        exp = np.exp(logits - logits.max(axis=-1, keepdims=True))
        share = (1.0 - self.uniform) / exp.sum(axis=-1, keepdims=True)
        return (np.log(exp * share + self.uniform / np.float32(logits.shape[-1])),)

    def decided(self, params: Outputs) -> Array:
        return arrays.take(self.table, arrays.argmax(params[0]))
