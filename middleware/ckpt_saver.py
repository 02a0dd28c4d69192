"""Saves checkpoints during and at the end of a run."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from minding.engine.chain.context import LearningContext
from minding.engine.chain.middleware import declare
from minding.engine.chain.task import Task
from minding.engine.chain.task import task as global_task
from minding.engine.console import console_logger
from minding.engine.errors import ConfigError, LearnerError, NonFiniteError, RunInUseError
from minding.engine.paths import absolute
from minding.engine.run.checkpoints import RunCheckpoints
from minding.engine.types import Array, Policy
from minding.middleware.learning import rate_jump


@declare(reads=("train_iter",), optional=("eval_value", "eval_params", "last_eval_iter"))
class CkptSaver:
    """Saves policy, counters and the state of all middleware every `train_freq` gradient steps, after the best
    evaluation, and once at the end of the run, however it ends.

    A checkpoint is taken at the end of the iteration in which it is due, wherever this middleware is in the chain: a
    run that resumes from it is identical to an uninterrupted one. Its manifest says which guarantee holds, see
    `engine.chain.lifecycle.GUARANTEES`. If a save fails (full disk, read-only folder), this is reported, training
    continues and earlier checkpoints stay; `unsaved` says whether the last save failed. A state that no checkpoint can
    hold is an error before the first iteration, or right after it. A policy with NaN or infinite numbers is not saved,
    and nothing is saved when a `NonFiniteError` ends the run. When a `LearnerError` ends it, the last save stays the
    newest, from which resuming is exact; only a run without any saves the state in the middle of the iteration.

    From the start of a run to the end of the task's block the run folder belongs to this run alone, see
    `engine.run.checkpoints.RunCheckpoints`. If it is removed during the run, a warning says so, the event
    ``run_folder_lost`` is emitted, and later checkpoints go to a new folder of that name. After each checkpoint the
    event ``checkpoint`` is emitted, with its folder.

    Reads: train_iter; eval_value if present, and eval_params if an asynchronous run measured weights that are no
      longer the current ones: the checkpoint ``best`` then has the measured weights.

    Args:
      policy: the policy, whose whole state is saved.
      exp_name: the run's name; checkpoints go to ``<out_dir>/<exp_name>/ckpt``.
      train_freq: gradient steps between two saves; None saves only at the end.
      keep_last: number of periodic checkpoints that are kept, at least 1.
      keep_best: whether to keep the checkpoint with the highest evaluation mean under the name ``best``.
      final: whether to save at the end of the run.
      out_dir: folder that holds the run folders; by default the `run.out_dir` of the policy's configuration.
      task: the task whose state is saved; the global one by default.

    Attributes:
      checkpoints: the object that writes and restores checkpoints.
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
        out_dir: str | Path | None = None,
        task: Task[Any] | None = None,
    ) -> None:
        if train_freq is not None and train_freq < 1:
            raise ConfigError(f"CkptSaver(train_freq={train_freq}): expected at least 1, or None for the end only")
        if keep_last < 1:
            raise ConfigError(f"CkptSaver(keep_last={keep_last}): expected at least 1; final=False saves no last one")
        self._task = global_task if task is None else task
        folder = absolute(policy.config.run.out_dir if out_dir is None else out_dir)
        self.checkpoints = RunCheckpoints(folder / exp_name, policy, self._task)
        self._policy = policy
        self._train_freq = train_freq
        self._keep_last, self._keep_best, self._final = keep_last, keep_best, final
        self._unsaved = False
        self._checked = not (final or keep_best or train_freq is not None)
        self._last_iter = 0
        self._best = float("-inf")
        # Gradient steps and iterations at the last periodic save, to know at the end whether there is anything new.
        self._saved: tuple[int, int] | None = None

    @property
    def folder(self) -> Path:
        """The folder that holds the checkpoints."""
        return self.checkpoints.folder

    @property
    def best(self) -> float:
        """Highest evaluation mean seen so far."""
        return self._best

    @property
    def unsaved(self) -> bool:
        """Whether the state at the end of the last run should have been saved, but saving failed."""
        return self._unsaved

    @property
    def folder_lost(self) -> bool:
        """Whether the run folder was removed or renamed during the run."""
        return self.checkpoints.folder_lost

    def begin(self) -> None:
        """Checks that the state can be saved, locks the run folder and sets earlier checkpoints aside."""
        if not self._checked:
            self.checkpoints.check()
        self.checkpoints.open()

    def close(self) -> None:
        self.checkpoints.close()

    def __call__(self, ctx: LearningContext) -> None:
        """Decides which checkpoints are due; they are saved at the end of the iteration."""
        self._renew_folder()
        if not self._checked:
            # Middleware may have their state from the first iteration on.
            self._checked = True
            self._task.at_boundary(self.checkpoints.check)
        value = ctx.eval_value
        if self._is_best(value):
            params = ctx.eval_params
            self._task.at_boundary(lambda: self._save_best(value, params))
        if self._train_freq is not None and ctx.train_iter - self._last_iter >= self._train_freq:
            # This also holds if the save fails: the next attempt is one interval later, or at the end of the run.
            self._last_iter = ctx.train_iter
            self._task.at_boundary(lambda: self._save(value))

    def finish(self, ctx: LearningContext) -> None:
        """Saves the last state of the run, unless nothing worth keeping has happened since the last save."""
        if isinstance(self._task.error, (NonFiniteError, RunInUseError)):
            # After NaN, the numbers that are still finite come from the same update: resume from an earlier checkpoint.
            # A folder that another process uses belongs to that process.
            return
        self._renew_folder()
        if not self._task.within_iteration and self._is_best(ctx.eval_value):
            # The evaluation that an asynchronous run waited for at its end.
            self._save_best(ctx.eval_value, ctx.eval_params)
        if self._saved is None:
            # A run that failed in its first iteration has only what it began with.
            nothing_new = self._task.error is not None and (ctx.train_iter, ctx.total_step) == (0, 0)
        elif isinstance(self._task.error, LearnerError):
            # The last save is at the end of an iteration: what came after it is repeated to the bit.
            nothing_new = True
        elif self._task.within_iteration:
            # An iteration that was aborted before it learned anything is worth less than the last save.
            nothing_new = self._saved[0] == ctx.train_iter
        else:
            nothing_new = self._saved == (ctx.train_iter, ctx.total_step)
        self._unsaved = self._final and not nothing_new and not self._save(None)

    def state_dict(self) -> dict[str, Any]:
        # JSON has no infinity that every reader accepts, so None means that there was no evaluation yet.
        return {"last_iter": self._last_iter, "best": None if self._best == float("-inf") else self._best}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.checkpoints.own()
        self._last_iter = int(state["last_iter"])
        self._best = float("-inf") if state["best"] is None else float(state["best"])

    def resume(self, request: str | Path) -> None:
        """Restores policy, context and all middleware; reports changed settings, and keeps their new values. For
        `request` and the errors see `RunCheckpoints.resume`."""
        _, state, manifest = self.checkpoints.resume(request)
        self._saved = (manifest["train_iter"], manifest["total_step"])
        jump = rate_jump(state["config"], self._policy.config, manifest[self._task.ctx.unit])
        if jump is not None:
            console_logger().warning("%s", jump)

    def _is_best(self, value: float | None) -> bool:
        """Whether this is the highest evaluation mean so far; records it if so."""
        if not self._keep_best or value is None or not value > self._best:
            return False
        self._best = value
        return True

    def _renew_folder(self) -> None:
        if self.checkpoints.renew_if_lost():
            # The earlier checkpoints are gone.
            self._saved = None
            self._task.emit("run_folder_lost")

    def _save(self, eval_value: float | None) -> bool:
        path = self.checkpoints.save(eval_value, self._keep_last)
        if path is None:
            return False
        ctx: Any = self._task.ctx
        self._saved = (ctx.train_iter, ctx.total_step)
        self._task.emit("checkpoint", path)
        return True

    def _save_best(self, eval_value: float | None, params: Mapping[str, Array] | None) -> None:
        path = self.checkpoints.save_best(eval_value, params)
        if path is not None:
            self._task.emit("checkpoint", path)
