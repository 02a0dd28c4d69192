"""Memories of networks: cells that process one observation after another.

A memory is called with features ``(B, F)`` and memory rows ``(B, S)``, and returns features and new memory rows;
`unroll` and `take_in` process sequences. Rows of zeros are an empty memory.
"""

from typing import Any

import numpy as np

from minding.engine.process.runtime import ms, nn, ops
from minding.engine.types import Array
from minding.policies.acting import compositions, numpy_layers
from minding.policies.networks.layers import EXPANSION, MLP, Composed, LayerNorm, Linear, host_of, orthogonal
from minding.policies.ops import primitives


class Memory(Composed):
    """Base of memories. A subclass defines `gates`, `unroll`, ``step(given, rows)``, which returns the new memory rows
    (B, S) from the output of the layer `inputs`, (B, gates D), and the rows (B, S) before the step, and
    ``features(rows)``, the features (B, D) that belong to memory rows."""

    gates: int

    def __init__(self, in_features: int, dim: int, size: int, rng: np.random.Generator) -> None:
        super().__init__()
        self.size, self.out_features = size, dim
        self.inputs = Linear(in_features, self.gates * dim, 1.0, rng)
        self.first_step = ms.Tensor(np.int32(0))

    def construct(self, x, rows):
        rows = self.step(self.inputs(x), rows)
        return self.features(rows), rows

    def unroll(self, x, rows, begun):
        """Processes the T observations of B sequences one after another: features (T B, F), ordered by time, from the
        memory (B, S) before the first ones, to features (T B, D). `begun`: float32 (T B,), 1 where the memory is
        cleared before the observation."""
        raise NotImplementedError

    def take_in(self, x, rows, counted):
        """As `unroll`, but returns only the memory rows (B, S) after the observations; `counted`: float32 (T, B), 0
        where one is left out, else 1."""
        count, size = rows.shape[0], self.out_features
        steps = x.shape[0] // count
        given, counted = self.inputs(x).reshape((steps, count, self.gates * size)), ops.ExpandDims()(counted, -1)
        t = self.first_step
        while t < steps:
            taken = primitives.entry(counted, t)
            rows = taken * self.step(primitives.entry(given, t), rows) + (1.0 - taken) * rows
            t = t + 1
        return rows


class Gated(Memory):
    """Base of memories whose gates depend on the features of the step before; see `Memory`."""

    def __init__(self, in_features: int, dim: int, size: int, rng: np.random.Generator) -> None:
        super().__init__(in_features, dim, size, rng)
        self.recurrent = Linear(dim, self.gates * dim, 1.0, rng)
        self.fused: ops.Primitive | None = None

    def unroll(self, x, rows, begun):
        given = self.inputs(x)
        if self.fused is not None:
            return self.fused(given, begun, rows, self.recurrent.weight, self.recurrent.bias)[0]
        count, size = rows.shape[0], self.out_features
        steps = given.shape[0] // count
        given, kept = given.reshape((steps, count, self.gates * size)), (1.0 - begun).reshape((steps, count, 1))
        made = ops.zeros_like(given[:, :, :size])
        t = self.first_step
        # If the compiler unrolls the loop, 32 steps take 14 s to compile; this form takes 2 s for any number of steps.
        while t < steps:
            rows = self.step(primitives.entry(given, t), rows * primitives.entry(kept, t))
            made = ops.TensorScatterUpdate()(made, t.reshape((1, 1)), self.features(rows).reshape((1, count, size)))
            t = t + 1
        return made.reshape((-1, size))


class GRU(Gated, compositions.GRU):
    """Gated recurrent unit (Cho et al., 2014, https://arxiv.org/abs/1406.1078, in the form of cuDNN and PyTorch).

        r = sigmoid(W_r x + b_r + U_r h + c_r)
        z = sigmoid(W_z x + b_z + U_z h + c_z)
        n = tanh(W_n x + b_n + r (U_n h + c_n))
        h' = (1 - z) n + z h

    The memory row is h, which is also the returned features.
    """

    gates = 3

    def __init__(self, in_features: int, dim: int, rng: np.random.Generator) -> None:
        super().__init__(in_features, dim, dim, rng)

    def once(self, x, rows):
        """The rows after one step, in one kernel if there is one."""
        if self.fused is None:
            return self.step(self.inputs(x), rows)
        return self.unroll(x, rows, ops.ZerosLike()(rows[:, 0]))


class LSTM(Gated, compositions.LSTM):
    """Long short-term memory (Hochreiter and Schmidhuber, 1997, https://doi.org/10.1162/neco.1997.9.8.1735; with the
    forget gate of Gers et al., 2000, https://doi.org/10.1162/089976600300015015).

        i, f, o = sigmoid(W x + b + U h + c), each with its own weights
        g = tanh(W_g x + b_g + U_g h + c_g)
        c' = f c + i g
        h' = o tanh(c')

    The memory row is h and c joined, and the returned features are h. The forget gate starts with the bias 1
    (Jozefowicz et al., 2015, https://proceedings.mlr.press/v37/jozefowicz15.html); otherwise half of the memory would
    be lost in every step.
    """

    gates = 4

    def __init__(self, in_features: int, dim: int, rng: np.random.Generator) -> None:
        super().__init__(in_features, dim, 2 * dim, rng)
        self.inputs.bias.asnumpy()[dim : 2 * dim] = 1.0


class GTrXLLayer(nn.Cell):
    """A layer of a `GTrXL`: attention and two linear layers, each followed by a GRU as a gate."""

    def __init__(self, dim: int, heads: int, rng: np.random.Generator) -> None:
        super().__init__()
        self.heads, self.dim, self.scale = heads, dim, (dim // heads) ** -0.5
        self.norms = nn.CellList([LayerNorm(dim), LayerNorm(dim)])
        self.query = Linear(dim, dim, 1.0, rng)
        self.keys_values = Linear(dim, 2 * dim, 1.0, rng)
        self.position = ms.Parameter(ms.Tensor(orthogonal((dim, dim), 1.0, rng)), name="position")
        self.offset = ms.Parameter(ms.Tensor(np.zeros(dim, np.float32)), name="offset")
        self.joined = Linear(dim, dim, 1.0, rng)
        self.wide = MLP(dim, [EXPANSION * dim], "relu", 1.0, rng)
        self.narrow = Linear(EXPANSION * dim, dim, 1.0, rng)
        self.gates = nn.CellList([GRU(dim, dim, rng), GRU(dim, dim, rng)])
        for gate in self.gates:
            gate.inputs.bias.asnumpy()[dim : 2 * dim] = GATE_BIAS
        self.relu = ops.ReLU()
        self.product, self.product_transposed = ops.BatchMatMul(), ops.BatchMatMul(transpose_b=True)

    def construct(self, x, before, forbidden, distances):
        """The features (B, T, D) of T steps, from the inputs of the layer in these steps, (B, T, D), and in the M
        steps before, (B, M, D); `forbidden`: float32 (B, T, M + T), `ILLEGAL` where a step does not see another one,
        else 0."""
        steps, length, size = x.shape[1], before.shape[1], self.dim
        normed = self.norms[0](ops.Reshape()(ops.Concat(1)((before, x)), (-1, size)))
        both = self.keys_values(normed)
        keys, values = self.by_head(both[:, :size], length + steps), self.by_head(both[:, size:], length + steps)
        # Attention
        normed = ops.Reshape()(normed, (-1, length + steps, size))[:, length:]
        query = self.scale * self.query(ops.Reshape()(normed, (-1, size)))
        content = self.product_transposed(self.by_head(query, steps), keys)
        place = self.by_head(ops.MatMul(transpose_b=True)(distances, self.position), length + 1)
        at = ops.Reshape()(self.by_head(query + self.scale * self.offset, steps), (self.heads, -1, size // self.heads))
        place = self.product_transposed(at, ops.Reshape()(place, (self.heads, length + 1, -1)))
        place = shifted(ops.Reshape()(place, (self.heads, -1, steps, length + 1)), steps, length)
        weights = ops.Softmax(-1)(content + place + forbidden)
        found = ops.Transpose()(self.product(weights, values), (1, 2, 0, 3))
        found = self.joined(ops.Reshape()(found, (-1, size)))
        # Gates
        x = self.gates[0].once(self.relu(found), ops.Reshape()(x, (-1, size)))
        x = self.gates[1].once(self.relu(self.wide.into(self.narrow, self.norms[1](x))), x)
        return ops.Reshape()(x, (-1, steps, size))

    def by_head(self, x, steps):
        """(B T, D) -> (H, B, T, D / H); `steps` is T."""
        return ops.Transpose()(ops.Reshape()(x, (-1, steps, self.heads, self.dim // self.heads)), (2, 0, 1, 3))

    def host(self) -> numpy_layers.GTrXLLayer:
        return numpy_layers.GTrXLLayer(
            self.heads,
            host_of((*self.norms, self.query, self.keys_values, self.joined, self.wide, self.narrow, *self.gates)),
            self.position.asnumpy(),
            self.offset.asnumpy(),
        )


def shifted(x, steps, length):
    """Numbers of distances as numbers of steps: (H, B, T, M + 1) -> (H, B, T, M + T), in which row t begins with t
    zeros (Dai et al., 2019, https://arxiv.org/abs/1901.02860, appendix B)."""
    if steps == 1:
        return x
    heads, width = x.shape[0], length + steps
    # Each row has one number more than the result's, so that reading on moves each row by one more place.
    wide = ops.Reshape()(ops.Pad(((0, 0), (0, 0), (0, 0), (0, steps)))(x), (heads, -1, steps * (width + 1)))
    return ops.Reshape()(wide[:, :, : steps * width], (heads, -1, steps, width))


class GTrXL(Memory):
    """Gated transformer with a memory of M steps (Parisotto et al., 2020, https://arxiv.org/abs/1910.06764, section 3;
    relative positions: Dai et al., 2019, https://arxiv.org/abs/1901.02860, section 3.3).

        e_0 = W x + b,   n = LayerNorm(e_{l-1}) of this step and of up to M steps of the episode before it
        A_s = (q n_t + u)^T k n_s + (q n_t + v)^T p R_{t-s},   a = sum_s softmax_s(A / sqrt(D / H)) values n_s
        y = GRU_1(relu(W a + b), e_{l-1}),   e_l = GRU_2(relu(MLP(LayerNorm(y))), y),   l = 1 .. L

    R_d is the sinusoidal encoding of the distance d. The bias of q is u, and `offset` is v - u. The update gates of the
    GRUs start with the bias 2, so that each layer starts close to the identity.

    The features are e_L. A memory row has e_L of the last step, then for each of the last M steps the number 1, or 0
    before the episode, then for each layer its inputs e_{l-1} in these steps. Learning computes all steps of a sequence
    together, and gradients flow through all of them.
    """

    gates = 1

    def __init__(
        self, in_features: int, dim: int, layers: int, heads: int, length: int, rng: np.random.Generator
    ) -> None:
        super().__init__(in_features, dim, dim + length + layers * length * dim, rng)
        self.length = length
        self.layers = nn.CellList([GTrXLLayer(dim, heads, rng) for _ in range(layers)])
        self.distances = ms.Tensor(encoded_distances(length, dim))

    def step(self, given, rows):
        dim, length = self.out_features, self.length
        # Ones and zeros in operators that exported files have.
        nothing = 0.0 * rows[:, :1]
        states = self.states(ops.ExpandDims()(given, 1), rows, nothing)
        kept: Any = (ops.Reshape()(states[-1], (-1, dim)), rows[:, dim + 1 : dim + length], nothing + 1.0)
        for k in range(len(self.layers)):
            later = ops.Concat(1)((self.before(rows, k)[:, 1:], states[k]))
            kept = (*kept, ops.Reshape()(later, (-1, length * dim)))
        return ops.Concat(-1)(kept)

    def features(self, rows):
        return rows[:, : self.out_features]

    def unroll(self, x, rows, begun):
        count = rows.shape[0]
        given = ops.Transpose()(ops.Reshape()(self.inputs(x), (-1, count, self.out_features)), (1, 0, 2))
        episode = ops.Transpose()(ops.CumSum()(ops.Reshape()(begun, (-1, count)), 0), (1, 0))
        made = self.states(given, rows, episode)[-1]
        return ops.Reshape()(ops.Transpose()(made, (1, 0, 2)), (-1, self.out_features))

    def states(self, x, rows, episode):
        """The input of each layer and the features of sequences, a tuple of L + 1 arrays (B, T, D), from the input of
        the first layer, (B, T, D), and the memory (B, S) before it; `episode`: float32 (B, T), number of the episode of
        each step; 0 is the episode of the memory."""
        dim, length, steps = self.out_features, self.length, x.shape[1]
        there = rows[:, dim : dim + length] > numpy_layers.REMEMBERED
        others = ops.Concat(1)((ops.Cast()(there, ms.float32) - 1.0, episode))
        same = ops.Equal()(ops.ExpandDims()(episode, 2), ops.ExpandDims()(others, 1))
        allowed = ops.Cast()(same, ms.float32)
        if steps > 1:
            ones = ops.OnesLike()(ops.Reshape()(allowed[0, :, : length + 1], (1, 1, steps, length + 1)))
            allowed = allowed * ops.Squeeze(0)(shifted(ones, steps, length))
        forbidden = numpy_layers.ILLEGAL * (1.0 - allowed)
        states: Any = (x,)
        for k in range(len(self.layers)):
            x = self.layers[k](x, self.before(rows, k), forbidden, self.distances)
            states = (*states, x)
        return states

    def before(self, rows, k):
        """The inputs of layer k in the remembered steps, (B, M, D)."""
        number = self.length * self.out_features
        start = self.out_features + self.length + k * number
        return ops.Reshape()(rows[:, start : start + number], (-1, self.length, self.out_features))

    def host(self) -> numpy_layers.GTrXL:
        return numpy_layers.GTrXL(self.inputs.host(), host_of(self.layers), self.distances.asnumpy())


GATE_BIAS = 2.0
"""Initial bias of the gates of a `GTrXL` (Parisotto et al., 2020, appendix B)."""


def encoded_distances(length: int, dim: int) -> Array:
    """Sinusoidal encodings of the distances M to 0 (Vaswani et al., 2017, https://arxiv.org/abs/1706.03762, section
    3.5), float32 ``(M + 1, D)``: sines, then cosines."""
    half = (dim + 1) // 2
    angle = np.arange(length, -1, -1)[:, None] / 10_000.0 ** (np.arange(half) / half)
    return np.concatenate([np.sin(angle), np.cos(angle)], axis=1)[:, :dim].astype(np.float32)


def make_memory(model: Any, in_features: int, rng: np.random.Generator, default: str = "none") -> Memory | None:
    """The memory that ``model.memory`` names; None for 'none'."""
    kind = model.get("memory", default)
    if kind == "none":
        return None
    if kind == "gtrxl":
        sizes = (model.memory_layers, model.memory_heads, model.memory_length)
        return GTrXL(in_features, model.memory_dim, *sizes, rng)
    return MEMORIES[kind](in_features, model.memory_dim, rng)


MEMORIES: dict[str, type[GRU] | type[LSTM]] = {"gru": GRU, "lstm": LSTM}
