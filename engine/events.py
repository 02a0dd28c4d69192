"""Events: named topics on which parts of a run tell each other that something happened."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable
from typing import Any

from minding.engine.errors import ChainError, nearest
from minding.engine.middleware import name_of
from minding.engine.notes import add_note

Handler = Callable[..., object]


@dataclasses.dataclass(eq=False)
class _Subscription:
    handler: Handler
    once: bool


class EventBus:
    """Handlers by event name, called in the emitting thread in the order in which they were registered.

    A failing handler does not keep the others of the same event from being called. Its exception is raised by
    `emit` in the thread that owns the run, or in any thread while there is none; elsewhere it is stored for
    `raise_pending`, so that it ends the run and not a helper thread.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._subscriptions: dict[str, list[_Subscription]] = {}
        self._pending: list[Exception] = []
        self._owner: int | None = None

    def own(self, owned: bool) -> None:
        """Makes the calling thread the one in which errors are raised (or, with False, lets go of that)."""
        self._owner = threading.get_ident() if owned else None

    def on(self, event: str, handler: Handler) -> None:
        """Calls `handler(*args, **kwargs)` at every `emit` of `event`."""
        self._subscribe(event, handler, once=False)

    def once(self, event: str, handler: Handler) -> None:
        """Calls `handler` at the next `emit` only, once even when several threads emit together."""
        self._subscribe(event, handler, once=True)

    def off(self, event: str, handler: Handler) -> None:
        """Removes one registration of `handler`, the oldest.

        Raises:
          ChainError: it is not registered for `event`.
        """
        with self._lock:
            subscriptions = self._subscriptions.get(event, [])
            for index, subscription in enumerate(subscriptions):
                if subscription.handler == handler:
                    del subscriptions[index]
                    self._forget_if_empty(event)
                    return
            known = sorted(self._subscriptions)
        raise ChainError(
            f"off: {name_of(handler)} is not registered for event {event!r}{nearest(event, known)}; events "
            f"with handlers: {', '.join(known) or 'none'}"
        )

    def emit(self, event: str, /, *args: Any, **kwargs: Any) -> None:
        """Calls the handlers of `event` with these arguments, in order.

        Raises:
          Exception: the first error of a handler, after all were called (see the class for other threads).
        """
        errors: list[Exception] = []
        for subscription in self._take(event):
            try:
                subscription.handler(*args, **kwargs)
            except Exception as error:
                add_note(error, f"in handler {name_of(subscription.handler)!r} of event {event!r}")
                errors.append(error)
        if not errors:
            return
        if self._owner in (None, threading.get_ident()):
            raise _first(errors)
        with self._lock:
            self._pending.extend(errors)

    def wait_for(self, event: str, timeout: float | None = None) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Blocks until another thread emits `event`; returns the positional and keyword arguments.

        Args:
          timeout: seconds; None waits for ever.
        Raises:
          TimeoutError: nothing came in time. No handler is left behind.
        """
        happened = threading.Event()
        received: list[tuple[tuple[Any, ...], dict[str, Any]]] = []

        def receive(*args: Any, **kwargs: Any) -> None:
            received.append((args, kwargs))
            happened.set()

        subscription = self._subscribe(event, receive, once=True)
        try:
            if not happened.wait(timeout):
                raise TimeoutError(f"wait_for: no event {event!r} within {timeout} s")
        finally:
            self._unsubscribe(event, subscription)
        return received[0]

    def raise_pending(self) -> None:
        """Raises the first error of a handler in another thread, if any; the others become notes of it."""
        if not self._pending:
            return
        with self._lock:
            errors, self._pending = self._pending, []
        raise _first(errors)

    def handler_count(self, event: str) -> int:
        """Returns how many handlers are registered for `event`."""
        with self._lock:
            return len(self._subscriptions.get(event, []))

    def _subscribe(self, event: str, handler: Handler, once: bool) -> _Subscription:
        if not callable(handler):
            raise ChainError(f"the handler of event {event!r} must be callable, got {handler!r}")
        subscription = _Subscription(handler, once)
        with self._lock:
            self._subscriptions.setdefault(event, []).append(subscription)
        return subscription

    def _unsubscribe(self, event: str, subscription: _Subscription) -> None:
        with self._lock:
            if subscription in self._subscriptions.get(event, []):
                self._subscriptions[event].remove(subscription)
                self._forget_if_empty(event)

    def _take(self, event: str) -> list[_Subscription]:
        """Returns the handlers to call; those of `once` leave under the same lock: one emit gets them."""
        with self._lock:
            taken = self._subscriptions.get(event, [])
            if any(subscription.once for subscription in taken):
                self._subscriptions[event] = [subscription for subscription in taken if not subscription.once]
                self._forget_if_empty(event)
                return taken
            return list(taken)

    def _forget_if_empty(self, event: str) -> None:
        if not self._subscriptions.get(event):
            self._subscriptions.pop(event, None)


def _first(errors: list[Exception]) -> Exception:
    for other in errors[1:]:
        add_note(errors[0], f"another handler failed too: {other!r}")
    return errors[0]


class Emitter:
    """What a task offers around the bus it owns at the moment."""

    _events: EventBus

    def on(self, event: str, handler: Handler) -> None:
        """Calls `handler(*args, **kwargs)` at each `emit` of `event`, until `off` or the next `start`."""
        self._require_started("on")
        self._events.on(event, handler)

    def once(self, event: str, handler: Handler) -> None:
        """Calls `handler` at the next `emit` of `event` only."""
        self._require_started("once")
        self._events.once(event, handler)

    def off(self, event: str, handler: Handler) -> None:
        """Removes one registration of `handler`; ChainError if there is none."""
        self._events.off(event, handler)

    def emit(self, event: str, /, *args: Any, **kwargs: Any) -> None:
        """Calls the handlers of `event` now, in order; in other threads their errors wait for the run."""
        self._events.emit(event, *args, **kwargs)

    def wait_for(self, event: str, timeout: float | None = None) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Blocks until another thread emits `event`, returns its arguments; TimeoutError if it does not."""
        return self._events.wait_for(event, timeout)

    def _require_started(self, what: str) -> None:
        raise NotImplementedError
