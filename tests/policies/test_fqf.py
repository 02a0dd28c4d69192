"""FQF: its network and one update against float64 NumPy, the fractions that it proposes."""

import kit
import numpy as np
import pytest
from action_values import (
    ACTIONS,
    ALTERNATIVES,
    AT,
    BATCH,
    DUELING,
    LEARNS,
    MASKED,
    PRIORITIZED,
    SIGNATURES,
    learn,
    linear,
    np_features,
    np_heads,
    np_quantile_huber,
    np_returns,
    random_rows,
    shift_target,
    value_benches,
)
from fakes import VECTOR, discrete, draw_masks
from float64_networks import moved

from minding.engine.process.runtime import to_device

COUNT, COSINES, ENTROPY = 4, 6, 0.3
SMALL = {"policy.model.n_cosines": COSINES, "policy.model.n_fractions": COUNT}
CONTRACT = {
    "fqf": (
        VECTOR,
        discrete(ACTIONS),
        {**SMALL, **PRIORITIZED, "policy.learn.target.freq": 4, "policy.model.dueling": True},
    ),
}
LEARNS = {**LEARNS, "policy.model.n_cosines": 16, "policy.model.n_fractions": 8}
RESUMES = {}
"""IQN's has all that it keeps, and more draws."""
__all__ = ["ALTERNATIVES", "SIGNATURES"]


def uneven(bench):
    """Fractions that are not nearly even, a target that differs, and steps that change nothing."""
    shift_target(bench)
    bench.root.net.proposal.weight.asnumpy()[...] *= 100.0
    bench.hold_still()


KINDS = {
    "double, prioritized": PRIORITIZED,
    "plain, dueling": {**DUELING, "learn": {"double": False, "kappa": 0.5, "fraction_entropy": ENTROPY}},
}
built, bench, each = value_benches("fqf", KINDS, uneven, learn={"grad_norm": 0.0}, **SMALL)


def quantiles(p, part, obs, fractions):
    """Quantiles (B, A, N) at fractions (B, N)."""
    features, made = np_features(p, f"{part}.quantile", obs), []
    for tau in fractions.T:
        cosines = np.cos(np.pi * np.arange(COSINES) * tau[:, None])
        seen = features * np.maximum(linear(p, f"{part}.quantile.embedding.layers.0", cosines), 0.0)
        made.append(np_heads(p, f"{part}.quantile", seen))
    return np.stack(made, axis=2)


def proposed(p, obs, features_of=None):
    """The distances of the fractions (B, N), and their middles; `features_of`: parameters that no gradient moves."""
    logits = linear(p, "net.proposal", np_features(features_of or p, "net.quantile", obs))
    shares = np.exp(logits - logits.max(axis=1, keepdims=True))
    shares /= shares.sum(axis=1, keepdims=True)
    return shares, np.cumsum(shares, axis=1) - 0.5 * shares


def values(p, part, obs):
    shares, middles = proposed(p, obs)
    return (shares[:, None, :] * quantiles(p, part, obs, middles)).sum(axis=2)


def quantile_loss(p, start, rows, goal, kappa):
    """The loss of each row, (B,); `start`: the parameters that propose the fractions."""
    _, middles = proposed(start, rows["obs"])
    chosen = quantiles(p, "net", rows["obs"], middles)[AT, rows["action"]]
    return np_quantile_huber(chosen, middles, goal, kappa) / kappa


def fraction_loss(p, start, rows, weight):
    """L_P; `start`: the parameters of which the quantiles are."""
    slopes = []
    shares, middles = proposed(start, rows["obs"])
    for i in range(COUNT - 1):
        places = np.stack([shares[:, : i + 1].sum(axis=1), middles[:, i], middles[:, i + 1]], axis=1)
        at, below, above = quantiles(start, "net", rows["obs"], places)[AT, rows["action"]].T
        slopes.append(2.0 * at - below - above)
    shares, _ = proposed(p, rows["obs"], start)
    entropy = -(shares * np.log(shares)).sum(axis=1).mean()
    inner = np.cumsum(shares, axis=1)[:, :-1]
    return (inner * np.stack(slopes, axis=1)).sum(axis=1).mean() - weight * entropy, entropy


def test_the_update_computes_the_losses_of_its_formulas_and_their_gradients(each):
    p, kappa, double = each.params, each.settings.kappa, each.root.double
    rows, weight, output = learn(each)
    of_target, online = (values(p, part, rows["next_obs"]) for part in ("target", "net"))
    assert (of_target.argmax(axis=1) != online.argmax(axis=1)).any()
    best = (online if double else of_target).argmax(axis=1)
    _, middles = proposed(p, rows["next_obs"])
    assert middles.std(axis=0).max() > 0.02
    goal = np_returns(rows, quantiles(p, "target", rows["next_obs"], middles)[AT, best])
    of_rows, entropy_weight = quantile_loss(p, p, rows, goal, kappa), each.settings.fraction_entropy
    of_fractions, entropy = fraction_loss(p, p, rows, entropy_weight)
    expected = {
        "loss": (weight * of_rows).mean(),
        "q_value": values(p, "net", rows["obs"])[AT, rows["action"]].mean(),
        "fraction_loss": of_fractions,
        "fraction_entropy": entropy,
    }
    kit.check_metrics(output.metrics, expected, rel=1e-4, abs=1e-5)
    if each.policy.learn_mode.prioritized:
        _, own = proposed(p, rows["obs"])
        chosen = quantiles(p, "net", rows["obs"], own)[AT, rows["action"]]
        errors = np.abs(goal.mean(axis=1) - chosen.mean(axis=1))
        np.testing.assert_allclose(output.priorities, [errors] * 2, rtol=1e-4, atol=1e-5)
    # Both steps have the same gradient; Adam's first moment is 0.19 of it.
    optim, known = each.root.optim, {id(q): name for name, q in each.policy.params.items()}
    found = [m.asnumpy().astype(np.float64) / 0.19 for m in optim.steps[optim.names.index("net")].m]
    names = [known[id(q)] for q in optim.groups["net"].params]
    assert all(name.startswith("net.quantile.") for name in names)
    kit.check_slopes(lambda x: (weight * quantile_loss(x, p, rows, goal, kappa)).mean(), p, names, found)
    # RMSProp keeps squares: 0.05 and 0.95 * 0.05 of those of the gradient.
    squares = [v.asnumpy().astype(np.float64) / 0.0975 for v in optim.steps[optim.names.index("fractions")].v]
    for name, square in zip(("net.proposal.weight", "net.proposal.bias"), squares, strict=True):
        for at in np.ndindex(square.shape):
            sides = []
            for step in (1e-6, -1e-6):
                changed = p[name].copy()
                changed[at] += step
                sides.append(fraction_loss({**p, name: changed}, p, rows, entropy_weight)[0])
            slope = (sides[0] - sides[1]) / 2e-6
            assert np.sqrt(square[at]) == pytest.approx(abs(slope), rel=1e-3, abs=1e-5), (name, at)


def test_acting_weighs_quantiles_by_the_distance_of_their_fractions_and_obeys_masks(built):
    bench = built()
    obs = np.random.default_rng(3).standard_normal((20, 4)).astype(np.float32)
    expected = values(bench.params, "net", obs)
    for found in (bench.policy.net((to_device(obs),))[0].asnumpy(), bench.policy.net.host()((obs,))[0]):
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
    policy = kit.make_policy("fqf", MASKED, discrete(ACTIONS), **SMALL)
    mask = draw_masks((ACTIONS,), 20, np.random.default_rng(4))
    found = policy.net.host()((mask, obs))[0]
    assert (found[~mask.astype(bool)] == np.float32(-1e30)).all()


def test_the_target_follows_the_quantiles_and_the_proposal_has_none(built):
    bench = kit.Bench(kit.make_policy("fqf", VECTOR, discrete(ACTIONS), learn={"target.freq": 2}, **SMALL), 32)
    old = bench.params
    assert not any("proposal" in name for name in old if name.startswith("target."))
    bench.learn(random_rows(bench), np.tile(np.arange(BATCH), (2, 1)))
    new = bench.params
    assert moved(old, new) == {"net", "target"}
    assert any(not np.array_equal(old[name], new[name]) for name in new if "net.proposal" in name)
    for name in [name for name in new if name.startswith("target.")]:
        assert np.array_equal(new[name], new[name.replace("target.", "net.", 1)])
