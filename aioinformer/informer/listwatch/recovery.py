"""What an error means for a list-watch: how to go on, and whether a person has to act."""

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
    """How to go on after an error."""

    RESUME = "watch again from the last version"
    RELIST = "list again, not older than the last version"
    RELIST_NEWEST = "list again, the newest state"
    RELIST_ANEW = "list again, the newest state, and believe nothing known before"


def recovery_for(error: Exception, *, persistent: bool = False) -> Recovery:
    """How to go on after a watch, or a list, failed; the one table of it.

    There is no error after which an informer gives up: permissions, credentials and
    kinds come back while it runs.

    Args:
        error: What it failed with.
        persistent: Internal errors of the server have been ending watches for too long:
            perhaps what is stored there cannot be read, which only a list gets over.
    """
    match error:
        case HistoryReset():
            return Recovery.RELIST_ANEW
        case ResourceExpired():
            return Recovery.RELIST_NEWEST
        case ApiError() if isinstance(error, Invalid) or _too_large(error):
            # A version that the server has not reached, or does not understand.
            return Recovery.RELIST_NEWEST
        case NotFound():
            return Recovery.RELIST  # the kind may be gone: a list tells
        case _ if is_unsupported(error):
            return Recovery.RELIST  # no watches there: lists are better than nothing
        case DecodeError() | ServerError(reason="StorageReadError"):
            # Watched again from there, the same would come again, for ever.
            return Recovery.RELIST
        case _ if is_foreign(error):
            return Recovery.RELIST  # the same, of a source that cannot read
        case _ if persistent and is_internal(error):
            return Recovery.RELIST
        case _:
            return Recovery.RESUME


def pace_of(error: Exception | None) -> Failure | None:
    """Classify what a list or watch ended with, for its `Backoff`; None for no error."""
    version_void = isinstance(error, ResourceExpired | HistoryReset) or (
        isinstance(error, ApiError) and _too_large(error)
    )
    return Failure.VERSION_VOID if version_void else failure_of(error)


def is_foreign(error: Exception) -> bool:
    """True for what a source should not raise, such as an `OSError` of a full disk."""
    return not isinstance(error, AioInformerError)


def is_internal(error: Exception) -> bool:
    """True for a failure inside of the server (500), which may pass or stay."""
    return isinstance(error, ServerError) and error.status == 500


def is_refusal(error: Exception) -> bool:
    """True for an answer that only a person can change.

    The request is wrong (400, 422: a field that cannot be selected by), or we are not
    known (401), not allowed (403), or ask for what is not served (404, 405); or nothing
    was asked, as the client was never entered, or in another loop.
    """
    kinds = Invalid | Unauthorized | Forbidden | NotFound | OptionsError | WrongLoop
    return isinstance(error, kinds) or is_unsupported(error)


def is_unsupported(error: Exception) -> bool:
    """True if the resource is there, but not with this verb (405)."""
    return isinstance(error, ApiError) and error.status == 405


def _too_large(error: ApiError) -> bool:
    """Whether the version asked for is ahead of the server.

    Current servers say so in a cause of the Status; those before 1.19 only in words,
    of the cause or of the Status itself.
    """
    causes = error.details.get("causes")
    causes = causes if isinstance(causes, list) else ()
    causes = [cause for cause in causes if isinstance(cause, dict)]
    words = [error.message, *(str(cause.get("message")) for cause in causes)]
    return any(
        cause.get("reason") == "ResourceVersionTooLarge" for cause in causes
    ) or (any("Too large resource version" in text for text in words))


ABSENT_SECONDS = 60.0
"""For so long the server must not have named a resource before it counts as absent. A
definition that is replaced, or a server that starts, misses some for a few seconds."""


class Absence:
    """Follows whether the server has a resource; pure and synchronous.

    A list that ends in 404 means little: the next server behind the balancer may know
    the resource. Only when in addition the server has not named it among those it
    serves, each time it was asked, for a minute, it is absent.

    The minute is one without anything else between: a list that fails otherwise, as it
    does while a server is away, begins it anew, because a server that starts does not
    know all its kinds yet. A question without an answer neither counts nor begins it
    anew.

    Attributes:
        confirmed: It is absent; until the server names it, or a list succeeds.
    """

    def __init__(self) -> None:
        self.confirmed = False
        self._since: float | None = None

    def __repr__(self) -> str:
        return f"<Absence since={self._since} confirmed={self.confirmed}>"

    def answered(self, served: bool | None, now: float) -> bool:
        """A list ended in 404, and the server was asked whether it has the resource.

        Args:
            served: What it said; None if that could not be learnt.
            now: In seconds of any clock that does not go back.

        Returns:
            True if it said no, and has done so for long.
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
        """A list failed otherwise: what was said before does not count any more."""
        self._since = None

    def ended(self) -> None:
        """The resource is there."""
        self._since = None
        self.confirmed = False


GAPS = 2.5
"""That many of the longest gap between bookmarks without a sign of life are death. Real
servers send one about every minute, which makes 150 s."""


SHORTEST_SECONDS = 90.0
"""The least silence that counts, however quickly bookmarks come."""


TOGETHER_SECONDS = 5.0
"""Bookmarks closer than that count as one: they tell no rhythm. Some servers send two at
the beginning of a watch, and then none."""


LONGEST_GAP_SECONDS = 120.0
"""What is longer tells no rhythm either, but a pause: of this process (a laptop asleep)
or of a server that has no rhythm. It would make 300 s or more of silence, which is when
the server ends a watch anyway."""


REMEMBERED_GAPS = 8
"""The longest of so many counts, so that one slow moment is forgotten in minutes."""


DEATHS_TO_DOUBT = 2
"""That many watches in a row ended by the watchdog, without a gap between bookmarks in
them, look as if the server had stopped to send any."""


class Watchdog:
    """Learns the rhythm of a server's bookmarks, and says when silence is death.

    It is armed once two bookmarks came in one watch: silence then counts as death after
    2.5 times the longest of the last gaps between bookmarks, but not before 90 s. Any
    event is a sign of life, not bookmarks alone. Some resources get no bookmarks at all;
    for them it never is armed.

    What was learnt in one watch holds in the next ones, as a connection may stall
    before its first bookmark. Only a watch that it had to end without a bookmark, or
    two in a row without two of them, disarms it until it has learnt anew: perhaps the
    server has stopped to send them, and there must be no loop of false alarms.

    One belongs to one list-watch. client-go has none; there a stalled connection is
    found by the probes of TCP and HTTP/2, which a proxy may answer.
    """

    # Invariants: no gap is outside of TOGETHER_SECONDS to LONGEST_GAP_SECONDS, so patience
    # is between 90 and 300 s. There are less than DEATHS_TO_DOUBT deaths. Between two
    # watches nothing is heard, if the watchdog ended the first.

    def __init__(self) -> None:
        self._gaps: deque[float] = deque(maxlen=REMEMBERED_GAPS)
        self._deaths = 0
        # Of the current watch: its last sign of life, its last bookmark.
        self._heard: float | None = None
        self._bookmark: float | None = None

    def __repr__(self) -> str:
        state = f"armed, {self._patience():g}s" if self.armed else "not armed"
        return f"<Watchdog {state}>"

    @property
    def armed(self) -> bool:
        """True if it knows how often bookmarks come, so that silence means something."""
        return bool(self._gaps)

    @property
    def longest_gap(self) -> float:
        """The longest of the last gaps between bookmarks in seconds; 0 if not armed."""
        return max(self._gaps, default=0.0)

    def begin(self, now: float) -> None:
        """The server has accepted a new watch.

        Args:
            now: In seconds of any clock that does not go back.
        """
        if self._heard is not None:
            self._deaths = 0  # the watch before ended in another way

        self._heard = now
        self._bookmark = None

    def heard(self, now: float) -> None:
        """Something came in the watch, whatever it was."""
        self._heard = now

    def bookmark(self, now: float) -> None:
        """A bookmark came in the watch; the same as `heard()`, and learns of it."""
        self._heard = now
        if self._bookmark is None:
            self._bookmark = now
            return

        gap = now - self._bookmark
        if gap < TOGETHER_SECONDS:
            return

        self._bookmark = now
        if gap <= LONGEST_GAP_SECONDS:
            self._gaps.append(gap)
            self._deaths = 0

    def deadline(self) -> float | None:
        """When the watch counts as dead if nothing comes; None if silence is normal.

        It moves with every sign of life, also towards the past of what it said before
        (a first gap was learnt, a long one forgotten): ask again when a timer fires, and
        after each bookmark.
        """
        if self._heard is None or not self._gaps:
            return None

        return self._heard + self._patience()

    def bitten(self) -> None:
        """The watch was ended because its deadline had passed."""
        self._deaths += 1
        if self._bookmark is None or self._deaths >= DEATHS_TO_DOUBT:
            self._gaps.clear()
            self._deaths = 0

        self._heard = None

    def _patience(self) -> float:
        return max(GAPS * self.longest_gap, SHORTEST_SECONDS)
