"""Updates that end in NaN or infinity: stopped with their batch, or undone."""

import types

import numpy as np
import pytest

from minding.engine.data.batch import Field, IndexedBatch, RowLayout
from minding.engine.errors import NonFiniteError
from minding.engine.types import LearnOutput
from minding.policies.learning.update import MAX_SKIPS_IN_A_ROW, LearnGuard

pytestmark = pytest.mark.eager

LAYOUT = RowLayout({"reward": Field(), "action": Field((), "int32"), "image": Field((2,), "uint8")})
BAD = {"loss": float("nan")}
GOOD = {"loss": 0.5}


class Weights:
    """State of one weight, which each call moves by 1, and the metrics that it is told to report."""

    def __init__(self):
        self.weight = np.zeros(2, np.float32)
        self.metrics = GOOD

    def learn(self, batch):
        self.weight = self.weight + 1
        return LearnOutput(self.metrics, steps=1)

    def state_dict(self):
        return {"params": {"net.weight": self.weight.copy()}}

    def load_state_dict(self, state):
        self.weight = state["params"]["net.weight"]


def guard(weights, on_nan):
    made = LearnGuard("dqn", on_nan, weights)

    def learn(batch):
        before = made.state()
        return made.checked(weights.learn(batch), batch, before)

    return learn


@pytest.fixture
def batch():
    values = {
        "reward": np.array([0, 10, 20, 30], np.float32),
        "action": np.array([0, 1, 2, 3]),
        "image": np.arange(8, dtype=np.uint8).reshape(4, 2),
    }
    tables = types.SimpleNamespace(host=LAYOUT.pack(values))
    return IndexedBatch(LAYOUT, tables, np.array([[3, 1], [1, 1]], np.int32))


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_skip_finds_a_bad_parameter_with_finite_metrics(batch, value, caplog):
    weights = Weights()

    def learn(batch):
        weights.weight = np.array([0, value], np.float32)
        return LearnOutput(GOOD, steps=1)

    weights.learn = learn
    assert guard(weights, "skip")(batch).metrics["skipped"] == 1.0
    assert weights.weight.tolist() == [0.0, 0.0]
    assert "parameter net.weight is NaN or infinite after this update: it was undone" in caplog.text


def test_a_hundred_skips_in_a_row_end_the_run_with_the_batch(batch, caplog):
    weights = Weights()
    learn = guard(weights, "skip")
    weights.metrics = BAD
    for _ in range(99):
        learn(batch)
    weights.metrics = GOOD
    learn(batch)
    weights.metrics = BAD
    for _ in range(99):
        learn(batch)
    with pytest.raises(NonFiniteError, match="loss is nan after each of the last 100 updates") as caught:
        learn(batch)
    assert (MAX_SKIPS_IN_A_ROW, len(caplog.records)) == (100, 1)
    assert caught.value.batch["reward"].tolist() == [10.0, 30.0]
    assert weights.weight.tolist() == [1.0, 1.0]
