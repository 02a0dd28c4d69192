"""Describes recorded data, and finds their faults."""

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
from minding.training.formats import Source

_MANY = 0.01
"""Share of action components at their limits above which this is reported."""
_HUGE = 1e8
"""Rewards above this size are reported: in float32 their sums lose everything below 8."""

_JUMP = 8.0
"""A change of an observation within an episode is suspicious above this multiple of the 99th percentile."""
_RESTART = 1.5
"""The same for a change that leads into the region where episodes begin from outside of it."""
_SEVERAL = 5
"""Number of episodes from which the region where episodes begin can be estimated."""
_SAMPLE = 100_000
_ROWS = 1 << 16
"""Steps that are processed together."""


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
            found += [Finding(text, False) for text in _jumps(source)]
    if dropped:
        rows = f"{dropped:,} row{'s' * (dropped > 1)}"
        found.append(Finding(f"{rows} would be dropped, because the next observation is not known", False))
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
        self._repeats = _Repeats()
        self.steps = self._at_limits = self._numbers = self._cut = self._ended = self._count = 0
        self._whole = self._space["kind"] == "box"

    def add(self, number: int, episode: Episode | ValueError) -> None:
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
                "distribution is infinite"
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


# Next observations


class _Repeats:
    """Counts last observations that equal the observation before, as in logs that lack the one after the last step."""

    def __init__(self) -> None:
        self._within = self._inner = self._last = self._episodes = 0

    def add(self, episode: Episode) -> None:
        same = np.ones(1, np.bool_)
        last = np.ones(1, np.bool_)
        for path, values in episode.obs.items():
            flat = values.reshape(len(values), -1)
            same = same & (flat[1:] == flat[:-1]).all(axis=1)
            last = last & (flat[-1:] == episode.final_obs[path].reshape(1, -1)).all(axis=1)
        self._within, self._inner = self._within + int(same.sum()), self._inner + len(episode) - 1
        self._last, self._episodes = self._last + int(last[0]), self._episodes + 1

    def texts(self) -> Iterator[str]:
        """The findings, if observations repeat more often at ends than elsewhere."""
        if self._last and self._last * max(self._inner, 1) > 2 * self._within * self._episodes:
            yield (
                f"in {self._last:,} of {self._episodes:,} episodes the observation after the last step equals the one "
                "before it: the true one may be missing, and episodes that do not terminate bootstrap from it"
            )


def _jumps(source: Source) -> Iterator[str]:
    """Finds exceptionally large changes of an observation within an episode, where an end or rows may be missing."""
    starts, changes = _starts_and_changes(source)
    for path, values in changes.items():
        usual = np.quantile(values, 0.99, axis=0)
        begin = np.stack(starts[path])
        found, again = [], []
        for number, episode in enumerate(source.episodes()):
            if isinstance(episode, Episode):
                for first, before, after in _pairs(episode, path):
                    change = np.abs(after - before)
                    jumps = (change > _JUMP * usual + 1e-6).any(axis=1)
                    found += [f"step {first + step} of episode {number}" for step in np.flatnonzero(jumps).tolist()]
                    if len(begin) >= _SEVERAL:
                        large = (change > _RESTART * usual + 1e-6).any(axis=1)
                        steps = np.flatnonzero(~jumps & large & _restarts(before, after, begin)).tolist()
                        again += [f"step {first + step} of episode {number}" for step in steps]
        name = f"observation {path!r}" if path else "observation"
        if found:
            yield f"the {name} jumps at {few(found)}: an end or rows may be missing there"
        if again:
            yield f"the {name} returns to the start of an episode at {few(again)}: an end may be missing there"


def _restarts(before: Array, after: Array, starts: Array) -> Array:
    """Whether each step leads from outside into the region of the first observations, bool ``(n,)``."""
    low, high = starts.min(axis=0), starts.max(axis=0)
    margin = 0.1 * (high - low) + 1e-6

    def within(values: Array) -> Array:
        inside: Array = ((values >= low - margin) & (values <= high + margin)).all(axis=1)
        return inside

    return within(after) & ~within(before)


def _starts_and_changes(source: Source) -> tuple[dict[str, list[Array]], dict[str, Array]]:
    """The first observations of all episodes, and the changes in a sample of steps, for each vector observation."""
    starts: dict[str, list[Array]] = {}
    found: dict[str, list[Array]] = {}
    stride = size = 1
    for episode in source.episodes():
        if not isinstance(episode, Episode):
            continue
        for path, values in episode.obs.items():
            if values.dtype.kind == "f" and values.ndim == 2:
                starts.setdefault(path, []).append(values[0].copy())
                for first, before, after in _pairs(episode, path):
                    found.setdefault(path, []).append(np.abs(after - before)[(size + first) % stride :: stride])
        size += len(episode)
        if size // stride > _SAMPLE:
            # From here on every second step is left out.
            stride, found = 2 * stride, {path: [each[::2] for each in parts] for path, parts in found.items()}
    return starts, {path: np.concatenate(parts) for path, parts in found.items()}


def _pairs(episode: Episode, path: str) -> Iterator[tuple[int, Array, Array]]:
    """Observations before and after steps, in parts of bounded size, each with the number of its first step."""
    values = episode.obs[path]
    for first in range(0, len(values), _ROWS):
        before = values[first : first + _ROWS]
        after = values[first + 1 : first + _ROWS + 1]
        if len(after) < len(before):
            after = np.concatenate([after, episode.final_obs[path][None]])
        yield first, before, after
