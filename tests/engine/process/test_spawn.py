"""Processes that are started lean, leave signals to their parent, and end with what started them."""

import gc
import os
import signal
import sys
import types

from minding.engine.process.spawn import SPAWN, become_worker, lean_start, stop_at_exit


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


def test_a_worker_is_spared_the_main_script_threads_and_signals_from_its_first_moment(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    monkeypatch.delenv("MKL_NUM_THREADS", raising=False)
    script = types.ModuleType("__main__")
    script.__file__ = "/nowhere/script.py"
    monkeypatch.setitem(sys.modules, "__main__", script)
    here, there = SPAWN.Pipe()
    process = SPAWN.Process(target=tell, args=(there,))
    with lean_start():
        process.start()
    there.close()
    assert sys.modules["__main__"] is script
    assert signal.pthread_sigmask(signal.SIG_BLOCK, []) == set()
    assert (os.environ["OMP_NUM_THREADS"], "MKL_NUM_THREADS" in os.environ) == ("3", False)
    before, handlers, after, threads, main, mindspore = here.recv()
    process.join()
    here.close()
    assert before == {signal.SIGINT, signal.SIGTERM}
    assert (handlers, after) == ([signal.SIG_IGN, signal.SIG_IGN], set())
    # What the user said holds.
    assert threads == ["3", "1", "1"]
    assert (main, mindspore) == (False, False)


class Owner:
    """Something that holds processes."""


def test_what_an_owner_holds_is_stopped_once_with_it():
    stopped = []
    owner = Owner()
    stop_at_exit(owner, stopped.append, "process")
    assert stopped == []
    del owner
    gc.collect()
    assert stopped == ["process"]
