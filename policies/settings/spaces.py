"""Default search spaces by algorithm: shared settings with their values, and the exceptions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from minding.engine.config.options import setting_at
from minding.engine.config.space import Choice, Range

SHARED: Mapping[str, Range | Choice] = {
    "learn.learning_rate": Range(1e-5, 1e-2, log=True),
    "learn.gamma": Choice.of(0.9, 0.95, 0.98, 0.99, 0.995),
    "model.hidden": Choice.of([64], [64, 64], [128, 128], [256, 256]),
    # Learning from rollouts.
    "learn.n_epoch": Choice.of(2, 4, 8, 10),
    "learn.n_minibatch": Choice.of(2, 4, 8, 16),
    "learn.gae_lambda": Choice.of(0.8, 0.9, 0.95, 0.98, 1.0),
    "learn.clip_ratio": Choice.of(0.1, 0.2, 0.3),
    "learn.entropy_weight": Range(1e-5, 0.1, log=True),
    # Learning from replay.
    "learn.batch_size": Choice.of(64, 128, 256),
    "learn.tau": Range(0.001, 0.05, log=True),
    "learn.target.freq": Choice.of(50, 100, 250, 500, 1000),
    "collect.noise.sigma": Range(0.05, 0.5),
}
"""Values by setting, in the section `policy`; a search over an algorithm uses only settings that the algorithm has."""

OF: Mapping[str, Mapping[str, Range | Choice | None]] = {
    # The rows of their minibatches are whole episodes.
    **{
        name: {"learn.batch_size": Choice.of(16, 32, 64), "model.hidden": Choice.of([64], [128], [64, 64])}
        for name in ("idqn", "vdn", "qmix")
    },
    "r2d2": {"learn.batch_size": Choice.of(16, 32, 64)},
}
"""Exceptions by algorithm; None leaves a setting out."""


def space_of(algorithm: str, schema: Mapping[str, Any]) -> dict[str, Range | Choice]:
    """The search space of an algorithm, by the full paths of its settings.

    Args:
      algorithm: name of the algorithm.
      schema: keys of the algorithm in the section `policy`.
    """
    known = {**SHARED, **OF.get(algorithm, {})}
    has = {key: values for key, values in known.items() if values is not None and setting_at(schema, key) is not None}
    return {f"policy.{key}": values for key, values in has.items()}
