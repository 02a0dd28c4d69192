"""minding: a middleware-pipeline reinforcement-learning engine on MindSpore."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from minding.agent import Agent, load

__version__ = "0.1.0"
__all__ = ["Agent", "load"]

if not TYPE_CHECKING:
    # A type checker reports a missing name itself.

    def __getattr__(name):
        # Names are imported on first use, so that importing minding loads nothing else.
        if name in __all__:
            from minding import agent

            return getattr(agent, name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
