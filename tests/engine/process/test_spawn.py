"""Processes that are started lean, leave signals to their parent, and end with what started them."""

import os
import signal
import sys
import threading
import types

import pytest

from minding.engine.process.signals import leave_to_parent
from minding.engine.process.spawn import SPAWN, WorkerProcess, become_worker


def tell(connection):
    """Sends what a spawned process is like before and after it became a worker."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [])
    os.kill(os.getpid(), signal.SIGINT)
    become_worker()
    handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    after = signal.pthread_sigmask(signal.SIG_BLOCK, [])
    threads = [os.environ.get(name) for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")]
    main = hasattr(sys.modules["__main__"], "__file__")
    connection.send((set(before), handlers, set(after), threads, main, "mindspore" in sys.modules))


def test_a_worker_is_spared_the_main_script_and_signals(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "4")
    monkeypatch.delenv("MKL_NUM_THREADS", raising=False)
    script = types.ModuleType("__main__")
    script.__file__ = "/nowhere/script.py"
    monkeypatch.setitem(sys.modules, "__main__", script)
    here, there = SPAWN.Pipe()
    process = WorkerProcess(target=tell, args=(there,))
    process.launch()
    there.close()
    assert sys.modules["__main__"] is script
    assert signal.pthread_sigmask(signal.SIG_BLOCK, []) == set()
    found = [os.environ.get(name) for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")]
    assert found == ["3", "4", None]
    before, handlers, after, threads, main, mindspore = here.recv()
    process.join()
    here.close()
    assert before == {signal.SIGINT, signal.SIGTERM}
    assert (handlers, after) == ([leave_to_parent, leave_to_parent], set())
    # What the user said holds, except for the products with which a worker acts.
    assert threads == ["3", "1", "1"]
    assert (main, mindspore) == (False, False)


def serve(connection):
    connection.send("started")
    connection.send(connection.recv())


def test_a_worker_outlives_the_thread_that_launched_it():
    here, there = SPAWN.Pipe()
    process = WorkerProcess(target=serve, args=(there,))
    thread = threading.Thread(target=lambda: (process.launch(), there.close(), here.recv()))
    thread.start()
    # The kernel's signal would come with the end of the thread.
    thread.join()
    here.send("alive")
    assert here.recv() == "alive"
    process.join()
    assert process.exitcode == 0
    here.close()


def test_an_error_of_a_launch_reaches_the_caller():
    with pytest.raises(AttributeError, match="local object"):
        WorkerProcess(target=lambda: None).launch()
