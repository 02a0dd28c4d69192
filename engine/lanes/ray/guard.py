"""The processes of Ray that a run cannot do without, and calls into Ray that cannot outlast them.

Ray ends a process without a word (``_exit(1)``) when it uses the object store of a node manager (raylet) that has died,
even if it only drops a reference, and calls wait forever for one that is stopped. Its head (GCS) is missed only after a
minute. So each call looks at these processes first and runs in a thread that the main thread can leave behind; once one
is lost, the run ends with an error, saves its state, and touches Ray no more. Where Ray is faster, as it may be when an
agent of the node manager dies, the last word is that of `engine.lanes.ray.reaper`.
"""

from __future__ import annotations

import atexit
import concurrent.futures
import contextlib
import functools
import os
import platform
import queue
import socket
import struct
import sys
import threading
import time
import weakref
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from minding.engine.errors import LaneError
from minding.engine.process.alive import is_ending, is_stopped, runs, start_ticks

_CALLS = ("cluster_resources", "get", "kill", "nodes", "put", "wait")
_SLICE = 0.05  # s
_FROZEN = 5.0  # s
_LIMIT = 60.0  # s
_KNOCK, _ANSWER, _KNOCKS = 1.0, 2.0, 3
"""Seconds between two looks at the head, seconds that it may take to accept, and looks in a row that count as lost."""
_lost: list[Guard] = []
"""The guards of lost clusters; they keep everything that Ray would miss."""


class Guard:
    """The module `ray` of a run, whose calls end if a process is lost."""

    def __init__(self, ray: Any, advice: str) -> None:
        self._ray, self._advice = ray, advice
        self.on_leave: Callable[[], None] = lambda: None
        self._reason, self._reported = "", False
        self._frozen_since: float | None = None
        self._holders: weakref.WeakSet[Any] = weakref.WeakSet()
        self._kept: list[Any] = []
        _keep_logs_away(ray._private.worker)
        self._raylet = raylet_of(ray)
        # Id and start of the node manager and of its agents, with which it ends itself.
        self._needed = {self._raylet: ("node manager (raylet)", start_ticks(self._raylet))}
        self._calls: queue.SimpleQueue[tuple[Callable[[], Any], Future[Any]] | None] = queue.SimpleQueue()
        self._closed = threading.Event()
        host, _, port = str(ray.get_runtime_context().gcs_address).rpartition(":")
        for work in (self._serve, functools.partial(self._knock, host.strip("[]"), int(port))):
            threading.Thread(target=work, daemon=True, name="minding-ray").start()

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._ray, name)
        return functools.partial(self.run, found) if name in _CALLS else found

    def is_initialized(self) -> bool:
        """Whether Ray may still be called."""
        return not self._reported and self._ray.is_initialized()

    def hold(self, holder: Any) -> None:
        """Has an object, and the references that it holds, kept if the cluster is lost."""
        self._holders.add(holder)

    def run(self, call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Calls a function of Ray, for at most a minute beyond its own timeout."""
        # `put` and others of this object call this method themselves.
        assert getattr(call, "func", None) != self.run, f"{call}: call it without run()"
        deadline = time.monotonic() + _LIMIT + (kwargs.get("timeout") or 0.0)
        while self._is_frozen():
            time.sleep(_SLICE)
        self.check()
        done: Future[Any] = Future()
        self._calls.put((functools.partial(call, *args, **kwargs), done))
        while True:
            # Not `result`, whose TimeoutError may also be that of the call.
            try:
                error = done.exception(_SLICE)
            except concurrent.futures.TimeoutError:
                if time.monotonic() > deadline:
                    self._lose(f"Ray has not answered for {_LIMIT:g} s")
                self._is_frozen()
                self.check()
                continue
            if error is None:
                return done.result()
            raise error

    def check(self) -> None:
        """Raises LaneError if a process of Ray is lost."""
        for pid, (name, since) in list(self._needed.items()):
            if not self._reason and (is_ending(pid) or not runs(pid, platform.node(), since)):
                self._lose(f"Ray's {name} on this machine, process {pid}, has ended")
        if self._reason:
            self._reported = True
            raise LaneError(f"{self._reason}: the run cannot reach its workers; {self._advice}")

    def close(self) -> None:
        self._closed.set()
        self._calls.put(None)

    def _lose(self, reason: str) -> None:
        if not self._reason and not self._closed.is_set():
            self._kept = list(self._holders)
            self._reason = reason
            _lost.append(self)
            # Registered after Ray's own hook and so called before it, which would wait or end the process silently.
            atexit.register(_leave)

    def _is_frozen(self) -> bool:
        """Whether the node manager is stopped, which counts as its loss after a while."""
        if self._reason or not is_stopped(self._raylet):
            self._frozen_since = None
            return False
        now = time.monotonic()
        self._frozen_since = self._frozen_since or now
        if now - self._frozen_since >= _FROZEN:
            self._lose(
                f"Ray's node manager (raylet) on this machine, process {self._raylet}, has been stopped for "
                f"{_FROZEN:g} s"
            )
        return not self._reason

    def _serve(self) -> None:
        while (item := self._calls.get()) is not None:
            call, done = item
            try:
                done.set_result(call())
            except BaseException as error:
                done.set_exception(error)
            del item, call, done

    def _knock(self, host: str, port: int) -> None:
        """Looks for agents, and whether the head of the cluster still accepts connections."""
        missed = 0
        while not self._closed.wait(_KNOCK):
            # Agents start after their manager.
            self._needed |= {pid: ("agent", start_ticks(pid)) for pid in _agents(self._raylet) - self._needed.keys()}
            try:
                socket.create_connection((host, port), timeout=_ANSWER).close()
                missed = 0
            except OSError as error:
                missed += 1
                if missed == _KNOCKS:
                    self._lose(f"the head of the Ray cluster (GCS, {host}:{port}) does not answer ({error})")


def raylet_of(ray: Any) -> int:
    """Id of the node manager that this process is connected to: it listens at a Unix socket."""
    own = ray.get_runtime_context().get_node_id()
    path = next(node["RayletSocketName"] for node in ray.nodes() if node["NodeID"] == own)
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(path)
        credentials = client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    return int(struct.unpack("3i", credentials)[0])


def _agents(raylet: int) -> set[int]:
    """Ids of the node manager's own agents."""
    found = set()
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, IndexError):
            if (process / "stat").read_text().rpartition(")")[2].split()[1] == str(raylet):
                command = (process / "cmdline").read_bytes()
                if b"/agent" in command or b"Agent" in command:
                    found.add(int(process.name))
    return found


def _keep_logs_away(worker: Any) -> None:
    """Keeps Ray from printing the log of a node manager that has died. No setting does: its errors are printed with
    ``log_to_driver=False`` as well, and not through `logging`."""
    printed = worker.print_to_stdstream

    def print_others(data: dict[str, Any], **options: Any) -> None:
        if not any("Raylet is terminated" in line for line in data["lines"]):
            printed(data, **options)

    worker.print_to_stdstream = print_others


def _leave() -> None:
    """Ends this process without Ray's own clean-up."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
    for guard in _lost:
        guard.on_leave()
    os._exit(1)
