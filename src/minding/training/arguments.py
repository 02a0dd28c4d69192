"""Checks the arguments of an agent's methods, and turns them into settings."""

import types
from collections.abc import Mapping
from typing import Any

from minding.engine.config.compiler import RUN_SCHEMA, setting_paths
from minding.engine.config.config import Config
from minding.engine.config.named import name_of_code
from minding.engine.config.options import MOST_COUNT, Option, plain
from minding.engine.errors import ConfigError, nearest
from minding.envs import config_schema
from minding.policies import get_algorithm
from minding.policies.settings.other_libraries import setting_hint

_SECTIONS = ("model", "learn", "collect")


def check_count(what: str, value: object, least: int) -> None:
    """Refuses a value that is not a count."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ConfigError(f"{what}={value!r}): expected an integer of {least} or more (100_000, not 1e5)")
    if value > MOST_COUNT:
        raise ConfigError(f"{what}={value!r}): expected an integer of {MOST_COUNT:,} or less")


def settings_of(what: object) -> Config:
    """The settings that an agent was given instead of a name."""
    if not isinstance(what, Mapping):
        raise ConfigError(
            f"Agent({what!r}): expected the name of an algorithm or preset, such as 'ppo', or a mapping of settings"
        )
    try:
        return Config(plain(dict(what)))
    except TypeError as error:
        raise ConfigError(f"Agent({{...}}): {error}") from None


def place_keys(user: Config, keys: Mapping[str, Any]) -> None:
    """Puts keywords where their keys are in the section `policy`."""
    if not keys:
        return
    policy = user.get("policy")
    if not isinstance(policy, dict) or "type" not in policy:
        raise ConfigError(
            "policy.type is missing: Agent takes the name of an algorithm or preset, or settings with policy.type"
        )
    schema = get_algorithm(policy["type"]).config_schema()
    for key, given in keys.items():
        value = _setting(key, given)
        found = [section for section in _SECTIONS if key in schema.get(section, {})]
        if len(found) != 1:
            schemas = {"": RUN_SCHEMA, "env.": config_schema(), "policy.": schema}
            paths = [path for prefix, each in schemas.items() for path in setting_paths(each, prefix)]
            places = [path for path in paths if path.rpartition(".")[2] == key]
            known = [name for section in _SECTIONS for name in schema.get(section, {})]
            hint = f"; it is {' and '.join(places)}: use settings=[...]" if places else setting_hint(key, paths)
            raise ConfigError(
                f"{key}={value!r}: no key in policy.model, policy.learn or policy.collect of {policy['type']!r}"
                f"{hint or nearest(key, known) or '; use settings=[...] for other keys'}"
            )
        if found[0] not in user.policy:
            user.policy[found[0]] = {}
        section: Any = user.policy[found[0]]
        nested = not isinstance(schema[found[0]][key], Option) and isinstance(value, Mapping)
        section[key] = {**section.get(key, {}), **value} if nested else value


def _setting(key: str, given: object) -> Any:
    """A keyword's value for the configuration; the user's own code, such as an encoder, is given by its name."""
    code = type if key == "encoder" else (type, types.FunctionType)
    if isinstance(given, code) and given.__module__.partition(".")[0] != "mindspore":
        return name_of_code(given, key)
    if key == "encoder" and not isinstance(given, str | None):
        what = given.__qualname__ if isinstance(given, type) else f"a {type(given).__name__}"
        raise ConfigError(
            f"encoder={what}: expected your own class, as in encoder=MyEncoder, or its name 'module:MyEncoder'; every "
            "network creates its own encoder, MyEncoder(space, model, rng)"
        )
    try:
        return plain(given, key)
    except TypeError as error:
        raise ConfigError(str(error)) from None
