"""The length of a run: the limit of its clock, which counts environment steps or, with recorded data, gradient
steps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from minding.engine.config.config import Config
from minding.engine.errors import ConfigError

_LENGTHS = {"env_step": 100_000, "train_iter": 10_000}
"""Steps of a run that sets no limit, by its unit."""
_OTHERS = {"env_step": "max_train_epoch", "train_iter": "max_env_step"}
"""The limit in `run` that a run with this unit can never reach."""


class RunLength(NamedTuple):
    """The unit of a run's clock (see `engine.chain.context.UNITS`), and the steps after which the run ends."""

    unit: str
    steps: int


def run_length(cfg: Mapping[str, Any]) -> RunLength:
    """The length of a run, from its compiled configuration."""
    run = cfg["run"]
    if run["max_env_step"] is not None:
        return RunLength("env_step", int(run["max_env_step"]))
    return RunLength("train_iter", int(run["max_train_iter"]))


def set_length(run: dict[str, Any], unit: str, algorithm: str) -> None:
    """Fills in the limit of a run that does not limit its clock."""
    other = _OTHERS[unit]
    if run[other] is not None:
        instead = "run.max_env_step or run.max_train_iter" if unit == "env_step" else "run.max_train_iter"
        why = "collects its data" if unit == "env_step" else "learns from recorded data"
        raise ConfigError(f"run.{other}={run[other]}: {algorithm} {why} and never reaches this limit; use {instead}")
    if run[f"max_{unit}"] is None:
        run[f"max_{unit}"] = _LENGTHS[unit]


def updates_per_step(cfg: Config) -> tuple[float | None, str]:
    """Gradient steps per environment step, or None if there is no fixed ratio, and the setting that determines it."""
    learn = cfg.policy.learn
    if "train_ratio" in learn:
        return learn.train_ratio / (learn.batch_size * learn.length), f"policy.learn.train_ratio={learn.train_ratio}"
    ratio = learn.updates_per_step if "updates_per_step" in learn else None
    return ratio, f"policy.learn.updates_per_step={ratio}"
