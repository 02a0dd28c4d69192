"""An environment of which only one instance can exist at a time, such as a robot: its users take turns."""

import threading
from collections.abc import Callable, Mapping
from typing import Any

import gymnasium

from minding.engine.errors import EnvError


class Taken(Exception):
    """Another user has since begun an episode in the instance, which ended the episode of this user."""


class _Instance:
    """The one instance of an environment in this process."""

    def __init__(self, env: Any, kwargs: Mapping[str, Any]) -> None:
        self.env = env
        self.kwargs = kwargs
        self.users = 0
        self.holder: Turn | None = None


_instances: dict[str, _Instance] = {}
_lock = threading.Lock()


class Turn(gymnasium.Env[Any, Any]):  # type: ignore[misc]
    """One user's view of the instance. The first turn makes the instance, and closing the last turn closes it.

    `reset` takes the instance over. A `step` of a user that has lost the instance raises `Taken`, and its next `reset`
    takes the instance back. All other attributes are those of the instance.
    """

    def __init__(self, name: str, kwargs: Mapping[str, Any], make: Callable[[], Any]) -> None:
        with _lock:
            instance = _instances.get(name)
            if instance is None:
                instance = _instances[name] = _Instance(make(), kwargs)
            if instance.kwargs != kwargs:
                raise EnvError(
                    f"{name}: the one instance (env.single_instance=true) exists already, with "
                    f"env.env_kwargs={dict(instance.kwargs)!r}, not {dict(kwargs)!r}: close the agent or "
                    "manager that uses it first"
                )
            instance.users += 1
        self._name, self._instance, self._closed = name, instance, False
        # Class attributes of gymnasium.Env hide those of the instance.
        self.metadata, self.render_mode, self.spec = (
            getattr(instance.env, each, getattr(gymnasium.Env, each)) for each in ("metadata", "render_mode", "spec")
        )

    def __getattr__(self, name: str) -> Any:
        if name == "_instance":
            raise AttributeError(name)
        return getattr(self._instance.env, name)

    @property
    def unwrapped(self) -> Any:
        return getattr(self._instance.env, "unwrapped", self._instance.env)

    def reset(self, *args: Any, **kwargs: Any) -> Any:
        self._instance.holder = self
        return self._instance.env.reset(*args, **kwargs)

    def step(self, action: Any) -> Any:
        if self._instance.holder is not self:
            raise Taken
        return self._instance.env.step(action)

    def render(self) -> Any:
        return self._instance.env.render()

    def close(self) -> None:
        with _lock:
            if self._closed:
                return
            self._closed = True
            self._instance.users -= 1
            if self._instance.users:
                return
            _instances.pop(self._name, None)
        self._instance.env.close()
