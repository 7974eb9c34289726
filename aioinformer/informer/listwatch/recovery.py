"""What an error means for a list-watch: how to go on, and whether a person has to act."""

from __future__ import annotations

import enum

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
