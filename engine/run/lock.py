"""The lock on a run folder: one process at a time writes a run."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import logging
import os
from pathlib import Path

from minding.engine.errors import RunInUseError

_log = logging.getLogger("minding.run")
LOCK_FILE = ".lock"
_IN_USE = (errno.EWOULDBLOCK, errno.EAGAIN)
_MAX_OWNER = 200
_held: dict[Path, tuple[int, int]] = {}
"""Locks of this process: folder -> file descriptor and number of objects that share it."""


class RunLock:
    """An exclusive lock on the file ``.lock`` of a run folder.

    The kernel releases the lock when the process that holds it ends, for whatever reason; the file stays and names the
    last process that held it. Several objects of one process share one lock. If the file system has no locks, or the
    folder cannot be written, `acquire` warns and the run continues without a lock.

    Args:
      folder: the run folder; `acquire` creates it if it is missing, and `release` removes it again if it is empty.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = _key(folder)
        self._acquired = False
        self._made = False

    def __enter__(self) -> RunLock:
        self.acquire()
        return self

    def __exit__(self, *error: object) -> None:
        self.release()

    def acquire(self) -> None:
        """Takes the lock; does nothing if this object has it already.

        Raises:
          RunInUseError: another process holds the lock; names that process.
        """
        if self._acquired:
            return
        descriptor, shared = _held.get(self.folder, (None, 0))
        if descriptor is None:
            descriptor = self._lock()
        if descriptor is not None:
            _held[self.folder] = (descriptor, shared + 1)
            self._acquired = True

    def release(self) -> None:
        """Releases the lock; does nothing if this object does not hold it."""
        if not self._acquired:
            return
        self._acquired, theirs = False, lost(self.folder)
        descriptor, shared = _held.pop(self.folder)
        if shared > 1:
            _held[self.folder] = (descriptor, shared - 1)
            return
        with contextlib.suppress(OSError):
            if self._made and not theirs and os.listdir(self.folder) == [LOCK_FILE]:
                os.unlink(self.folder / LOCK_FILE)
                os.rmdir(self.folder)
        os.close(descriptor)

    def renew(self) -> None:
        """Locks the folder that has the name now, after the locked one was `lost`.

        Raises:
          RunInUseError: another process has a run in a folder of that name.
        """
        held, shared = _held[self.folder]
        descriptor = self._lock()
        if descriptor is not None:
            os.close(held)
            _held[self.folder] = (descriptor, shared)

    def _lock(self) -> int | None:
        path = self.folder / LOCK_FILE
        try:
            if not self.folder.is_dir():
                self.folder.mkdir(parents=True, exist_ok=True)
                self._made = True
            descriptor = _locked(path)
        except OSError as error:
            if error.errno in _IN_USE:
                raise RunInUseError(
                    f"the run {str(self.folder)!r} is in use by {_owner(path)}: wait for it to end, or end it first"
                ) from None
            _log.warning(
                "%s cannot be locked (%s): make sure that no other process writes this run", self.folder, error.strerror
            )
            return None
        with contextlib.suppress(OSError):
            path.write_text(f"process {os.getpid()} on {os.uname().nodename}\n")
        return descriptor


def _locked(path: Path) -> int:
    """A file descriptor of the locked file; OSError if another process has locked it, or it cannot be locked."""
    try:
        # Reading is enough for most file systems, and one with a file open for writing cannot be made read-only.
        return _flock(path, os.O_RDONLY | os.O_CREAT)
    except OSError as error:
        # On a read-only disk another process may use the folder through another mount; NFS needs a writable file.
        access = {errno.EROFS: os.O_RDONLY, errno.EBADF: os.O_RDWR}.get(error.errno or 0)
        if access is None:
            raise
    return _flock(path, access)


def _flock(path: Path, access: int) -> int:
    descriptor = os.open(path, access | os.O_CLOEXEC, 0o666)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def lost(folder: Path) -> bool:
    """Whether a folder that this process has locked was removed, moved or replaced by another one.

    A folder with its name may now belong to another process, so nothing must be written there until `RunLock.renew`.
    """
    descriptor, _ = _held.get(_key(folder), (None, 0))
    if descriptor is None:
        return False
    mine = os.fstat(descriptor)
    try:
        there = os.stat(folder / LOCK_FILE)
    except FileNotFoundError:
        return True
    except OSError:
        return False  # A failing disk says nothing about whether the folder is still there.
    return (mine.st_dev, mine.st_ino) != (there.st_dev, there.st_ino)


def _key(folder: str | os.PathLike[str]) -> Path:
    return Path(os.path.abspath(folder))


def _owner(path: Path) -> str:
    """The text that the process with the lock has written into the file."""
    with contextlib.suppress(OSError), open(path, "rb") as file:
        text = file.read(_MAX_OWNER).decode("utf-8", errors="replace").strip()
        if text.isprintable() and text:
            return text
    return "another process"
