"""Options that stand for settings; refuses options that contradict a setting or have no effect."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from minding.engine.config.compiler import Overrides
    from minding.engine.config.config import Config

SHORTCUTS = {
    "algo": "policy.type",
    "env": "env.env_id",
    "seed": "seed",
    "steps": "run.max_env_step",
    "device": "device",
    "out": "run.out_dir",
    "collectors": "lanes.collectors",
    "profile": "run.profile",
    "begin_from": "run.begin_from",
    "trace": "run.trace",
    "async_mode": "lanes.async_mode",
    "cluster": "lanes.address",
    "insecure_cluster": "lanes.insecure",
}
"""Settings that options of `minding train` stand for, by click's name of the option."""
_FLAGS = {"async_mode": "--async", "begin_from": "--from", "insecure_cluster": "--insecure-cluster"}


def with_shortcuts(overrides: Sequence[str], options: Mapping[str, Any]) -> Overrides:
    """KEY=VALUE strings, followed by those that options stand for."""
    from minding.engine.config.compiler import Overrides
    from minding.engine.config.yaml_text import one_line
    from minding.engine.errors import ConfigError

    given = Overrides(overrides)
    wanted = [(option, key, options.get(option)) for option, key in SHORTCUTS.items()]
    if options.get("cluster") is not None:
        wanted.append(("cluster", "lanes.transport", "ray"))
    texts = []
    for option, key, value in wanted:
        if value is None or value is False:
            continue
        # Quoted, so that the name of a folder stays a string, whatever it looks like.
        text = f"{key}={one_line(value)}"
        said, meant = given.value(key), Overrides([text]).value(key)
        if said not in (None, meant):
            flag = _FLAGS.get(option, f"--{option}")
            shown = flag if value is True else f"{flag} {options[option]}"
            raise ConfigError(f"{shown} and {key}={_yaml(said)} contradict each other: give only one of them")
        texts.append(text)
    return Overrides([*overrides, *texts])


def split_arguments(config: str | None, overrides: tuple[str, ...]) -> tuple[str | None, tuple[str, ...]]:
    """Splits arguments into the name of the configuration and the KEY=VALUE strings. The name is None if the command
    line begins with KEY=VALUE."""
    from minding.engine.errors import ConfigError

    if config is not None and "=" in config and not Path(config).exists():
        overrides, config = (config, *overrides), None
    for text in overrides:
        if "=" not in text:
            raise ConfigError(
                f"unexpected {text!r}: expected settings as KEY=VALUE, such as policy.learn.gamma=0.99; an environment "
                "is given with --env, as in `minding train ppo --env CartPole-v1`"
            )
    return config, overrides


def check_source(config: str | None, given: Overrides) -> None:
    """Refuses a command line that names nothing to train, or two algorithms."""
    from minding.configs.names import check_one_algorithm
    from minding.engine.errors import ConfigError

    if config is None and given.value("policy.type") is None:
        raise ConfigError(
            "nothing to train is given: expected a preset, as in `minding train cartpole_ppo`, or an algorithm and an "
            "environment, as in `minding train ppo --env CartPole-v1`"
        )
    if config is not None:
        check_one_algorithm(config, given)


def check_lane_settings(given: Overrides, cfg: Config, option: str) -> None:
    """Refuses settings of lanes on the command line that the run cannot use."""
    from minding.engine.config.compiler import RUN_SCHEMA
    from minding.engine.errors import ConfigError

    for key, declared in RUN_SCHEMA["lanes"].items():
        value = given.value(f"lanes.{key}")
        # Learners are not lanes: a synchronous run may have several.
        if key in ("async_mode", "learners") or value in (None, declared.default):
            continue
        if not cfg.lanes.async_mode:
            raise ConfigError(f"lanes.{key}={_yaml(value)} has no effect on a run without lanes: add {option}")
        if key in ("address", "insecure") and cfg.lanes.transport != "ray":
            raise ConfigError(f"lanes.{key}={_yaml(value)} is for lanes.transport=ray, not {cfg.lanes.transport}")


def check_seed_options(given: Overrides, seeds: Sequence[int] | None, jobs: int | None, resume: bool) -> None:
    """Refuses options that contradict `--seeds`, or that have no effect with it or without it."""
    from minding.engine.errors import ConfigError

    if seeds is None:
        if jobs is not None:
            raise ConfigError(f"--jobs {jobs} has no effect on a single run: also give --seeds, such as --seeds 0-4")
        return
    if given.value("seed") is not None:
        raise ConfigError(f"--seeds and seed={_yaml(given.value('seed'))} contradict each other: give only one of them")
    if resume:
        raise ConfigError("--resume has no effect with --seeds, which always resumes: leave it out")


def _yaml(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
