"""Environments: vectorised Gymnasium in one form, whatever the backend and its way to reset."""

from typing import TYPE_CHECKING

from minding.engine.process.versions import check_package

# Before other modules import what an older version lacks.
check_package("numpy")
check_package("gymnasium")

import gymnasium

from minding.envs.check import Finding, check_env, iter_findings
from minding.envs.config import config_schema, default_config
from minding.envs.making import make_env_manager
from minding.envs.manager import VectorEnvManager
from minding.envs.roles import make_board_game, make_collector_env, make_evaluator_env, make_goal_rules
from minding.envs.single.factory import register_env
from minding.envs.spec import describe_env, describe_space
from minding.other_names import missing_name

__all__ = [
    "Finding",
    "VectorEnvManager",
    "check_env",
    "config_schema",
    "default_config",
    "describe_env",
    "describe_space",
    "iter_findings",
    "make_board_game",
    "make_collector_env",
    "make_env_manager",
    "make_evaluator_env",
    "make_goal_rules",
    "register_env",
]

if "minding/PixelCatch-v0" not in gymnasium.registry:
    gymnasium.register("minding/PixelCatch-v0", "minding.envs.games.pixel_catch:PixelCatch")
    gymnasium.register(
        "minding/MaskedGrid-v0",
        "minding.envs.games.masked_grid:MaskedGrid",
        vector_entry_point="minding.envs.games.masked_grid:MaskedGridVector",
    )
    gymnasium.register(
        "minding/TMaze-v0",
        "minding.envs.games.tmaze:TMaze",
        vector_entry_point="minding.envs.games.tmaze:TMazeVector",
        max_episode_steps=100,
    )
    gymnasium.register(
        "minding/DeepSea-v0",
        "minding.envs.games.deep_sea:DeepSea",
        vector_entry_point="minding.envs.games.deep_sea:DeepSeaVector",
    )
    gymnasium.register("minding/BitFlip-v0", "minding.envs.games.bit_flip:BitFlip")
    gymnasium.register("minding/PointReach-v0", "minding.envs.games.point_reach:PointReach", max_episode_steps=50)
    gymnasium.register(
        "minding/RepeatPrevious-v0",
        "minding.envs.games.repeat_previous:RepeatPrevious",
        vector_entry_point="minding.envs.games.repeat_previous:RepeatPreviousVector",
    )
    gymnasium.register(
        "minding/TicTacToe-v0",
        "minding.envs.games.board:TicTacToeEnv",
        vector_entry_point="minding.envs.games.board:TicTacToeVector",
    )
    gymnasium.register(
        "minding/ConnectFour-v0",
        "minding.envs.games.board:ConnectFourEnv",
        vector_entry_point="minding.envs.games.board:ConnectFourVector",
    )

if not TYPE_CHECKING:
    # A type checker reports a missing name itself.

    def __getattr__(name):
        raise missing_name(__name__, name)
