"""The identity of a run: the settings that two configurations must share to belong to the same run, and changes."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from minding.engine.chain.context import UNITS
from minding.engine.chain.lanes import UNDIVIDED
from minding.engine.checkpoint import Checkpoint, not_finite, read_manifest, resumable_checkpoints
from minding.engine.checkpoint.store import saved_settings
from minding.engine.config.config import run_length
from minding.engine.config.options import is_within, plain, setting_at
from minding.engine.errors import CheckpointError, ConfigError, DamagedCheckpointError, few
from minding.engine.paths import absolute

POLICY = {
    "policy.type": "the algorithm",
    "policy.model": "the network: sizes, activation, normalization of layers and of observations",
    "env.env_id": "the environment",
    "env.wrappers": "the transformations of observations and actions",
    "env.spec.observation": "the observations",
    "env.spec.action": "the actions, rescaled or not",
    "env.spec.env_action": "the environment's own action space, with its bounds",
}
"""The settings that learned parameters belong to, and what each of them is."""
RUN = {
    **POLICY,
    "seed": "every random stream",
    "chain": "the chain",
    "use": "the middleware added to the chain",
    "env.backend": "how the environments are stepped, and the form of their state",
    "env.collector_env_num": "running episodes",
    "env.evaluator_env_num": "running evaluations",
    "lanes.collectors": "which collector collects which iteration, with its own environments; 1 in a synchronous run",
    "lanes.shards": "how the environments of an iteration are divided; 1 in a synchronous run",
    "env.normalize_reward": "the scale of rewards",
    "policy.other.reward": "the scale of the rewards in learning",
    "policy.other.buffer_size": "the replay buffer",
}
"""The settings that a run keeps from its beginning to its end. All others may change when it is resumed."""
DIVISION = ("lanes.collectors", "lanes.shards")
"""Those of them that only an asynchronous run has. None as the number of collectors leaves it to the run."""
_MOST_NAMED = 3
"""Differences that a message names."""
_PLACES = ("exp_name", "run.out_dir")
"""Where a run is kept: moving it changes nothing."""


@dataclasses.dataclass(frozen=True, slots=True)
class Change:
    """A setting, by its path, and its two values; None if it is missing."""

    path: str
    saved: Any
    now: Any


def identity(cfg: Mapping[str, Any]) -> dict[str, Any]:
    """The identity of a run: the values of all settings of `RUN` in a compiled configuration, None for missing ones."""
    values = {path: plain(setting_at(cfg, path)) for path in RUN}
    if not setting_at(cfg, "lanes.async_mode"):
        values.update(UNDIVIDED)
    return values


def changes(saved: Mapping[str, Any], now: Mapping[str, Any]) -> list[Change]:
    """The settings in which two compiled configurations differ, except the paths of files."""
    return [change for change in _compare(plain(saved), plain(now), "") if change.path not in _PLACES]


def differences(saved: Mapping[str, Any], cfg: Mapping[str, Any], paths: Mapping[str, str] = RUN) -> list[Change]:
    """The differences between a saved identity and a configuration."""
    now = identity(cfg)
    return [
        change
        for path in paths
        if path not in DIVISION or None not in (saved.get(path), now[path])
        for change in _compare(saved.get(path), now[path], path)
    ]


def check_identity(saved: Mapping[str, Any], cfg: Mapping[str, Any], what: str, paths: Mapping[str, str] = RUN) -> None:
    """Refuses saved data that belong to another run."""
    found = differences(saved, cfg, paths)
    if found:
        raise CheckpointError(
            f"{what} belongs to another run: {describe_differences(found)}. A run cannot change these settings: use it "
            "with those, or start a new run"
        )


def check_checkpoint(found: Checkpoint, cfg: Mapping[str, Any], paths: Mapping[str, str] = RUN) -> None:
    """Refuses a checkpoint that belongs to another run, or whose policy contains NaN or infinity."""
    saved = found.manifest.get("identity")
    if not isinstance(saved, dict):
        raise DamagedCheckpointError(f"{found.path}: its manifest does not say which run it belongs to")
    check_identity(saved, cfg, f"checkpoint {found.path}", paths)
    damaged = not_finite(found.state["policy"], "policy")
    if damaged:
        raise DamagedCheckpointError(f"{found.path}: {damaged} is NaN or infinite")


def check_newest(folder: Path, cfg: Mapping[str, Any]) -> None:
    """Refuses a configuration that belongs to another run than these checkpoints, before anything is built from it.
    Only manifests are read: other faults of a checkpoint are found when it is loaded."""
    for path, manifest in _readable(folder):
        saved = manifest.get("identity")
        if isinstance(saved, dict):
            return check_identity(saved, cfg, f"checkpoint {path}")


def check_complete(folder: Path, saved: Mapping[str, Any], given: Collection[str], where: Path) -> None:
    """Refuses the configuration of a run that lacks settings which the run had at its newest checkpoint, as after a
    file was cut off: defaults would take their place."""
    for path, _ in _readable(folder):
        with contextlib.suppress(DamagedCheckpointError):
            had = saved_settings(path)
            # Without a description the one of the environment is taken.
            left_out = (*given, "env.spec")
            lacking = [each for each in _missing(had, saved, "") if not any(is_within(each, key) for key in left_out)]
            if lacking:
                raise ConfigError(
                    f"{str(where)!r} lacks {few(lacking)}, which the run had at its checkpoint {path.name}: the file "
                    "was cut off or edited; restore it, or give these settings as KEY=VALUE"
                )
            return


def _missing(had: Mapping[str, Any], saved: Mapping[str, Any], prefix: str) -> Iterator[str]:
    """The paths of settings and sections that `had` has and `saved` lacks."""
    for key, value in had.items():
        if key not in saved:
            yield prefix + key
        elif isinstance(value, Mapping) and isinstance(saved[key], Mapping):
            yield from _missing(value, saved[key], f"{prefix}{key}.")


def collectors_of(request: str | Path, folder: Path) -> int | None:
    """The number of collectors of the run to resume; None if it cannot be read."""
    path = folder if request == "latest" else absolute(request)
    path = path / "ckpt" if (path / "ckpt").is_dir() else path
    found = next((manifest for _, manifest in _readable(path)), None)
    if found is None:
        with contextlib.suppress(DamagedCheckpointError, OSError):
            found = read_manifest(path)
    saved = (found or {}).get("identity")
    count = saved.get("lanes.collectors") if isinstance(saved, dict) else None
    return count if isinstance(count, int) else None


def check_not_shortened(run: Path, folder: Path, saved: Mapping[str, Any], cfg: Mapping[str, Any]) -> None:
    """Refuses to resume with a new limit of the run's clock that the run has already passed."""
    unit, limit = run_length(cfg)
    made = next((manifest.get(unit) for _, manifest in _readable(folder)), None)
    if limit == setting_at(saved, f"run.max_{unit}") or not isinstance(made, int) or limit >= made:
        return
    raise ConfigError(
        f"run.max_{unit}={limit}: the run {str(run)!r} has already made {made:,} {UNITS[unit]}: give at least as "
        "many, or start a new run"
    )


def _readable(folder: Path) -> Iterator[tuple[Path, dict[str, Any]]]:
    """The checkpoints whose manifests can be read, with these, newest first."""
    for path in reversed(resumable_checkpoints(folder)):
        with contextlib.suppress(DamagedCheckpointError):
            yield path, read_manifest(path)


def describe_differences(found: list[Change]) -> str:
    """``'seed is 0 there and 1 here; ...'``. If the algorithms differ, their other settings are not listed."""
    found = [change for change in found if change.path == "policy.type"] or found
    parts = [f"{change.path} is {_short(change.saved)} there and {_short(change.now)} here" for change in found]
    more = [f"and {len(parts) - _MOST_NAMED} more"] if len(parts) > _MOST_NAMED else []
    return "; ".join([*parts[:_MOST_NAMED], *more])


def describe_changes(found: list[Change]) -> str:
    """``'policy.learn.learning_rate 0.001 -> 0.0003, ...'``."""
    return ", ".join(f"{change.path} {change.saved} -> {change.now}" for change in found)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 200 else f"{text[:200]}..."


def _compare(saved: Any, now: Any, path: str) -> Iterator[Change]:
    if isinstance(saved, dict) and isinstance(now, dict):
        for key in [*now, *(key for key in saved if key not in now)]:
            yield from _compare(saved.get(key), now.get(key), f"{path}.{key}" if path else key)
    elif saved != now:
        yield Change(path, saved, now)
