"""The end of a run: requests for it, and its reason."""

from __future__ import annotations

import operator

from minding.engine.errors import ChainError, ConfigError


class Ending:
    """The part of a task through which middleware and hooks request the end of a run and learn its reason."""

    _finish: bool
    _started: bool
    _running: bool
    _signal: str | None
    _stop_reason: str | None
    _error: BaseException | None

    @property
    def finish(self) -> bool:
        """Whether the run ends after this iteration; middleware set it to True, and `run` resets it to False.

        Raises:
          ChainError: it is set to True on a task that is not started, where it would have no effect.
        """
        return self._finish or self._signal is not None

    @finish.setter
    def finish(self, value: bool) -> None:
        if value and not (self._started or self._running):
            raise ChainError(
                "task.finish: this task is not started. An Agent and `minding train` run a task of their own: a class "
                "or factory given as `use` receives it as its argument `task`, as in def __init__(self, task)"
            )
        self._finish = bool(value)

    @property
    def interrupted_by(self) -> str | None:
        """Name of the signal that requested the end, or None; after one, middleware skip all work that can wait."""
        return self._signal

    @property
    def error(self) -> BaseException | None:
        """The exception that is ending the run, for its finish hooks; None for any other end, and after the hooks."""
        return self._error

    @property
    def stop_reason(self) -> str | None:
        """Why the last run ended: ``max_step, finish, SIGINT, SIGTERM, exception``; None before that."""
        return self._stop_reason

    def interrupt(self, signal: str) -> None:
        """Ends the run as the signal of that name would: after this iteration, or before the next one begins."""
        self._signal = signal


def check_max_step(max_step: int | None) -> int | None:
    if max_step is None:
        return None
    try:
        limit = -1 if isinstance(max_step, bool) else operator.index(max_step)
    except TypeError:
        limit = -1
    if limit < 0:
        raise ConfigError(f"run: max_step must be an integer of 0 or more (1000, not 1e3), got {max_step!r}")
    return limit
