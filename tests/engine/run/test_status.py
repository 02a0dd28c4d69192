"""The status file of a run."""

import os
import platform
import subprocess
import sys

from minding.engine import OnlineRLContext
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
