"""Several learners: processes that divide each minibatch and average their gradients.

The main process collects, keeps the buffer and writes checkpoints, as in a run with one learner. For every learn call
it sends each other learner an equal part of the rows of every minibatch, and of the inputs that belong to rows. All of
them then make the same steps, in which `Optimizer` averages the gradients by MindSpore's AllReduce, before clipping and
Adam. Everything that concerns a whole minibatch, such as standardized advantages and the moments of observations, is
computed in the main process from all rows.

The weights are therefore bit-identical in all learners; parameters that something else changes, such as a loaded
checkpoint, are sent before the next call.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
import pickle
import queue
import secrets
import socket
import threading
import time
import traceback
import weakref
from collections.abc import Mapping, Sequence
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client, Connection, answer_challenge, deliver_challenge, wait
from typing import Any, Protocol

import cloudpickle
import numpy as np

from minding.engine.buffers import DeviceTables
from minding.engine.console import console_logger
from minding.engine.data.batch import IndexedBatch, RowLayout
from minding.engine.errors import ConfigError, LearnerError
from minding.engine.process import collectives, runtime
from minding.engine.process.runtime import ms, ops
from minding.engine.process.spawn import SPAWN, WorkerProcess, become_worker, stop_at_exit
from minding.engine.types import Array, LearnOutput
from minding.policies.learning.optim import SHARE
from minding.policies.learning.steps import ALL_ROWS, Inputs
from minding.policies.learning.update import Update

_LONGEST = 300.0
"""Seconds after which a learner that does not answer counts as frozen; it may be compiling."""
_WAITED = "AllReduce"
"""MindSpore's error of an operator that waited for other learners in vain contains its name."""
_BACKLOG = 128
"""Connections that may wait to be accepted; most may be those of strangers."""
_GLANCE = 1.0
"""Seconds to wait for the end of a process that is ending."""


@dataclasses.dataclass(frozen=True)
class Call:
    """A learner's part of a learn call.

    Attributes:
      fields: its rows, each once, as arrays ``(n, ...)`` by field.
    """

    fields: dict[str, Array]
    index: Array
    inputs: Inputs


class Learns(Protocol):
    """A policy, which the other learners rebuild."""

    @property
    def params(self) -> Mapping[str, Any]: ...

    @property
    def row_fields(self) -> Mapping[str, Any]: ...

    @property
    def undivided(self) -> Update: ...

    def counted(self, batch: IndexedBatch) -> Array | None: ...


class Learners:
    """The other learners of this process, which is the main one: processes of this machine that end with it, or those
    that ``msrun`` has started."""

    def __init__(self, size: int) -> None:
        self.size = size
        # Why the group has been lost: MindSpore cannot form another one in this process.
        self._lost = ""
        self._served: weakref.ref[DividedUpdate] | None = None
        self._processes: list[WorkerProcess] = []
        self._connections: list[Connection] = []
        if collectives.started_by_msrun():
            self._connections = _connected(size)
        else:
            self._start(size)

    def _start(self, size: int) -> None:
        self._scheduler = collectives.Scheduler(size)
        for rank in range(1, size):
            here, there = SPAWN.Pipe()
            given = (there, self._scheduler.member(rank), runtime.settings())
            process = WorkerProcess(target=_learn, args=given, name=f"learner-{rank}")
            process.launch()
            there.close()
            stop_at_exit(self, process.kill)
            self._connections.append(here)
            self._processes.append(process)
        os.environ.update(self._scheduler.member(0))
        console_logger().info("starting %s more learner%s", size - 1, "s" if size > 2 else "")
        for k in range(size - 1):
            # MindSpore would wait half an hour for one that cannot start.
            self._receive(k)
        collectives.join()

    @property
    def pids(self) -> tuple[int, ...]:
        """Process ids of the other learners that this process has started."""
        return tuple(process.pid for process in self._processes if process.pid is not None)

    def serve(self, update: DividedUpdate, recipe: bytes) -> bool:
        """Rebuilds a policy in the other learners from its pickled ``(class, configuration, algorithm)``, in place of
        that of another update; returns whether that was due."""
        if self._served is not None and self._served() is update:
            return False
        self._ask([("build", recipe)] * (self.size - 1))
        self._served = weakref.ref(update)
        return True

    def start(self, changed: Mapping[str, Array], calls: Sequence[Call]) -> None:
        """Sends the other learners their calls and parameters; returns when they have compiled their steps."""
        self._ask([("learn", changed, call) for call in calls])

    def priorities(self) -> list[Array | None]:
        """The priorities that the other learners return at the end of a call."""
        return [self._receive(k) for k in range(self.size - 1)]

    def parameters(self) -> list[dict[str, Array]]:
        """The parameters of the other learners by name."""
        return self._ask([("parameters",)] * (self.size - 1))

    def failed(self, error: RuntimeError) -> LearnerError:
        """The reason for which a call failed, if it is another learner; other errors are raised."""
        silent, deadline = {each: k for k, each in enumerate(self._connections)}, time.monotonic() + _GLANCE
        while silent and (ready := wait(list(silent), max(0.0, deadline - time.monotonic()))):
            for connection in ready:
                try:
                    self._receive(silent.pop(connection))  # type: ignore[call-overload]
                except LearnerError as reason:
                    # A learner that waited for another one, too, is not the cause.
                    if _WAITED not in str(reason):
                        return reason
        if _WAITED not in str(error):
            raise error
        name = collectives.NODE_TIMEOUT
        return self._lose(
            f"a learner did not take part in averaging gradients within {os.environ.get(name, 'the default of 30')} s: "
            f"if it was busy, set the environment variable {name} to more seconds; `minding resume` continues the run"
        )

    def _lose(self, why: str) -> LearnerError:
        self._lost = why
        collectives.abandon()
        return LearnerError(why)

    def _ask(self, messages: Sequence[Any]) -> list[Any]:
        if self._lost:
            raise LearnerError(self._lost)
        for k, message in enumerate(messages):
            try:
                self._connections[k].send_bytes(pickle.dumps(message, pickle.HIGHEST_PROTOCOL))
            except OSError:
                raise self._gone(k) from None
        return [self._receive(k) for k in range(self.size - 1)]

    def _receive(self, k: int) -> Any:
        try:
            if not self._connections[k].poll(_LONGEST):
                raise self._lose(
                    f"learner {k + 1} has not answered for {_LONGEST:.0f} s; `minding resume` continues the run"
                )
            # From a process of this run.
            kind, answer = pickle.loads(self._connections[k].recv_bytes())  # noqa: S301
        except (EOFError, OSError):
            raise self._gone(k) from None
        if kind == "error":
            raise self._lose(f"learner {k + 1} failed:\n{answer}")
        return answer

    def _gone(self, k: int) -> LearnerError:
        which = ""
        if self._processes:
            process = self._processes[k]
            process.join(_GLANCE)
            which = f" (process {process.pid}, exit code {process.exitcode})"
        return self._lose(
            f"learner {k + 1}{which} has ended, and a run needs all learners: `minding resume` continues it from "
            "its last checkpoint"
        )


_serving = False


def is_main() -> bool:
    """Whether this process is not one of the other learners."""
    return not _serving


@functools.cache
def learners_of(size: int) -> Learners:
    """The learners of this process, which start with the first call and serve all of its policies."""
    if learners_of.cache_info().currsize:
        raise ConfigError(
            f"lanes.learners={size}: this process has had another number of learners, and MindSpore forms a group only "
            "once per process: start a new process"
        )
    return Learners(size)


_FACTS = 128
"""Length of what rank 0 tells the others, in bytes."""


def join_msrun(size: int) -> bool:
    """Joins the group of ``msrun``, which has started this process among `size` learners; returns whether this is the
    main process. In every other process it returns when the run has ended: the process has nothing more to do.
    MindSpore has to be prepared as in the main process."""
    if collectives.join() == 0:
        # The others wait for it.
        learners_of(size)
        return True
    host, port, key = pickle.loads(_summed(b""))  # noqa: S301 - from a process of this run
    with Client((host, port), authkey=key) as connection:
        connection.send(collectives.rank())
        _serve_to_the_end(connection)
    return False


def _connected(size: int) -> list[Connection]:
    """The connections to the other processes of ``msrun``, which have called `join_msrun`."""
    key = secrets.token_bytes(16)
    found: dict[int, Connection] = {}
    arrived: queue.SimpleQueue[tuple[int, Connection]] = queue.SimpleQueue()
    with socket.create_server((collectives.own_address(), 0), backlog=_BACKLOG) as server:
        host, port = server.getsockname()
        _summed(pickle.dumps((host, port, key)))
        server.settimeout(_GLANCE)
        while len(found) < size - 1:
            with contextlib.suppress(TimeoutError, ConnectionError):
                connection = Connection(server.accept()[0].detach())
                # A stranger may say nothing, for which nobody else waits.
                threading.Thread(target=_greet, args=(connection, key, arrived), daemon=True).start()
            while not arrived.empty():
                rank, connection = arrived.get()
                found[rank] = connection
    return [found[rank] for rank in range(1, size)]


def _greet(connection: Connection, key: bytes, arrived: queue.SimpleQueue[tuple[int, Connection]]) -> None:
    """Lets in who knows the key, as `Client` shows it, and says its rank."""
    with contextlib.suppress(AuthenticationError, EOFError, OSError):
        deliver_challenge(connection, key)
        answer_challenge(connection, key)
        arrived.put((connection.recv(), connection))
        return
    connection.close()


def _summed(facts: bytes) -> bytes:
    """What rank 0 tells the others, who tell nothing, so that the sum of all is what it said."""
    said = np.zeros(_FACTS, np.float32)
    said[: len(facts)] = np.frombuffer(facts, np.uint8)
    return ops.AllReduce()(ms.Tensor(said)).asnumpy().astype(np.uint8).tobytes()


class DividedUpdate:
    """An `Update` whose minibatches are divided among learners.

    If a learner ends during a call, the parameters are put back to those before the call.
    """

    def __init__(self, update: Update, group: Learners, policy: Learns, recipe: bytes) -> None:
        self._update, self._group, self._policy = update, group, policy
        self._recipe = recipe
        # The parameters as the other learners have them.
        self._known: dict[str, Array] = {}

    @property
    def signatures(self) -> int:
        return self._update.signatures

    @property
    def group(self) -> Learners:
        """The learners."""
        return self._group

    def __call__(self, batch: IndexedBatch, inputs: Inputs) -> LearnOutput:
        own, *others = divided(batch, inputs, self._group.size, self._policy.counted(batch))
        calls = [_call(part, given, self._policy.row_fields) for part, given in others]
        if self._group.serve(self, self._recipe):
            self._known = {}
        live = {name: p.asnumpy() for name, p in self._policy.params.items()}
        changed = {
            name: array.copy()
            for name, array in live.items()
            if name not in self._known or not np.array_equal(self._known[name], array, equal_nan=True)
        }
        self._known |= changed
        try:
            output = self._update(*own, before=lambda: self._group.start(changed, calls))
            priorities = self._group.priorities()
        except (RuntimeError, LearnerError) as error:
            lost = error if isinstance(error, LearnerError) else self._group.failed(error)
            for name, p in self._policy.params.items():
                runtime.assign(p, self._known[name])
            raise lost from None
        for name, p in self._policy.params.items():
            np.copyto(self._known[name], p.asnumpy())
        if output.priorities is None:
            return output
        found = [x for x in (output.priorities, *priorities) if x is not None]
        return dataclasses.replace(output, priorities=np.concatenate(found, axis=-1))


def divided(
    batch: IndexedBatch, inputs: Inputs, count: int, counted: Array | None = None
) -> list[tuple[IndexedBatch, Inputs]]:
    """Divides the rows of each minibatch into equal parts, and with them the inputs that have an entry per row. Rows
    are divided along the last axis of the index, so that sequences stay whole."""
    shape, axis = batch.index.shape, batch.index.ndim - 1
    if shape[axis] % count:
        what = "sequences" if axis > 1 else "rows"
        raise ConfigError(
            f"lanes.learners={count} does not divide the {shape[axis]} {what} of a minibatch: choose a batch size, or "
            "a number of environments, steps and minibatches, that it divides"
        )
    size = shape[axis] // count

    def part(values: Array | None, k: int) -> Any:
        if values is None or np.shape(values)[: axis + 1] != shape:
            return values
        return np.ascontiguousarray(values[(slice(None),) * axis + (slice(k * size, (k + 1) * size),)])

    weights = np.ones(shape, np.float32) if counted is None else np.asarray(counted, np.float32)
    total = weights.reshape(len(weights), -1).sum(1)
    found = []
    for k in range(count):
        rows = {name: part(getattr(batch, name), k) for name in ("index", "weight", "successor", "valid", "version")}
        steps = {name: part(values, k) for name, values in inputs.steps.items()}
        counts = part(weights, k).reshape(len(weights), -1).sum(1)
        steps[SHARE] = (counts / np.maximum(total, 1.0))[:, None]
        found.append((dataclasses.replace(batch, **rows), dataclasses.replace(inputs, steps=steps)))
    return found


def _call(part: IndexedBatch, inputs: Inputs, names: Mapping[str, Any]) -> Call:
    """A learner's part with the rows that it needs: those that it learns from, or all if all are presented."""
    if part.valid is not None:
        inputs = dataclasses.replace(inputs, steps={"valid": part.valid, **inputs.steps})
    if ALL_ROWS in inputs.constants:
        rows, index = np.asarray(inputs.constants[ALL_ROWS]).reshape(-1), part.index
        fields = {name: part.layout.read(part.tables.host, name, rows) for name in names}
    else:
        fields, index = part.distinct()
        fields = {name: fields[name] for name in names}
    # The gradient steps of a call need no views of the main process's memory.
    return Call({name: np.array(values) for name, values in fields.items()}, index, inputs)


def _learn(connection: Connection, variables: Mapping[str, str], settings: runtime.Settings) -> None:
    """The process of another learner on this machine."""
    become_worker()
    os.environ.update(variables)
    runtime.prepare(settings)
    connection.send_bytes(pickle.dumps(("answer", None), pickle.HIGHEST_PROTOCOL))
    collectives.join()
    _serve_to_the_end(connection)
    # MindSpore would wait for the other processes of the group.
    os._exit(0)


def _serve_to_the_end(connection: Connection) -> None:
    """Answers the main process until it ends; tells it of an error."""
    # It has ended.
    with contextlib.suppress(EOFError, OSError):
        try:
            serve(connection)
        except (EOFError, OSError):
            raise
        except BaseException:
            connection.send_bytes(pickle.dumps(("error", traceback.format_exc()), pickle.HIGHEST_PROTOCOL))


def serve(connection: Connection) -> None:
    """Answers the messages of `Learners`, in a process that has joined its group."""
    global _serving
    _serving = True
    policy: Any = None
    tables: DeviceTables | None = None

    def answer(value: Any) -> None:
        connection.send_bytes(pickle.dumps(("answer", value), pickle.HIGHEST_PROTOCOL))

    while True:
        what, *given = pickle.loads(connection.recv_bytes())  # noqa: S301 - from a process of this run
        if what == "build":
            kind, config, algorithm = cloudpickle.loads(*given)
            policy, tables = kind(config, ("learn",), algorithm), None
            answer(None)
        elif what == "parameters":
            answer({name: p.asnumpy().copy() for name, p in policy.params.items()})
        else:
            changed, call = given
            for name, array in changed.items():
                runtime.assign(policy.params[name], array)
            tables = _filled(policy.row_fields, call.fields, tables)
            batch = IndexedBatch(tables.layout, tables, call.index)
            output = policy.undivided(batch, call.inputs, before=functools.partial(answer, None))
            answer(output.priorities)


def _filled(fields: Mapping[str, Any], values: Mapping[str, Array], tables: DeviceTables | None) -> DeviceTables:
    """Tables that hold the rows; larger ones replace `tables` if the rows do not fit."""
    count = len(next(iter(values.values())))
    if tables is None or tables.rows < count:
        tables = DeviceTables(RowLayout(fields), count, replaced=tables)
    tables.write(0, tables.layout.pack(values))
    return tables
