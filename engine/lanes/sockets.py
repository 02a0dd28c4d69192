"""Connections between collectors and an inference server over a Unix socket."""

from __future__ import annotations

import contextlib
import os
import pickle
import queue
import secrets
import shutil
import socket
import tempfile
import threading
import time
import weakref
from collections.abc import Sequence
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client, Listener, wait
from pathlib import Path
from typing import Any

import numpy as np

from minding.engine.errors import ConfigError
from minding.engine.lanes.options import cores
from minding.engine.lanes.transport import ChannelClosed, Question, Reply
from minding.engine.types import Array

_NAME = "inference"
_LONGEST = 100
"""Longest path of a Unix socket, in bytes, that all systems accept."""
_RETRY = 0.02  # s between two attempts to reach a server
_GLANCE = 0.05  # s after which new collectors are looked for


class SocketPort:
    """A `Port` in a folder that only this user can enter; a connection also needs a secret key."""

    def __init__(self) -> None:
        if not hasattr(socket, "AF_UNIX"):
            raise ConfigError(
                "lanes.inference: a server needs Unix sockets, which this system does not have; use "
                "lanes.inference=local"
            )
        self._key = secrets.token_bytes(32)
        self._folder = _short_folder()
        self._address = str(Path(self._folder) / _NAME)
        weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)

    def open(self) -> None:
        with contextlib.suppress(FileExistsError):
            Path(self._folder).mkdir(0o700)

    def close(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)

    def connect(self, asker: int) -> SocketLine:
        return SocketLine(self._address, self._key)

    def listen(self) -> SocketCounter:
        # The socket of a server that died.
        Path(self._address).unlink(missing_ok=True)
        return SocketCounter(self._address, self._key)


class OnThisMachine:
    """The part of a `Transport` that is the same for processes and threads, so that their runs are the same."""

    @property
    def max_collectors(self) -> int:
        return len(cores()) - 2

    def port(self, askers: int) -> SocketPort:
        return SocketPort()

    def close(self) -> None: ...


def _short_folder() -> str:
    """A new folder whose path is short enough for the address of a socket."""
    for parent in (None, "/tmp"):
        folder = tempfile.mkdtemp(prefix="minding-", dir=parent)
        if len(os.fsencode(Path(folder) / _NAME)) <= _LONGEST:
            return folder
        Path(folder).rmdir()
    raise ConfigError(
        f"lanes.inference=server: expected a temporary folder whose path has at most {_LONGEST} bytes, got {folder}: "
        "set the environment variable TMPDIR to a shorter one, or use lanes.inference=local"
    )


class SocketLine:
    """A `Line` that connects with its first question."""

    def __init__(self, address: str, key: bytes) -> None:
        self._address, self._key = address, key
        self._connection: Any = None

    def ask(self, question: Question) -> tuple[Array, ...]:
        data = pickle.dumps(question, pickle.HIGHEST_PROTOCOL)
        while True:
            try:
                if self._connection is None:
                    self._connection = Client(self._address, "AF_UNIX", authkey=self._key)
                self._connection.send_bytes(data)
                # The bytes come from a process of this run.
                return pickle.loads(self._connection.recv_bytes())  # type: ignore[no-any-return]  # noqa: S301
            except (EOFError, OSError, AuthenticationError):
                self.close()
                if not Path(self._address).parent.exists():
                    raise ChannelClosed("the inference server has ended") from None
                time.sleep(_RETRY)

    def close(self) -> None:
        if self._connection is not None:
            with contextlib.suppress(OSError):
                self._connection.close()
        self._connection = None


class SocketCounter:
    """A `Counter` at a listening socket."""

    def __init__(self, address: str, key: bytes) -> None:
        self._address, self._closed = address, False
        self._listener = Listener(address, "AF_UNIX", backlog=64, authkey=key)
        self._new: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._open: list[Any] = []
        self._accepting = threading.Thread(target=self._accept, daemon=True, name="minding-inference")
        self._accepting.start()

    @property
    def askers(self) -> int:
        return len(self._open)

    def receive(self, timeout: float) -> list[tuple[Question, Reply]]:
        deadline = time.monotonic() + timeout
        while True:
            while not self._new.empty():
                self._open.append(self._new.get())
            left = max(0.0, deadline - time.monotonic())
            if not self._open:
                # There is no connection yet; wait for the first one.
                with contextlib.suppress(queue.Empty):
                    self._open.append(self._new.get(timeout=left))
                    continue
                return []
            arrived = [found for one in wait(self._open, min(left, _GLANCE)) if (found := self._question(one))]
            if arrived or left <= _GLANCE:
                return arrived

    def close(self) -> None:
        self._closed = True
        # Only a connection wakes the thread that accepts.
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as knock:
            knock.connect(self._address)
        self._accepting.join()
        self._listener.close()
        for connection in self._open:
            connection.close()

    def _question(self, connection: Any) -> tuple[Question, Reply] | None:
        try:
            question = pickle.loads(connection.recv_bytes())  # noqa: S301 - from a process of this run
        except (EOFError, OSError):
            self._open.remove(connection)
            connection.close()
            return None

        def reply(outputs: Sequence[Array]) -> None:
            # The death of a collector is noticed at the next look at its connection.
            with contextlib.suppress(OSError):
                connection.send_bytes(packed(outputs))

        return question, reply

    def _accept(self) -> None:
        while not self._closed:
            # The other side does not know the key, or has closed the connection.
            with contextlib.suppress(AuthenticationError, EOFError, ConnectionError):
                self._new.put(self._listener.accept())


def packed(outputs: Sequence[Array]) -> bytes:
    """Outputs as bytes; the arrays that are loaded from them are writable."""
    return pickle.dumps(tuple(np.array(x, order="C") for x in outputs), pickle.HIGHEST_PROTOCOL)
