"""The layers and networks of acting in NumPy, without MindSpore.

The cells of `policies.networks` create these objects (``cell.host()``) over zero-copy views of their live parameters,
so that acting follows training. All of them can be pickled. Observation leaves arrive as environments return them,
``(B, ...)`` each; all other arrays are float32.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import zip_longest
from typing import Any

import numpy as np

from minding.engine.types import Array
from minding.policies.acting.numpy_norm import LayerNorm, normalize_rows
from minding.policies.acting.numpy_pair import MLPPair
from minding.policies.acting.numpy_recurrent import Memory

Outputs = tuple[Array, ...]
Layer = Callable[[Array], Array]
Head = Callable[[Array], Outputs]
Encoder = Callable[[Sequence[Array]], Array]
"""The leaves of an observation, ``(B, ...)`` each, to their features ``(B, F)``."""
ILLEGAL = -1e30
"""Score of an illegal action. It makes the probability 0; its product with 0 and differences from it are not NaN."""
Activation = Callable[[Array, Array], Array]
"""(input, array that receives the output) -> output."""


def _relu(x: Array, out: Array) -> Array:
    return np.maximum(x, 0.0, out)


def _sigmoid(x: Array) -> Array:
    # Below -88, exp(-x) overflows float32. At -80 the sigmoid is 2e-35, which is 0 for an activation.
    return 1.0 / (1.0 + np.exp(-np.maximum(x, -80.0)))


def _silu(x: Array, out: Array) -> Array:
    return np.multiply(x, _sigmoid(x), out)


def _gelu(x: Array, out: Array) -> Array:
    return np.multiply(x, _sigmoid(1.5957691216057308 * (x + 0.044715 * x * x * x)), out)


def _elu(x: Array, out: Array) -> Array:
    return np.add(np.maximum(x, 0.0), np.expm1(np.minimum(x, 0.0)), out)


ACTIVATIONS: dict[str, Activation] = {"relu": _relu, "tanh": np.tanh, "silu": _silu, "gelu": _gelu, "elu": _elu}


class Linear:
    """y = x W^T + b.

    Args:
      weight: ``(out, in)``.
      bias: ``(out,)``.
    """

    def __init__(self, weight: Array, bias: Array) -> None:
        self.transposed, self.bias = weight.T, bias

    def __call__(self, x: Array) -> Array:
        y: Array = x @ self.transposed
        y += self.bias
        return y


class MLP:
    """Linear layers with an activation after each.

    Args:
      layers: the linear layers.
      activation: name of the activation, one of `ACTIVATIONS`.
      norms: normalization of each layer's output before the activation; empty without normalization.
    """

    def __init__(self, layers: Sequence[Linear], activation: str, norms: Sequence[LayerNorm] = ()) -> None:
        # Arrays instead of layer objects save one Python call per layer.
        self.layers = [(layer.transposed, layer.bias) for layer in layers]
        self.norms = [(norm.weight, norm.bias) for norm in norms]
        self.activation = ACTIVATIONS[activation]

    def __call__(self, x: Array) -> Array:
        activation = self.activation
        for (transposed, bias), norm in zip_longest(self.layers, self.norms):
            x = x @ transposed
            x += bias
            if norm is not None:
                normalize_rows(x, *norm)
            activation(x, x)
        return x


class NoisyLinear:
    """y = mean(x) + f (deviation(e x)), where (e, f) are the layer's part of the noise; see `networks.noisy`.

    Args:
      mean, deviation: linear layers of the means and of the standard deviations.
      start: index of the layer's first number in the noise.
    """

    def __init__(self, mean: Linear, deviation: Linear, start: int) -> None:
        self.mean, self.deviation = mean, deviation
        inputs, outputs = mean.transposed.shape
        self.inputs = slice(start, start + inputs)
        self.outputs = slice(start + inputs, start + inputs + outputs)

    def __call__(self, x: Array, noise: Array | None = None) -> Array:
        y = self.mean(x)
        if noise is not None:
            y += noise[:, self.outputs] * self.deviation(x * noise[:, self.inputs])
        return y


class NoisyMLP:
    """Noisy linear layers with an activation after each; for the arguments see `MLP`."""

    def __init__(self, layers: Sequence[NoisyLinear], activation: str, norms: Sequence[LayerNorm] = ()) -> None:
        self.layers, self.norms, self.activation = list(layers), list(norms), ACTIVATIONS[activation]

    def __call__(self, x: Array, noise: Array | None = None) -> Array:
        for layer, norm in zip_longest(self.layers, self.norms):
            x = layer(x, noise)
            if norm is not None:
                norm(x)
            self.activation(x, x)
        return x


class ActionMask:
    """Logits or values ``(B, A)``, replaced by `ILLEGAL` where the mask, leaf number `place`, forbids the action."""

    def __init__(self, place: int) -> None:
        self.place = place

    def __call__(self, scores: Array, leaves: Sequence[Array]) -> Array:
        return np.where(leaves[self.place].astype(bool, copy=False), scores, np.float32(ILLEGAL))


class LogitsHead:
    """Logits ``(B, n)`` of one choice, or the joined logits of several choices."""

    def __init__(self, linear: Linear) -> None:
        self.linear = linear

    def __call__(self, x: Array) -> Outputs:
        return (self.linear(x),)


class GaussianHead:
    """Mean ``(B, A)`` and log standard deviation ``(A,)``."""

    def __init__(self, mean: Linear, log_std: Array) -> None:
        self.mean, self.log_std = mean, log_std

    def __call__(self, x: Array) -> Outputs:
        return self.mean(x), self.log_std


class SquashedGaussianHead:
    """Mean and log standard deviation, each ``(B, A)``; the latter is clipped to `limits`."""

    def __init__(self, mean: Linear, log_std: Linear, limits: tuple[float, float]) -> None:
        self.mean, self.log_std, self.limits = mean, log_std, limits

    def __call__(self, x: Array) -> Outputs:
        return self.mean(x), np.clip(self.log_std(x), *self.limits)


class DeterministicHead:
    """Actions ``(B, A)`` in [-1, 1], the tanh of a linear layer."""

    def __init__(self, layer: MLP) -> None:
        self.layer = layer

    def __call__(self, x: Array) -> Outputs:
        return (self.layer(x),)


class ActorCritic:
    """Observation leaves -> (value ``(B,)``, distribution parameters...); with memory see `networks.actor_critic`.

    Args:
      encoder: encoder of the observation.
      memory: memory after the encoder, or None.
      heads: (critic, value, actor, head).
      mask: mask of the logits if the observation has a mask, or None.
    """

    def __init__(
        self,
        encoder: Encoder,
        memory: Memory | None,
        heads: tuple[MLP, Linear, MLP, Head],
        mask: ActionMask | None = None,
    ) -> None:
        self.encoder, self.memory, self.mask = encoder, memory, mask
        critic, self.value, actor, self.head = heads
        self.torsos = MLPPair(critic, actor)

    def __call__(self, leaves: Sequence[Array]) -> Outputs:
        if self.memory is None:
            return self.outputs(self.encoder(leaves), leaves)
        features, rows = self.memory(self.encoder(leaves[:-1]), leaves[-1])
        return *self.outputs(features, leaves), rows

    def outputs(self, features: Array, leaves: Sequence[Array]) -> Outputs:
        critic, actor = self.torsos(features)
        params = self.head(actor)
        if self.mask is not None:
            params = (self.mask(params[0], leaves),)
        return self.value(critic)[:, 0], *params


class QNetwork:
    """Observation leaves -> (action values ``(B, n)``,); with memory see `networks.actor_critic`.

    Args:
      encoder: encoder of the observation.
      memory: memory after the encoder, or None.
      heads: (torso, advantage, value); the network is dueling if `value` is a layer and not None.
      mask: mask of the values if the observation has a mask, or None.
    """

    def __init__(
        self,
        encoder: Encoder,
        memory: Memory | None,
        heads: tuple[MLP, Linear, Linear | None],
        mask: ActionMask | None,
    ) -> None:
        self.encoder, self.memory, self.mask = encoder, memory, mask
        self.torso, self.advantage, self.value = heads

    def __call__(self, leaves: Sequence[Array]) -> Outputs:
        if self.memory is None:
            return (self.values(self.encoder(leaves), leaves),)
        features, rows = self.memory(self.encoder(leaves[:-1]), leaves[-1])
        return self.values(features, leaves), rows

    def values(self, features: Array, leaves: Sequence[Array]) -> Array:
        features = self.torso(features)
        q = self.advantage(features)
        if self.value is not None:
            q = self.value(features) + q - q.mean(axis=-1, keepdims=True)
        return q if self.mask is None else self.mask(q, leaves)


class QuantileMean:
    """The mean of quantiles, ``(B, A, N)`` -> ``(B, A)``."""

    def __call__(self, atoms: Array) -> Array:
        mean: Array = atoms.mean(axis=-1)
        return mean


class SupportMean:
    """The mean of categorical distributions: logits ``(B, A, N)`` over the support ``(N,)`` -> ``(B, A)``."""

    def __init__(self, support: Array) -> None:
        self.support = support

    def __call__(self, atoms: Array) -> Array:
        weights = np.exp(atoms - atoms.max(axis=-1, keepdims=True))
        mean: Array = (weights @ self.support) / weights.sum(axis=-1)
        return mean


class ReturnDistribution:
    """Observation leaves -> (action values ``(B, A)``,), each the mean of N atoms.

    Args:
      parts: (encoder, torso, advantage, value); the network is dueling if `value` is a layer and not None.
      shape: shape of the atoms, (-1, A, N).
      mean: layer from the atoms to the values.
      mask: mask of the values if the observation has a mask, or None.
    """

    def __init__(
        self,
        parts: tuple[Encoder, Any, Any, Any],
        shape: tuple[int, int, int],
        mean: Layer,
        mask: ActionMask | None,
    ) -> None:
        self.encoder, self.torso, self.advantage, self.value = parts
        self.shape, self.mean, self.mask = shape, mean, mask

    def __call__(self, leaves: Sequence[Array]) -> Outputs:
        advantage, value = self.streams(leaves)
        atoms = advantage.reshape(self.shape)
        if value is not None:
            atoms = value[:, None] + atoms - atoms.mean(axis=1, keepdims=True)
        values = self.mean(atoms)
        return (values if self.mask is None else self.mask(values, leaves),)

    def streams(self, leaves: Sequence[Array]) -> tuple[Array, Array | None]:
        """Advantages ``(B, A N)``, and values ``(B, N)``, which are None without a `value` layer."""
        features = self.torso(self.encoder(leaves))
        return self.advantage(features), None if self.value is None else self.value(features)


class NoisyReturnDistribution(ReturnDistribution):
    """A `ReturnDistribution` with noisy layers; the noise is the leaf after the `num_leaves` of the observation."""

    def __init__(self, num_leaves: int, *parts: Any) -> None:
        super().__init__(*parts)
        self.num_leaves = num_leaves

    def streams(self, leaves: Sequence[Array]) -> tuple[Array, Array | None]:
        noise = leaves[-1] if len(leaves) > self.num_leaves else None
        features = self.torso(self.encoder(leaves), noise)
        return self.advantage(features, noise), None if self.value is None else self.value(features, noise)


class ImplicitQuantiles:
    """Observation leaves -> (action values ``(B, A)``,), means of quantiles at fixed fractions.

    Args:
      parts: (encoder, torso, advantage, value); the network is dueling if `value` is a layer and not None.
      embedding: embedding of the fractions.
      cosines: ``(K, n)``, cosine features of the fractions, the input of `embedding`.
      mask: mask of the values if the observation has a mask, or None.
    """

    def __init__(
        self,
        parts: tuple[Encoder, MLP, Linear, Linear | None],
        embedding: MLP,
        cosines: Array,
        mask: ActionMask | None,
    ) -> None:
        self.encoder, self.torso, self.advantage, self.value = parts
        self.embedding, self.cosines, self.mask = embedding, cosines, mask

    def __call__(self, leaves: Sequence[Array]) -> Outputs:
        features = self.torso(self.encoder(leaves)) * self.embedding(self.cosines).mean(axis=0)
        q = self.advantage(features)
        if self.value is not None:
            q = self.value(features) + q - q.mean(axis=-1, keepdims=True)
        return (q if self.mask is None else self.mask(q, leaves),)


class Actor:
    """Observation leaves -> parameters of the head's distribution."""

    def __init__(self, encoder: Encoder, torso: MLP, head: Head, mask: ActionMask | None = None) -> None:
        self.encoder, self.torso, self.head, self.mask = encoder, torso, head, mask

    def __call__(self, leaves: Sequence[Array]) -> Outputs:
        params = self.head(self.torso(self.encoder(leaves)))
        return params if self.mask is None else (self.mask(params[0], leaves),)


class PolicyValue:
    """Observation leaves -> (logits, value), see `networks.policy_value.PolicyValue`."""

    def __init__(
        self, encoder: Encoder, torso: MLP, heads: tuple[Linear, MLP, MLP], mask: ActionMask | None = None
    ) -> None:
        self.encoder, self.torso, self.mask = encoder, torso, mask
        self.policy, self.critic, self.value = heads

    def __call__(self, leaves: Sequence[Array]) -> Outputs:
        features = self.torso(self.encoder(leaves))
        logits = self.policy(features)
        value = self.value(self.critic(features))[:, 0]
        return (logits if self.mask is None else self.mask(logits, leaves)), value
