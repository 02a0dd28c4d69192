"""Recorded data: the steps taken in an environment, stored in a folder in the same form as a checkpoint.

The folder holds arrays (safetensors), everything else (JSON) and a manifest with checksums. Reading it runs no code,
and takes no more memory than the size of its files.
"""

from __future__ import annotations

import dataclasses
import functools
import logging
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from minding.engine.checkpoint import load_checkpoint, map_checkpoint, not_finite, read_manifest
from minding.engine.checkpoint.manifest import MANIFEST, sha256
from minding.engine.checkpoint.store import MISFITS, first_line
from minding.engine.data.actions import ActionAdapter
from minding.engine.data.arrays import episodes_of_arrays
from minding.engine.data.data_hints import RECORD, again, conversion
from minding.engine.data.description import check_description, describe, differences
from minding.engine.data.episode import RECORDED, Episode
from minding.engine.data.observation import observation_leaves
from minding.engine.data.ranges import blocks, check_ranges
from minding.engine.data.references import References, references_of
from minding.engine.data.returns import reverse_scan
from minding.engine.errors import DamagedCheckpointError, DamagedDataError, DataError, MindingError, few, nearest
from minding.engine.paths import absolute, shown
from minding.engine.types import Array

_log = logging.getLogger("minding.data")
KIND = "recorded data"
"""The entry of the manifest that marks a folder of recorded data."""
_ENV = {"env_id": "env.env_id", "wrappers": "env.wrappers", "observation": "observation", "env_action": "action"}
"""The parts of a description of the environment that must agree, by their names in messages; others are refused."""
_CONDITIONS = {"env_kwargs": "env.env_kwargs", "max_episode_steps": "the time limit of episodes"}
"""Further parts of a description. Data that differ in them can be learned from, so a difference is only a warning."""
_MOST_NAMED = 4
BATCH_SIZE = "policy.learn.batch_size"
"""The setting that says how many recorded steps a minibatch holds, unless a chain has another one."""


@dataclasses.dataclass(frozen=True)
class Dataset:
    """S steps of E episodes, one episode after the other, each in the order of time.

    Attributes:
      obs: by path of the leaf ('' for a plain array), ``(S, ...)``: the observations that were acted on.
      action: ``(S, ...)``, in the environment's units.
      reward: float32 ``(S,)``, the unchanged reward of the environment.
      terminated, truncated: bool ``(S,)``, see `EnvStep`.
      end: int64 ``(E,)``, the number of the last step of each episode, increasing. An episode that was still running
        when recording ended is cut there: it is neither terminated nor truncated.
      final_obs: by path, ``(E, ...)``: the observation after the last step of each episode. The successor of any other
        step is the next row.
    """

    obs: Mapping[str, Array]
    action: Array
    reward: Array
    terminated: Array
    truncated: Array
    end: Array
    final_obs: Mapping[str, Array]
    about: Mapping[str, Any]
    digest: str = ""

    def __len__(self) -> int:
        return len(self.action)

    @property
    def arrays(self) -> dict[str, Any]:
        """The arrays by name, as they are stored; those of observations by path."""
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)[:-2]}

    @classmethod
    def of_episodes(
        cls, episodes: Iterable[Mapping[str, Any]], env: Any = None, *, action_low: Any = None, action_high: Any = None
    ) -> Dataset:
        """Makes recorded data from arrays, such as the logs of a real process.

        Observations and rewards become float32. Float actions become float32 and are quantities, even if all of them
        are whole numbers. Integer actions are choices from 0 to the largest, bool actions are two choices.

        Args:
          episodes: one dict per episode:
            `obs` ``(T + 1, ...)``, an array, or several by path of the leaf; the last one follows the last step. Beside
            choices, the part `action_mask` ``(T + 1, A)`` of bools (or 0, 1) says which of A actions are legal;
            `action` ``(T, ...)``, in the environment's units;
            `reward` ``(T,)``, or, like integer actions and flags, as a column ``(T, 1)``;
            `terminated` and `truncated`, a bool (or 0, 1), or one per step of which only the last may be set. If
            neither is set, recording ended there.
          env: the environment: its id, an environment, a function that makes one, or a description (see `describe`).
            Without it, spaces are derived from the arrays: images of uint8 stay uint8, float actions have no limits.
        """
        made, described = episodes_of_arrays(episodes, env, action_low=action_low, action_high=action_high)
        data = joined(made, {"env": described})
        try:
            check_dataset(data)
        except ValueError as error:
            raise DataError(f"of_episodes: {error}") from None
        return data

    @property
    def names(self) -> tuple[str, ...]:
        """The fields of learners' rows that `rows` can return."""
        leaves = [f"{prefix}.{path}" if path else prefix for prefix in ("obs", "next_obs") for path in self.obs]
        return (*leaves, "action", "reward", "terminated", "truncated", "next_action", "next_known")

    def rows(self, names: Iterable[str], index: Array) -> dict[str, Array]:
        """Returns the steps with the numbers `index` ``(n,)`` as the rows that policies learn from: arrays ``(n, ...)``
        by name, with actions in the policy's units."""
        found: dict[str, Array] = {}
        for name in names:
            kind, _, path = name.partition(".")
            if name in ("reward", "terminated", "truncated"):
                found[name] = getattr(self, name)[index]
            elif name == "action":
                found[name] = self._adapter.invert(self.action[index])
            elif name == "next_action":
                # Any value for the last step of an episode, where `next_known` is 0.
                found[name] = self._adapter.invert(self.action[np.minimum(index + 1, len(self) - 1)])
            elif name == "next_known":
                found[name] = (self.end[np.searchsorted(self.end, index)] != index).astype(np.float32)
            elif kind == "return" and path:
                found[name] = self._returns_from(float(path))[index]
            elif kind == "obs" and path in self.obs:
                found[name] = self.obs[path][index]
            elif kind == "next_obs" and path in self.obs:
                found[name] = self._following(path, index)
        return found

    @functools.cached_property
    def _adapter(self) -> ActionAdapter:
        return ActionAdapter(self.about["env"]["env_action"])

    def _following(self, path: str, index: Array) -> Array:
        """The observations after these steps."""
        episode = np.searchsorted(self.end, index)
        last = np.flatnonzero(self.end[episode] == index)
        after: Array = self.obs[path][np.minimum(index + 1, len(self) - 1)]
        after[last] = self.final_obs[path][episode[last]]
        return after

    def _returns_from(self, gamma: float) -> Array:
        """The discounted return from each step on, float32."""
        if gamma not in self._discounted:
            decay = np.full((len(self), 1), gamma)
            decay[self.end] = 0.0
            self._discounted[gamma] = reverse_scan(self.reward[:, None], decay)[:, 0].astype(np.float32)
        return self._discounted[gamma]

    @functools.cached_property
    def _discounted(self) -> dict[float, Array]:
        """Results of `_returns_from` by discount factor."""
        return {}

    def returns(self) -> Array:
        """Float64 returns of the episodes that ended."""
        starts = np.concatenate([[0], self.end[:-1] + 1])
        sums = np.add.reduceat(self.reward.astype(np.float64), starts)
        whole: Array = sums[self.terminated[self.end] | self.truncated[self.end]]
        return whole


def joined(episodes: Sequence[Episode], about: Mapping[str, Any]) -> Dataset:
    """Joins episodes to recorded data, in their order."""
    end = np.cumsum([len(episode) for episode in episodes]) - 1
    terminated, truncated = np.zeros((2, int(end[-1]) + 1), np.bool_)
    terminated[end] = [episode.terminated for episode in episodes]
    truncated[end] = [episode.truncated for episode in episodes]
    return Dataset(
        obs=as_stored(
            {path: _one_after_other([each.obs[path] for each in episodes]) for path in episodes[0].obs}, about
        ),
        action=_one_after_other([each.action for each in episodes]),
        reward=_one_after_other([each.reward for each in episodes]),
        terminated=terminated,
        truncated=truncated,
        end=end.astype(np.int64),
        final_obs=as_stored(
            {path: np.stack([each.final_obs[path] for each in episodes]) for path in episodes[0].final_obs}, about
        ),
        about=about,
    )


def _one_after_other(arrays: Sequence[Array]) -> Array:
    # An episode alone may be mapped, and larger than memory.
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)


def as_stored(obs: Mapping[str, Array], about: Mapping[str, Any]) -> dict[str, Array]:
    """Returns the observations of an environment by path, in the dtypes of recorded data."""
    dtypes = {leaf.path: np.dtype(leaf.field.dtype) for leaf in observation_leaves(about["env"]["observation"])}
    return {path: values.astype(dtypes.get(path, values.dtype), copy=False) for path, values in obs.items()}


def episodes_of(data: Dataset) -> Iterator[Episode]:
    """The episodes of data, in order; views."""
    start = 0
    for number, end in enumerate(data.end.tolist()):
        rows = slice(start, end + 1)
        yield Episode(
            obs={path: values[rows] for path, values in data.obs.items()},
            final_obs={path: values[number] for path, values in data.final_obs.items()},
            action=data.action[rows],
            reward=data.reward[rows],
            terminated=bool(data.terminated[end]),
            truncated=bool(data.truncated[end]),
        )
        start = end + 1


def load_dataset(path: str | Path, *, mapped: bool = False, values: bool = True) -> Dataset:
    """Reads and verifies recorded data."""
    path = absolute(path)
    recorded_env(path)
    try:
        state, manifest = map_checkpoint(path) if mapped else load_checkpoint(path)
    except DamagedCheckpointError as error:
        raise DamagedDataError(f"the recorded data are damaged: {error}; {_again(path)}") from None
    try:
        data = Dataset(**state["data"], about=manifest["about"], digest=_digest_of(manifest))
        check_dataset(data, values=values)
        if manifest["steps"] != len(data):
            raise ValueError(f"{len(data)} steps, but the manifest says {str(manifest['steps'])[:40]}")
    except (*MISFITS, MindingError) as error:
        raise DamagedDataError(
            f"{str(path)!r}: its arrays do not fit together ({first_line(error)}); {_again(path)}"
        ) from None
    return data


def _read_manifest(path: Path) -> dict[str, Any]:
    """The manifest of recorded data; the other files are not looked at."""
    if not os.path.exists(path / MANIFEST):
        # An id of Minari looks like a relative path.
        path = Path(shown(path))
        inside = path / "data"
        nested = f"; did you mean {str(inside)!r}?" if os.path.exists(inside / MANIFEST) else ""
        hint = nested or conversion(path) or _beside(path) or f": {RECORD}"
        raise DataError(f"no recorded data in {str(path)!r}{hint}")
    try:
        manifest = read_manifest(path)
    except DamagedCheckpointError as error:
        raise DamagedDataError(f"the recorded data are damaged: {error}; {again(None, path)}") from None
    if manifest.get("kind") != KIND:
        raise DataError(f"{str(path)!r} is a checkpoint, not recorded data; {RECORD}")
    return manifest


def _again(path: Path) -> str:
    return again(_read_manifest(path).get("about"), path)


def _beside(path: Path) -> str:
    """The folder of recorded data with the nearest name in the same folder."""
    if path.exists() or not path.parent.is_dir():
        return ""
    return nearest(path.name, [each.parent.name for each in sorted(path.parent.glob(f"*/{MANIFEST}"))])


def check_folder(path: str | Path, env: Mapping[str, Any], batch_size: int, key: str = BATCH_SIZE) -> None:
    """Refuses a folder that a run cannot learn from; it reads only the manifest, which takes no time. `load_dataset`
    finds damage of the other files."""
    recorded, steps = recorded_env(path)
    recorded_references(path)
    _refuse_another(recorded, env, str(path))
    for problem in too_few(steps, batch_size, key=key):
        raise DataError(f"{str(path)!r}: {problem}")


def recorded_env(path: str | Path) -> tuple[dict[str, Any], int]:
    """The environment in a folder's manifest (see `describe`), and its number of steps; takes no time."""
    manifest = _read_manifest(absolute(path))
    about, steps = manifest.get("about"), manifest.get("steps")
    if not (isinstance(about, dict) and isinstance(about.get("env"), dict) and type(steps) is int):
        raise DamagedDataError(
            f"{str(path)!r}: its manifest does not say what was recorded, or how many steps; {again(about, Path(path))}"
        )
    try:
        check_description(about["env"])
    except ValueError as error:
        raise DamagedDataError(
            f"{str(path)!r}: its manifest does not describe an environment ({error}); {again(about, Path(path))}"
        ) from None
    return about["env"], steps


def recorded_digest(path: str | Path) -> str:
    """The digest of a folder's data, read from its manifest."""
    return _digest_of(_read_manifest(absolute(path)))


def _digest_of(manifest: Mapping[str, Any]) -> str:
    return sha256("".join(sorted(entry["sha256"] for entry in manifest["files"].values())).encode())


def recorded_references(path: str | Path) -> References | None:
    """The reference returns in the manifest of a folder; None if it has none."""
    about = _read_manifest(absolute(path)).get("about")
    try:
        return references_of(about if isinstance(about, dict) else {})
    except DataError as error:
        raise DamagedDataError(f"{str(path)!r}: {error}") from None


def too_few(steps: int, batch_size: int, which: str = "recorded steps", key: str = BATCH_SIZE) -> list[str]:
    """Returns a sentence if `steps` recorded steps are fewer than a minibatch, else an empty list."""
    if batch_size <= steps:
        return []
    return [
        f"{key}={batch_size} exceeds the {steps} {which}: every minibatch would hold steps twice; record more, or "
        f"lower {key}"
    ]


def check_fits(data: Dataset, env: Mapping[str, Any], where: str) -> None:
    """Refuses data of another environment; logs a warning for data of the same one under other conditions."""
    there = data.about["env"]
    _refuse_another(there, env, where)
    found = _differences(there, env, _CONDITIONS)
    if found:
        _log.warning("the data in %r were recorded under other conditions: %s", where, found)


def _refuse_another(there: Mapping[str, Any], env: Mapping[str, Any], where: str) -> None:
    found = _differences(there, env, _ENV)
    if not found:
        return
    if there.get("env_id") == RECORDED:
        raise DataError(
            f"the data in {where!r} do not name their environment: if they come from this one, convert them with "
            f"`minding data convert {where} --env {env['env_id']} --out FOLDER`. Differences: {found}"
        )
    raise DataError(
        f"the data in {where!r} come from another environment: record data of this one with `minding data record`, "
        f"or train in the environment of the data. Differences: {found}"
    )


def _differences(there: Mapping[str, Any], env: Mapping[str, Any], parts: Mapping[str, str]) -> str:
    """The differences between data and this environment, with both values; empty if there are none."""
    here = describe(env)
    if here["env_id"] == RECORDED:
        # The origin of the data does not matter; only spaces are compared.
        parts = {name: what for name, what in parts.items() if name in ("observation", "env_action")}
    odd = [text for name, what in parts.items() for text in differences(what, there.get(name), here[name])]
    return few(odd, _MOST_NAMED, "; ")


def check_dataset(data: Dataset, *, values: bool = True, single: bool = False, limits: bool = False) -> None:
    """Raises ValueError or another of `MISFITS` unless the parts fit together and, with `values`, lie in their spaces.
    For a `single` episode messages name only the step, because the caller knows the episode. With `limits` observations
    also lie within the limits of their Box."""
    env = data.about["env"]
    check_description(env)
    steps, ends = len(data.action), len(data.end)
    if not steps:
        raise ValueError("it holds no steps")
    ActionAdapter(env["env_action"]).adopt(data.action[:1])
    flags = {"reward": "float32", "terminated": "bool", "truncated": "bool"}
    for name, dtype in flags.items():
        _expect(name, getattr(data, name), (steps,), dtype)
    _expect("end", data.end, (ends,), "int64")
    if not ends or data.end[-1] != steps - 1 or data.end[0] < 0 or (np.diff(data.end) < 1).any():
        raise ValueError("the ends of episodes do not increase up to the last step")
    ended = np.flatnonzero(data.terminated | data.truncated)
    stray = ended[~np.isin(ended, data.end)]
    if len(stray):
        raise ValueError(f"step {stray[0]} ends an episode that continues")
    both = np.flatnonzero(data.terminated & data.truncated)
    if len(both):
        raise ValueError(f"step {both[0]} is both terminated and truncated, expected one of them at most")
    fields = {leaf.path: leaf.field for leaf in observation_leaves(env["observation"])}
    for what, leaves, count in (("obs", data.obs, steps), ("final_obs", data.final_obs, ends)):
        if leaves.keys() != fields.keys():
            raise ValueError(f"{what} has the parts {sorted(leaves)}, expected {sorted(fields)}")
        for path, field in fields.items():
            _expect(f"{what} {path}".strip(), leaves[path], (count, *field.shape), field.dtype)
    if not values:
        return
    # In blocks, so that intermediate results never take as much memory as the arrays.
    for rows in blocks(len(data)):
        obs = {path: values[rows] for path, values in data.obs.items()}
        _finite({"obs": obs, "action": data.action[rows], "reward": data.reward[rows]})
    _finite({"final_obs": data.final_obs})
    over = data.terminated[data.end]
    check_ranges(env, data.obs, data.final_obs, data.action, data.end, over, single=single, limits=limits)


def _finite(parts: Mapping[str, Any]) -> None:
    damaged = not_finite(parts, "")
    if damaged:
        raise ValueError(f"{damaged.strip('/')} holds NaN or infinity")


def _expect(name: str, array: Array, shape: tuple[int, ...], dtype: str) -> None:
    if (array.shape, array.dtype.name) != (shape, dtype):
        raise ValueError(f"{name} is {array.dtype} {array.shape}, expected {dtype} {shape}")
