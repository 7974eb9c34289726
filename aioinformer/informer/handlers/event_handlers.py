"""A user's handlers, plain or async, behind one call for each kind of notification."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias, TypedDict

from aioinformer._user_code import user_errors
from aioinformer.errors import OptionsError
from aioinformer.informer.handlers.resync import resync_seconds
from aioinformer.informer.notifications import (
    Added,
    Deleted,
    Notification,
    Updated,
    object_of,
)
from aioinformer.model.callables import check_plain, check_runs, check_takes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aioinformer.informer.handlers.error_reporter import ErrorReporter
    from aioinformer.model.objects import KubeObject
    from aioinformer.model.times import Duration

__all__ = [
    "EventHandlers",
    "HandlerFilter",
    "HandlerKeywords",
    "HandlerOptions",
    "Outcome",
]


Outcome: TypeAlias = Awaitable[Any] | None


Call: TypeAlias = Callable[[Any], Outcome]


@dataclass(frozen=True, slots=True, kw_only=True)
class EventHandlers:
    """What to call for which notification: either `on_event`, or some of the others."""

    on_add: Callable[[KubeObject], Outcome] | None = None
    """Called with the object."""

    on_update: Callable[[KubeObject, KubeObject], Outcome] | None = None
    """Called with the old and the new state."""

    on_delete: Callable[[KubeObject], Outcome] | None = None
    """Called with the last state."""

    on_event: Callable[[Notification], Outcome] | None = None
    """Called with the `Added`, `Updated` or `Deleted` itself, which has the flags."""

    def __post_init__(self) -> None:
        specific = (self.on_add, self.on_update, self.on_delete)
        if (self.on_event is None) == (specific == (None, None, None)):
            raise OptionsError(
                "give either on_event, or some of on_add, on_update and on_delete"
            )

        for form, call in zip(_FORMS, (*specific, self.on_event), strict=True):
            if call is None:
                continue

            if not callable(call):
                raise OptionsError(f"{call!r} cannot be called: not a handler")

            check_runs(call, "a handler")
            check_takes(call, "a handler", form)

    def functions(self) -> list[Callable[..., Outcome]]:
        """Those that were given."""
        given = (self.on_add, self.on_update, self.on_delete, self.on_event)
        return [function for function in given if function is not None]

    def describe(self) -> str:
        """A name for the log, made of the functions' own names."""
        names = [
            str(getattr(function, "__qualname__", type(function).__qualname__))
            for function in self.functions()
        ]
        return "+".join(dict.fromkeys(names))

    def calls(self) -> dict[type, Call]:
        """For each kind of notification that is wanted, what to call with it."""
        if self.on_event is not None:
            return dict.fromkeys((Added, Updated, Deleted), self.on_event)

        calls: dict[type, Call] = {}
        if (on_add := self.on_add) is not None:
            calls[Added] = lambda event: on_add(event.obj)

        if (on_update := self.on_update) is not None:
            calls[Updated] = lambda event: on_update(event.old, event.new)

        if (on_delete := self.on_delete) is not None:
            calls[Deleted] = lambda event: on_delete(event.obj)

        return calls


# How each is called: with what its parameters are usually called.
_FORMS = ("on_add(obj)", "on_update(old, new)", "on_delete(obj)", "on_event(event)")


class HandlerKeywords(TypedDict, total=False):
    """The keyword arguments of `SharedInformer.add_event_handler` and its decorators."""

    resync_period: Duration | None
    filter: Callable[[KubeObject], object] | None
    coalesce: bool
    thread: bool
    name: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class HandlerOptions:
    """How one handler wants to be told."""

    resync_period: Duration | None = None
    """Seconds, or a timedelta, from one reminder of every object to the next: 1 s at
    least, 0 for none, None for the informer's own period."""

    filter: Callable[[KubeObject], object] | None = None
    """Which objects the handler wants: a plain function, called in the loop."""

    coalesce: bool = False
    """Merge what waits for one object."""

    thread: bool = False
    """Call the handler in a thread; it must be plain."""

    name: str | None = None
    """In log and metrics; made of the functions' names if left out."""

    def __post_init__(self) -> None:
        resync_seconds(self.resync_period)  # complains
        if self.filter is not None:
            check_plain(self.filter, "a filter")

    def check(self, handlers: EventHandlers) -> None:
        """Complain of handlers for which these options make no sense.

        Raises:
            OptionsError: If an async one is to be called in a thread.
        """
        if self.thread:
            for function in handlers.functions():
                check_plain(function, "a handler with thread=True")

    def seconds_of_resync(self, default: float) -> float:
        """The period in seconds, 0 for none; `default` is the informer's."""
        if self.resync_period is None:
            return default

        return resync_seconds(self.resync_period)


class HandlerFilter:
    """Turns notifications into those of one handler, when they are delivered.

    What it begins to accept is `Added`, what it ceases to accept `Deleted`. The filter
    is asked about the new state; what it said of the old one is remembered, as the keys
    that the handler knows. (client-go asks about both, and about the final state of a
    deletion. Where that differs from the state told last, or the filter has changed its
    mind, its handlers miss an end, or are told one of something unknown.)

    A filter that raises counts as passing, and is reported.

    Args:
        accepts: The user's function.
        name: The handler's.
        reporter: Who is told of its failures.
    """

    def __init__(
        self,
        accepts: Callable[[KubeObject], object],
        name: str,
        reporter: ErrorReporter,
    ) -> None:
        self._accepts = accepts
        self._name = name
        self._reporter = reporter
        # Invariant: what the handler was told to be there, and not yet to be gone.
        self._known: set[str] = set()

    def passing(
        self, events: Iterator[Notification | None]
    ) -> Iterator[Notification | None]:
        """What is to be told of each event; None for nothing."""
        for event in events:
            yield None if event is None else self.told(event)

    def told(self, event: Notification) -> Notification | None:
        """What the handler is told of it; None if nothing."""
        key = object_of(event).key
        if isinstance(event, Deleted):
            return self._told_end(event, key)

        now = object_of(event)
        known = key in self._known
        if self._passes(now, event):
            self._known.add(key)
            return event if known or isinstance(event, Added) else Added(now)

        self._known.discard(key)
        return Deleted(event.old) if known and isinstance(event, Updated) else None

    def _told_end(self, event: Deleted, key: str) -> Deleted | None:
        if key not in self._known:
            return None

        self._known.discard(key)
        return event

    def _passes(self, obj: KubeObject, event: Notification) -> bool:
        try:
            return bool(self._accepts(obj))
        except user_errors() as exc:
            self._reporter.failed("filter", self._name, event, exc)
            return True
