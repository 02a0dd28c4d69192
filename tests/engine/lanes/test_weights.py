"""Versions of weights in shared memory: whole, kept while they are read, and never torn."""

import threading

import numpy as np
import pytest

from minding.engine.errors import LaneError
from minding.engine.lanes.weights import WeightBoard
from minding.engine.process.spawn import SPAWN, lean_start

SHAPES = {"kernel": (3, 4), "bias": (), "none": (0, 2), "large": (5000,)}


def weights(number):
    return {name: np.full(shape, number, np.float32) for name, shape in SHAPES.items()}


def read(board, slot, version):
    arrays = board.empty()
    board.read(slot, version, arrays)
    return arrays


@pytest.fixture
def board():
    return WeightBoard(weights(0), slots=3)


def test_every_array_of_a_version_is_read_as_it_was_published(board):
    assert board.version == -1
    sent = {name: np.random.default_rng(1).standard_normal(shape).astype(np.float32) for name, shape in SHAPES.items()}
    assert (board.publish(sent), board.version) == (0, 0)
    arrived = read(board, board.retain(), 0)
    assert arrived.keys() == sent.keys()
    assert all(np.array_equal(arrived[name], sent[name]) for name in sent)
    assert {name: (array.dtype, array.shape) for name, array in arrived.items()} == {
        name: (np.float32, shape) for name, shape in SHAPES.items()
    }


def test_new_weights_are_a_new_version_and_the_same_weights_are_not(board):
    assert [board.publish(weights(number)) for number in (5, 5, 6, 5, 5)] == [0, 0, 1, 2, 2]
    slot = board.retain()
    assert board.publish(weights(5)) == 2
    assert read(board, slot, 2)["large"][-1] == 5


def test_versions_differ_by_a_single_bit_too(board):
    board.publish(weights(0))
    other = weights(0)
    other["bias"][...] = -0.0
    assert board.publish(other) == 1


def test_a_version_stays_as_long_as_somebody_retains_it(board):
    board.publish(weights(0))
    slot = board.retain()
    for number in range(1, 10):
        assert board.publish(weights(number)) == number
        assert read(board, slot, 0)["large"].max() == 0
    newest = board.retain()
    assert newest != slot
    assert read(board, newest, 9)["kernel"].min() == 9


def test_a_version_retained_twice_is_free_after_it_was_given_back_twice(board):
    board.publish(weights(0))
    slot = board.retain()
    assert board.retain() == slot
    board.release(slot)
    board.publish(weights(1))
    board.retain()
    board.publish(weights(2))
    board.retain()
    with pytest.raises(LaneError, match="all 3 versions are in use; a version was not released"):
        board.publish(weights(3))
    board.release(slot)
    assert board.publish(weights(3)) == 3


def test_reading_what_was_given_back_too_early_is_refused(board):
    board.publish(weights(0))
    slot = board.retain()
    board.release(slot)
    for number in (1, 2, 3):
        board.publish(weights(number))
    with pytest.raises(LaneError, match=rf"slot {slot} held version \d, then \d; expected 0"):
        read(board, slot, 0)


def test_a_board_of_no_weights_has_one_version():
    board = WeightBoard({}, slots=2)
    assert [board.publish({}) for _ in range(3)] == [0, 0, 0]
    assert read(board, board.retain(), 0) == {}


def read_along(board, connection):
    """Reads the versions it is told of; answers whether all numbers of one are the expected ones."""
    arrays = board.empty()
    for slot, version, number in iter(connection.recv, None):
        try:
            board.read(slot, version, arrays)
        except LaneError:
            connection.send("refused")
            continue
        whole = all((array == number).all() for array in arrays.values())
        connection.send("whole" if whole else "torn")


class Reader:
    """A process that reads."""

    def __init__(self, board):
        self.connection, there = SPAWN.Pipe()
        self._process = SPAWN.Process(target=read_along, args=(board, there), daemon=True)
        with lean_start():
            self._process.start()
        there.close()

    def end(self):
        self.connection.send(None)
        self._process.join()
        self.connection.close()


def test_readers_that_follow_the_protocol_never_see_a_torn_version_and_others_are_found_out():
    board = WeightBoard(weights(0), slots=4)
    readers = [Reader(board), Reader(board)]
    held = {}
    for number in range(1, 800):
        board.publish(weights(number))
        for reader in readers:
            # Read while the next versions are written.
            if reader in held and (number % 7 == 0 or reader.connection.poll()):
                assert reader.connection.recv() == "whole"
                board.release(held.pop(reader))
            if reader not in held:
                held[reader] = board.retain()
                reader.connection.send((held[reader], board.version, number))
    for reader in held:
        assert reader.connection.recv() == "whole"
        board.release(held[reader])
    # Nobody retains what these read.
    outcomes = set()
    for number in range(2000, 2800):
        board.publish(weights(number))
        slot = board.retain()
        board.release(slot)
        for reader in readers:
            reader.connection.send((slot, board.version, number))
        for late in range(1, 5):
            board.publish(weights(number + late / 10))
        outcomes.update(reader.connection.recv() for reader in readers)
    for reader in readers:
        reader.end()
    assert outcomes == {"whole", "refused"} or outcomes == {"refused"}


def test_a_write_in_the_middle_of_a_read_is_found_out(board):
    """The stamp is looked at before and after the copy, in the order in which it is written."""
    board.publish(weights(0))
    slot = board.retain()
    board.release(slot)

    class Overtaken(np.ndarray):
        """Written to in the middle of the copy: meanwhile the learner takes the slot."""

        def __setitem__(self, key, value):
            super().__setitem__(key, value)
            for number in (1, 2, 3):
                board.publish(weights(number))

    arrays = board.empty()
    arrays["bias"] = arrays["bias"].view(Overtaken)
    with pytest.raises(LaneError, match="held version 0, then"):
        board.read(slot, 0, arrays)


def test_a_thread_that_reads_what_it_retains_sees_whole_versions(board):
    seen = []
    told = threading.Semaphore(0)
    tickets, answers = [], []

    def follow():
        for _ in range(500):
            told.acquire()
            slot, version = tickets.pop()
            arrays = read(board, slot, version)
            seen.append({float(array.max()) for array in arrays.values() if array.size} == {float(version)})
            answers.append(slot)

    thread = threading.Thread(target=follow)
    thread.start()
    version = -1
    while thread.is_alive():
        version += 1
        board.publish(weights(version))
        if version == 0 or answers:
            if answers:
                board.release(answers.pop())
            tickets.append((board.retain(), version))
            told.release()
    thread.join()
    assert seen == [True] * 500
