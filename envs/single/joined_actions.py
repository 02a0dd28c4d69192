"""Environments with Tuple or Dict actions, which take rows of numbers instead (see `engine.data.action_trees`)."""

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import VectorActionWrapper, VectorEnv

from minding.engine.types import Array
from minding.envs.single.wrappers import AnyEnv
from minding.envs.spaces.actions import JoinedActions


class JoinActions(gymnasium.ActionWrapper[Any, Any, Any]):  # type: ignore[misc]
    """Splits each row into the action that the environment takes; actions of its space pass unchanged."""

    action_space: JoinedActions

    def __init__(self, env: AnyEnv) -> None:
        super().__init__(env)
        self.action_space = JoinedActions(env.action_space)

    def action(self, action: Any) -> Any:
        return self.action_space.codec.split(action) if isinstance(action, np.ndarray) else action


class JoinVectorActions(VectorActionWrapper[Any, Any, Any, Any]):  # type: ignore[misc]
    """Splits each batch of rows into the actions that a vector environment takes."""

    action_space: JoinedActions

    def __init__(self, env: VectorEnv[Any, Any, Any]) -> None:
        super().__init__(env)
        self.single_action_space = JoinedActions(env.single_action_space)
        self.action_space = JoinedActions(env.single_action_space, env.num_envs)

    def actions(self, actions: Array) -> Any:
        return self.action_space.codec.split(actions)


def join_actions(env: AnyEnv) -> AnyEnv:
    """The environment, which takes rows if its action space is a Tuple or a Dict.

    Raises:
      SpaceError: a part of its action space is one in which policies cannot act.
    """
    return JoinActions(env) if isinstance(env.action_space, spaces.Tuple | spaces.Dict) else env


def join_vector_actions(env: VectorEnv[Any, Any, Any]) -> VectorEnv[Any, Any, Any]:
    """`join_actions` for a vector environment."""
    return JoinVectorActions(env) if isinstance(env.single_action_space, spaces.Tuple | spaces.Dict) else env
