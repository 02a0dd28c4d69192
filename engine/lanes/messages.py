"""The messages that lanes exchange."""

from __future__ import annotations

import dataclasses
from typing import Any

from minding.engine.chain.trace import Span
from minding.engine.types import StateDict


@dataclasses.dataclass(frozen=True)
class Request:
    """One iteration's work for a worker.

    Attributes:
      number: of the iteration, counted from the start of the lane.
      version: of the weights to act with, retained until the request is answered; where they are travels beside it,
        see `Channel.place`.
      fields: of the iteration's context, set before the members run.
    """

    number: int
    version: int
    fields: dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Answer:
    """The result of a request.

    Attributes:
      number: of the request.
      fields: that the members wrote and that something else reads.
      state: of the worker after it, see `Worker.state_dict`. On the way, ``members`` may be the `Changes` since the
        worker's last answer.
      spans: what took how long.
      finish: whether a member asked for the end of the run.
      events: that members emitted, each pickled: event, arguments, keyword arguments.
    """

    number: int
    fields: dict[str, Any]
    state: StateDict
    spans: list[Span]
    finish: bool
    events: list[bytes]


@dataclasses.dataclass(frozen=True)
class Failure:
    """An exception in a worker, which ends there.

    Attributes:
      error: the exception, or a LaneError that says what it was if it cannot be pickled.
      text: its traceback.
    """

    error: Exception
    text: str
