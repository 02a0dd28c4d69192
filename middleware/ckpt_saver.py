"""Saves checkpoints during and at the end of a run, and resumes from them."""

from __future__ import annotations

import datetime
import functools
import importlib.metadata
import logging
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from minding import __version__
from minding.engine.chain.context import Context, LearningContext
from minding.engine.chain.lifecycle import GUARANTEES
from minding.engine.chain.middleware import declare
from minding.engine.chain.task import Task
from minding.engine.chain.task import task as global_task
from minding.engine.checkpoint import (
    BEST,
    Checkpoint,
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
from minding.engine.config.identity import changes, check_checkpoint, describe_changes, identity
from minding.engine.config.options import plain
from minding.engine.console import console_logger
from minding.engine.errors import CheckpointError, ConfigError, NonFiniteError, RunInUseError
from minding.engine.run.lock import RunLock, lost
from minding.engine.types import Array, Policy
from minding.middleware.schedules import rate_jump

_log = logging.getLogger("minding.ckpt")
_MOST = 1 << 62
"""No counter of a run gets here."""


@declare(reads=("train_iter",), optional=("eval_value", "eval_params", "last_eval_iter"))
class CkptSaver:
    """Saves policy, counters and the state of all middleware every `train_freq` gradient steps, after the best
    evaluation, and once at the end of the run, however it ends.

    A checkpoint is taken at the end of the iteration in which it is due, wherever in the chain this is: a run that
    resumes from it is identical to an uninterrupted one. Its manifest says which guarantee holds, see
    `engine.chain.lifecycle.GUARANTEES`. A save that fails (full disk, read-only folder) is reported; training continues
    and earlier checkpoints stay; `unsaved` says whether the last one failed. A policy with NaN or infinite numbers is
    not saved, nor is anything when a `NonFiniteError` ends the run.

    From the start of a run to the end of the task's block it locks the run folder: a second process that would write
    there gets a `RunInUseError`. If the folder is removed during the run, a warning says so and the event
    ``run_folder_lost`` is emitted; later checkpoints go to a new folder of that name. If another process has begun a
    run in a folder of that name by then, this one ends with a `RunInUseError` and writes nothing more.

    A run that is not resumed does not share its folder: checkpoints of an earlier run there are set aside before it
    begins, as ``left-<time>-ckpt`` beside the folder, and a warning says so.

    After each one the event ``checkpoint`` is emitted, with its folder.

    Reads: train_iter; eval_value if present, and eval_params where an asynchronous run measured weights that are no
      longer the current ones: these are in the checkpoint ``best`` then.
    Writes: nothing.

    Args:
      policy: its whole state is saved.
      exp_name: the run's name; checkpoints go to ``<out_dir>/<exp_name>/ckpt``.
      train_freq: gradient steps between two saves; None saves only at the end.
      keep_last: how many periodic checkpoints stay, at least 1.
      keep_best: keep the one with the highest evaluation mean under the name ``best``.
      final: save at the end of the run.
      out_dir: folder that holds the run folders.
      task: the task whose state is saved; the global one by default.
    """

    def __init__(
        self,
        policy: Policy,
        exp_name: str,
        train_freq: int | None = None,
        *,
        keep_last: int = 3,
        keep_best: bool = True,
        final: bool = True,
        out_dir: str | Path = "runs",
        task: Task | None = None,
    ) -> None:
        if train_freq is not None and train_freq < 1:
            raise ConfigError(f"CkptSaver(train_freq={train_freq}): expected at least 1, or None for the end only")
        if keep_last < 1:
            raise ConfigError(f"CkptSaver(keep_last={keep_last}): expected at least 1; final=False saves no last one")
        self.folder = Path(out_dir) / exp_name / "ckpt"
        self._policy = policy
        self._train_freq = train_freq
        self._keep_last, self._keep_best, self._final = keep_last, keep_best, final
        self._task = global_task if task is None else task
        self._lock = RunLock(self.folder.parent)
        # Whether the checkpoints in the folder are those of this run.
        self._owns_folder = False
        self._unsaved = False
        self._folder_lost = False
        self._last_iter = 0
        self._best = float("-inf")
        # Gradient steps and iterations at the last periodic save, to know at the end whether there is anything new.
        self._saved: tuple[int, int] | None = None

    @property
    def best(self) -> float:
        """Highest evaluation mean seen so far."""
        return self._best

    @property
    def unsaved(self) -> bool:
        """Whether the state at the end of the last run should have been saved and could not be."""
        return self._unsaved

    @property
    def folder_lost(self) -> bool:
        """Whether the run folder was removed or renamed during the run."""
        return self._folder_lost

    def begin(self) -> None:
        """Locks the run folder, and sets checkpoints aside that an earlier run has left there.

        Raises:
          RunInUseError: another process writes there.
          CheckpointError: the earlier checkpoints cannot be renamed.
        """
        self._lock.acquire()
        if self._task.resuming:
            return
        if self._owns_folder:
            # Its state may have been loaded from one of them without `resume`.
            self._set_aside_later(self._task.ctx.train_iter)
        else:
            self._set_aside_all()

    def close(self) -> None:
        """Lets other processes write to the run folder."""
        self._owns_folder = False
        self._lock.release()

    def __call__(self, ctx: LearningContext) -> None:
        """Decides what is due; it is saved at the end of the iteration."""
        if lost(self.folder.parent):
            self._make_folder_again()
        value = ctx.eval_value
        if self._is_best(value):
            params = ctx.eval_params
            self._task.at_boundary(lambda: self._save_best(value, params))
        if self._train_freq is not None and ctx.train_iter - self._last_iter >= self._train_freq:
            # Also after a failure: the next attempt is one interval later, and at the end.
            self._last_iter = ctx.train_iter
            self._task.at_boundary(lambda: self._save_periodic(value))

    def finish(self, ctx: LearningContext) -> None:
        """Saves the last state of the run, if anything happened since the last save that is worth keeping."""
        if isinstance(self._task.error, (NonFiniteError, RunInUseError)):
            # What is still finite comes from the same update: resume from the checkpoint before it. And what another
            # process uses belongs to it.
            return
        if lost(self.folder.parent):
            self._make_folder_again()
        if not self._task.within_iteration and self._is_best(ctx.eval_value):
            # The evaluation that an asynchronous run waited for at its end.
            self._save_best(ctx.eval_value, ctx.eval_params)
        if self._saved is None:
            nothing_new = False
        elif self._task.within_iteration:
            # Aborted before anything was learned in it: what was saved before it is worth more.
            nothing_new = self._saved[0] == ctx.train_iter
        else:
            nothing_new = self._saved == _position(ctx)
        self._unsaved = self._final and not nothing_new and not self._save_periodic(None)

    def state_dict(self) -> dict[str, Any]:
        # JSON has no infinity that every reader takes: no evaluation yet is None.
        return {"last_iter": self._last_iter, "best": None if self._best == float("-inf") else self._best}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._owns_folder = True
        self._last_iter = int(state["last_iter"])
        self._best = float("-inf") if state["best"] is None else float(state["best"])

    def resume(self, request: str | Path) -> None:
        """Restores policy, context and all middleware from a checkpoint, and reports its path and what changed.

        Settings of this run hold; those that differ from the checkpoint's are listed. Checkpoints in this run's folder
        that are newer than the one resumed from belong to a course of the run that is abandoned here: they are renamed.
        If it is in another folder, all that are in this run's folder belong to another course: they are set aside.

        Args:
          request: ``"latest"`` for the newest whole checkpoint of this run, a run folder for that run's, or the folder
            of a checkpoint.
        Raises:
          CheckpointError: if there is none that is whole, or it is of another run (see `engine.config.identity.RUN`)
            or chain.
        """
        path, state, manifest = self._restore_from(request)
        changed = changes(state["config"], self._policy.config)
        self._saved = (manifest["train_iter"], manifest["total_step"])
        if path.resolve().parent == self.folder.resolve():
            self._set_aside_later(manifest["train_iter"])
        else:
            self._set_aside_all()
        # Only now is it known whether the environments could be replayed.
        guarantee = max(manifest["guarantee"], self._task.resume_guarantee, key=GUARANTEES.index)
        note = f"; changed: {describe_changes(changed)}" if changed else ""
        unit = self._task.ctx.unit
        console_logger().info("resumed %s at %s %d (%s)%s", path, unit, manifest[unit], guarantee, note)
        jump = rate_jump(state["config"], self._policy.config, manifest[unit])
        if jump is not None:
            console_logger().warning("%s", jump)

    def _restore_from(self, request: str | Path) -> Checkpoint:
        if request == "latest":
            return use_newest(self.folder, self._restore)
        path = Path(request)
        if (path / "ckpt").is_dir():
            return use_newest(path / "ckpt", self._restore)
        if not path.is_dir():
            raise CheckpointError(f"resume: no folder {str(path)!r}; name a checkpoint, a run folder, or 'latest'")
        return use_checkpoint(path, self._restore)

    def _restore(self, found: Checkpoint) -> None:
        check_checkpoint(found, self._policy.config)
        state, manifest = found.state, found.manifest
        # All that `resume` reads is looked at before anything changes.
        changes(state["config"], self._policy.config)
        GUARANTEES.index(manifest["guarantee"])
        names = _counters(self._task.ctx)
        counters = [state["task"]["ctx"][name] for name in names]
        if counters != [manifest[name] for name in names]:
            raise ValueError(f"counters {counters} are not those of the manifest")
        if not all(type(counter) is int and 0 <= counter < _MOST for counter in counters):
            raise ValueError(f"counters {counters} are not counts")
        self._task.load_state_dict(state["task"])
        self._policy.load_state_dict(state["policy"])

    def _is_best(self, value: float | None) -> bool:
        """Whether this is the highest evaluation mean so far; records it if so."""
        if not self._keep_best or value is None or not value > self._best:
            return False
        self._best = value
        return True

    def _set_aside_all(self) -> None:
        found = resumable_checkpoints(self.folder)
        if found:
            try:
                aside = set_aside(self.folder)
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
        self._owns_folder = True

    def _set_aside_later(self, train_iter: int) -> None:
        for later in list_checkpoints(self.folder):
            if (step_of(later) or 0) > train_iter:
                try:
                    aside = set_aside(later)
                except OSError as error:
                    _log.warning("%s keeps its name (%s): a later resume would begin from there", later, error)
                else:
                    _log.warning("%s is newer than what is resumed from: it is now %s", later, aside.name)

    def _make_folder_again(self) -> None:
        folder = self.folder.parent
        _log.warning(
            "the run folder %s (or its lock) was removed or renamed: the run continues in a new one of that name",
            folder,
        )
        self._lock.renew()
        self._folder_lost = True
        # Nothing of what was saved is there any more.
        self._saved = None
        self._task.emit("run_folder_lost")

    def _save_best(self, eval_value: float | None, params: Mapping[str, Array] | None) -> None:
        if self._save(self.folder / BEST, eval_value, params):
            self._task.emit("checkpoint", self.folder / BEST)

    def _save_periodic(self, eval_value: float | None) -> bool:
        ctx: Any = self._task.ctx
        path = self.folder / f"iter_{ctx.train_iter}"
        if not self._save(path, eval_value):
            return False
        self._saved = _position(ctx)
        # Later ones are of another course of the run and could not be renamed: they are neither counted nor removed.
        later = [p for p in list_checkpoints(self.folder) if (step_of(p) or 0) > ctx.train_iter]
        prune_checkpoints(self.folder, self._keep_last, protect=later)
        self._task.emit("checkpoint", path)
        return True

    def _save(self, path: Path, eval_value: float | None, params: Mapping[str, Array] | None = None) -> bool:
        """Writes a checkpoint, in place of an older one of that name; returns whether it could.

        With `params`, these weights take the place of the current ones.
        """
        state = {
            "policy": self._policy.state_dict(),
            "task": self._task.state_dict(),
            "config": plain(self._policy.config),
        }
        if params is not None:
            state["policy"]["params"].update(params)
        damaged = not_finite(state["policy"], "policy")
        if damaged:
            _log.error("checkpoint %s was not written: %s is NaN or infinite; earlier checkpoints stay", path, damaged)
            return False
        try:
            save_checkpoint(path, state, self._info(eval_value), previous=link_source(self.folder))
        except OSError as error:
            _log.warning("checkpoint %s was not written (%s); training continues, earlier ones stay", path, error)
            return False
        return True

    def _info(self, eval_value: float | None) -> dict[str, Any]:
        ctx: Any = self._task.ctx
        config = self._policy.config
        return {
            "guarantee": self._task.resume_guarantee,
            "identity": identity(config),
            "unit": ctx.unit,
            **{name: getattr(ctx, name) for name in _counters(ctx)},
            "eval_value": eval_value,
            "created": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
            "versions": library_versions(),
        }


@functools.cache
def library_versions() -> dict[str, str]:
    """The versions on which exact resume depends."""
    installed = {name: importlib.metadata.version(name) for name in ("mindspore", "numpy", "gymnasium")}
    return {"minding": __version__, "python": platform.python_version(), **installed}


def _counters(ctx: Context) -> tuple[str, ...]:
    """The counters that a manifest names."""
    return tuple(dict.fromkeys((ctx.unit, "train_iter", "total_step")))


def _position(ctx: LearningContext) -> tuple[int, int]:
    return ctx.train_iter, ctx.total_step
