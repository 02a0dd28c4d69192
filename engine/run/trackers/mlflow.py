"""MLflow (extra `mlflow`). Its own variables choose server and experiment: `MLFLOW_TRACKING_URI=sqlite:///mlflow.db`."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from typing import Any

from minding.engine.process.installed import import_installed
from minding.engine.run.loggers import flat
from minding.engine.run.trackers import Names, Row, TrackedRun

_MOST = 1000
"""Maximum number of metrics in one request to MLflow."""
_MOST_TEXT = 500
_MOST_PARAMS = 100


class Client:
    """Sends rows to a run of MLflow through its client, so that a run that the user has active is not affected."""

    _client: Any = None
    _id = ""

    def start(self, run: TrackedRun, id: str | None) -> tuple[str, int | None]:
        import_installed("mlflow")
        from mlflow import MlflowClient
        from mlflow.entities import Param

        self._client = MlflowClient()
        if id is not None:
            self._client.set_terminated(id, "RUNNING")
            self._id = id
            return id, None
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME", "minding")
        experiment = self._client.get_experiment_by_name(name)
        place = self._client.create_experiment(name) if experiment is None else experiment.experiment_id
        self._id = self._client.create_run(place, run_name=run.name, tags={"group": run.group or ""}).info.run_id
        names = Names()
        params = [Param(names.of(key), str(value)[:_MOST_TEXT]) for key, value in flat(run.settings)]
        for begin in range(0, len(params), _MOST_PARAMS):
            self._client.log_batch(self._id, params=params[begin : begin + _MOST_PARAMS])
        return self._id, 0

    def log(self, rows: Sequence[Row]) -> None:
        from mlflow.entities import Metric

        now = int(1000 * time.time())
        metrics = [Metric(name, value, now, row.step) for row in rows for name, value in row.values.items()]
        for begin in range(0, len(metrics), _MOST):
            self._client.log_batch(self._id, metrics=metrics[begin : begin + _MOST])

    def finish(self) -> None:
        self._client.set_terminated(self._id)
