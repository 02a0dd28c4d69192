"""A channel between two processes of one machine that sends arrays through shared memory."""

from __future__ import annotations

import contextlib
import mmap
import os
import pickle
import tempfile
from collections.abc import Sequence
from multiprocessing import reduction
from multiprocessing.connection import Connection
from typing import Any

from minding.engine.lanes.serialization import serialize
from minding.engine.lanes.transport import ChannelClosed

_ALIGNMENT = 64  # bytes, one cache line
_SMALLEST = 1 << 12  # bytes of a slot


class SharedMemoryChannel:
    """A `Channel` over an unnamed pair of sockets, with arrays in anonymous shared memory.

    Pickle (protocol 5) splits a message into a short header, which goes over the socket, and the buffers of its
    arrays, which the sender copies once into shared memory and the receiver once out of it. The memory has no name and
    ends with the processes that map it, whatever ends them. It is a ring of `depth` slots, each as large as the largest
    message so far.

    Both ends are processes of one run, on a socket without an address, so pickled bytes come from nowhere else.

    Args:
      connection: one end of ``multiprocessing.Pipe()``.
      depth: maximum number of messages under way in one direction.
    """

    def __init__(self, connection: Connection, depth: int) -> None:
        self._connection = connection
        self._depth = depth
        self._out: _Segment | None = None
        self._in: _Segment | None = None
        self._sent = self._received = 0
        self.place: Any = None

    def fileno(self) -> int:
        """The file descriptor of the socket, to wait for several channels at once."""
        return self._connection.fileno()

    def send(self, message: Any, place: Any = None) -> None:
        header, buffers = serialize(message)
        sizes = [len(buffer) for buffer in buffers]
        grown = self._grow(sizes)
        if buffers:
            assert self._out is not None
            self._out.write(self._sent % self._depth, buffers)
        try:
            self._connection.send_bytes(pickle.dumps((header, sizes, grown, place)))
            if grown:
                assert self._out is not None
                reduction.send_handle(self._connection, self._out.file, None)  # type: ignore[arg-type]
        except OSError as error:
            raise ChannelClosed(str(error)) from error
        self._sent += 1

    def receive(self, timeout: float | None = None) -> Any:
        try:
            if not self._connection.poll(timeout):
                raise TimeoutError(f"no message within {timeout} s")
            # The bytes come from a process of this run, see the class.
            header, sizes, grown, place = pickle.loads(self._connection.recv_bytes())  # noqa: S301
            if grown:
                self._replace_in(_Segment(reduction.recv_handle(self._connection), grown, self._depth))
        except TimeoutError:
            raise
        except (EOFError, OSError) as error:
            raise ChannelClosed(str(error)) from error
        buffers: Sequence[bytearray] = ()
        if sizes:
            assert self._in is not None
            buffers = self._in.read(self._received % self._depth, sizes)
        self._received += 1
        self.place = place
        return pickle.loads(header, buffers=buffers)  # noqa: S301

    def close(self) -> None:
        self._connection.close()
        for segment in (self._out, self._in):
            if segment is not None:
                segment.close()
        self._out = self._in = None

    def _grow(self, sizes: Sequence[int]) -> int:
        """Creates a larger segment if a message does not fit; returns its bytes per slot, 0 if the old one suffices."""
        needed = sum(_aligned(size) for size in sizes)
        if not sizes or (self._out is not None and needed <= self._out.slot):
            return 0
        slot = max(_SMALLEST, 1 << (needed - 1).bit_length())
        # Messages in the old segment stay readable: the receiver keeps it until the first message in the new one.
        if self._out is not None:
            self._out.close()
        self._out = _Segment(_anonymous_file(), slot, self._depth)
        return slot

    def _replace_in(self, segment: _Segment) -> None:
        if self._in is not None:
            self._in.close()
        self._in = segment


class _Segment:
    """Anonymous shared memory of `depth` slots."""

    def __init__(self, file: int, slot: int, depth: int) -> None:
        self.file = file
        self.slot = slot
        if os.fstat(file).st_size < slot * depth:
            os.ftruncate(file, slot * depth)
        self._map = mmap.mmap(file, slot * depth)
        self._bytes = memoryview(self._map)

    def write(self, index: int, buffers: Sequence[memoryview]) -> None:
        position = index * self.slot
        for buffer in buffers:
            self._bytes[position : position + len(buffer)] = buffer
            position += _aligned(len(buffer))

    def read(self, index: int, sizes: Sequence[int]) -> list[bytearray]:
        position, buffers = index * self.slot, []
        for size in sizes:
            buffers.append(bytearray(self._bytes[position : position + size]))
            position += _aligned(size)
        return buffers

    def close(self) -> None:
        self._bytes.release()
        self._map.close()
        os.close(self.file)


def _aligned(size: int) -> int:
    return -(-size // _ALIGNMENT) * _ALIGNMENT


def _anonymous_file() -> int:
    """A file without a name, which ends with the last process that holds it."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("minding", os.MFD_CLOEXEC)
    with tempfile.TemporaryFile() as file, contextlib.suppress(OSError):
        return os.dup(file.fileno())
    raise OSError("no anonymous shared memory: neither memfd_create nor a temporary file")
