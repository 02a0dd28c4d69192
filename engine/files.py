"""Files in folders that anyone may have prepared: read within limits, and changed without following a link.

Reading takes regular files only, and never more bytes than a limit. All changes go through `Folder`, an open folder: a
file is written to a hidden name and renamed, and no symbolic link in the folder is followed, so that nothing outside of
it is written or removed. Every change calls the `os` of this module: a test replaces it with one that fails or stops at
any call.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import math
import os
import stat
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from minding.engine.errors import ConfigError

_HIDDEN_SUFFIX = ".minding-tmp"
"""Suffix of what is being written or removed; unusual enough that anything with it may be deleted."""
_HOLES_FROM = 1 << 26
_HOLES_SHARE = 64
_THREADS = 8
_HANDLES = {os.open, os.stat, os.mkdir, os.rename, os.link, os.unlink, os.rmdir} <= os.supports_dir_fd
"""Whether the system takes names relative to an open folder; if not, they are checked and then used as paths."""
_LINKED = "a symbolic link, and nothing is changed through links: put what it leads to in its place"
_ODD = "not a regular file"
_SHARED = "it has other names (hard links), whose contents would change, too"


# Reading


def read_bounded(path: str | os.PathLike[str], limit: int) -> bytes:
    """The contents of a regular file of at most `limit` bytes; devices, pipes and larger files are refused without
    waiting for them."""
    # Opening a pipe would wait for its writer.
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise OSError(errno.EINVAL, _ODD, os.fspath(path))
        if found.st_size > limit:
            raise OSError(errno.EFBIG, f"{found.st_size:,} bytes, at most {limit:,} are read", os.fspath(path))
        if found.st_size > _HOLES_FROM and found.st_blocks * 512 * _HOLES_SHARE < found.st_size:
            raise OSError(errno.EFBIG, f"{found.st_size:,} bytes, nearly all of them holes", os.fspath(path))
        data = _read(descriptor, found.st_size, limit)
    finally:
        os.close(descriptor)
    if len(data) > limit:
        raise OSError(errno.EFBIG, f"more than {limit:,} bytes", os.fspath(path))
    return data


def _read(descriptor: int, expected: int, limit: int) -> bytes:
    """The contents of the file, cut one byte after the limit if the file grows while it is read."""
    with open(descriptor, "rb", closefd=False) as file:
        return file.read(min(expected, limit) + 1)


def read_text(path: str | os.PathLike[str], limit: int) -> str:
    """The contents as a string; see `read_bounded`."""
    try:
        return read_bounded(path, limit).decode("utf-8")
    except UnicodeDecodeError as error:
        raise OSError(errno.EILSEQ, f"not UTF-8 ({error.reason} at byte {error.start})", os.fspath(path)) from None


# Changing


class Folder(contextlib.AbstractContextManager["Folder"]):
    """A folder that is open for changes, in a ``with`` statement; `names` are those directly inside.

    A link, a pipe or a device in the place of a file or folder is an OSError that says so; `replace`, `rename` and
    `discard` replace and remove the link itself. What is outside stays as it is.
    """

    def __init__(self, path: str | os.PathLike[str], *, make: bool = False, follow: bool = False) -> None:
        self.path, self.descriptor = Path(path), -1
        if make:
            for missing in reversed([each for each in (self.path, *self.path.parents) if not os.path.lexists(each)]):
                with contextlib.suppress(FileExistsError):  # another process was faster
                    os.mkdir(missing)
                    sync(missing.parent)
        self._open(self.path, follow)

    def _open(self, path: Path, follow: bool = False, **place: int) -> None:
        if not follow and stat.S_ISLNK(os.stat(path, follow_symlinks=False, **place).st_mode):
            raise OSError(errno.ELOOP, _LINKED, str(self.path))
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | (0 if follow else os.O_NOFOLLOW)
        self.descriptor = os.open(path, flags, **place)

    def folder(self, name: str, *, new: bool = False) -> Folder:
        """A folder inside this one, also to be used in a ``with`` statement."""
        inside = Folder.__new__(Folder)
        inside.path, inside.descriptor = self.path / name, -1
        path, place = self._at(name)
        if new:
            os.mkdir(path, **place)
        inside._open(Path(path), **place)
        return inside

    def close(self) -> None:
        """Closes the folder, and gives up its lock."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1

    def __exit__(self, *error: object) -> None:
        self.close()

    def _at(self, name: str, key: str = "dir_fd") -> tuple[str, dict[str, Any]]:
        """A name as the first argument of a call, and the arguments that say in which folder it is."""
        return (name, {key: self.descriptor}) if _HANDLES else (str(self.path / name), {})

    def names(self) -> list[str]:
        """The names of files, folders and links inside."""
        return os.listdir(self.descriptor if _HANDLES else self.path)

    def status(self, name: str) -> os.stat_result | None:
        """The status of a file, folder or link; None if there is nothing of this name."""
        path, place = self._at(name)
        try:
            return os.stat(path, follow_symlinks=False, **place)
        except FileNotFoundError:
            return None

    def open(self, name: str, flags: int) -> int:
        """A descriptor of a regular file, without waiting for a pipe."""
        path, place = self._at(name)
        found = self.status(name)
        if found is not None and stat.S_ISLNK(found.st_mode):
            raise OSError(errno.ELOOP, _LINKED, str(self.path / name))
        if found is not None and not stat.S_ISREG(found.st_mode):
            raise OSError(errno.EINVAL, _ODD, str(self.path / name))
        if found is not None and found.st_nlink > 1 and flags & (os.O_WRONLY | os.O_RDWR):
            raise OSError(errno.EMLINK, _SHARED, str(self.path / name))
        descriptor = os.open(path, flags | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666, **place)
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise OSError(errno.EINVAL, _ODD, str(self.path / name))
        return descriptor

    def write(self, name: str, data: bytes) -> None:
        """Writes a new file; durable after `sync`."""
        descriptor = self.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        try:
            _write(descriptor, data)
        finally:
            os.close(descriptor)

    def append(self, name: str, data: bytes) -> int:
        """Appends to a file, which is created if it is missing, all of the data or nothing; returns the new size. A
        file that has other names (hard links) is replaced by a copy first, so that these keep their contents."""
        found = self.status(name)
        if found is not None and stat.S_ISREG(found.st_mode) and found.st_nlink > 1:
            self.replace(name, read_bounded(self.path / name, found.st_size))
        descriptor = self.open(name, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        try:
            size = os.fstat(descriptor).st_size
            try:
                _write(descriptor, data)
            except OSError:
                # A full disk may take half a line.
                with contextlib.suppress(OSError):
                    os.ftruncate(descriptor, size)
                raise
        finally:
            os.close(descriptor)
        return size + len(data)

    def replace(self, name: str, data: bytes, *, durable: bool = True) -> None:
        """Writes a file atomically: whenever the process ends, the file has the old contents or the new ones."""
        fresh = hidden(Path(name)).name
        self.discard(fresh)
        try:
            self.write(fresh, data)
            if durable:
                self.sync(fresh)
            self.rename(fresh, name)
        except OSError:
            self.discard(fresh)
            raise
        if durable:
            self.sync()

    def rename(self, name: str, new: str, to: Folder | None = None) -> None:
        """Renames a folder to a free name, or a file over another one; durable after `sync` of the target's
        folder."""
        (source, here), (target, there) = self._at(name, "src_dir_fd"), (to or self)._at(new, "dst_dir_fd")
        os.rename(source, target, **here, **there)

    def link(self, name: str, to: Folder, new: str, size: int) -> bool:
        """Gives a file the additional name `new` in `to`; False if it is not `size` bytes or links are impossible."""
        (source, here), (target, there) = self._at(name, "src_dir_fd"), to._at(new, "dst_dir_fd")
        try:
            found = self.status(name)
            if found is None or not stat.S_ISREG(found.st_mode) or found.st_size != size:
                return False
            os.link(source, target, **here, **there)
        except OSError:
            return False
        return True

    def discard(self, *names: str) -> None:
        """Removes files, links and folders with everything in them, as far as possible."""
        for name in names:
            path, place = self._at(name)
            with contextlib.suppress(OSError, RecursionError):
                found = self.status(name)
                if found is not None and stat.S_ISDIR(found.st_mode):
                    with self.folder(name) as inside:
                        inside.discard(*inside.names())
                    os.rmdir(path, **place)
                elif found is not None:
                    os.unlink(path, **place)

    def discard_leftovers(self) -> None:
        """Removes hidden folders that killed processes left; a folder that a process has locked stays."""
        for name in self.names():
            if name.startswith(".") and name.endswith(_HIDDEN_SUFFIX):
                with contextlib.suppress(OSError), self.folder(name) as left:
                    left.lock()
                    self.discard(name)

    def lock(self, *, wait: bool = False) -> None:
        """Locks the folder until it is closed or the process ends."""
        try:
            fcntl.flock(self.descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            raise
        except OSError:
            pass  # On a file system without locks, this cannot be found out.

    def sync(self, *names: str) -> None:
        """Waits until files, or with no name the names in this folder, would survive a power failure."""
        if not names:
            os.fsync(self.descriptor)
        for name in names:
            descriptor = self.open(name, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)

    def sync_all(self, *names: str) -> None:
        """Syncs files and this folder at the same time: a journal then writes them together, several times as fast."""
        with ThreadPoolExecutor(max_workers=_THREADS) as pool:
            for done in [*(pool.submit(self.sync, name) for name in names), pool.submit(self.sync)]:
                done.result()


def _write(descriptor: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def hidden(path: Path) -> Path:
    """The name beside `path` under which it is written and removed."""
    return path.with_name(f".{path.name}{_HIDDEN_SUFFIX}")


def replace(path: str | os.PathLike[str], data: bytes | str, *, make: bool = False, durable: bool = True) -> None:
    """Writes a file atomically, see `Folder.replace`, in a folder that the user named."""
    path = Path(path)
    with Folder(path.parent, make=make, follow=True) as folder:
        folder.replace(path.name, data.encode() if isinstance(data, str) else data, durable=durable)


def sync(folder: Path) -> None:
    """Waits until the names in a folder would survive a power failure."""
    with Folder(folder, follow=True) as opened:
        opened.sync()


def refuse_links(path: Path) -> None:
    """Refuses a folder in which there are links, before a run or another program writes there."""
    with contextlib.suppress(OSError), os.scandir(path) as found:
        for each in found:
            if each.is_symlink():
                raise ConfigError(f"{each.path!r} is {_LINKED}")


# JSON


def as_json(value: Any) -> Any:
    """A value in the types of JSON: NumPy's numbers and arrays become numbers and lists, paths strings, and NaN and
    infinity null."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, Mapping):
        return {key: as_json(child) for key, child in value.items()}
    if isinstance(value, (list, tuple)):
        return [as_json(child) for child in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def json_text(value: Any) -> str:
    """The text of a JSON file that any program can read, see `as_json`."""
    return json.dumps(as_json(value), indent=2, allow_nan=False) + "\n"
