"""YAML that anyone may have written, in bounded time and memory."""

from __future__ import annotations

import re
from typing import Any

import yaml

MAX_BYTES = 1 << 18
"""Of a configuration: about fifty times the usual size."""
_MAX_DEPTH = 32
_MAX_VALUES = 50_000
_MAX_TEXT = 10_000


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """Safe loader that also reads 1e-3 as a number; YAML 1.1 wants 1.0e-3."""


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"[-+]?\d+(?:\.\d*)?[eE][-+]?\d+$"), list("-+0123456789")
)


def parse_yaml(text: str) -> Any:
    """The value of a YAML text.

    Raises:
      ValueError: it is not YAML, or is deeper, longer or more repetitive through aliases than any configuration.
    """
    try:
        _check_bounds(text)
        return yaml.load(text, _Loader)
    except (yaml.YAMLError, ValueError, TypeError, OverflowError, RecursionError) as error:
        raise ValueError(" ".join(str(error)[:500].split())) from None


def _check_bounds(text: str) -> None:
    """Counts values as they will be once every alias is a copy, without making any."""
    if len(text) > MAX_BYTES:
        raise ValueError(f"{len(text):,} characters, at most {MAX_BYTES:,} are read")
    totals, names = [0], [""]
    anchors: dict[str, int] = {}
    for event in yaml.parse(text, _Loader):
        if isinstance(event, yaml.CollectionStartEvent):
            totals.append(1)
            names.append(event.anchor or "")
            if len(totals) > _MAX_DEPTH:
                raise ValueError(f"sections nest more than {_MAX_DEPTH} deep")
            continue
        if isinstance(event, yaml.CollectionEndEvent):
            count, name = totals.pop(), names.pop()
        elif isinstance(event, yaml.AliasEvent):
            if event.anchor not in anchors:
                raise ValueError(f"the alias *{event.anchor} leads to nothing, or into itself")
            count, name = anchors[event.anchor], ""
        elif isinstance(event, yaml.ScalarEvent):
            if len(event.value) > _MAX_TEXT:
                raise ValueError(f"a value has {len(event.value):,} characters, at most {_MAX_TEXT:,} are read")
            count, name = 1, event.anchor or ""
        else:
            continue
        if name:
            anchors[name] = count
        totals[-1] += count
        if totals[-1] > _MAX_VALUES:
            raise ValueError(f"more than {_MAX_VALUES:,} values, aliases counted as what they repeat")
