"""minding: a middleware-pipeline reinforcement-learning engine on MindSpore."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from minding.di_engine import Modules, from_di_engine

if TYPE_CHECKING:
    from minding.agent import Agent, load

__version__ = "0.1.0"
__all__ = ["Agent", "load"]

if not TYPE_CHECKING:
    # A type checker finds a name that is not there itself.

    def __getattr__(name):
        # On first use: importing minding loads nothing.
        if name in __all__:
            from minding import agent

            return getattr(agent, name)
        raise from_di_engine(__name__, name)


sys.meta_path.append(Modules())
