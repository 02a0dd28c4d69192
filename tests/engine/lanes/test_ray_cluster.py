"""Clusters: what a local one leaves behind and listens on, and what happens on machines that fail."""

import importlib.util
import os
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from lane_toys import DieOnce, run

from minding.engine.errors import ConfigError, LaneError
from minding.engine.lanes import supervised
from minding.engine.lanes.ray import machines
from minding.engine.lanes.ray.cluster import _stay_within_this_machine, has_token
from minding.engine.lanes.ray.transport import RayTransport
from minding.engine.process.alive import start_ticks

needs_ray = pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="needs the extra 'ray'")

BEGINS = """
import sys, time
import numpy as np
from minding.engine.lanes.ray import cluster
from minding.engine.lanes.ray.transport import RayTransport

transport = RayTransport("local")
board = transport.board({"w": np.zeros(3)}, 3)
worker = transport.start("collector", board, 2, frozenset())
while not worker.heartbeat.beats:
    pass
listeners = cluster._listeners([cluster.os.getpid(), *cluster._descendants()])
print(*cluster._descendants(), flush=True)
print(cluster.os.environ["RAY_AUTH_TOKEN_PATH"], flush=True)
print(*sorted({address for address, port in listeners}), flush=True)
sys.stdin.readline()
"""


@needs_ray
def test_a_local_cluster_is_closed_to_others_and_ends_with_its_process_however_that_ends():
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", BEGINS], env=environment, **pipes) as process:
        pids = {int(pid): start_ticks(int(pid)) for pid in process.stdout.readline().split()}
        token = Path(process.stdout.readline().strip())
        assert set(process.stdout.readline().split()) <= {"127.0.0.1", "::ffff:127.0.0.1", "::1"}
        assert stat.S_IMODE(token.stat().st_mode) == 0o600
        assert stat.S_IMODE(token.parent.stat().st_mode) == 0o700
        assert len(token.read_text()) == 64
        process.kill()
    # Its agents wait over a minute when nobody ends them.
    deadline = time.monotonic() + 10.0
    while any(start_ticks(pid) == since for pid, since in pids.items()):
        assert time.monotonic() < deadline
    assert len(pids) > 5
    assert not token.parent.exists()


@pytest.fixture(scope="module")
def cluster():
    """A machine for the learner and two with a CPU each, simulated on this one."""
    if importlib.util.find_spec("ray") is None:
        pytest.skip("needs the extra 'ray'")
    # For this process: later tests start local clusters.
    _stay_within_this_machine()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_AUTH_MODE", "disabled")
        from ray.cluster_utils import Cluster

        made = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
        for _ in range(2):
            made.add_node(num_cpus=1)
        yield made
        made.shutdown()


def lanes_of(cluster, **options):
    return {"transport": "ray", "address": cluster.address, "insecure": True, "max_staleness": 0, **options}


class KillMachine(DieOnce):
    """Takes the machine down that the worker is on, in the middle of a rollout."""

    def die(self):
        os.kill(os.getppid(), signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)


def test_a_machine_that_dies_is_replaced_at_once_and_nothing_changes(cluster, tmp_path, caplog):
    died = run(6, lanes_of(cluster), event=KillMachine(tmp_path, count=2, t=3))
    assert died.restarts == 1
    assert died.rows == run(6).rows
    assert "the actor of collector ended: " in caplog.text


def test_a_worker_without_a_place_is_reported_and_ends_the_run(cluster, monkeypatch, caplog):
    # As if each worker took more than any machine has.
    monkeypatch.setattr(supervised, "_FIRST_REPORT", 0.2)
    monkeypatch.setattr(RayTransport, "cpus", 100)
    with pytest.raises(ConfigError, match=r"the run has 1 worker, which takes 100 CPUs, and the cluster has"):
        run(2, lanes_of(cluster))
    monkeypatch.setattr(RayTransport, "inspect", lambda transport, workers: ())
    expected = r"collector found no place within 0\.6 s \(lanes\.start_timeout\): it waits for a place: it asks for"
    with pytest.raises(LaneError, match=rf"{expected} 100 free CPUs, and \S+ has \d of \d"):
        run(2, lanes_of(cluster, timeout=0.5, start_timeout=0.6))
    assert "which waits for a place: it asks for 100 free CPUs, and " in caplog.text
    assert "without one the run ends after 0.6 s (lanes.start_timeout)" in caplog.text


# Without Ray


HERE = {
    "Python": "3.11.2",
    "minding": "0.1",
    "numpy": "2.0",
    "ray": "2.60.0",
    "mindspore": "2.7",
    "processor": "A (x86)",
}


def test_machines_are_compared_before_the_first_worker_starts(caplog):
    assert machines.compare(HERE, {"b": HERE, "c": {**HERE, "mindspore": ""}}) == ("A (x86)",)
    assert caplog.text == ""
    assert machines.compare(HERE, {"b": HERE, "c": {**HERE, "processor": "B (arm)"}}) == ("A (x86)", "B (arm)")
    assert "different processors (A (x86), B (arm)): the run repeats bit for bit only where" in caplog.text
    for change, said in (({"numpy": "1.26"}, "numpy 1.26, this one 2.0"), ({"minding": ""}, "minding not installed, ")):
        with pytest.raises(ConfigError, match=rf"machine c of the cluster has {said}"):
            machines.compare(HERE, {"b": HERE, "c": {**HERE, **change}})
    found = machines.describe(["numpy", "no_such_package"])
    assert found["numpy"] == np.__version__
    assert found["no_such_package"] == ""


def test_a_token_is_looked_for_where_ray_does(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"):
        monkeypatch.delenv(name, raising=False)
    assert not has_token()
    (tmp_path / ".ray").mkdir()
    (tmp_path / ".ray" / "auth_token").write_text("0123")
    assert has_token()
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    assert not has_token()
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(tmp_path / "none"))
    assert not has_token()
    monkeypatch.setenv("RAY_AUTH_TOKEN", "0123")
    assert has_token()
