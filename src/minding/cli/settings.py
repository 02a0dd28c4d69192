"""Options that stand for settings: no command line says two things about one setting, or one that does nothing."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from easydict import EasyDict

SHORTCUTS = {
    "seed": "seed",
    "out": "run.out_dir",
    "collectors": "lanes.collectors",
    "profile": "run.profile",
    "trace": "run.trace",
    "async_mode": "lanes.async_mode",
}
"""From an option of `minding train`, as click calls it, to the setting that it stands for."""


def with_shortcuts(overrides: Sequence[str], options: Mapping[str, Any]) -> list[str]:
    """KEY=VALUE texts, followed by those that options stand for.

    Args:
      overrides: what the user gave as KEY=VALUE.
      options: by name; None and False mean that an option is not given, others than `SHORTCUTS` are ignored.
    Raises:
      ConfigError: an option and a KEY=VALUE give one setting different values.
    """
    from minding.engine.config.compiler import parse_overrides
    from minding.engine.errors import ConfigError

    given = parse_overrides(overrides)
    texts = []
    for option, key in SHORTCUTS.items():
        value = options.get(option)
        if value is None or value is False:
            continue
        # Texts of JSON are texts of YAML, whatever the name of a folder looks like.
        text = f"{key}={json.dumps(value)}"
        said, meant = _at(given, key), _at(parse_overrides([text]), key)
        if said not in (None, meant):
            flag = "--async" if option == "async_mode" else f"--{option}"
            shown = flag if value is True else f"{flag} {value}"
            raise ConfigError(f"{shown} and {key}={_yaml(said)} contradict each other: give only one of them")
        texts.append(text)
    return [*overrides, *texts]


def check_lane_settings(overrides: Sequence[str], cfg: EasyDict, option: str) -> None:
    """Refuses settings of lanes, given on the command line, for a run that has none.

    Args:
      overrides: all of the command line, with those that options stand for.
      cfg: the compiled configuration.
      option: what would give the run lanes.
    Raises:
      ConfigError: names the setting.
    """
    from minding.engine.config.compiler import RUN_SCHEMA, parse_overrides
    from minding.engine.errors import ConfigError

    given = parse_overrides(overrides).get("lanes") or {}
    useless = [key for key, value in given.items() if key != "async_mode" and value != RUN_SCHEMA["lanes"][key].default]
    if useless and not cfg.lanes.async_mode:
        raise ConfigError(
            f"lanes.{useless[0]}={_yaml(given[useless[0]])} has no effect on a run without lanes: add {option}"
        )


def check_seed_options(overrides: Sequence[str], seeds: Sequence[int] | None, jobs: int | None, resume: bool) -> None:
    """Refuses options that contradict `--seeds`, or that do nothing with or without it.

    Args:
      overrides: all of the command line, with those that options stand for.
      seeds: what `--seeds` gave, None without it.
      jobs: what `--jobs` gave, None without it.
      resume: whether `--resume` was given.
    Raises:
      ConfigError: names the options.
    """
    from minding.engine.config.compiler import parse_overrides
    from minding.engine.errors import ConfigError

    if seeds is None:
        if jobs is not None:
            raise ConfigError(f"--jobs {jobs} has no effect on one run: also give --seeds, such as --seeds 0-4")
        return
    seed = parse_overrides(overrides).get("seed")
    if seed is not None:
        raise ConfigError(f"--seeds and seed={_yaml(seed)} contradict each other: give only one of them")
    if resume:
        raise ConfigError("--resume has no effect with --seeds, which always resumes: leave it out")


def _at(tree: Any, key: str) -> Any:
    for part in key.split("."):
        tree = tree.get(part) if isinstance(tree, Mapping) else None
    return tree


def _yaml(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
