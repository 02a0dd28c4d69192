"""Environments in worker processes: spawned, arrays in shared memory, commands by pipe."""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import logging
import os
import select
import time
from collections.abc import Sequence
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any

import cloudpickle

from minding.engine.data.actions import ActionAdapter
from minding.engine.errors import EnvError
from minding.engine.process.spawn import SPAWN, WorkerProcess, stop_at_exit
from minding.engine.types import Array
from minding.envs.backends.source import EpisodeSource
from minding.envs.backends.worker import SharedLayout, WorkerPlan, main
from minding.envs.guards.faults import START_TIMEOUT, FaultStreak
from minding.envs.guards.watchdog import WARN_AFTER
from minding.envs.single.factory import EnvFactory
from minding.envs.spaces.layout import ObsLayout

_log = logging.getLogger("minding.envs")
_CLOSE_TIMEOUT = 2.0  # s
_TICK = 1.0  # s
_MAX_STARTS = 3
"""Most attempts to replace a lost process by one that begins its episodes."""


@dataclasses.dataclass(frozen=True)
class WorkerOptions:
    """Number of workers (0: one per core), seconds that one environment may take, whether faults lead to restarts."""

    workers: int
    step_timeout: float
    restart: bool


class ProcessSource(EpisodeSource):
    """The subprocess backend.

    The death of a worker is noticed at once, and an environment that hangs after `step_timeout`. With `restart` a new
    worker replaces a lost one, and its environments begin new episodes; a worker that is lost in `FaultStreak.limit`
    steps in a row is an error in any case. Shared memory is anonymous, so that nothing remains however the processes
    end, and workers end with their parent.
    """

    def __init__(
        self,
        factory: EnvFactory,
        layout: ObsLayout,
        adapter: ActionAdapter,
        num_envs: int,
        seed: int,
        options: WorkerOptions,
    ) -> None:
        count = min(options.workers or os.cpu_count() or 1, num_envs)
        shared = SharedLayout(layout, (num_envs, *adapter.row_shape), adapter.dtype.str, count)
        block = SPAWN.RawArray(ctypes.c_byte, shared.size)
        arrays, self._shared_actions = shared.views(block)
        arrays.episode.fill(-1)
        super().__init__(factory.name, layout, arrays, adapter, seed)
        self._options, self.first = options, factory.first
        pickled = cloudpickle.dumps(factory)
        bounds = [num_envs * k // count for k in range(count + 1)]
        self._workers = [
            _WorkerHandle(
                block, WorkerPlan(k, range(bounds[k], bounds[k + 1]), self.name, pickled, shared, options.restart)
            )
            for k in range(count)
        ]
        self._poll = select.poll()
        self._streak = FaultStreak()
        self._finalizer = stop_at_exit(self, _stop_all, self._workers)
        for worker in self._workers:
            self._launch(worker)

    @property
    def worker_pids(self) -> tuple[int, ...]:  # type: ignore[override]
        return tuple(worker.pid for worker in self._workers if worker.running)

    def close(self) -> None:
        self._finalizer()

    def _reset_envs(self) -> list[str]:
        return self._command("reset", self.seed)

    def _step_envs(self, actions: Array) -> tuple[list[Array], list[str]]:
        self._shared_actions[...] = actions
        self._streak.step += 1
        faults = self._command("step", None)
        return [leaf.copy() for leaf in self.arrays.next_obs], faults

    def _replay_env(self, row: int, actions: Array) -> None:
        worker = self._worker_of(row)
        error, _ = self._ask(worker, "replay", (self.seed, row - worker.plan.rows.start, actions))
        if error is not None:
            raise EnvError(error)

    def _begin_env(self, row: int) -> None:
        worker = self._worker_of(row)
        error, faults = self._ask(worker, "begin", (self.seed, row - worker.plan.rows.start))
        self.report(faults)
        if error is not None:
            raise EnvError(error)

    def _ask(self, worker: _WorkerHandle, command: str, argument: Any) -> tuple[str | None, list[str]]:
        """Sends a command outside a step, returns the reply; replays may take long, so the start-up limit applies."""
        try:
            worker.send(command, argument)
            if worker.connection.poll(START_TIMEOUT):
                return worker.receive()
            reason = f"did not answer within {START_TIMEOUT:g} s"
        except (EOFError, OSError):
            reason = "died"
        raise EnvError(self._lost_message(worker, reason))

    def _command(self, command: str, argument: Any) -> list[str]:
        """Sends a command to all workers, replaces the lost ones, and returns the faults survived."""
        if not self._finalizer.still_active():
            raise EnvError(f"the environments of {self.name} are closed; make a new manager")
        lost: dict[_WorkerHandle, str] = {}
        pending = {}
        for worker in self._workers:
            try:
                worker.send(command, argument)
                pending[worker.fileno] = worker
            except OSError:
                lost[worker] = "died"
        faults, errors = self._gather(pending, lost)
        messages = [self._lost_message(worker, reason) for worker, reason in lost.items()]
        if lost and self._options.restart:
            errors += [
                f"{message}; this worker was lost in {self._streak.limit} steps in a row"
                for worker, message in zip(lost, messages)
                if self._streak.is_broken(worker.plan.index)
            ]
        if errors or (messages and not self._options.restart):
            for worker in lost:
                worker.kill()  # rather than wait for a hung worker to close
            self.close()
            raise EnvError((errors + messages)[0])
        for worker in lost:
            self._revive(worker)
        return faults + messages

    def _gather(self, pending: dict[int, _WorkerHandle], lost: dict[_WorkerHandle, str]) -> tuple[list[str], list[str]]:
        """Receives replies until every worker in `pending` has answered or is lost; returns faults and errors."""
        faults: list[str] = []
        errors: list[str] = []
        tick = min(_TICK, self._options.step_timeout / 10)
        while pending:
            ready = self._poll.poll(tick * 1000.0)
            if not ready:
                for handle in [each for each in pending.values() if self._out_of_patience(each, tick)]:
                    lost[pending.pop(handle.fileno)] = f"did not answer within {self._limit(handle)}"
            for fileno, _ in ready:
                worker = pending.pop(fileno, None)
                if worker is None:  # it died before this command, and is already among the lost
                    self._poll.unregister(fileno)
                    continue
                try:
                    error, survived = worker.receive()
                except (EOFError, OSError):
                    lost[worker] = "died"
                    continue
                faults += survived
                if error is not None:
                    errors.append(error)
        return faults, errors

    def _out_of_patience(self, worker: _WorkerHandle, seconds: float) -> bool:
        """Adds `seconds` of waiting, counted separately for each environment of the worker; reports a long wait."""
        timeout = self._options.step_timeout
        limit = timeout if worker.ready else max(timeout, START_TIMEOUT)
        row = int(self.arrays.running[worker.plan.index])
        waited = worker.wait_at(row, seconds)
        if waited >= worker.warn_at:
            worker.warn_at = waited * 2
            _log.warning("waiting for %s for %.3g s; the limit is %s", self._who(worker), waited, self._limit(worker))
        return waited >= limit

    def _limit(self, worker: _WorkerHandle) -> str:
        timeout = self._options.step_timeout
        if worker.ready:
            return f"{timeout:g} s (env.step_timeout)"
        return f"{max(timeout, START_TIMEOUT):g} s of its start"

    def _revive(self, worker: _WorkerHandle) -> None:
        """Replaces a lost process by a new one; its environments begin new episodes."""
        for attempt in range(1, _MAX_STARTS + 1):
            with contextlib.suppress(KeyError):
                self._poll.unregister(worker.fileno)
            worker.kill()
            self._launch(worker)
            try:
                error, faults = self._ask(worker, "reset", self.seed)
                break
            except EnvError as lost:
                if attempt == _MAX_STARTS:
                    worker.kill()  # rather than wait for a hung worker to close
                    self.close()
                    raise EnvError(f"{lost}; so did {_MAX_STARTS} new ones in a row") from lost
                self.report([str(lost)])
        if error is not None:
            self.close()
            raise EnvError(error)
        self.report(faults)
        part = slice(worker.plan.rows.start, worker.plan.rows.stop)
        arrays = self.arrays
        arrays.reward[part] = 0.0
        arrays.valid[part] = arrays.terminated[part] = arrays.truncated[part] = False
        for successor, first in zip(arrays.next_obs, arrays.first_obs):
            successor[part] = first[part]

    def _launch(self, worker: _WorkerHandle) -> None:
        worker.start()
        self._poll.register(worker.fileno, select.POLLIN)

    def _worker_of(self, row: int) -> _WorkerHandle:
        return next(worker for worker in self._workers if row in worker.plan.rows)

    def _lost_message(self, worker: _WorkerHandle, reason: str) -> str:
        return f"{self._who(worker)}: it {reason}{worker.exit_note()}"

    def _who(self, worker: _WorkerHandle) -> str:
        rows = worker.plan.rows
        env_id = rows.start + int(self.arrays.running[worker.plan.index])
        actions = self._actions.actions(env_id)
        step = "unknown" if actions is None else len(actions)
        return (
            f"environment {self.first + env_id} ({self.name}), step {step} of its episode, in worker process "
            f"{worker.plan.index} (pid {worker.pid}, environments {self.first + rows.start} to "
            f"{self.first + rows.stop - 1})"
        )


class _WorkerHandle:
    """The parent's handle of one worker process."""

    def __init__(self, block: Any, plan: WorkerPlan) -> None:
        self.plan = plan
        self._block = block
        self.connection: Connection
        self._process: BaseProcess | None = None
        self._waited, self._row = 0.0, -1
        self.fileno = -1
        self.pid = -1
        self.ready = False
        self.warn_at = WARN_AFTER

    @property
    def running(self) -> bool:
        """Whether the process was started and not yet ended by `kill`."""
        return self._process is not None

    def start(self) -> None:
        self.connection, remote = SPAWN.Pipe()
        process = WorkerProcess(
            target=main, args=(remote, self._block, self.plan), daemon=True, name=f"minding-env-{self.plan.index}"
        )
        process.launch()
        self._process = process
        # Only the worker holds the other end now, so that its death closes the pipe.
        remote.close()
        self.fileno = self.connection.fileno()
        self.pid = self._process.pid or -1
        self.ready = False

    def send(self, command: str, argument: Any) -> None:
        self._waited = 0.0
        self.connection.send((command, argument))

    def receive(self) -> tuple[str | None, list[str]]:
        error, faults = self.connection.recv()
        self.ready = True
        return error, faults

    def wait_at(self, row: int, seconds: float) -> float:
        """Adds `seconds` to the time that the worker has spent on this row since the last command; returns the sum."""
        if row != self._row or not self._waited:
            self._row, self._waited, self.warn_at = row, 0.0, WARN_AFTER
        self._waited += seconds
        return self._waited

    def exit_note(self) -> str:
        """Exit code of a dead process, for messages."""
        if self._process is None:
            return ""
        self._process.join(0.1)
        code = self._process.exitcode
        return "" if code is None else f" with exit code {code}"

    def ask_to_close(self) -> None:
        if self._process is not None:
            with contextlib.suppress(OSError):
                self.send("close", None)

    def kill(self, patience: float = 0.0) -> None:
        """Ends the process, by force if it does not end itself within `patience` seconds."""
        if self._process is None:
            return
        if patience > 0:
            self._process.join(patience)
        if self._process.is_alive():
            self._process.kill()
        self._process.join()
        self._process.close()
        self._process = None
        self.connection.close()


def _stop_all(workers: Sequence[_WorkerHandle]) -> None:
    for worker in workers:
        worker.ask_to_close()
    deadline = time.monotonic() + _CLOSE_TIMEOUT
    for worker in workers:
        worker.kill(patience=max(deadline - time.monotonic(), 0.01))
