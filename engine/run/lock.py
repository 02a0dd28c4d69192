"""The lock on a run folder: one process at a time writes a run."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import logging
import os
from pathlib import Path

from minding.engine.errors import RunInUseError
from minding.engine.files import Folder, read_text, refuse_links

_log = logging.getLogger("minding.run")
LOCK_FILE = ".lock"
_IN_USE = (errno.EWOULDBLOCK, errno.EAGAIN)
_MAX_OWNER = 200
_held: dict[Path, int] = {}
"""Locks of this process: folder -> file descriptor."""
_alone: set[Path] = set()
"""The folders of the runs that have a session in this process."""


class RunLock:
    """An exclusive lock on the file ``.lock`` of a run folder.

    The kernel releases the lock when the process that holds it ends, for whatever reason; the file stays and names the
    last process that held it. A process has one lock per run: inside of a block that holds it, further objects take
    part in it, and the outermost one releases it. If the file system has no locks, or the folder cannot be written,
    `acquire` warns and the run continues without a lock.
    """

    def __init__(self, folder: str | os.PathLike[str], *, alone: bool = False) -> None:
        self.folder, self._alone = _key(folder), alone
        self._owns = self._made = False

    def __enter__(self) -> RunLock:
        self.acquire()
        return self

    def __exit__(self, *error: object) -> None:
        if self._alone:
            _alone.discard(self.folder)
        self.release()

    def acquire(self) -> None:
        """Takes the lock; does nothing if this process has it already."""
        if self._alone and self.folder in _alone:
            raise RunInUseError(
                f"the run {str(self.folder)!r} is in use by another agent or session of this process: close() it first"
            )
        if self.folder not in _held:
            descriptor = self._lock()
            if descriptor is not None:
                _held[self.folder] = descriptor
                self._owns = True
        if self._alone:
            _alone.add(self.folder)

    def release(self) -> None:
        """Releases the lock if this object took it."""
        if not self._owns:
            return
        self._owns, theirs = False, lost(self.folder)
        descriptor = _held.pop(self.folder)
        with contextlib.suppress(OSError):
            if self._made and not theirs and os.listdir(self.folder) == [LOCK_FILE]:
                os.unlink(self.folder / LOCK_FILE)
                os.rmdir(self.folder)
        os.close(descriptor)

    def renew(self) -> None:
        """Locks the folder that has the name now, after the locked one was `lost`."""
        descriptor = self._lock()
        if descriptor is not None:
            os.close(_held[self.folder])
            _held[self.folder] = descriptor

    def _lock(self) -> int | None:
        self._made = self._made or not self.folder.is_dir()
        refuse_links(self.folder)
        try:
            with Folder(self.folder, make=True, follow=True) as folder:
                descriptor = _locked(folder)
                with contextlib.suppress(OSError):
                    _name_owner(folder)
        except OSError as error:
            if error.errno in _IN_USE:
                raise RunInUseError(
                    f"the run {str(self.folder)!r} is in use by {_owner(self.folder / LOCK_FILE)}: wait for it to end, "
                    "or end it first"
                ) from None
            _log.warning(
                "%s cannot be locked (%s): make sure that no other process writes this run", self.folder, error.strerror
            )
            return None
        return descriptor


def _locked(folder: Folder) -> int:
    """A file descriptor of the locked file; OSError if another process has locked it, or it cannot be locked."""
    try:
        # Reading is enough for most file systems, and one with a file open for writing cannot be made read-only.
        return _flock(folder, os.O_RDONLY | os.O_CREAT)
    except OSError as error:
        # On a read-only disk another process may use the folder through another mount; NFS needs a writable file.
        access = {errno.EROFS: os.O_RDONLY, errno.EBADF: os.O_RDWR}.get(error.errno or 0)
        if access is None:
            raise
    return _flock(folder, access)


def _name_owner(folder: Folder) -> None:
    """Writes into the locked file who has locked it."""
    with open(folder.open(LOCK_FILE, os.O_WRONLY | os.O_TRUNC), "w") as file:
        file.write(f"process {os.getpid()} on {os.uname().nodename}\n")


def _flock(folder: Folder, access: int) -> int:
    descriptor = folder.open(LOCK_FILE, access)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def lost(folder: Path) -> bool:
    """Whether a folder that this process has locked was removed, moved or replaced by another one. A folder with its
    name may now belong to another process, so nothing must be written there until `RunLock.renew`."""
    descriptor = _held.get(_key(folder))
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
    with contextlib.suppress(OSError):
        text = read_text(path, _MAX_OWNER).strip()
        if text.isprintable() and text:
            return text
    return "another process"
