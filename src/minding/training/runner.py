"""One run: its chain, its checkpoints and logs, its final evaluation."""

from __future__ import annotations

import contextlib
import dataclasses
import shutil
import signal
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
from easydict import EasyDict

from minding.configs.chains import get_chain
from minding.engine.chain.task import Task
from minding.engine.console import console_logger
from minding.engine.errors import ConfigError
from minding.engine.process import compiled
from minding.engine.process.signals import SignalGuard
from minding.engine.run.evidence import nan_batch_kept
from minding.engine.run.lock import LOCK_FILE
from minding.engine.run.run_dir import RunDir
from minding.middleware import CkptSaver, online_logger, termination_checker
from minding.middleware.evaluator import info_means
from minding.training.assembly import build, check_runnable
from minding.training.evaluation import final_evaluation


@dataclasses.dataclass(frozen=True)
class Summary:
    """The outcome of a run.

    Attributes:
      unit: what the clock of the run counts, see `engine.chain.context.UNITS`.
      env_step, train_iter: environment and gradient steps; no environment steps where it learned from recorded data.
      eval_return, eval_std, n_eval_episodes: returns of the final policy in fresh evaluation episodes.
      eval_info: means of the declared info (``env.info_keys``) over the last steps of these episodes.
      wall_time: seconds of training, without the final evaluation, in all processes of the run.
      steps_per_second: steps of the clock per second of training.
      stop_reason: 'max_env_step', 'max_train_iter', 'max_train_epoch', 'stop_value', 'max_step', 'SIGINT' or 'SIGTERM'.
      run_dir, ckpt: the folders.
      unsaved: whether the last state of the run could not be saved.
      folder_lost: whether the run folder was removed or renamed during the run: what it held by then is not in it.
      profile: time table of the middleware; empty unless asked for.
    """

    unit: str
    env_step: int
    train_iter: int
    eval_return: float
    eval_std: float
    n_eval_episodes: int
    wall_time: float
    steps_per_second: float
    stop_reason: str
    run_dir: str
    ckpt: str
    unsaved: bool = False
    folder_lost: bool = False
    profile: str = ""
    eval_info: Mapping[str, float] = dataclasses.field(default_factory=dict)


def train(
    cfg: EasyDict,
    run_dir: RunDir,
    *,
    progress: bool = True,
    resume: str | Path | None = None,
    raise_signals: bool = True,
) -> Summary:
    """Runs the configured chain to its end and evaluates the final policy.

    Args:
      cfg: compiled configuration.
      run_dir: a fresh run folder, or that of the run to resume. A fresh one is removed if the run fails before it has
        written anything but its configuration.
      progress: show a progress bar.
      resume: ``"latest"``, or anything else that `Task.start` resumes from; None starts from the beginning.
      raise_signals: after SIGINT or SIGTERM, when the run is saved, raise what they mean, so that a caller's loop ends
        too. Without it the figures are returned, and their `stop_reason` names the signal.

    Returns:
      The run's figures.

    Raises:
      KeyboardInterrupt: after SIGINT.
      SystemExit: after SIGTERM, with the exit code 143.
      ConfigError, DataError, MissingExtraError, SetupError: as `check_runnable`, before MindSpore is loaded.
    """
    try:
        with contextlib.nullcontext() if resume else _only_if_begun(run_dir):
            if not run_dir.path.is_dir():
                raise ConfigError(f"no run folder {str(run_dir.path)!r}: RunDir.create(cfg) makes one")
            check_runnable(cfg)
            summary = _train(cfg, run_dir, progress, resume)
    finally:
        # The next run in this process finds the memory of this one free.
        compiled.release()
    if raise_signals:
        _raise_signal(summary)
    return summary


def _raise_signal(summary: Summary) -> None:
    """Raises what the signal that ended a run means, with a note that says where the run is."""
    meant: dict[str, BaseException] = {
        "SIGINT": KeyboardInterrupt(),
        "SIGTERM": SystemExit(128 + signal.SIGTERM),
    }
    error = meant.get(summary.stop_reason)
    if error is not None:
        saved = "was not saved" if summary.unsaved else "is saved"
        console_logger().warning(
            "ended by %s: the run %s in %s; minding resume %s continues it",
            summary.stop_reason,
            saved,
            summary.run_dir,
            summary.run_dir,
        )
        raise error


@contextlib.contextmanager
def _only_if_begun(run_dir: RunDir) -> Iterator[None]:
    """Removes the folder of a run that failed before it wrote anything but its configuration."""
    try:
        yield
    except Exception:
        if run_dir.path.is_dir() and {each.name for each in run_dir.path.iterdir()} <= {"config.yaml", LOCK_FILE}:
            shutil.rmtree(run_dir.path, ignore_errors=True)
        raise


def _train(cfg: EasyDict, run_dir: RunDir, progress: bool, resume: str | Path | None) -> Summary:
    task = Task()
    start = time.perf_counter()
    started = task.start(
        cfg.lanes.async_mode,
        get_chain(cfg.chain).context(),
        lanes=cfg.lanes,
        profile=cfg.run.profile,
        trace=cfg.run.trace,
        resume=resume,
    )
    with SignalGuard(task.interrupt), started:
        for event in ("resumed", "run_folder_lost"):
            task.on(event, lambda: run_dir.update_config(cfg))
        policy = build(task, cfg)
        saver = CkptSaver(policy, run_dir.path.name, cfg.run.ckpt_freq, out_dir=run_dir.path.parent, task=task)
        limits = (cfg.run.max_env_step, cfg.run.max_train_iter, cfg.run.max_train_epoch)
        checker = termination_checker(*limits, stop_value=cfg.run.stop_value, task=task)
        task.use(checker)
        task.use(saver)
        logger = online_logger(cfg, run_dir, progress=progress)
        task.use(logger)
        start = time.perf_counter()
        with nan_batch_kept(run_dir.path / "nan", task):
            task.run(max_step=cfg.run.max_step or 10**12)
        wall_time = logger.earlier_seconds + time.perf_counter() - start
        ctx, stop_reason = task.ctx, checker.reason or str(task.stop_reason)
        profile = task.profile() if cfg.run.profile else ""
        if cfg.run.trace:
            try:
                task.write_trace(run_dir.path / "trace.json")
            except OSError as error:
                console_logger().warning("the time line was not written: %s", error)
    with SignalGuard(task.interrupt):
        episodes = final_evaluation(cfg, policy, stop=lambda: task.interrupted_by is not None)
    if task.interrupted_by is not None:
        stop_reason, episodes = task.interrupted_by, []
    returns = np.array([end.episode_return for end in episodes])
    return Summary(
        unit=ctx.unit,
        env_step=ctx.optional("env_step") or 0,
        train_iter=ctx.train_iter,
        eval_return=float(returns.mean()) if episodes else float("nan"),
        eval_std=float(returns.std()) if episodes else float("nan"),
        n_eval_episodes=len(episodes),
        wall_time=wall_time,
        steps_per_second=ctx.clock / max(wall_time, 1e-9),
        stop_reason=stop_reason,
        run_dir=str(run_dir.path),
        ckpt=str(saver.folder),
        unsaved=saver.unsaved,
        folder_lost=saver.folder_lost,
        profile=profile,
        eval_info=info_means(episodes),
    )
