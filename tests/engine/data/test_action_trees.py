"""Actions of Tuple and Dict spaces as rows of numbers."""

import json

import numpy as np
from gymnasium import spaces

from minding.engine.data.action_trees import ActionTree, parts_of
from minding.engine.data.actions import ActionAdapter
from minding.envs.recorded_spec import action_space
from minding.envs.spaces.actions import JoinedActions, describe_actions

SPACE = spaces.Tuple(
    (
        spaces.Box(-0.1, 0.7, (2,), np.float64),
        spaces.Discrete(3, start=5),
        spaces.Dict(b=spaces.Box(-2.0, 4.0, ()), a=spaces.MultiBinary(2), c=spaces.MultiDiscrete([2, 3])),
    )
)


def described(space=SPACE, rescale=True):
    return describe_actions(JoinedActions(space), rescale=rescale)


def test_a_row_has_all_choices_and_then_their_numbers():
    found = described()
    tree = found.pop("tree")
    assert [path for path, _ in parts_of(tree)] == ["0", "1", "2.a", "2.b", "2.c"]
    assert found == {
        "kind": "composite", "shape": [8], "dtype": "float32", "nvec": [3, 2, 2, 2, 3], "start": [5, 0, 0, 0, 0],
        "low": [-0.1, -0.1, -2.0], "high": [0.7, 0.7, 4.0], "rescaled": True,
    }  # fmt: skip
    action = (np.array([0.1, 0.2]), 6, {"a": np.array([1, 0]), "b": np.float32(3.5), "c": np.array([1, 2])})
    row = ActionTree(described()).join(action)
    np.testing.assert_allclose(row, [6, 1, 0, 1, 2, 0.1, 0.2, 3.5], rtol=1e-6)
    assert row.dtype == np.float32


def test_splitting_undoes_joining_and_stays_inside_the_space():
    codec = ActionTree(json.loads(json.dumps(described())))
    SPACE.seed(0)
    for _ in range(20):
        action = SPACE.sample()
        again = codec.split(codec.join(action))
        assert SPACE.contains(again)
        assert again[1] == action[1]
        np.testing.assert_allclose(again[0], action[0], rtol=1e-6)
    # float32 rounds 0.7 up.
    largest = codec.split(np.array([7, 1, 1, 1, 2, 0.7, 0.7, 4.0], np.float32))
    assert SPACE.contains(largest)
    last = {"a": np.zeros((4, 2), bool), "b": np.ones(4), "c": np.zeros((4, 2), int)}
    batch = codec.split(codec.join((np.zeros((4, 2)), np.full(4, 5), last), (4,)))
    assert (batch[0].shape, batch[1].tolist(), batch[2]["b"].shape) == ((4, 2), [5] * 4, (4,))


def test_a_policy_counts_from_zero_and_acts_in_the_unit_box():
    adapter = ActionAdapter(described())
    own = np.array([[2, 1, 0, 1, 2, -1.0, 1.0, 0.0]], np.float32)
    acted = adapter(own)
    np.testing.assert_allclose(acted, [[7, 1, 0, 1, 2, -0.1, 0.7, 1.0]], rtol=1e-6)
    np.testing.assert_allclose(adapter.invert(acted), own, atol=1e-6)
    low, high = adapter.policy_limits
    assert (low.tolist(), high.tolist()) == ([0] * 5 + [-1] * 3, [2, 1, 1, 1, 2, 1, 1, 1])
    unscaled = ActionAdapter(described(rescale=False))
    assert unscaled(own)[0].tolist() == [7, 1, 0, 1, 2, np.float32(-0.1), np.float32(0.7), 0]


def test_parts_of_one_kind_make_rows_of_that_kind():
    chosen = described(spaces.Dict(b=spaces.Discrete(2), a=spaces.MultiBinary((2, 1))))
    assert (chosen["kind"], chosen["nvec"], chosen["dtype"]) == ("multi_discrete", [2, 2, 2], "int64")
    numbers = described(spaces.Tuple((spaces.Box(0.0, 1.0, (1,)), spaces.Box(-1.0, np.inf, (1,)))))
    assert (numbers["kind"], numbers["low"], numbers["rescaled"]) == ("box", [0.0, -1.0], False)


def test_a_description_leads_back_to_the_space():
    again = action_space(json.loads(json.dumps(described())))
    assert describe_actions(again, rescale=True) == described()
    SPACE.seed(0)
    assert again.contains(ActionTree(described()).join(SPACE.sample()))
