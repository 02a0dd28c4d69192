"""One run: its chain, its checkpoints and logs, its final evaluation."""

from __future__ import annotations

import contextlib
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

from minding.engine.config.config import Config
from minding.engine.console import console_logger
from minding.engine.errors import ConfigError
from minding.engine.process import compiled
from minding.engine.process.signals import SignalGuard
from minding.engine.run.lock import LOCK_FILE
from minding.engine.run.run_dir import RunDir
from minding.training.assembly import check_runnable
from minding.training.own import Given
from minding.training.session import Session, Summary

_BEFORE = {"config.yaml", "status.json", LOCK_FILE}
"""Contents of a run folder before the run has done anything."""


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
        _raise_signal(summary)
    return summary


def _raise_signal(summary: Summary) -> None:
    """Raises the exception for the signal that ended a run, with a note about the run folder."""
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
def only_if_begun(run_dir: RunDir) -> Iterator[None]:
    """Removes the folder of a run that failed before it wrote more than its configuration and status."""
    try:
        yield
    except Exception:
        if run_dir.path.is_dir() and {each.name for each in run_dir.path.iterdir()} <= _BEFORE:
            shutil.rmtree(run_dir.path, ignore_errors=True)
        raise
