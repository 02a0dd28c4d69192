"""The runtime: task, context, events, configuration. Imports neither MindSpore nor Gymnasium."""

from typing import TYPE_CHECKING

from minding.engine.chain.context import Context, OfflineRLContext, OnlineRLContext
from minding.engine.chain.middleware import Middleware, Role, declare
from minding.engine.chain.task import Task, task
from minding.engine.config.config import Config
from minding.engine.errors import (
    ChainError,
    CheckpointError,
    ConfigError,
    EnvError,
    MiddlewareError,
    MindingError,
    MissingExtraError,
    NonFiniteError,
    SetupError,
    ShapeError,
    SpaceError,
)
from minding.engine.lanes import lane_factory

if TYPE_CHECKING:
    from minding.engine.config.compiler import compile_config
    from minding.engine.run.run_dir import RunDir

__all__ = [
    "ChainError",
    "CheckpointError",
    "Config",
    "ConfigError",
    "Context",
    "EnvError",
    "Middleware",
    "MiddlewareError",
    "MindingError",
    "MissingExtraError",
    "NonFiniteError",
    "OfflineRLContext",
    "OnlineRLContext",
    "Role",
    "RunDir",
    "SetupError",
    "ShapeError",
    "SpaceError",
    "Task",
    "compile_config",
    "declare",
    "task",
]

# The chain does not import lanes, which consist of chains.
Task.lane_factory = lane_factory

if not TYPE_CHECKING:
    # Type checkers report missing names without this function.

    def __getattr__(name):
        # Loaded on first use: workers need neither.
        if name == "compile_config":
            from minding.engine.config.compiler import compile_config

            return compile_config
        if name == "RunDir":
            from minding.engine.run.run_dir import RunDir

            return RunDir
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
