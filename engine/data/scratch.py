"""A hidden folder in which one process at a time writes, before the folder gets its final name."""

from __future__ import annotations

import contextlib
import os
import secrets
import threading
from pathlib import Path

from minding.engine.checkpoint import disk
from minding.engine.errors import DataError

_WRITER = "writer"
"""File in the folder that names the process, for the error message of another process that needs the same name."""
_MAX_WRITER = 200
_TRIES = 100

_open: set[Path] = set()
"""The hidden folders that this process is writing."""
_changing = threading.RLock()


class Scratch(contextlib.AbstractContextManager["Scratch"]):
    """A hidden folder beside `path`, locked while it is written; use it in a ``with`` statement, whose end removes it.

    The folder of a process that died is removed.

    Args:
      path: final path of the folder, which `finish` gives it; it must not exist yet.

    Attributes:
      folder: the hidden folder, to write into.

    Raises:
      DataError: `path` exists, or another process is writing it.
      OSError: the folder cannot be created.
    """

    def __init__(self, path: Path) -> None:
        self._path, self.folder = path, disk.hidden(path)
        self._descriptor: int | None = None

    def __enter__(self) -> Scratch:
        self._refuse_existing()
        with _changing:
            self._descriptor = self._claimed()
            _open.add(self.folder)
        try:
            self._refuse_existing()
            for each in self.folder.iterdir():
                disk.remove_tree(each) if each.is_dir() and not each.is_symlink() else each.unlink()
            disk.write_file(self.folder / _WRITER, f"process {os.getpid()} on {os.uname().nodename}".encode())
        except BaseException:
            self.__exit__()
            raise
        return self

    def finish(self) -> None:
        """Gives the folder its name, durably."""
        os.unlink(self.folder / _WRITER)
        disk.sync(self.folder)
        with _changing:
            disk.rename(self.folder, self._path)
            _open.discard(self.folder)
        disk.sync(self._path.parent)

    def __exit__(self, *error: object) -> None:
        with _changing:
            if self.folder in _open:
                disk.remove_tree(self.folder)
                _open.discard(self.folder)
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _refuse_existing(self) -> None:
        if self._path.exists():
            raise DataError(f"{str(self._path)!r} exists: remove it, or give another folder")

    def _claimed(self) -> int:
        """Creates the folder, locks it for this process, and returns its descriptor."""
        for _ in range(_TRIES):
            with contextlib.suppress(FileExistsError):
                disk.make_folder(self.folder)
            try:
                found = disk.locked(self.folder)
            except BlockingIOError:
                raise DataError(
                    f"{str(self._path)!r} is being written by {self._writer()}: wait for it, or give another folder"
                ) from None
            except FileNotFoundError:
                continue  # The process that had it has just finished.
            with contextlib.suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(found), os.stat(self.folder)):
                    return found
            os.close(found)
        raise DataError(f"{str(self._path)!r}: other processes keep writing it: give another folder")

    def _writer(self) -> str:
        with contextlib.suppress(OSError), open(self.folder / _WRITER, "rb") as file:
            text = file.read(_MAX_WRITER).decode("utf-8", errors="replace")
            if text and text.isprintable():
                return text
        return "another process"


def remove_unfinished() -> None:
    """Removes the folders that this process is writing, because it is about to end; a thread may still be writing."""
    if not _changing.acquire(timeout=1):
        return
    for folder in _open:
        # Renamed first, so that a thread that is still writing neither finds it nor gives it its final name.
        gone = disk.hidden(folder.with_name(secrets.token_hex(8)))
        with contextlib.suppress(OSError):
            os.rename(folder, gone)
            disk.remove_tree(gone)
