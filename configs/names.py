"""Names of presets and algorithms, and the message for unknown ones."""

from __future__ import annotations

import importlib
import os
import pkgutil
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NoReturn

from minding.engine.config.named import is_named
from minding.engine.data.action_trees import COMPOSITE
from minding.engine.errors import ConfigError, nearest

if TYPE_CHECKING:
    from minding.engine.config.compiler import Overrides
    from minding.policies import Algorithm

PRESETS: tuple[str, ...] = tuple(
    sorted(
        module.name
        for module in pkgutil.iter_modules([os.path.dirname(os.path.abspath(__file__))])
        if "_" in module.name.strip("_")
    )
)
"""Names of all presets, from the files of this folder; no preset is imported."""

_LIKE_AN_ENVIRONMENT = re.compile(r"[-_]v\d+$")


def is_algorithm(name: str) -> bool:
    """Whether a name is the name of an algorithm, or of a user's algorithm as ``module:Class``."""
    from minding.policies import ALGORITHMS

    return name in ALGORITHMS or (is_named(name) and not os.path.exists(name))


def is_name(text: str) -> bool:
    """Whether a string is the name of a preset or of an algorithm, even if a file or folder has the same name."""
    return text in PRESETS or is_algorithm(text)


def check_one_algorithm(name: str, given: Overrides) -> None:
    """Refuses settings that name another algorithm than `name`."""
    other = given.value("policy.type")
    if is_algorithm(name) and other not in (None, name):
        raise ConfigError(f"{name} and policy.type={other} name two algorithms: give only {other}, in place of {name}")


def unknown_name(name: str) -> str:
    """Suggestions for a name that is neither a preset nor an algorithm."""
    from minding.policies import ALGORITHMS
    from minding.policies.settings.other_libraries import relative

    if not name.strip():
        return "it is empty: expected a preset, an algorithm, a file or a run folder; `minding list` shows presets"
    if _LIKE_AN_ENVIRONMENT.search(name):
        return f"an environment is given with an algorithm, as in `minding train ppo --env {name}`"
    begun = [preset for preset in PRESETS if preset.startswith(f"{name.lower()}_")]
    near = relative(name, ALGORITHMS) or nearest(name, [*PRESETS, *ALGORITHMS])
    hint = f"; did you mean one of {', '.join(begun)}?" if begun else near
    dot = "" if hint.endswith("?") else "."
    return f"neither a preset, an algorithm, a file nor a run folder{hint}{dot} `minding list` shows the first two"


def expectation(preset: str) -> str:
    """The expected result of a preset: `run.target` within the length of its run, or what its docstring says."""
    module = importlib.import_module(f"minding.configs.{preset}")
    said = (module.__doc__ or "").partition("Expected: ")[2]
    if said:
        return " ".join(said.split())
    run = module.main_config.run
    return f"an evaluation mean of at least {run.target:g} within {_length(run)} steps."


def _length(run: Mapping[str, Any]) -> str:
    """The length of a run in text, as ``300k environment``."""
    unit = "max_env_step" if "max_env_step" in run else "max_train_iter"
    steps = f"{run[unit] / 1e6:g}M" if run[unit] >= 1e6 else f"{run[unit] / 1e3:g}k"
    return f"{steps} {'environment' if unit == 'max_env_step' else 'gradient'}"


def presets_of(algorithm: str) -> list[str]:
    """Names of the presets of an algorithm; imports all presets."""
    modules = {name: importlib.import_module(f"minding.configs.{name}") for name in PRESETS}
    return [name for name, module in modules.items() if module.main_config.policy.type == algorithm]


def example_env(algorithm: Algorithm) -> str:
    """An environment in which an algorithm can learn with its defaults."""
    if algorithm.agents == "several":
        return "mpe2/simple_spread_v3"
    if algorithm.chain == "self_play":
        return "minding/TicTacToe-v0"
    if algorithm.actions == (COMPOSITE,):
        return "minding/Aim-v0"
    return "CartPole-v1" if "discrete" in algorithm.actions else "Pendulum-v1"


def names_env(user: Mapping[str, Any], said: Mapping[str, Any]) -> bool:
    """Whether settings or overrides name an environment."""
    sections = [user.get("env"), said.get("env")]
    return any(section.get("env_id") if isinstance(section, Mapping) else section is not None for section in sections)


def refuse_without_env(algorithm: Algorithm) -> NoReturn:
    """Raises the error for settings that name no environment."""
    presets = presets_of(algorithm.name)
    choice = f", or train a preset: {', '.join(presets)}" if presets else ""
    offline = algorithm.unit == "train_iter"
    from_data = ", or policy.other.data=FOLDER, recorded data that name theirs" if offline else ""
    raise ConfigError(
        f"policy.type={algorithm.name!r} needs an environment, and env.env_id is missing: add one, as in `minding "
        f"train {algorithm.name} --env {example_env(algorithm)}`{from_data}{choice}"
    )
