"""Events: named topics on which parts of a run notify each other."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from minding.engine.chain.middleware import name_of
from minding.engine.errors import ChainError, add_note, nearest
from minding.engine.process.signals import Interrupted

_log = logging.getLogger("minding.task")
_PATIENCE = 0.05  # s between two looks at whether it is still worth waiting
_FIRST_REPORT = 10.0  # s of waiting, then twice as many

Handler = Callable[..., object]
Arguments = tuple[tuple[Any, ...], dict[str, Any]]


class WaitCancelled(Exception):
    """The awaited event can no longer come: something else has failed, and the run ends with that failure."""


@dataclasses.dataclass(eq=False)
class _Subscription:
    handler: Handler
    once: bool


class Gathering:
    """The members of a `parallel`, each in its thread, and the events emitted while they run.

    A member that waits for an event also receives it if another member emitted it before the wait; each member
    receives each event once. When one member fails, the others stop waiting.
    """

    def __init__(self, outer: Gathering | None) -> None:
        # Each event with the member that emitted it.
        self._log: list[tuple[str, Arguments, object]] = [] if outer is None else outer._not_had()
        self._failed = False
        self._outer = outer
        # For each member and event, the position in the log after the last one that it received.
        self._threads = threading.local()

    @property
    def failed(self) -> bool:
        """Whether a member of this gathering or of an outer one failed."""
        return self._failed or (self._outer is not None and self._outer.failed)

    def fail(self) -> None:
        """Ends the waiting of all members."""
        self._failed = True

    def note(self, event: str, arguments: Arguments, member: object) -> None:
        """Keeps an event that a member emits, with its arguments."""
        self._log.append((event, arguments, member))

    def next(self, event: str, member: object) -> Arguments | None:
        """Arguments of the oldest `event` of another member that this thread has not received yet, or None."""
        had: dict[str, int] = self._threads.__dict__
        for place in range(had.get(event, 0), len(self._log)):
            name, arguments, emitter = self._log[place]
            if name == event and emitter is not member:
                had[event] = place + 1
                return arguments
        return None

    def _not_had(self) -> list[tuple[str, Arguments, object]]:
        had: dict[str, int] = self._threads.__dict__
        return [entry for place, entry in enumerate(self._log) if place >= had.get(entry[0], 0)]


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
        self._gatherings: list[Gathering] = []
        # For each thread, the innermost gathering of which it is a member, and its id among the members.
        self._member = threading.local()

    def own(self, owned: bool) -> None:
        """Makes the calling thread the owner, in which errors are raised; with False, no thread is the owner."""
        self._owner = threading.get_ident() if owned else None

    def on(self, event: str, handler: Handler) -> None:
        """Calls `handler(*args, **kwargs)` at every `emit` of `event`."""
        self._subscribe(event, handler, once=False)

    def once(self, event: str, handler: Handler) -> None:
        """Calls `handler` at the next `emit` only, once even when several threads emit together."""
        self._subscribe(event, handler, once=True)

    def off(self, event: str, handler: Handler | None = None) -> None:
        """Removes the oldest registration of `handler`, or all handlers of `event` if `handler` is None."""
        with self._lock:
            subscriptions = self._subscriptions.get(event, [])
            if handler is None and subscriptions:
                del self._subscriptions[event]
                return
            for index, subscription in enumerate(subscriptions):
                if subscription.handler == handler:
                    del subscriptions[index]
                    self._forget_if_empty(event)
                    return
            known = sorted(self._subscriptions)
        what = "nothing is" if handler is None else f"{name_of(handler)} is not"
        raise ChainError(
            f"off: {what} registered for event {event!r}{nearest(event, known)}; events with handlers: "
            f"{', '.join(known) or 'none'}"
        )

    def emit(self, event: str, /, *args: Any, **kwargs: Any) -> None:
        """Calls the handlers of `event` with these arguments, in order."""
        errors: list[Exception] = []
        for subscription in self._take(event, (args, kwargs)):
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

    def wait_for(
        self, event: str, timeout: float | None = None, interrupted: Callable[[], bool] = lambda: False
    ) -> Arguments:
        """As `Task.wait_for`; the wait leaves no handler registered, however it ends."""
        happened = threading.Event()
        received: list[Arguments] = []

        def receive(*args: Any, **kwargs: Any) -> None:
            received.append((args, kwargs))
            happened.set()

        gathering: Gathering | None = getattr(self._member, "gathering", None)
        with self._lock:
            early = gathering.next(event, self._member.identity) if gathering is not None else None
            if early is not None:
                return early
            subscription = _Subscription(receive, once=True)
            self._subscriptions.setdefault(event, []).append(subscription)
        try:
            self._wait(happened, event, timeout, gathering, interrupted)
        finally:
            self._unsubscribe(event, subscription)
        if gathering is not None:
            with self._lock:
                gathering.next(event, self._member.identity)
        return received[0]

    def _wait(
        self,
        happened: threading.Event,
        event: str,
        timeout: float | None,
        gathering: Gathering | None,
        interrupted: Callable[[], bool],
    ) -> None:
        start, report = time.monotonic(), _FIRST_REPORT
        while not happened.wait(_PATIENCE if timeout is None else min(_PATIENCE, max(0.0, timeout))):
            waited = time.monotonic() - start
            if self._owner == threading.get_ident():
                self.raise_pending()
            if self._pending or (gathering is not None and gathering.failed):
                raise WaitCancelled(f"wait_for: event {event!r} is cancelled, because another part of the run failed")
            if interrupted():
                raise Interrupted(f"waiting for event {event!r}")
            if timeout is not None and waited >= timeout:
                raise TimeoutError(
                    f"wait_for: no event {event!r} within {timeout} s; check that another thread emits it, or raise "
                    "`timeout`"
                )
            if waited >= report:
                _log.warning("wait_for(%r) has waited for %.0f s; no thread has emitted this event", event, waited)
                report *= 2

    @property
    def gathered(self) -> bool:
        """Whether the calling thread is a member of a gathering."""
        return getattr(self._member, "gathering", None) is not None

    @contextlib.contextmanager
    def gather(self) -> Iterator[Gathering]:
        """Keeps events emitted until the end of the block for the members of the returned object; see `join`."""
        with self._lock:
            gathering = Gathering(getattr(self._member, "gathering", None))
            self._gatherings.append(gathering)
        try:
            yield gathering
        finally:
            with self._lock:
                self._gatherings.remove(gathering)

    @contextlib.contextmanager
    def join(self, gathering: Gathering) -> Iterator[None]:
        """Makes the calling thread a member until the end of the block."""
        before = dict(self._member.__dict__)
        self._member.gathering, self._member.identity = gathering, object()
        try:
            yield
        finally:
            self._member.__dict__.clear()
            self._member.__dict__.update(before)

    def raise_pending(self) -> None:
        """Raises the first error of a handler in another thread, if any, with the others as its notes."""
        if not self._pending:
            return
        with self._lock:
            errors, self._pending = self._pending, []
        raise _first(errors)

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

    def _take(self, event: str, arguments: Arguments) -> list[_Subscription]:
        """Returns the handlers to call; those of `once` leave under the same lock: one emit gets them."""
        with self._lock:
            for gathering in self._gatherings:
                gathering.note(event, arguments, getattr(self._member, "identity", None))
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
