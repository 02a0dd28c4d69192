"""The worker process of `ProcessSource`. It imports NumPy and Gymnasium, and never MindSpore."""

import dataclasses
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

import cloudpickle
import numpy as np

from minding.engine.errors import MindingError
from minding.engine.process.spawn import become_worker
from minding.engine.types import Array
from minding.envs.backends.group import EnvGroup, StepArrays
from minding.envs.guards.faults import describe
from minding.envs.spaces.layout import ObsLayout

_ALIGNMENT = 64  # bytes, one cache line


@dataclasses.dataclass(frozen=True)
class SharedLayout:
    """The layout of the arrays of N environments and K workers in one block of shared memory."""

    obs: ObsLayout
    action_shape: tuple[int, ...]
    action_dtype: str
    num_workers: int

    def views(self, block: Any) -> tuple[StepArrays, Array]:
        """The step arrays and the actions ``(N, ...)`` in `block`, which supports the buffer protocol."""
        offset = 0

        def take(shape: tuple[int, ...], dtype: Any) -> Array:
            nonlocal offset
            array = np.frombuffer(block, dtype, int(np.prod(shape)), offset).reshape(shape)
            offset += -(-array.nbytes // _ALIGNMENT) * _ALIGNMENT
            return array

        return self._arrays(take)

    @property
    def size(self) -> int:
        """Size of the block in bytes."""
        total = 0

        def count(shape: tuple[int, ...], dtype: Any) -> Array:
            nonlocal total
            total += -(-int(np.prod(shape)) * np.dtype(dtype).itemsize // _ALIGNMENT) * _ALIGNMENT
            return np.empty(0)

        self._arrays(count)
        return total

    def _arrays(self, take: Callable[[tuple[int, ...], Any], Array]) -> tuple[StepArrays, Array]:
        rows = self.action_shape[:1]
        steps = StepArrays(
            next_obs=[take(rows + leaf.shape, leaf.dtype) for leaf in self.obs.leaves],
            first_obs=[take(rows + leaf.shape, leaf.dtype) for leaf in self.obs.leaves],
            reward=take(rows + self.obs.reward_shape, np.float64),
            terminated=take(rows, bool),
            truncated=take(rows, bool),
            valid=take(rows, bool),
            episode=take(rows, np.int64),
            running=take((self.num_workers,), np.int64),
        )
        return steps, take(self.action_shape, self.action_dtype)


@dataclasses.dataclass(frozen=True)
class WorkerPlan:
    """The instructions of one worker."""

    index: int
    rows: range
    name: str
    factory: bytes
    layout: SharedLayout
    restart: bool


def main(connection: Connection, block: Any, plan: WorkerPlan) -> None:
    """Executes commands ``(name, argument)`` until the pipe closes; each reply is ``(error or None, faults)``."""
    become_worker()
    worker: _Worker | None = None
    try:
        while True:
            command, argument = connection.recv()
            if command == "close":
                return
            reply: tuple[str | None, list[str]]
            try:
                worker = worker or _Worker(block, plan)
                getattr(worker, command)(argument)
                reply = None, worker.take_faults()
            except MindingError as error:
                reply = str(error), []
            except Exception as error:  # unpickling the factory may raise any error; it is reported with its type
                reply = f"{plan.name} cannot be sent to a worker: {describe(error)}", []
            connection.send(reply)
    except (EOFError, BrokenPipeError, ConnectionResetError):
        return
    finally:
        if worker is not None:
            worker.close()


class _Worker:
    """The commands of a worker, as methods."""

    def __init__(self, block: Any, plan: WorkerPlan) -> None:
        arrays, actions = plan.layout.views(block)
        part = slice(plan.rows.start, plan.rows.stop)
        self._actions = actions[part]
        own = arrays.rows(part, arrays.running[plan.index : plan.index + 1])
        factory = cloudpickle.loads(plan.factory)
        self._group = EnvGroup(factory, plan.name, plan.rows, plan.layout.obs, own, plan.restart, factory.first)

    def reset(self, seed: int) -> None:
        self._group.seed = seed
        self._group.reset()

    def step(self, _: None) -> None:
        # A copy: an environment may keep its action, and the block is overwritten.
        self._group.step(self._actions.copy())

    def begin(self, argument: tuple[int, int]) -> None:
        self._group.seed, row = argument
        self._group.begin(row)

    def replay(self, argument: tuple[int, int, Array]) -> None:
        self._group.seed, row, actions = argument
        self._group.replay(row, actions)

    def take_faults(self) -> list[str]:
        faults, self._group.faults = self._group.faults, []
        return faults

    def close(self) -> None:
        self._group.close()
