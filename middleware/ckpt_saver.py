"""Saves checkpoints during and at the end of a run."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path
from typing import Any

import numpy as np

from minding.engine.checkpoint import list_checkpoints, read_manifest, save_checkpoint, step_of
from minding.engine.context import OnlineRLContext
from minding.engine.errors import CheckpointError, ConfigError
from minding.engine.middleware import declare
from minding.engine.task import Task
from minding.engine.task import task as global_task
from minding.engine.types import Policy, StateDict

_log = logging.getLogger("minding.ckpt")


@declare(reads=("train_iter", "env_step"), optional=("eval_value",))
class CkptSaver:
    """Saves policy, counters and the state of all middleware every `train_freq` gradient steps, after the best
    evaluation, and once at the end of the run, however it ends.

    A save that fails (full disk, read-only folder) is reported; training goes on and the checkpoints before it stay. A
    policy with NaN or infinite numbers is not saved.

    Reads: train_iter, env_step; eval_value if present.
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
        if keep_last < 1:
            raise ConfigError(f"CkptSaver(keep_last={keep_last}): expected at least 1; final=False saves no last one")
        self.folder = Path(out_dir) / exp_name / "ckpt"
        self._policy = policy
        self._train_freq = train_freq
        self._keep_last, self._keep_best, self._final = keep_last, keep_best, final
        self._task = global_task if task is None else task
        self._last_iter = 0
        self._saved_iter = 0
        self._best = float("-inf")

    @property
    def best(self) -> float:
        """Highest evaluation mean seen so far."""
        return self._best

    def __call__(self, ctx: OnlineRLContext) -> None:
        """Saves if it is due."""
        if self._keep_best and ctx.eval_value is not None and ctx.eval_value > self._best:
            self._best = ctx.eval_value
            self._save(ctx, self.folder / "best")
        if self._train_freq is not None and ctx.train_iter - self._last_iter >= self._train_freq:
            self._save_periodic(ctx)

    def finish(self, ctx: OnlineRLContext) -> None:
        """Saves the last state of the run."""
        if self._final and (ctx.train_iter > self._saved_iter or not list_checkpoints(self.folder)):
            self._save_periodic(ctx)

    def state_dict(self) -> dict[str, Any]:
        # JSON has no infinity that every reader takes: no evaluation yet is None.
        return {"last_iter": self._last_iter, "best": None if self._best == float("-inf") else self._best}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._last_iter = self._saved_iter = int(state["last_iter"])
        self._best = float("-inf") if state["best"] is None else float(state["best"])

    def _save_periodic(self, ctx: OnlineRLContext) -> None:
        # Also after a failure: the next attempt is one interval later, and at the end.
        self._last_iter = ctx.train_iter
        if not self._save(ctx, self.folder / f"iter_{ctx.train_iter}"):
            return
        self._saved_iter = ctx.train_iter
        # Later ones are of another run in this folder: they neither count nor go.
        own = [p for p in list_checkpoints(self.folder) if (step_of(p) or 0) <= ctx.train_iter]
        for old in own[: -self._keep_last]:
            shutil.rmtree(old, ignore_errors=True)

    def _save(self, ctx: OnlineRLContext, path: Path) -> bool:
        """Writes a checkpoint in place of an older one of that name; returns whether it could."""
        info = {"env_step": ctx.env_step, "train_iter": ctx.train_iter, "eval_value": ctx.eval_value}
        state = {"policy": self._policy.state_dict(), "task": self._task.state_dict()}
        damaged = not_finite(state["policy"])
        if damaged:
            _log.error("checkpoint %s was not written: %s is NaN or infinite; earlier checkpoints stay", path, damaged)
            return False
        try:
            fresh = path.with_name(f"{path.name}.new") if path.exists() else path
            shutil.rmtree(fresh, ignore_errors=True)
            save_checkpoint(fresh, state, info)
            if fresh != path:
                shutil.rmtree(path)
                fresh.rename(path)
        except OSError as error:
            _log.warning("checkpoint %s was not written (%s); training goes on, earlier checkpoints stay", path, error)
            return False
        return True


def not_finite(state: StateDict, where: str = "policy") -> str | None:
    """Path of the first array that holds NaN or infinity, None if there is none."""
    for key, value in state.items():
        path = f"{where}/{key}"
        if isinstance(value, dict):
            found = not_finite(value, path)
            if found:
                return found
        elif isinstance(value, np.ndarray) and value.dtype.kind == "f" and not np.isfinite(value).all():
            return path
    return None


def newest_checkpoint(folder: Path) -> Path:
    """The newest periodic checkpoint in `folder` whose manifest can be read.

    Raises:
      CheckpointError: if there is none.
    """
    for path in reversed(list_checkpoints(folder)):
        try:
            read_manifest(path)
        except CheckpointError as error:
            _log.warning("skipped damaged checkpoint: %s", error)
            continue
        return path
    raise CheckpointError(f"{folder}: no checkpoint; train first, or name another run")
