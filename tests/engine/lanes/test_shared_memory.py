"""What the channel of processes has besides the contract of `test_channels`: memory, files, and the death of an end."""

import dataclasses
import os
import pickle
from pathlib import Path

import numpy as np
import pytest

from minding.engine.lanes import processes
from minding.engine.lanes.processes import SharedMemoryChannel
from minding.engine.lanes.transport import ChannelClosed, serialize
from minding.engine.process.spawn import SPAWN, lean_start


@pytest.fixture
def ends():
    """Two ends of a channel of depth 3."""
    here, there = SPAWN.Pipe()
    channels = SharedMemoryChannel(here, 3), SharedMemoryChannel(there, 3)
    yield channels
    for channel in channels:
        channel.close()


def passed(ends, message):
    ends[0].send(message)
    return ends[1].receive(1.0)


def open_files():
    return len(os.listdir("/proc/self/fd"))


@pytest.mark.parametrize("array", [np.zeros(1_000_000), np.zeros((1000, 2000))[:, ::2]], ids=["contiguous", "strided"])
def test_no_array_is_pickled(array):
    message = {"state": [array], "again": {"array": array[:, None]}}
    header, buffers = serialize(message)
    assert len(header) < 1000
    assert {len(buffer) for buffer in buffers} == {8_000_000}


def test_nothing_has_a_name_and_no_file_stays_open(ends):
    before = open_files()
    counts = set()
    for size in (1000, 10, 100_000, 10, 600_000):
        for _ in range(20):
            passed(ends, np.zeros(size))
            passed(ends[::-1], np.zeros(size))
        counts.add(open_files())
        mapped = [line for line in Path("/proc/self/maps").read_text().splitlines() if "memfd:minding" in line]
        # A segment for each direction, mapped at each end.
        assert len(mapped) == 4
        assert all(line.endswith("/memfd:minding (deleted)") for line in mapped)
    assert len(counts) == 1
    for channel in ends:
        channel.close()
    assert open_files() == before - 2


def test_a_system_without_memfd_uses_a_file_without_a_name(ends, monkeypatch, tmp_path):
    monkeypatch.delattr(os, "memfd_create")
    monkeypatch.setattr(processes.tempfile, "tempdir", str(tmp_path))
    for size in (100, 50_000):
        assert passed(ends, np.full(size, 3.0)).sum() == 3.0 * size
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("cut", [2, 100, -1], ids=["in its length", "in its header", "before its memory"])
def test_an_end_that_dies_in_the_middle_of_a_message_closes_the_channel(cut):
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


def test_between_processes_messages_arrive_and_a_death_is_noticed_on_both_ways():
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
