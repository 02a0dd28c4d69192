"""minding: a middleware-pipeline reinforcement-learning engine on MindSpore."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from minding.agent import Agent, load

__version__ = "0.1.0"
__all__ = ["Agent", "load"]


def __getattr__(name: str) -> Any:
    # On first use: importing minding loads nothing.
    if name in __all__:
        from minding import agent

        return getattr(agent, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
