"""One process at a time writes a run."""

import errno
import fcntl
import os
import shutil
import subprocess
import sys

import pytest

from minding.engine.errors import RunInUseError
from minding.engine.run import lock as run_lock
from minding.engine.run.lock import RunLock, lost
from minding.engine.run.metrics import CsvWriter

ENV = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
HOLDER = """
import sys, time
from minding.engine.run.lock import RunLock
RunLock(sys.argv[1]).acquire()
print("held", flush=True)
time.sleep(600)
"""


@pytest.fixture
def other():
    """Another process that locks a folder until it is killed."""
    processes = []

    def hold(folder):
        process = subprocess.Popen([sys.executable, "-c", HOLDER, folder], stdout=subprocess.PIPE, text=True, env=ENV)
        processes.append(process)
        assert process.stdout.readline() == "held\n"
        return process

    yield hold
    for process in processes:
        process.kill()
        process.wait()
        process.stdout.close()


def test_a_second_process_learns_who_has_the_run(tmp_path, other):
    holder = other(tmp_path)
    lock = RunLock(tmp_path)
    with pytest.raises(RunInUseError, match=rf"in use by process {holder.pid} on \S+: wait for it to end"):
        lock.acquire()
    holder.kill()
    holder.wait()
    with lock:
        assert (tmp_path / ".lock").read_text() == f"process {os.getpid()} on {os.uname().nodename}\n"


def test_a_process_has_one_lock_on_a_run(tmp_path):
    first, second = RunLock(tmp_path), RunLock(tmp_path / "." / "")
    first.acquire()
    first.acquire()
    second.acquire()
    second.release()
    with open(tmp_path / ".lock") as file:
        with pytest.raises(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        first.release()
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_without_locks_on_the_file_system_there_is_a_warning(tmp_path, monkeypatch, caplog):
    def refuse(descriptor, operation):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(run_lock.fcntl, "flock", refuse)
    with RunLock(tmp_path):
        assert not lost(tmp_path)
    assert "cannot be locked (No locks available): make sure that no other process writes this run" in caplog.text


def test_a_folder_that_was_made_for_the_lock_alone_goes_with_it(tmp_path):
    with RunLock(tmp_path / "run"):
        assert (tmp_path / "run").is_dir()
    assert not (tmp_path / "run").exists()
    with RunLock(tmp_path / "run"):
        (tmp_path / "run" / "row").touch()
    assert (tmp_path / "run").is_dir()


def test_what_replaced_a_removed_folder_is_locked_first(tmp_path, other):
    folder = tmp_path / "run"
    writer = CsvWriter(folder / "metrics.csv")
    with RunLock(folder) as lock:
        writer.write({"env_step": 1})
        shutil.rmtree(folder)
        holder = other(folder)
        (folder / "metrics.csv").write_text("env_step\n7\n")
        assert lost(folder)
        writer.write({"env_step": 2})
        with pytest.raises(RunInUseError, match=f"process {holder.pid}"):
            lock.renew()
        writer.write({"env_step": 3})
        assert (folder / "metrics.csv").read_text() == "env_step\n7\n"
        shutil.rmtree(folder)
        lock.renew()
        assert not lost(folder)
        writer.write({"env_step": 4})
    # Those that had to wait came after all.
    assert (folder / "metrics.csv").read_text() == "env_step\n2\n3\n4\n"
