"""The disk operations of checkpoints, in the order that makes them durable.

Every change goes through the `os` of this module: a test replaces it with one that fails or stops at any call.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

_HIDDEN_SUFFIX = ".minding-tmp"
"""Suffix of folders that are being written or removed; unusual enough that any folder with it may be deleted."""
_THREADS = 8


def hidden(path: Path) -> Path:
    """The name beside `path` under which a folder is written and removed."""
    return path.with_name(f".{path.name}{_HIDDEN_SUFFIX}")


def remove_leftovers(folder: Path) -> None:
    """Removes the leftovers in `folder` of processes that were killed while they wrote or removed a checkpoint.

    A folder that a process has locked is still being written and stays.
    """
    for path in folder.glob(f".*{_HIDDEN_SUFFIX}"):
        if path.is_symlink():
            continue
        try:
            descriptor = locked(path)
        except OSError:
            continue
        remove_tree(path)
        os.close(descriptor)


def locked(folder: Path) -> int:
    """A descriptor of a folder that stays locked until it is closed or the process ends.

    Raises:
      BlockingIOError: another process has locked it.
      OSError: there is no such folder.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise
    except OSError:
        pass  # On a file system without locks, this cannot be found out.
    return descriptor


def make_folder(path: Path) -> None:
    """Creates a folder and any missing parents, durably."""
    for parent in reversed([each for each in path.parents if not each.exists()]):
        os.mkdir(parent)
        sync(parent.parent)
    os.mkdir(path)


def write_file(path: Path, data: bytes) -> None:
    """Writes a new file; durable after `sync`."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    try:
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(descriptor, rest) :]
    finally:
        os.close(descriptor)


def link_file(source: Path, target: Path, size: int) -> bool:
    """Gives the file `source` the additional name `target`; False if it is not `size` bytes or links are impossible."""
    try:
        if source.stat().st_size != size:
            return False
        os.link(source, target)
    except OSError:
        return False
    return True


def rename(source: Path, target: Path) -> None:
    """Renames a folder to a free name, or a file over another one; durable after `sync` of the target's folder."""
    os.rename(source, target)


def sync(path: Path) -> None:
    """Waits until the contents of a file, or the names in a folder, would survive a power failure."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_all(paths: Sequence[Path]) -> None:
    """Syncs files and folders at the same time: a journal then writes them together, several times as fast."""
    with ThreadPoolExecutor(max_workers=_THREADS) as pool:
        list(pool.map(sync, paths))


def remove_files(paths: Iterable[Path]) -> None:
    """Removes files as far as possible; what remains is never read."""
    for path in paths:
        with contextlib.suppress(OSError):
            os.unlink(path)


def remove_tree(folder: Path) -> None:
    """Removes a hidden folder as far as possible; what remains is removed by the next attempt."""
    with contextlib.suppress(OSError):
        inside = list(folder.iterdir())
        for path in inside:
            if path.is_dir() and not path.is_symlink():
                remove_tree(path)
        remove_files(path for path in inside if path.is_symlink() or not path.is_dir())
        os.rmdir(folder)
