"""Battle: a team of riflemen on a grid against a scripted one, in the manner of SMAC."""

from minding.envs.games.battle.battle_vector import BattleVector
from minding.envs.games.battle.single import Battle
from minding.envs.single.smac import SmacParallel

__all__ = ["Battle", "BattleVector", "parallel_env"]


def parallel_env(map_name: str = "3v3", render_mode: str | None = None) -> SmacParallel:
    """A battle with PettingZoo's parallel interface."""
    return SmacParallel(Battle(map_name, render_mode=render_mode))


parallel_env.vector_env = BattleVector  # type: ignore[attr-defined]
