"""Describes recorded data, and finds their faults."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from minding.engine.data.dataset import Dataset
from minding.engine.data.episode import Episode
from minding.engine.data.references import references_of
from minding.engine.errors import MOST_NAMED, DamagedDataError, DataError, few
from minding.engine.types import Array
from minding.training.conversion import problem_of
from minding.training.formats.source import Source
from minding.training.successors import Repeats, jumps

_MANY = 0.01
"""Share of action components at their limits above which this is reported."""
_HUGE = 1e8
"""Rewards above this size are reported: in float32 their sums lose everything below 8."""


@dataclasses.dataclass(frozen=True)
class Finding:
    """An observation about recorded data.

    Attributes:
      text: description of the finding, with its place and frequency.
      fault: True for a fault; False if it may be intended.
    """

    text: str
    fault: bool


def describe_dataset(data: Dataset) -> dict[str, str]:
    """Sizes, spaces, returns, ends and fingerprint, as lines of a table."""
    env, lengths = data.about["env"], np.diff(data.end, prepend=-1)
    ended, cut = data.terminated[data.end], ~(data.terminated[data.end] | data.truncated[data.end])
    returns = data.returns()
    quantiles = np.quantile(returns, [0, 0.25, 0.5, 0.75, 1]).tolist() if len(returns) else []
    arrays = [*data.obs.values(), data.action, data.reward, *data.final_obs.values()]
    return {
        "environment": str(env["env_id"]),
        "steps": f"{len(data):,}",
        "episodes": f"{len(lengths):,}, of {_lengths(lengths)}",
        "ends": f"{ended.sum():,} terminated, {(~ended & ~cut).sum():,} truncated, {cut.sum():,} cut by the recording",
        "returns": "quartiles " + ", ".join(f"{value:.4g}" for value in quantiles)
        if len(returns)
        else "no complete episode",
        "mean return": f"{returns.mean():.4g} ± {returns.std():.4g}" if len(returns) else "",
        "reference returns": _references(data),
        "observation": _space(env["observation"]),
        "action": _space(env["env_action"]),
        "size": f"{sum(array.nbytes for array in arrays) / 1e6:,.1f} MB",
        "recorded by": _recorder(data.about),
        "fingerprint": data.digest,
    }


def _lengths(lengths: Array) -> str:
    if lengths.min() == lengths.max():
        return f"{lengths[0]:,} step{'s' * int(lengths[0] > 1)}" + (" each" if len(lengths) > 1 else "")
    return f"{lengths.min():,} to {lengths.max():,} steps, mean {lengths.mean():.1f}"


def _references(data: Dataset) -> str:
    found = references_of(data.about)
    if found is None:
        return "none: returns are compared raw"
    return f"random {found.random:g} (scores 0), expert {found.expert:g} (scores 100)"


def _space(space: Any) -> str:
    if space["kind"] in ("dict", "tuple"):
        items = space["spaces"].items() if space["kind"] == "dict" else enumerate(space["spaces"])
        return ", ".join(f"{key}: {_space(child)}" for key, child in items)
    count = {key: space[key] for key in ("n", "nvec", "counts") if key in space}
    limits = f" from {space['low']} to {space['high']}" if space["kind"] == "box" else ""
    return f"{space['kind']} {next(iter(count.values())) if count else space.get('shape')}{limits}"[:120]


def _recorder(about: Any) -> str:
    policy, sets = about.get("policy"), about.get("converted")
    if isinstance(policy, Mapping) and isinstance(policy.get("identity"), Mapping):
        how = "with exploration" if policy.get("explore") else "without exploration"
        return f"{policy['identity'].get('policy.type')} at {policy.get('checkpoint')}, {how}"
    if isinstance(sets, list):
        return f"converted from {', '.join(map(str, sets))}"
    return str(about.get("player", "not known"))


def check_source(source: Source) -> list[Finding]:
    """Checks all episodes for damage, missing ends, wrong next observations, values outside of their spaces, and for
    equal or joined episodes."""
    seen = _Seen(source)
    found: list[Finding] = []
    try:
        for number, episode in enumerate(source.episodes()):
            seen.add(number, episode)
        source.references  # noqa: B018  # raises if the references are damaged
    except DataError as error:
        found.append(Finding(str(error), True))
    dropped = source.dropped
    found = [*_damage(seen.damaged), *found, *seen.faults(stopped=bool(found)), *seen.notes()]
    if seen.steps:
        with contextlib.suppress(DamagedDataError):  # reported already
            found += [Finding(text, False) for text in jumps(source)]
    if dropped:
        found.append(
            Finding(
                f"{dropped:,} row{'s' * (dropped > 1)} would be dropped, because the next observation is not known",
                False,
            )
        )
    return found


class _Seen:
    """Gathers findings about the episodes of a source, one by one."""

    def __init__(self, source: Source) -> None:
        self._source, self._space = source, source.env["env_action"]
        self._limit, self._about = source.env.get("max_episode_steps"), {"env": dict(source.env)}
        self.damaged: list[str] = []
        self._prints: dict[bytes, int] = {}
        self._equal: list[str] = []
        # Whether equal episodes hold numbers that two episodes do not have in common by chance.
        self._copied = False
        self._lengths: list[tuple[int, int, bool]] = []
        self._large: list[str] = []
        self._repeats = Repeats()
        self.steps = self._at_limits = self._numbers = self._cut = self._ended = self._count = 0
        self._whole = self._space["kind"] == "box"

    def add(self, number: int, episode: Episode | ValueError) -> None:
        """Looks at an episode."""
        self._count += 1
        problem = episode if isinstance(episode, ValueError) else problem_of(episode, self._about, limits=True)
        if problem is not None:
            self.damaged.append(f"episode {number}: {problem}")
            return
        assert isinstance(episode, Episode)
        self.steps += len(episode)
        key = _fingerprint(episode)
        if key in self._prints:
            self._equal.append(f"{self._prints[key]} and {number}")
            self._copied = self._copied or not _of_whole_numbers(episode)
        self._prints.setdefault(key, number)
        self._lengths.append((number, len(episode), episode.truncated))
        self._repeats.add(episode)
        ended = episode.terminated or episode.truncated
        self._ended, self._cut = self._ended + ended, self._cut + (not ended)
        step = int(np.argmax(np.abs(episode.reward)))
        if abs(episode.reward[step]) > _HUGE:
            self._large.append(f"{episode.reward[step]:.3g} at step {step} of episode {number}")
        touching = _at_limits(self._space, episode.action)
        self._at_limits, self._numbers = self._at_limits + int(touching.sum()), self._numbers + touching.size
        self._whole = self._whole and bool((episode.action == np.rint(episode.action)).all())

    def faults(self, *, stopped: bool) -> Iterator[Finding]:
        """Faults of whole episodes; `stopped` says whether another fault came before all episodes were seen."""
        limit, texts = self._limit, []
        too_long = [f"{number} ({steps:,} steps)" for number, steps, _ in self._lengths if limit and steps > limit]
        if too_long:
            texts.append(
                f"ends are missing: longer than the time limit of {limit} steps {_are(too_long)} {_episodes(too_long)}"
            )
        if self._copied:
            texts.append(f"equal episodes: {few(self._equal)}")
        if not (self.steps or stopped):
            texts.append("there are no whole steps")
        both = self._source.ambiguous
        if both and both >= self._ended:
            texts.append(
                f"all {both:,} episodes that end both terminate and time out: it is not known which is true, and "
                "bootstrapping depends on it"
            )
        yield from (Finding(text, True) for text in texts)

    def notes(self) -> Iterator[Finding]:
        """Notes on findings that may be intended."""
        limit, texts = self._limit, []
        least = (limit or 0) - self._source.shortened
        early = [str(number) for number, steps, truncated in self._lengths if truncated and steps < least]
        if early:
            texts.append(f"truncated before the time limit of {limit} steps: {_episodes(early)}")
        if self._equal and not self._copied:
            texts.append(
                f"equal episodes: {few(self._equal)}; all of their numbers are whole, and an environment of few states "
                "repeats itself"
            )
        if self._cut:
            texts.append(
                f"{self._cut:,} of {self._count:,} episodes neither terminated nor truncated: recording ended there"
            )
        if self._source.ambiguous and self._source.ambiguous < self._ended:
            texts.append(f"{self._source.ambiguous:,} episodes both terminate and time out; they count as terminated")
        texts += [*self._longer(), *self._repeats.texts()]
        if self._large:
            texts.append(f"rewards are as large as {few(self._large)}: values learned from them may overflow")
        if self._numbers and self._at_limits > _MANY * self._numbers:
            share = self._at_limits / self._numbers
            texts.append(
                f"{share:.1%} of the action components are at a limit, where the density of a squashed normal "
                f"distribution is "
                "infinite"
            )
        if self._whole and self.steps:
            texts.append(
                "all actions in the Box space are whole numbers: if they are discrete choices, store them as integers"
            )
        yield from (Finding(text, False) for text in texts)

    def _longer(self) -> Iterator[str]:
        """If the time limit is unknown: a note on episodes that are longer than all truncated episodes."""
        limits = [steps for _, steps, truncated in self._lengths if truncated]
        if self._limit is None and len(limits) > 1 and len(set(limits)) == 1:
            longer = [f"{number} ({steps:,} steps)" for number, steps, _ in self._lengths if steps > limits[0]]
            if longer:
                yield (
                    f"all truncated episodes have {limits[0]:,} steps, and longer {_are(longer)} {_episodes(longer)}: "
                    "ends may be missing"
                )


def _damage(damaged: list[str]) -> Iterator[Finding]:
    yield from (Finding(text, True) for text in damaged[:MOST_NAMED])
    if len(damaged) > MOST_NAMED:
        more = len(damaged) - MOST_NAMED
        yield Finding(f"{more:,} more damaged episode{'s' * (more > 1)}", True)


def _episodes(names: list[str]) -> str:
    return f"the episode{'s' * (len(names) > 1)} {few(names)}"


def _are(names: list[str]) -> str:
    return "are" if len(names) > 1 else "is"


def _fingerprint(episode: Episode) -> bytes:
    digest = hashlib.sha256()
    for path in sorted(episode.obs):
        digest.update(np.ascontiguousarray(episode.obs[path]).data)
    digest.update(np.ascontiguousarray(episode.action).data)
    return digest.digest()


def _of_whole_numbers(episode: Episode) -> bool:
    """Whether all numbers of an episode are whole, as the numbers of states, counts and pixels are."""
    floats = [values for values in (*episode.obs.values(), episode.action) if values.dtype.kind == "f"]
    return all((values == np.rint(values)).all() for values in floats)


def _at_limits(space: Any, action: Array) -> Array:
    """Which components of actions are at a finite limit of a Box; empty for other spaces."""
    if space["kind"] != "box":
        return np.zeros(0, np.bool_)
    low, high = np.broadcast_to(space["low"], action.shape[1:]), np.broadcast_to(space["high"], action.shape[1:])
    found: Array = (action <= low) | (action >= high)
    return found
