"""Asynchronous runs that are killed and resumed: what is exact, what is lost, and what is never counted twice."""

import json
import shutil
import signal
import subprocess
import sys

import lane_toys as toys
import pytest
from lane_toys import Record, ToyCollector, ToyContext, ToyEnv, ToyEvaluator, ToyLearner, ToyPolicy, toy_explorer

from minding.engine import Task
from minding.engine.checkpoint import load_checkpoint, newest_checkpoint
from minding.middleware import CkptSaver

STEPS = 12
EXACT = {"max_staleness": 0}
AHEAD = {"max_staleness": 2, "collectors": 2}


def play(folder, lanes=None, resume=None, photograph=None, steps=STEPS):
    """Runs the toys with a checkpoint every second iteration; `photograph`: (iteration, folder to copy it to)."""
    policy, task = ToyPolicy(), Task()

    def copy(ctx):
        if photograph is not None and ctx.total_step == photograph[0]:
            shutil.copytree(folder, photograph[1])

    with task.start(lanes is not None, ToyContext(), lanes=lanes, resume=resume):
        task.use(ToyEvaluator(policy.mode, 6)).use(toy_explorer()).use(ToyCollector(policy.mode, ToyEnv()))
        task.use(ToyLearner(policy))
        record = Record(policy, copy)
        task.use(record).use(CkptSaver(policy, "run", 4, out_dir=folder, task=task))
        task.run(max_step=steps)
    return toys.Outcome(record, policy, task, 0)


def newest(folder):
    return load_checkpoint(newest_checkpoint(folder / "run" / "ckpt"))


def test_without_staleness_a_resumed_run_is_an_unbroken_one(tmp_path):
    first = play(tmp_path / "runs", EXACT, photograph=(7, tmp_path / "copy"))
    assert first.rows == play(tmp_path / "synchronous").rows
    _, manifest = newest(tmp_path / "copy")
    assert (manifest["guarantee"], manifest["total_step"]) == ("exact", 6)
    resumed = play(tmp_path / "copy", EXACT, resume="latest")
    assert resumed.rows == first.rows[6:]
    state, manifest = newest(tmp_path / "copy")
    assert manifest["guarantee"] == "exact"
    assert toys.plain(state["policy"]) == toys.plain(newest(tmp_path / "runs")[0]["policy"])


SCRIPT = """
import sys
sys.path[:] = {path!r}
from pathlib import Path
sys.path.insert(0, {contract!r})
import test_async_resume as own

record = own.Record.__call__

def tell(self, ctx):
    record(self, ctx)
    print(ctx.total_step, flush=True)

own.Record.__call__ = tell
own.play(Path({folder!r}), {lanes!r}, steps=100_000)
"""


@pytest.mark.slow
@pytest.mark.parametrize("lanes", [EXACT, AHEAD], ids=["exact", "ahead"])
def test_a_killed_run_loses_less_than_two_intervals_and_goes_on(lanes, tmp_path):
    code = SCRIPT.format(path=sys.path, contract=__file__.rpartition("/")[0], folder=str(tmp_path), lanes=lanes)
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    for line in process.stdout:
        if int(line) >= 7:
            break
    process.send_signal(signal.SIGKILL)
    last = max([int(line), *map(int, process.communicate()[0].split())])
    _, manifest = newest(tmp_path)
    # Saved when an even number of iterations was over; the one of the kill is not.
    assert manifest["total_step"] >= last - 2
    resumed = play(tmp_path, lanes, resume="latest", steps=manifest["total_step"] + 4)
    assert resumed.record.column("total_step")[0] == manifest["total_step"]
    assert resumed.record.rows[-1]["train_iter"] == 2 * (manifest["total_step"] + 4)
    if lanes is EXACT:
        rows = play(tmp_path / "whole", steps=manifest["total_step"] + 4).rows
        assert resumed.rows == rows[manifest["total_step"] :]
    assert json.loads(json.dumps(manifest))["guarantee"] == ("exact" if lanes is EXACT else "in-flight")
