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
      number: number of the iteration, counted from the start of the lane.
      version: version of the weights to act with, retained until the request is answered; their place travels beside
        the message, see `Channel.place`.
      fields: fields of the iteration's context, set before the members run.
    """

    number: int
    version: int
    fields: dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Answer:
    """The result of a request.

    Attributes:
      number: number of the request.
      fields: fields that the members wrote and that are read elsewhere.
      state: state of the worker after the request, see `Worker.state_dict`. During the transfer, ``members`` may be the
        `Changes` since the worker's last answer.
      spans: the times at which members ran.
      finish: whether a member requested the end of the run.
      events: events that members emitted, each pickled: event, arguments, keyword arguments.
    """

    number: int
    fields: dict[str, Any]
    state: StateDict
    spans: list[Span]
    finish: bool
    events: list[bytes]


@dataclasses.dataclass(frozen=True)
class Failure:
    """An exception that ended a worker.

    Attributes:
      error: the exception, or a LaneError that quotes it if it cannot be pickled.
      text: traceback of the exception.
    """

    error: Exception
    text: str
