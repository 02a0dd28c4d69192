"""The kernels of the loss of A2C and AC: against float64 NumPy, and against the plain form in a graph."""

import numpy as np
import pytest
from fakes import needs_kernels
from kernel_calls import result
from numeric import numeric_gradient

from minding.engine.process.runtime import ms, nn, to_device
from minding.policies.ops.policy_gradient import ADVANTAGE_METRICS as METRICS
from minding.policies.ops.policy_gradient import AdvantageLoss

pytestmark = needs_kernels
CLOSE = {"rtol": 1e-5, "atol": 1e-6}
CFG = {"value_weight": 0.7, "entropy_weight": 0.03}
SETTINGS = np.array([0.7, 0.03], np.float32)


def np_loss(log_prob, entropy, value, old, advantage, target, weight):
    def mean(x):
        return (x * weight).mean() / max(np.mean(weight), 1e-8)

    policy, value_loss = -mean(advantage * log_prob), 0.5 * mean((value - target) ** 2)
    mean_entropy = mean(entropy) if entropy.ndim else entropy
    log_ratio = log_prob - old
    kl = mean(np.exp(log_ratio) - 1 - log_ratio)
    return np.array([policy + 0.7 * value_loss - 0.03 * mean_entropy, policy, value_loss, mean_entropy, kl])


def rows_of_a_loss(rows, *, entropies=True, weights=True):
    rng = np.random.default_rng(rows)
    old, value, advantage, target = rng.standard_normal((4, rows))
    entropy = rng.uniform(0, 1, rows if entropies else ())
    weight = rng.integers(0, 2, rows) if weights else np.ones(())
    given = (old + rng.normal(0, 0.3, rows), entropy, value, old, advantage, target, weight)
    return [np.asarray(x, np.float32) for x in given]


def loss_of(given):
    return np.array(result("advantage_loss", (*given, SETTINGS), *[()] * len(METRICS)))


def slopes_of(given, scale=1.0):
    inputs = (*given, SETTINGS, np.array(scale, np.float32))
    return result("advantage_loss_gradient", inputs, *[x.shape for x in given[:3]])


@pytest.mark.parametrize("weights", [True, False])
@pytest.mark.parametrize("entropies", [True, False])
@pytest.mark.parametrize("rows", [1, 8, 37])
def test_the_loss_and_its_gradients(rows, entropies, weights):
    given = rows_of_a_loss(rows, entropies=entropies, weights=weights)
    doubles = [x.astype(np.float64) for x in given]
    np.testing.assert_allclose(loss_of(given), np_loss(*doubles), **CLOSE)
    for k, slope in enumerate(slopes_of(given, scale=2.0)):

        def objective(x, k=k):
            return 2.0 * np_loss(*doubles[:k], x, *doubles[k + 1 :])[0]

        np.testing.assert_allclose(slope, numeric_gradient(objective, doubles[k]), **CLOSE)


@pytest.mark.parametrize("k", range(7))
def test_nan_in_any_input_shows(k):
    given = rows_of_a_loss(21)
    given[6][:] = 1.0
    given[k][20] = np.nan
    # What the acting policy thought of an action is in the estimate of the divergence alone.
    assert np.isnan(loss_of(given)[4 if k == 3 else 0])
    slopes = slopes_of(given)
    assert [bool(np.isnan(slope[20])) for slope in slopes] == [k in (4, 6), k == 6, k in (2, 5, 6)]


def test_rows_of_weight_zero_count_for_nothing():
    given = rows_of_a_loss(16)
    given[6][:] = 0.0
    assert not loss_of(given).any()
    assert not any(slope.any() for slope in slopes_of(given))


def test_the_mean_over_no_rows_is_nan():
    assert np.isnan(loss_of(rows_of_a_loss(0))).all()
    assert [slope.shape for slope in slopes_of(rows_of_a_loss(0))] == [(0,)] * 3


class Slopes(nn.Cell):
    """Loss, metrics, and the gradients of the loss for log-probability, entropy and value."""

    def __init__(self, given, fused):
        super().__init__()
        parameters = [ms.Parameter(ms.Tensor(x), name=f"given.{k}") for k, x in enumerate(given)]
        self.given = ms.ParameterTuple(parameters)
        self.objective = AdvantageLoss(CFG)
        assert self.objective.fused is not None
        if not fused:
            self.objective.fused = None
        self.gradient = ms.value_and_grad(self.loss, None, self.given, has_aux=True)

    def loss(self, batch):
        results = self.objective(self.given[0], self.given[1], self.given[2], batch)
        return results[0], results

    @ms.jit
    def construct(self, batch):
        (loss, results), grads = self.gradient(batch)
        return loss, *results, *grads


@pytest.mark.parametrize(("entropies", "weights"), [(True, False), pytest.param(False, True, marks=pytest.mark.slow)])
def test_a_graph_with_the_kernels_computes_the_plain_form(entropies, weights):
    given = rows_of_a_loss(13, entropies=entropies)
    batch = dict(zip(("log_prob", "advantage", "return", "valid"), given[3:]))
    if not weights:
        del batch["valid"]
    found = [Slopes(given[:3], fused)({name: to_device(x) for name, x in batch.items()}) for fused in (False, True)]
    assert len(found[0]) == 1 + len(METRICS) + 3
    for plain, fused in zip(*found, strict=True):
        np.testing.assert_allclose(fused.asnumpy(), plain.asnumpy(), **CLOSE)
