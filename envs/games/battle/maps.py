"""The maps of the battle: the size of both teams, the grid, and the length of an episode."""

from __future__ import annotations

import dataclasses

from minding.engine.errors import nearest


@dataclasses.dataclass(frozen=True)
class BattleMap:
    """A grid on which two teams of riflemen meet.

    Attributes:
      allies, enemies: number of units of each team.
      width, height: size of the grid in cells.
      limit: most steps of an episode.
    """

    allies: int
    enemies: int
    width: int = 16
    height: int = 12
    limit: int = 60

    @property
    def units(self) -> int:
        """Number of units of both teams; allies come first."""
        return self.allies + self.enemies


MAPS = {
    "3v3": BattleMap(3, 3),
    "5v5": BattleMap(5, 5),
    "5v6": BattleMap(5, 6),
    "8v8": BattleMap(8, 8, width=18, height=14, limit=80),
}

HEALTH = 40.0
DAMAGE, SCRIPT_DAMAGE = 8.0, 7.0
"""Damage of one shot of an ally, which kills with five shots, and of the scripted team, which kills with six."""
PAUSE = 2
"""Steps between two shots in which the rifle is not ready."""
RANGE = 5.0
SIGHT = 8.0


def find_map(name: str) -> BattleMap:
    """The map with this name.

    Raises:
      ValueError: the map does not exist.
    """
    if name not in MAPS:
        raise ValueError(f"map_name={name!r}: unknown map{nearest(name, MAPS)}; expected one of {', '.join(MAPS)}")
    return MAPS[name]
