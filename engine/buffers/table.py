"""Replay tables with samplers, removers and limiters (Reverb: Cassirer et al., 2021,
https://arxiv.org/abs/2102.04736), for one machine."""

from collections import deque
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from minding.engine.buffers import limiters
from minding.engine.buffers.base import BaseBuffer
from minding.engine.buffers.device_tables import DeviceTables, check_fits, described, in_blocks, new_origin
from minding.engine.buffers.limiters import Limiter
from minding.engine.buffers.priorities import UNKNOWN, Priority, checked_errors
from minding.engine.buffers.selectors import make_selector, uses_priority
from minding.engine.data.batch import PRIORITY, Field, IndexedBatch, RowLayout
from minding.engine.errors import CheckpointError, ConfigError, LimitError
from minding.engine.seeding import SeedStreams, generator_state, restore_generator
from minding.engine.types import Array, StateDict


class Rows:
    """Rows in device memory that several tables can share; a row is free again once no table refers to it. The time of
    each write is noted, for incremental checkpoints."""

    def __init__(self, capacity: int, fields: Mapping[str, Field]) -> None:
        if capacity < 1:
            raise ConfigError(f"buffer capacity: expected at least 1 row, got {capacity}")
        self.capacity = capacity
        self.layout = RowLayout(fields)
        self.tables = DeviceTables(self.layout, capacity)
        # For each place, the number of rows pushed when it was written.
        self.pushed, self._written = 0, np.zeros(capacity, np.int64)
        self._origin = new_origin()
        self._references = np.zeros(capacity, np.int64)
        # A released place is the last to be written again: a learner that sampled it may not have gathered it yet.
        self._free = deque(range(capacity))

    @property
    def num_free(self) -> int:
        """The number of rows that still fit."""
        return len(self._free)

    def pack(self, values: Mapping[str, Array]) -> tuple[Array, ...]:
        """Packs rows, one array ``(n, *shape)`` per field, for `take`."""
        block = self.layout.pack(values)
        self.layout.check_finite(block, "replay push")
        return block

    def take(self, block: Sequence[Array]) -> Array:
        """Writes packed rows to free places; returns the places, int64 ``(n,)``."""
        count = len(block[0])
        if count > self.num_free:
            raise ConfigError(
                f"push of {count} rows: tables hold {self.capacity - self.num_free} of {self.capacity} rows, and "
                f"{self.num_free} are free; give Rows a capacity of at least the sum of its tables' capacities"
            )
        places = np.array([self._free.popleft() for _ in range(count)], np.int64)
        for table, new in enumerate(block):
            self.tables.put(table, places, new)
        self.pushed += count
        self._written[places] = self.pushed
        return places

    def hold(self, places: Array) -> None:
        """Counts one more table that refers to each of these rows."""
        self._references[places] += 1

    def release(self, places: Array) -> None:
        """Counts one table fewer that refers to each of these rows."""
        self._references[places] -= 1
        self._free.extend(places[self._references[places] == 0].tolist())

    def versions(self, places: Array) -> Array:
        """When the rows at these places were written: the number of rows pushed until then, int64."""
        written: Array = self._written[places]
        return written

    def read(self, name: str, rows: Array) -> Array:
        """A field of the rows at the given places, as a copy."""
        return self.layout.read(self.tables.host, name, rows).copy()

    def state_dict(self) -> StateDict:
        """The rows up to the last that was ever written (views, not copies, in blocks), the number of rows ever pushed,
        and the free places, in the order in which they will be used."""
        used = int(np.flatnonzero(self._written).max(initial=-1)) + 1

        def versions(block_rows: int) -> list[int]:
            """For each block, the number of rows pushed up to its last change, counted from the origin."""
            if not used:
                return []
            last = np.maximum.reduceat(self._written[:used], np.arange(0, used, block_rows))
            return [self._origin + int(pushed) for pushed in last]

        return {
            **described(self.layout, self.capacity),
            "pushed": self.pushed,
            "tables": {str(i): in_blocks(table, used, versions) for i, table in enumerate(self.tables.host)},
            "free": np.array(self._free, np.int64),
            "references": self._references.copy(),
        }

    def load_state_dict(self, state: StateDict) -> None:
        check_fits(state, self.layout, self.capacity)
        saved = [np.asarray(state["tables"][str(i)]) for i in range(len(self.tables.host))]
        self.tables.write(0, saved)
        self.pushed = int(state["pushed"])
        self._written[:] = 0
        self._written[: len(saved[0])] = self.pushed
        self._origin = new_origin()
        self._free = deque(np.asarray(state["free"]).tolist())
        self._references = np.asarray(state["references"]).astype(np.int64)


class Table(BaseBuffer):
    """A store of transitions with a sampler, a remover that makes room, and a limiter of inserts and samples.

    With ``uniform`` and ``fifo`` it samples like a `ReplayBuffer`, which is faster because it does not track single
    rows. Each row stores its own images (no ``images_once``).

    Args:
      on_removal: called with the rows that are removed, one array ``(n, *shape)`` per field, and how often each was
        sampled, int64 ``(n,)``. Resumed runs do not repeat calls.
    """

    def __init__(
        self,
        capacity: int,
        fields: Mapping[str, Field] | Rows,
        sampler: str = "uniform",
        remover: str = "fifo",
        max_times_sampled: int = 0,
        limiter: Limiter | None = None,
        *,
        priority: Priority | None = None,
        seed: int = 0,
        on_removal: Callable[[Mapping[str, Array], Array], object] | None = None,
    ) -> None:
        self.rows = fields if isinstance(fields, Rows) else Rows(capacity, fields)
        if not 1 <= capacity <= self.rows.capacity:
            raise ConfigError(f"table capacity: expected 1 to {self.rows.capacity} rows, got {capacity}")
        if max_times_sampled < 0:
            raise ConfigError(f"max_times_sampled={max_times_sampled}: expected at least 0 (0: no limit)")
        self.capacity = capacity
        self.sampler, self.remover, self.max_times_sampled = sampler, remover, max_times_sampled
        self.limiter: Limiter = limiters.none() if limiter is None else limiter
        if self.limiter.min_size > capacity:
            raise ConfigError(
                f"the limiter waits for {self.limiter.min_size} rows, and the table holds {capacity}: raise its "
                "capacity"
            )
        if self.limiter.bounded and 0 < max_times_sampled < self.limiter.samples_per_insert:
            raise ConfigError(
                f"max_times_sampled={max_times_sampled} removes rows before each is sampled "
                f"{self.limiter.samples_per_insert:g} times, as the limiter wants on average: raise it, or use fewer "
                "samples per insert"
            )
        self.prioritized = uses_priority(sampler) or uses_priority(remover)
        self._priority = priority or Priority()
        self._on_removal = on_removal
        self.minibatches: int | None = 0
        self.inserted = self.sampled = 0
        self._sampler = make_selector(sampler, self.rows.capacity, self._priority.alpha, "sampler")
        self._remover = make_selector(remover, self.rows.capacity, 1.0, "remover")
        self._times: dict[int, int] = {}
        """How often each row that is held was drawn."""
        self._left = 0
        """How often the rows that are held can still be drawn, where `max_times_sampled` bounds it."""
        self._highest = 1.0
        self._rng = SeedStreams(seed).generator("buffer")

    @property
    def fields(self) -> Mapping[str, Field]:
        return self.rows.layout.fields

    @property
    def beta(self) -> float:
        """The exponent of the importance weights of the next minibatch."""
        return self._priority.beta_after(self.minibatches or 0)

    def __len__(self) -> int:
        return len(self._times)

    def can_insert(self, count: int) -> bool:
        """Whether the limiter allows inserting that many rows now."""
        return self.limiter.can_insert(count, len(self), self.inserted, self.sampled)

    def can_sample(self, count: int) -> bool:
        """Whether the limiter allows that many samples now, and the table has enough rows for them."""
        lasts = not self.max_times_sampled or count <= self._left
        return bool(self._times) and lasts and self.limiter.can_sample(count, len(self), self.inserted, self.sampled)

    def store(self, transitions: Mapping[str, Array]) -> None:
        """Inserts transitions, one array ``(n, *shape)`` per field, and optionally `PRIORITY` ``(n,)``."""
        insert(transitions, [self])

    def sample(self, updates: int, batch_size: int) -> IndexedBatch:
        """Samples the rows of `updates` minibatches of `batch_size`; the rows themselves are gathered on the device.
        With ``max_times_sampled``, a row that has reached this number is not sampled again, not even within the same
        minibatch. Sampled rows remain readable until the next push."""
        count = updates * batch_size
        self.refuse_empty()
        if count > self.limiter.max_diff - self.limiter.min_diff:
            raise ConfigError(
                f"sample of {count} rows: the limiter never lets more than "
                f"{self.limiter.max_diff - self.limiter.min_diff:g} out at once; raise its error, or "
                "draw smaller batches"
            )
        if not self.can_sample(count):
            raise LimitError(
                f"sample of {count} rows: the limiter does not allow it: {self.status()}; insert rows first "
                "(can_sample tells whether sampling is allowed)"
            )
        size = np.full(count, len(self))
        if self.max_times_sampled:
            places, probability = np.zeros(count, np.int64), np.zeros(count)
            for k in range(count):
                size[k] = len(self)
                place, probability[k] = self._sampler.choose(self._rng)
                places[k] = place
                self._times[place] += 1
                self._left -= 1
                if self._times[place] == self.max_times_sampled:
                    self._remover.remove(places[k : k + 1])
                    self._forget(places[k : k + 1])
        else:
            places, probability = self._sampler.choose_many(count, self._rng)
        self.sampled += count
        index = places.astype(np.int32).reshape(updates, batch_size)
        weight = None
        if self.sampler == "prioritized":
            weight = self._priority.weights((size * probability).reshape(updates, batch_size), self.minibatches or 0)
        self.minibatches = (self.minibatches or 0) + updates
        version = self.rows.versions(index) if self.prioritized else None
        return IndexedBatch(self.rows.layout, self.rows.tables, index, weight, version=version)

    def update(self, batch: IndexedBatch, priorities: Array) -> None:
        """Sets the priorities of sampled rows; for a row that occurs twice the last one counts. Rows that were removed
        since are ignored, also if another row has taken their place.

        Args:
          priorities: float32 (K, B), at least 0: absolute errors.
        """
        given, places = checked_errors(priorities.reshape(-1)), batch.index.reshape(-1).astype(np.int64)
        there = np.array([place in self._times for place in places.tolist()], np.bool_)
        if batch.version is not None:
            there &= self.rows.versions(places) == batch.version.reshape(-1)
        for selector in (self._sampler, self._remover):
            selector.update(places[there], given[there])
        self._highest = max(self._highest, float(given.max(initial=0.0)))

    def state_dict(self) -> StateDict:
        """The rows and the whole state on which later samples depend. The limiter's settings are not part of it: a
        resumed run uses the settings of its configuration, with the previous numbers of inserts and samples."""
        return {"rows": self.rows.state_dict(), **self.books()}

    def load_state_dict(self, state: StateDict) -> None:
        self.check_books(state)
        self.rows.load_state_dict(state["rows"])
        self.load_books(state)

    def books(self) -> StateDict:
        """The state without the rows."""
        return {
            "kind": {"capacity": self.capacity, "sampler": self.sampler, "remover": self.remover},
            "places": np.array(list(self._times), np.int64),
            "times": np.array(list(self._times.values()), np.int64),
            "sampler": self._sampler.state_dict(),
            "remover": self._remover.state_dict(),
            "counts": {"inserted": self.inserted, "sampled": self.sampled, "drawn": self.minibatches},
            "highest": self._highest,
            "rng": generator_state(self._rng),
        }

    def check_books(self, state: StateDict) -> None:
        """Raises CheckpointError if the state was saved with another capacity, sampler or remover."""
        here = {"capacity": self.capacity, "sampler": self.sampler, "remover": self.remover}
        if state["kind"] != here:
            raise CheckpointError(
                f"buffer: the checkpoint holds a table of {state['kind']}, this run has one of {here}"
            )

    def load_books(self, state: StateDict) -> None:
        """Restores the state without the rows."""
        self._times = dict(zip(np.asarray(state["places"]).tolist(), np.asarray(state["times"]).tolist()))
        self._left = sum(self.max_times_sampled - n for n in self._times.values())
        self._sampler.load_state_dict(state["sampler"])
        self._remover.load_state_dict(state["remover"])
        counts = state["counts"]
        self.inserted, self.sampled, self.minibatches = (int(counts[name]) for name in ("inserted", "sampled", "drawn"))
        self._highest = float(state["highest"])
        restore_generator(self._rng, state["rng"])

    def _forget(self, places: Array) -> None:
        """Removes rows that the remover no longer contains."""
        if self._on_removal is not None and len(places):
            times = np.array([self._times[place] for place in places.tolist()], np.int64)
            self._on_removal({name: self.rows.read(name, places) for name in self.fields}, times)
        self._sampler.remove(places)
        self._left -= sum(self.max_times_sampled - self._times.pop(place) for place in places.tolist())
        self.rows.release(places)

    def _make_room(self, count: int) -> None:
        places = np.zeros(max(0, len(self) + count - self.capacity), np.int64)
        for k in range(len(places)):
            places[k], _ = self._remover.choose(self._rng)
            self._remover.remove(places[k : k + 1])
        self._forget(places)

    def _insert(self, places: Array, priorities: Array) -> None:
        known = priorities != UNKNOWN
        if known.any():
            self._highest = max(self._highest, float(priorities[known].max()))
        self.rows.hold(places)
        for selector in (self._sampler, self._remover):
            selector.insert(places, np.where(known, priorities, self._highest))
        self._times.update(dict.fromkeys(places.tolist(), 0))
        self._left += self.max_times_sampled * len(places)
        self.inserted += len(places)

    def status(self) -> str:
        """The numbers of inserts and samples and their bounds, for messages."""
        limit = self.limiter
        diff = self.inserted * limit.samples_per_insert - self.sampled
        return (
            f"{len(self)} rows of at least {limit.min_size}, {self.inserted} inserted x "
            f"{limit.samples_per_insert:g} samples per insert - {self.sampled} sampled = {diff:g}, to stay in "
            f"[{limit.min_diff:g}, {limit.max_diff:g}]"
        )


class Tables(BaseBuffer):
    """Several tables that share their `Rows`, as one buffer for a `data_pusher`: each row is stored once.

    Learners sample from the single tables.
    """

    def __init__(self, *tables: Table) -> None:
        if not tables or any(table.rows is not tables[0].rows for table in tables):
            raise ConfigError("Tables: expected tables that share their rows, as Table(capacity, rows) makes them")
        self.tables, self.rows = tables, tables[0].rows
        self.capacity = self.rows.capacity

    @property
    def fields(self) -> Mapping[str, Field]:
        return self.rows.layout.fields

    def __len__(self) -> int:
        return self.capacity - self.rows.num_free

    def can_insert(self, count: int) -> bool:
        """Whether the limiters of all tables allow inserting that many rows now."""
        return all(table.can_insert(count) for table in self.tables)

    @property
    def bounded(self) -> bool:
        """Whether the limiter of a table makes inserts wait for samples, and samples for inserts."""
        return any(table.bounded for table in self.tables)

    def status(self) -> str:
        """The numbers of inserts and samples of all tables and their bounds, for messages."""
        return ", and ".join(table.status() for table in self.tables)

    def store(self, transitions: Mapping[str, Array]) -> None:
        """Inserts transitions into all tables, see `Table.store`."""
        insert(transitions, self.tables)

    def tell_watchers(self, transitions: Mapping[str, Array]) -> None:
        for table in self.tables:
            table.tell_watchers(transitions)

    def state_dict(self) -> StateDict:
        return {
            "rows": self.rows.state_dict(),
            "tables": {str(k): table.books() for k, table in enumerate(self.tables)},
        }

    def load_state_dict(self, state: StateDict) -> None:
        """Restores all tables; raises the errors of `Table.load_state_dict`."""
        if len(state["tables"]) != len(self.tables):
            raise CheckpointError(
                f"buffer: the checkpoint holds {len(state['tables'])} tables, this run has {len(self.tables)}"
            )
        for k, table in enumerate(self.tables):
            table.check_books(state["tables"][str(k)])
        self.rows.load_state_dict(state["rows"])
        for k, table in enumerate(self.tables):
            table.load_books(state["tables"][str(k)])


def insert(transitions: Mapping[str, Array], tables: Sequence[Table]) -> None:
    """Inserts transitions into tables that share their rows, see `Table.store`."""
    count = len(next(iter(transitions.values())))
    given = np.asarray(transitions.get(PRIORITY, np.full(count, UNKNOWN)), np.float64)
    checked_errors(given[given != UNKNOWN])
    for table in tables:
        if count > table.capacity:
            raise ConfigError(f"push of {count} rows into a buffer of {table.capacity}: raise the capacity")
        if not table.can_insert(count):
            raise LimitError(
                f"push of {count} rows: the limiter does not allow it: {table.status()}; insert fewer rows at once, "
                "raise the limiter's error, or sample in between (can_insert says whether rows fit); an asynchronous "
                "run with lanes.order=arrival waits until it is allowed"
            )
    rows = tables[0].rows
    block = rows.pack(transitions)
    for table in tables:
        table._make_room(count)
    places = rows.take(block)
    for table in tables:
        table._insert(places, given)
