"""TD3: one update against float64 NumPy, gradients by finite differences, the delay, the noise on the target action."""

import copy

import numpy as np
import pytest
from fakes import VECTOR, Batches, rows_of, set_rate, space_of
from float64_networks import actor, finite_differences, gradients, moved, params, replaced, value

from minding.engine.seeding import generator_state, restore_generator
from minding.policies import get_policy_class

CONTRACT = {
    "td3": (VECTOR, space_of(3), {"policy.model.normalize_obs": True}),
    "td3, Ornstein-Uhlenbeck noise": (VECTOR, space_of(2), {"policy.collect.noise.kind": "ou"}),
}
LEARNS = {
    "run.max_env_step": 1600,
    "policy.collect.n_sample": 8,
    "policy.learn.batch_size": 32,
    "policy.learn.warmup": 64,
    "policy.learn.update_per_collect": 4,
    "policy.other.buffer_size": 2000,
    # With a linear critic an actor finds back from the wrong end, see `test_ddpg.py`.
    "policy.model.hidden": [],
    "policy.learn.learning_rate": 0.01,
    "policy.learn.tau": 0.05,
    "policy.collect.random_steps": 400,
    "policy.collect.noise.sigma": 0.4,
}
RESUMES = {
    "TD3, random steps first": (
        "Pendulum-v1",
        ("policy.collect.random_steps=32", "policy.collect.noise.kind=ou", "policy.learn.policy_delay=3"),
    )
}
MOVES = {"policy.learn.policy_delay": 1}
ALTERNATIVES = ("policy.collect.noise.kind=ou",)

BATCH, DELAY, RATE, TAU = 16, 3, 0.01, 0.25
ACTION = space_of(2)


@pytest.fixture(scope="module")
def built(tiny_config):
    cfg = tiny_config("td3", VECTOR, ACTION, **{"policy.learn.learning_rate": RATE, "policy.learn.tau": TAU})
    return get_policy_class("td3")(cfg)


@pytest.fixture
def policy(built):
    """The policy as it was built, with targets that differ from the networks, and target actions at their limit."""
    state = copy.deepcopy(built.state_dict())
    built.cfg.learn.policy_delay = DELAY
    for cell in (built.root.target_net, built.root.target_critics):
        for p in cell.get_parameters():
            p.asnumpy()[...] += 0.1
    built.root.target_net.head.linear.bias.asnumpy()[...] += [1.5, 0.0]
    yield built
    built.load_state_dict(state)
    built.cfg.learn.update(policy_delay=2, target_noise=0.2, noise_clip=0.5)
    set_rate(built, RATE)


@pytest.fixture(scope="module")
def batches(built):
    return Batches(built, 4 * BATCH)


@pytest.fixture
def batch(batches):
    """(gradient steps) -> rows, of which some end and others are cut by a time limit, and a batch of them."""
    rows = rows_of(batches.layout, 4 * BATCH, np.random.default_rng(0))
    rows["terminated"] = (np.arange(4 * BATCH) % 4 == 0).astype(np.float32)
    rows["action"] = np.tanh(rows["action"])
    return lambda steps, first=0: (
        {name: value[first * BATCH : (first + steps) * BATCH] for name, value in rows.items()},
        batches(rows, np.arange(first * BATCH, (first + steps) * BATCH).reshape(steps, BATCH)),
    )


def noise_of_next_call(policy, steps):
    twin = np.random.default_rng()
    restore_generator(twin, generator_state(policy.learn_rng))
    return np.clip(0.2 * twin.standard_normal((steps, BATCH, 2), dtype=np.float32), -0.5, 0.5)


def target_of(p, rows, noise):
    action = np.clip(actor(p, "target_net", rows["next_obs"]) + noise, -1.0, 1.0)
    next_value = np.minimum(*(value(p, f"target_critics.{q}", action, rows["next_obs"]) for q in ("q1", "q2")))
    return rows["reward"] + rows["discount"] * (1.0 - rows["terminated"]) * next_value, action


def critic_loss(p, rows, target):
    errors = [value(p, f"critics.{q}", rows["action"], rows["obs"]) - target for q in ("q1", "q2")]
    return 0.5 * np.mean(errors[0] ** 2 + errors[1] ** 2)


def actor_loss(p, rows):
    return -value(p, "critics.q1", actor(p, "net", rows["obs"]), rows["obs"]).mean()


def test_losses_and_target_are_those_of_the_formulas(policy, batch):
    policy.cfg.learn.policy_delay = 1
    rows, data = batch(1)
    p, noise = params(policy), noise_of_next_call(policy, 1)[0]
    target, next_action = target_of(p, rows, noise)
    # What the formulas treat apart is in the batch.
    assert (np.abs(next_action) == 1.0).any()
    assert (np.abs(next_action) < 1.0).any()
    assert 0 < rows["terminated"].sum() < BATCH
    output = policy.learn_mode.forward(data)
    assert output.metrics["critic_loss"] == pytest.approx(critic_loss(p, rows, target), rel=1e-5)
    q = value(p, "critics.q1", rows["action"], rows["obs"])
    assert output.metrics["q_value"] == pytest.approx(q.mean(), rel=1e-5, abs=1e-6)
    # The actor is judged by the critics after their step.
    after = replaced(p, policy, "critics")
    assert output.metrics["actor_loss"] == pytest.approx(actor_loss(after, rows), rel=1e-5, abs=1e-6)
    assert abs(actor_loss(after, rows) - actor_loss(p, rows)) > 1e-3


def test_gradients_are_finite_differences_of_the_losses(policy, batch):
    policy.cfg.learn.policy_delay = 1
    rows, data = batch(1)
    p, noise = params(policy), noise_of_next_call(policy, 1)[0]
    target, _ = target_of(p, rows, noise)
    policy.learn_mode.forward(data)
    after = replaced(p, policy, "critics")
    expected = {
        "critics": finite_differences(lambda x: critic_loss(x, rows, target), p, "critics"),
        "actor": finite_differences(lambda x: actor_loss(x, rows), after, "net"),
    }
    for group, slopes in expected.items():
        for grad, wanted in zip(gradients(policy, group), slopes, strict=True):
            np.testing.assert_allclose(grad, wanted, rtol=1e-4, atol=1e-6)


def test_a_true_end_cuts_off_what_follows_and_a_time_limit_does_not(policy, batches, batch):
    start = copy.deepcopy(policy.state_dict())
    losses = {}
    for end in (0.0, 1.0):
        for successor in (0.0, 5.0):
            rows, _ = batch(4)
            rows["terminated"] = np.full(4 * BATCH, end, np.float32)
            rows["next_obs"] = np.full((4 * BATCH, 4), successor, np.float32)
            policy.load_state_dict(start)
            data = batches(rows, [range(BATCH)])
            losses[end, successor] = policy.learn_mode.forward(data).metrics["critic_loss"]
    assert losses[1.0, 0.0] == losses[1.0, 5.0]
    assert abs(losses[0.0, 0.0] - losses[0.0, 5.0]) > 1e-2


@pytest.mark.parametrize(("steps", "delay"), [(1, 3), pytest.param(4, 6, marks=pytest.mark.slow)])
def test_actor_and_targets_move_in_the_steps_that_are_due_only_also_across_calls(policy, batch, steps, delay):
    policy.cfg.learn.policy_delay = delay
    before, kinds = params(policy), set()
    for first in range(1, 6 * steps, steps):
        output = policy.learn_mode.forward(batch(steps)[1])
        after, due = params(policy), any(k % delay == 0 for k in range(first, first + steps))
        assert moved(before, after) == ({"critics", "net", "target_net", "target_critics"} if due else {"critics"})
        assert ("actor_loss" in output.metrics) == due
        before = after
        kinds.add(due)
    assert kinds == {True, False}


def test_steps_in_one_call_are_those_of_single_calls_and_the_actors_loss_is_the_mean_over_its_own_steps(policy, batch):
    start = copy.deepcopy(policy.state_dict())
    single = [policy.learn_mode.forward(batch(1, k % 4)[1]).metrics for k in (0, 1, 2, 3, 0, 1, 2, 3)]
    expected = params(policy)
    policy.load_state_dict(start)
    together = [policy.learn_mode.forward(batch(4)[1]).metrics for _ in range(2)]
    found = params(policy)
    for name in expected:
        np.testing.assert_allclose(found[name], expected[name], rtol=1e-4, atol=1e-6, err_msg=name)
    for k in range(2):
        losses = [metrics["actor_loss"] for metrics in single[4 * k : 4 * k + 4] if "actor_loss" in metrics]
        # Steps 3 and 6 of the run, one in each call.
        assert len(losses) == 1
        assert together[k]["actor_loss"] == pytest.approx(np.mean(losses), rel=1e-4, abs=1e-6)
        errors = [metrics["critic_loss"] for metrics in single[4 * k : 4 * k + 4]]
        assert together[k]["critic_loss"] == pytest.approx(np.mean(errors), rel=1e-4)


def test_the_actors_loss_is_averaged_over_its_two_steps_of_a_call(policy, batch):
    policy.cfg.learn.policy_delay = 2
    start = copy.deepcopy(policy.state_dict())
    single = [policy.learn_mode.forward(batch(1, k)[1]).metrics for k in range(4)]
    policy.load_state_dict(start)
    together = policy.learn_mode.forward(batch(4)[1]).metrics
    losses = [metrics["actor_loss"] for metrics in single if "actor_loss" in metrics]
    assert len(losses) == 2
    assert together["actor_loss"] == pytest.approx(np.mean(losses), rel=1e-4, abs=1e-6)


def test_targets_follow_by_their_share_of_the_networks_after_their_step(policy, batch):
    policy.cfg.learn.policy_delay = 1
    old = params(policy)
    policy.learn_mode.forward(batch(1)[1])
    new = params(policy)
    for online, target in (("net", "target_net"), ("critics", "target_critics")):
        names = [name for name in new if name.startswith(f"{online}.")]
        assert names
        for name in names:
            copied = name.replace(online, target, 1)
            expected = (1 - TAU) * old[copied] + TAU * new[name]
            np.testing.assert_allclose(new[copied], expected, rtol=1e-5, atol=1e-6)


def test_the_count_of_steps_goes_on_in_a_loaded_policy(policy, batch, tiny_config):
    policy.learn_mode.forward(batch(1)[1])
    policy.learn_mode.forward(batch(1)[1])
    fresh = get_policy_class("td3")(tiny_config("td3", VECTOR, ACTION, **{"policy.learn.policy_delay": DELAY}))
    fresh.load_state_dict(policy.state_dict())
    # The third step is due.
    learn = Batches(fresh, 4 * BATCH)(batch(1)[0], [range(BATCH)])
    assert "actor_loss" in fresh.learn_mode.forward(learn).metrics
    assert "actor_loss" not in fresh.learn_mode.forward(learn).metrics


def test_the_noise_on_the_target_action_is_normal_within_its_limit(policy, batches):
    draw = batches(rows_of(batches.layout, 4 * BATCH, np.random.default_rng(0)), np.zeros((4, 2000)))
    policy.cfg.learn.update(target_noise=0.4, noise_clip=0.6)
    noise = policy.inputs(draw, 0.0).steps["noise"].astype(np.float64)
    assert noise.shape == (4, 2000, 2)
    assert np.abs(noise).max() == np.float32(0.6)
    # Of a normal number 13.4 % lie beyond 1.5 deviations.
    assert (np.abs(noise) >= np.float32(0.6)).mean() == pytest.approx(0.134, abs=0.01)
    inside = noise[np.abs(noise) < 0.6]
    assert inside.std() == pytest.approx(0.4 * 0.7426, rel=0.03)
    policy.cfg.learn.target_noise = 0.0
    assert not policy.inputs(draw, 0.0).steps["noise"].any()


def test_networks_begin_equal_to_their_targets_and_the_critics_differ(tiny_config):
    root = get_policy_class("td3")(tiny_config("td3", VECTOR, ACTION)).root
    for online, target in ((root.net, root.target_net), (root.critics, root.target_critics)):
        for a, b in zip(online.get_parameters(), target.get_parameters(), strict=True):
            assert np.array_equal(a.asnumpy(), b.asnumpy())
    assert not np.array_equal(root.critics.q1.value.weight.asnumpy(), root.critics.q2.value.weight.asnumpy())


def test_actions_have_the_shape_of_their_space_and_stay_in_the_box(tiny_config):
    policy = get_policy_class("td3")(tiny_config("td3", VECTOR, space_of(3, 2)), modes=("collect", "eval"))
    obs = np.random.default_rng(0).standard_normal((50, 4)).astype(np.float32) * 10
    for action in (policy.collect_mode.forward(obs)["action"], policy.eval_mode.forward(obs)):
        assert (action.shape, action.dtype) == ((50, 3, 2), np.float32)
        assert np.abs(action).max() <= 1.0
