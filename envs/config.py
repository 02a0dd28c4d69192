"""The `env` section of the configuration: one option per key, and its defaults."""

from collections.abc import Mapping
from typing import Any

from minding.engine.config.config import EnvSection
from minding.engine.config.options import Option
from minding.engine.data.episode import RECORDED
from minding.engine.errors import ConfigError, nearest

# Filled in by the config compiler from `describe_env`; not a setting.
_DERIVED = ("spec",)


def config_schema() -> dict[str, Option]:
    """The options of `cfg.env`."""
    return {key: option for key, option in EnvSection.options().items() if key not in _DERIVED}


def default_config() -> dict[str, Any]:
    """A fresh plain dict of the defaults of `cfg.env`."""
    return {key: option.check(option.default, f"env.{key}") for key, option in config_schema().items()}


def env_settings(env_cfg: Mapping[str, Any]) -> dict[str, Any]:
    """Lays `env_cfg` over the defaults and checks every value."""
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
    """Refuses to play in an environment that is known only from recorded data."""
    if env_cfg["env_id"] == RECORDED:
        raise ConfigError(
            f"env.env_id={RECORDED}: there is no environment to play in, only recorded data; `minding eval RUN --env "
            "ID` plays in one that has their spaces"
        )
