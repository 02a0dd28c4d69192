"""Action spaces: which there are, what policies see of them, and their descriptions."""

import json

import numpy as np
from gymnasium import spaces

from minding.engine.data.actions import ActionAdapter
from minding.envs.spaces.actions import describe_actions, policy_action_space


def test_the_space_that_policies_act_in():
    box = spaces.Box(-2.0, 4.0, (3,))
    assert policy_action_space(box, rescale=True) == spaces.Box(-1.0, 1.0, (3,))
    assert policy_action_space(box, rescale=False) is box
    assert policy_action_space(spaces.Discrete(3, start=5), rescale=True) == spaces.Discrete(3)


def test_a_description_keeps_every_bound_to_the_bit():
    low = np.random.default_rng(0).uniform(-1, 0, (10, 20)).astype(np.float32)
    box = spaces.Box(low, np.float32(0.1), (10, 20))
    description = json.loads(json.dumps(describe_actions(box, rescale=True)))
    assert description["high"] == float(np.float32(0.1))
    adapter = ActionAdapter(description)
    assert adapter.low.tobytes() == low.tobytes()
    assert adapter.high.tobytes() == box.high.tobytes()
    assert describe_actions(spaces.Discrete(3, start=5), rescale=True) == {
        "kind": "discrete", "shape": [], "dtype": "int64", "n": 3, "start": 5,
    }  # fmt: skip


def test_binary_actions_are_choices_between_two():
    switches = spaces.MultiBinary((2, 3))
    assert policy_action_space(switches, rescale=True) == spaces.MultiDiscrete([2] * 6)
    description = describe_actions(switches, rescale=True)
    assert description == {
        "kind": "multi_discrete", "shape": [2, 3], "dtype": "int8", "nvec": [[2] * 3] * 2, "start": [[0] * 3] * 2,
    }  # fmt: skip
    adapter, chosen = ActionAdapter(description), np.array([[1, 0, 0, 1, 1, 0]])
    assert adapter(chosen).tolist() == [[[1, 0, 0], [1, 1, 0]]]
    assert switches.contains(adapter(chosen)[0])
    assert adapter.invert(adapter(chosen)).tolist() == chosen.tolist()
