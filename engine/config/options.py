"""Options: the leaves of a configuration schema, each with its default, its type and its allowed values."""

from __future__ import annotations

import builtins
import dataclasses
import math
import numbers
import os
import re
from collections.abc import Mapping
from typing import Any

from minding.engine.config.yaml_text import parse_yaml
from minding.engine.errors import ConfigError, nearest

_TYPE_NAMES: dict[type, str] = {
    bool: "true or false",
    int: "an integer",
    float: "a number",
    str: "a string",
    list: "a list",
    dict: "a section",
}
MODULE_NAME = "module:Name"
"""A choice that stands for every name of code, see `engine.config.named`."""
MOST_COUNT = 10**12
"""No count, size or seed of a run is larger; what is computed from one fits into 64 bits."""
WIDTH = "[1, 16384]"
"""Allowed widths of layers: two layers of the largest width have a gigabyte of weights between them."""
_NUMBER = r"[-+]?(?:inf|\d+(?:\.\d*)?(?:[eE][-+]?\d+)?)"
_INTERVAL = re.compile(rf"([\[(])\s*({_NUMBER})\s*,\s*({_NUMBER})\s*([\])])(\s+or\s+None)?")


_YAML_TEXT = re.compile(r"\s*([\"']|(null|Null|NULL|~)?\s*$)")
"""A text that is quoted, or stands for None."""


class Written(str):
    """The text of a value as it was typed after ``KEY=``; the setting reads it."""

    def parse(self, kind: type | None = None) -> Any:
        """The value: the text itself for a setting of strings, else the text as YAML."""
        # The tables of settings and Python write None; YAML's own word is null.
        if self.strip() == "None":
            return None
        # `exp_name=2024` and `run.out_dir=runs #2` are strings, although not to YAML; quotes and null count.
        if kind is str and not _YAML_TEXT.match(self):
            return self.strip()
        try:
            return parse_yaml(str(self))
        except ValueError as error:
            raise TypeError(f"{short(self)} is not a YAML value ({error})") from None


@dataclasses.dataclass(frozen=True)
class Interval:
    """Numbers between two bounds; `text` is its notation, such as ``(0, 1]``."""

    low: float
    high: float
    low_open: bool
    high_open: bool
    text: str

    def __contains__(self, value: float) -> bool:
        above = value > self.low if self.low_open else value >= self.low
        below = value < self.high if self.high_open else value <= self.high
        return above and below


@dataclasses.dataclass(frozen=True)
class Option:
    """One setting: its default, type, allowed values and meaning. Made by `opt`."""

    default: Any
    kind: type
    allowed: Interval | tuple[Any, ...] | None
    doc: str
    element: type | None
    nullable: bool
    reaches: str = ""

    @property
    def is_size(self) -> bool:
        """Whether memory grows with the value: such integers, and no others, have an upper bound, of 1000 or more."""
        whole = int in (self.kind, self.element)
        return whole and isinstance(self.allowed, Interval) and 1000 <= self.allowed.high < math.inf

    @property
    def expected(self) -> str:
        """The requirements for a value in words, for error messages."""
        each = _TYPE_NAMES[self.element or self.kind]
        if isinstance(self.allowed, Interval):
            each += f" in {self.allowed.text}"
        elif self.allowed is not None:
            each = "one of " + ", ".join(repr(choice) for choice in self.allowed)
        text = each if self.element is None else f"{_TYPE_NAMES[self.kind]}, each element {each}"
        return text + (" or None" if self.nullable else "")

    def _names_code(self, item: Any) -> bool:
        return isinstance(self.allowed, tuple) and MODULE_NAME in self.allowed and ":" in str(item)

    def check(self, value: Any, path: str) -> Any:
        """Returns a new plain copy of `value` in the option's type. An int is accepted as a float, and a whole float
        such as 1e6 as an int; a bool is never a number. Integers are at most `MOST_COUNT`, and a string that starts
        with ``~/`` is a path in the user's home folder."""
        try:
            value = value.parse(self.kind) if isinstance(value, Written) else value
            if value is None and self.nullable:
                return None
            checked = _coerce(plain(value), self.kind)
            if self.kind is list:
                element = self.element
                checked = [_coerce(item, element) if element else item for item in checked]
        except (TypeError, OverflowError) as error:
            raise ConfigError(f"{path}={short(value)}: expected {self.expected}; {error}") from None
        for item in checked if self.kind is list else [checked]:
            if self.allowed is not None and item not in self.allowed and not self._names_code(item):
                hint = _nearest_choice(item, self.allowed)
                raise ConfigError(f"{path}={short(value)}: expected {self.expected}{hint}")
        return checked


def short(value: Any) -> str:
    """A value for messages; a long one is cut off."""
    text = repr(value)
    return text if len(text) <= 200 else f"{text[:200]}..."


def _nearest_choice(item: Any, allowed: Interval | tuple[Any, ...]) -> str:
    if isinstance(allowed, Interval) or not isinstance(item, str):
        return ""
    return nearest(item, map(str, allowed))


def opt(
    default: Any,
    allowed: str | tuple[Any, ...] | None = None,
    doc: str = "",
    *,
    type: builtins.type | None = None,
    reaches: str = "",
) -> Option:
    """Declares one setting of a schema."""
    kind = type or builtins.type(default)
    kind = list if kind is tuple else dict if issubclass(kind, dict) else kind
    if kind not in _TYPE_NAMES:
        raise ConfigError(f"opt({default!r}): give the type, as in opt(None, type=float)")
    interval, or_none = _parse_allowed(allowed)
    nullable = default is None or or_none or (isinstance(interval, tuple) and None in interval)
    element = builtins.type(default[0]) if kind is list and default else None
    option = Option(None, kind, interval, doc, element, nullable, reaches)
    return dataclasses.replace(option, default=option.check(default, "default"))


_INHERITED: Any = ...


@dataclasses.dataclass(frozen=True)
class Declared:
    """A setting as a section declares it, see `setting`; what is inherited is as its base declares it."""

    default: Any = _INHERITED
    allowed: str | tuple[Any, ...] | None = _INHERITED
    doc: str = _INHERITED
    reaches: str = _INHERITED

    def option(self, annotation: object, base: Option | None = None) -> Option:
        if base is None:
            types = {kind.__name__: kind for kind in _TYPE_NAMES}
            kind = types[str(annotation).partition(" |")[0]] if self.default is None else None
            allowed = None if self.allowed is _INHERITED else self.allowed
            doc, reaches = ("" if text is _INHERITED else text for text in (self.doc, self.reaches))
            return opt(self.default, allowed, doc, type=kind, reaches=reaches)
        default = base.default if self.default is _INHERITED else self.default
        option = base if self.allowed is _INHERITED else opt(default, self.allowed, type=base.kind)
        doc = base.doc if self.doc is _INHERITED else self.doc
        reaches = base.reaches if self.reaches is _INHERITED else self.reaches
        checked = option.check(default, "default")
        return dataclasses.replace(option, default=checked, element=base.element, doc=doc, reaches=reaches)


def setting(
    default: Any = _INHERITED,
    allowed: str | tuple[Any, ...] | None = _INHERITED,
    doc: str = _INHERITED,
    *,
    reaches: str = _INHERITED,
) -> Any:
    """Declares a setting as a field of a section; see `opt` for the arguments. In a section that has a base with this
    setting, an argument that is left out is as there. The result is `Any` for type checkers, to which the field has the
    type of its annotation."""
    return Declared(default, allowed, doc, reaches)


def _parse_allowed(allowed: str | tuple[Any, ...] | None) -> tuple[Interval | tuple[Any, ...] | None, bool]:
    """Returns what is allowed and whether ``or None`` was written after it."""
    if allowed is None or allowed == "open" or isinstance(allowed, tuple):
        return (None if isinstance(allowed, str) else allowed), False
    match = _INTERVAL.fullmatch(allowed.strip())
    if match is None:
        raise ConfigError(f"opt(allowed={allowed!r}): expected an interval like '(0, 1]', choices, or 'open'")
    left, low, high, right, or_none = match.groups()
    text = allowed.strip().removesuffix(or_none or "")
    return Interval(float(low), float(high), left == "(", right == ")", text), or_none is not None


def setting_at(settings: object, path: str, default: Any = None) -> Any:
    """The value at a dotted path of settings or of a schema, such as ``learn.gamma``; `default` if a key is absent."""
    for key in path.split("."):
        if not isinstance(settings, Mapping) or key not in settings:
            return default
        settings = settings[key]
    return settings


def is_within(path: str, section: str) -> bool:
    """Whether a dotted path is that of a section or of a setting, or leads into it."""
    return f"{path}.".startswith(f"{section}.")


def plain(value: Any, where: str = "") -> Any:
    """Deep copy in the types that a YAML file holds: dict, list, str, bool, int, float, None. NumPy scalars become
    numbers, tuples become lists."""
    if isinstance(value, Written):
        return plain(value.parse(), where)
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, numbers.Integral):
        return int(value)
    if isinstance(value, numbers.Real):
        return float(value)
    if isinstance(value, Mapping):
        odd = [key for key in value if not isinstance(key, str)]
        if odd:
            raise TypeError(f"{where and f'{where}: '}the key {odd[0]!r} is not a string")
        return {key: plain(item, f"{where}.{key}" if where else key) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item, f"{where}[{k}]") for k, item in enumerate(value)]
    raise TypeError(
        f"{where and f'{where}: '}a {type(value).__name__} cannot be part of a configuration; use numbers, strings, "
        "lists and sections only"
    )


def _coerce(value: Any, kind: type) -> Any:
    """Returns `value` as `kind`, or raises TypeError with what it is instead."""
    given = type(value)
    if kind is float and given is int:
        return float(value)
    if kind is int and given is float and value.is_integer():
        value, given = int(value), int
    if given is not kind:
        bare = str(value).lower().lstrip("+-") in ("nan", "inf") and kind is float
        written = f" (YAML writes .{value.lower().lstrip('+-')})" if bare else ""
        raise TypeError("None is not allowed here" if value is None else f"{value!r} is {_TYPE_NAMES[given]}{written}")
    if kind is float and math.isnan(value):
        raise TypeError("NaN is not a number")
    if kind is str and value.startswith("~/"):
        # A shell does not expand it after KEY=.
        return os.path.expanduser(value)
    if kind is int and abs(value) > MOST_COUNT:
        raise TypeError("it exceeds 10**12, the largest integer of a setting")
    return value
