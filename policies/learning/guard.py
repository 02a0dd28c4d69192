"""Handling of updates that end in NaN or infinity: `learn.on_nan`."""

from __future__ import annotations

import dataclasses
import logging
import math
from collections.abc import Mapping

import numpy as np

from minding.engine.data.batch import IndexedBatch
from minding.engine.errors import NonFiniteError
from minding.engine.throttle import Throttle
from minding.engine.types import Array, LearnOutput, StateDict, Stateful

MAX_SKIPS_IN_A_ROW = 100
_log = logging.getLogger("minding.policies")


class LearnGuard:
    """Checks the metrics and parameters after every learn call of a policy.

    With ``stop``, a metric that is not finite ends the run. With ``skip``, the call is undone as if it had never been
    made, even if only a parameter is not finite; each call then costs a copy of the state. After `MAX_SKIPS_IN_A_ROW`
    undone calls in a row, the run ends nevertheless.

    Args:
      name: name of the policy, for messages.
      on_nan: "stop" or "skip".
      policy: the policy whose parameters are checked and whose state is restored.
    """

    def __init__(self, name: str, on_nan: str, policy: Stateful) -> None:
        self._name = name
        self._skips = on_nan == "skip"
        self._policy = policy
        self._in_a_row = 0
        self._warnings = Throttle()

    def state(self) -> StateDict | None:
        """The state before the call, for `checked`; None in stop mode."""
        return self._policy.state_dict() if self._skips else None

    def checked(self, output: LearnOutput, batch: IndexedBatch, before: StateDict | None) -> LearnOutput:
        """Returns the output of a call; in skip mode an undone call has the metric `skipped` = 1 and 0 steps.

        Args:
          output: output of the call.
          batch: batch of the call, for the error.
          before: result of `state` before the call.
        Raises:
          NonFiniteError: if the run has to end, see above; it contains the rows of the batch and the metrics.
        """
        metrics = output.metrics
        found = _bad_metric(metrics)
        if before is None:
            if found is not None:
                raise self._error(f"{found} after this update", batch, metrics)
            return output
        found = found or _bad_parameter(self._policy.state_dict()["params"])
        if found is None:
            self._in_a_row = 0
            return dataclasses.replace(output, metrics={**metrics, "skipped": 0.0})
        self._policy.load_state_dict(before)
        self._in_a_row += 1
        if self._in_a_row >= MAX_SKIPS_IN_A_ROW:
            raise self._error(f"{found} after each of the last {MAX_SKIPS_IN_A_ROW} updates", batch, metrics)
        if self._warnings.due():
            _log.warning("%s: %s after this update: it was undone (learn.on_nan=skip)", self._name, found)
        return LearnOutput({"skipped": 1.0}, steps=0)

    def _error(self, what: str, batch: IndexedBatch, metrics: Mapping[str, float]) -> NonFiniteError:
        return NonFiniteError(
            f"{self._name}: {what}: lower policy.learn.learning_rate, or look for huge rewards and observations",
            _rows_of(batch),
            dict(metrics),
        )


def _bad_metric(metrics: Mapping[str, float]) -> str | None:
    return next((f"{name} is {value}" for name, value in metrics.items() if not math.isfinite(value)), None)


def _bad_parameter(params: Mapping[str, Array]) -> str | None:
    bad = (name for name, value in params.items() if not np.isfinite(value).all())
    return next((f"a number in parameter {name} is NaN or infinite" for name in bad), None)


def _rows_of(batch: IndexedBatch) -> dict[str, Array]:
    """The rows of a batch by field, and ``index`` ``(K, B)``, the rows among them that each gradient step used."""
    fields, index = batch.distinct()
    return {**fields, "index": index}
