"""The contract of `WeightBoard` for every transport: versions are whole, kept while they are read, and never torn."""

import numpy as np
import pytest
from fakes import refuses

from minding.engine.errors import LaneError
from minding.engine.lanes.processes import SharedWeights
from minding.engine.lanes.threads import CopiedWeights
from minding.engine.process.spawn import SPAWN, lean_start

SHAPES = {"kernel": (3, 4), "bias": (), "none": (0, 2), "large": (5000,)}


def weights(number):
    return {name: np.full(shape, number, np.float32) for name, shape in SHAPES.items()}


def read(board, snapshot):
    arrays = board.empty()
    board.read(snapshot, arrays)
    return arrays


@pytest.fixture(params=[SharedWeights, CopiedWeights], ids=["processes", "threads"])
def kind(request):
    return request.param


@pytest.fixture
def board(kind):
    return kind(weights(0), slots=3)


def test_new_weights_are_a_new_version_and_the_same_weights_are_not(board):
    assert [board.publish(weights(number)) for number in (5, 5, 6, 0, 0)] == [0, 0, 1, 2, 2]
    # A single bit is different.
    other = weights(0)
    other["bias"][...] = -0.0
    assert board.publish(other) == 3


def test_a_version_is_a_copy_and_so_is_what_is_read(board):
    arrays = weights(1)
    board.publish(arrays)
    snapshot = board.retain()
    arrays["kernel"] += 1
    read(board, snapshot)["kernel"] += 1
    assert read(board, snapshot)["kernel"].max() == 1


def test_a_version_stays_as_long_as_somebody_retains_it_and_until_the_next_one_is_published(board):
    board.publish(weights(0))
    oldest = board.retain()
    for number in range(1, 10):
        assert board.publish(weights(number)) == number
        assert read(board, oldest)["large"].max() == 0
    newest = board.retain()
    board.release(newest)
    assert (oldest.version, newest.version) == (0, 9)
    assert read(board, newest)["kernel"].min() == 9


def test_a_version_retained_twice_is_free_once_it_was_released_twice(board):
    board.publish(weights(0))
    snapshot = board.retain()
    assert board.retain() == snapshot
    board.release(snapshot)
    for number in (1, 2):
        board.publish(weights(number))
        board.retain()
    refuses(LaneError, ("all 3 versions are in use", lambda: board.publish(weights(3))))
    board.release(snapshot)
    assert board.publish(weights(3)) == 3
    with pytest.raises(LaneError, match=r"held version \d, then \d; expected 0|version 0 is no longer stored"):
        read(board, snapshot)


def test_a_board_of_no_weights_has_one_version(kind):
    board = kind({}, slots=2)
    assert [board.publish({}) for _ in range(3)] == [0, 0, 0]
    assert read(board, board.retain()) == {}


def test_every_array_of_a_version_is_read_as_it_was_published(kind):
    sent = {name: np.random.default_rng(1).standard_normal(shape).astype(np.float32) for name, shape in SHAPES.items()}
    sent |= {"turned": np.arange(6.0).reshape(2, 3).T, "half": np.ones(3, np.float16), "count": np.array(2**40)}
    board = kind(sent, slots=2)
    assert (board.version, board.publish(sent), board.version) == (-1, 0, 0)
    snapshot = board.retain()
    arrived = read(board, snapshot)
    assert snapshot.version == 0
    assert {name: (array.dtype, array.shape, array.tolist()) for name, array in arrived.items()} == {
        name: (array.dtype, array.shape, array.tolist()) for name, array in sent.items()
    }


def read_along(board, connection):
    """Reads the versions it is told of; answers whether all numbers of one are the expected ones."""
    arrays = board.empty()
    for snapshot, number in iter(connection.recv, None):
        try:
            board.read(snapshot, arrays)
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


@pytest.mark.slow
def test_readers_that_follow_the_protocol_never_see_a_torn_version_and_others_get_an_error():
    board = SharedWeights(weights(0), slots=4)
    readers = [Reader(board), Reader(board)]
    held = {}
    for number in range(1, 300):
        board.publish(weights(number))
        for reader in readers:
            # Read while the next versions are written.
            if reader in held and (number % 7 == 0 or reader.connection.poll()):
                assert reader.connection.recv() == "whole"
                board.release(held.pop(reader))
            if reader not in held:
                held[reader] = board.retain()
                reader.connection.send((held[reader], number))
    for reader in held:
        assert reader.connection.recv() == "whole"
        board.release(held[reader])
    # Nobody retains what these read.
    outcomes = set()
    for number in range(2000, 2300):
        board.publish(weights(number))
        snapshot = board.retain()
        board.release(snapshot)
        for reader in readers:
            reader.connection.send((snapshot, number))
        for late in range(1, 5):
            board.publish(weights(number + late / 10))
        outcomes.update(reader.connection.recv() for reader in readers)
    for reader in readers:
        reader.end()
    assert outcomes == {"whole", "refused"} or outcomes == {"refused"}


def test_a_write_during_a_read_is_an_error():
    """The stamp is looked at before and after the copy, in the order in which it is written."""
    board = SharedWeights(weights(0), slots=3)
    board.publish(weights(0))
    snapshot = board.retain()
    board.release(snapshot)

    class Overtaken(np.ndarray):
        """Written to in the middle of the copy: meanwhile the learner takes the slot."""

        def __setitem__(self, key, value):
            super().__setitem__(key, value)
            for number in (1, 2, 3):
                board.publish(weights(number))

    arrays = board.empty()
    arrays["bias"] = arrays["bias"].view(Overtaken)
    with pytest.raises(LaneError, match="held version 0, then"):
        board.read(snapshot, arrays)
