"""The class of Ray actors that run workers."""

from __future__ import annotations

from typing import Any


def host_class() -> type[Any]:
    """The class of the actors.

    A local class is sent by value, so that an actor can load it before it can find modules.
    """

    class Host:
        def __init__(self, path: list[str], shapes: dict[str, Any]) -> None:
            import sys

            # An actor finds modules beside the script and in the current folder only.
            sys.path += [entry for entry in path if entry not in sys.path]
            from minding.engine.lanes.ray.serving import Serving

            self._serving = Serving(shapes)

        def begin(self, header: bytes, *buffers: Any) -> None:
            """Takes in the first message, which has no answer."""
            self._serving.put(None, header, buffers)

        def call(self, objects: int, header: bytes, *parts: Any) -> Any:
            """Takes in a request, its objects with weights and its buffers; returns its answer, None without one."""
            return self._serving.call(parts[:objects], header, parts[objects:])

        def ask(self, asker: int, data: bytes) -> bytes:
            """Answers a question of another worker, see `engine.lanes.ray.asking`."""
            from minding.engine.lanes.ray.asking import ask

            return ask(asker, data)

        def end(self) -> None:
            self._serving.end()

        def beat(self) -> Any:
            import ray

            return *self._serving.beat(), ray.get_runtime_context().get_node_id()

        def ended(self) -> str:
            """Returns how the worker ended, once it has."""
            return self._serving.ended()

    return Host
