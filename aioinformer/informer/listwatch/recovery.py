"""Rules for continuing after errors: the next list or watch, and dead watches.

Pure and synchronous: times are passed in.
"""

from __future__ import annotations

import enum
from collections import deque

from aioinformer.backoff import Failure, failure_of
from aioinformer.errors import (
    AioInformerError,
    ApiError,
    DecodeError,
    Forbidden,
    HistoryReset,
    Invalid,
    NotFound,
    OptionsError,
    ResourceExpired,
    ServerError,
    Unauthorized,
    WrongLoop,
)

__all__ = [
    "ABSENT_SECONDS",
    "Absence",
    "Recovery",
    "Watchdog",
    "is_foreign",
    "is_internal",
    "is_refusal",
    "is_unsupported",
    "pace_of",
    "recovery_for",
]


class Recovery(enum.Enum):
    """Next request after an error."""

    RESUME = "watch from the last version"
    RELIST = "list, not older than the last version"
    RELIST_NEWEST = "list the newest state"
    RELIST_ANEW = "list the newest state, and ignore known versions"


def recovery_for(error: Exception, *, persistent: bool = False) -> Recovery:
    """Return the next request after a failed list or watch. All rules are here.

    No error makes an informer give up: permissions, credentials and kinds may be
    restored while it runs.

    Args:
        error: Error of the list or watch.
        persistent: True if internal errors have been ending watches for too long. The
            server may be unable to read a stored object, and only a list gets past
            that.
    """
    match error:
        case HistoryReset():
            return Recovery.RELIST_ANEW
        case ResourceExpired():
            return Recovery.RELIST_NEWEST
        case ApiError() if isinstance(error, Invalid) or _too_large(error):
            # The server has not reached the version, or does not understand it.
            return Recovery.RELIST_NEWEST
        case NotFound():
            return Recovery.RELIST  # shows whether the kind still exists
        case _ if is_unsupported(error):
            return Recovery.RELIST  # without watches, lists are better than nothing
        case DecodeError() | ServerError(reason="StorageReadError"):
            # A watch from the same version would fail in the same way, forever.
            return Recovery.RELIST
        case _ if is_foreign(error):
            return Recovery.RELIST  # the source may be unable to read the response
        case _ if persistent and is_internal(error):
            return Recovery.RELIST
        case _:
            return Recovery.RESUME


def pace_of(error: Exception | None) -> Failure | None:
    """Classify the error of a list or watch for its `Backoff`; None for no error."""
    version_void = isinstance(error, ResourceExpired | HistoryReset) or (
        isinstance(error, ApiError) and _too_large(error)
    )
    return Failure.VERSION_VOID if version_void else failure_of(error)


def is_foreign(error: Exception) -> bool:
    """Return True for errors that a source should not raise, such as an `OSError`."""
    return not isinstance(error, AioInformerError)


def is_internal(error: Exception) -> bool:
    """Return True for an internal error of the server (500), temporary or permanent."""
    return isinstance(error, ServerError) and error.status == 500


def is_refusal(error: Exception) -> bool:
    """Return True for an error that only a person can correct.

    The request is invalid (400, 422: for example an unsupported field selector), not
    authenticated (401), not allowed (403), or not served (404, 405). Or it was not
    sent, because the client was not entered, or was entered in another loop.
    """
    kinds = Invalid | Unauthorized | Forbidden | NotFound | OptionsError | WrongLoop
    return isinstance(error, kinds) or is_unsupported(error)


def is_unsupported(error: Exception) -> bool:
    """Return True if the resource exists, but does not support the verb (405)."""
    return isinstance(error, ApiError) and error.status == 405


def _too_large(error: ApiError) -> bool:
    """Return True if the server has not reached the requested version.

    Current servers set a cause in the Status. Servers before 1.19 only have a message,
    in the cause or in the Status itself.
    """
    causes = error.details.get("causes")
    causes = causes if isinstance(causes, list) else ()
    causes = [cause for cause in causes if isinstance(cause, dict)]
    messages = [error.message, *(str(cause.get("message")) for cause in causes)]
    return any(
        cause.get("reason") == "ResourceVersionTooLarge" for cause in causes
    ) or (any("Too large resource version" in text for text in messages))


ABSENT_SECONDS = 60.0
"""Seconds for which discovery must not list a resource before it counts as absent.
While a CRD is replaced, or a server starts, resources are missing for a few seconds."""


class Absence:
    """Detector of a resource that the server no longer has.

    A list that ends in 404 proves little: another server behind the load balancer may
    know the resource. The resource counts as absent if no discovery request of a whole
    minute has listed it, either.

    A list that fails in another way restarts that minute, as a server that is
    unreachable or starting does not know all its kinds. A failed discovery request
    neither counts nor restarts the minute.

    Attributes:
        confirmed: True while the resource is absent: until discovery lists it, or a
            list succeeds.
    """

    def __init__(self) -> None:
        self.confirmed: bool = False
        self._since: float | None = None

    def __repr__(self) -> str:
        return f"<Absence since={self._since} confirmed={self.confirmed}>"

    def answered(self, served: bool | None, now: float) -> bool:
        """Record the result of discovery after a list that ended in 404.

        Args:
            served: True if discovery lists the resource; None if it failed.
            now: Time in seconds of a monotonic clock.

        Returns:
            True if the resource is absent.
        """
        if served is None:
            return False

        if served:
            self.ended()
            return False

        if self._since is None:
            self._since = now

        lasted = now - self._since >= ABSENT_SECONDS
        self.confirmed = self.confirmed or lasted
        return lasted

    def interrupted(self) -> None:
        """Record a list that failed without a 404; earlier results no longer count."""
        self._since = None

    def ended(self) -> None:
        """Record that the resource exists."""
        self._since = None
        self.confirmed = False


GAPS = 2.5
"""Silence after which a watch counts as dead, as a multiple of the longest gap between
bookmarks. Real servers send a bookmark about every minute, which makes 150 s."""

SHORTEST_SECONDS = 90.0
"""Minimum silence after which a watch counts as dead, even with frequent bookmarks."""

TOGETHER_SECONDS = 5.0
"""Gap below which bookmarks count as one. Some servers send two at the beginning of a
watch, and then none."""

LONGEST_GAP_SECONDS = 120.0
"""Longest gap that counts. A longer one is a pause of this process (a laptop asleep),
or comes from a server without regular bookmarks. It would allow a silence of more than
300 s, and servers end watches after 300 s anyway."""

REMEMBERED_GAPS = 8
"""Number of latest gaps of which the longest counts, so that a single long gap is
forgotten within minutes."""

WATCHES_TO_DISARM = 2
"""Number of watches in a row, ended by the watchdog without a gap between bookmarks,
after which it is disarmed. The server seems to have stopped sending bookmarks."""


class Watchdog:
    """Detector of dead watches, by the interval of the server's bookmarks.

    It is armed once a watch has had two bookmarks. A watch then counts as dead after
    2.5 times the longest of the last gaps between bookmarks, and at least 90 s, without
    any event. Some resources get no bookmarks at all. For them it is never armed.

    The gaps of one watch also count for the next ones, as a connection may stall before
    its first bookmark. The watchdog is disarmed when it ends a watch without a
    bookmark, or two watches in a row with only one. The server may have stopped sending
    bookmarks, and false alarms must not repeat forever.

    There is one watchdog for each list-watch. client-go has none: it detects a stalled
    connection by TCP and HTTP/2 probes, which a proxy may answer.
    """

    # Invariants: all gaps are between TOGETHER_SECONDS and LONGEST_GAP_SECONDS, so a
    # watch may be silent for 90 to 300 s. `_ended_watches` is below WATCHES_TO_DISARM.
    # After the watchdog has ended a watch, `_last_event` is None until the next one
    # begins.

    def __init__(self) -> None:
        self._gaps: deque[float] = deque(maxlen=REMEMBERED_GAPS)
        self._ended_watches = 0
        # Times in the current watch.
        self._last_event: float | None = None
        self._last_bookmark: float | None = None

    def __repr__(self) -> str:
        state = f"armed, {self._silence():g}s" if self.armed else "not armed"
        return f"<Watchdog {state}>"

    @property
    def armed(self) -> bool:
        """True if the interval of bookmarks is known, to detect dead watches."""
        return bool(self._gaps)

    @property
    def longest_gap(self) -> float:
        """Longest of the last gaps between bookmarks in seconds; 0 if not armed."""
        return max(self._gaps, default=0.0)

    def begin(self, now: float) -> None:
        """Record the beginning of a watch.

        Args:
            now: Time in seconds of a monotonic clock.
        """
        if self._last_event is not None:
            self._ended_watches = 0  # the previous watch ended in another way

        self._last_event = now
        self._last_bookmark = None

    def event(self, now: float) -> None:
        """Record an event of any type."""
        self._last_event = now

    def bookmark(self, now: float) -> None:
        """Record a bookmark, which is also an event, and its gap."""
        self._last_event = now
        if self._last_bookmark is None:
            self._last_bookmark = now
            return

        gap = now - self._last_bookmark
        if gap < TOGETHER_SECONDS:
            return

        self._last_bookmark = now
        if gap <= LONGEST_GAP_SECONDS:
            self._gaps.append(gap)
            self._ended_watches = 0

    def deadline(self) -> float | None:
        """Return the time at which a silent watch counts as dead; None if not armed.

        Each event moves the deadline, sometimes to an earlier time: when the first gap
        is known, or a long gap is forgotten. Call it when a timer fires, and after each
        bookmark.
        """
        if self._last_event is None or not self._gaps:
            return None

        return self._last_event + self._silence()

    def ended_watch(self) -> None:
        """Record that the watch was ended because its deadline had passed."""
        self._ended_watches += 1
        if self._last_bookmark is None or self._ended_watches >= WATCHES_TO_DISARM:
            self._gaps.clear()
            self._ended_watches = 0

        self._last_event = None

    def _silence(self) -> float:
        return max(GAPS * self.longest_gap, SHORTEST_SECONDS)
