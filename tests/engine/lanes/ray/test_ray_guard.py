"""A run whose machine loses a process of Ray says so, saves its state and ends."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from lane_toys import has_ray

needs_ray = pytest.mark.skipif(not has_ray(), reason="needs the extra 'ray'")
SETTINGS = ["--async", "--cluster", "local", "--no-progress", "run.max_env_step=100000000", "lanes.collectors=1"]


def children(pid):
    """Ids of all processes that descend from one, with their command lines."""
    found = {}
    for process in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((process / "stat").read_text().rpartition(")")[2].split()[1])
            command = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except OSError:
            continue
        if parent == pid:
            found |= {int(process.name): command, **children(int(process.name))}
    return found


@needs_ray
@pytest.mark.slow
@pytest.mark.parametrize(
    ("program", "number", "message"),
    [
        ("/raylet/raylet ", signal.SIGKILL, r"node manager (raylet) on this machine, process {pid}, has ended"),
        ("/raylet/raylet ", signal.SIGSTOP, r"node manager (raylet) on this machine, process {pid}, has been stopped"),
        ("/gcs/gcs_server ", signal.SIGKILL, "the head of the Ray cluster (GCS, 127.0.0.1:"),
    ],
)
def test_a_run_that_loses_a_process_of_ray_saves_its_state(program, number, message, tmp_path):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-m", "minding", "train", "cartpole_ppo", *SETTINGS]
    # Processes of Ray inherit the output: a pipe would stay open.
    output = tmp_path / "output"
    with (
        output.open("w") as file,
        subprocess.Popen(command, env=environment, cwd=tmp_path, stdout=file, stderr=subprocess.STDOUT) as process,
    ):
        status = tmp_path / "runs" / "cartpole_ppo" / "status.json"
        deadline = time.monotonic() + 100.0
        while not status.exists() or json.loads(status.read_text())["iteration"] < 3:
            assert process.poll() is None, output.read_text()
            assert time.monotonic() < deadline
            time.sleep(0.2)
        (pid,) = [pid for pid, command in children(process.pid).items() if program in command]
        os.kill(pid, number)
        began = time.monotonic()
        try:
            process.wait(timeout=60)
        finally:
            process.kill()
    text = output.read_text()
    assert (process.returncode, time.monotonic() - began < 15.0) == (1, True), text
    (said,) = [line for line in text.splitlines() if line.startswith("minding: ")]
    assert "`minding resume RUN`" in said
    if number == signal.SIGKILL and said.startswith("minding: Ray ended this process"):
        # It was killed during a call that used its object store.
        assert "raylet" in program
        return
    assert message.format(pid=pid) in said
    assert "Raylet is terminated" not in text
    assert json.loads(status.read_text())["state"] == "failed"
    assert list((status.parent / "ckpt").glob("iter_*/manifest.json"))
