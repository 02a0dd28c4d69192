"""What tests of algorithms share that learn values from recorded Box actions: policies, rows, and common checks.

A test file has the fixtures `built`, made by `build`, and `policy`, which yields from `disturbed`.
"""

import copy

import numpy as np
import pytest
from fakes import VECTOR, Batches, rows_of, space_of

from minding.engine.data.batch import RowLayout
from minding.engine.seeding import generator_state, restore_generator
from minding.policies import get_policy_class

STEPS, BATCH, SIZE, RATE, TAU = 3, 16, 2, 0.01, 0.25
ACTION = space_of(SIZE)


def build(tiny_config, algorithm, **learn):
    """A policy with one hidden layer, and what makes its batches."""
    settings = {"learning_rate": RATE, "tau": TAU, **learn}
    cfg = tiny_config(algorithm, VECTOR, ACTION, **{f"policy.learn.{key}": value for key, value in settings.items()})
    policy = get_policy_class(algorithm)(cfg)
    return policy, Batches(policy, STEPS * BATCH)


def disturbed(policy, *targets):
    """Yields the policy with target networks that differ from the online ones, and puts it back as it was built."""
    state = copy.deepcopy(policy.state_dict())
    for cell in targets:
        for p in cell.get_parameters():
            p.asnumpy()[...] += 0.1
    yield policy
    policy.load_state_dict(state)


def random_rows(policy, seed=0, **changes):
    """Rows for some steps, each with true ends, and with others, of which a time limit or nothing cuts some: they are
    learned from alike."""
    layout, count = RowLayout(policy.learn_mode.fields), STEPS * BATCH
    rows = rows_of(layout, count, np.random.default_rng(seed))
    rows["terminated"] = (np.arange(count) % 4 == 0).astype(np.float32)
    if "next_known" in rows:
        rows["next_known"] = (np.arange(count) % 4 > 1).astype(np.float32)
        rows["next_action"] = np.tanh(rows["next_action"])
    rows["action"] = np.tanh(rows["action"])
    return {**rows, **changes}


def part(rows, step):
    """The rows of a step."""
    return {name: value[step * BATCH : (step + 1) * BATCH] for name, value in rows.items()}


def batch_of(batches, rows, first=0, steps=1):
    """Some steps of the rows, from one on."""
    return batches(rows, np.arange(first * BATCH, (first + steps) * BATCH).reshape(steps, BATCH))


def upcoming(policy):
    """A random stream in the state of the one that the next learn call draws from."""
    twin = np.random.default_rng()
    restore_generator(twin, generator_state(policy.learn_rng))
    return twin


def bootstrapped(rows, following):
    """R + gamma (1 - terminated) x."""
    return rows["reward"] + rows["discount"] * (1.0 - rows["terminated"]) * following


def check_ends(policy, batches):
    """What follows a true end counts for nothing in the critics' loss, and what follows a time limit does."""
    start, losses = copy.deepcopy(policy.state_dict()), {}
    for end in (0.0, 1.0):
        for successor in (0.0, 5.0):
            rows = random_rows(policy)
            rows["terminated"] = np.full_like(rows["terminated"], end)
            rows["next_obs"] = np.full_like(rows["next_obs"], successor)
            policy.load_state_dict(start)
            losses[end, successor] = policy.learn_mode.forward(batch_of(batches, rows)).metrics["critic_loss"]
    assert losses[1.0, 0.0] == losses[1.0, 5.0]
    assert abs(losses[0.0, 0.0] - losses[0.0, 5.0]) > 1e-2


def check_steps_in_a_call(policy, batches):
    """Steps in one call are those of single calls, to the bit, with the same random numbers."""
    start, rows = copy.deepcopy(policy.state_dict()), random_rows(policy)
    single = [policy.learn_mode.forward(batch_of(batches, rows, k)).metrics for k in range(STEPS)]
    expected = copy.deepcopy(policy.state_dict())
    policy.load_state_dict(start)
    output = policy.learn_mode.forward(batch_of(batches, rows, 0, STEPS))
    found = policy.state_dict()
    assert output.steps == STEPS
    assert found["rng"] == expected["rng"]
    different = [name for name, value in expected["params"].items() if not np.array_equal(value, found["params"][name])]
    assert different == []
    for name in ("critic_loss", "q_value"):
        assert output.metrics[name] == pytest.approx(np.mean([metrics[name] for metrics in single]), rel=1e-5)


def check_targets_follow(old, new, pairs):
    """Targets have moved by their share of the online networks after their step.

    Args:
      old, new: parameters before and after a step.
      pairs: names of an online part and of its target.
    """
    for online, target in pairs:
        names = [name for name in new if name.startswith(f"{online}.")]
        assert names
        for name in names:
            copied = name.replace(online, target, 1)
            expected = (1 - TAU) * old[copied] + TAU * new[name]
            np.testing.assert_allclose(new[copied], expected, rtol=1e-5, atol=1e-6)
