"""The recorded data that a configuration names, and the description of an environment from such data."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from minding.engine.config.config import Config
from minding.engine.config.trust import refused
from minding.engine.data.dataset import (
    BATCH_SIZE,
    Dataset,
    check_folder,
    load_dataset,
    recorded_digest,
    recorded_env,
    recorded_references,
)
from minding.engine.data.episode import RECORDED
from minding.engine.data.references import References
from minding.engine.errors import ConfigError, DataError
from minding.engine.paths import absolute

OTHERWISE = f": add --env ID, or env.env_id={RECORDED} to learn from the data alone"
"""What to do where data do not give an environment."""


def data_folder(cfg: Config) -> str:
    """The folder of recorded data."""
    folder = cfg.policy.other.data if "data" in cfg.policy.other else None
    if not folder:
        raise ConfigError(
            "policy.other.data is not given: expected the folder of recorded data; `minding data record RUN --steps N` "
            "makes one from a run folder, `minding data convert SOURCE --out FOLDER` from Minari's and D4RL's sets"
        )
    return folder


@dataclasses.dataclass(frozen=True)
class _Opened:
    """Verified data; `stamp` changes when their files change."""

    stamp: tuple[object, ...]
    data: Dataset


_opened: dict[str, _Opened] = {}
"""The data that were opened last, by folder, so that repeated checks of a run verify them only once."""


def open_data(cfg: Config, batch_size: int, key: str = BATCH_SIZE) -> Dataset:
    """The recorded data that a configuration names; their arrays stay in their file."""
    folder = data_folder(cfg)
    check_folder(folder, cfg.env, batch_size, key)
    path = absolute(folder)
    found = [(each.name, each.stat()) for each in sorted(path.iterdir()) if each.exists()]
    stamp = tuple((name, of.st_ino, of.st_size, of.st_mtime_ns) for name, of in found)
    key = str(path.resolve())
    if key not in _opened or _opened[key].stamp != stamp:
        data = load_dataset(path, mapped=True)
        _opened.clear()
        _opened[key] = _Opened(stamp, data)
    return _opened[key].data


def is_same_data(first: str, second: str) -> bool:
    """Whether two folders contain the same recorded data, by their manifests; False if one contains none."""
    try:
        return recorded_digest(first) == recorded_digest(second)
    except DataError:
        return False


def limits_of_data(cfg: Config) -> str:
    """The settings that give recorded actions limits, as the end of a message."""
    return (
        f"the data say no limits of actions; `minding data convert {cfg.policy.other.get('data')} --out FOLDER "
        "--action-low X --action-high X` gives them, or --env ID an environment's, or action_low= and action_high= of "
        "Dataset.of_episodes"
    )


def references_in(cfg: Config) -> References | None:
    """The reference returns in the data of a run; None if the run learns from no data or they have no references."""
    folder = cfg.policy.other.data
    return recorded_references(folder) if folder else None


def env_of_data(folder: str) -> dict[str, Any]:
    """The section `env` of the environment in which data were recorded; nothing is imported to find it out.

    Raises:
      ConfigError: the data name no environment, or one that somebody else's file cannot name.
    """
    described = recorded_env(folder)[0]
    names = ("env_id", "env_kwargs", "wrappers", "max_episode_steps")
    env = {name: described[name] for name in names if described.get(name)}
    why = "do not say in which environment they were recorded" if env["env_id"] == RECORDED else ""
    for _, value, what in refused({"env": env}, ()):
        why = f"were recorded in {env['env_id']!r}: {value!r} {what}"
    if why:
        raise ConfigError(f"policy.other.data={folder!r}: the data {why}{OTHERWISE}")
    return env


def check_collects(cfg: Config, *, collects: bool) -> None:
    """Refuses a run that collects without an environment."""
    if collects and cfg.env.get("env_id") == RECORDED:
        raise ConfigError(
            f"env.env_id={RECORDED} with policy.type={cfg.policy.type!r} and chain={cfg.chain!r}, which collects: "
            "recorded data are not an environment to collect in; give env.env_id an environment, or use an algorithm "
            "of the chain 'offline', such as bc"
        )


def describe_data(cfg: Config, saved: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """The description of the environment (see `envs.describe_env`) in a configuration's recorded data."""
    from minding.envs.recorded_spec import describe_recorded

    check_collects(cfg, collects="data" not in cfg.policy.other)
    named = cfg.policy.other.data
    if saved is not None and not (named and Path(named).exists()):
        return saved
    folder = data_folder(cfg)
    return describe_recorded(cfg.env, recorded_env(folder)[0])
