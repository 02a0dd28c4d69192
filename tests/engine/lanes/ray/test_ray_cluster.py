"""Clusters: what a local one leaves behind and listens on, and what happens on machines that fail."""

import importlib
import os
import re
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from lane_toys import DieOnce, has_ray, random_delay, run, toy_explorer

from minding.engine.errors import ConfigError, LaneError
from minding.engine.lanes import supervised
from minding.engine.lanes.ray import machines, transport
from minding.engine.lanes.ray.cluster import _stay_within_this_machine, has_token
from minding.engine.lanes.ray.machines import pack, unpack
from minding.engine.lanes.ray.transport import RayTransport
from minding.engine.process.alive import start_ticks

needs_ray = pytest.mark.skipif(not has_ray(), reason="needs the extra 'ray'")

BEGINS = """
import sys, time
import numpy as np
from minding.engine.lanes.ray import cluster
from minding.engine.lanes.ray.transport import RayTransport

transport = RayTransport("local")
store = transport.store({"w": np.zeros(3)}, 3)
worker = transport.start("collector", store, 2, frozenset())
while not worker.heartbeat.beats:
    pass
listeners = cluster._listeners([cluster.os.getpid(), *cluster._descendants()])
print(*cluster._descendants(), flush=True)
print(cluster.os.environ["RAY_AUTH_TOKEN_PATH"], flush=True)
print(*sorted({address for address, port in listeners}), flush=True)
sys.stdin.readline()
"""


@needs_ray
def test_a_local_cluster_is_closed_and_ends_with_its_process():
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
    if not has_ray():
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


@pytest.mark.slow
def test_workers_share_the_cpus_and_move_to_a_new_machine(cluster, monkeypatch, caplog):
    monkeypatch.setattr(transport, "_LOOK", 0.5)
    lanes = {"collectors": 3, "max_staleness": 2}
    kinds, joined = [], []

    def watch(task, ctx):
        kinds.append(sorted(worker.kind for worker in task.lanes.workers))
        if ctx.total_step == 5:
            joined.append(cluster.add_node(num_cpus=3))

    shared = run(40, lanes_of(cluster, **lanes), event=random_delay, also=[watch])
    assert shared.rows == run(40, {**lanes, "transport": "threads"}, event=random_delay).rows
    cluster.remove_node(joined[0])
    assert kinds[4].count("actor (shares a CPU)") >= 1
    assert kinds[-1] == ["actor"] * 3
    assert re.search(r"the run has 3 workers, and the cluster \d CPUs: workers share them", caplog.text)


@pytest.mark.slow
def test_a_worker_runs_on_a_machine_that_offers_its_resources(cluster):
    special = cluster.add_node(num_cpus=0, resources={"NPU": 1})
    raylet, parents = special.all_processes["raylet"][0].process.pid, set()

    def watch(task, ctx):
        (pid,) = [worker.pid for worker in task.lanes.workers]
        parents.add(int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1]))

    wanted = {"collector": {"CPU": 0, "NPU": 1}}
    found = run(3, lanes_of(cluster, resources=wanted), also=[watch])
    assert found.rows == run(3).rows
    assert parents == {raylet}
    with pytest.raises(ConfigError, match=r"no machine of the cluster offers 2 NPU to one collector; .* CPU, NPU, "):
        run(3, lanes_of(cluster, resources={"collector": {"NPU": 2}}))
    cluster.remove_node(special)


@pytest.mark.slow
def test_modules_that_machines_lack_are_sent_to_their_workers(cluster, tmp_path, monkeypatch):
    (tmp_path / "only_here.py").write_text("def passes(ctx):\n    pass\n")
    with monkeypatch.context() as patch:
        patch.syspath_prepend(tmp_path)
        passes = importlib.import_module("only_here").passes
    also_collects = {"before": [toy_explorer(), passes], "role": "collect"}
    with pytest.raises(ModuleNotFoundError, match="No module named 'only_here'"):
        run(3, lanes_of(cluster), **also_collects)
    assert run(3, lanes_of(cluster, code=str(tmp_path)), **also_collects).rows == run(3).rows


class KillMachine(DieOnce):
    """Takes the machine down that the worker is on, in the middle of a rollout."""

    def die(self):
        os.kill(os.getppid(), signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)


def test_a_machine_that_dies_leaves_its_work_to_the_others(cluster, tmp_path, caplog):
    lanes = {"collectors": 2, "max_staleness": 1}
    died = run(8, lanes_of(cluster, **lanes), event=KillMachine(tmp_path, count=2, t=3))
    assert died.restarts == 1
    assert died.rows == run(8, {**lanes, "transport": "threads"}).rows
    assert re.search(r"the actor of collector \d ended: ", caplog.text)
    assert re.search(r"no CPU is free for collector \d: it shares those of another worker", caplog.text)


def test_a_worker_without_a_place_is_reported_and_ends_the_run(cluster, monkeypatch, caplog):
    # As if each worker took more than any machine has.
    monkeypatch.setattr(supervised, "_FIRST_REPORT", 0.2)
    monkeypatch.setattr(RayTransport, "cpus", 100)
    with pytest.raises(ConfigError, match=r"a worker takes 100 CPUs, and the cluster has"):
        run(2, lanes_of(cluster))
    monkeypatch.setattr(RayTransport, "inspect", lambda transport, workers: ())
    expected = r"collector found no place within 0\.6 s \(lanes\.start_timeout\): it waits for a place: it asks for"
    with pytest.raises(LaneError, match=rf"{expected} 100 free CPUs, and \S+ has \d of \d"):
        run(2, lanes_of(cluster, timeout=0.5, start_timeout=0.6))
    assert "which waits for a place: it asks for 100 free CPUs, and " in caplog.text
    assert "without one the run ends after 0.6 s (lanes.start_timeout)" in caplog.text


def test_code_is_packed_without_what_is_hidden_or_compiled(tmp_path):
    for name in ("own.py", "parts/deep.py", "parts/table.txt", ".git/config", "parts/__pycache__/deep.pyc"):
        (tmp_path / name).parent.mkdir(exist_ok=True, parents=True)
        (tmp_path / name).write_text(name)
    there = Path(unpack(pack(tmp_path)))
    found = {path.relative_to(there).as_posix(): path.read_text() for path in there.rglob("*") if path.is_file()}
    assert found == {name: name for name in ("own.py", "parts/deep.py", "parts/table.txt")}


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
