"""Disks that fail, processes that die and power that goes, at any call by which a checkpoint changes the disk.

Each stands in for the `os` of `minding.engine.files`. A sync waits for no disk: what it is for, that
contents and names survive a power cut, is modeled by `PowerCutOs`.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from minding.engine import files

COUNTED = ("mkdir", "open", "write", "fsync", "link", "rename", "unlink", "rmdir")
"""The calls that change the disk; `open` only where it makes a file."""


class CountingOs:
    """Counts the calls that change the disk, and performs them.

    Attributes:
      calls: how many were made.
    """

    def __init__(self) -> None:
        self.calls = 0
        self._lock = threading.Lock()

    def __getattr__(self, name: str) -> Any:
        if name not in COUNTED:
            return getattr(os, name)

        def call(*args: Any, **places: int) -> Any:
            if name == "open" and not args[1] & os.O_CREAT:
                return os.open(*args, **places)
            # Syncs come from several threads.
            with self._lock:
                self.calls += 1
                self.before(name, _with_paths(args, places))
                return None if name == "fsync" else getattr(os, name)(*args, **places)

        return call

    def before(self, name: str, args: tuple[Any, ...]) -> None:
        """Is called before each counted call."""


def _with_paths(args: tuple[Any, ...], places: dict[str, int]) -> tuple[Any, ...]:
    """The arguments of a call, with the folders to which names are relative."""
    folders = [places.get("src_dir_fd", places.get("dir_fd")), places.get("dst_dir_fd")]
    paths = [
        each if folder is None else f"{os.readlink(f'/proc/self/fd/{folder}')}/{each}"
        for each, folder in zip(args, folders)
    ]
    return (*paths, *args[len(paths) :])


class FailingOs(CountingOs):
    """Raises OSError at one call, or at this one and all after it.

    Args:
      at: number of the call, from 1.
      number: of the error, such as `errno.ENOSPC`.
      lasting: whether all later calls fail too.
    """

    def __init__(self, at: int, number: int, lasting: bool) -> None:
        super().__init__()
        self._at, self._number, self._lasting = at, number, lasting

    def before(self, name: str, args: tuple[Any, ...]) -> None:
        if self.calls == self._at or (self._lasting and self.calls > self._at):
            raise OSError(self._number, os.strerror(self._number))


class DyingOs(CountingOs):
    """Ends the process before one call as SIGKILL does: nothing is cleaned up; of a write, a part reaches the file.

    Args:
      at: number of the call, from 1.
      seed: decides how much of the data is written.
    """

    def __init__(self, at: int, seed: int) -> None:
        super().__init__()
        self._at = at
        self.rng = random.Random(seed)

    def before(self, name: str, args: tuple[Any, ...]) -> None:
        if self.calls != self._at:
            return
        if name == "write":
            descriptor, data = args
            os.write(descriptor, data[: self.rng.randrange(len(data) + 1)])
        self.lose_unsynced()
        os._exit(0)

    def lose_unsynced(self) -> None:
        """A killed process loses nothing that it has written."""


class PowerCutOs(DyingOs):
    """Ends the process and undoes, at random, what no sync has made durable: contents of files and names."""

    def __init__(self, at: int, seed: int) -> None:
        super().__init__(at, seed)
        self._unsynced: list[tuple[int, Callable[[], object]]] = []

    def before(self, name: str, args: tuple[Any, ...]) -> None:
        super().before(name, args)
        if name == "fsync":
            synced = os.fstat(args[0]).st_ino
            self._unsynced = [each for each in self._unsynced if each[0] != synced]
        elif name == "write":
            descriptor, length = os.dup(args[0]), len(args[1])
            self._may_lose(
                os.fstat(descriptor).st_ino, lambda: os.ftruncate(descriptor, self.rng.randrange(length + 1))
            )
        else:
            target = Path(args[1] if name in ("link", "rename") else args[0])
            self._may_lose(os.stat(target.parent).st_ino, undoing(name, Path(args[0]), target))

    def lose_unsynced(self) -> None:
        for _, undo in reversed(self._unsynced):
            if self.rng.random() < 0.5:
                # What it undoes may be in a folder that is gone by now.
                with contextlib.suppress(OSError):
                    undo()

    def _may_lose(self, inode: int, undo: Callable[[], object]) -> None:
        self._unsynced.append((inode, undo))


def undoing(name: str, source: Path, target: Path) -> Callable[[], object]:
    """What takes back a call that changes names in the folder of `target`, to be made before that call.

    It holds on to the folders themselves, which may have been renamed by the time it is called.
    """
    before = target.read_bytes() if target.is_file() else None
    here, there = os.open(target.parent, os.O_RDONLY), os.open(source.parent, os.O_RDONLY)

    def remove() -> None:
        if target.is_dir():
            shutil.rmtree(target)
        else:
            os.unlink(target.name, dir_fd=here)

    def restore() -> None:
        if before is None:
            os.mkdir(target.name, dir_fd=here)
        else:
            descriptor = os.open(target.name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666, dir_fd=here)
            os.write(descriptor, before)

    def rename_back() -> None:
        try:
            os.rename(target.name, source.name, src_dir_fd=here, dst_dir_fd=there)
        except FileNotFoundError:
            # The folder that it came from is gone.
            remove()
        if before is not None:
            restore()

    if name in ("mkdir", "open", "link"):
        return remove
    return restore if name in ("unlink", "rmdir") else rename_back


@contextlib.contextmanager
def installed(replacement: CountingOs) -> Iterator[CountingOs]:
    """Puts `replacement` in place of the `os` by which files are changed."""
    original = files.os
    files.os = replacement  # type: ignore[assignment]
    try:
        yield replacement
    finally:
        files.os = original
