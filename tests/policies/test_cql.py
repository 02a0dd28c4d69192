"""CQL: one update against float64 NumPy, gradients by finite differences, the log of an integral by quadrature."""

import dataclasses
import statistics

import numpy as np
import pytest
from fakes import VECTOR, space_of
from float64_networks import finite_differences, gradients, moved, params, squashed, value
from recorded_transitions import (
    BATCH,
    RATE,
    SIZE,
    batch_of,
    bootstrapped,
    build,
    check_ends,
    check_steps_in_a_call,
    check_targets_follow,
    disturbed,
    part,
    random_rows,
    upcoming,
)

from minding.engine.process.runtime import to_device
from minding.policies import get_policy_class
from minding.policies.ops.values import log_integral

SMALL = {"policy.model.normalize_obs": True, "policy.learn.n_actions": 2}
CONTRACT = {"cql": (VECTOR, space_of(2, 2), SMALL)}
RESUMES = {"CQL, Lagrange": ("Pendulum-v1", ("policy.learn.lagrange=true", "policy.learn.n_actions=2"))}

COUNT, WEIGHT, ALLOWED, ALPHA, ACTOR_RATE = 3, 2.0, 1.0, 0.3, 0.002


@pytest.fixture(scope="module")
def built(tiny_config):
    return build(
        tiny_config,
        "cql",
        n_actions=COUNT,
        conservative_weight=WEIGHT,
        lagrange=True,
        lagrange_gap=ALLOWED,
        alpha=ALPHA,
        actor_learning_rate=ACTOR_RATE,
    )


@pytest.fixture
def policy(built):
    yield from disturbed(built[0], built[0].root.targets)


@pytest.fixture
def batches(built):
    return built[1]


@dataclasses.dataclass
class Drawn:
    """The random numbers of a step, in the order of their draws."""

    following: np.ndarray
    own: np.ndarray
    others: np.ndarray
    uniform: np.ndarray


def drawn_in_next_call(policy):
    rng = upcoming(policy)
    noise = rng.standard_normal((2, BATCH, SIZE), dtype=np.float32)
    others = rng.standard_normal((2, COUNT, BATCH, SIZE), dtype=np.float32)
    return Drawn(*noise, others, 2.0 * rng.random((COUNT, BATCH, SIZE), dtype=np.float32) - 1.0)


def target_of(p, rows, noise):
    action, _ = squashed(p, "net", rows["next_obs"], noise)
    q = np.minimum(*(value(p, f"targets.{q}", action, rows["next_obs"]) for q in ("q1", "q2")))
    return bootstrapped(rows, q)


def gap_of(p, q, rows, drawn, policy_params):
    """The mean gap of a critic: its own parameters `p`, and those that the actions are drawn with."""
    here, log_here = squashed(policy_params, "net", rows["obs"], drawn.others[0])
    there, log_there = squashed(policy_params, "net", rows["next_obs"], drawn.others[1])
    actions = np.concatenate([drawn.uniform, here, there])
    log_density = np.concatenate([np.full((COUNT, BATCH), -SIZE * np.log(2.0)), log_here, log_there])
    values = np.stack([value(p, f"critics.{q}", action, rows["obs"]) for action in actions])
    integral = np.log(np.exp(values - log_density).mean(axis=0))
    return (integral - value(p, f"critics.{q}", rows["action"], rows["obs"])).mean()


def critic_loss(p, rows, target, drawn, policy_params):
    errors = [value(p, f"critics.{q}", rows["action"], rows["obs"]) - target for q in ("q1", "q2")]
    gaps = [gap_of(p, q, rows, drawn, policy_params) for q in ("q1", "q2")]
    return 0.5 * np.mean(errors[0] ** 2 + errors[1] ** 2) + WEIGHT * sum(gaps)


def actor_loss(p, rows, noise):
    action, log_prob = squashed(p, "net", rows["obs"], noise)
    q = np.minimum(*(value(p, f"critics.{q}", action, rows["obs"]) for q in ("q1", "q2")))
    return (ALPHA * log_prob - q).mean()


def test_losses_targets_and_weights_are_those_of_the_formulas(policy, batches):
    rows, p, drawn = random_rows(policy), params(policy), drawn_in_next_call(policy)
    seen = part(rows, 0)
    target, gaps = target_of(p, seen, drawn.following), [gap_of(p, q, seen, drawn, p) for q in ("q1", "q2")]
    log_prob = squashed(p, "net", seen["obs"], drawn.own)[1].mean()
    metrics = policy.learn_mode.forward(batch_of(batches, rows)).metrics
    expected = {
        "critic_loss": critic_loss(p, seen, target, drawn, p),
        "actor_loss": actor_loss(p, seen, drawn.own),
        "conservative_gap": np.mean(gaps),
        "conservative_weight": WEIGHT,
        "q_value": value(p, "critics.q1", seen["action"], seen["obs"]).mean(),
        "entropy": -log_prob,
        "alpha": ALPHA,
        "alpha_loss": -np.log(ALPHA) * (log_prob - SIZE),
    }
    assert {name: metrics[name] for name in expected} == pytest.approx(expected, rel=1e-5, abs=2e-6)


def test_gradients_are_finite_differences_of_the_losses(policy, batches):
    rows, p, drawn = random_rows(policy), params(policy), drawn_in_next_call(policy)
    seen = part(rows, 0)
    target = target_of(p, seen, drawn.following)
    policy.learn_mode.forward(batch_of(batches, rows))
    # None flows through the actions: the actor's is that of its own loss only.
    expected = {
        "critics": finite_differences(lambda x: critic_loss(x, seen, target, drawn, p), p, "critics"),
        "actor": finite_differences(lambda x: actor_loss(x, seen, drawn.own), p, "net"),
    }
    for group, slopes in expected.items():
        for grad, wanted in zip(gradients(policy, group), slopes, strict=True):
            np.testing.assert_allclose(grad, wanted, rtol=2e-4, atol=5e-6)


@pytest.mark.parametrize(("choose", "sign"), [(np.argmax, 1), (np.argmin, -1)])
def test_the_weight_falls_while_the_gap_is_below_the_one_allowed_and_rises_above_it(policy, batches, choose, sign):
    rows = random_rows(policy)
    for q in (policy.root.critics.q1, policy.root.critics.q2):
        q.value.weight.asnumpy()[...] *= 20.0
    p, drawn = params(policy), drawn_in_next_call(policy)
    # Values of the recorded actions are the highest ones, or the lowest.
    corners = np.float32([[x, y] for x in (-1, 1) for y in (-1, 1)])
    of_corners = [
        sum(value(p, f"critics.{q}", np.tile(corner, (len(rows["obs"]), 1)), rows["obs"]) for q in ("q1", "q2"))
        for corner in corners
    ]
    rows["action"] = corners[choose(of_corners, axis=0)]
    gap = np.mean([gap_of(p, q, part(rows, 0), drawn, p) for q in ("q1", "q2")])
    policy.learn_mode.forward(batch_of(batches, rows))
    (found,) = gradients(policy, "weight")
    assert found == pytest.approx(-WEIGHT * (gap - ALLOWED), rel=1e-4)
    # Adam's first step.
    moved_by = float(policy.root.log_weight.asnumpy()) - p["log_weight"]
    assert moved_by == pytest.approx(-sign * RATE, rel=1e-3)


def test_actor_and_temperature_have_a_step_size_of_their_own(policy, batches):
    old = params(policy)
    policy.learn_mode.forward(batch_of(batches, random_rows(policy)))
    new = params(policy)
    assert moved(old, new) == {"net", "critics", "targets", "log_alpha", "log_weight"}
    # Adam's first step is the learning rate, where there is a gradient.
    for name, rate in (("net", ACTOR_RATE), ("log_alpha", ACTOR_RATE), ("critics", RATE), ("log_weight", RATE)):
        largest = max(np.abs(new[key] - old[key]).max() for key in old if key.startswith(name))
        assert largest == pytest.approx(rate, rel=1e-3)
    check_targets_follow(old, new, [("critics", "targets")])


def test_a_true_end_cuts_off_the_target_and_a_time_limit_does_not(policy, batches):
    # With observations of zeros the gap, too, would depend on what follows: by actions, but not by values.
    policy.root.net.torso.layers[0].weight.asnumpy()[...] = 0.0
    check_ends(policy, batches)


def test_steps_in_one_call_are_those_of_single_calls(policy, batches):
    check_steps_in_a_call(policy, batches)


NORMAL = statistics.NormalDist()


def spread(count, size):
    """Points that divide the unit cube evenly, (count^size, size)."""
    line = (np.arange(count) + 0.5) / count
    return np.stack(np.meshgrid(*[line] * size, indexing="ij"), axis=-1).reshape(-1, size)


def quadrature(q, size, count):
    """log of the integral of exp q(a) over [-1, 1]^size, by the midpoint rule."""
    return np.log(np.exp(q(2.0 * spread(count, size) - 1.0)).mean()) + size * np.log(2.0)


@pytest.mark.parametrize(("size", "count"), [(1, 3000), (2, 200)])
def test_the_log_integral_is_the_one_of_quadrature(size, count):
    def q(a):
        return 3.0 * np.sin(2.0 * a).sum(axis=-1) - (a**2).sum(axis=-1)

    uniform = 2.0 * spread(count, size) - 1.0
    noise = np.vectorize(NORMAL.inv_cdf)(spread(count, size))
    # A normal of deviation 1 and mean 0.3 before tanh.
    action = np.tanh(0.3 + noise)
    log_density = (-0.5 * noise**2 - 0.5 * np.log(2 * np.pi) - np.log(1.0 - action**2)).sum(axis=-1)
    parts = [(q(uniform), np.full(len(uniform), -size * np.log(2.0))), (q(action), log_density)]
    expected = quadrature(q, size, 2 * count)
    for drawn in (parts, parts[:1], parts[1:]):
        values, densities = (to_device(np.concatenate(each).astype(np.float32)[:, None]) for each in zip(*drawn))
        found = log_integral(values, densities, len(densities)).asnumpy()
        assert found[0] == pytest.approx(expected, abs=1e-5 if drawn is parts[:1] else 3e-3)


@pytest.mark.parametrize("size", [1, 2])
def test_the_actions_drawn_for_the_gap_estimate_the_integral_of_the_critic(tiny_config, size):
    """Uniform ones, those of the policy here and those of the policy there, each with the density it was drawn with."""
    count, cfg = 30_000, tiny_config("cql", VECTOR, space_of(size))
    policy, rng = get_policy_class("cql")(cfg), np.random.default_rng(0)
    policy.root.critics.q1.value.weight.asnumpy()[...] *= 5.0
    obs, next_obs = rng.standard_normal((2, 2, 4)).astype(np.float32)
    noise = rng.standard_normal((2, count, 2, size), dtype=np.float32)
    uniform = 2.0 * rng.random((count, 2, size), dtype=np.float32) - 1.0
    batch = {"obs": (obs,), "next_obs": (next_obs,)}
    batch = {name: tuple(to_device(leaf) for leaf in leaves) for name, leaves in batch.items()}
    given = {"own_noise": noise[0], "following_noise": noise[1], "uniform": uniform}
    batch |= {name: to_device(each) for name, each in given.items()}
    batch = policy.root.prepare(batch)
    values = policy.root.critics.q1.of_many(batch["others"], batch["obs"]).asnumpy()
    densities = batch["log_density"].asnumpy()
    p = params(policy)
    for row in range(2):

        def q(action, row=row):
            return value(p, "critics.q1", action, np.tile(obs[row], (len(action), 1)))

        # Each group by itself, too: none makes up for another's error.
        expected = quadrature(q, size, 400)
        for group in (slice(0, count), slice(count, 2 * count), slice(2 * count, None)):
            some = [to_device(each[group, row : row + 1]) for each in (values, densities)]
            assert log_integral(*some, count).asnumpy()[0] == pytest.approx(expected, abs=0.03)
