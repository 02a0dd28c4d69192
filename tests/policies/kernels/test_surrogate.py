"""The kernels of policy losses, of PPO and of A2C: against float64 NumPy, and against the plain form in a graph."""

import numpy as np
import pytest
from fakes import discrete, multi_discrete, needs_kernels, space_of
from float64_networks import normal
from kernel_calls import draws, result, run
from numeric import numeric_gradient

from minding.engine.process.runtime import ms, nn, to_device
from minding.policies.acting.numpy_layers import ILLEGAL
from minding.policies.networks.heads import fuse_likelihood, make_action_head
from minding.policies.ops.advantage_loss import AdvantageLoss
from minding.policies.ops.policy_gradient import SURROGATE_METRICS as METRICS
from minding.policies.ops.policy_gradient import FusedSurrogate
from minding.policies.ppo import ppo_loss

pytestmark = needs_kernels
CLOSE = {"rtol": 1e-5, "atol": 1e-6}


# Distributions.


def np_categorical(logits, action, nvec):
    """Log-probability, entropy (B,) and logarithms of all probabilities (B, S) in float64."""
    logits = logits.astype(np.float64)
    parts, log_prob, entropy = [], 0.0, 0.0
    stops = np.cumsum(nvec)
    for k, (start, stop) in enumerate(zip(stops - nvec, stops)):
        part = logits[:, start:stop] - logits[:, start:stop].max(axis=1, keepdims=True)
        log_p = part - np.log(np.exp(part).sum(axis=1, keepdims=True))
        parts.append(log_p)
        log_prob = log_prob + log_p[np.arange(len(logits)), action.reshape(len(logits), -1)[:, k]]
        entropy = entropy - (np.exp(log_p) * log_p).sum(axis=1)
    return log_prob, entropy, np.concatenate(parts, axis=1)


def categorical(logits, action, nvec):
    rows = len(logits)
    return result("categorical", (logits, action, np.cumsum(nvec, dtype=np.int32)), (rows,), (rows,), logits.shape)


def categorical_gradient(log_p, action, nvec, *given):
    return result("categorical_gradient", (log_p, action, np.cumsum(nvec, dtype=np.int32), *given), log_p.shape)


@pytest.mark.parametrize("scale", [1.0, 30.0, 1e4])
@pytest.mark.parametrize("rows", [1, 2, 8, 37])
@pytest.mark.parametrize("nvec", [(2,), (1,), (3, 1, 9)])
def test_choices_and_their_gradients(nvec, rows, scale):
    rng = np.random.default_rng(rows)
    logits = (scale * rng.uniform(-1, 1, (rows, sum(nvec)))).astype(np.float32)
    action = rng.integers(0, nvec, (rows, len(nvec))).astype(np.int32)
    action = action[:, 0].copy() if len(nvec) == 1 else action
    found = categorical(logits, action, nvec)
    for a, b in zip(found, np_categorical(logits, action, nvec)):
        np.testing.assert_allclose(a, b, rtol=2e-6, atol=2e-6)
    dlog_prob, dentropy = draws(1, (rows,), (rows,))

    def objective(x):
        log_prob, entropy, _ = np_categorical(x, action, nvec)
        return (dlog_prob * log_prob + dentropy * entropy).sum()

    slope = categorical_gradient(found[2], action, nvec, dlog_prob, dentropy)
    tolerance = CLOSE if scale == 1.0 else {"rtol": 1e-4, "atol": 1e-5}
    np.testing.assert_allclose(slope, numeric_gradient(objective, logits.astype(np.float64), 1e-5), **tolerance)


def test_illegal_choices_have_no_part_in_value_or_gradient():
    logits = np.array([[1.0, ILLEGAL, 2.0], [ILLEGAL, ILLEGAL, 0.5], [ILLEGAL] * 3], np.float32)
    action = np.array([2, 2, 1], np.int32)
    log_prob, entropy, log_p = categorical(logits, action, (3,))
    p = 1 / (1 + np.e)
    np.testing.assert_allclose(log_prob, [np.log(1 - p), 0.0, -np.log(3.0)], **CLOSE)
    expected = [-(p * np.log(p) + (1 - p) * np.log(1 - p)), 0.0, np.log(3.0)]
    np.testing.assert_allclose(entropy, expected, **CLOSE)
    slope = categorical_gradient(log_p, action, (3,), *np.ones((2, 3), np.float32))
    assert np.isfinite(slope).all()
    assert slope[0, 1] == 0.0
    assert not slope[1].any()


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_score_that_is_not_finite_shows(bad):
    logits = np.array([[0.0, 1.0, 2.0], [bad, 1.0, 2.0], [3.0, 2.0, bad]], np.float32)
    action = np.array([0, 1, 1], np.int32)
    log_prob, entropy, log_p = categorical(logits, action, (3,))
    assert np.isnan(log_prob).tolist() == np.isnan(entropy).tolist() == [False, True, True]
    slope = categorical_gradient(log_p, action, (3,), *np.ones((2, 3), np.float32))
    assert np.isfinite(slope[0]).all()
    assert np.isnan(slope[1:]).all()


@pytest.mark.parametrize("action", [-1, 3])
def test_an_action_that_does_not_exist_is_refused(action):
    logits, outputs = np.zeros((1, 3), np.float32), np.zeros((3, 3), np.float32)
    given = (logits, np.array([action], np.int32), np.array([3], np.int32))
    assert run("categorical", *given, outputs[0, :1].copy(), outputs[1, :1].copy(), outputs[:1].copy()) != 0


@pytest.mark.parametrize(("rows", "size"), [(1, 1), (7, 3), (33, 8)])
def test_a_normal_distribution_and_its_gradients(rows, size):
    mean, log_std, action, dlog_prob, dentropy = arrays = draws(2, (rows, size), (size,), (rows, size), (rows,), ())
    log_prob, entropy = result("normal", (mean, log_std, action), (rows,), ())
    mean64, log_std64, action64, *upstream = [x.astype(np.float64) for x in arrays]
    expected = normal(mean64, log_std64, action64)
    np.testing.assert_allclose(log_prob, expected[0], **CLOSE)
    np.testing.assert_allclose(entropy, expected[1], **CLOSE)

    def objective(mean, log_std):
        values = normal(mean, log_std, action64)
        return (upstream[0] * values[0]).sum() + upstream[1] * values[1]

    dmean, dlog_std = result("normal_gradient", (mean, log_std, action, dlog_prob, dentropy), mean.shape, (size,))
    expected_mean = numeric_gradient(lambda x: objective(x, log_std64), mean64)
    expected_log_std = numeric_gradient(lambda x: objective(mean64, x), log_std64)
    np.testing.assert_allclose(dmean, expected_mean, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(dlog_std, expected_log_std, rtol=1e-5, atol=2e-5)


# The objectives.

CFG = {"clip_ratio": 0.2, "value_clip": True, "value_weight": 0.5, "entropy_weight": 0.03}
NAMES = ("log_prob", "entropy", "value", "old", "old_value", "advantage", "target", "weight")


def settings(kernel, cfg):
    weights = [cfg["value_weight"], cfg["entropy_weight"]]
    clips = [cfg["clip_ratio"], cfg["clip_ratio"] if cfg["value_clip"] else -1.0]
    return np.array([*clips, *weights] if kernel == "clipped_surrogate" else weights, np.float32)


def reference(kernel, given, cfg):
    """The metrics in float64: of a clipped surrogate, or of plain policy gradients."""
    log_prob, entropy, value, old, old_value, advantage, target, weight = (given[name] for name in NAMES)

    def mean(x):
        return (x * weight).mean() / max(np.mean(weight), 1e-8)

    clip, ratio, clipped = cfg["clip_ratio"], np.exp(log_prob - old), kernel == "clipped_surrogate"
    error = (value - target) ** 2
    if clipped:
        policy = mean(np.maximum(-advantage * ratio, -advantage * np.clip(ratio, 1 - clip, 1 + clip)))
        if cfg["value_clip"]:
            error = np.maximum(error, (old_value + np.clip(value - old_value, -clip, clip) - target) ** 2)
    else:
        policy = -mean(advantage * log_prob)
    value_loss, mean_entropy = 0.5 * mean(error), mean(entropy) if entropy.ndim else entropy
    loss = policy + cfg["value_weight"] * value_loss - cfg["entropy_weight"] * mean_entropy
    kl, outside = mean(ratio - 1 - np.log(ratio)), mean(np.abs(ratio - 1) > clip)
    return np.array([loss, policy, value_loss, mean_entropy, kl, *([outside] if clipped else [])])


def rows_of_a_loss(rows, *, entropies=True, weights=True):
    rng = np.random.default_rng(rows)
    old, old_value, advantage, target = rng.standard_normal((4, rows)).astype(np.float32)
    log_prob, value = old + rng.normal(0, 0.3, rows), old_value + rng.normal(0, 0.3, rows)
    entropy = rng.uniform(0, 1, rows if entropies else ())
    weight = rng.integers(0, 2, rows) if weights else np.ones(())
    given = (log_prob, entropy, value, old, old_value, advantage, target, weight)
    return {name: np.asarray(x, np.float32) for name, x in zip(NAMES, given)}


def given_to(kernel, rows):
    return [x for name, x in rows.items() if kernel == "clipped_surrogate" or name != "old_value"]


def loss_of(kernel, rows, cfg=CFG):
    count = 6 if kernel == "clipped_surrogate" else 5
    return np.array(result(kernel, (*given_to(kernel, rows), settings(kernel, cfg)), *[()] * count))


def slopes_of(kernel, rows, cfg=CFG, scale=1.0):
    inputs = (*given_to(kernel, rows), settings(kernel, cfg), np.array(scale, np.float32))
    return result(f"{kernel}_gradient", inputs, *[rows[name].shape for name in NAMES[:3]])


KERNELS = pytest.mark.parametrize("kernel", ["clipped_surrogate", "advantage_loss"])


@KERNELS
@pytest.mark.parametrize("value_clip", [True, False])
@pytest.mark.parametrize("weights", [True, False])
@pytest.mark.parametrize("entropies", [True, False])
@pytest.mark.parametrize("rows", [1, 8, 37])
def test_the_objective_and_its_gradients(kernel, rows, entropies, weights, value_clip):
    cfg = {**CFG, "value_clip": value_clip}
    given = rows_of_a_loss(rows, entropies=entropies, weights=weights)
    doubles = {name: x.astype(np.float64) for name, x in given.items()}
    np.testing.assert_allclose(loss_of(kernel, given, cfg), reference(kernel, doubles, cfg), **CLOSE)
    for name, slope in zip(NAMES, slopes_of(kernel, given, cfg, scale=2.0)):

        def objective(x, name=name):
            return 2.0 * reference(kernel, {**doubles, name: x}, cfg)[0]

        np.testing.assert_allclose(slope, numeric_gradient(objective, doubles[name]), **CLOSE)


@KERNELS
@pytest.mark.parametrize("name", NAMES)
def test_nan_in_any_input_shows(kernel, name):
    given, clipped = rows_of_a_loss(21), kernel == "clipped_surrogate"
    given["weight"][:] = 1.0
    given[name][20] = np.nan
    if not clipped and name == "old_value":
        return
    # In plain policy gradients what the acting policy thought of an action is in the estimate of the divergence alone.
    assert np.isnan(loss_of(kernel, given)[4 if name == "old" and not clipped else 0])
    found = [bool(np.isnan(slope[20])) for slope in slopes_of(kernel, given)]
    of_policy = ("log_prob", "old", "advantage", "weight") if clipped else ("advantage", "weight")
    of_value = ("value", "target", "weight", *(["old_value"] if clipped else []))
    assert found == [name in of_policy, name == "weight", name in of_value]


@KERNELS
def test_rows_of_weight_zero_count_for_nothing(kernel):
    given = rows_of_a_loss(16)
    given["weight"][:] = 0.0
    assert not loss_of(kernel, given)[1:].any()
    assert not any(slope.any() for slope in slopes_of(kernel, given))
    assert np.isnan(loss_of(kernel, rows_of_a_loss(0))).all()
    assert [slope.shape for slope in slopes_of(kernel, rows_of_a_loss(0))] == [(0,)] * 3


def test_ratios_beyond_the_range_of_numbers():
    given = rows_of_a_loss(4, weights=False)
    given["log_prob"][:], given["old"][:] = [1e4, 1e4, -1e4, -1e4], 0.0
    given["advantage"][:] = [1.0, -1.0, 1.0, -1.0]
    loss, policy, *_ = loss_of("clipped_surrogate", given)
    # The clip bounds what a good action brings, not what a bad one costs.
    assert loss == policy == np.inf
    slope = slopes_of("clipped_surrogate", given)[0]
    assert slope.tolist() == [0.0, np.inf, 0.0, 0.0]


# In a graph.


class Plain(nn.Cell):
    def construct(self, log_prob, entropy, value, batch):
        return ppo_loss(log_prob, entropy, value, batch, CFG)


class Slopes(nn.Cell):
    """What an objective returns and its gradients: for log-probability, entropy and value, or for the parameters of a
    distribution and for the value."""

    def __init__(self, objective, given, head=None):
        super().__init__()
        self.objective, self.head, self.count = objective, head, len(given) - 1
        given = [ms.Parameter(ms.Tensor(x), name=f"given.{k}") for k, x in enumerate(given)]
        self.given = ms.ParameterTuple(given)
        self.gradient = ms.value_and_grad(self.loss, None, self.given, has_aux=True)

    def loss(self, batch):
        log_prob, entropy, value = self.given[0], self.given[1], self.given[self.count]
        if self.head is not None:
            log_prob, entropy = self.head.log_prob_entropy(self.given[: self.count], batch["action"])
        results = self.objective(log_prob, entropy, value, batch)
        return results[0], results

    @ms.jit
    def construct(self, batch):
        (loss, results), grads = self.gradient(batch)
        return loss, *results, *grads


FIELDS = ("log_prob", "value", "advantage", "return", "valid")
HEADS = {"categorical": discrete(3), "multi_categorical": multi_discrete(3, 2), "normal": space_of(2, 2)}


@pytest.mark.parametrize(
    ("name", "weights"),
    [("categorical", True), *(pytest.param(name, name != "categorical", marks=pytest.mark.slow) for name in HEADS)],
)
def test_graphs_with_the_kernels_compute_the_plain_form(name, weights):
    rows, rng = 13, np.random.default_rng(0)
    given = rows_of_a_loss(rows)
    batch = dict(zip(FIELDS, [given[name] for name in NAMES[3:]]))
    if not weights:
        del batch["valid"]
    if name == "normal":
        batch["action"] = rng.standard_normal((rows, 2, 2)).astype(np.float32)
        params = [rng.standard_normal((rows, 4)), np.full(4, -0.5)]
    else:
        nvec = [3] if name == "categorical" else [3, 2]
        batch["action"] = rng.integers(0, nvec, (rows, len(nvec))).astype(np.int32)
        params = [rng.standard_normal((rows, sum(nvec)))]
        if name == "categorical":
            batch["action"] = batch["action"][:, 0].copy()
            params[0][batch["action"] != 1, 1] = ILLEGAL
    batch["log_prob"] = rng.normal(-2.0, 0.5, rows).astype(np.float32)
    params = [x.astype(np.float32) for x in params]
    found = []
    for fused in (False, True):
        head = make_action_head(HEADS[name], 4, np.random.default_rng(0))
        if fused:
            fuse_likelihood(head)
        assert (head.fused is not None) == fused
        cell = Slopes(FusedSurrogate(CFG) if fused else Plain(), (*params, given["value"]), head)
        found.append(cell({name: to_device(x) for name, x in batch.items()}))
    assert len(found[0]) == 1 + len(METRICS) + len(params) + 1
    for a, b in zip(*found, strict=True):
        np.testing.assert_allclose(b.asnumpy(), a.asnumpy(), **CLOSE)


@pytest.mark.parametrize(("entropies", "weights"), [(True, False), pytest.param(False, True, marks=pytest.mark.slow)])
def test_the_kernel_of_plain_policy_gradients_is_the_plain_form(entropies, weights):
    given = rows_of_a_loss(13, entropies=entropies)
    batch = dict(zip(FIELDS, [given[name] for name in NAMES[3:]]))
    if not weights:
        del batch["valid"]
    found = []
    for fused in (False, True):
        objective = AdvantageLoss(CFG)
        assert objective.fused is not None
        if not fused:
            objective.fused = None
        cell = Slopes(objective, [given[name] for name in NAMES[:3]])
        found.append(cell({name: to_device(x) for name, x in batch.items()}))
    assert len(found[0]) == 1 + 5 + 3
    for plain, fused in zip(*found, strict=True):
        np.testing.assert_allclose(fused.asnumpy(), plain.asnumpy(), **CLOSE)
