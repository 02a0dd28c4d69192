"""The gradient steps of a call: their order, and priorities."""

import dataclasses
import types
import warnings

import kit
import numpy as np
import pytest
from fakes import VECTOR, Batches, action_of, rows_of, set_rate
from of_algorithms import constant

from minding.engine.data.batch import Field, IndexedBatch
from minding.engine.process.compiled import RecompileWarning
from minding.engine.process.runtime import ms, nn, ops, to_device
from minding.policies import ALGORITHMS, get_policy_class, kernels
from minding.policies.learning.optim import Group, Optimizer
from minding.policies.learning.steps import PRIORITY, GradientStep, Inputs
from minding.policies.learning.update import Update
from minding.policies.ops.primitives import after

ROWS = 8


class StepThenAct(nn.Cell):
    def __init__(self, loop):
        super().__init__(auto_prefix=False)
        self.loop, self.net = loop, loop.root.net

    @ms.jit
    def construct(self, obs, remembered, *inputs):
        total = self.loop.construct(*inputs)
        return self.net((after(obs, total), *remembered))


# The order is the optimizer's: for one group, for several with targets, and with a memory. DQN, and PPO without
# kernels, read the new weights even where nothing orders it.
@pytest.mark.parametrize(
    ("algorithm", "form"),
    [
        ("ppo", "kernels"),
        ("sac", "kernels"),
        pytest.param("r2d2", "kernels", marks=pytest.mark.slow),
        pytest.param("sac", "plain", marks=pytest.mark.slow),
    ],
)
def test_a_forward_pass_after_a_step_reads_the_new_weights(algorithm, form, tiny_config, monkeypatch):
    if form == "plain":
        monkeypatch.setattr(kernels, "compiled", lambda: False)
    action = action_of(ALGORITHMS[algorithm].actions)
    policy = get_policy_class(algorithm)(tiny_config(algorithm, VECTOR, action, **constant(algorithm, "MOVES", {})))
    set_rate(policy, 0.05)
    batches = Batches(policy, ROWS)
    values = rows_of(batches.layout, ROWS, np.random.default_rng(0), {"action": 2, **batches.sizes})
    sequences = {"cut", "memory"} & batches.layout.fields.keys()
    index = np.arange(ROWS).reshape(1, 4, 2) if sequences else np.arange(ROWS)[None]
    batch = batches(values, index)
    loop, inputs = kit.one_step(policy, batch)
    obs, act = values["obs"], policy.actors["eval"].outputs
    before = [x.copy() for x in act(obs)]
    remembered = (to_device(np.zeros((ROWS, policy.net.memory_size), np.float32)),) if "memory" in sequences else ()
    found = StepThenAct(loop)(to_device(obs), remembered, *inputs)
    for old, new, made in zip(before, act(obs), found):
        np.testing.assert_allclose(made.asnumpy(), new, rtol=1e-3, atol=1e-4)
        assert np.abs(new - old).max() > 1e-2


class Errors(GradientStep):
    """Moves one weight by the sum of the rows' numbers; the priority of a row is its distance from the weight."""

    metrics = ("weight",)
    prioritized = True

    def __init__(self):
        super().__init__()
        self.weight = ms.Parameter(ms.Tensor(np.float32(0.0)), name="weight")

    def construct(self, batch):
        number = batch["number"]
        weight = self.weight + 0.0
        distance = ops.abs(number - weight) * batch["scale"]
        moved = ops.assign(self.weight, ops.depend(weight + number.sum(), distance))
        return {"weight": ops.depend(weight, moved), PRIORITY: ops.depend(distance, moved)}


@pytest.fixture
def drawn():
    """Batches of the numbers 1, 2, 4, 8 by their indices."""
    policy = types.SimpleNamespace(
        learn_mode=types.SimpleNamespace(fields={"number": Field()}), spec={"action": {"kind": "box"}}
    )
    batches = Batches(policy, 4)
    return lambda index: batches({"number": np.array([1.0, 2.0, 4.0, 8.0], np.float32)}, index)


@pytest.mark.parametrize("steps", [1, 3])
def test_each_drawn_row_gets_the_priority_of_its_step(steps, drawn):
    batch = drawn(np.array([[0, 1], [1, 1], [3, 0]])[:steps])
    scale = np.array([1.0, 10.0, 100.0], np.float32)[:steps]
    output = Update(Errors(), "test", ["number"])(batch, Inputs({"scale": scale}))
    # The weight is 0, then 1 + 2 = 3, then 3 + 2 + 2 = 7.
    expected = [[1.0, 2.0], [10.0, 10.0], [100.0, 600.0]][:steps]
    assert output.priorities.tolist() == expected
    assert (output.steps, output.metrics["weight"]) == (steps, pytest.approx(np.mean([0.0, 3.0, 7.0][:steps])))


def test_sequences_of_a_fourth_length_are_reported(drawn):
    update, inputs = Update(Errors(), "test", ["number"]), Inputs({}, constants={"scale": np.float32(1.0)})
    first = drawn(np.zeros((1, 4, 2), np.int32))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        weights = []
        for length in (4, 2, 1, 4):
            batch = IndexedBatch(first.layout, first.tables, first.index[:, :length].copy())
            weights.append(update(batch, inputs).metrics["weight"])
        assert weights == [0.0, 8.0, 12.0, 14.0]
        assert update.signatures == 3
        with pytest.raises(RecompileWarning, match="keep to 3 lengths"):
            update(IndexedBatch(first.layout, first.tables, first.index[:, :3].copy()), inputs)


class Descend(nn.Cell):
    def __init__(self, **groups):
        super().__init__()
        self.optim = Optimizer(**groups)

    @ms.jit
    def construct(self, rate, grad, both):
        rates = {"rate_fast": rate, "rate_slow": rate * 0.1}
        norms = self.optim({"fast": (grad,)}, rates, grad)
        if both > 0.0:
            norms = {"fast": self.optim({"slow": (grad,)}, rates, grad)["slow"]}
        return norms


@pytest.mark.parametrize("form", ["kernels", "plain"])
def test_each_named_group_is_moved_in_its_own_way(form, monkeypatch):
    if form == "plain":
        monkeypatch.setattr(kernels, "compiled", lambda: False)
    start = np.array([1.0, -2.0, 0.5], np.float32)
    params = {name: ms.Parameter(ms.Tensor(start), name=name) for name in ("fast", "slow")}
    descend = Descend(
        fast=Group(params=[params["fast"]], rate=0.1, method="adamw", betas=(0.8, 0.9), eps=1e-3, weight_decay=0.5),
        slow=Group(params=[params["slow"]], rate=0.01, method="rmsprop", betas=(0.9, 0.7), eps=1e-2),
    )
    fast, slow = start.astype(np.float64), start.astype(np.float64)
    m, v, square = 0.0, 0.0, 0.0
    for t in range(1, 6):
        grad = np.random.default_rng(t).standard_normal(3).astype(np.float32)
        descend(*map(to_device, (np.array([0.1], np.float32), grad, np.float32([t % 2 == 0]))))
        m, v = 0.8 * m + 0.2 * grad, 0.9 * v + 0.1 * grad.astype(np.float64) ** 2
        fast = fast * (1 - 0.1 * 0.5) - 0.1 * (m / (1 - 0.8**t)) / (np.sqrt(v / (1 - 0.9**t)) + 1e-3)
        if t % 2 == 0:
            square = 0.7 * square + 0.3 * grad.astype(np.float64) ** 2
            slow = slow - 0.01 * grad / (np.sqrt(square) + 1e-2)
        np.testing.assert_allclose(params["fast"].asnumpy(), fast, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(params["slow"].asnumpy(), slow, rtol=1e-4, atol=1e-5)


def test_step_sizes_follow_the_schedule_of_their_group():
    params = [ms.Parameter(ms.Tensor(np.zeros(1, np.float32)), name=name) for name in "ab"]
    optim = Optimizer(a=Group(params=params[:1], rate=0.5, anneal=True), b=Group(params=params[1:], rate=0.25))
    assert optim.rates(0.5) == {"rate_a": 0.25, "rate_b": 0.25}
    # The names do not depend on whether the learning rates happen to be equal at the moment.
    assert optim.reported_rates([0.5]) == {"learning_rate_a": 0.25, "learning_rate_b": 0.25}
    assert optim.reported_rates([0.5, 1.0]) == {"learning_rate_a": 0.125, "learning_rate_b": 0.25}
    points = [[0.0, 1.0], [0.5, 0.5], [1.0, 0.25]]
    piecewise = Group(params=params, rate=0.5, anneal=True, kind="piecewise", points=points)
    alike = Optimizer(
        a=dataclasses.replace(piecewise, params=params[:1]), b=dataclasses.replace(piecewise, params=params[1:])
    )
    assert alike.reported_rates([0.5]) == {"learning_rate": 0.25}
    linear = dataclasses.replace(piecewise, params=params[:1], kind="linear", points=())
    other = Optimizer(a=linear, b=dataclasses.replace(piecewise, params=params[1:]))
    assert other.reported_rates([0.0]) == {"learning_rate_a": 0.5, "learning_rate_b": 0.5}
    assert [piecewise.rate_at(progress) for progress in (0.0, 0.5, 0.75, 1.0)] == [0.5, 0.25, 0.1875, 0.125]
