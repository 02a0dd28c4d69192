"""The status file of a run."""

import dataclasses
import json
import os
import platform
import subprocess
import sys

import pytest

from minding.engine import ConfigError, OnlineRLContext
from minding.engine.chain.lanes import WorkerStatus
from minding.engine.files import Folder
from minding.engine.process.alive import runs, start_ticks
from minding.engine.run.status import StatusFile, read_status

WORKER = WorkerStatus("collector 0", "process", "here", 4711, "StepCollector", 1, 2, 3.25, 1)


def test_what_is_written_is_read_again(tmp_path):
    file, ctx = StatusFile(tmp_path / "status.json"), OnlineRLContext(total_step=7)
    ctx.env_step, ctx.train_iter = 448, 28
    assert file.due
    file.write(ctx, 1000, [WORKER])
    assert not file.due
    found = read_status(tmp_path / "status.json")
    assert (found.state, found.reason, found.workers) == ("running", "", (WORKER,))
    assert (found.iteration, found.env_step, found.train_iter, found.clock, found.limit) == (7, 448, 28, 448, 1000)
    assert (found.pid, found.node, found.born) == (os.getpid(), platform.node(), start_ticks(os.getpid()))
    assert os.listdir(tmp_path) == ["status.json"]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"state": "sleeping"}, "state='sleeping': expected one of running, ended, failed"),
        ({"unit": "parsecs"}, "unit='parsecs': expected one of env_step"),
        ({"pid": "4711"}, "pid='4711': expected int"),
        ({"limit": True}, "limit=True: expected int"),
        ({"workers": [{}]}, "expected workers.name, kind"),
        ({"workers": [{**dataclasses.asdict(WORKER), "backlog": None}]}, "workers.backlog=None: expected int"),
        ({"more": 1}, "expected an object with state, reason"),
        ({"written": float("nan")}, "written=nan: expected a number from 0 to 100,000,000,000"),
        ({"written": float("inf")}, "written=inf: expected a number"),
        ({"written": 1e30}, "written=1e+30: expected a number"),
        ({"written": -1.0}, "written=-1.0: expected a number"),
        ({"pid": 2**40}, "pid=1099511627776: expected a number from 0 to 2,147,483,648"),
        ({"limit": 10**40}, "expected a number from 0 to"),
        ({"workers": [{**dataclasses.asdict(WORKER), "waited": float("nan")}]}, "workers.waited=nan: expected a"),
    ],
)
def test_a_damaged_file_is_refused_in_one_line(change, reason, tmp_path):
    path = tmp_path / "status.json"
    StatusFile(path).write(OnlineRLContext(), 10, [])
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(ConfigError, match="is not the status of a run") as caught:
        read_status(path)
    assert reason in str(caught.value)
    path.write_text("{")
    with pytest.raises(ConfigError, match="is not the status of a run"):
        read_status(path)


def test_a_failing_disk_is_reported_once_and_leaves_nothing(tmp_path, caplog, monkeypatch):
    def fail(*names):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Folder, "rename", fail)
    file = StatusFile(tmp_path / "status.json")
    for _ in range(2):
        file.write(OnlineRLContext(), 10, [])
    assert caplog.text.count("status.json was not written: No space left on device") == 1
    assert os.listdir(tmp_path) == []


def test_a_process_is_known_by_when_it_began():
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    since = start_ticks(child.pid)
    assert runs(child.pid, platform.node(), since)
    child.kill()
    # Until it has died; it stays to be reaped.
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert runs(child.pid, platform.node(), since) is False
    child.communicate()
    assert runs(child.pid, platform.node(), since) is False
    here = platform.node()
    assert runs(os.getpid(), here, start_ticks(os.getpid())) is True
    assert runs(os.getpid(), here, "1") is False
    assert runs(2**22 + 1, here, None) is False
    assert runs(os.getpid(), "elsewhere", None) is None
