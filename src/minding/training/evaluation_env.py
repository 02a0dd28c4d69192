"""The configuration of a run with another environment in which its policy will play."""

from collections.abc import Mapping
from typing import Any

from minding.configs import compile_run
from minding.engine.config.config import Config
from minding.engine.config.options import plain
from minding.engine.data.dataset import recorded_env
from minding.engine.data.description import differences
from minding.engine.data.episode import RECORDED
from minding.engine.errors import ConfigError, DataError, SpaceError

_BOUNDS = ("low", "high")
_OF_ENV = ("env_kwargs", "evaluator_kwargs")


def in_environment(cfg: Config, env_id: str) -> Config:
    """The configuration with another environment in place of its own, or of recorded data. The wrappers are the same as
    in the run, or the same as in its recorded data, if these still exist."""
    spec = cfg.env.spec
    user: dict[str, Any] = plain(cfg)
    env = {key: value for key, value in user["env"].items() if key not in ("spec", *_OF_ENV)}
    if cfg.env.env_id == RECORDED:
        env["wrappers"] = _recorded_wrappers(cfg)
    elif cfg.env.env_id == env_id:
        env |= {key: user["env"][key] for key in _OF_ENV}
    rescaled = bool(spec.env_action.get("rescaled", env["rescale_action"])) if "env_action" in spec else True
    user["env"] = {**env, "env_id": env_id, "rescale_action": rescaled}
    try:
        found = compile_run(user)
    except SpaceError:
        # PPO acts in every space: what differs says more than which spaces the algorithm acts in.
        _refuse_misfits(spec, compile_run({"env": user["env"], "policy": {"type": "ppo"}}).env.spec, env_id, rescaled)
        raise
    _refuse_misfits(spec, found.env.spec, env_id, rescaled)
    return found


def _refuse_misfits(there: Any, here: Any, env_id: str, rescaled: bool) -> None:
    there, here = plain(there), plain(here)
    misfits = [
        *differences("observation", _unbounded(there.get("observation")), _unbounded(here.get("observation"))),
        *differences("action", *(_action(each, rescaled) for each in (there, here))),
        *differences("action", *(_unbounded(each.get("action")) for each in (there, here))),
        *differences("agents", there.get("agents"), here.get("agents")),
    ]
    if misfits:
        raise ConfigError(
            f"--env {env_id}: the policy cannot act there: {misfits[0]} ('there' is the run): give an environment "
            "with the spaces of the run"
        )


def _recorded_wrappers(cfg: Config) -> list[Any]:
    try:
        wrappers: list[Any] = recorded_env(str(cfg.policy.other.data))[0]["wrappers"]
    except DataError:
        return []
    return wrappers


def _action(spec: Mapping[str, Any], rescaled: bool) -> Any:
    space = spec.get("env_action")
    return space if rescaled else _unbounded(space)


def _unbounded(space: Any) -> Any:
    """A description of a space without its bounds and, except for images, without its dtype."""
    if isinstance(space, list):
        return [_unbounded(each) for each in space]
    if not isinstance(space, Mapping):
        return space
    left_out = _BOUNDS if space.get("dtype") == "uint8" else (*_BOUNDS, "dtype")
    found = {key: value for key, value in space.items() if key not in left_out}
    parts = found.get("spaces")
    if isinstance(parts, Mapping):
        found["spaces"] = {key: _unbounded(each) for key, each in parts.items()}
    elif isinstance(parts, list):
        found["spaces"] = _unbounded(parts)
    return found
