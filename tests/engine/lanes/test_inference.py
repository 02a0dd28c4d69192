"""An inference server: what is computed together, and runs that do not differ from those that act by themselves."""

import tempfile
import threading
from pathlib import Path

import numpy as np
import pytest
from lane_toys import DieOnce, ExitOnce, ServedPolicy, lane_threads, run

from minding.engine.errors import ChainError
from minding.engine.lanes import collect
from minding.engine.lanes.inference import Ask, Batching
from minding.engine.lanes.sockets import SocketPort
from minding.engine.lanes.transport import Question

# Batches


def ask(rows, version=0, since=0.0, place=0, width=2, asker=None):
    return Ask(place, version, [np.zeros((rows, width), np.float32)], asker, since)


def test_a_batch_is_computed_once_full_late_or_complete():
    batching = Batching(max_batch=8, max_wait=0.5)
    assert batching.due(0.0, askers=1) == []
    assert batching.patience(0.0) is None
    first, second, third = ask(4, since=1.0), ask(4, since=1.2), ask(4, since=1.3)
    batching.add(first)
    assert batching.due(1.1, askers=3) == []
    assert batching.patience(1.1) == pytest.approx(0.4)
    # Full.
    batching.add(second)
    assert batching.due(1.2, askers=3) == [first, second]
    # Late.
    batching.add(third)
    assert batching.due(1.79, askers=3) == []
    assert batching.due(1.8, askers=3) == [third]
    # Nobody else.
    batching.add(first)
    assert batching.due(1.0, askers=1) == [first]
    batching = Batching(max_batch=8, max_wait=0.5)
    small, large, huge = ask(3), ask(6), ask(20)
    for one in (small, large, huge):
        batching.add(one)
    assert [batching.due(0.0, askers=9) for _ in range(4)] == [[small], [large], [huge], []]


# Sockets


def serve_once(port, answer):
    """A server that answers one question and dies."""
    counter = port.listen()
    while not (found := counter.receive(0.01)):
        pass
    ((question, reply),) = found
    reply(answer(question))
    askers = counter.askers
    counter.close()
    return askers


def test_a_collector_asks_the_replacement_of_a_dead_server():
    port, got = SocketPort(), []
    line = port.connect(0)

    def ask_twice():
        for number in range(2):
            got.append(line.ask(Question(3, number, [np.full((2, 1), number)])))
        line.close()

    asking = threading.Thread(target=ask_twice)
    asking.start()
    for _ in range(2):
        assert serve_once(port, lambda question: (question.leaves[0] + question.place, np.zeros(1))) == 1
    asking.join()
    assert [first.tolist() for first, _ in got] == [[[3], [3]], [[4], [4]]]
    assert all(array.flags.writeable and array.flags.owndata is not None for arrays in got for array in arrays)


def test_a_temporary_folder_with_a_long_name_works(tmp_path, monkeypatch):
    deep = tmp_path / ("x" * 120)
    deep.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(deep))
    port = SocketPort()
    port.listen().close()
    assert list(deep.iterdir()) == []
    folder = Path(port._address).parent
    assert (folder.stat().st_mode & 0o777, folder.parent) == (0o700, Path("/tmp"))
    port.close()
    assert not folder.exists()


def test_a_connection_without_the_key_is_refused():
    port = SocketPort()
    stranger = SocketPort()
    stranger._address = port._address
    counter = port.listen()
    line = stranger.connect(0)
    asking = threading.Thread(target=line.ask, args=(Question(0, 0, []),), daemon=True)
    asking.start()
    assert counter.receive(0.1) == []
    assert counter.askers == 0
    # It goes on to ask: let it be heard, so that it ends.
    counter.close()
    friend = SocketPort()
    friend._address, friend._key = port._address, stranger._key
    serve_once(friend, lambda question: ())
    asking.join()


# Runs


THREADS = {"transport": "threads", "max_staleness": 2, "collectors": 3}


@pytest.mark.parametrize("lanes", [THREADS, {**THREADS, "max_staleness": 0, "collectors": 1}])
def test_a_server_acts_as_the_collectors_would_themselves(lanes):
    local = run(8, lanes, policy=ServedPolicy())
    served = run(8, {**lanes, "inference": "server"}, policy=ServedPolicy())
    assert served.rows == local.rows
    assert served.policy.state_dict()["rng"] == local.policy.state_dict()["rng"]
    assert served.task.resume_guarantee == ("batched" if lanes["collectors"] > 1 else local.task.resume_guarantee)
    assert lane_threads() == []


@pytest.mark.parametrize("transport", ["threads", "processes"])
def test_a_server_that_dies_changes_nothing(transport, tmp_path, caplog):
    lanes = {**(THREADS if transport == "threads" else {"max_staleness": 0}), "inference": "server"}
    death = (ExitOnce if transport == "threads" else DieOnce)(tmp_path, count=11)
    served = run(8, lanes, policy=ServedPolicy(death))
    assert served.restarts == 1
    assert served.rows == run(8, {**lanes, "transport": "threads", "inference": "local"}, policy=ServedPolicy()).rows
    kind, end = ("thread", "ended with SystemExit(3)") if transport == "threads" else ("process", "exit code -9")
    assert f"the {kind} of inference server ended" in caplog.text
    assert end in caplog.text


def fail(network, count):
    if count == 5:
        raise ValueError("no such number")


def test_an_error_of_the_network_ends_the_run_with_its_place():
    with pytest.raises(ValueError, match="no such number") as caught:
        run(8, {**THREADS, "inference": "server"}, policy=ServedPolicy(fail))
    assert "in the inference lane, inference server" in caught.value.__notes__[0]
    # Nobody waits for another server.
    assert lane_threads() == []


# The choice


@pytest.mark.parametrize(("server", "chosen"), [(1.0, "server"), (3.0, "local")])
def test_auto_takes_what_was_faster_in_a_trial(server, chosen, monkeypatch, caplog):
    caplog.set_level("INFO", "minding")
    monkeypatch.setattr(collect, "trial", lambda group, ctx: (2.0, server))
    found = run(4, {**THREADS, "inference": "auto"}, policy=ServedPolicy())
    assert f"took 2000.0 ms acting locally and {1e3 * server:.1f} ms through a server: {chosen}" in caplog.text
    assert found.task.resume_guarantee == ("batched" if chosen == "server" else "in-flight")


def test_a_trial_leaves_nothing_and_other_policies_act_locally():
    found = run(6, {**THREADS, "inference": "auto"}, policy=ServedPolicy())
    expected = run(6, THREADS, policy=ServedPolicy())
    assert found.rows == expected.rows
    assert found.policy.state_dict()["rng"] == expected.policy.state_dict()["rng"]
    with pytest.raises(ChainError, match=r"lanes\.inference=server: nothing in the collect lane .* acts with a net"):
        run(2, {**THREADS, "inference": "server"})
    assert run(4, {**THREADS, "inference": "auto"}).rows == run(4, THREADS).rows
