"""Memories: one step in float64, the compiled and the NumPy form, gradients, and what acts with them."""

import functools

import numpy as np
import pytest
from fakes import VECTOR, discrete, needs_kernels

from minding.engine.process.runtime import ms, nn, to_device
from minding.policies import get_policy_class
from minding.policies.networks.fused import fuse_layers
from minding.policies.networks.recurrent import GRU, LSTM, GTrXL

FEATURES, SIZE = 3, 5
LAYERS, HEADS, LENGTH = 2, 2, 3
"""Of a `GTrXL`, which remembers fewer steps than the sequences below have."""
MEMORY = {"policy.model.memory": "gru", "policy.model.memory_dim": SIZE}


def numbers(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def built(kind, size):
    sizes = (size, LAYERS, HEADS, LENGTH) if kind is GTrXL else (size,)
    return kind(FEATURES, *sizes, np.random.default_rng(0))


def drawn(kind, size):
    made, scale = built(kind, size), 0.5 if kind is GTrXL else 1.0
    for seed, p in enumerate(made.get_parameters()):
        p.asnumpy()[...] = scale * numbers(*p.shape, seed=seed)
    return made


def memory_rows(count, cell):
    """Random memory rows; a `GTrXL` has some of its steps in the episode."""
    rows = numbers(count, cell.size, seed=9)
    if isinstance(cell, GTrXL):
        marks = rows[:, cell.out_features : cell.out_features + LENGTH]
        marks[...] = marks > 0.0
        marks[0] = 0.0, 1.0, 1.0
    return rows


@pytest.fixture(scope="module", params=[(GRU, SIZE), (LSTM, SIZE), (GTrXL, 6)])
def cell(request):
    return drawn(*request.param)


def sigmoid(x):
    return 1.0 / (1.0 + np.exp(-x))


def gru_step(weights, x, h):
    w, b, u, c = weights
    size = h.shape[-1]
    given, kept = x @ w.T + b, h @ u.T + c
    r, z = (sigmoid(given[:, k : k + size] + kept[:, k : k + size]) for k in (0, size))
    n = np.tanh(given[:, 2 * size :] + r * kept[:, 2 * size :])
    return (1.0 - z) * n + z * h


def lstm_step(weights, x, rows):
    w, b, u, c = weights
    h, cell = np.split(rows, 2, axis=-1)
    i, f, o, g = np.split(x @ w.T + b + h @ u.T + c, 4, axis=-1)
    cell = sigmoid(f) * cell + sigmoid(i) * np.tanh(g)
    return np.concatenate([sigmoid(o) * np.tanh(cell), cell], axis=-1)


def gtrxl_step(weights, x, rows):
    return gtrxl_rows(dict(zip(names_of_gtrxl(), weights, strict=True)), x, rows)


@functools.cache
def names_of_gtrxl():
    return [name for name, _ in built(GTrXL, HEADS).parameters_and_names()]


def gtrxl_rows(p, x, rows):
    """The formula, row by row, head by head and step by step; p: the parameters by name."""
    size = len(p["inputs.bias"])
    marks, states = np.split(rows[:, size:], [LENGTH], axis=1)
    states = states.reshape(len(rows), LAYERS, LENGTH, size)
    made = []
    for token, marked, before in zip(x @ p["inputs.weight"].T + p["inputs.bias"], marks, states):
        e = token
        seen, after = [s for s in range(LENGTH) if marked[s] > 0.5], []
        for layer in range(LAYERS):
            own = {name.partition(f"layers.{layer}.")[2]: value for name, value in p.items()}
            after += [*before[layer, 1:], e]
            e = gtrxl_layer(own, e, [(LENGTH - s, before[layer, s]) for s in seen])
        made.append(np.concatenate([e, marked[1:], [1.0], *after]))
    return np.stack(made)


def gtrxl_layer(p, x, before):
    """A layer for one step and the steps before it, pairs of a distance and an input."""

    def linear(name, x):
        return p[f"{name}.weight"] @ x + p[f"{name}.bias"]

    def norm(k, x):
        return (x - x.mean()) / np.sqrt(x.var() + 1e-5) * p[f"norms.{k}.weight"] + p[f"norms.{k}.bias"]

    def gate(k, x, y):
        given = [p[f"gates.{k}.{part}.{name}"] for part in ("inputs", "recurrent") for name in ("weight", "bias")]
        return gru_step(given, np.maximum(y, 0.0)[None], x[None])[0]

    half, part = (len(x) + 1) // 2, len(x) // HEADS
    steps = [(d, linear("keys_values", norm(0, e))) for d, e in [*before, (0, x)]]
    query, found = linear("query", norm(0, x)), []
    for head in range(HEADS):
        places, scores = slice(head * part, (head + 1) * part), []
        for d, key_value in steps:
            angle = d / 10_000.0 ** (np.arange(half) / half)
            place = p["position"] @ np.concatenate([np.sin(angle), np.cos(angle)])[: len(x)]
            score = query[places] @ key_value[: len(x)][places] + (query + p["offset"])[places] @ place[places]
            scores.append(score / np.sqrt(part))
        weights = np.exp(np.array(scores) - max(scores))
        found.append(weights / weights.sum() @ np.stack([key_value[len(x) :][places] for _, key_value in steps]))
    x = gate(0, x, linear("joined", np.concatenate(found)))
    return gate(1, x, linear("narrow", np.maximum(linear("wide.layers.0", norm(1, x)), 0.0)))


FORMULAS = {GRU: gru_step, LSTM: lstm_step, GTrXL: gtrxl_step}


def weights_of(cell):
    return [p.asnumpy().astype(np.float64) for p in cell.get_parameters()]


def test_the_forget_gate_of_an_lstm_starts_open():
    # It is the second of four.
    assert LSTM(1, 1, np.random.default_rng(0)).inputs.bias.asnumpy().tolist() == [0.0, 1.0, 0.0, 0.0]


@pytest.mark.parametrize("scale", [1.0, 1000.0])
def test_both_forms_equal_the_formula(cell, scale):
    x, before = scale * numbers(7, FEATURES, seed=8), memory_rows(7, cell)
    # The numbers of a GTrXL have no bound.
    rtol = 1e-5 if isinstance(cell, GTrXL) else 0.0
    with np.errstate(over="ignore"):
        expected = FORMULAS[type(cell)](weights_of(cell), x.astype(np.float64), before.astype(np.float64))
    for features, rows in (cell.host()(x, before), [each.asnumpy() for each in cell(to_device(x), to_device(before))]):
        np.testing.assert_allclose(rows, expected, rtol=rtol, atol=1e-5)
        assert np.array_equal(features, rows[:, : cell.out_features])


# Acting


@pytest.fixture
def build(tiny_config):
    def make(observation=VECTOR, **overrides):
        cfg = tiny_config("ppo", observation, discrete(3), **MEMORY, **overrides)
        return get_policy_class("ppo")(cfg, modes=("collect", "eval"))

    return make


@pytest.mark.parametrize("backend", ["numpy", "graph"])
def test_what_is_remembered_is_what_the_network_last_returned(build, backend):
    mode = build(**{"policy.collect.backend": backend}).collect_mode
    assert mode.memory is None
    assert mode.record_fields == ("log_prob", "value", "memory")
    outputs, expected = mode.actor.outputs, np.zeros((3, SIZE), np.float32)
    for t in range(4):
        obs = numbers(3, 4, seed=t)
        if t == 2:
            mode.reset(np.array([1]))
            expected = expected * np.float32([[1], [0], [1]])
        record = mode.forward(obs)
        assert np.array_equal(record["memory"], expected)
        value, _, following = outputs(obs, expected)
        assert np.array_equal(record["value"], value)
        assert np.array_equal(mode.memory, following)
        expected = following
    # A look at the value takes nothing in.
    assert np.array_equal(mode.value(obs), outputs(obs, expected)[0])
    assert np.array_equal(mode.memory, expected)
    mode.reset()
    assert not mode.forward(numbers(2, 4))["memory"].any()


def test_collecting_and_evaluating_remember_their_own(build):
    policy = build()
    obs = numbers(3, 4)
    policy.collect_mode.forward(obs)
    remembered = policy.collect_mode.memory.copy()
    alone = build()
    for t in range(3):
        other = numbers(5, 4, seed=t)
        assert np.array_equal(policy.eval_mode.forward(other), alone.eval_mode.forward(other))
    policy.eval_mode.reset()
    assert np.array_equal(policy.collect_mode.memory, remembered)


# Sequences

STEPS, SEQUENCES = 4, 3
BEGUN = np.zeros((STEPS, SEQUENCES), np.float32)
BEGUN[[0, 2, 3, 3], [1, 0, 0, 2]] = 1.0


def unrolled(one_step, weights, x, h, size):
    made = []
    for t in range(STEPS):
        h = one_step(weights, x[t], h * (1.0 - BEGUN[t, :, None]))
        made.append(h[:, :size])
    return np.stack(made)


class Unrolling(nn.Cell):
    def __init__(self, cell, out):
        super().__init__()
        self.cell, self.out = cell, out
        self.begun = ms.Tensor(BEGUN.reshape(-1))
        self.params = ms.ParameterTuple(list(cell.get_parameters()))
        self.gradient = ms.value_and_grad(self.loss, (0, 1), self.params, has_aux=True)

    def loss(self, x, rows):
        made = self.cell.unroll(x, rows, self.begun)
        return (self.out * made).sum(), made

    @ms.jit
    def construct(self, x, rows):
        return self.gradient(x, rows)


@pytest.mark.parametrize(
    ("kind", "form", "size"),
    [
        (GRU, "plain", 5),
        *[pytest.param(GRU, "fused", size, marks=needs_kernels) for size in (5, 8, 19)],
        pytest.param(LSTM, "plain", 5, marks=pytest.mark.slow),
        *[pytest.param(LSTM, "fused", size, marks=needs_kernels) for size in (5, 8, 19)],
        pytest.param(GTrXL, "plain", 6, marks=pytest.mark.slow),
        pytest.param(GTrXL, "fused", 6, marks=needs_kernels),
    ],
)
def test_sequences_are_consecutive_steps_with_gradients(kind, form, size):
    cell, one_step = drawn(kind, size), FORMULAS[kind]
    if form == "fused":
        fuse_layers(cell)
        assert (cell.layers[0].gates[0] if kind is GTrXL else cell).fused is not None
    x, h = numbers(STEPS, SEQUENCES, FEATURES, seed=8), memory_rows(SEQUENCES, cell)
    out = numbers(STEPS, SEQUENCES, size, seed=10)
    graph = Unrolling(cell, to_device(out.reshape(-1, size)))
    (_, made), (by_input, by_weights) = graph(to_device(x.reshape(-1, FEATURES)), to_device(h))
    arrays = [*weights_of(cell), x.astype(np.float64), h.astype(np.float64)]
    expected = unrolled(one_step, arrays[:-2], *arrays[-2:], size)
    np.testing.assert_allclose(made.asnumpy(), expected.reshape(-1, size), atol=1e-5)
    found = [g.asnumpy() for g in (*by_weights, *by_input)]
    found[-2] = found[-2].reshape(x.shape)
    rng = np.random.default_rng(0)
    for k, (array, gradient) in enumerate(zip(arrays, found, strict=True)):
        direction, sides = rng.standard_normal(array.shape), []
        for step in (1e-6, -1e-6):
            moved = [*arrays[:k], array + step * direction, *arrays[k + 1 :]]
            sides.append((out * unrolled(one_step, moved[:-2], *moved[-2:], size)).sum())
        slope = (sides[0] - sides[1]) / 2e-6
        assert (gradient * direction).sum() == pytest.approx(slope, rel=1e-4, abs=1e-4), k
    # Nothing flows back over a beginning.
    assert not found[-1][1].any()
    assert found[-1][0].any()


class TakingIn(nn.Cell):
    def __init__(self, cell):
        super().__init__()
        self.cell = cell

    @ms.jit
    def construct(self, x, rows, counted):
        return self.cell.take_in(x, rows, counted)


@pytest.mark.parametrize("kind", [GRU, LSTM, GTrXL])
def test_what_is_left_out_of_a_memory_changes_nothing(kind):
    cell = built(kind, 6 if kind is GTrXL else SIZE)
    x, rows = numbers(STEPS, SEQUENCES, FEATURES, seed=8), memory_rows(SEQUENCES, cell)
    # All of the first sequence, the last two of the second, nothing of the third.
    counted = np.array([[1, 0, 0], [1, 0, 0], [1, 1, 0], [1, 1, 0]], np.float32)
    found = TakingIn(cell)(to_device(x.reshape(-1, FEATURES)), to_device(rows), to_device(counted)).asnumpy()
    for n, first in enumerate((0, 2, 4)):
        h = rows[n : n + 1].astype(np.float64)
        for t in range(first, STEPS):
            h = FORMULAS[kind](weights_of(cell), x[t, n : n + 1].astype(np.float64), h)
        np.testing.assert_allclose(found[n], h[0], rtol=1e-5 if kind is GTrXL else 0.0, atol=1e-6)
    assert np.array_equal(found[2], rows[2])
