"""The model pool of a run: earlier versions of its policy."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from minding.engine.checkpoint import BlockArray, set_aside
from minding.engine.checkpoint.manifest import read_verified, sha256
from minding.engine.checkpoint.store import MISFITS, arrays_of, first_line
from minding.engine.config.config import Config
from minding.engine.errors import ConfigError, DamagedCheckpointError, NoCheckpointError, nearest
from minding.engine.files import Folder, read_text
from minding.engine.paths import absolute
from minding.engine.run.run_dir import RunDir
from minding.engine.types import Array, StateDict

LATEST, BEST = "latest", "best"
_INDEX, _PINS = "index.jsonl", "pinned.json"
_OWN_FILE = re.compile(r"version_\d{1,12}\.safetensors|\..*\.minding-tmp")
_MAX_TEXT = 1 << 24


@dataclasses.dataclass(frozen=True)
class Version:
    """One version of a policy.

    Attributes:
      size: size of its file in bytes.
    """

    number: int
    iteration: int
    env_step: int
    score: float | None
    size: int
    sha256: str
    network: str
    path: Path
    pinned: bool = False


class ModelPool:
    """Versions of a policy in a folder: a file of weights for each, and a line of ``index.jsonl``.

    Both are written atomically, the weights first: a version in the index is whole, whenever the process is killed.
    Leftovers of a killed process are removed when the next version is added. One process adds versions; any process may
    read, pin and unpin at the same time. Nothing is pickled.

    The pool is also part of checkpoints (`state_dict`), which contain the weights themselves: a resumed run continues
    with the pool of its checkpoint, whatever was added or removed since. Unchanged files are linked from one checkpoint
    to the next. Pins belong to the user and are not part of checkpoints.
    """

    def __init__(self, folder: str | os.PathLike[str], last: int = 10, every: int | None = None) -> None:
        if last < 1 or (every is not None and every < 1):
            raise ConfigError(
                f"ModelPool(last={last}, every={every}): expected integers of at least 1; every may be None"
            )
        self.folder = absolute(folder)
        self._last, self._every = last, every
        self._held: frozenset[int] = frozenset()
        self.newest = 0

    @classmethod
    def of(cls, cfg: Config) -> ModelPool:
        """The pool in the run folder ``<run.out_dir>/<exp_name>``, with the settings of the section `pool`."""
        return cls(RunDir(Path(cfg.run.out_dir) / cfg.exp_name).models, cfg.pool.last, cfg.pool.every)

    @property
    def versions(self) -> list[Version]:
        """All versions, oldest first."""
        try:
            lines = read_text(self.folder / _INDEX, _MAX_TEXT).splitlines()
        except FileNotFoundError:
            return []
        except OSError as error:
            raise DamagedCheckpointError(f"{self.folder / _INDEX} cannot be read: {error.strerror}") from None
        pins = self._pins()
        try:
            entries = [json.loads(line) for line in lines]
            return [self._version(entry, pins) for entry in entries]
        except MISFITS as error:
            raise DamagedCheckpointError(
                f"{self.folder / _INDEX} is damaged ({first_line(error)}): `minding resume` rebuilds it from a "
                "checkpoint"
            ) from None

    def add(
        self,
        weights: Mapping[str, Array],
        iteration: int,
        env_step: int,
        score: float | None = None,
        *,
        network: str = "",
    ) -> int:
        """Adds a version, and removes the versions that are no longer kept."""
        if score is not None and not math.isfinite(score):
            raise ConfigError(f"add(score={score}): expected a number, or None for a version that was not measured")
        from safetensors.numpy import save

        # Not `ascontiguousarray`, which makes a row of a single number.
        data = save({name: np.asarray(array, order="C") for name, array in weights.items()})
        with self._writing() as folder:
            before = self.versions
            number = 1 + max([self.newest, *(version.number for version in before)])
            entry = {
                "version": number, "iteration": iteration, "env_step": env_step,
                "score": None if score is None else float(score),
                "size": len(data), "sha256": sha256(data), "network": network,
            }  # fmt: skip
            version = self._version(entry, self._pins())
            folder.replace(version.path.name, data)
            self._put_index(folder, self._staying([*before, version]))
            self.newest = number
        return number

    def find(self, request: str | int) -> Version:
        """The version with a number, the ``"latest"`` version, or the ``"best"``, which has the highest score."""
        versions = self.versions
        if request not in (LATEST, BEST) and not str(request).isdecimal():
            hint = nearest(str(request), [LATEST, BEST])
            raise ConfigError(f"version {request!r}: expected latest, best or a number{hint}")
        if not versions:
            lost = any(_OWN_FILE.fullmatch(path.name) for path in self.folder.glob("*"))
            raise NoCheckpointError(
                f"{self.folder} holds no versions of a policy: "
                + (
                    f"{_INDEX} lists none, but there are files of versions; `minding resume` rebuilds it from a "
                    "checkpoint"
                    if lost
                    else "the setting pool.freq=N adds one every N iterations"
                )
            )
        if request == LATEST:
            return versions[-1]
        if request == BEST:
            return _best(versions, self.folder)
        number = int(request)
        near = min(versions, key=lambda version: abs(version.number - number))
        if near.number != number:
            raise NoCheckpointError(
                f"{self.folder} holds no version {number}; the nearest of its {len(versions)} is {near.number}"
            )
        return near

    def read(self, version: Version | str | int) -> dict[str, Array]:
        """The weights of a version, or of the result of `find`: arrays by name, which belong to the caller."""
        found = version if isinstance(version, Version) else self.find(version)
        try:
            data = read_verified(found.path, {"size": found.size, "sha256": found.sha256})
        except DamagedCheckpointError as error:
            raise DamagedCheckpointError(
                f"{error}: use another version, or restore it from a checkpoint with `minding resume`"
            ) from None
        try:
            return {name: np.array(array) for name, array in arrays_of(data)[0].items()}
        except ValueError as error:
            raise DamagedCheckpointError(f"{found.path} holds no arrays ({first_line(error)})") from None

    def pin(self, version: Version | str | int) -> Version:
        """Keeps a version until it is unpinned; raises the errors of `find`."""
        return self._set_pin(version, True)

    def unpin(self, version: Version | str | int) -> Version:
        """Treats a version like all others again from the next `add` on; raises the errors of `find`."""
        return self._set_pin(version, False)

    def hold(self, numbers: Iterable[int]) -> None:
        """Keeps these versions while this object adds versions, and no longer those that were held before."""
        self._held = frozenset(numbers)

    def set_aside(self) -> Path | None:
        """Renames the folder, so that the pool starts empty; returns its new path, None if there are no versions."""
        return set_aside(self.folder, follow=True) if (self.folder / _INDEX).exists() else None

    def state_dict(self) -> StateDict:
        """All versions with their weights."""
        versions = [version for version in self.versions if version.path.is_file()]
        return {
            "newest": self.newest,
            "index": [_entry(version) for version in versions],
            "files": {str(version.number): _mapped(version) for version in versions},
        }

    def load_state_dict(self, state: StateDict) -> None:
        """Restores a result of `state_dict`; versions that were added since are removed."""
        entries = [dict(entry) for entry in state["index"]]
        with self._writing() as folder:
            self.newest = int(state["newest"])
            versions = [self._version(entry, self._pins()) for entry in entries]
            for version in versions:
                if not _is_whole(version):
                    data = np.asarray(state["files"][str(version.number)], np.uint8).tobytes()
                    folder.replace(version.path.name, data)
            self._put_index(folder, versions)

    def _version(self, entry: Mapping[str, Any], pins: frozenset[int]) -> Version:
        number, score = int(entry["version"]), entry["score"]
        if score is not None and not math.isfinite(score):
            raise ValueError(f"the score of version {number} is {score}")
        return Version(
            number=number,
            iteration=int(entry["iteration"]),
            env_step=int(entry["env_step"]),
            score=None if score is None else float(score),
            size=int(entry["size"]),
            sha256=str(entry["sha256"]),
            network=str(entry["network"]),
            path=self.folder / f"version_{number}.safetensors",
            pinned=number in pins,
        )

    def _staying(self, versions: Sequence[Version]) -> list[Version]:
        stay = {version.number for version in versions[-self._last :]} | self._held
        scored = [version for version in versions if version.score is not None]
        if scored:
            stay.add(_best(scored, self.folder).number)
        return [
            version
            for version in versions
            if version.number in stay or version.pinned or (self._every and version.number % self._every == 0)
        ]

    def _pins(self) -> frozenset[int]:
        try:
            return frozenset(int(number) for number in json.loads(read_text(self.folder / _PINS, _MAX_TEXT)))
        except FileNotFoundError:
            return frozenset()
        except (OSError, *MISFITS) as error:
            raise DamagedCheckpointError(
                f"{self.folder / _PINS} is damaged ({first_line(error)}): remove it and pin again"
            ) from None

    def _set_pin(self, version: Version | str | int, pinned: bool) -> Version:
        found = self.find(version.number if isinstance(version, Version) else version)
        with self._writing() as folder:
            # The version may have been removed in the meantime.
            found = self.find(found.number)
            pins = self._pins() | {found.number} if pinned else self._pins() - {found.number}
            folder.replace(_PINS, json.dumps(sorted(pins)).encode())
        return dataclasses.replace(found, pinned=pinned)

    @contextlib.contextmanager
    def _writing(self) -> Iterator[Folder]:
        """The folder, locked against other processes that write."""
        with Folder(self.folder, make=True) as folder:
            folder.lock(wait=True)
            yield folder

    def _put_index(self, folder: Folder, versions: Sequence[Version]) -> None:
        """Writes the index, then removes all files that it does not name."""
        text = "".join(json.dumps(_entry(version)) + "\n" for version in versions)
        folder.replace(_INDEX, text.encode())
        named = {version.path.name for version in versions}
        folder.discard(*(name for name in folder.names() if _OWN_FILE.fullmatch(name) and name not in named))


def _entry(version: Version) -> dict[str, Any]:
    """The line of a version in the index."""
    names = ("iteration", "env_step", "score", "size", "sha256", "network")
    return {"version": version.number, **{name: getattr(version, name) for name in names}}


def _best(versions: Sequence[Version], folder: Path) -> Version:
    scored = [version for version in versions if version.score is not None]
    if not scored:
        raise NoCheckpointError(f"{folder}: none of its {len(versions)} versions has a score: use latest or a number")
    return max(scored, key=lambda version: version.score or 0.0)


def _mapped(version: Version) -> BlockArray:
    """The bytes of a version's file, mapped, since they are read only if they cannot be linked."""
    return BlockArray(np.memmap(version.path, np.uint8, "r"), version.size, [int(version.sha256[:15], 16)])


def _is_whole(version: Version) -> bool:
    try:
        read_verified(version.path, {"size": version.size, "sha256": version.sha256})
    except DamagedCheckpointError:
        return False
    return True
