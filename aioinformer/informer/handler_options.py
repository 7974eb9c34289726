"""How one handler wants to be told."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypedDict

from aioinformer.informer.resync import resync_seconds
from aioinformer.model.callables import check_plain

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioinformer.informer.handlers import Handlers
    from aioinformer.model.objects import KubeObject
    from aioinformer.model.times import Duration

__all__ = ["HandlerKeywords", "HandlerOptions"]


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

    def check(self, handlers: Handlers) -> None:
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
