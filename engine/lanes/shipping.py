"""Sends middleware to a worker process: pickled, with factories in place of objects that cannot be pickled."""

import io
import pickle
from collections.abc import Callable, Sequence
from typing import Any

import cloudpickle
import numpy as np

from minding.engine.chain.middleware import Middleware, name_of
from minding.engine.errors import LaneError
from minding.engine.types import Array, LaneContext, Network, Shippable, Stateful


class PickledMembers:
    """Middleware, ready for a worker process."""

    def __init__(self, middleware: Sequence[Middleware[Any]], lane: str) -> None:
        file = io.BytesIO()
        pickler = _Pickler(file)
        for member in middleware:
            pickler.add(member, lane)
        self._lane = lane
        self._content = file.getvalue()
        self._count = len(middleware)
        self.shipped = tuple(pickler.shipped)
        factories = [thing.factory() for thing in self.shipped]
        self._factories = cloudpickle.dumps(factories)
        self.acting = tuple(place for place, thing in enumerate(self.shipped) if _acts(thing))
        # Those of them whose networks may be computed elsewhere.
        self.servable = tuple(place for place in self.acting if hasattr(factories[place], "on_network"))
        self.needs_weights = any(
            thing.weights() for place, thing in enumerate(self.shipped) if place not in self.servable
        )

    def __getstate__(self) -> dict[str, Any]:
        names = ("_content", "_count", "_factories", "acting", "servable", "needs_weights")
        return {name: getattr(self, name) for name in names}

    def weights(self) -> dict[str, Array]:
        """The live arrays of the weights with which shipped objects act."""
        arrays: dict[str, Array] = {}
        for thing in self.shipped:
            for name, array in thing.weights().items():
                if array.size and not np.shares_memory(arrays.setdefault(name, array), array):
                    raise LaneError(
                        f"two policies of the {self._lane} lane both have weights named {name!r}, which would be mixed "
                        "up there: use one of them in middleware without a role, so that it stays in the main process"
                    )
                arrays[name] = array
        return arrays

    def rebuild(
        self, lane: LaneContext, remote: Callable[[int], Network] | None = None
    ) -> tuple[list[Middleware[Any]], list[Any]]:
        """Called in the worker: returns the middleware, and the objects of the factories in the order of
        `shipped`."""
        factories: list[Any] = cloudpickle.loads(self._factories)
        built = [
            factory(lane) if remote is None or place not in self.servable else factory.on_network(lane, remote(place))
            for place, factory in enumerate(factories)
        ]
        unpickler = _Unpickler(io.BytesIO(self._content), built)
        return [unpickler.load() for _ in range(self._count)], unpickler.built

    def networks(self, lane: LaneContext) -> dict[int, tuple[Network, frozenset[int]]]:
        """Called in an inference server: returns the networks at the positions `servable`, see `Served.network`."""
        factories: list[Any] = cloudpickle.loads(self._factories)
        return {place: factories[place].network(lane) for place in self.servable}


def _acts(thing: Shippable) -> bool:
    # Others with state, such as environments, also if opponents act in them, are part of the state of the middleware
    # that holds them.
    return bool(thing.weights()) and isinstance(thing, Stateful) and not hasattr(thing, "num_envs")


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file)
        self.shipped: list[Shippable] = []

    def persistent_id(self, thing: object) -> int | None:
        if isinstance(thing, type) or not isinstance(thing, Shippable):
            return None
        for place, known in enumerate(self.shipped):
            # Views that are created at each access, such as `policy.collect_mode`, count as one object.
            if known is thing or known == thing:
                return place
        self.shipped.append(thing)
        return len(self.shipped) - 1

    def add(self, middleware: Middleware[Any], lane: str) -> None:
        try:
            self.dump(middleware)
        except Exception as error:  # A user's __reduce__ may raise anything.
            raise LaneError(
                f"{name_of(middleware)} cannot be sent to a process of the {lane} lane ({error}): give it views such "
                "as policy.collect_mode and configurations, or use it without a role, so that it stays in the main "
                "process"
            ) from error


class _Unpickler(pickle.Unpickler):
    """Loads the bytes of `_Pickler`, from another process of the same run."""

    def __init__(self, file: io.BytesIO, built: list[Any]) -> None:
        super().__init__(file)
        self.built = built

    def persistent_load(self, place: int) -> Any:
        return self.built[place]
