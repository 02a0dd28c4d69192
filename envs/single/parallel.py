"""Makes environments of several agents with PettingZoo's parallel interface from ids and objects."""

import functools
import importlib
import pkgutil
import re
from collections.abc import Callable
from typing import Any

from minding.engine.errors import ConfigError, MissingExtraError, nearest
from minding.engine.process.packages import import_installed
from minding.envs.single.tuple_parallel import TupleParallel, has_tuples
from minding.envs.single.turns import TurnTaking, turns_of

PACKAGES = {"mpe2": "mpe", "pettingzoo": "mpe"}
"""Packages of PettingZoo environments, package -> extra that installs it. The id 'package/name' is the module
``package.name``, 'package/family/name' is ``package.family.name``."""
FAMILIES = ("atari", "butterfly", "classic", "sisl")
"""Families of PettingZoo: the id 'family/name' is the module ``pettingzoo.family.name``."""
GAMES = {
    "smac": ("smac.env", "StarCraft2Env", "https://github.com/oxwhirl/smac"),
    "smacv2": ("smacv2.env", "StarCraftCapabilityEnvWrapper", "https://github.com/oxwhirl/smacv2"),
}
"""Packages of StarCraft's maps, package -> module, class and address. The id of a map is 'package/map'."""
SMAX = "smax"
"""The ids 'smax/map' are JaxMARL's battles on maps of these names, see `envs.single.smax`."""
OWN = {"minding/Battle-v0": "minding.envs.games.battle", "minding/Duel-v0": "minding.envs.games.battle.duel"}
"""Our own environments, id -> module with a `parallel_env`."""
VECTORS = {"mpe2/simple_spread_v3": "simple_spread", "mpe2/simple_tag_v3": "simple_tag"}
"""Environments of other packages that have a vector version here, id -> function of `envs.games.particles`."""
_SMAC = ("get_env_info", "get_obs", "get_state", "get_avail_actions")


def is_parallel_id(env_id: str) -> bool:
    """Whether an id is one that `parallel_source` knows."""
    package, slash, _ = env_id.partition("/")
    return env_id in OWN or (bool(slash) and package in (*PACKAGES, *GAMES, *FAMILIES, SMAX))


def hint_of(env_id: str) -> str:
    """The id for a module's dotted path, as ``; did you mean ...``; empty for others."""
    package, *families = env_id.split(".")
    if ":" in env_id or not families or package not in PACKAGES:
        return ""
    start = families[:-1] if package == "pettingzoo" else [package]
    return f"; did you mean {'/'.join([*start, families[-1]])!r}?"


def known_ids() -> dict[str, list[str]]:
    """The ids of our own environments and, if the package mpe2 is installed, of its environments, by family."""
    try:
        path = import_installed("mpe2").__path__
    except ImportError:
        return {"minding": [*OWN]}
    return {"minding": [*OWN], "mpe2": _versions("mpe2", path)}


def as_parallel(env: Any, name: str) -> Any | None:
    """The environment with the parallel interface; None if it is not an environment of several agents. An AEC
    environment is converted by PettingZoo if its agents may act simultaneously, else by `TurnTaking`, one with SMAC's
    interface by `SmacParallel`, and one with a Tuple of spaces by `TupleParallel`."""
    if hasattr(env, "agent_iter"):
        return _converted(env, name)
    if all(hasattr(env, method) for method in _SMAC):
        from minding.envs.single.smac import SmacParallel

        return SmacParallel(env)
    if has_tuples(env):
        return TupleParallel(env, name)
    return env if hasattr(env, "possible_agents") else None


def parallel_source(env_id: str) -> Callable[..., Any]:
    """The function that makes the environment of an id, see `is_parallel_id`."""
    if env_id in OWN:
        return importlib.import_module(OWN[env_id]).parallel_env  # type: ignore[no-any-return]
    package, *parts = env_id.split("/")
    if package == SMAX:
        from minding.envs.single.smax import smax_map

        return smax_map("/".join(parts))
    if package in GAMES:
        return _smac_map(env_id, package, "/".join(parts))
    start = env_id.rpartition("/")[0]
    if package in FAMILIES:
        package, parts = "pettingzoo", [package, *parts]
    *families, name = parts
    try:
        path = import_installed(".".join([package, *families])).__path__
    except ModuleNotFoundError as error:
        if families and error.name == ".".join([package, *families]):
            raise ConfigError(f"env.env_id={env_id!r}: unknown environment; {package} has no {families[0]!r}") from None
        raise MissingExtraError(package, PACKAGES[package], f"env.env_id={env_id!r}") from None
    except ImportError:
        raise MissingExtraError(package, PACKAGES[package], f"env.env_id={env_id!r}") from None
    known = _versions(start, path)
    if env_id not in known:
        raise ConfigError(f"env.env_id={env_id!r}: unknown environment{nearest(env_id, known)}")
    try:
        module = import_installed(".".join([package, *families, name]))
    except ImportError as error:
        raise ConfigError(
            f"env.env_id={env_id!r} needs {error.name or error}, which is not installed: "
            f"pip install '{package}[{families[0]}]'"
            if families
            else f"env.env_id={env_id!r} needs {error.name or error}, which is not installed"
        ) from error
    make = getattr(module, "parallel_env", None)
    return turns_of(module.env, env_id) if make is None else _with_vector(make, env_id)


def _with_vector(make: Callable[..., Any], env_id: str) -> Callable[..., Any]:
    """The function `make`, with the attribute `vector_env` if we have a vector version of the environment."""
    if env_id not in VECTORS:
        return make
    source: Any = functools.partial(make)
    source.vector_env = getattr(importlib.import_module("minding.envs.games.particles"), VECTORS[env_id])
    return source  # type: ignore[no-any-return]


def _versions(start: str, path: Any) -> list[str]:
    """The ids of the environments in a package, by the names of its modules."""
    return [f"{start}/{module.name}" for module in pkgutil.iter_modules(path) if re.search(r"_v\d+$", module.name)]


def _smac_map(env_id: str, package: str, map_name: str) -> Callable[..., Any]:
    module, name, address = GAMES[package]
    try:
        make = getattr(import_installed(module), name)
    except ImportError as error:
        raise ConfigError(
            f"env.env_id={env_id!r} needs the package {package!r} and the game: pip install git+{address}, and see "
            f"there how StarCraft II is installed ({error}); 'smax/{map_name}' (extra 'smax') and 'minding/Battle-v0' "
            "are battles that need no game"
        ) from None
    return functools.partial(make, map_name=map_name)


def _converted(env: Any, name: str) -> Any:
    if not getattr(env, "metadata", {}).get("is_parallelizable", False):
        return TurnTaking(env, name)
    from pettingzoo.utils.conversions import aec_to_parallel

    return aec_to_parallel(env)
