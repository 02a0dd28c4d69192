"""The `env` section of the configuration: one option per key, and its defaults."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from minding.engine.config.options import Option, opt
from minding.engine.data.dataset import RECORDED
from minding.engine.errors import ConfigError, nearest

BACKENDS = ("auto", "native", "sync", "subprocess", "envpool")
# Filled in by the config compiler from `describe_env`; not a setting.
_DERIVED = ("spec",)


def config_schema() -> dict[str, Option]:
    """The options of `cfg.env`."""
    return {
        "env_id": opt(
            "",
            None,
            "Gymnasium id, 'mpe2/NAME', 'sisl/NAME', 'smac/MAP', or your own 'module:ClassOrFunction'; 'data': no "
            "environment, spaces and limits come from the recorded data; required",
        ),
        "env_kwargs": opt({}, "open", "keyword arguments of the environment"),
        "collector_env_num": opt(8, "[1, 65536]", "environments used to collect training data"),
        "evaluator_env_num": opt(5, "[1, 65536]", "environments used for evaluation"),
        "single_instance": opt(
            False,
            None,
            "only one instance can exist at a time, as with a robot: collecting and evaluation take turns on it",
        ),
        "backend": opt("auto", BACKENDS, "how environments are stepped; subprocess pays off only for slow ones"),
        "info_keys": opt([], None, "keys of info passed on with each step, such as action_mask or success"),
        "global_state": opt(
            False, None, "several agents: add the global state, or else all observations, to the observation"
        ),
        "team_reward": opt(False, None, "several agents: each receives the sum of all rewards"),
        "wrappers": opt([], None, "wrappers as name or {name: kwargs}, innermost first; see environments.md"),
        "max_episode_steps": opt(None, "[1, inf)", "time limit in steps, instead of the environment's own", type=int),
        "rescale_action": opt(True, None, "policies act in [-1, 1], mapped to the bounds of a finite Box"),
        "normalize_reward": opt(
            False, None, "divide rewards by the running standard deviation of the discounted return"
        ),
        "reward_gamma": opt(0.99, "[0, 1]", "discount factor of that return; use the policy's gamma"),
        "reward_clip": opt(
            None,
            "(0, inf]",
            "clip training rewards to plus or minus this; None: 10 with normalize_reward, otherwise no clipping",
            type=float,
        ),
        "episodic_life": opt(False, None, "end training episodes at the loss of a life (Atari)"),
        "on_error": opt("raise", ("raise", "restart"), "after a fault: end the run, or restart that environment"),
        "step_timeout": opt(60.0, "(0, inf)", "seconds that a step or reset of an environment may take"),
        "workers": opt(0, "[0, inf)", "worker processes (subprocess only); 0 means one per core"),
    }


def default_config() -> dict[str, Any]:
    """A fresh plain dict of the defaults of `cfg.env`."""
    return {key: option.check(option.default, f"env.{key}") for key, option in config_schema().items()}


def env_settings(env_cfg: Mapping[str, Any]) -> dict[str, Any]:
    """Lays `env_cfg` over the defaults and checks every value.

    Raises:
      ConfigError: for an unknown key, a wrong type or a value out of range; names ``env.<key>``.
    """
    schema = config_schema()
    for key in env_cfg:
        if key not in schema and key not in _DERIVED:
            raise ConfigError(f"env.{key}: unknown key{nearest(key, schema)}")
    settings = {key: option.check(env_cfg.get(key, option.default), f"env.{key}") for key, option in schema.items()}
    if not all(isinstance(key, str) for key in settings["info_keys"]):
        raise ConfigError(
            f"env.info_keys={settings['info_keys']!r}: expected names of entries of info, such as [success]"
        )
    return settings


def check_playable(env_cfg: Mapping[str, Any]) -> None:
    """Refuses to play in an environment that is known only from recorded data.

    Args:
      env_cfg: the `env` section of a configuration.
    Raises:
      ConfigError: the environment is known only from recorded data.
    """
    if env_cfg["env_id"] == RECORDED:
        raise ConfigError(
            f"env.env_id={RECORDED}: there is no environment to play in, only recorded data; `minding eval RUN --env "
            "ID` plays in one that has their spaces"
        )
