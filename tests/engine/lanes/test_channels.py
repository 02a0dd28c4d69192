"""The contracts of `Channel` and of `WeightStore`, for the ends and stores of every transport."""

import dataclasses
import os
import pickle
import threading
from pathlib import Path

import numpy as np
import pytest
from fakes import refuses
from treevalue import FastTreeValue

from minding.engine.data.rollout import Rollout
from minding.engine.errors import LaneError
from minding.engine.lanes import processes
from minding.engine.lanes.processes import SharedMemoryChannel, SharedWeights
from minding.engine.lanes.threads import CopiedWeights, channel_pair
from minding.engine.lanes.transport import ChannelClosed
from minding.engine.process.spawn import SPAWN, lean_start


def shared_memory_pair():
    here, there = SPAWN.Pipe()
    return SharedMemoryChannel(here, 3), SharedMemoryChannel(there, 3)


@pytest.fixture(params=[shared_memory_pair, channel_pair], ids=["processes", "threads"])
def ends(request):
    """Two ends of a channel of depth 3."""
    yield from closing(request.param())


def closing(channels):
    yield channels
    for channel in channels:
        channel.close()


def passed(ends, message):
    ends[0].send(message)
    return ends[1].receive(1.0)


GRID = np.arange(12, dtype=np.float32).reshape(3, 4)
ARRAYS = {
    "contiguous": GRID,
    "column-major": np.asfortranarray(GRID),
    "strided": GRID[::2, ::3],
    "reversed": GRID[::-1],
    "0-d": np.array(2.5),
    "empty": np.zeros((0, 3), np.int16),
    "bool": GRID > 4,
    "text": np.array(["step", "reset"]),
    "bytes": np.array([b"a", b"bc"]),
    "complex": np.array([1 + 2j]),
    "dates": np.array(["2020-01-01"], "datetime64[D]"),
    "records": np.array([(1, 2.0)], dtype=[("env_id", "i4"), ("reward", "f4")]),
    "objects": np.array([None, "x"], dtype=object),
}


@pytest.mark.parametrize("name", ARRAYS)
def test_an_array_arrives_with_its_numbers_dtype_and_shape(ends, name):
    sent = ARRAYS[name]
    arrived = passed(ends, {"array": sent})["array"]
    assert arrived.dtype == sent.dtype
    assert arrived.shape == sent.shape
    assert arrived.tolist() == sent.tolist()


def rollout():
    ones = np.ones((2, 1), np.float32)
    tree = FastTreeValue({"image": np.zeros((2, 1, 3, 3), np.uint8), "joint": {"angle": GRID[:2, :1]}})
    return Rollout(
        obs=tree, last_obs=tree, final_obs=None, ends=np.zeros((0, 2), np.int64), action=ones, reward=ones,
        terminated=ones > 2, truncated=ones > 0, valid=None, record={"log_prob": -ones},
    )  # fmt: skip


def test_arrays_that_arrive_are_the_receivers_own(ends):
    sent = GRID.copy()
    ends[0].send(sent)
    sent[...] = -1
    first = ends[1].receive(1.0)
    first += 100
    # More messages than there are slots.
    later = [passed(ends, sent) for _ in range(7)]
    assert first.tolist() == (GRID + 100).tolist()
    later[0][...] = 5
    assert {array.max() for array in later[1:]} == {-1.0}


def test_waiting_ends_with_the_timeout_and_sent_messages_arrive(ends):
    refuses(TimeoutError, ("0.01 s", lambda: ends[0].receive(0.01)))
    ends[0].send(GRID)
    ends[0].close()
    assert ends[1].receive(1.0).tolist() == GRID.tolist()
    refuses(ChannelClosed, ("", lambda: ends[1].receive(1.0)), ("", lambda: ends[1].send(GRID)))


class Unreadable:
    """Arrives as an error."""

    def __reduce__(self):
        return int, ("of glass",)


def test_a_message_that_fails_is_an_error_and_the_next_arrives(ends):
    refuses(TypeError, ("lock", lambda: ends[0].send({"array": GRID, "lock": threading.Lock()})))
    assert passed(ends, GRID).tolist() == GRID.tolist()
    refuses(ValueError, ("of glass", lambda: passed(ends, [np.zeros(5), Unreadable()])))
    assert passed(ends, GRID).tolist() == GRID.tolist()


def test_a_wait_for_a_message_ends_when_the_other_end_closes(ends):
    timer = threading.Timer(0.02, ends[0].close)
    timer.start()
    with pytest.raises(ChannelClosed):
        ends[1].receive()
    timer.join()


def test_a_closed_end_sends_and_receives_nothing_more(ends):
    ends[1].send(GRID)
    ends[0].close()
    refuses(ChannelClosed, *[("", lambda: ends[0].receive(0.1)), ("", lambda: ends[0].send(None))] * 2)
    ends[0].close()


# Between processes: memory, files, and the death of an end


@pytest.fixture
def shared_ends():
    yield from closing(shared_memory_pair())


def open_files():
    return len(os.listdir("/proc/self/fd"))


def test_shared_memory_has_no_name_and_no_file_stays_open(shared_ends):
    before = open_files()
    counts = set()
    for size in (1000, 10, 100_000, 10, 600_000):
        for _ in range(20):
            passed(shared_ends, np.zeros(size))
            passed(shared_ends[::-1], np.zeros(size))
        counts.add(open_files())
        mapped = [line for line in Path("/proc/self/maps").read_text().splitlines() if "memfd:minding" in line]
        # A segment for each direction, mapped at each end.
        assert len(mapped) == 4
        assert all(line.endswith("/memfd:minding (deleted)") for line in mapped)
    assert len(counts) == 1
    for channel in shared_ends:
        channel.close()
    assert open_files() == before - 2


def test_a_system_without_memfd_uses_a_file_without_a_name(shared_ends, monkeypatch, tmp_path):
    monkeypatch.delattr(os, "memfd_create")
    monkeypatch.setattr(processes.tempfile, "tempdir", str(tmp_path))
    for size in (100, 50_000):
        assert passed(shared_ends, np.full(size, 3.0)).sum() == 3.0 * size
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("cut", [2, 100, -1], ids=["in its length", "in its header", "before its memory"])
def test_an_end_that_dies_within_a_message_closes_the_channel(cut):
    here, there = SPAWN.Pipe()
    header = pickle.dumps((b"x" * 500, [8], 4096, None))
    whole = len(header).to_bytes(4, "big") + header
    os.write(there.fileno(), whole if cut == -1 else whole[:cut])
    there.close()
    channel = SharedMemoryChannel(here, 1)
    with pytest.raises(ChannelClosed):
        channel.receive(1.0)
    channel.close()


def echo(connection):
    channel = SharedMemoryChannel(connection, 2)
    while True:
        message = channel.receive()
        if message == "end":
            os._exit(3)
        channel.send(message)


@dataclasses.dataclass
class Numbered:
    number: int
    array: np.ndarray


def test_messages_and_deaths_cross_between_processes():
    here, there = SPAWN.Pipe()
    process = SPAWN.Process(target=echo, args=(there,))
    with lean_start():
        process.start()
    there.close()
    channel = SharedMemoryChannel(here, 2)
    try:
        for number, size in enumerate((3, 3000, 100_000, 5)):
            channel.send(Numbered(number, np.full(size, number)))
            back = channel.receive(30.0)
            assert (type(back), back.number, back.array.tolist()) == (Numbered, number, [number] * size)
        # The memory that came last is that of a process which may have gone.
        assert Path(f"/proc/{process.pid}").exists()
        channel.send("end")
        with pytest.raises(ChannelClosed):
            channel.receive(30.0)
        with pytest.raises(ChannelClosed):
            channel.send(np.zeros(3))
    finally:
        channel.close()
        process.kill()
        process.join()
    assert process.exitcode == 3


# The contract of WeightStore: versions are whole, kept while they are read, and never torn

SHAPES = {"kernel": (3, 4), "bias": (), "none": (0, 2), "large": (5000,)}


def weights(number):
    return {name: np.full(shape, number, np.float32) for name, shape in SHAPES.items()}


def read(store, snapshot):
    arrays = store.empty()
    store.read(snapshot, arrays)
    return arrays


@pytest.fixture(params=[SharedWeights, CopiedWeights], ids=["processes", "threads"])
def kind(request):
    return request.param


@pytest.fixture
def store(kind):
    return kind(weights(0), slots=3)


def test_only_new_weights_are_a_new_version(store):
    assert [store.publish(weights(number)) for number in (5, 5, 6, 0, 0)] == [0, 0, 1, 2, 2]
    # A single bit is different.
    other = weights(0)
    other["bias"][...] = -0.0
    assert store.publish(other) == 3


def test_a_version_is_a_copy_and_so_is_what_is_read(store):
    arrays = weights(1)
    store.publish(arrays)
    snapshot = store.retain()
    arrays["kernel"] += 1
    read(store, snapshot)["kernel"] += 1
    assert read(store, snapshot)["kernel"].max() == 1


def test_a_version_stays_while_retained_and_until_the_next(store):
    store.publish(weights(0))
    oldest = store.retain()
    for number in range(1, 10):
        assert store.publish(weights(number)) == number
        assert read(store, oldest)["large"].max() == 0
    newest = store.retain()
    store.release(newest)
    assert (oldest.version, newest.version) == (0, 9)
    assert read(store, newest)["kernel"].min() == 9


def test_a_version_retained_twice_is_free_once_released_twice(store):
    store.publish(weights(0))
    snapshot = store.retain()
    assert store.retain() == snapshot
    store.release(snapshot)
    for number in (1, 2):
        store.publish(weights(number))
        store.retain()
    refuses(LaneError, ("all 3 versions are in use", lambda: store.publish(weights(3))))
    store.release(snapshot)
    assert store.publish(weights(3)) == 3
    with pytest.raises(LaneError, match=r"held version \d, then \d; expected 0|version 0 is no longer stored"):
        read(store, snapshot)


def read_along(store, connection):
    """Reads the versions it is told of; answers whether all numbers of one are the expected ones."""
    arrays = store.empty()
    for snapshot, number in iter(connection.recv, None):
        try:
            store.read(snapshot, arrays)
        except LaneError:
            connection.send("refused")
            continue
        whole = all((array == number).all() for array in arrays.values())
        connection.send("whole" if whole else "torn")


class Reader:
    """A process that reads."""

    def __init__(self, store):
        self.connection, there = SPAWN.Pipe()
        self._process = SPAWN.Process(target=read_along, args=(store, there), daemon=True)
        with lean_start():
            self._process.start()
        there.close()

    def end(self):
        self.connection.send(None)
        self._process.join()
        self.connection.close()


@pytest.mark.slow
def test_readers_never_see_a_torn_version():
    store = SharedWeights(weights(0), slots=4)
    readers = [Reader(store), Reader(store)]
    held = {}
    for number in range(1, 300):
        store.publish(weights(number))
        for reader in readers:
            # Read while the next versions are written.
            if reader in held and (number % 7 == 0 or reader.connection.poll()):
                assert reader.connection.recv() == "whole"
                store.release(held.pop(reader))
            if reader not in held:
                held[reader] = store.retain()
                reader.connection.send((held[reader], number))
    for reader in held:
        assert reader.connection.recv() == "whole"
        store.release(held[reader])
    # Nobody retains what these read.
    outcomes = set()
    for number in range(2000, 2300):
        store.publish(weights(number))
        snapshot = store.retain()
        store.release(snapshot)
        for reader in readers:
            reader.connection.send((snapshot, number))
        for late in range(1, 5):
            store.publish(weights(number + late / 10))
        outcomes.update(reader.connection.recv() for reader in readers)
    for reader in readers:
        reader.end()
    assert outcomes == {"whole", "refused"} or outcomes == {"refused"}


def test_a_write_during_a_read_is_an_error():
    """The stamp is looked at before and after the copy, in the order in which it is written."""
    store = SharedWeights(weights(0), slots=3)
    store.publish(weights(0))
    snapshot = store.retain()
    store.release(snapshot)

    class Overtaken(np.ndarray):
        """Written to in the middle of the copy: meanwhile the learner takes the slot."""

        def __setitem__(self, key, value):
            super().__setitem__(key, value)
            for number in (1, 2, 3):
                store.publish(weights(number))

    arrays = store.empty()
    arrays["bias"] = arrays["bias"].view(Overtaken)
    with pytest.raises(LaneError, match="held version 0, then"):
        store.read(snapshot, arrays)
