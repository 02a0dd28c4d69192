"""What recorded data are like, and what is wrong with them."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from minding.engine.data.dataset import Dataset
from minding.engine.data.dataset_writer import Episode
from minding.engine.data.references import references_of
from minding.engine.errors import DataError
from minding.engine.types import Array
from minding.training.conversion import problem_of
from minding.training.formats.source import Source

_MANY = 0.01
"""Share of actions at their limits from which on it is said."""
_JUMP = 8.0
"""A change of an observation within an episode is suspicious from so many times what all but one in a hundred are."""
_SAMPLE = 100_000
_MOST_TOLD = 3


@dataclasses.dataclass(frozen=True)
class Finding:
    """Something that was noticed.

    Attributes:
      text: what, where, and how often.
      fault: whether it is wrong; else it may be meant to be.
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
        else "no whole episode",
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
    """Looks at all episodes: damage, ends, successors, actions at the limits, equal episodes."""
    seen: dict[bytes, int] = {}
    damaged: list[str] = []
    equal, too_long, early = [], [], []
    limit, about = source.env.get("max_episode_steps"), {"env": dict(source.env)}
    steps = at_limits = numbers = cut = count = 0
    for number, episode in enumerate(source.episodes()):
        count += 1
        problem = episode if isinstance(episode, ValueError) else problem_of(episode, about)
        if problem is not None:
            damaged.append(f"episode {number}: {problem}")
            continue
        assert isinstance(episode, Episode)
        steps += len(episode)
        key = _fingerprint(episode)
        if key in seen:
            equal.append(f"{seen[key]} and {number}")
        seen.setdefault(key, number)
        if limit is not None and len(episode) > limit:
            too_long.append(f"{number} ({len(episode):,} steps)")
        if limit is not None and episode.truncated and len(episode) < limit - source.shortened:
            early.append(str(number))
        cut += not (episode.terminated or episode.truncated)
        touching = _at_limits(source.env["env_action"], episode.action)
        at_limits, numbers = at_limits + int(touching.sum()), numbers + touching.size
    found = list(_damage(damaged))
    try:
        source.references  # noqa: B018  # damaged ones are said here
    except DataError as error:
        found.append(Finding(str(error), True))
    if too_long:
        text = f"ends are missing: longer than the time limit of {limit} steps {_are(too_long)} {_episodes(too_long)}"
        found.append(Finding(text, True))
    if equal:
        found.append(Finding(f"equal episodes: {_few(equal)}", True))
    if not steps:
        found.append(Finding("there are no whole steps", True))
    if early:
        text = f"truncated before the time limit of {limit} steps: {_episodes(early)}"
        found.append(Finding(text, False))
    if cut:
        found.append(
            Finding(f"{cut:,} of {count:,} episodes neither terminated nor truncated: recording ended there", False)
        )
    if numbers and at_limits > _MANY * numbers:
        share = at_limits / numbers
        text = (
            f"{share:.1%} of the numbers of actions are at a limit, where the density of a squashed normal is infinite"
        )
        found.append(Finding(text, False))
    dropped = source.dropped
    found += [Finding(text, False) for text in _jumps(source)]
    if dropped:
        found.append(
            Finding(f"{dropped:,} row{'s' * (dropped > 1)} would be dropped: what followed them is not known", False)
        )
    return found


def _damage(damaged: list[str]) -> Iterator[Finding]:
    yield from (Finding(text, True) for text in damaged[:_MOST_TOLD])
    if len(damaged) > _MOST_TOLD:
        more = len(damaged) - _MOST_TOLD
        yield Finding(f"{more:,} more damaged episode{'s' * (more > 1)}", True)


def _episodes(names: list[str]) -> str:
    return f"the episode{'s' * (len(names) > 1)} {_few(names)}"


def _are(names: list[str]) -> str:
    return "are" if len(names) > 1 else "is"


def _few(names: list[str]) -> str:
    more = f" and {len(names) - _MOST_TOLD:,} more" if len(names) > _MOST_TOLD else ""
    return ", ".join(names[:_MOST_TOLD]) + more


def _fingerprint(episode: Episode) -> bytes:
    digest = hashlib.sha256()
    for path in sorted(episode.obs):
        digest.update(episode.obs[path].tobytes())
    digest.update(episode.action.tobytes())
    return digest.digest()


def _at_limits(space: Any, action: Array) -> Array:
    """Which numbers of actions are at a finite limit of a Box."""
    if space["kind"] != "box":
        return np.zeros(0, np.bool_)
    low, high = np.broadcast_to(space["low"], action.shape[1:]), np.broadcast_to(space["high"], action.shape[1:])
    found: Array = (action <= low) | (action >= high)
    return found


def _jumps(source: Source) -> Iterator[str]:
    """Where an observation changes within an episode as hardly another does: an end may be missing there, or rows."""
    usual = {path: np.quantile(values, 0.99, axis=0) for path, values in _sampled_changes(source).items()}
    for path, most in usual.items():
        places = []
        for number, episode in enumerate(source.episodes()):
            if isinstance(episode, Episode):
                odd = np.flatnonzero((_changes(episode, path) > _JUMP * most + 1e-6).any(axis=1))
                places += [f"step {step} of episode {number}" for step in odd.tolist()]
        if places:
            name = f"observation {path!r}" if path else "observation"
            yield f"the {name} jumps at {_few(places)}: an end or rows may be missing there"


def _sampled_changes(source: Source) -> dict[str, Array]:
    """Changes of each vector in the observation from one step to the next, of some of the steps."""
    found: dict[str, list[Array]] = {}
    stride = size = 1
    for episode in source.episodes():
        if not isinstance(episode, Episode):
            continue
        for path, values in episode.obs.items():
            if values.dtype.kind == "f" and values.ndim == 2:
                found.setdefault(path, []).append(_changes(episode, path)[size % stride :: stride])
        size += len(episode)
        if size // stride > _SAMPLE:
            # Every second one is left out from here on.
            stride, found = 2 * stride, {path: [each[::2] for each in parts] for path, parts in found.items()}
    return {path: np.concatenate(parts) for path, parts in found.items()}


def _changes(episode: Episode, path: str) -> Array:
    found: Array = np.abs(np.diff(episode.obs[path], axis=0, append=episode.final_obs[path][None]))
    return found
