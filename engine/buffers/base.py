"""The base of buffers, with the defaults of `engine.types.Buffer`."""

from collections.abc import Callable, Mapping

from minding.engine.buffers.limiters import Limiter
from minding.engine.config.named import load_code
from minding.engine.data.batch import IndexedBatch
from minding.engine.errors import ConfigError
from minding.engine.types import Array


class BaseBuffer:
    """Defaults of `engine.types.Buffer`: single rows, without priorities, an order or a limiter.

    A buffer of your own derives from it, or from `ReplayBuffer`, and defines the rest: `capacity`, `fields`,
    `__len__`, `store`, `sample`, `state_dict` and `load_state_dict`. If ``policy.other.replay`` names the class, its
    constructor takes the configuration and the fields of the rows.
    """

    prioritized: bool = False
    sequences: bool = False
    takes_order: bool = False
    limiter: Limiter | None = None
    minibatches: int | None = None
    _watchers: tuple[Callable[[Mapping[str, Array]], object], ...] = ()

    def __len__(self) -> int:
        raise NotImplementedError

    @property
    def ready(self) -> bool:
        return len(self) > 0

    @property
    def bounded(self) -> bool:
        return self.limiter is not None and self.limiter.bounded

    def can_insert(self, count: int) -> bool:
        return True

    def can_sample(self, count: int) -> bool:
        return True

    def status(self) -> str:
        return f"{len(self)} rows"

    # A policy watches the rows that it will learn from, so as to count each once in its moments of observations.

    def watch(self, watcher: Callable[[Mapping[str, Array]], object]) -> None:
        if watcher not in self._watchers:
            self._watchers = (*self._watchers, watcher)

    def push(self, transitions: Mapping[str, Array]) -> None:
        self.store(transitions)
        self.tell_watchers(transitions)

    def store(self, transitions: Mapping[str, Array]) -> None:
        raise NotImplementedError

    def tell_watchers(self, transitions: Mapping[str, Array]) -> None:
        """Passes stored rows on to whoever watches this buffer."""
        for watcher in self._watchers:
            watcher(transitions)

    def update(self, batch: IndexedBatch, priorities: Array) -> None:
        raise ConfigError(f"{type(self).__name__} has no priorities to update")

    def refuse_empty(self) -> None:
        """Raises ConfigError if the buffer holds no row."""
        if not len(self):
            raise ConfigError("sample from an empty buffer: push transitions first (data_pusher), or wait for warm-up")


def buffer_class(name: str) -> type[BaseBuffer]:
    """The class that ``policy.other.replay`` names as ``module:Class``."""
    kind = load_code(name, "policy.other.replay")
    if not isinstance(kind, type) or not issubclass(kind, BaseBuffer):
        raise ConfigError(
            f"policy.other.replay={name!r}: expected a class derived from minding.engine.buffers.BaseBuffer, whose "
            f"constructor takes the configuration and the fields of the rows, got {kind!r}"
        )
    return kind
