"""Writes the metrics of a run to its folder and shows its progress."""

from __future__ import annotations

import collections
import math
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from minding.engine.chain.context import LearningContext
from minding.engine.chain.middleware import declare
from minding.engine.chain.task import Task
from minding.engine.chain.task import task as global_task
from minding.engine.config.config import Config, run_length
from minding.engine.data.references import References
from minding.engine.errors import FieldError
from minding.engine.run.loggers import MetricsLogger, make_loggers
from minding.engine.run.metrics import CsvWriter
from minding.engine.run.progress import Progress, Status
from minding.engine.run.run_dir import RunDir
from minding.engine.run.run_summary import plays_all_sides, plays_itself
from minding.engine.run.status import StatusFile
from minding.engine.types import EpisodeEnd, StateDict
from minding.middleware.ckpt_saver import CkptSaver
from minding.middleware.ctx_fields import metrics_in, number_in
from minding.middleware.evaluator import info_means
from minding.middleware.termination_checker import TerminationChecker

_EPISODES = 100
_OWN, _MOST_OWN = "return.", 3
_MOST_LINES = 5000
"""Most episodes that wait to be written; `CsvWriter` takes twice as many at a time."""
_ROWS_WAIT = 1.0
"""Seconds between two writes of rows: writing each row alone, between two updates, takes several times as long."""


@declare(
    reads=("clock", "train_iter", "last_eval_iter", "last_eval_value", "last_eval_clock"),
    optional=(
        *("train_output", "episode_stats", "env_episode", "train_epoch", "eval_value", "eval_output", "policy_lag"),
        *("data_eval", "last_data_eval_iter"),
    ),
)
def online_logger(
    cfg: Config,
    run_dir: RunDir | str | Path | None = None,
    *,
    total: int | None = None,
    progress: bool = True,
    references: References | None = None,
    task: Task[Any] | None = None,
) -> OnlineLogger:
    """Logs metrics to CSV, TensorBoard and trackers and shows progress; put it last in the chain.

    Every ``run.metrics_freq`` steps of the clock (environment steps, or gradient steps) a row is written with the means
    since the previous row, so that two runs with the same seed write the same rows (except the ``time/`` columns). Each
    evaluation has its own row, with the mean of each declared key of info (``env.info_keys``) over the last steps of
    its episodes: ``eval/success`` is a success rate. With several agents the row also has the return of each agent, and
    with `references` the normalized return, ``eval/normalized``. Each evaluation on recorded data has a row, too.
    ``status.json`` tells `minding status` about the run. ``episodes.csv`` has a line for every training episode that
    ended. Rows reach the files about once a second, and before a checkpoint that counts them is saved.

    For each row the event ``metrics`` is emitted, in the iteration that completes the row, with the row (column to
    value; None is an empty cell) and its step of the clock.

    Reads: clock, train_iter, last_eval_iter, last_eval_value, last_eval_clock; and if present train_output,
      episode_stats, env_episode, train_epoch, eval_value, eval_output, policy_lag, data_eval, last_data_eval_iter.
    Config: run.metrics_freq, run.log_freq, run.loggers, run.max_env_step, run.max_train_iter, exp_name.

    Args:
      cfg: the compiled configuration.
      run_dir: folder for the files; None writes no files.
      total: end of the run for progress and status, on the clock; the length of the run by default.
      progress: whether to show progress in the terminal.
      references: reference returns, such as the ones in recorded data, by which evaluations are also normalized; None
        leaves the normalized return out.
      task: the task that emits the event; the global one by default.
    """
    task = global_task if task is None else task
    total = run_length(cfg).steps if total is None else total
    run_dir = run_dir if run_dir is None or isinstance(run_dir, RunDir) else RunDir(Path(run_dir))
    logger = OnlineLogger(cfg, task, run_dir, references, total)
    logger.show(Progress(total, cfg.exp_name, refresh=cfg.run.log_freq) if progress else None)
    return logger


class OnlineLogger:
    """The middleware that `online_logger` makes: it owns the writers and the running statistics."""

    def __init__(
        self, cfg: Config, task: Task[Any], run_dir: RunDir | None, references: References | None, total: int
    ) -> None:
        self.total = total
        self._cfg = cfg
        self._task = task
        self._metrics_freq = cfg.run.metrics_freq
        self._plays_itself, self._plays_all_sides = plays_itself(cfg), plays_all_sides(cfg)
        self._tables = None if run_dir is None else (CsvWriter(run_dir.metrics), CsvWriter(run_dir.episodes))
        self._loggers: Sequence[MetricsLogger] = () if run_dir is None else make_loggers(cfg.run.loggers, run_dir)
        self._opened = False
        self._progress: Progress | None = None
        self._references = references
        self._file = None if run_dir is None else StatusFile(run_dir.status)
        self._state = ""
        self._episodes: collections.deque[tuple[float, int]] = collections.deque(maxlen=_EPISODES)
        # Rows that are not written yet, the number of rows before them, and the time of the last write.
        self._rows: list[dict[str, float | None]] = []
        self._rows_before = 0
        # The same of episodes.csv.
        self._lines: list[dict[str, float | None]] = []
        self._written = -math.inf
        self._train = _Means("train/")
        self._lag = _Range("policy_lag/")
        # The clock at the end of the last iteration and at the last row; seconds of earlier processes.
        self._clock = 0
        self._row_clock = 0
        # `train_iter` and `clock` of the policy whose evaluation got a row last.
        self._evaluated: tuple[int, int] | None = None
        # `train_iter` of the policy that was last evaluated on recorded data, and the estimates.
        self._judged: tuple[int, Mapping[str, float]] = -1, {}
        # Means of declared info in the last evaluation, for the display.
        self._shown: dict[str, float] = {}
        self._row_seconds = 0.0
        self._earlier_seconds = 0.0
        self._start = time.monotonic()

    def begin(self) -> None:
        """Writes the status of a run that begins; one that continues has it once its state is restored."""
        self._state = "running"
        if not self._task.resuming:
            self._say()

    def resumed(self, ctx: LearningContext) -> None:
        """Writes the status of a run that continues."""
        self._say()

    def _say(self, reason: str = "") -> None:
        if self._file is not None:
            # Found within the write.
            workers = (worker for lanes in (self._task.lanes,) if lanes is not None for worker in lanes.workers)
            self._file.write(self._task.ctx, self.total, workers, self._state, reason)

    def _say_end(self) -> None:
        """Writes how the run ended; for one that failed before its first iteration, closing does."""
        error, members = self._task.error, self._task.members
        reached = [each.reason for each in members if isinstance(each, TerminationChecker) and each.reason]
        unsaved = any(isinstance(each, CkptSaver) and each.unsaved for each in members)
        why = f"{(*reached, self._task.stop_reason)[0]}{', its last state was not saved' if unsaved else ''}"
        if self._state == "running":
            self._state = "ended" if error is None else "failed"
            self._say(why if error is None else f"{type(error).__name__}: {error}")

    def __call__(self, ctx: LearningContext) -> None:
        metrics = metrics_in(ctx, "online_logger")
        if metrics:
            self._train.add(metrics)
        lag = ctx.optional("policy_lag", dict)
        if lag is not None:
            self._lag.add(lag)
        self._add_episodes(ctx)
        if ctx.eval_value is not None:
            self._write_evaluation(ctx, number_in(ctx.eval_value, "eval_value", "online_logger"))
        judged = ctx.optional("data_eval", dict)
        if judged is not None:
            self._write_judged(ctx, judged)
        clock = ctx.clock
        if clock // self._metrics_freq > self._row_clock // self._metrics_freq:
            self._write_means(ctx)
        if (self._rows or self._lines) and time.monotonic() - self._written >= _ROWS_WAIT:
            self._write_rows()
        self._clock = clock
        if self._progress is not None and self._progress.due():
            self._progress.update(self._status(ctx))

    def finish(self, ctx: LearningContext) -> None:
        """Writes the evaluation that an asynchronous run waited for at its end, the last policy's estimates from
        recorded data, and the means of the last, shorter window."""
        if ctx.eval_value is not None and self._evaluated != (ctx.last_eval_iter, ctx.last_eval_clock):
            self._write_evaluation(ctx, number_in(ctx.eval_value, "eval_value", "online_logger"))
        judged = ctx.optional("data_eval", dict)
        if judged is not None and ctx.optional("last_data_eval_iter", int) == ctx.train_iter:
            # An earlier process has already written this row.
            self._judged = ctx.train_iter, judged
        elif judged is not None:
            self._write_judged(ctx, judged)
        if self._train or ctx.clock > self._row_clock:
            self._write_means(ctx)
        if self._progress is not None:
            self._progress.update(self._status(ctx))
        self._write_rows()
        for writer in (*(self._tables or ()), self._progress):
            if writer is not None:
                writer.flush()
        self._say_end()

    def show(self, progress: Progress | None) -> None:
        """Closes the display in the terminal and replaces it by another; None shows no display."""
        if self._progress is not None:
            self._progress.close()
        self._progress = progress

    def close(self) -> None:
        self._write_rows()
        self._say_end()
        for writer in (*(self._tables or ()), *self._loggers, self._progress):
            if writer is not None:
                writer.close()

    def judged(self, train_iter: int) -> Mapping[str, float]:
        """The estimates from recorded data after `train_iter` gradient steps, by name; empty if there are none."""
        return self._judged[1] if self._judged[0] == train_iter else {}

    @property
    def earlier_seconds(self) -> float:
        """Training time of the earlier processes of a resumed run, in seconds."""
        return self._earlier_seconds

    def state_dict(self) -> StateDict:
        """Positions and running statistics; the rows that they count are on disk when this returns."""
        self._write_rows()
        return {
            "clock": self._clock,
            "row_clock": self._row_clock,
            "seconds": self._seconds(),
            "row_seconds": self._row_seconds,
            "rows": self._rows_before,
            "episodes": [list(episode) for episode in self._episodes],
            "train": self._train.state_dict(),
            "policy_lag": self._lag.state_dict(),
            "tables": {table.path.stem: table.state_dict() for table in self._tables or ()},
        }

    def load_state_dict(self, state: StateDict) -> None:
        """Continues from the point where the state was taken: rows written later are dropped."""
        self._rows.clear()
        self._lines.clear()
        self._rows_before = state["rows"]
        self._clock = state["clock"]
        self._row_clock = state["row_clock"]
        self._earlier_seconds = state["seconds"]
        self._row_seconds = state["row_seconds"]
        self._start = time.monotonic()
        self._episodes.clear()
        self._episodes.extend((value, length) for value, length in state["episodes"])
        self._train.load_state_dict(state["train"])
        self._lag.load_state_dict(state["policy_lag"])
        for table in self._tables or ():
            table.load_state_dict(state["tables"].get(table.path.stem, {"rows": 0, "columns": []}), self._clock)
        for logger in self._loggers:
            logger.purge_after(self._clock, self._rows_before)

    def _add_episodes(self, ctx: LearningContext) -> None:
        ended = ctx.optional("episode_stats", list)
        if not ended:
            return
        self._episodes.extend((end.episode_return, end.episode_length) for end in ended)
        if self._tables is None:
            return
        seconds = self._seconds()
        for end in ended:
            line = {ctx.unit: ctx.clock, "return": end.episode_return, "length": end.episode_length}
            self._lines.append({**line, "time/seconds": seconds})
            if len(self._lines) >= _MOST_LINES:
                self._write_lines()

    def _write_evaluation(self, ctx: LearningContext, value: float) -> None:
        self._evaluated = (ctx.last_eval_iter, ctx.last_eval_clock)
        episodes = ctx.eval_output or ()
        infos = info_means(episodes)
        means = {f"eval/{name}": mean for name, mean in infos.items()}
        spread = _spread(episodes)
        # A large team has too many returns for the display.
        own = [name for name in infos if name.startswith(_OWN)]
        self._shown = {name: mean for name, mean in infos.items() if name not in own or len(own) <= _MOST_OWN}
        if own:
            self._shown["length"] = spread["eval/length_mean"]
        measured = {ctx.unit: ctx.last_eval_clock, "train_iter": ctx.last_eval_iter}
        scores = {} if self._references is None else {"eval/normalized": self._references.normalized(value)}
        self._write({**measured, "eval/return_mean": value, **scores, **spread, **means})

    def _write_judged(self, ctx: LearningContext, judged: Mapping[str, float]) -> None:
        self._judged = ctx.train_iter, judged
        values = {f"eval/{name}": float(value) for name, value in judged.items()}
        self._write({ctx.unit: ctx.clock, "train_iter": ctx.train_iter, "eval/return_mean": None, **values})

    def _write_means(self, ctx: LearningContext) -> None:
        seconds = self._seconds()
        elapsed = seconds - self._row_seconds
        speed = (ctx.clock - self._row_clock) / elapsed if elapsed > 0 else None
        means = {**self._data_seen(ctx), "time/steps_per_second": speed, **self._train.pop(), **self._lag.pop()}
        self._write({ctx.unit: ctx.clock, "train_iter": ctx.train_iter, "eval/return_mean": None, **means})
        self._row_clock = ctx.clock
        self._row_seconds = seconds

    def _data_seen(self, ctx: LearningContext) -> dict[str, float | None]:
        """The data used so far: episodes of the collector, or passes over recorded data."""
        epoch = ctx.optional("train_epoch", int)
        if epoch is not None:
            return {"train_epoch": epoch}
        return {
            "env_episode": ctx.optional("env_episode", int),
            "train/updates_per_step": ctx.train_iter / ctx.clock if ctx.clock else None,
            "collect/return_mean": _mean(value for value, _ in self._episodes),
            "collect/length_mean": _mean(length for _, length in self._episodes),
        }

    def _write(self, row: dict[str, float | None]) -> None:
        row = {**row, "time/seconds": self._seconds()}
        self._rows.append(row)
        self._task.emit("metrics", dict(row), _clock_of(row))
        if self._file is not None and self._file.due:
            self._say()

    def _write_rows(self) -> None:
        rows, self._rows = self._rows, []
        self._rows_before += len(rows)
        if self._tables is not None:
            self._tables[0].write(*rows)
        self._write_lines()
        for logger in self._loggers:
            if rows and not self._opened:
                logger.open(self._cfg, _clock_of(rows[0]))
            for row in rows:
                logger.write({name: value for name, value in row.items() if value is not None}, _clock_of(row))
            logger.flush()
        self._opened = self._opened or bool(rows)
        self._written = time.monotonic()

    def _write_lines(self) -> None:
        lines, self._lines = self._lines, []
        if self._tables is not None:
            self._tables[1].write(*lines)

    def _seconds(self) -> float:
        return round(self._earlier_seconds + time.monotonic() - self._start, 3)

    def _status(self, ctx: LearningContext) -> Status:
        return Status(
            unit=ctx.unit,
            clock=ctx.clock,
            train_iter=ctx.train_iter,
            collect_return=None if self._plays_all_sides else _mean(value for value, _ in self._episodes),
            eval_return=None if ctx.last_eval_value == -math.inf else ctx.last_eval_value,
            not_finite=tuple(self._train.not_finite()),
            eval_info=self._shown,
            games=ctx.optional("env_episode", int) if self._plays_itself else None,
        )


def _clock_of(row: Mapping[str, float | None]) -> int:
    """The clock of a row, its first column."""
    return int(next(iter(row.values())) or 0)


def _spread(episodes: Sequence[EpisodeEnd]) -> dict[str, float]:
    """Standard deviation of the returns of an evaluation, and mean length of its episodes."""
    if not episodes:
        return {}
    returns = np.array([end.episode_return for end in episodes])
    lengths = np.array([end.episode_length for end in episodes])
    return {"eval/return_std": float(returns.std()), "eval/length_mean": float(lengths.mean())}


def _mean(values: Iterable[float]) -> float | None:
    items = list(values)
    return math.fsum(items) / len(items) if items else None


class _Means:
    """Means of named metrics over the iterations since the last `pop`; a NaN makes its mean NaN."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        # Name to [sum, count]: one look-up per metric, because `add` runs in every iteration.
        self._sums: dict[str, list[float]] = {}

    def __bool__(self) -> bool:
        return bool(self._sums)

    def add(self, metrics: Mapping[str, float]) -> None:
        for name, value in metrics.items():
            number = value if type(value) is float else number_in(value, "train_output", "online_logger", name)
            entry = self._sums.get(name)
            if entry is None:
                if not isinstance(name, str) or not name.isprintable():
                    # It becomes a column of metrics.csv.
                    named = "a number under a name of printable text"
                    raise FieldError("train_output", "online_logger", named, value, name)
                self._sums[name] = [number, 1]
            else:
                entry[0] += number
                entry[1] += 1

    def not_finite(self) -> Iterator[str]:
        return (self._prefix + name for name, (total, _) in self._sums.items() if not math.isfinite(total))

    def pop(self) -> dict[str, float]:
        means = {self._prefix + name: total / count for name, (total, count) in self._sums.items()}
        self._sums.clear()
        return means

    def state_dict(self) -> StateDict:
        return {name: list(entry) for name, entry in self._sums.items()}

    def load_state_dict(self, state: StateDict) -> None:
        self._sums = {name: list(entry) for name, entry in state.items()}


class _Range:
    """Minimum, mean and maximum since the last `pop` of values that are given as ``{"min", "mean", "max"}``."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._values: dict[str, list[float]] = {"min": [], "mean": [], "max": []}

    def add(self, values: Mapping[str, float]) -> None:
        for name, kept in self._values.items():
            kept.append(float(values[name]))

    def pop(self) -> dict[str, float]:
        if not self._values["mean"]:
            return {}
        least, means, greatest = self._values.values()
        result = {"min": min(least), "mean": math.fsum(means) / len(means), "max": max(greatest)}
        self._values = {name: [] for name in self._values}
        return {self._prefix + name: value for name, value in result.items()}

    def state_dict(self) -> StateDict:
        return {name: list(kept) for name, kept in self._values.items()}

    def load_state_dict(self, state: StateDict) -> None:
        self._values = {name: list(kept) for name, kept in state.items()}
