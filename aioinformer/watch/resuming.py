"""What to do about whatever happens in a watch that is to be resumed.

Pure and synchronous: `RetryWatch` performs what is decided here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypeAlias

from aioinformer.errors import (
    ApiError,
    DecodeError,
    Forbidden,
    Invalid,
    ResourceExpired,
    ServerError,
    Unauthorized,
)
from aioinformer.model.keys import version_number
from aioinformer.watch.events import EventType, WatchEvent

__all__ = ["Decision", "End", "Forward", "Ignore", "Retry", "decide"]


@dataclass(frozen=True, slots=True)
class Forward:
    """Hand the event on; behind it, the watch is at `version`."""

    version: str


@dataclass(frozen=True, slots=True)
class Ignore:
    """Hand nothing on; the watch is at `version`."""

    version: str


@dataclass(frozen=True, slots=True)
class Retry:
    """This watch is over: begin another one behind the last version."""

    error: Exception | None = None
    """Why; None if it just ended."""

    @property
    def seconds(self) -> float | None:
        """How long the server asked to wait, if it did."""
        return self.error.retry_after if isinstance(self.error, ApiError) else None


@dataclass(frozen=True, slots=True)
class End:
    """Hand on this ERROR event as the last one: no other watch could do better."""

    event: WatchEvent


Decision: TypeAlias = Forward | Ignore | Retry | End

# Refusals that the same request meets again, until a person does something about it.
_FINAL: Final = Unauthorized | Forbidden | Invalid | ResourceExpired


def decide(happened: WatchEvent | Exception | None, version: str) -> Decision:
    """What to do about an event, a failure, or the end of a watch.

    ==================================  ================================================
    what happened                       decision
    ==================================  ================================================
    ADDED, MODIFIED, DELETED
      with a version                    Forward, at that version
      with a decimal version that is    Ignore: the server repeats itself
      not above the last one
      without a version                 End, with an InternalError: nothing could be
                                        resumed behind it
    BOOKMARK
      with a version                    Ignore, at that version
      with none, or one not above       Ignore
      the last one
    ERROR
      410                               End, with that event
      any other, or no Status           Retry, not before the server wants it
    a failure
      401, 403                          End, with its Status
      400, 410, 422                     End, with its Status: the same request is
                                        refused each time. client-go asks for ever
      any other refusal, a broken       Retry, not before the server wants it
      connection, bytes that cannot
      be read
    the end of the stream               Retry
    ==================================  ================================================

    Args:
        happened: An event, the error with which a watch was refused or broke off, or
            None for a stream that has ended.
        version: The last version before.
    """
    match happened:
        case None:
            return Retry()
        case WatchEvent(type=EventType.ERROR):
            return _decide_error(happened)
        case WatchEvent():
            return _decide_event(happened, version)
        case ApiError() if isinstance(happened, _FINAL):
            return End(WatchEvent.of_error(happened))
        case _:
            return Retry(happened)


def _decide_error(event: WatchEvent) -> Decision:
    try:
        error: Exception = event.error()
    except DecodeError as exc:
        error = exc

    return End(event) if isinstance(error, ResourceExpired) else Retry(error)


def _decide_event(event: WatchEvent, version: str) -> Decision:
    new = event.object.resource_version
    if event.type is not EventType.BOOKMARK and not new:
        error = ServerError(
            f"an {event.type} event of {event.object.key} has no resource version: the "
            "watch cannot be resumed behind it",
            status=500,
            reason="InternalError",
        )
        return End(WatchEvent.of_error(error))

    if not new or 0 <= version_number(new) <= version_number(version):
        return Ignore(version)

    return Ignore(new) if event.type is EventType.BOOKMARK else Forward(new)
