"""The network of AlphaZero: logits of a policy and the value of a position, after hidden layers or convolutions.

The convolutions over the planes of a board (He et al., 2016, https://arxiv.org/abs/1512.03385) are padded so that the
board keeps its size, without batch normalization.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from minding.engine.data.observation import Leaf, observation_leaves
from minding.engine.errors import SpaceError
from minding.engine.process.runtime import ms, nn, ops
from minding.policies.acting import compositions, numpy_encoders
from minding.policies.networks.actor_critic import Decision
from minding.policies.networks.encoder import make_encoder
from minding.policies.networks.heads import action_mask
from minding.policies.networks.layers import MLP, Composed, Linear, TanhLinear


def planes_leaf(space: Mapping[str, Any]) -> tuple[int, Leaf]:
    """Index and leaf of the planes of a board, float32 ``(C, H, W)``, in an observation."""
    leaves = observation_leaves(space)
    seen = [(place, leaf) for place, leaf in enumerate(leaves) if not leaf.is_mask]
    if len(seen) == 1 and seen[0][1].space["kind"] == "box" and len(seen[0][1].space["shape"]) == 3:
        return seen[0]
    raise SpaceError(
        "policy.model.net=residual: expected an observation of planes (C, H, W), such as a board, besides the action "
        f"mask, got {', '.join(str(leaf.field.shape) for _, leaf in seen)}: use policy.model.net=mlp"
    )


class Convolution(nn.Cell):
    """A 3x3 convolution over ``(B, C, H, W)``, padded with zeros so that the size stays the same."""

    def __init__(self, channels: int, filters: int, gain: float, rng: np.random.Generator) -> None:
        super().__init__()
        deviation = gain / math.sqrt(9 * channels)
        weight = (deviation * rng.standard_normal((filters, channels, 3, 3))).astype(np.float32)
        self.weight = ms.Parameter(ms.Tensor(weight), name="weight")
        self.bias = ms.Parameter(ms.Tensor(np.zeros(filters, np.float32)), name="bias")
        self.convolve = ops.Conv2D(filters, (3, 3), pad_mode="pad", pad=(1, 1, 1, 1))
        self.add_bias = ops.BiasAdd()

    def construct(self, x):
        return self.add_bias(self.convolve(x, self.weight), self.bias)

    def host(self, relu: bool) -> numpy_encoders.Convolution:
        return numpy_encoders.Convolution(self.weight.asnumpy(), self.bias.asnumpy(), relu)


class ResidualTower(nn.Cell):
    """A convolution with ReLU, then blocks ``relu(x + conv(relu(conv(x))))``, each initially the identity.

    The tower encodes observations: from the leaves ``(B, ...)``, one of which is the planes, to features
    ``(B, out_features)``.
    """

    def __init__(self, space: Mapping[str, Any], channels: int, blocks: int, rng: np.random.Generator) -> None:
        super().__init__()
        self.place, leaf = planes_leaf(space)
        self.shape = shape = tuple(leaf.space["shape"])
        self.out_features = channels * shape[1] * shape[2]
        gain = math.sqrt(2)
        self.stem = Convolution(shape[0], channels, gain, rng)
        self.first = nn.CellList([Convolution(channels, channels, gain, rng) for _ in range(blocks)])
        self.second = nn.CellList([Convolution(channels, channels, 0.0, rng) for _ in range(blocks)])
        self.relu = ops.ReLU()
        self.fused: Any = None
        self.geometries: tuple[Any, ...] = ()

    def fuse(self, kernel_of: Callable[[int, int, str, str], tuple[Any, Any]]) -> None:
        """Computes the convolutions by kernels, see `fused.fused_convolution`."""
        forms = (("first", "relu"), ("middle", "relu"), ("middle", "none"))
        self.fused, self.geometries = tuple(zip(*(kernel_of(1, 1, *form) for form in forms)))

    def construct(self, leaves):
        x = ops.cast(leaves[self.place], ms.float32).reshape((-1, *self.shape))
        if self.fused is not None:
            # Channels are last from here on.
            x = self.apply(0, self.stem, x)
            for k in range(len(self.first)):
                x = self.relu(x + self.apply(2, self.second[k], self.apply(1, self.first[k], x)))
            x = ops.transpose(x, (0, 3, 1, 2))
        else:
            x = self.relu(self.stem(x))
            for k in range(len(self.first)):
                x = self.relu(x + self.second[k](self.relu(self.first[k](x))))
        return x.reshape((-1, self.out_features))

    def apply(self, form, convolution, x):
        """A convolution by the kernel of this form: 0 the stem, 1 the first and 2 the second of a block."""
        return self.fused[form](self.geometries[form], x, convolution.weight, convolution.bias)

    def host(self) -> numpy_encoders.ResidualTower:
        blocks = [(a.host(relu=True), b.host(relu=False)) for a, b in zip(self.first, self.second)]
        return numpy_encoders.ResidualTower(self.place, self.stem.host(relu=True), blocks)


class PolicyValue(Composed, compositions.PolicyValue):
    """Takes the observation leaves; returns (logits (B, A), value (B,) in [-1, 1]).

    With ``model.net=mlp`` both heads follow the hidden layers. With ``residual`` the logits follow the convolutions,
    and the value follows hidden layers after them. Logits of actions that the observation's mask forbids are
    `ILLEGAL`.
    """

    memory_size = 0
    shared_outputs = ()
    decision = Decision(0, "logits")

    def __init__(self, spec: Mapping[str, Any], model: Any, rng: np.random.Generator) -> None:
        super().__init__()
        space = spec["observation"]
        if model.net == "residual":
            self.encoder: Any = ResidualTower(space, model.channels, model.blocks, rng)
            shared: list[int] = []
            own = model.hidden
        else:
            self.encoder = make_encoder(space, model, rng)
            shared, own = model.hidden, []
        features = self.encoder.out_features
        self.torso = MLP(features, shared, model.activation, None, rng, model.norm)
        self.critic = MLP(self.torso.out_features, own, model.activation, None, rng, model.norm)
        self.policy = Linear(self.torso.out_features, spec["action"]["n"], 0.01, rng)
        self.value = TanhLinear(self.critic.out_features, 1, 0.01, rng)
        self.mask = action_mask(space)
