"""The checkpoints of a run: folders ``iter_<step>``, and ``best``, the checkpoint of the best evaluation."""

import contextlib
import datetime
import itertools
import logging
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from minding.engine.checkpoint.manifest import read_manifest
from minding.engine.checkpoint.store import MISFITS, first_line, load_checkpoint, verify_checkpoint
from minding.engine.error_origin import is_users
from minding.engine.errors import CheckpointError, DamagedCheckpointError, MindingError, NoCheckpointError, ShapeError
from minding.engine.files import Folder, hidden
from minding.engine.types import StateDict

_log = logging.getLogger("minding.ckpt")
_PREFIX = "iter_"
BEST = "best"
"""Name of the checkpoint of the best evaluation."""


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


def resumable_checkpoints(folder: Path) -> list[Path]:
    """The checkpoints from which a run can continue, the last one first: `list_checkpoints`, and before them `BEST`.
    `BEST` is used only if no other checkpoint is whole."""
    best = folder / BEST
    return [best] * best.is_dir() + list_checkpoints(folder)


class Checkpoint(NamedTuple):
    """A checkpoint that was read."""

    path: Path
    state: StateDict
    manifest: dict[str, Any]

    @contextlib.contextmanager
    def reading(self) -> Iterator[None]:
        """A block that uses the contents: files can fit their checksums and still not be what a run has written. An
        exception from the user's code says nothing about the files and is raised unchanged. Objects that the contents
        are for, such as a policy, are built outside of this block."""
        try:
            yield
        except (ShapeError, *MISFITS) as error:
            if is_users(error, inside=2) or (isinstance(error, MindingError) and not isinstance(error, ShapeError)):
                raise
            problem = f"its contents are not those of a run ({first_line(error)})"
            raise DamagedCheckpointError(f"{self.path}: {problem}") from error


def newest_checkpoint(folder: Path) -> Path:
    """The last of `resumable_checkpoints` whose files all verify; damaged ones are named in a warning and
    skipped."""
    return _newest(folder, lambda path: (verify_checkpoint(path), path)[1])


def use_newest(folder: Path, use: Callable[[Checkpoint], None]) -> Checkpoint:
    """Reads the last of `resumable_checkpoints` that is whole and passes it to `use`; see `use_checkpoint`. A warning
    names damaged ones, and an older one takes their place. This also holds for damage that only `use` finds, see
    `Checkpoint.reading`."""
    return _newest(folder, lambda path: use_checkpoint(path, use))


def use_checkpoint(path: Path, use: Callable[[Checkpoint], None]) -> Checkpoint:
    """Reads a checkpoint and passes it to `use`."""
    found = Checkpoint(path, *load_checkpoint(path))
    use(found)
    return found


_Found = TypeVar("_Found")


def _newest(folder: Path, read: Callable[[Path], _Found]) -> _Found:
    found = resumable_checkpoints(folder)
    skipped = 0
    for path in reversed(found):
        try:
            taken = read(path)
        except DamagedCheckpointError as error:
            _log.warning("skipped damaged checkpoint: %s", error)
            skipped += 1
            continue
        if path.name == BEST:
            why = f"none of the {skipped} later ones is whole" if skipped else "there is no later one"
            _log.warning("using %s, the checkpoint of the best evaluation: %s", path, why)
        elif skipped:
            _log.warning("using %s, the newest whole checkpoint", path)
        return taken
    if found:
        raise NoCheckpointError(f"{folder}: none of the {len(found)} checkpoints is whole; name another run")
    raise NoCheckpointError(f"{folder}: no checkpoint; train first, or name another run")


def set_aside(path: Path, *, follow: bool = False) -> Path:
    """Renames a checkpoint, or a folder of them, to a free ``left-<time>-<name>`` beside it; returns its new path.
    Nothing looks for checkpoints under such a name, and nothing removes them."""
    stamp = f"left-{datetime.datetime.now():%Y%m%d-%H%M%S}"
    prefixes = itertools.chain([stamp], (f"{stamp}-{number}" for number in itertools.count(1)))
    with Folder(path.parent, follow=follow) as folder:
        aside = next(free for each in prefixes if folder.status(free := f"{each}-{path.name}") is None)
        folder.rename(path.name, aside)
    return path.with_name(aside)


def link_source(folder: Path) -> Path | None:
    """The checkpoint from which the next one should link its unchanged blocks: the last but one. A damaged file spoils
    all checkpoints that link to it. This way the newest two never share a file, so that the checkpoint before a damaged
    one is whole."""
    found = list_checkpoints(folder)
    return found[-2] if len(found) > 1 else None


def prune_checkpoints(folder: Path, keep_last: int, protect: Collection[Path] = ()) -> None:
    """Removes all but the newest `keep_last` checkpoints; a failing disk is logged, not raised. If none of those to be
    kept is whole (by manifest and sizes; contents are not read), the newest whole one of the others is kept as well."""
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
    """Removes a checkpoint so that a partial one is never found under its name."""
    gone = hidden(path).name
    with Folder(path.parent) as folder:
        folder.discard(gone)
        folder.rename(path.name, gone)
        folder.sync()
        folder.discard(gone)
