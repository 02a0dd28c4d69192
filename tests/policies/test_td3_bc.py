"""TD3+BC and ReBRAC: one update against float64 NumPy, gradients by finite differences, what follows in the data."""

import numpy as np
import pytest
from fakes import VECTOR, space_of
from float64_networks import actor, finite_differences, gradients, moved, params, replaced, value
from recorded_transitions import (
    BATCH,
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

from minding.engine.buffers import DatasetTables
from minding.engine.data.dataset import Dataset

CONTRACT = {
    "td3_bc": (VECTOR, space_of(3), {"policy.model.normalize_obs": True}),
    "td3_bc, ReBRAC": (VECTOR, space_of(2, 2), {"policy.learn.critic_penalty": 0.1, "policy.model.norm": "layer"}),
}
RESUMES = {"ReBRAC": ("Pendulum-v1", ("policy.learn.critic_penalty=0.1",))}
MOVES = {"policy.learn.policy_delay": 1}
ALTERNATIVES = ("policy.collect.noise.kind=ou",)

ALPHA, PENALTY = 1.5, 0.3


@pytest.fixture(scope="module")
def built(tiny_config):
    return build(tiny_config, "td3_bc", alpha=ALPHA, critic_penalty=PENALTY, policy_delay=1)


@pytest.fixture
def policy(built):
    """The policy with targets that differ from the networks, and target actions at their limit."""
    root = built[0].root
    for policy in disturbed(built[0], root.target_net, root.target_critics):
        root.target_net.head.linear.bias.asnumpy()[...] += [1.5, 0.0]
        yield policy


@pytest.fixture
def batches(built):
    return built[1]


def target_of(p, rows, noise, penalty=PENALTY):
    action = np.clip(actor(p, "target_net", rows["next_obs"]) + noise, -1.0, 1.0)
    q = np.minimum(*(value(p, f"target_critics.{q}", action, rows["next_obs"]) for q in ("q1", "q2")))
    apart = rows["next_known"] * ((action - rows["next_action"]) ** 2).sum(axis=1)
    return bootstrapped(rows, q - penalty * apart), action


def critic_loss(p, rows, target):
    errors = [value(p, f"critics.{q}", rows["action"], rows["obs"]) - target for q in ("q1", "q2")]
    return 0.5 * np.mean(errors[0] ** 2 + errors[1] ** 2)


def cloning_loss(p, rows):
    return ((actor(p, "net", rows["obs"]) - rows["action"]) ** 2).mean()


def scale_of(p, rows):
    """lambda, which no gradient flows into."""
    return ALPHA / np.abs(value(p, "critics.q1", actor(p, "net", rows["obs"]), rows["obs"])).mean()


def actor_loss(p, rows, scale):
    q = value(p, "critics.q1", actor(p, "net", rows["obs"]), rows["obs"])
    return cloning_loss(p, rows) - scale * q.mean()


def noise_of_next_call(policy):
    noise = upcoming(policy).standard_normal((1, BATCH, SIZE), dtype=np.float32)[0]
    return np.clip(0.2 * noise, -0.5, 0.5)


def test_losses_and_target_are_those_of_the_formulas(policy, batches):
    rows, p, noise = random_rows(policy), params(policy), noise_of_next_call(policy)
    seen = part(rows, 0)
    target, next_action = target_of(p, seen, noise)
    # What the formulas treat apart is in the batch: the penalty counts where an action is known.
    assert (np.abs(next_action) == 1.0).any()
    assert {(0.0, 0.0), (0.0, 1.0), (1.0, 0.0)} == set(zip(seen["terminated"], seen["next_known"], strict=True))
    assert np.abs(target - target_of(p, seen, noise, 0.0)[0]).max() > 0.05
    metrics = policy.learn_mode.forward(batch_of(batches, rows)).metrics
    assert metrics["critic_loss"] == pytest.approx(critic_loss(p, seen, target), rel=1e-5)
    q = value(p, "critics.q1", seen["action"], seen["obs"])
    assert metrics["q_value"] == pytest.approx(q.mean(), rel=1e-5, abs=1e-6)
    # The actor is judged by the critics after their step.
    after = replaced(p, policy, "critics")
    assert metrics["actor_loss"] == pytest.approx(actor_loss(after, seen, scale_of(after, seen)), rel=1e-5, abs=1e-5)
    assert metrics["cloning_loss"] == pytest.approx(cloning_loss(p, seen), rel=1e-5)


def test_gradients_are_finite_differences_of_the_losses(policy, batches):
    rows, p, noise = random_rows(policy), params(policy), noise_of_next_call(policy)
    seen = part(rows, 0)
    target, _ = target_of(p, seen, noise)
    policy.learn_mode.forward(batch_of(batches, rows))
    after = replaced(p, policy, "critics")
    scale = scale_of(after, seen)
    expected = {
        "critics": finite_differences(lambda x: critic_loss(x, seen, target), p, "critics"),
        "actor": finite_differences(lambda x: actor_loss(x, seen, scale), after, "net"),
    }
    for group, slopes in expected.items():
        for grad, wanted in zip(gradients(policy, group), slopes, strict=True):
            np.testing.assert_allclose(grad, wanted, rtol=1e-4, atol=2e-6)


def test_a_true_end_cuts_off_what_follows_and_a_time_limit_does_not(policy, batches):
    check_ends(policy, batches)


def test_steps_in_one_call_are_those_of_single_calls(policy, batches):
    check_steps_in_a_call(policy, batches)


def test_everything_moves_and_targets_follow_by_their_share(policy, batches):
    old = params(policy)
    policy.learn_mode.forward(batch_of(batches, random_rows(policy)))
    new = params(policy)
    assert moved(old, new) == {"net", "critics", "target_net", "target_critics"}
    check_targets_follow(old, new, [("net", "target_net"), ("critics", "target_critics")])


def test_without_a_penalty_no_row_has_what_follows(tiny_config):
    plain, _ = build(tiny_config, "td3_bc")
    assert not {"next_action", "next_known"} & {*plain.learn_mode.fields}


def test_actions_recorded_in_the_next_state_are_those_of_the_same_episode(policy):
    """Of two episodes of three steps, a true end and a time limit, and of one that recording cut."""
    action = np.linspace(-1.8, 1.8, 8 * SIZE, dtype=np.float32).reshape(8, SIZE)
    flags = np.zeros((2, 8), bool)
    flags[0, 2] = flags[1, 5] = True
    obs = np.arange(32, dtype=np.float32).reshape(8, 4)
    final = 100.0 + np.arange(12, dtype=np.float32).reshape(3, 4)
    space = {**space_of(SIZE, low=-2.0, high=2.0), "rescaled": True}
    about = {"env": {"env_action": space}}
    data = Dataset(
        {"": obs}, action, np.ones(8, np.float32), *flags, np.array([2, 5, 7]), {"": final}, about, digest="a"
    )
    tables = DatasetTables(data, policy.learn_mode.fields)
    batch = tables.batch(np.arange(8)[None])
    read = {name: batch.layout.read(batch.tables.host, name, np.arange(8)) for name in batch.layout.fields}
    assert read["next_known"].tolist() == [1, 1, 0, 1, 1, 0, 1, 0]
    assert read["terminated"].tolist() == [0, 0, 1, 0, 0, 0, 0, 0]
    known = read["next_known"] == 1.0
    # In the units of the policy.
    np.testing.assert_allclose(read["next_action"][known], action[1:][known[:-1]] / 2.0, rtol=1e-6)
    np.testing.assert_array_equal(read["next_obs"][[2, 5, 7]], final)
    np.testing.assert_array_equal(read["next_obs"][known], obs[1:][known[:-1]])
