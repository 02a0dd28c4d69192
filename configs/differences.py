"""Finds the settings of a run that differ from the defaults of its algorithm and environment."""

from collections.abc import Mapping
from typing import Any

from minding.engine.config.compiler import compile_config
from minding.engine.config.identity import changes
from minding.engine.errors import ConfigError
from minding.engine.run.page import Setting

_NO_SETTINGS = ("env.spec", "env.env_id", "policy.type", "seed", "chain")
"""Settings that the title of a run names, and settings that follow from them."""


def changed_settings(cfg: Mapping[str, Any]) -> list[Setting] | None:
    """The settings of a compiled configuration that differ from the defaults, by path.

    No code that the configuration names is imported: neither its environment nor a user's algorithm.
    """
    from minding.envs import config_schema
    from minding.policies import ALGORITHMS

    policy, env = cfg.get("policy"), cfg.get("env")
    if not isinstance(policy, Mapping) or not isinstance(env, Mapping) or policy.get("type") not in ALGORITHMS:
        return None
    bare = {"policy": {"type": policy["type"]}, "env": {"env_id": str(env.get("env_id"))}}
    try:
        defaults = compile_config(bare, ALGORITHMS[policy["type"]], None, config_schema())
    except ConfigError:
        return None
    found = changes(defaults, cfg)
    return [
        Setting(each.path, each.now, each.saved)
        for each in found
        if not any(each.path == path or each.path.startswith(f"{path}.") for path in _NO_SETTINGS)
    ]
