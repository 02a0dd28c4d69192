"""The checkpoints of a run: ``iter_<step>`` folders beside each other."""

from __future__ import annotations

import logging
from collections.abc import Collection
from pathlib import Path

from minding.engine.checkpoint import disk
from minding.engine.checkpoint.manifest import read_manifest
from minding.engine.checkpoint.store import verify_checkpoint
from minding.engine.errors import CheckpointError

_log = logging.getLogger("minding.ckpt")
_PREFIX = "iter_"


def step_of(path: Path) -> int | None:
    """The gradient step in the name of a checkpoint folder, ``iter_<step>``; None for other names."""
    number = path.name.removeprefix(_PREFIX)
    return int(number) if number != path.name and number.isdecimal() else None


def list_checkpoints(folder: Path) -> list[Path]:
    """Finished checkpoint folders, oldest first (by the gradient step in their names)."""
    if not folder.is_dir():
        return []
    found = [p for p in folder.iterdir() if p.is_dir() and step_of(p) is not None]
    return sorted(found, key=lambda p: step_of(p) or 0)


def newest_checkpoint(folder: Path) -> Path:
    """The newest checkpoint in `folder` whose files all verify; damaged ones are named in a warning and skipped.

    Raises:
      CheckpointError: if there is none.
    """
    found = list_checkpoints(folder)
    for path in reversed(found):
        try:
            verify_checkpoint(path)
        except CheckpointError as error:
            _log.warning("skipped damaged checkpoint: %s", error)
            continue
        return path
    if found:
        raise CheckpointError(f"{folder}: none of the {len(found)} checkpoints is whole; name another run")
    raise CheckpointError(f"{folder}: no checkpoint; train first, or name another run")


def link_source(folder: Path) -> Path | None:
    """The checkpoint from which the next one should link its unchanged blocks: the last but one.

    A damaged file spoils all checkpoints that link to it. The newest two never share one this way, so that behind
    a damaged checkpoint there is a whole one.
    """
    found = list_checkpoints(folder)
    return found[-2] if len(found) > 1 else None


def prune_checkpoints(folder: Path, keep_last: int, protect: Collection[Path] = ()) -> None:
    """Removes all but the newest `keep_last` checkpoints; a failing disk is reported, not raised.

    If none of those to be kept is whole (manifest and sizes; contents are not read), the newest whole one of the
    others stays as well.

    Args:
      folder: holds the checkpoints.
      keep_last: how many stay, at least 1.
      protect: checkpoints that stay and do not count.
    """
    found = [path for path in list_checkpoints(folder) if path not in protect]
    kept = max(1, keep_last)
    old, last = found[:-kept], found[-kept:]
    if old and not any(_seems_whole(path) for path in last):
        good = next((path for path in reversed(old) if _seems_whole(path)), None)
        old = [path for path in old if path != good]
    for path in old:
        try:
            _remove(path)
        except OSError as error:
            _log.warning("old checkpoint %s was not removed (%s)", path, error)


def _seems_whole(path: Path) -> bool:
    try:
        files = read_manifest(path)["files"]
        return all((path / name).stat().st_size == entry["size"] for name, entry in files.items())
    except (CheckpointError, OSError):
        return False


def _remove(path: Path) -> None:
    """Removes a checkpoint so that no half of it is ever found under its name."""
    gone = disk.hidden(path)
    disk.remove_tree(gone)
    disk.rename(path, gone)
    disk.sync(path.parent)
    disk.remove_tree(gone)
