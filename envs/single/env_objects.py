"""Environments that are objects of a program: classes, functions, instances, vector environments.

Each has an id while the program runs. The id of an object that can be imported is its ``module:Name``, so that another
process can find it. All other objects have ids of the form ``python/NAME``. In a vector environment that the program
made itself, experience is collected directly.
"""

import difflib
import functools
import importlib
import re
from collections.abc import Callable
from typing import Any, TypeAlias

import gymnasium
from gymnasium.envs.registration import EnvSpec
from gymnasium.vector import VectorEnv, VectorWrapper

from minding.engine.errors import ConfigError, installing, nearest
from minding.envs.single.parallel import hint_of
from minding.envs.single.wrappers import AnyEnv

AnyVectorEnv: TypeAlias = VectorEnv[Any, Any, Any]
_OF_VECTORS = ("num_envs", "vectorization_mode", "vector_kwargs", "wrappers")


class GivenVector:
    """Lends a vector environment to one collector at a time, and makes single environments like those in it."""

    def __init__(self, env: AnyVectorEnv) -> None:
        what = "evaluation needs single environments of the same kind"
        if not isinstance(env.spec, EnvSpec):
            raise ConfigError(
                f"env={env!r}: {what}, and this one cannot be rebuilt, because it has no spec: make it with "
                "gymnasium.make_vec, or pass an id or a function that makes one environment"
            )
        if isinstance(env, VectorWrapper):
            raise ConfigError(
                f"env={env!r}: {what}, and {type(env).__name__} wraps the whole vector: give the wrappers of single "
                "environments, as in gymnasium.make_vec(..., wrappers=[...]), or name them in env.wrappers"
            )
        self.spec = env.spec
        self._env = env
        self._lent = False

    def __call__(self, **kwargs: Any) -> AnyEnv:
        given = {key: value for key, value in self.spec.kwargs.items() if key not in _OF_VECTORS}
        env = gymnasium.make(self.spec.id, disable_env_checker=True, **{**given, **kwargs})
        for wrapper in self.spec.kwargs.get("wrappers") or ():
            env = wrapper(env)
        return env

    def holds(self, env: AnyVectorEnv) -> bool:
        """Whether `env` is the object that is lent."""
        return self._env is env

    def lend(self, num_envs: int) -> AnyVectorEnv:
        """Lends the vector environment until the returned object is closed."""
        if num_envs != self._env.num_envs:
            raise ConfigError(
                f"env.collector_env_num={num_envs}: the vector environment that was passed holds {self._env.num_envs}: "
                "leave the setting out"
            )
        if self._lent:
            raise ConfigError(
                f"env: the vector environment of {self.spec.id} is already in use in this program: close the "
                "other agent, or make another one with gymnasium.make_vec"
            )
        if getattr(self._env, "closed", False):
            raise ConfigError(f"env: the vector environment of {self.spec.id} is closed: make another one")
        self._lent = True
        return _Lent(self._env, self)

    def returned(self) -> None:
        """Records that the collector has returned the vector environment."""
        self._lent = False


class _Lent(VectorWrapper):
    """The vector environment on loan: closing it returns it."""

    def __init__(self, env: AnyVectorEnv, owner: GivenVector) -> None:
        super().__init__(env)
        self._owner = owner

    def close(self, **kwargs: Any) -> None:
        self._owner.returned()


PREFIX = "python/"
_sources: dict[str, Callable[..., AnyEnv]] = {}


def env_settings_of(env: Any) -> dict[str, Any]:
    """The settings of the section `env` that describe an environment."""
    if isinstance(env, str):
        return {"env_id": env}
    if isinstance(env, type) or (callable(env) and not hasattr(env, "observation_space")):
        return {"env_id": id_of(env)}
    if isinstance(env, VectorEnv):
        known = (each for each in _sources.values() if isinstance(each, GivenVector))
        lender = next((each for each in known if each.holds(env)), None) or GivenVector(env)
        env_id = _remember(lender, lender.spec.id.replace("/", "-"))
        return {"env_id": env_id, "collector_env_num": env.num_envs}
    spec = getattr(env, "spec", None)
    if not isinstance(spec, EnvSpec):
        remedy = f"; pass a function, such as lambda: {type(env).__name__}(...)" if hasattr(env, "step") else ""
        raise ConfigError(
            f"env={env!r}: expected an id, 'module:Class', a class or function that makes the environment, or an "
            "environment made by gymnasium.make; training makes several, and this one cannot be copied: it has no spec"
            f"{old_gym(env) or remedy}"
        )
    unmade = [wrapper.name for wrapper in spec.additional_wrappers if wrapper.kwargs is None]
    if unmade:
        raise ConfigError(
            f"env={env!r}: training makes several, and this one cannot be copied: its wrapper {unmade[-1]} does not "
            "record its arguments (gymnasium.utils.RecordConstructorArgs); pass a function, such as lambda: "
            f"{unmade[-1]}(gymnasium.make({spec.id!r}))"
        )
    standard = gymnasium.registry.get(spec.id)
    if standard is not None and not spec.additional_wrappers and spec.max_episode_steps == standard.max_episode_steps:
        given = {key: value for key, value in spec.kwargs.items() if standard.kwargs.get(key, ...) != value}
        return {"env_id": spec.id, "env_kwargs": given}
    return {"env_id": _remember(functools.partial(gymnasium.make, spec), spec.id.replace("/", "-"))}


def id_of(source: Callable[..., AnyEnv]) -> str:
    """The id of a class or function; the same object always has the same id."""
    module, name = getattr(source, "__module__", None), getattr(source, "__qualname__", "")
    if module not in (None, "__main__") and name.isidentifier():
        found = getattr(importlib.import_module(module), name, None)
        if found is source:
            return f"{module}:{name}"
    return _remember(source, name.rpartition(".")[2] or type(source).__name__)


def source_of(env_id: str) -> Callable[..., AnyEnv]:
    """The class or function of an id that begins with `PREFIX`."""
    if env_id not in _sources:
        raise ConfigError(
            f"env.env_id={env_id!r}: it was an object in the program that trained with it, and cannot be imported: "
            "pass it again, as in minding.load(path, env=MyEnv), or name it, as in `minding eval RUN --env "
            "script:MyEnv` for a class in script.py"
        )
    return _sources[env_id]


def adopt(env_id: str, source: Callable[..., AnyEnv]) -> None:
    """Assigns a saved id to an object of this program."""
    _sources[env_id] = source


def _remember(source: Callable[..., AnyEnv], name: str) -> str:
    name = name if name.replace("-", "").replace("_", "").isalnum() else "environment"
    number = 1
    while _sources.get(env_id := f"{PREFIX}{name}" + (f"-{number}" if number > 1 else ""), source) is not source:
        number += 1
    _sources[env_id] = source
    return env_id


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
