"""Search spaces: the settings that a search changes, and the values that each may take."""

from __future__ import annotations

import dataclasses
import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from minding.engine.config.compiler import Schema, fill_schema, load_config
from minding.engine.config.named import CODE_KEYS, is_named
from minding.engine.config.options import plain, short
from minding.engine.errors import ConfigError

_SEARCHED = ("policy.model.", "policy.learn.", "policy.collect.", "policy.other.", "env.", "run.jit_threads")
_COMPARED_BY = ("env.env_id", "env.evaluator_env_num")
_FORM = "{low: 1e-5, high: 1e-2, log: true}, or a list of values"


@dataclasses.dataclass(frozen=True)
class Range:
    """Numbers from `low` to `high`, both included; with `log` they are sampled uniformly on a log scale."""

    low: float
    high: float
    log: bool = False

    def __contains__(self, value: Any) -> bool:
        return isinstance(value, (int, float)) and not isinstance(value, bool) and self.low <= value <= self.high

    @property
    def whole(self) -> bool:
        """Whether only whole numbers are sampled."""
        return isinstance(self.low, int) and isinstance(self.high, int)

    @property
    def plain(self) -> Any:
        return {"low": self.low, "high": self.high, "log": self.log}


@dataclasses.dataclass(frozen=True)
class Choice:
    """One of several values, each a JSON text, so that a value may be a list."""

    texts: tuple[str, ...]

    @classmethod
    def of(cls, *values: Any) -> Choice:
        return cls(tuple(json.dumps(value) for value in values))

    def __contains__(self, value: Any) -> bool:
        return json.dumps(value) in self.texts

    @property
    def plain(self) -> Any:
        return [json.loads(text) for text in self.texts]


Space = Mapping[str, "Range | Choice"]
"""From the path of a setting to its values."""


_LINE = "policy.learn.gamma: [0.9, 0.99]"


def load_space(path: str | os.PathLike[str]) -> dict[str, Range | Choice]:
    """Reads a space: a YAML file with one line per setting, such as ``policy.learn.gamma: [0.9, 0.99]``."""
    tree = plain(load_config(Path(path), _LINE))
    if not tree:
        raise ConfigError(f"space {str(path)!r} names no setting: give lines such as {_LINE!r}")
    return {key: _values(key, value, f"space {str(path)!r}") for key, value in tree.items()}


def _values(key: str, value: Any, where: str) -> Range | Choice:
    if isinstance(value, list) and value:
        return Choice.of(*value)
    if isinstance(value, dict) and {"low", "high"} <= set(value) <= {"low", "high", "log"}:
        found = Range(value["low"], value["high"], value.get("log", False))
        numbers = all(type(end) in (int, float) and math.isfinite(end) for end in (found.low, found.high))
        if numbers and isinstance(found.log, bool) and found.low < found.high and not (found.log and found.low <= 0):
            return found
    raise ConfigError(
        f"{where}: {key}={short(value)}: expected values as {_FORM}, with low below high, and low above 0 with log"
    )


def check_space(space: Space, schema: Schema, where: str) -> dict[str, Range | Choice]:
    """The space with the types of its settings: the range of an integer setting holds whole numbers."""
    return {key: _checked(key, values, schema, where) for key, values in space.items()}


def _checked(key: str, values: Range | Choice, schema: Schema, where: str) -> Range | Choice:
    tried = [values.low, values.high] if isinstance(values, Range) else values.plain
    try:
        checked = [_check(key, value, schema) for value in tried]
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from None
    if key in CODE_KEYS and key not in _COMPARED_BY and any(is_named(value) for value in tried):
        raise ConfigError(f"{where}: {key} names code, which a space may not contain: run a study for each value")
    if not key.startswith(_SEARCHED) or key in _COMPARED_BY:
        raise ConfigError(
            f"{where}: {key} cannot be searched, because trials with different values are not comparable: leave it out"
        )
    if isinstance(values, Choice):
        return Choice.of(*checked)
    if any(type(value) not in (int, float) for value in checked):
        raise ConfigError(f"{where}: {key} is not a number: give a list of values")
    return Range(checked[0], checked[1], values.log)


def _check(key: str, value: Any, schema: Schema) -> Any:
    tree: dict[str, Any] = {}
    node, names = tree, key.split(".")
    for name in names[:-1]:
        node = node.setdefault(name, {})
    node[names[-1]] = value
    filled: Any = fill_schema(schema, tree)
    for name in names:
        filled = filled[name]
    return plain(filled)
