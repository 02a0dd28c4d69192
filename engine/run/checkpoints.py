"""The checkpoints of one run: locks the run folder, and writes, prunes, sets aside and restores checkpoints."""

import contextlib
import datetime
import functools
import importlib.metadata
import logging
import platform
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import threadpoolctl

from minding import __version__
from minding.engine.chain.context import Context
from minding.engine.chain.lifecycle import GUARANTEES
from minding.engine.chain.task import Task
from minding.engine.checkpoint import (
    BEST,
    Checkpoint,
    check_savable,
    link_source,
    list_checkpoints,
    not_finite,
    prune_checkpoints,
    resumable_checkpoints,
    save_checkpoint,
    set_aside,
    step_of,
    use_checkpoint,
    use_newest,
)
from minding.engine.config.identity import DIVISION, RUN, changes, check_checkpoint, describe_changes, identity
from minding.engine.config.named import code_digests
from minding.engine.config.options import plain
from minding.engine.console import console_logger
from minding.engine.error_origin import in_code_of
from minding.engine.errors import CheckpointError, UnsavableError
from minding.engine.paths import absolute, shown
from minding.engine.run.lock import RunLock, lost
from minding.engine.run.run_dir import RunDir
from minding.engine.types import Array, Policy, StateDict

_log = logging.getLogger("minding.ckpt")
_MOST = 1 << 62
"""A number that no counter of a run reaches."""


class RunCheckpoints:
    """The checkpoints of a run, in the folder ``ckpt`` of its run folder.

    From `open` to `close` it locks the run folder: a second process that would write there gets a `RunInUseError`. A
    run does not share its folder with an earlier one, whose checkpoints are set aside as ``left-<time>-ckpt`` unless
    the run continues from them. If the folder is removed or renamed during the run, `renew_if_lost` creates a new one;
    if another process has begun a run in a folder of that name by then, it raises a `RunInUseError`.
    """

    def __init__(self, run_folder: Path, policy: Policy, task: Task[Any]) -> None:
        self.folder = run_folder / "ckpt"
        self.folder_lost = False
        self._policy, self._task = policy, task
        # Read at the start, because files may be edited during the run.
        self._code = code_digests(policy.config)
        self._lock = RunLock(run_folder)
        # Whether the checkpoints in the folder are those of this run.
        self._owned = False

    # The folder

    def open(self) -> None:
        """Locks the run folder, and sets aside checkpoints that do not belong to this run."""
        self._lock.acquire()
        if self._task.resuming:
            return
        if self._owned:
            # Its state may have been loaded from one of them without `resume`.
            self._set_aside_later(_counter(self._task.ctx, "train_iter"))
        else:
            self._set_aside_all()

    def own(self) -> None:
        """Notes that the run's state was loaded: the checkpoints in its folder now count as its own."""
        self._owned = True

    def close(self) -> None:
        self._owned = False
        self._lock.release()

    def renew_if_lost(self) -> bool:
        """Creates and locks the run folder again if it was removed or renamed; returns whether it was."""
        run_folder = self.folder.parent
        if not lost(run_folder):
            return False
        _log.warning(
            "the run folder %s (or its lock) was removed or renamed: the run continues in a new one of that name",
            run_folder,
        )
        self._lock.renew()
        self.folder_lost = True
        self._update_config()
        return True

    def _update_config(self) -> None:
        """Lets ``config.yaml`` say with which settings the run continues."""
        RunDir(self.folder.parent).update_config(self._policy.config)

    def _set_aside_all(self) -> None:
        found = resumable_checkpoints(self.folder)
        if found:
            try:
                aside = set_aside(self.folder, follow=True)
            except OSError as error:
                raise CheckpointError(
                    f"{self.folder} holds checkpoints of an earlier run and cannot be renamed ({error.strerror}): use "
                    "another exp_name, or resume that run"
                ) from None
            again = str(aside / found[-1].name)
            _log.warning(
                "%s holds checkpoints of an earlier run: it is now %s; resume=%r continues that run",
                self.folder, aside, again,
            )  # fmt: skip
        self._owned = True

    def _set_aside_later(self, train_iter: int) -> None:
        for later in self._later_than(train_iter):
            try:
                aside = set_aside(later)
            except OSError as error:
                _log.warning("%s keeps its name (%s): a later resume would begin from there", later, error)
            else:
                _log.warning("%s is newer than the checkpoint that is resumed: it is now %s", later, aside.name)

    def _later_than(self, train_iter: int) -> list[Path]:
        return [path for path in list_checkpoints(self.folder) if (step_of(path) or 0) > train_iter]

    # Saving

    def save(self, eval_value: float | None, keep_last: int) -> Path | None:
        """Writes the checkpoint of the present gradient step, and replaces an older one of that step."""
        train_iter = _counter(self._task.ctx, "train_iter")
        path = self._write(self.folder / f"iter_{train_iter}", eval_value)
        if path is not None:
            # Later checkpoints are abandoned ones that could not be renamed: they are neither counted nor removed.
            prune_checkpoints(self.folder, keep_last, protect=self._later_than(train_iter))
        return path

    def save_best(self, eval_value: float | None, params: Mapping[str, Array] | None) -> Path | None:
        """Writes the checkpoint of the best evaluation, and replaces the previous one; returns what `save` does."""
        return self._write(self.folder / BEST, eval_value, params)

    def _write(self, path: Path, eval_value: float | None, params: Mapping[str, Array] | None = None) -> Path | None:
        state = self._state()
        if params is not None:
            state["policy"]["params"].update(params)
        damaged = not_finite(state["policy"], "policy")
        if damaged:
            _log.error(
                "checkpoint %s was not written: %s is NaN or infinite, and no later update mends that; earlier "
                "checkpoints stay: lower policy.learn.learning_rate, or look for huge rewards and observations",
                path,
                damaged,
            )
            return None
        try:
            with self._owner_named():
                save_checkpoint(path, state, self._info(eval_value), previous=link_source(self.folder))
        except OSError as error:
            _log.warning("checkpoint %s was not written (%s); training continues, earlier ones stay", path, error)
            return None
        return path

    def check(self) -> None:
        """Refuses a state that could not be saved."""
        with self._owner_named():
            check_savable(self._state())

    def _state(self) -> StateDict:
        return {
            "policy": self._policy.state_dict(),
            "task": self._task.state_dict(),
            "config": plain(self._policy.config),
        }

    @contextlib.contextmanager
    def _owner_named(self) -> Iterator[None]:
        """Lets errors of values that cannot be saved name the object to whose state they belong."""
        try:
            yield
        except UnsavableError as error:
            raise CheckpointError(f"{self._owner(error.path)}: {error.problem}") from None

    def _owner(self, path: tuple[str, ...]) -> str:
        """The object to whose state the keys lead, and the path within that state."""
        if path[:2] == ("task", "middleware"):
            position, _, name = path[2].partition(":")
            whose, keys = f"middleware {name!r} (position {position})", path[3:]
        else:
            whose, keys = {"policy": f"the policy {type(self._policy).__name__}"}.get(path[0], path[0]), path[1:]
        return f"state_dict() of {whose}, at {'/'.join(keys)!r}" if keys else f"state_dict() of {whose}"

    def _info(self, eval_value: float | None) -> dict[str, Any]:
        ctx, config = self._task.ctx, self._policy.config
        processors = () if self._task.lanes is None else self._task.lanes.processors
        return {
            "guarantee": self._task.resume_guarantee,
            "identity": {**identity(config), **self._task.division},
            "unit": ctx.unit,
            **{name: _counter(ctx, name) for name in _counters(ctx)},
            "eval_value": eval_value,
            "created": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
            "versions": library_versions(),
            "code": self._code,
            **({"processors": list(processors)} if processors else {}),
        }

    # Restoring

    def resume(self, request: str | Path) -> Checkpoint:
        """Restores policy and task, reports the checkpoint and changed settings, and sets abandoned checkpoints aside.
        Checkpoints in this run's folder are abandoned if they are newer than the one to resume from. If that one is in
        another folder, all checkpoints in this run's folder are abandoned."""
        found = self.restore(request)
        path, state, manifest = found
        if path.resolve().parent == self.folder.resolve():
            self._set_aside_later(manifest["train_iter"])
        else:
            self._set_aside_all()
        # Whether the environments could be replayed is known only now.
        guarantee = max(manifest["guarantee"], self._task.resume_guarantee, key=GUARANTEES.index)
        changed = changes(state["config"], self._policy.config)
        note = f"; changed: {describe_changes(changed)}" if changed else ""
        other = [module for module, digest in manifest["code"].items() if self._code.get(module, digest) != digest]
        if other:
            guarantee += f", but the code of {', '.join(other)} has changed"
        versions = manifest.get("versions")
        kernel, here = (each.get("blas") if isinstance(each, dict) else None for each in (versions, library_versions()))
        if kernel not in (None, here):
            guarantee += f", but with another BLAS kernel, {here} in place of {str(kernel)[:40]}: last digits differ"
        unit = self._task.ctx.unit
        self._update_config()
        console_logger().info("resumed %s at %s %d (%s)%s", shown(path), unit, manifest[unit], guarantee, note)
        return found

    def restore(self, request: str | Path) -> Checkpoint:
        if request == "latest":
            return use_newest(self.folder, self._load)
        path = absolute(request)
        if (path / "ckpt").is_dir():
            return use_newest(path / "ckpt", self._load)
        if not path.is_dir():
            raise CheckpointError(f"resume: no folder {shown(path)!r}; name a checkpoint, a run folder, or 'latest'")
        return use_checkpoint(path, self._load)

    def _load(self, found: Checkpoint) -> None:
        with found.reading():
            self._check(found)
            self._task.load_state_dict(found.state["task"])
            with in_code_of(self._policy, "in load_state_dict() of the policy"):
                self._policy.load_state_dict(found.state["policy"])

    def _check(self, found: Checkpoint) -> None:
        """Checks everything that `resume` reads, before anything changes."""
        # The task compares the division, which may have been given to the task instead of the configuration.
        check_checkpoint(found, self._policy.config, {path: what for path, what in RUN.items() if path not in DIVISION})
        state, manifest = found.state, found.manifest
        changes(state["config"], self._policy.config)
        GUARANTEES.index(manifest["guarantee"])
        if not all(isinstance(text, str) for pair in manifest["code"].items() for text in pair):
            raise ValueError("its manifest does not map modules to digests of their code")
        names = _counters(self._task.ctx)
        counters = [state["task"]["ctx"][name] for name in names]
        if counters != [manifest[name] for name in names]:
            raise ValueError(f"counters {counters} differ from the manifest")
        if not all(type(counter) is int and 0 <= counter < _MOST for counter in counters):
            raise ValueError(f"counters {counters} are not counts")


@functools.cache
def library_versions() -> dict[str, str]:
    """The versions of libraries on which exact resume depends, and NumPy's kernel of matrix products, which follows
    from the processor and from `OPENBLAS_CORETYPE`."""
    installed = {name: importlib.metadata.version(name) for name in ("mindspore", "numpy", "gymnasium")}
    blas = [each for each in threadpoolctl.threadpool_info() if each["user_api"] == "blas"]
    kernel = {"blas": f"{blas[0]['internal_api']} {blas[0].get('architecture')}"} if blas else {}
    return {"minding": __version__, "python": platform.python_version(), **installed, **kernel}


def _counters(ctx: Context) -> tuple[str, ...]:
    """The counters that a manifest names."""
    return tuple(dict.fromkeys((ctx.unit, "train_iter", "total_step")))


def _counter(ctx: Context, name: str) -> int:
    count: int = getattr(ctx, name)
    return count
