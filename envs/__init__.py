"""Environments: vectorised Gymnasium in one form, whatever the backend and its way to reset."""

from minding.engine.process.packages import check_package

# Before other modules import what an older version lacks.
check_package("numpy")
check_package("gymnasium")

import gymnasium

from minding.envs.check import Finding, check_env, iter_findings
from minding.envs.config import config_schema, default_config
from minding.envs.making import (
    make_board_game,
    make_collector_env,
    make_env_manager,
    make_evaluator_env,
    make_goal_rules,
)
from minding.envs.manager import VectorEnvManager
from minding.envs.single.factory import register_env
from minding.envs.spec import describe_env, describe_space

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
        "minding.envs.games.grids:MaskedGrid",
        vector_entry_point="minding.envs.games.grids:MaskedGridVector",
    )
    gymnasium.register(
        "minding/TMaze-v0",
        "minding.envs.games.memory_games:TMaze",
        vector_entry_point="minding.envs.games.memory_games:TMazeVector",
        max_episode_steps=100,
    )
    gymnasium.register(
        "minding/DeepSea-v0",
        "minding.envs.games.grids:DeepSea",
        vector_entry_point="minding.envs.games.grids:DeepSeaVector",
    )
    gymnasium.register("minding/BitFlip-v0", "minding.envs.games.goal_games:BitFlip")
    gymnasium.register("minding/PointReach-v0", "minding.envs.games.goal_games:PointReach", max_episode_steps=50)
    gymnasium.register("minding/Aim-v0", "minding.envs.games.aim:Aim", max_episode_steps=10)
    gymnasium.register(
        "minding/RepeatPrevious-v0",
        "minding.envs.games.memory_games:RepeatPrevious",
        vector_entry_point="minding.envs.games.memory_games:RepeatPreviousVector",
    )

    for _name, _rules in (
        ("TicTacToe", "tic_tac_toe"),
        ("ConnectFour", "connect_four"),
        ("Gomoku", "gomoku"),
        ("Othello", "othello"),
        ("Breakthrough", "breakthrough"),
    ):
        gymnasium.register(
            f"minding/{_name}-v0",
            "minding.envs.games.board:RulesEnv",
            vector_entry_point="minding.envs.games.board:RulesVector",
            kwargs={"rules": _rules},
        )
