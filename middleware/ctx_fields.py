"""Checks of context fields that other middleware write."""

from collections.abc import Mapping
from typing import Any

from minding.engine.chain.context import LearningContext, OnlineRLContext
from minding.engine.data.batch import IndexedBatch
from minding.engine.data.rollout import Rollout
from minding.engine.errors import FieldError
from minding.engine.types import Array

_ROWS = "a dict of arrays, one row per transition"


def rollout_in(ctx: OnlineRLContext, reader: str) -> Rollout:
    """The rollout of this iteration."""
    if not isinstance(ctx.trajectories, Rollout):
        raise FieldError("trajectories", reader, "the Rollout of this iteration", ctx.trajectories)
    return ctx.trajectories


def episodes_in(ctx: OnlineRLContext, reader: str) -> list[dict[str, Any]]:
    """The whole episodes of this iteration."""
    if not isinstance(ctx.episodes, list) or not all(isinstance(each, Mapping) for each in ctx.episodes):
        raise FieldError("episodes", reader, "a list of episodes, dicts of arrays", ctx.episodes)
    return ctx.episodes


def train_data_in(ctx: LearningContext, reader: str) -> Mapping[str, Array] | IndexedBatch:
    """The training data of this iteration."""
    if isinstance(ctx.train_data, IndexedBatch):
        return ctx.train_data
    return _mapping(ctx.train_data, "train_data", reader, f"{_ROWS}, or an IndexedBatch")


def train_rows_in(ctx: LearningContext, reader: str) -> Mapping[str, Array]:
    """The rows that a trainer draws its minibatches from."""
    return _mapping(ctx.train_data, "train_data", reader, _ROWS)


def metrics_in(ctx: LearningContext, reader: str) -> Mapping[str, Any]:
    """The metrics of this iteration so far; empty if no middleware has written any."""
    if ctx.train_output is None:
        return {}
    return _mapping(ctx.train_output, "train_output", reader, "a dict of numbers")


def number_in(value: object, field: str, reader: str, key: str | None = None) -> float:
    """A number that a field of the context holds."""
    try:
        given: Any = value
        return float(given)
    except (TypeError, ValueError):
        raise FieldError(field, reader, "a number", value, key) from None


def collect_kwargs_in(ctx: OnlineRLContext, reader: str) -> Mapping[str, Any]:
    """Keyword arguments for the policy's collect mode."""
    return _mapping(ctx.collect_kwargs, "collect_kwargs", reader, "a dict of keyword arguments, {} for none")


def _mapping(value: Any, field: str, reader: str, expected: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise FieldError(field, reader, expected, value)
    return value
