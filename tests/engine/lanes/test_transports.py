"""The contract of `Transport`, over all of them: workers, weights, ends, and runs that do not differ."""

import dataclasses
import importlib
import os
import pickle
import platform
import signal
import sys
import threading
import time

import cloudpickle
import lane_toys as toys
import numpy as np
import pytest
from fresh import run_fresh
from lane_toys import ExitOnce, ServedPolicy, ToyContext, ToyPolicy, has_ray, lane_threads, run

from minding.engine import Task, declare
from minding.engine import task as global_task
from minding.engine.chain.pipeline import chain_nodes
from minding.engine.config.config import LanesSection
from minding.engine.errors import LaneError
from minding.engine.lanes import LaneOptions, supervised
from minding.engine.lanes import run as lanes_run
from minding.engine.lanes.processes import ProcessTransport
from minding.engine.lanes.ray.transport import RayTransport
from minding.engine.lanes.shipping import PickledMembers
from minding.engine.lanes.threads import ThreadTransport
from minding.engine.lanes.transport import BETWEEN, STARTING, Answer, ChannelClosed, Request
from minding.engine.lanes.worker import WorkerPlan

OF_NAME = {"processes": ProcessTransport, "threads": ThreadTransport, "ray": lambda: RayTransport("local")}
TRANSPORTS = LanesSection.options()["transport"].allowed
KINDS = {"processes": "process", "threads": "thread", "ray": "actor"}
ENDS = {"processes": "ended with exit code {}", "threads": "ended", "ray": "ended"}
PATIENCE = 30.0  # s


def test_every_transport_is_tested_and_imported_only_if_used():
    assert set(OF_NAME) == set(TRANSPORTS)
    for name in ("processes", "threads"):
        assert type(lanes_run.make_transport(LaneOptions(transport=name))) is OF_NAME[name]
    (modules,) = run_fresh("import sys, minding.engine.lanes.run; print(*sys.modules)")
    assert not {"ray", *(f"minding.engine.lanes.{name}" for name in TRANSPORTS)} & set(modules.split())


@pytest.fixture(scope="module")
def cluster():
    """One for all tests of this module."""
    if not has_ray():
        pytest.skip("needs the extra 'ray'")
    made, before = RayTransport("local"), signals()
    made.store({}, 1)
    # Ray puts a handler of its own in place.
    assert signals() == before
    ray = importlib.import_module("ray")
    assert [node["NodeManagerAddress"] for node in ray.nodes()] == ["127.0.0.1"]
    yield ray
    made.close()
    assert not ray.is_initialized()
    assert signals() == before


@pytest.fixture(params=TRANSPORTS)
def transport(request):
    if request.param == "ray":
        request.getfixturevalue("cluster")
    return request.param


# A worker, as its handle shows it


@declare(role="collect", reads=("level",), writes=("note", "level"))
class Doubler:
    """Doubles a kept field and an array of its own, and says where it ran."""

    def __init__(self, mode):
        self._mode, self.count = mode, 0
        self.array = np.zeros(1000)

    def __call__(self, ctx):
        if ctx.level < 0:
            raise ValueError("below zero")
        if ctx.level == 13:
            raise SystemExit(7)
        self.array += ctx.level
        self.count += 1
        ctx.level *= 2
        weight = self._mode.arrays["weight"].copy()
        ctx.note = {"array": self.array, "weight": weight, "thread": threading.get_ident(), "pid": os.getpid()}

    def state_dict(self):
        return {"count": self.count, "array": self.array.copy()}

    def load_state_dict(self, state):
        self.count, self.array = state["count"], state["array"]


def plan_of(member, **changed):
    (leaf,) = (leaf for node in chain_nodes([member]) for leaf in node.leaves())
    pickled = PickledMembers([member], "collect")
    plan = WorkerPlan(
        lane="collect", index=0, names=("Doubler",), keys=("0:Doubler",), members=pickled, context=ToyContext,
        outputs=("note", "level"), written=leaf.declaration.writes, depth=3, own_process=False,
    )  # fmt: skip
    return dataclasses.replace(plan, **changed)


class Bench:
    """A started worker with its store."""

    def __init__(self, name, state=None):
        self.policy = ToyPolicy()
        self.plan = plan_of(Doubler(self.policy.mode))
        transport = OF_NAME[name]()
        self.store = transport.store(self.plan.members.weights(), 3)
        self.store.publish(self.policy.weights)
        self.handle = transport.start("collector", self.store, 3, frozenset())
        self.handle.channel.send(pickle.dumps((cloudpickle.dumps(self.plan), state)))

    def submit(self, number, level):
        weights = self.store.retain()
        fields = {"level": level, "total_step": number}
        self.handle.channel.send(Request(number, weights.version, fields), weights.place)

    def receive(self):
        return self.handle.channel.receive(PATIENCE)


@pytest.fixture
def start(transport):
    benches = []

    def begin(**options):
        benches.append(Bench(transport, **options))
        return benches[-1]

    yield begin
    for bench in benches:
        bench.handle.kill()
        bench.handle.join(PATIENCE)
        bench.handle.close()


def test_a_worker_answers_requests_in_order_and_ends_on_request(start, transport):
    bench = start()
    assert bench.handle.join(0.0) is None
    for number in range(3):
        bench.submit(number, 1.0 + number)
    answers = [bench.receive() for _ in range(3)]
    assert [type(answer) for answer in answers] == [Answer] * 3
    assert [(answer.number, answer.fields["level"]) for answer in answers] == [(0, 2.0), (1, 4.0), (2, 6.0)]
    # The array that the member goes on writing to is another one in each answer.
    assert [answer.fields["note"]["array"][-1] for answer in answers] == [1.0, 3.0, 6.0]
    assert answers[-1].state["members"]["0:Doubler"]["count"] == 3
    # On Ray it is the answer to a call, which may be older than the last one.
    bench.handle.heartbeat.expect(time.monotonic() + PATIENCE)
    assert bench.handle.heartbeat.member == BETWEEN
    bench.handle.channel.send(None)
    assert bench.handle.join(PATIENCE) == ENDS[transport].format(0)
    with pytest.raises(ChannelClosed):
        bench.receive()


def test_a_worker_runs_where_its_handle_says(start, transport):
    bench = start()
    bench.submit(0, 1.0)
    note = bench.receive().fields["note"]
    here, own = transport == "threads", note["pid"]
    assert (bench.handle.kind, bench.handle.pid) == (KINDS[transport], None if here else own)
    assert (own == os.getpid()) is here
    assert note["thread"] != threading.get_ident() or not here
    where = {"processes": f"process {own}", "threads": "thread", "ray": f"actor {own} on {platform.node()}"}
    assert bench.handle.where == where[transport]
    assert bench.handle.hindrance() is None


def test_a_request_is_answered_with_the_weights_that_it_names(start):
    bench = start()
    for number in range(2):
        bench.submit(number, 1.0)
        bench.policy.weights["weight"][...] = number + 5.0
        assert bench.store.publish(bench.policy.weights) == number + 1
    bench.submit(2, 1.0)
    found = [bench.receive().fields["note"]["weight"].tolist() for _ in range(3)]
    assert found == [[1.0, -1.0], [5.0, 5.0], [6.0, 6.0]]


def test_signs_of_life_come_while_a_worker_waits(start):
    bench = start()
    assert bench.handle.heartbeat.member in (STARTING, BETWEEN)
    bench.submit(0, 1.0)
    bench.receive()
    beats = bench.handle.heartbeat.beats
    assert beats > 0
    deadline = time.monotonic() + PATIENCE
    while bench.handle.heartbeat.beats == beats:
        assert time.monotonic() < deadline


def test_a_worker_that_dies_closes_its_channel_after_answers(start, transport):
    bench = start()
    bench.submit(0, 1.0)
    bench.submit(1, 13)
    assert bench.receive().number == 0
    with pytest.raises(ChannelClosed):
        bench.receive()
    how = "ended with exit code 7" if transport == "processes" else "ended with SystemExit(7)"
    assert bench.handle.join(PATIENCE) == how


def test_a_worker_that_is_killed_while_it_waits_ends(start, transport):
    bench = start()
    bench.submit(0, 1.0)
    bench.receive()
    bench.handle.kill()
    killed = {**ENDS, "ray": "ended: The actor died unexpectedly before finishing this task"}
    assert bench.handle.join(PATIENCE) == killed[transport].format(-signal.SIGKILL)
    with pytest.raises(ChannelClosed):
        bench.receive()


# Whole runs


def lanes_of(transport, **options):
    return {"transport": transport, **options}


def test_without_staleness_two_runs_are_the_synchronous_run(transport):
    sync = run(9, eval_freq=4, learn_freq=2)
    lanes = run((5, 9), lanes_of(transport, max_staleness=0), eval_freq=4, learn_freq=2)
    assert lanes.rows == sync.rows
    assert lanes.policy.state_dict()["rng"] == sync.policy.state_dict()["rng"]
    assert {lag["max"] for lag in lanes.record.column("policy_lag")} == {0}
    # One collected.
    assert len(set(lanes.record.pids)) == 1
    assert (lanes.record.pids[0] == os.getpid()) is (transport == "threads")


@pytest.fixture(scope="module")
def stale():
    """A run of two collectors in threads."""
    return run(10, lanes_of("threads", max_staleness=2, collectors=2), event=toys.random_delay)


def test_with_staleness_all_transports_give_the_same_run(transport, stale):
    other = run(10, lanes_of(transport, max_staleness=2, collectors=2), event=toys.random_delay)
    assert other.rows == stale.rows
    assert other.record.column("policy_lag") == stale.record.column("policy_lag")
    assert {lag["max"] for lag in other.record.column("policy_lag")} == {0, 1, 2}
    assert {row["worker"] for row in other.record.column("rollout")} == {0, 1}


def test_a_worker_that_dies_continues_from_its_last_state(transport, tmp_path, caplog):
    died = run(8, lanes_of(transport, max_staleness=0), event=ExitOnce(tmp_path, count=2, t=3))
    assert died.restarts == 1
    assert died.rows == run(8).rows
    how = {"processes": "ended with exit code 3", "threads": "ended with ", "ray": "ended with SystemExit(3)"}
    assert f"the {KINDS[transport]} of collector {how[transport]}" in caplog.text


def exit_always(collector, count, t):
    raise SystemExit("no more")


def test_a_worker_that_always_dies_ends_the_run(transport):
    kind = KINDS[transport]
    with pytest.raises(LaneError, match=f"the {kind} of collector died 3 times before it answered") as caught:
        run(4, lanes_of(transport, max_staleness=0), event=exit_always)
    assert f"whether an environment brings its {kind} down" in str(caught.value)


def raise_second(collector, count, t):
    if count == 2:
        raise ValueError("broken env")


def test_a_member_that_raises_ends_the_run_with_its_traceback(transport):
    with pytest.raises(ValueError, match="broken env") as caught:
        run(5, lanes_of(transport, max_staleness=1), event=raise_second)
    assert caught.value.__notes__[0] == "in middleware 'ToyCollector' (collect lane, step 2)"
    assert caught.value.__notes__[1].startswith("in the collect lane, collector:\nTraceback (most recent call last):")


def test_the_status_of_workers_is_available_during_a_run(transport):
    seen = []

    def look(task, ctx):
        seen.append(task.lanes.workers)

    outcome = run(6, lanes_of(transport, max_staleness=2, collectors=2), also=[look])
    first, last = seen[0], seen[-1]
    assert [worker.name for worker in first] == ["collector 0", "collector 1"]
    assert {(worker.kind, worker.node) for worker in last} == {(KINDS[transport], platform.node())}
    assert all((worker.pid is None) == (transport == "threads") for worker in last)
    assert {worker.member for worker in last} <= {"ToyCollector", "toy_explorer", "idle"}
    # Request n of those up to n + 2 is answered.
    assert [sorted(worker.backlog for worker in workers) for workers in seen] == [[1, 1]] * 6
    assert {worker.weights_age for worker in last} <= {0, 1, 2}
    assert all(worker.waited >= 0 and worker.restarts == 0 for worker in last)
    # A process takes a while to start.
    assert sum(worker.waited for worker in last) > 0 or transport == "threads"
    assert outcome.task.lanes.workers == ()


def test_a_server_that_dies_on_a_cluster_changes_nothing(cluster, tmp_path):
    lanes = {"max_staleness": 1, "collectors": 2}
    served = run(
        6, {**lanes, "transport": "ray", "inference": "server"}, policy=ServedPolicy(ExitOnce(tmp_path, count=9))
    )
    assert served.restarts == 1
    assert served.rows == run(6, {**lanes, "transport": "threads"}, policy=ServedPolicy()).rows


# Threads


def signals():
    return [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]


def test_threads_leave_signals_cores_and_the_script_alone():
    before = signals(), os.sched_getaffinity(0), sys.modules["__main__"], type(global_task)
    run(4, {"transport": "threads", "max_staleness": 0})
    assert before == (signals(), os.sched_getaffinity(0), sys.modules["__main__"], type(global_task))
    assert lane_threads() == []


GATE = threading.Event()


def hang(collector, count, t):
    if count == 1:
        GATE.wait(PATIENCE)


def fail_at_one(task, ctx):
    if ctx.total_step == 0:
        raise ValueError("meanwhile")


def test_a_thread_that_hangs_is_warned_of(monkeypatch, caplog):
    monkeypatch.setattr(supervised, "_CLOSE_TIMEOUT", 0.05)
    GATE.clear()
    with pytest.raises(ValueError, match="meanwhile"):
        run(4, {"transport": "threads", "max_staleness": 1}, event=hang, also=[fail_at_one])
    (hanging,) = [thread for thread in threading.enumerate() if thread.name == "minding-collector"]
    assert "the thread of collector still runs: a thread cannot be ended from outside" in caplog.text
    assert "lanes.transport=processes ends workers at once" in caplog.text
    # It ends as soon as it can.
    GATE.set()
    hanging.join(PATIENCE)
    assert not hanging.is_alive()
    assert type(global_task) is Task
