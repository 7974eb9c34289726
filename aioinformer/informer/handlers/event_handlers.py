"""`EventHandlers`: a user's handler functions, their options, and their filter."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias, TypedDict, TypeVar, assert_never

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

# Functions that the decorators of an informer return unchanged.
F = TypeVar("F", bound="Callable[[KubeObject], object]")
U = TypeVar("U", bound="Callable[[KubeObject, KubeObject], object]")
E = TypeVar("E", bound=Callable[[Notification], object])

Call: TypeAlias = Callable[[Any], Outcome]


@dataclass(frozen=True, slots=True, kw_only=True)
class EventHandlers:
    """Functions of one handler: either `on_event`, or some of the others."""

    on_add: Callable[[KubeObject], Outcome] | None = None
    """Function called with the new object."""

    on_update: Callable[[KubeObject, KubeObject], Outcome] | None = None
    """Function called with the old and the new state."""

    on_delete: Callable[[KubeObject], Outcome] | None = None
    """Function called with the last state."""

    on_event: Callable[[Notification], Outcome] | None = None
    """Function called with the `Added`, `Updated` or `Deleted` notification."""

    def __post_init__(self) -> None:
        specific = (self.on_add, self.on_update, self.on_delete)
        if (self.on_event is None) == (specific == (None, None, None)):
            raise OptionsError(
                "pass either on_event, or some of on_add, on_update and on_delete"
            )

        for form, call in zip(_FORMS, (*specific, self.on_event), strict=True):
            if call is None:
                continue

            if not callable(call):
                raise OptionsError(f"a handler must be callable, not {call!r}")

            check_runs(call, "a handler")
            check_takes(call, "a handler", form)

    def functions(self) -> list[Callable[..., Outcome]]:
        """Return the functions that are set."""
        functions = (self.on_add, self.on_update, self.on_delete, self.on_event)
        return [function for function in functions if function is not None]

    def describe(self) -> str:
        """Return the names of the functions, for log and metrics."""
        names = [
            str(getattr(function, "__qualname__", type(function).__qualname__))
            for function in self.functions()
        ]
        return "+".join(dict.fromkeys(names))

    def calls(self) -> dict[type, Call]:
        """Return the functions to call, by type of notification."""
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


# Signatures that the functions must accept, for checks and error messages.
_FORMS = ("on_add(obj)", "on_update(old, new)", "on_delete(obj)", "on_event(event)")


class HandlerKeywords(TypedDict, total=False):
    """Keyword arguments of `SharedInformer.add_event_handler` and its decorators."""

    resync_period: Duration | None
    filter: Callable[[KubeObject], object] | None
    coalesce: bool
    thread: bool
    name: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class HandlerOptions:
    """Options of one handler."""

    resync_period: Duration | None = None
    """Interval of resyncs in seconds, or a timedelta; at least 1 s, 0 for none, None
    for the informer's."""

    filter: Callable[[KubeObject], object] | None = None
    """Plain function that returns True for the objects of interest."""

    coalesce: bool = False
    """True to merge the queued notifications of each object."""

    thread: bool = False
    """True to call plain functions in a thread."""

    name: str | None = None
    """Name in log and metrics; None for the names of the functions."""

    def __post_init__(self) -> None:
        resync_seconds(self.resync_period)  # checks it
        if self.filter is not None:
            check_plain(self.filter, "a filter")

    def check(self, handlers: EventHandlers) -> None:
        """Check that the options fit the functions.

        Raises:
            OptionsError: If an async function would be called in a thread.
        """
        if self.thread:
            for function in handlers.functions():
                check_plain(function, "a handler with thread=True")

    def seconds_of_resync(self, default: float) -> float:
        """Return the resync period in seconds, 0 for none; `default` is the informer's."""
        if self.resync_period is None:
            return default

        return resync_seconds(self.resync_period)


class HandlerFilter:
    """Filter of the notifications of one handler, applied on delivery.

    An object that starts to match is delivered as `Added`, one that stops matching as
    `Deleted`. The filter is only called with new states. The keys of delivered objects
    show whether the old state matched. (client-go calls the filter with both states,
    and with the final state of a deletion. If the filter's result has changed
    meanwhile, the handler misses a deletion, or gets one for an unknown object.)

    If the filter raises, the error is reported and the object counts as matching.

    Args:
        accepts: Filter function of the user.
        name: Name of the handler.
        reporter: Reporter of the failures of the filter.
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
        # Keys of objects that were delivered as added, and not as deleted since.
        self._known: set[str] = set()

    def apply(
        self, events: Iterator[Notification | None]
    ) -> Iterator[Notification | None]:
        """Yield the notification to deliver for each event, or None."""
        for event in events:
            yield None if event is None else self.filtered(event)

    def filtered(self, event: Notification) -> Notification | None:
        """Return the notification to deliver, or None."""
        obj = object_of(event)
        known = obj.key in self._known
        accepted = not isinstance(event, Deleted) and self._matches(obj, event)
        if accepted:
            self._known.add(obj.key)
        else:
            self._known.discard(obj.key)

        match event:
            case Added():
                return event if accepted else None
            case Updated():
                if accepted:
                    return event if known else Added(obj)

                return Deleted(event.old) if known else None
            case Deleted():
                return event if known else None
            case _:
                assert_never(event)

    def _matches(self, obj: KubeObject, event: Notification) -> bool:
        try:
            return bool(self._accepts(obj))
        except user_errors() as exc:
            self._reporter.failed("filter", self._name, event, exc)
            return True
