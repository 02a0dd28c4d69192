"""Hints for ids of environments that are not registered."""

from __future__ import annotations

import difflib
import re

import gymnasium

from minding.engine.errors import nearest
from minding.envs.single.parallel import hint_of

_ELSEWHERE = {
    "gymnasium-robotics": ("Fetch", "HandReach", "HandManipulate", "Adroit", "PointMaze", "AntMaze", "FrankaKitchen"),
    "highway-env": ("highway-", "merge-", "roundabout-", "parking-", "intersection-", "racetrack-", "exit-"),
    "flappy-bird-gymnasium": ("FlappyBird",),
    "tetris-gymnasium": ("tetris_gymnasium/",),
}
"""Packages that register environments when they are imported, and prefixes of their ids. The name of the module is that
of the package, with underscores."""
_LIKE_ATARI = re.compile(r"[A-Z]\w+(NoFrameskip-v4|-v5)")
_LIKE = 0.65
"""Lowest ratio of `difflib` at which an id, compared without versions, is suggested."""
_TYPO = 0.8
"""Lowest ratio of `difflib` at which an id counts as a misspelling of a known one."""


def unknown_id(env_id: str) -> str:
    """The likely id, or the package of such environments, as ``; did you mean ...``; empty without a suggestion."""
    spaced = sorted(each for each in gymnasium.registry if each.rpartition("/")[2] == env_id)
    if spaced:
        return f"; did you mean {spaced[0]!r}?"
    for package, beginnings in _ELSEWHERE.items():
        if env_id.startswith(beginnings):
            module = package.replace("-", "_")
            return f"; it is one of {package}: pip install {package}, then env.env_id='{module}:{env_id}'"
    # Atari games are registered only when their package is imported, which takes as long as everything else together.
    if _LIKE_ATARI.fullmatch(env_id) and not difflib.get_close_matches(env_id, gymnasium.registry, cutoff=_TYPO):
        name = env_id.removesuffix("NoFrameskip-v4").removesuffix("-v5")
        return f"; a game of Atari is env.env_id='ALE/{name}-v5', with pip install 'minding[atari]'"
    return hint_of(env_id) or nearest(env_id, _near(env_id))


def _near(env_id: str) -> list[str]:
    """The registered ids with the nearest name; versions are left out of the comparison."""
    names: dict[str, list[str]] = {}
    for each in gymnasium.registry:
        names.setdefault(_bare(each), []).append(each)
    found = difflib.get_close_matches(_bare(env_id), names, n=1, cutoff=_LIKE)
    return [each for name in found for each in names[name]]


def _bare(env_id: str) -> str:
    return re.sub(r"-v\d+$", "", env_id).lower()
