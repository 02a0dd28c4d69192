"""Paths that a user gives: they count from the user's current folder, even if an environment has changed that one."""

import contextlib
import os
import threading
from collections.abc import Iterator
from pathlib import Path

from minding.engine.errors import ConfigError

_anchor: str | None = None
_blocks = 0
"""The number of blocks, of all threads, in which `_anchor` holds."""
_changing = threading.Lock()
_moved = ("", "")
"""The folder that an environment has made current, and the one that was current before."""


def current_folder() -> str:
    """The folder to which the user's relative paths refer. It is the process's current folder, unless the code of an
    environment has changed that one (see `anchored`); then it is the folder that was current before."""
    if _anchor is not None:
        return _anchor
    here = _getcwd()
    return _moved[1] if here == _moved[0] else here


@contextlib.contextmanager
def anchored() -> Iterator[None]:
    """Marks a block that may run code of an environment; its `current_folder` stays the one where the block begins. The
    current folder belongs to the process, so blocks of several threads that overlap share theirs."""
    global _anchor, _blocks, _moved
    with _changing:
        if not _blocks:
            _anchor = current_folder()
        _blocks += 1
    try:
        yield
    finally:
        with _changing:
            _blocks -= 1
            if not _blocks:
                here, before, _anchor = _getcwd(), _anchor or "", None
                if here != before:
                    _moved = (here, before)


def _getcwd() -> str:
    try:
        return os.getcwd()
    except FileNotFoundError:  # it was removed
        return ""


def expanded(path: str | os.PathLike[str]) -> Path:
    """A path in which ``~/`` at the beginning is the home folder; ``./~`` is a folder of that name."""
    return Path(os.path.expanduser(path))


def absolute(path: str | os.PathLike[str]) -> Path:
    """A path that the user gave, from the root; ``~/`` is the home folder, and it may start in `current_folder`."""
    return Path(current_folder(), expanded(path))


def shown(path: str | os.PathLike[str]) -> str:
    """A path for messages: relative to `current_folder` if it lies there."""
    here = current_folder()
    inside = here and Path(path).is_relative_to(here)
    return str(Path(path).relative_to(here) if inside else path)


def without_home(path: str) -> str:
    """A path for others, which does not show the user's name: ``~/`` stands for his home folder."""
    home = os.path.expanduser("~/")
    return f"~/{path.removeprefix(home)}" if os.path.isabs(home) and home != "/" and path.startswith(home) else path


def folder_of(path: object, what: str) -> Path:
    """The path of a folder as the user gave it."""
    if not isinstance(path, str | os.PathLike) or not str(path).strip():
        raise ConfigError(f"{what}({path!r}): expected the path of a folder, such as 'runs/cartpole_ppo'")
    return expanded(path)


def check_readable(path: Path) -> None:
    """Refuses a run folder, or a folder of the runs of several seeds, that this user may not read."""
    try:
        denied = [each for each in (path, path / "config.yaml") if each.exists() and not os.access(each, os.R_OK)]
    except PermissionError as error:
        denied = [Path(error.filename)]
    if denied:
        raise ConfigError(
            f"{shown(denied[0])!r} cannot be read by this user: let its owner allow it, for example with "
            f"chmod -R a+rX {shown(path)}, or copy the folder"
        )
