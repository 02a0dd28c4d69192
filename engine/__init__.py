"""The runtime: task, context, events, configuration. Imports neither MindSpore nor Gymnasium."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from minding.engine.context import Context, OfflineRLContext, OnlineRLContext
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
from minding.engine.middleware import Role, declare
from minding.engine.task import Task, task

if TYPE_CHECKING:
    from minding.engine.config import compile_config

__all__ = [
    "ChainError",
    "CheckpointError",
    "ConfigError",
    "Context",
    "EnvError",
    "MiddlewareError",
    "MindingError",
    "MissingExtraError",
    "NonFiniteError",
    "OfflineRLContext",
    "OnlineRLContext",
    "Role",
    "SetupError",
    "ShapeError",
    "SpaceError",
    "Task",
    "compile_config",
    "declare",
    "task",
]


def __getattr__(name: str) -> Any:
    # Loaded on first use: a script that brings its own configuration needs none of it.
    if name == "compile_config":
        from minding.engine.config import compile_config

        return compile_config
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
