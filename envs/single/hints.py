"""What is said of an environment's id that nobody has registered."""

from __future__ import annotations

import gymnasium

from minding.engine.errors import nearest
from minding.envs.single.parallel import hint_of

_ELSEWHERE = {
    "gymnasium-robotics": ("Fetch", "HandReach", "HandManipulate", "Adroit", "PointMaze", "AntMaze", "FrankaKitchen"),
    "highway-env": ("highway-", "merge-", "roundabout-", "parking-", "intersection-", "racetrack-", "exit-"),
    "flappy-bird-gymnasium": ("FlappyBird",),
    "tetris-gymnasium": ("tetris_gymnasium/",),
}
"""Packages that register environments when they are imported, and how their ids begin. The module is named like the
package, with underscores."""


def unknown_id(env_id: str) -> str:
    """What was meant, or where such environments come from, as ``; did you mean ...``; empty if nothing is known."""
    spaced = sorted(each for each in gymnasium.registry if each.rpartition("/")[2] == env_id)
    if spaced:
        return f"; did you mean {spaced[0]!r}?"
    for package, beginnings in _ELSEWHERE.items():
        if env_id.startswith(beginnings):
            module = package.replace("-", "_")
            return f"; it is one of {package}: pip install {package}, then env.env_id='{module}:{env_id}'"
    return hint_of(env_id) or nearest(env_id, gymnasium.registry)
