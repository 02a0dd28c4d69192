"""Algorithms, one per file of this folder; the settings of each are in the module of its family in ``settings/``.

An algorithm that differs from another only in its settings has no file here, see `Algorithm.variant_of`.
"""

from __future__ import annotations

import ast
import dataclasses
import importlib
import inspect
import pkgutil
from pathlib import Path
from typing import TYPE_CHECKING

from minding.engine.config.named import is_named, load_code
from minding.engine.errors import ConfigError, nearest
from minding.policies import settings
from minding.policies.settings import Algorithm

if TYPE_CHECKING:
    from minding.policies.core.base import BasePolicy

__all__ = ["ALGORITHMS", "Algorithm", "by_kind", "find_algorithms", "get_algorithm", "get_policy_class", "summary_of"]


def by_kind() -> dict[str, tuple[Algorithm, ...]]:
    """The algorithms of each module in ``settings/``, by what the module says of them, as 'Value-based algorithms'."""
    modules = settings.families()
    kinds = [(inspect.getdoc(module) or "").removeprefix("Settings of ").removesuffix(".") for module in modules]
    return {kind[0].upper() + kind[1:]: module.ALGORITHMS for kind, module in zip(kinds, modules)}


def find_algorithms() -> dict[str, Algorithm]:
    """All algorithms by name, from the tables of the modules in ``settings/``; no policy is imported. ConfigError if a
    policy file of this folder has no entry in these tables."""
    found = {entry.name: entry for table in by_kind().values() for entry in table}
    # The folders here are packages of parts, not algorithms.
    for module in pkgutil.iter_modules(__path__):
        if not module.ispkg and module.name not in found:
            raise ConfigError(
                f"policies/{module.name}.py has no settings: add an entry to ALGORITHMS of a file in policies/settings/"
            )
    return dict(sorted(found.items()))


ALGORITHMS = find_algorithms()


def get_algorithm(name: str) -> Algorithm:
    """The algorithm with this name, or the entry of the user-defined policy class that the name refers to; ConfigError
    with the nearest name if there is none."""
    if is_named(name):
        kind = _own_class(name)
        return dataclasses.replace(algorithm_of(kind), name=name, class_name=kind.__name__, variant_of="")
    if name not in ALGORITHMS:
        known = ", ".join(ALGORITHMS)
        hint = settings.other_libraries.relative(name, ALGORITHMS) or nearest(name, ALGORITHMS)
        dot = "" if hint.endswith("?") else "."
        raise ConfigError(f"policy.type: unknown algorithm {name!r}{hint}{dot} Expected one of {known}")
    return ALGORITHMS[name]


def summary_of(name: str) -> str:
    """The first line of an algorithm's file, or of a variant's settings, such as ``PPO: ...``; neither is imported."""
    entry = ALGORITHMS[name]
    if entry.variant_of:
        text = entry.settings.__doc__ or ""
    else:
        source = Path(__path__[0], f"{name}.py").read_text(encoding="utf-8")
        text = ast.get_docstring(ast.parse(source)) or ""
    return text.partition("\n")[0]


def get_policy_class(name: str) -> type[BasePolicy]:
    """The policy class of an algorithm; loads MindSpore, which the first policy that is built prepares."""
    if is_named(name):
        return _own_class(name)
    algorithm = get_algorithm(name)
    module = importlib.import_module(f"minding.policies.{algorithm.variant_of or name}")
    kind: type[BasePolicy] = getattr(module, algorithm.class_name)
    return kind


def algorithm_of(kind: type[BasePolicy]) -> Algorithm:
    """The entry of a policy class: its attribute `algorithm`, or the entry of the algorithm whose class it is or is
    derived from, whatever its own `name`."""
    own = getattr(kind, "algorithm", None)
    if isinstance(own, Algorithm):
        return own
    for base in kind.__mro__:
        name = base.__module__.removeprefix("minding.policies.")
        if name in ALGORITHMS:
            return ALGORITHMS[name]
    raise ConfigError(
        f"policy.type: the class {kind.__name__} of {kind.__module__} needs an attribute `algorithm`, a "
        "minding.policies.Algorithm with its settings, or has to be derived from the class of an algorithm, such as PPO"
    )


def _own_class(name: str) -> type[BasePolicy]:
    from minding.policies.core.base import BasePolicy

    kind = load_code(name, "policy.type")
    if not (isinstance(kind, type) and issubclass(kind, BasePolicy)):
        raise ConfigError(f"policy.type={name!r}: expected a class derived from a policy such as PPO, got {kind!r}")
    return kind


def __getattr__(name: str) -> type[BasePolicy]:
    for algorithm in ALGORITHMS.values():
        if algorithm.class_name == name:
            return get_policy_class(algorithm.name)
    found = [algorithm.class_name for algorithm in ALGORITHMS.values()]
    if name in ALGORITHMS:
        # After an AttributeError, `from minding.policies import sac` imports the module.
        raise AttributeError(f"module 'minding.policies' has no attribute {name!r} before its module is imported")
    raise AttributeError(f"module 'minding.policies' has no attribute {name!r}{nearest(name, found)}")
