"""A hidden folder in which one process at a time writes, before the folder gets its final name."""

from __future__ import annotations

import contextlib
import os
import secrets
import threading
from pathlib import Path

from minding.engine.errors import DataError
from minding.engine.files import Folder, hidden, read_text

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
    """

    def __init__(self, path: Path) -> None:
        self._path, self.folder = path, hidden(path)
        self._opened = contextlib.ExitStack()

    def __enter__(self) -> Scratch:
        self._refuse_existing()
        with _changing:
            self._parent = self._opened.enter_context(Folder(self._path.parent, make=True, follow=True))
            try:
                self.claimed: Folder = self._opened.enter_context(self._claim())
            except BaseException:
                self._opened.close()
                raise
            _open.add(self.folder)
        try:
            self._refuse_existing()
            self.claimed.discard(*self.claimed.names())
            self.claimed.write(_WRITER, f"process {os.getpid()} on {os.uname().nodename}".encode())
        except BaseException:
            self.__exit__()
            raise
        return self

    def finish(self) -> None:
        """Gives the folder its name, durably."""
        self.claimed.discard(_WRITER)
        self.claimed.sync()
        with _changing:
            self._parent.rename(self.folder.name, self._path.name)
            _open.discard(self.folder)
        self._parent.sync()

    def __exit__(self, *error: object) -> None:
        with _changing:
            if self.folder in _open:
                self._parent.discard(self.folder.name)
                _open.discard(self.folder)
        self._opened.close()

    def _refuse_existing(self) -> None:
        if os.path.lexists(self._path):
            raise DataError(f"{str(self._path)!r} exists: remove it, or give another folder")

    def _claim(self) -> Folder:
        """The hidden folder, which is created if it is missing, locked for this process."""
        for _ in range(_TRIES):
            with contextlib.suppress(FileExistsError), self._parent.folder(self.folder.name, new=True):
                pass
            try:
                found = self._parent.folder(self.folder.name)
            except FileNotFoundError:
                continue  # The process that had it has just finished.
            try:
                found.lock()
            except BlockingIOError:
                found.close()
                raise DataError(
                    f"{str(self._path)!r} is being written by {self._writer()}: wait for it, or give another folder"
                ) from None
            status = self._parent.status(self.folder.name)
            if status is not None and os.path.samestat(os.fstat(found.descriptor), status):
                return found
            found.close()
        raise DataError(f"{str(self._path)!r}: other processes keep writing it: give another folder")

    def _writer(self) -> str:
        with contextlib.suppress(OSError):
            text = read_text(self.folder / _WRITER, _MAX_WRITER).strip()
            if text and text.isprintable():
                return text
        return "another process"


def remove_unfinished() -> None:
    """Removes the folders that this process is writing, because it is about to end; a thread may still be writing."""
    if not _changing.acquire(timeout=1):
        return
    for path in _open:
        # Renamed first, so that a thread that is still writing neither finds it nor gives it its final name.
        gone = hidden(path.with_name(secrets.token_hex(8))).name
        with contextlib.suppress(OSError), Folder(path.parent, follow=True) as folder:
            folder.rename(path.name, gone)
            folder.discard(gone)
