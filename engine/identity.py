"""What makes two configurations those of one run, and which settings changed between them."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

from minding.engine.errors import CheckpointError
from minding.engine.options import plain

_IDENTITY = ("policy.type", "policy.model", "env.env_id", "env.spec.observation", "env.spec.action")
"""What learned parameters belong to."""
_PLACES = ("exp_name", "run.out_dir")
"""Where a run is kept: that it was moved changes nothing."""


@dataclasses.dataclass(frozen=True, slots=True)
class Change:
    """A setting, by its path, and its two values; None where there is none."""

    path: str
    saved: Any
    now: Any


def changes(saved: Mapping[str, Any], now: Mapping[str, Any]) -> list[Change]:
    """The settings in which two compiled configurations differ, without those that only say where files are."""
    return [change for change in _compare(plain(saved), plain(now), "") if change.path not in _PLACES]


def check_identity(found: list[Change], what: str) -> None:
    """Refuses changes of what makes a run that run: algorithm, network, environment.

    Args:
      found: from `changes`.
      what: names the checkpoint in the message.
    Raises:
      CheckpointError: there is such a change; names all with both values.
    """
    other = [change for change in found if _within(change.path, _IDENTITY)]
    if other:
        texts = [f"{change.path} is {change.saved!r} there and {change.now!r} here" for change in other]
        raise CheckpointError(
            f"{what} is of another run: {'; '.join(texts)}. Resume with those settings, or start a new run"
        )


def describe_changes(found: list[Change]) -> str:
    """``'policy.learn.learning_rate 0.001 -> 0.0003, ...'``."""
    return ", ".join(f"{change.path} {change.saved} -> {change.now}" for change in found)


def _compare(saved: Any, now: Any, path: str) -> Iterator[Change]:
    if isinstance(saved, dict) and isinstance(now, dict):
        for key in [*now, *(key for key in saved if key not in now)]:
            yield from _compare(saved.get(key), now.get(key), f"{path}.{key}" if path else key)
    elif saved != now:
        yield Change(path, saved, now)


def _within(path: str, sections: tuple[str, ...]) -> bool:
    return any(path == section or path.startswith(f"{section}.") for section in sections)
