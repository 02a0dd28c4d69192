"""Observation encoders: one encoder per leaf of the observation, joined into one feature vector."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from minding.engine.config.named import load_code
from minding.engine.data.action_trees import COMPOSITE
from minding.engine.data.agent_axis import IDENTITY, has_identity
from minding.engine.data.observation import Leaf, leaf_name, observation_leaves
from minding.engine.data.statistics import RunningMoments
from minding.engine.error_origin import building
from minding.engine.errors import CodeError, SpaceError
from minding.engine.process.runtime import assign, ms, nn, ops
from minding.engine.types import Array
from minding.policies.acting import compositions, numpy_encoders
from minding.policies.kernels.library import compiled
from minding.policies.networks.layers import ACTIVATIONS, Composed, Linear, fan_in_uniform, orthogonal
from minding.policies.networks.traced import traced_form

NATURE_CNN = ((32, 8, 4), (64, 4, 2), (64, 3, 1))
"""Channels, kernel size and stride of each layer (Mnih et al., 2015, https://doi.org/10.1038/nature14236), for images
of at least 64 pixels per side: of one with 36 they leave a single place."""
SMALL_CNN = ((16, 3, 2), (32, 3, 2))
"""The same for images of 16 to 63 pixels."""
GRID_CNN = ((16, 3, 1),)
"""The same for smaller images, whose pixels are the cells of a grid (Young and Tian, 2019, section 3.1,
https://arxiv.org/abs/1903.03176): a stride would leave out places."""
OF_BYTES = 1.0 / 255.0


class Normalizer(Composed, compositions.Normalizer):
    """Normalizes each number by its moments in training, see `RunningMoments.zero_keeping`, clipped to +-10.

    `RunningMoments` keeps the moments in float64; acting and learning use the float32 parameters, which change only in
    `update`. Rows that are stored for replay are added when they are stored. On-policy learning adds its rows after the
    gradient steps, so that acting and learning of one iteration use the same moments. For recorded data, the moments
    are computed once, before the first step.
    """

    def __init__(self, size: int) -> None:
        super().__init__()
        self.moments = RunningMoments((size,))
        self.center = ms.Parameter(ms.Tensor(np.zeros(size, np.float32)), name="center", requires_grad=False)
        self.scale = ms.Parameter(ms.Tensor(np.ones(size, np.float32)), name="scale", requires_grad=False)

    def update(self, x: Array) -> None:
        """Adds observations ``(B, size)`` to the moments."""
        self.merge(RunningMoments.of(x))

    def merge(self, seen: RunningMoments) -> None:
        """Adds observations, of which these are the moments."""
        if not seen.count:
            return
        self.moments.merge(seen)
        center, scale = self.moments.zero_keeping()
        assign(self.center, center.astype(np.float32))
        assign(self.scale, scale.astype(np.float32))


class Vector(Composed, compositions.Vector):
    """Numbers, flattened to ``(B, D)``, and normalized if `normalize` is true."""

    def __init__(self, space: Mapping[str, Any], normalize: bool) -> None:
        super().__init__()
        self.out_features = math.prod(space["shape"])
        self.normalizer = Normalizer(self.out_features) if normalize else None


class OneHot(Composed, compositions.OneHot):
    """Integers ``(B,)`` or ``(B, K)`` as joined one-hot vectors ``(B, sum n)``."""

    def __init__(self, space: Mapping[str, Any]) -> None:
        super().__init__()
        self.sizes = [space["n"]] if space["kind"] == "discrete" else list(space["nvec"])
        self.out_features = sum(self.sizes)
        self.tables = [ms.Tensor(np.eye(n, dtype=np.float32)) for n in self.sizes]


class ActionNumbers(nn.Cell):
    """Actions in the policy's units as numbers, float32 ``(B, out_features)``: joined one-hot vectors of choices, then
    the numbers of a Box or composite action as they are."""

    def __init__(self, space: Mapping[str, Any]) -> None:
        super().__init__()
        self.kind = space["kind"]
        self.one_hot = None if self.kind == "box" else OneHot(space)
        self.count = len(space["nvec"]) if self.kind == COMPOSITE else 0
        chosen = 0 if self.one_hot is None else self.one_hot.out_features
        numbers = math.prod(space["shape"]) if self.kind == "box" else len(space["low"]) if self.count else 0
        self.out_features = chosen + numbers

    def construct(self, action):
        if self.one_hot is None:
            return action.reshape((-1, self.out_features))
        if self.kind != COMPOSITE:
            return self.one_hot(action)
        chosen = self.one_hot(ops.cast(action[:, : self.count], ms.int32))
        return ops.Concat(-1)((chosen, action[:, self.count :]))


def layers_of(shape: Sequence[int], model: Any) -> Sequence[Sequence[int]]:
    """Channels, kernel size and stride of each convolution over images of a shape ``(C, H, W)``."""
    side = min(shape[1:])
    layers: Sequence[Sequence[int]] = model.cnn or (NATURE_CNN if side >= 64 else SMALL_CNN if side >= 16 else GRID_CNN)
    return layers


def _sizes(shape: Sequence[int], layers: Sequence[Sequence[int]]) -> list[tuple[int, int, int]]:
    """Channels, height and width before the first convolution and after each of them."""
    channels, height, width = shape
    sizes = [(channels, height, width)]
    for filters, kernel, stride in layers:
        height, width = (height - kernel) // stride + 1, (width - kernel) // stride + 1
        if height < 1 or width < 1:
            small = f"image {tuple(shape)}: too small for the convolutions {list(layers)}"
            raise SpaceError(f"{small}; set smaller ones, such as policy.model.cnn=[[16,1,1]]")
        sizes.append((filters, height, width))
    return sizes


def _places(count: int) -> list[str]:
    """The place of each of some convolutions that follow each other, see `fused.fused_convolution`."""
    return ["only"] if count == 1 else ["first", *["middle"] * (count - 2), "last"]


class ConvNet(nn.Cell):
    """Convolutions with ReLU over images ``(B, C, H, W)``, then one linear layer to `out_features`.

    Weights are orthogonal with a gain of sqrt(2), which keeps the size of activations from layer to layer. Smaller ones
    let an image count less than a vector beside it.

    Pixels are multiplied by `scale`. A scale of 1 means that they are float32 already; otherwise they are bytes.
    """

    def __init__(
        self,
        shape: Sequence[int],
        layers: Sequence[Sequence[int]],
        out_features: int,
        rng: np.random.Generator,
        scale: float = OF_BYTES,
    ) -> None:
        super().__init__()
        self.scale = scale
        self.shape = tuple(shape)
        self.out_features = out_features
        sizes = _sizes(shape, layers)
        convolutions = []
        for (channels, _, _), (filters, kernel, stride) in zip(sizes, layers):
            weight = orthogonal((filters, channels * kernel * kernel), math.sqrt(2), rng)
            weight = weight.reshape((filters, channels, kernel, kernel))
            convolution = nn.Conv2d(
                channels, filters, kernel, stride, pad_mode="valid", has_bias=True, weight_init=ms.Tensor(weight),
                bias_init="zeros",
            )  # fmt: skip
            # It would keep its initial weights as long as it lives.
            convolution.weight_init = None
            convolutions.append(convolution)
        self.convolutions = nn.CellList(convolutions)
        self.strides = [stride for _, _, stride in layers]
        self.fused: tuple[Any, ...] | None = None
        self.geometries: tuple[Any, ...] = ()
        self.relu = ops.ReLU()
        self.flat = math.prod(sizes[-1])
        self.linear = Linear(self.flat, out_features, math.sqrt(2), rng)

    def fuse(self, kernel_of: Callable[[int, int, str, str], tuple[Any, Any]], linear: Any) -> None:
        """Computes the convolutions by kernels, see `fused.fused_convolution`, and the layer after them by `linear`,
        see `fused.fused_linear`."""
        places = zip(self.strides, _places(len(self.strides)))
        self.fused, self.geometries = zip(*(kernel_of(stride, 0, place, "relu") for stride, place in places))
        self.linear.fused = linear

    def host(self) -> numpy_encoders.ConvNet:
        if not compiled():
            raise AttributeError("ConvNet has no attribute 'host' without this package's kernels")
        convolutions = [(c.weight.asnumpy(), c.bias.asnumpy(), s) for c, s in zip(self.convolutions, self.strides)]
        dtype = "float32" if self.scale == 1.0 else "uint8"
        return numpy_encoders.ConvNet(self.shape, convolutions, self.linear.host(), dtype)

    def construct(self, x):
        x = x.reshape((-1, *self.shape))
        if self.fused is not None:
            for k in range(len(self.convolutions)):
                convolution = self.convolutions[k]
                x = self.fused[k](self.geometries[k], x, convolution.weight, convolution.bias)
        else:
            if self.scale != 1.0:
                x = ops.cast(x, ms.float32) * self.scale
            for convolution in self.convolutions:
                x = self.relu(convolution(x))
        features = self.linear(x.reshape((-1, self.flat)))
        # The kernel of the layer includes its ReLU.
        return features if self.fused is not None else self.relu(features)


class _Transposed(nn.Cell):
    """A transposed convolution with bias: the one that a convolution `layer`, of channels, kernel size and stride, over
    images of the size ``(C, H, W)`` makes backwards."""

    def __init__(self, size: tuple[int, int, int], layer: Sequence[int], rng: np.random.Generator) -> None:
        super().__init__()
        filters, kernel, stride = layer
        # So many numbers of each filter reach a pixel.
        reach = max(1, kernel // stride) ** 2
        weight = fan_in_uniform((filters, size[0], kernel, kernel), filters * reach, rng)
        self.size = size
        self.weight = ms.Parameter(ms.Tensor(weight), name="weight")
        self.bias = ms.Parameter(ms.Tensor(np.zeros(size[0], np.float32)), name="bias")
        self.transposed = ops.Conv2DTranspose(filters, kernel, pad_mode="valid", stride=stride)
        self.add_bias = ops.BiasAdd()

    def construct(self, x):
        return self.add_bias(self.transposed(x, self.weight, (x.shape[0], *self.size)), self.bias)


class ImageDecoder(nn.Cell):
    """A linear layer with ReLU from features (B, F), then transposed convolutions with ReLU in between: the steps of a
    `ConvNet` backwards. The result is rows of pixels ``(B, C H W)``.

    Pixels that no convolution reaches, at the lower and the right edge of images that strides do not divide, are the
    bias alone.

    Args:
      shape: shape ``(C, H, W)`` of the images.
    """

    def __init__(
        self, features: int, shape: Sequence[int], layers: Sequence[Sequence[int]], rng: np.random.Generator
    ) -> None:
        super().__init__()
        sizes = _sizes(shape, layers)
        self.out_features = math.prod(shape)
        self.begun = sizes[-1]
        # In the order in which they are computed: from the last convolution of the `ConvNet` to its first.
        self.steps = [(sizes[k], tuple(layers[k])) for k in reversed(range(len(layers)))]
        self.linear = Linear(features, math.prod(self.begun), math.sqrt(2), rng)
        self.convolutions = nn.CellList([_Transposed(size, layer, rng) for size, layer in self.steps])
        self.fused: tuple[Any, ...] | None = None
        self.geometries: tuple[Any, ...] = ()
        self.relu = ops.ReLU()

    def fuse(self, kernel_of: Callable[[tuple[int, int], int, str, str], tuple[Any, Any]], linear: Any) -> None:
        """Computes the convolutions by kernels, see `fused.fused_transposed_convolution`, and the layer before them by
        `linear`, see `fused.fused_linear`."""
        places = _places(len(self.steps))
        self.fused, self.geometries = zip(
            *(
                kernel_of((height, width), stride, place, "none" if place in ("last", "only") else "relu")
                for ((_, height, width), (_, _, stride)), place in zip(self.steps, places)
            )
        )
        self.linear.fused = linear

    def construct(self, x):
        x = self.linear(x)
        count = len(self.steps)
        if self.fused is not None:
            x = x.reshape((-1, *self.begun))
            for k in range(count):
                convolution = self.convolutions[k]
                x = self.fused[k](self.geometries[k], x, convolution.weight, convolution.bias)
        else:
            x = self.relu(x).reshape((-1, *self.begun))
            for k in range(count):
                x = self.convolutions[k](x)
                if k < count - 1:
                    x = self.relu(x)
        return x.reshape((-1, self.out_features))


class ObsEncoder(Composed, compositions.ObsEncoder):
    """One encoder per leaf of the observation; returns features ``(B, out_features)``.

    A single leaf has no layer after its encoder. With several leaves, vectors and integers have a linear layer of their
    own, as images have within their encoder, and the results are joined. An action mask is not a feature.

    Args:
      whitened: whether vectors and images are given as float32 with zero mean and unit variance, and need no scaling.
    """

    def __init__(
        self,
        space: Mapping[str, Any],
        model: Any,
        rng: np.random.Generator,
        name: str = "obs",
        *,
        whitened: bool = False,
    ) -> None:
        super().__init__()
        leaves = observation_leaves(space)
        self.fields = [leaf_name(name, leaf) for leaf in leaves]
        # The index of each encoder's leaf among the leaves of the observation.
        self.places = [k for k, leaf in enumerate(leaves) if not leaf.is_mask]
        self.encoders = nn.CellList([self._leaf(leaves[k], model, rng, whitened) for k in self.places])
        # The index of each encoder's own layer; None without one.
        self.layers: list[int | None] = []
        projections: list[Linear] = []
        for encoder in self.encoders:
            needs_one = len(self.places) > 1 and not isinstance(encoder, ConvNet)
            self.layers.append(len(projections) if needs_one else None)
            if needs_one:
                projections.append(Linear(encoder.out_features, model.encoder_dim, math.sqrt(2), rng))
        self.projections = nn.CellList(projections)
        self.out_features = sum(
            e.out_features if k is None else model.encoder_dim for e, k in zip(self.encoders, self.layers)
        )
        self.activation_name = model.activation
        self.activation = ACTIVATIONS[model.activation]()

    @staticmethod
    def _leaf(leaf: Leaf, model: Any, rng: np.random.Generator, whitened: bool) -> nn.Cell:
        if leaf.is_image:
            shape = leaf.space["shape"]
            return ConvNet(shape, layers_of(shape, model), model.cnn_dim, rng, 1.0 if whitened else OF_BYTES)
        if leaf.space["kind"] in ("discrete", "multi_discrete"):
            return OneHot(leaf.space)
        return Vector(leaf.space, model.normalize_obs and not whitened)

    def activate(self, x):
        return self.activation(x)

    def normalizers(self) -> list[tuple[int, Normalizer]]:
        """Pairs of leaf number and normalizer, for all normalized leaves."""
        return [
            (k, e.normalizer)
            for k, e in zip(self.places, self.encoders)
            if isinstance(e, Vector) and e.normalizer is not None
        ]


class OwnEncoder(Composed, compositions.OwnEncoder):
    """A user-defined encoder that `policy.model.encoder` names: ``MyEncoder(space, model, rng)``.

    The class has an attribute `out_features`, the size F of its features, and a method ``construct(leaves) -> (B, F)``
    for the leaves of an observation, ``(B, ...)`` each, without action masks. If it also has a method `host()`, which
    returns the same function of NumPy arrays, or consists of known layers (see `traced`), the policy can act without a
    graph.
    """

    def __init__(self, space: Mapping[str, Any], model: Any, rng: np.random.Generator) -> None:
        super().__init__()
        name, leaves = model.encoder, observation_leaves(space)
        where = f"policy.model.encoder={name!r}"
        kind = load_code(name, "policy.model.encoder")
        if not (isinstance(kind, type) and issubclass(kind, nn.Cell)):
            raise CodeError(f"{where}: expected a class derived from mindspore.nn.Cell, got {kind!r}")
        self.places = [k for k, leaf in enumerate(leaves) if not leaf.is_mask]
        with building(f"{where}: {kind.__name__}(space, model, rng)"):
            self.cell = kind(space, model, rng)
        size = getattr(self.cell, "out_features", None)
        if isinstance(size, bool) or not isinstance(size, int) or size < 1:
            raise CodeError(f"{where}: expected an attribute out_features, an integer of 1 or more, got {size!r}")
        self.out_features = size
        rows = tuple(ms.Tensor(np.zeros((2, *leaves[k].field.shape), leaves[k].field.dtype)) for k in self.places)
        with building(f"{where}: construct(leaves) of {_described(rows)}"):
            features = self.cell(rows)
        shape, dtype = tuple(getattr(features, "shape", ())), getattr(features, "dtype", None)
        if shape != (2, size) or dtype != ms.float32:
            found = f"{dtype} {shape}".lower() if shape else type(features).__name__
            raise CodeError(
                f"{where}: construct(leaves) returned {found} for 2 rows; expected float32 (2, {size}), by its "
                "out_features"
            )

    def host(self) -> compositions.OwnEncoder:
        form = self.cell.host() if hasattr(self.cell, "host") else traced_form(self.cell, len(self.places))
        return compositions.OwnEncoder(cell=form, places=self.places)


class AgentEncoder(Composed, compositions.AgentEncoder):
    """The encoder of an observation with an agent's number (`IDENTITY`), which is joined to the features as one-hot."""

    def __init__(self, space: Mapping[str, Any], model: Any, rng: np.random.Generator) -> None:
        super().__init__()
        spaces = dict(space["spaces"])
        self.place = [leaf.path for leaf in observation_leaves(space)].index(IDENTITY)
        self.table = ms.Tensor(np.eye(spaces.pop(IDENTITY)["n"], dtype=np.float32))
        self.encoder = make_encoder({**space, "spaces": spaces}, model, rng)
        self.out_features = self.encoder.out_features + len(self.table)


def _described(rows: Sequence[Any]) -> str:
    return ", ".join(f"{x.dtype} {tuple(x.shape)}".lower() for x in rows)


def make_encoder(space: Mapping[str, Any], model: Any, rng: np.random.Generator) -> Any:
    """The encoder of observations: an `ObsEncoder`, or the user-defined encoder that `policy.model.encoder` names;
    for an observation with an agent's number, an `AgentEncoder` of it."""
    if has_identity(space):
        return AgentEncoder(space, model, rng)
    kind = OwnEncoder if model.get("encoder") else ObsEncoder
    return kind(space, model, rng)


def normalizers_of(root: Any) -> dict[str, tuple[str, Normalizer]]:
    """Pairs (row field of the numbers, normalizer) of all encoders under `root`, by path. The path is the encoder's
    path in `root` and the leaf number."""
    encoders = [(path, cell) for path, cell in root.cells_and_names() if isinstance(cell, ObsEncoder)]
    return {
        f"{path}.{k}": (encoder.fields[k], normalizer)
        for path, encoder in encoders
        for k, normalizer in encoder.normalizers()
    }


class RandomShift(nn.Cell):
    """Moves each image by a few pixels; those that come in are copies of the pixels at the edge (Yarats et al., 2021,
    https://arxiv.org/abs/2107.09645, section 3.1).

        x'[c, i, j] = x[c, clip(i + s_0, 0, H - 1), clip(j + s_1, 0, W - 1)],   s_0, s_1 in -pixels, ..., pixels
    """

    def __init__(self, leaves: Sequence[Leaf], pixels: int) -> None:
        super().__init__()
        self.pixels = pixels
        self.sizes = [tuple(leaf.space["shape"]) if leaf.is_image else () for leaf in leaves]
        self.steps = [
            tuple(ms.Tensor(np.arange(size, dtype=np.int32)[None]) for size in shape) if shape else ()
            for shape in self.sizes
        ]

    def draw(self, rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
        """Shifts of observation and successor, int32 ``(*shape, 4)``."""
        return rng.integers(-self.pixels, self.pixels, (*shape, 4), np.int32, endpoint=True)

    def construct(self, leaves, shift, first):
        """The leaves (B, ...) with moved images; `shift`: numbers of `draw`, int32 (B, 4)."""
        made: Any = ()
        for k in range(len(self.sizes)):
            x = leaves[k]
            made = (*made, self.moved(x, k, shift, first) if len(self.sizes[k]) > 0 else x)
        return made

    def moved(self, x, k, shift, first):
        (channels, height, width), rows = self.sizes[k], x.shape[0]
        i, j = self.within(k, 1, shift, first), self.within(k, 2, shift, first + 1)
        # Places among all pixels of the batch.
        image = ops.Reshape()(ops.Range()(0, rows * channels, 1), (rows, channels, 1, 1)) * (height * width)
        places = image + ops.Reshape()(i * width, (rows, 1, height, 1)) + ops.Reshape()(j, (rows, 1, 1, width))
        return ops.Reshape()(ops.Gather()(ops.Reshape()(x, (-1,)), places, 0), x.shape)

    def within(self, k, axis, shift, place):
        """Places (B, size) along an axis of the image, from which its pixels come."""
        moved = self.steps[k][axis] + ops.Slice()(shift, (0, place), (shift.shape[0], 1))
        return ops.Minimum()(ops.Maximum()(moved, 0), self.sizes[k][axis] - 1)
