"""Actions of policies and of environments."""

import numpy as np
import pytest
from gymnasium import spaces

from minding.engine.errors import SpaceError
from minding.envs.actions import ActionAdapter, policy_action_space


def test_scaled_actions_stay_inside_bounds_in_spite_of_rounding():
    space = spaces.Box(np.float32(-0.1), np.float32(0.7), (1,), np.float32)
    adapter = ActionAdapter(space, 2)
    for action in adapter(np.array([[1.0], [-1.0]], np.float32)):
        assert space.contains(action)
    assert adapter(np.zeros((2, 1), np.float32)) == pytest.approx(0.3)


def test_infinite_actions_are_clipped_to_the_bounds():
    adapter = ActionAdapter(spaces.Box(-2.0, 4.0, (1,)), 2)
    assert adapter(np.array([[np.inf], [-np.inf]])).tolist() == [[4.0], [-2.0]]


def test_multi_discrete_starts_are_added():
    adapter = ActionAdapter(spaces.MultiDiscrete([3, 2], start=[10, -1]), 2)
    assert adapter(np.array([[0, 0], [2, 1]])).tolist() == [[10, -1], [12, 0]]


def test_the_space_that_policies_act_in():
    box = spaces.Box(-2.0, 4.0, (3,))
    assert policy_action_space(box, rescale=True) == spaces.Box(-1.0, 1.0, (3,))
    assert policy_action_space(box, rescale=False) is box
    assert policy_action_space(spaces.Discrete(3, start=5), rescale=True) == spaces.Discrete(3)


def test_spaces_that_nobody_can_act_in_are_refused():
    with pytest.raises(SpaceError, match="expected Discrete, MultiDiscrete or Box"):
        ActionAdapter(spaces.Dict(a=spaces.Discrete(2)), 1)
    with pytest.raises(SpaceError, match="use MultiDiscrete for integers"):
        ActionAdapter(spaces.Box(0, 5, (2,), np.int32), 1)
