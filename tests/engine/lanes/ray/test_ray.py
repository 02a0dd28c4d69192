"""What the transport on Ray does by itself: refusals, clocks of other machines, messages. `test_transports` runs it."""

import contextlib
import importlib.metadata
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import types

import numpy as np
import pytest

from minding.engine.chain.trace import Span
from minding.engine.errors import ConfigError
from minding.engine.lanes.ray import cluster
from minding.engine.lanes.ray.actor import PlacedWeights
from minding.engine.lanes.ray.cluster import _stay_within_this_machine, check_ray
from minding.engine.lanes.ray.machines import Places
from minding.engine.lanes.ray.transport import Pulse, RayChannel, RayStore
from minding.engine.lanes.transport import STARTING, Answer, ChannelClosed, Request, serialize


class Gone(Exception):
    """What Ray raises of an actor that died."""


class FakeRay:
    """Ray in this process: a reference is what it refers to."""

    exceptions = types.SimpleNamespace(
        RayError=Gone, RayTaskError=ZeroDivisionError, ObjectStoreFullError=MemoryError, OutOfDiskError=MemoryError
    )

    def is_initialized(self):
        return True

    def run(self, call, *args):
        return call(*args)

    def wait(self, refs, timeout):
        return ([], refs) if refs[0] == "late" else (refs, [])

    def get(self, ref):
        if isinstance(ref, Exception):
            raise ref
        return ref

    def put(self, value):
        return {name: array.copy() for name, array in value.items()}


class FakeActor:
    """Its methods record their arguments; each call is answered by the next of `answers`."""

    def __init__(self, *answers, ahead=0.0):
        self.answers, self.calls, self.ahead = iter(answers), [], ahead
        for name in ("begin", "call", "end"):
            setattr(self, name, types.SimpleNamespace(remote=self._of(name)))
        beat = types.SimpleNamespace(remote=lambda: (time.monotonic() + self.ahead, 3, 4711, "B", "b0"))
        self.beat = types.SimpleNamespace(options=lambda concurrency_group: beat)

    def _of(self, name):
        def remote(*args):
            self.calls.append((name, args))
            return next(self.answers) if name == "call" else None

        return remote


def returned(message):
    header, buffers = serialize(message)
    return header, [np.frombuffer(buffer, np.uint8) for buffer in buffers]


@pytest.mark.parametrize(
    ("answer", "is_ray"),
    [(b"\0\0\x06\4\0\0\0\0\0", True), (b"HTTP/1.0 400 Bad request", False), (b"\0\0", False), (b"", False)],
    ids=["HTTP/2", "HTTP/1", "closes", "silent"],
)
def test_another_program_at_the_address_is_bad_input_at_once(answer, is_ray, monkeypatch):
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "2.60.0")
    monkeypatch.setattr(cluster, "_REACHED", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as server, contextlib.ExitStack() as held:

        def serve():
            connection = held.enter_context(server.accept()[0])
            # The other end closes as soon as it has heard enough.
            with contextlib.suppress(OSError):
                connection.sendall(answer)
                if answer:
                    connection.shutdown(socket.SHUT_WR)

        serving = threading.Thread(target=serve)
        serving.start()
        address = f"127.0.0.1:{server.getsockname()[1]}"
        expected = contextlib.nullcontext() if is_ray else pytest.raises(ConfigError, match="it is not Ray, or needs")
        with expected:
            check_ray(address, insecure=True)
        serving.join()


def test_a_local_cluster_listens_on_the_loopback_address_only(monkeypatch):
    name = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
    monkeypatch.setenv(name, "1")
    _stay_within_this_machine()
    assert os.environ[name] == "1"  # The user's choice.
    monkeypatch.delenv(name)
    monkeypatch.setitem(sys.modules, "ray", types.ModuleType("ray"))
    with pytest.raises(ConfigError, match=rf"Ray was imported before the run and would listen .* set {name}=0"):
        _stay_within_this_machine()
    monkeypatch.delitem(sys.modules, "ray")
    _stay_within_this_machine()
    assert os.environ[name] == "0"


@pytest.mark.parametrize(("answer", "error"), [("late", TimeoutError), (Gone("died"), ChannelClosed)])
def test_an_actor_that_is_late_or_gone(answer, error):
    actor = FakeActor(answer)
    channel = RayChannel(FakeRay(), actor, Pulse(FakeRay(), actor))
    channel.send(b"plan")
    channel.send(Request(0, 0, {}), ("place",))
    with pytest.raises(error):
        channel.receive(0.01)


def test_workers_that_are_asked_together_are_waited_for_together():
    waits = []

    class Slow(FakeRay):
        def wait(self, refs, timeout):
            waits.append(timeout)
            time.sleep(timeout)
            return [], refs

    pulses = [Pulse(Slow(), FakeActor()) for _ in range(5)]
    deadline = time.monotonic() + 0.2
    for pulse in pulses:
        pulse.expect(deadline)
    assert [pulse.member for pulse in pulses] == [STARTING] * 5
    assert 0.0 < sum(waits) <= 0.2


@pytest.mark.parametrize("ahead", [0.0, 100.0, -100.0])
def test_another_machines_spans_are_converted_to_this_clock(ahead):
    begin = time.monotonic()
    answer = Answer(0, {}, {}, [Span("collect", begin + ahead, begin + ahead + 1.0)], False, [])
    actor = FakeActor(returned(answer), ahead=ahead)
    pulse = Pulse(FakeRay(), actor)
    assert (pulse.beats, pulse.pid, pulse.node, pulse.member) == (1, 4711, "B", 3)
    channel = RayChannel(FakeRay(), actor, pulse)
    channel.send(b"plan")
    channel.send(Request(0, 0, {}), None)
    (span,) = channel.receive(0.0).spans
    assert span.start == pytest.approx(begin, abs=0.05)
    assert span.end - span.start == pytest.approx(1.0)
    # Half a round trip at first, and more as clocks drift apart.
    error = pulse.clock_error
    assert 0.0 < error < 0.05
    pulse._measured -= 100.0
    assert pulse.clock_error == pytest.approx(error + 0.01, abs=1e-3)


class FakeNodes:
    """A cluster of machines a and b with free CPUs."""

    def __init__(self, **free):
        self.free = free
        strategies = types.SimpleNamespace(NodeAffinitySchedulingStrategy=lambda machine, soft: machine)
        self.util = types.SimpleNamespace(scheduling_strategies=strategies)
        state = types.SimpleNamespace(
            available_resources_per_node=lambda: {name: {"CPU": cpus} for name, cpus in free.items()}
        )
        self._private = types.SimpleNamespace(state=state)

    def nodes(self):
        return [{"NodeID": name, "Alive": True, "Resources": {"CPU": 4.0}} for name in self.free]


def test_a_worker_is_not_replaced_where_it_was_lost():
    ray, places = FakeNodes(a=4.0, b=2.0, c=1.0), Places()
    assert places.choose(ray, 1) == ("DEFAULT", 1)
    places.lost("")
    assert places.choose(ray, 1) == ("DEFAULT", 1)
    places.lost("a")
    # Ray counts what was given with a delay. The next ones share the CPUs of both.
    assert [places.choose(ray, 1) for _ in range(5)] == [("b", 1), ("b", 1), ("c", 1), ("b", 0), ("c", 0)]
    assert not places.has_room(ray, 1)
    # Later it is as good as any.
    places._lost["a"] -= 100.0
    assert places.has_room(ray, 1)
    assert places.choose(ray, 1) == ("a", 1)


def test_changed_arrays_are_stored_once_and_dropped_at_release():
    weights = {"own": np.zeros(2), "past.0": np.ones(2), "past.1": np.full(2, 2.0)}
    store = RayStore(FakeRay(), weights, 3)
    reader = PlacedWeights({name: (array.shape, array.dtype.str) for name, array in weights.items()})

    def put(**new):
        for name, value in new.items():
            weights[name.replace("_", ".")][:] = value
        store.publish(weights)
        snapshot = store.retain()
        arrays = reader.empty()
        reader.read(snapshot, arrays)
        assert {name: array.tolist() for name, array in arrays.items()} == {
            name: array.tolist() for name, array in weights.items()
        }
        return snapshot

    first = put()
    assert put().place[0] is first.place[0]
    store.release(first)
    second = put(own=5.0)
    assert [sorted(each) for each in second.place] == [["own", "past.0", "past.1"], ["own"]]
    assert second.place[0] is first.place[0]
    assert first.place[0]["own"].tolist() == [0.0, 0.0]
    store.release(second)
    # Of the second version nothing is left.
    third = put(own=6.0, past_0=7.0)
    assert [sorted(each) for each in third.place] == [["own", "past.0", "past.1"], ["own", "past.0"]]
    store.release(first)
    fourth = put(past_1=8.0)
    assert [sorted(each) for each in fourth.place] == [["own", "past.0"], ["past.1"]]
    store.release(third)
    put(own=9.0)
    assert list(store._objects) == [3, 4]


def test_a_handler_that_ray_replaces_is_restored(monkeypatch):
    noted = []

    def init(**arguments):
        signal.signal(signal.SIGTERM, lambda number, frame: None)

    ray = types.SimpleNamespace(init=init, exceptions=types.SimpleNamespace(RayError=Gone))
    monkeypatch.setattr(cluster, "_ray", lambda: ray)
    monkeypatch.setattr(cluster, "note_sender", lambda: noted.append(signal.getsignal(signal.SIGTERM)))
    handler = signal.getsignal(signal.SIGTERM)
    cluster._init({"address": "local"})
    assert (signal.getsignal(signal.SIGTERM), noted) == (handler, [handler])


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_unknown_processes_of_a_cluster_end_with_it(tmp_path):
    folder = tmp_path / "minding-ray-x"
    folder.mkdir()
    wait = [sys.executable, "-I", "-S", "-c", "import time; time.sleep(100)"]
    with (
        subprocess.Popen([*wait, f"--temp-dir={folder}"]) as starting,
        subprocess.Popen(wait, env={"RAY_AUTH_TOKEN_PATH": str(folder / "token")}) as other,
    ):
        cleaner = cluster._start_reaper(str(folder))
        cleaner.stdin.close()
        assert cleaner.wait(10) == 0
        assert starting.wait(10) == -signal.SIGKILL
        assert other.poll() is None
        other.kill()
    assert not folder.exists()
