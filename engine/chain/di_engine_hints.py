"""Arguments and attributes of DI-engine's task that do not exist here, each with its replacement."""

from __future__ import annotations

from collections.abc import Iterable

from minding.engine.errors import ChainError, nearest

_NO_LABELS = "there are no labels; use an `if` around task.use"
_LOCK = "omit `lock`: no two middleware of a process run at the same time, except within `parallel`"
_LOCAL = ": events stay in the run; those of lanes reach the handlers in the main process"
_ARGUMENTS = {
    "n_async_workers": "n_async_workers is the number of DI-engine's threads; lanes are processes: "
    "start(async_mode=True, lanes={'collectors': 2, 'max_staleness': 1})",
    "labels": _NO_LABELS,
    "filter_labels": _NO_LABELS,
    "attach_callback": "processes are not attached to a run; resume= continues from its checkpoint",
    "lock": _LOCK,
    "only_remote": f"omit `only_remote`{_LOCAL}",
    "only_local": f"omit `only_local`{_LOCAL}",
    "ignore_timeout_exception": "omit `ignore_timeout_exception`: wait_for raises TimeoutError, to be caught",
}
ATTRIBUTES = {
    "router": "lanes start their own processes: task.start(async_mode=True)",
    "parallel_ctx": "lanes start their own processes: task.start(async_mode=True)",
    "labels": _NO_LABELS,
    "match_labels": _NO_LABELS,
    "void": "use `lambda ctx: None`, or an `if` around task.use",
    "sync": "there is nothing to wait for: an iteration ends when all of its middleware have",
    "async_executor": "use task.parallel(...) for middleware that wait for something",
    "sequence": "use task.serial(...)",
    "use_step_wrapper": "use task.use_wrapper(...)",
    "emit_remote": f"use emit; {_LOCAL.removeprefix(': ')}",
}


def refuse_arguments(method: str, given: Iterable[str], known: Iterable[str]) -> None:
    """Refuses arguments that a method of the task does not have.

    Raises:
      ChainError: an argument is unknown; the message names its replacement, or the nearest of `known`.
    """
    for name in given:
        hint = _ARGUMENTS.get(name) or f"there is no argument {name!r}{nearest(name, known)}"
        raise ChainError(f"{method}: {hint}")
