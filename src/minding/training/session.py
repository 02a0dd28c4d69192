"""A run in this process: its chain, its checkpoints and logs, its final evaluation."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import shutil
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from minding.configs.chains import get_chain
from minding.configs.datasets import references_in
from minding.engine.chain.context import Context
from minding.engine.chain.task import Task
from minding.engine.config.config import Config, run_length
from minding.engine.config.identity import collectors_of
from minding.engine.console import console_logger
from minding.engine.data.episode import RECORDED
from minding.engine.errors import ConfigError, MissingExtraError, NonFiniteError, add_note
from minding.engine.files import Folder
from minding.engine.paths import anchored, shown
from minding.engine.process import compiled
from minding.engine.process.runtime import computing
from minding.engine.process.signals import SignalGuard, raise_end
from minding.engine.run.lock import RunLock
from minding.engine.run.plotting import DRAWN, plot_trace
from minding.engine.run.progress import Progress
from minding.engine.run.run_dir import BEFORE, RunDir
from minding.engine.types import EpisodeEnd, Policy
from minding.middleware import CkptSaver, model_pool, online_logger, termination_checker
from minding.middleware.evaluator import info_means
from minding.training.assembly import Given, add_given, build, check_runnable, given_middleware, sizes_named
from minding.training.evaluation import final_evaluation
from minding.training.film import film_run
from minding.training.loading import take_over


@contextlib.contextmanager
def nan_batch_kept(folder: Path, task: Task[Any]) -> Iterator[None]:
    """Writes the batch of a NonFiniteError in this block to `folder`, and adds a note with its path to the error."""
    try:
        yield
    except NonFiniteError as error:
        if error.batch:
            try:
                add_note(error, f"the batch was kept in {_write(error, folder, task.ctx)}")
            except OSError as failure:
                add_note(error, f"the batch could not be kept in {folder}: {failure}")
        raise


def _write(error: NonFiniteError, folder: Path, ctx: Context) -> Path:
    """Writes ``iter_<gradient step>.safetensors`` (arrays) and ``.json`` (message, metrics, kept context fields)."""
    from safetensors.numpy import save

    counters = ctx.state_dict()
    name = f"iter_{counters.get('train_iter', ctx.total_step)}"
    about = {"error": str(error), "metrics": _as_json(error.metrics), "counters": _as_json(counters)}
    with Folder(folder, make=True) as opened:
        arrays = {key: np.ascontiguousarray(array) for key, array in error.batch.items()}
        opened.replace(f"{name}.safetensors", save(arrays))
        opened.replace(f"{name}.json", (json.dumps(about, indent=2) + "\n").encode())
    return folder / f"{name}.safetensors"


def _as_json(values: Mapping[str, Any]) -> dict[str, Any]:
    """Replaces NaN and infinity, which JSON does not have, by strings."""
    return {k: str(v) if isinstance(v, float) and not math.isfinite(v) else v for k, v in values.items()}


_LONG = 10.0
"""Seconds after which a message says that the final evaluation still runs."""


@dataclasses.dataclass(frozen=True)
class Summary:
    """The outcome of a run.

    Attributes:
      unit: the unit of the run's clock, see `engine.chain.context.UNITS`.
      env_step, train_iter: environment and gradient steps; `env_step` is 0 for a run on recorded data.
      eval_return, eval_std, n_eval_episodes: returns of the final policy in fresh evaluation episodes.
      eval_length: mean length of these episodes.
      eval_info: means of the declared info (``env.info_keys``) over the last steps of these episodes.
      eval_normalized: mean return, normalized by the reference returns in the data; NaN without reference returns.
      data_eval: metrics of the final policy on recorded data, by name; see `middleware.dataset_evaluator`.
      wall_time: seconds of training, without the final evaluation, in all processes of the run.
      steps_per_second: steps of the clock per second of training.
      stop_reason: 'max_env_step', 'max_train_iter', 'max_train_epoch', 'stop_value', 'max_step', 'finish' (a middleware
        set `task.finish`), 'SIGINT' or 'SIGTERM'.
      run_dir, ckpt: the run folder, and the folder with its checkpoints.
      unsaved: whether the last state of the run could not be saved.
      folder_lost: whether the run folder was removed or renamed during the run; it then lacks the files written before.
      profile: time table of the middleware; empty unless `run.profile` is set.
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
    eval_length: float = float("nan")
    eval_info: Mapping[str, float] = dataclasses.field(default_factory=dict)
    eval_normalized: float = float("nan")
    data_eval: Mapping[str, float] = dataclasses.field(default_factory=dict)


class Session(contextlib.AbstractContextManager["Session"]):
    """The policy, the environments and the chain of a run; a context manager.

    The run folder is locked to the end of the block. An error or a signal ends a session; another
    session with `resume` continues the run from its checkpoints.

    Args:
      cfg: compiled configuration; `run` may change its limit.
      run_dir: the run's folder.
      progress: whether to show a progress bar.
      resume: ``"latest"``, or anything else that `Task.start` resumes from; None starts from the beginning.
      use: further middleware, or factories of middleware, after the chain's own.
      policy: the policy that learns; None builds one.

    Attributes:
      cfg, run_dir, policy: configuration, folder and policy of the run.
      task: the task that runs the chain.
    """

    def __init__(
        self,
        cfg: Config,
        run_dir: RunDir,
        *,
        progress: bool = True,
        resume: str | Path | None = None,
        use: Given = (),
        policy: Policy | None = None,
    ) -> None:
        self.cfg, self.run_dir = cfg, run_dir
        self.task = Task()
        self.policy: Policy
        self._given, self._use, self._progress = policy, given_middleware(use), progress
        self._resume = resume
        self._seconds = 0.0
        self._stop_reason = ""
        self._profile = ""

    @computing()
    def __enter__(self) -> Session:
        cfg = self.cfg
        started = self.task.start(
            cfg.lanes.async_mode,
            get_chain(cfg.chain).context(),
            lanes=self._lanes(),
            profile=cfg.run.profile,
            trace=cfg.run.trace,
            resume=self._resume,
        )
        guard = SignalGuard(self.task.interrupt, "stopping before the first iteration")
        with sizes_named(cfg), guard, contextlib.ExitStack() as held:
            # The run is locked before anything is written, and until everything is.
            held.enter_context(RunLock(self.run_dir.path, alone=True))
            held.enter_context(started)
            self.policy = build(self.task, cfg, self._given)
            for member in self.task.members:
                if isinstance(member, model_pool):
                    # The name of the run folder may have got a number.
                    member.pool.folder = self.run_dir.models
            if cfg.run.begin_from is not None and self._resume is None:
                take_over(self.policy, cfg)
            for fn in self._use:
                add_given(self.task, cfg, fn)
            folder = self.run_dir.path
            self._saver = CkptSaver(self.policy, folder.name, cfg.run.ckpt_freq, out_dir=folder.parent, task=self.task)
            limits = (cfg.run.max_env_step, cfg.run.max_train_iter, cfg.run.max_train_epoch)
            self._checker = termination_checker(*limits, stop_value=cfg.run.stop_value, task=self.task)
            self._references = references_in(cfg)
            self._logger = online_logger(cfg, self.run_dir, progress=False, references=self._references, task=self.task)
            self.task.use(self._checker).use(self._saver).use(self._logger)
            self._block = held.pop_all()
        return self

    def _lanes(self) -> dict[str, Any]:
        """Settings of lanes; a resumed run keeps its number of collectors, if unset, whatever the number of cores."""
        lanes = dict(self.cfg.lanes)
        if self._resume is not None and lanes["collectors"] is None:
            lanes["collectors"] = collectors_of(self._resume, self.run_dir.checkpoints)
        return lanes

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._block.__exit__(kind, error, traceback)

    @property
    def clock(self) -> int:
        """Steps so far, in the unit of the run's clock."""
        return self.task.ctx.clock

    @property
    def interrupted_by(self) -> str | None:
        """The signal that ended the run, if one did."""
        return self.task.interrupted_by

    @computing()
    @anchored()
    def run(self, until: int | None = None) -> str:
        """Runs iterations until the clock reaches `until`, the run's own end by default, or another limit of the
        configuration ends the run; returns the reason for the end, see `Summary.stop_reason`."""
        cfg, unit = self.cfg, run_length(self.cfg).unit
        limit = run_length(cfg).steps if until is None else until
        self._checker.limit(f"max_{unit}", limit)
        if self._progress:
            self._logger.show(Progress(limit, cfg.exp_name, refresh=cfg.run.log_freq))
        self._logger.total = limit
        start = time.perf_counter()
        try:
            # The caller answers the signal.
            with (
                SignalGuard(self.task.interrupt),
                sizes_named(cfg),
                nan_batch_kept(self.run_dir.path / "nan", self.task),
            ):
                self.task.run(max_step=cfg.run.max_step or 10**12)
        finally:
            self._seconds += time.perf_counter() - start
            self._logger.show(None)
        self._stop_reason = self._checker.reason or str(self.task.stop_reason)
        if cfg.run.profile:
            self._profile = self.task.profile()
        if cfg.run.trace:
            self._write_trace()
        return self._stop_reason

    def _write_trace(self) -> None:
        """Writes the timeline and draws its end, which takes a second, unless a signal ended the run."""
        file = self.run_dir.path / "trace.json"
        try:
            self.task.write_trace(file)
        except OSError as error:
            console_logger().warning("the timeline was not written: %s", error)
            return
        if self.task.interrupted_by is not None:
            return
        try:
            plot_trace(json.loads(file.read_text(encoding="utf-8")), file.with_suffix(".png"), seconds=DRAWN)
        except (MissingExtraError, OSError, ValueError) as error:
            console_logger().warning("the timeline was not drawn: %s", error)

    def _final_evaluation(self) -> list[EpisodeEnd]:
        """The episodes of the final evaluation; empty if the run has no environment."""
        if self.cfg.env.env_id == RECORDED:
            return []
        late = time.perf_counter() + _LONG

        def stop() -> bool:
            nonlocal late
            if time.perf_counter() > late:
                late = math.inf
                console_logger().info(
                    "the final evaluation (run.final_episodes=%d) still runs; Ctrl-C ends the run without it",
                    self.cfg.run.final_episodes,
                )
            return self.task.interrupted_by is not None

        return final_evaluation(self.cfg, self.policy, stop=stop)

    @computing()
    def summarize(self) -> Summary:
        """The figures of the run so far, with an evaluation of its policy if the run has an environment. With
        ``run.video`` the policy is filmed, too."""
        task, ctx = self.task, self.task.ctx
        with SignalGuard(task.interrupt, "stopping without the final evaluation") as guard:
            episodes = self._final_evaluation()
            if task.interrupted_by is not None:
                episodes = []
            elif self.cfg.run.video:
                guard.notice = "stopping without the film"
                film_run(self.cfg, self.run_dir, self.policy, ctx.clock, lambda: task.interrupted_by is not None)
        self._stop_reason = task.interrupted_by or self._stop_reason
        returns = np.array([end.episode_return for end in episodes])
        seconds = self._logger.earlier_seconds + self._seconds
        counters: Any = ctx
        return Summary(
            unit=ctx.unit,
            env_step=ctx.optional("env_step", int) or 0,
            train_iter=counters.train_iter,
            eval_return=float(returns.mean()) if episodes else float("nan"),
            eval_std=float(returns.std()) if episodes else float("nan"),
            n_eval_episodes=len(episodes),
            wall_time=seconds,
            steps_per_second=ctx.clock / max(seconds, 1e-9),
            stop_reason=self._stop_reason,
            run_dir=str(self.run_dir.path),
            ckpt=str(self._saver.folder),
            unsaved=self._saver.unsaved,
            folder_lost=self._saver.folder_lost,
            profile=self._profile,
            eval_length=float(np.mean([end.episode_length for end in episodes])) if episodes else float("nan"),
            eval_info=info_means(episodes),
            eval_normalized=(
                self._references.normalized(float(returns.mean())) if self._references and episodes else float("nan")
            ),
            data_eval=dict(self._logger.judged(counters.train_iter)),
        )


def train(
    cfg: Config,
    run_dir: RunDir,
    *,
    progress: bool = True,
    resume: str | Path | None = None,
    raise_signals: bool = True,
    use: Given = (),
) -> Summary:
    """Runs the configured chain to its end and evaluates the final policy.

    Args:
      cfg: compiled configuration.
      run_dir: a new run folder, or the folder of the run to resume. A new one is removed if the run fails before it has
        written more than its configuration.
      progress: whether to show a progress bar.
      resume: ``"latest"``, or anything else that `Task.start` resumes from; None starts from the beginning.
      raise_signals: whether to raise the exception listed below after SIGINT or SIGTERM, once the run is saved, so that
        a caller's loop ends, too. If False, the figures are returned, and their `stop_reason` names the signal.
      use: further middleware, in this order, after the chain's own.

    Returns:
      The run's figures.

    Raises:
      KeyboardInterrupt: after SIGINT.
      SystemExit: after SIGTERM, with the exit code 143.
      ConfigError, DataError, MissingExtraError, SetupError: as for `check_runnable`, before MindSpore is loaded.
    """
    try:
        with contextlib.nullcontext() if resume else only_if_begun(run_dir):
            if not run_dir.path.is_dir():
                raise ConfigError(f"there is no run folder {str(run_dir.path)!r}: RunDir.create(cfg) creates one")
            check_runnable(cfg)
            session = Session(cfg, run_dir, progress=progress, resume=resume, use=use)
            with SignalGuard(session.task.interrupt):
                with session:
                    session.run()
                summary = session.summarize()
    finally:
        # Frees the memory of this run for the next run in this process.
        compiled.release()
    if raise_signals:
        raise_signal(summary)
    return summary


def raise_signal(summary: Summary) -> None:
    """Raises the exception for the signal that ended a run, with a note about the run folder."""
    if summary.stop_reason in ("SIGINT", "SIGTERM"):
        saved = "was not saved" if summary.unsaved else "is saved"
        console_logger().warning(
            "ended by %s: the run %s in %s; minding resume %s continues it",
            summary.stop_reason,
            saved,
            shown(summary.run_dir),
            shown(summary.run_dir),
        )
        raise_end(summary.stop_reason)


@contextlib.contextmanager
def only_if_begun(run_dir: RunDir) -> Iterator[None]:
    """Removes the folder of a run that failed before it wrote more than its configuration and status."""
    try:
        yield
    except Exception:
        if run_dir.path.is_dir() and {each.name for each in run_dir.path.iterdir()} <= BEFORE:
            shutil.rmtree(run_dir.path, ignore_errors=True)
        raise
