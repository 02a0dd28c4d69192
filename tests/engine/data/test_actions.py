"""From the actions of policies to those of environments."""

import numpy as np
import pytest
from gymnasium import spaces

from minding.engine.data.actions import ActionAdapter
from minding.engine.errors import ShapeError
from minding.envs.spaces.actions import describe_actions


def adapter_of(space, rescale=True):
    return ActionAdapter(describe_actions(space, rescale=rescale))


def test_scaled_actions_stay_inside_bounds():
    space = spaces.Box(np.float32(-0.1), np.float32(0.7), (1,), np.float32)
    adapter = adapter_of(space)
    for action in adapter(np.array([[1.0], [-1.0], [np.inf], [-np.inf]], np.float32)):
        assert space.contains(action)
    assert adapter(np.zeros((2, 1), np.float32)) == pytest.approx(0.3)
    starting = adapter_of(spaces.MultiDiscrete([3, 2], start=[10, -1]))
    assert starting(np.array([[0, 0], [2, 1]])).tolist() == [[10, -1], [12, 0]]


def test_native_actions_are_clipped_and_not_scaled():
    adapter = adapter_of(spaces.Box(-2.0, 4.0, (1,), np.float64))
    given = np.array([[0.5], [4.5]], np.float32)
    adopted = adapter.adopt(given)
    assert (adopted.tolist(), adopted.dtype) == ([[0.5], [4.0]], np.float64)
    choices = adapter_of(spaces.Discrete(3, start=5, dtype=np.int8))
    given = np.array([5, 7])
    adopted = choices.adopt(given)
    assert (adopted.tolist(), adopted.dtype) == ([5, 7], np.int8)
    # Environments may write into what they are given.
    same = adapter_of(spaces.Discrete(3)).adopt(given)
    same += 1
    assert given.tolist() == [5, 7]


def test_the_actions_of_several_agents_are_mapped_one_by_one():
    box = spaces.Box(np.array([0.0, -2.0]), np.array([1.0, 2.0]), dtype=np.float32)
    adapter = ActionAdapter(describe_actions(box, rescale=True), agents=3)
    assert (adapter.shape, adapter.row_shape) == ((2,), (3, 2))
    action = np.zeros((4, 3, 2), np.float32)
    action[0, 1] = [1.0, -1.0]
    assert adapter(action)[0].tolist() == [[0.5, 0.0], [1.0, -2.0], [0.5, 0.0]]
    counted = ActionAdapter(describe_actions(spaces.Discrete(3, start=7), rescale=True), agents=2)
    assert counted(np.array([[0, 2]])).tolist() == [[7, 9]]
    assert counted.adopt(np.array([[7, 9]])).tolist() == [[7, 9]]
    with pytest.raises(ShapeError, match=r"integer \(N, 2\), of 2 agents in each environment, got int64 \(2,\)"):
        counted(np.array([0, 2]))
