"""The trackers' real packages, offline: a process is killed, another one resumes, and each row is there once."""

import math
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from minding.engine.run.metrics import read_metrics
from minding.engine.run.run_dir import RunDir
from minding.engine.run.trackers import Names, records

# The process that is killed has sent rows that its checkpoint does not count. Each evaluation has a row of its own.
SCRIPT = """
import math, os, pickle, signal, sys
from minding.engine import Config
from minding.engine.chain.context import OnlineRLContext
from minding.middleware.online_logger import online_logger

def iterate(begin, end):
    for n in range(begin, end):
        ended = {"eval_value": n / 2, "last_eval_iter": 2 * n, "last_eval_clock": 4 * n - 1} if n % 4 == 0 else {}
        metrics = {"loss": math.nan if n == 3 else n / 3, 'top-5 (%), "raw"': n}
        logger(OnlineRLContext(total_step=n, env_step=4 * n, train_iter=2 * n, train_output=metrics, **ended))

name, resume = sys.argv[1], sys.argv[2:]
run = {"max_env_step": 1000, "log_freq": 0.5, "metrics_freq": 8, "loggers": [name]}
cfg = Config(exp_name="run", seed=3, run=run, policy={"hidden": [8, 8], "odd (%)": 1})
logger = online_logger(cfg, "run", progress=False)
before = signal.getsignal(signal.SIGINT)
if resume:
    logger.load_state_dict(pickle.load(open("state", "rb")))
    iterate(5, 13)
    logger.close()
else:
    iterate(1, 5)
    pickle.dump(logger.state_dict(), open("state", "wb"))
    iterate(5, 9)
    logger.state_dict()
# Ctrl-C still ends the run with a checkpoint.
assert signal.getsignal(signal.SIGINT) == before
if not resume:
    os.kill(os.getpid(), signal.SIGKILL)
"""


def of_wandb(folder):
    import json

    from wandb.proto.wandb_internal_pb2 import Record

    found = [
        Record.FromString(data)
        for path in sorted(folder.glob("run/trackers/wandb/offline-run-*/*.wandb"))
        for data in records(path)
    ]
    rows = [
        {"/".join(item.nested_key) or item.key: json.loads(item.value_json) for item in each.history.item}
        for each in found
        if each.HasField("history")
    ]
    assert [row["_step"] for row in rows] == list(range(len(rows)))
    return [(row["env_step"], name, float(value)) for row in rows for name, value in row.items() if name[0] != "_"]


def of_mlflow(folder):
    from mlflow import MlflowClient

    client = MlflowClient(f"sqlite:///{folder}/ml.db")
    (run,) = client.search_runs([client.get_experiment_by_name("minding").experiment_id])
    assert (run.info.status, run.data.params["policy.hidden"]) == ("FINISHED", "[8, 8]")
    histories = [client.get_metric_history(run.info.run_id, name) for name in run.data.metrics]
    return [(each.step, each.key, each.value) for history in histories for each in history]


def of_swanlab(folder):
    from swanlab.proto.swanlab.record.v1.record_pb2 import Record

    paths = folder.glob("run/trackers/swanlab/run-*/*.swanlab")
    found = [Record.FromString(data) for path in paths for data in records(path)]
    scalars = [each.scalar for each in found if each.HasField("scalar")]
    return [(scalar.step, scalar.key, scalar.value.number) for scalar in scalars]


READERS = {"wandb": of_wandb, "mlflow": of_mlflow, "swanlab": of_swanlab}


# MLflow uses a part of SQLAlchemy that is deprecated.
@pytest.mark.filterwarnings("ignore:The ``noload`` loader strategy")
@pytest.mark.parametrize("name", READERS)
def test_each_row_is_tracked_once_after_a_kill_and_a_resume(name, tmp_path):
    pytest.importorskip(name)
    offline = {"WANDB_MODE": "offline", "SWANLAB_MODE": "offline", "MLFLOW_TRACKING_URI": f"sqlite:///{tmp_path}/ml.db"}
    path = os.pathsep.join([str(Path(__file__).parents[3] / "src"), os.environ.get("PYTHONPATH", "")])
    for resume, code in (([], -signal.SIGKILL), (["resume"], 0)):
        command = [sys.executable, "-c", SCRIPT, name, *resume]
        done = subprocess.run(
            command, cwd=tmp_path, env={**os.environ, **offline, "PYTHONPATH": path}, capture_output=True, text=True
        )
        assert (done.returncode, "failed (" in done.stderr) == (code, False), done.stderr
    table = read_metrics(RunDir(tmp_path / "run").metrics)
    names = Names()
    expected = [
        (int(step), names.of(column), value)
        for column, values in table.items()
        for step, value in zip(table["env_step"], values, strict=True)
        if not column.startswith("time/") and not (np.isnan(value) and (column, step) != ("train/loss", 16))
    ]
    found = [each for each in READERS[name](tmp_path) if not each[1].startswith("time/")]
    assert len(expected) > 30
    # NaN equals nothing, not even itself.
    assert sorted(map(comparable, found)) == sorted(map(comparable, expected))


def comparable(entry):
    step, column, value = entry
    return step, column, "nan" if math.isnan(value) else value
