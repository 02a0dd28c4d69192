"""Battle: a team of riflemen on a grid against a scripted one, in the manner of SMAC."""

from minding.envs.games.battle.battle_vector import BattleVector
from minding.envs.games.battle.single import UnitsGame

__all__ = ["BattleVector", "parallel_env"]


def parallel_env(map_name: str = "3v3", render_mode: str | None = None) -> UnitsGame:
    """A battle with PettingZoo's parallel interface."""
    return UnitsGame(BattleVector(1, map_name, global_state=True), "Battle", render_mode)


parallel_env.vector_env = BattleVector  # type: ignore[attr-defined]
