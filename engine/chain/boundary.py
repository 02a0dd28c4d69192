"""The boundary between two iterations, where a task's state is exact."""

from __future__ import annotations

from collections.abc import Callable

from minding.engine.chain.middleware import name_of
from minding.engine.errors import ChainError
from minding.engine.notes import add_note


class Boundary:
    """Knows whether an iteration is running, and calls functions when it is over.

    Attributes:
      within: whether an iteration is running, or was aborted by an error.
    """

    def __init__(self) -> None:
        self.within = False
        self._calls: list[Callable[[], object]] = []

    def add(self, fn: Callable[[], object]) -> None:
        """Calls `fn` once at the end of this iteration.

        Raises:
          ChainError: no iteration is running.
        """
        if not self.within:
            raise ChainError("at_boundary: no iteration is running; call it from a middleware")
        self._calls.append(fn)

    def drop(self) -> None:
        """Forgets the functions to call, because the iteration was aborted."""
        self._calls.clear()

    def reach(self, step: int) -> None:
        """Ends the iteration numbered `step` and calls, in order, the functions that were added during it."""
        self.within = False
        if not self._calls:
            return
        calls, self._calls = self._calls, []
        for call in calls:
            try:
                call()
            except BaseException as error:
                add_note(error, f"in {name_of(call)!r} at the end of step {step}")
                raise
