"""Reads files that anyone may have written: only regular files, and never more bytes than a limit."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

from minding.engine.errors import ConfigError

_HOLES_FROM = 1 << 26
_HOLES_SHARE = 64


def folder_of(path: object, what: str) -> Path:
    """The path of a folder as the user gave it; ``~/`` is the home folder.

    Args:
      path: the argument.
      what: the function that takes it, for the message.
    Raises:
      ConfigError: the argument is not a path.
    """
    if not isinstance(path, str | os.PathLike) or not str(path).strip():
        raise ConfigError(f"{what}({path!r}): expected the path of a folder, such as 'runs/cartpole_ppo'")
    return Path(path).expanduser()


def read_bounded(path: str | os.PathLike[str], limit: int) -> bytes:
    """The contents of a regular file; devices, pipes and larger files are refused without waiting for them.

    Args:
      path: the file; symbolic links are followed.
      limit: the largest size, in bytes.
    Raises:
      OSError: the file cannot be read; the reason is in `strerror`.
    """
    # Opening a pipe would wait for its writer.
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise OSError(errno.EINVAL, "not a regular file", os.fspath(path))
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
    """The contents as a string; see `read_bounded`.

    Raises:
      OSError: the file cannot be read or is not UTF-8; the reason is in `strerror`.
    """
    try:
        return read_bounded(path, limit).decode("utf-8")
    except UnicodeDecodeError as error:
        raise OSError(errno.EILSEQ, f"not UTF-8 ({error.reason} at byte {error.start})", os.fspath(path)) from None
