"""Hints for ids of environments that are not registered."""

import difflib
import re

import gymnasium

from minding.engine.errors import installing, nearest
from minding.envs.single.parallel import hint_of

_ELSEWHERE = {
    "gymnasium-robotics": ("Fetch", "HandReach", "HandManipulate", "Adroit", "PointMaze", "AntMaze", "FrankaKitchen"),
    "highway-env": ("highway-", "merge-", "roundabout-", "parking-", "intersection-", "racetrack-", "exit-"),
    "flappy-bird-gymnasium": ("FlappyBird",),
    "tetris-gymnasium": ("tetris_gymnasium/",),
}
"""Packages that register environments when they are imported, and prefixes of their ids. The name of the module is that
of the package, with underscores."""
_ATARI = (
    "Adventure AirRaid Alien Amidar Assault Asterix Asteroids Atlantis BankHeist BattleZone BeamRider Berzerk Bowling "
    "Boxing Breakout Carnival Centipede ChopperCommand CrazyClimber Defender DemonAttack DoubleDunk ElevatorAction "
    "Enduro FishingDerby Freeway Frostbite Gopher Gravitar Hero IceHockey Jamesbond JourneyEscape Kangaroo Krull "
    "KungFuMaster MontezumaRevenge MsPacman NameThisGame Phoenix Pitfall Pong Pooyan PrivateEye Qbert Riverraid "
    "RoadRunner Robotank Seaquest Skiing Solaris SpaceInvaders StarGunner Surround Tennis TimePilot Tutankham UpNDown "
    "Venture VideoPinball WizardOfWor YarsRevenge Zaxxon"
)
"""Games whose ids are registered only when their package is imported, which takes as long as everything else."""
_OF_ATARI = re.compile(r"(\w+?)(-ram)?(NoFrameskip|Deterministic)?-v\d")
PREPROCESSING = "env.wrappers=[atari] env.env_kwargs.frameskip=1"
"""The settings of games of Atari that are learned from pixels."""
_LIKE = 0.65
"""Lowest ratio of `difflib` at which an id, compared without versions, is suggested."""


def unknown_id(env_id: str) -> str:
    """The likely id, or the package of such environments, as ``; did you mean ...``."""
    game = _OF_ATARI.fullmatch(env_id)
    is_atari = game and game[1] in _ATARI.split()
    # Of what Atari and MinAtar share, an id without a namespace has always been Atari's.
    spaced = [
        each
        for each in gymnasium.registry
        if each.rpartition("/")[2] == env_id and not (is_atari and each.startswith("MinAtar/"))
    ]
    if known := newest(env_id) or max(spaced, default=""):
        return f"; did you mean {known!r}?"
    for package, beginnings in _ELSEWHERE.items():
        if env_id.startswith(beginnings):
            module = package.replace("-", "_")
            return f"; it is one of {package}: pip install {package}, then env.env_id='{module}:{env_id}'"
    if game and is_atari:
        more = "env.env_kwargs.obs_type=ram" if game[2] else PREPROCESSING
        return f"; a game of Atari is env.env_id='ALE/{game[1]}-v5' {more}, with {installing('atari')}"
    found = hint_of(env_id) or nearest(env_id, _near(env_id))
    return found or f"; an id that a package registers when it is imported is env.env_id='package:{env_id}'"


def newest(env_id: str) -> str:
    """The newest registered version of an id; an empty string if there is none."""
    versions = [each for each in gymnasium.registry if _bare(each) == _bare(env_id)]
    return max(versions, key=lambda each: int(f"0{each.rpartition('-v')[2]}"), default="")


def old_gym(thing: object) -> str:
    """Advice for an environment or space of gym, the predecessor of Gymnasium; an empty string for others."""
    if not any(kind.__module__.partition(".")[0] == "gym" for kind in type(thing).__mro__):
        return ""
    return (
        "; it belongs to the old package gym: import gymnasium in its place, or return "
        "shimmy.GymV26CompatibilityV0(env=...) from a function of yours (GymV21CompatibilityV0 for gym before 0.26)"
    )


def _near(env_id: str) -> list[str]:
    """The registered ids with the nearest name; versions are left out of the comparison."""
    names: dict[str, list[str]] = {}
    for each in gymnasium.registry:
        names.setdefault(_bare(each), []).append(each)
    found = difflib.get_close_matches(_bare(env_id), names, n=1, cutoff=_LIKE)
    return [each for name in found for each in names[name]]


def _bare(env_id: str) -> str:
    return re.sub(r"-v\d+$", "", env_id).lower()
