"""Algorithms, one per file of this folder; the settings of each are in the file of the same name in ``settings/``."""

from __future__ import annotations

import importlib
import pkgutil
from typing import Any

from minding.engine.errors import ConfigError, nearest
from minding.policies.settings.algorithm import Algorithm

__all__ = ["ALGORITHMS", "Algorithm", "find_algorithms", "get_algorithm", "get_policy_class"]


def find_algorithms() -> dict[str, Algorithm]:
    """All algorithms by name, from the files of this folder, of which only the settings are imported.

    Raises:
      ModuleNotFoundError: if the settings of one are missing.
    """
    # Folders hold what algorithms are built from.
    names = sorted(module.name for module in pkgutil.iter_modules(__path__) if not module.ispkg)
    return {name: importlib.import_module(f"minding.policies.settings.{name}").algorithm for name in names}


ALGORITHMS = find_algorithms()


def get_algorithm(name: str) -> Algorithm:
    """The algorithm of a name.

    Raises:
      ConfigError: if there is none; names the nearest.
    """
    if name not in ALGORITHMS:
        known = ", ".join(ALGORITHMS)
        hint = nearest(name, ALGORITHMS) or "."
        raise ConfigError(f"policy.type: unknown algorithm {name!r}{hint} Expected one of {known}")
    return ALGORITHMS[name]


def get_policy_class(name: str) -> Any:
    """The policy class of an algorithm; loads MindSpore, but leaves its settings to the first policy that is built."""
    algorithm = get_algorithm(name)
    return getattr(importlib.import_module(f"minding.policies.{name}"), algorithm.class_name)


def __getattr__(name: str) -> Any:
    for algorithm in ALGORITHMS.values():
        if algorithm.class_name == name:
            return get_policy_class(algorithm.name)
    raise AttributeError(f"module 'minding.policies' has no attribute {name!r}")
