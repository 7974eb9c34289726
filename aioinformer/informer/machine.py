"""The list-watch machine: what to ask the server next, given what it answered.

Pure and synchronous: it never waits, logs, or looks at a clock. The reflector asks what
the phase says, gives the outcome to `advance`, and performs the actions it returns.

Theory of operation. A phase holds just what is meaningful in it:

=================  ==========================  ====================  =================
phase              input                       next phase            actions
=================  ==========================  ====================  =================
Listing(v)         page with a token           Listing(v, token)
Listing(v, token)  page with the same token    Listing(v)            Discard, Report
Listing(v)         last page, version r        Watching(r)           Commit(r)
Listing(v)         last page, older than what  Listing("", anew)     Discard, Report
                   is known
Listing(v, token)  any failure                 Listing("" or v)      Discard, Report
Listing(v)         410, version too large      Listing("")           Discard, Report
Listing(v)         other failure               Listing(v)            Discard, Report
Watching(v)        end of stream at r          Watching(r)
Watching(v)        broken history at r         Listing("", anew)     Report
Watching(v)        other failure at r          what `recovery_for`   Report
                                               says, from r
=================  ==========================  ====================  =================

`Listing("")` asks for the newest state, `Listing("0")` for any that the server has at
hand, `Listing(v)` for one not older than v. Each remembers what is known, to notice that
a server's history went backwards (restored from a backup); `anew` takes its list as it
is, because then the same version may mean another state.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias, assert_never

from aioinformer.cache.deltas import Delta, DeltaType
from aioinformer.errors import (
    ApiError,
    DecodeError,
    Forbidden,
    HistoryReset,
    InternalError,
    Invalid,
    NotFound,
    ResourceExpired,
    Unauthorized,
)
from aioinformer.watch.events import EventType
from aioinformer.watch.interface import ListOptions

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioinformer.model.objects import KubeObject
    from aioinformer.watch.events import WatchEvent

__all__ = [
    "Action",
    "Commit",
    "Discard",
    "Input",
    "ListFailed",
    "Listing",
    "PageListed",
    "Phase",
    "Recovery",
    "Report",
    "Sifted",
    "WatchEnded",
    "Watching",
    "advance",
    "is_refusal",
    "list_options",
    "recovery_for",
    "same_state",
    "sift",
    "version_number",
]

# client-go's page size. A server with a watch cache answers version "0" whole.
PAGE_SIZE = 500


# ---------------------------------------------------------------- phases


@dataclass(frozen=True, slots=True)
class Listing:
    """A list has to be asked for, or its next page."""

    version: str = "0"
    """Not older than this; `"0"` for any, `""` for the newest."""

    token: str = ""
    """The page to ask for; empty for the first one."""

    listed: str = ""
    """The version of the pages so far."""

    known: str = ""
    """The version up to which everything was known before."""

    anew: bool = False
    """The server's history is another one: what was known means nothing any more."""

    def again(self) -> Listing:
        """The same list from its first page."""
        return replace(self, token="", listed="")

    def newest(self) -> Listing:
        """A list of the newest state instead."""
        return replace(self.again(), version="")


@dataclass(frozen=True, slots=True)
class Watching:
    """A complete list is in the store; changes after `version` have to be asked for."""

    version: str


Phase: TypeAlias = Listing | Watching


# ---------------------------------------------------------------- inputs


@dataclass(frozen=True, slots=True)
class PageListed:
    """A page was read to its end and staged."""

    version: str
    token: str = ""


@dataclass(frozen=True, slots=True)
class ListFailed:
    """A list request was refused, or broke off."""

    error: Exception


@dataclass(frozen=True, slots=True)
class WatchEnded:
    """A watch is over, and everything up to `version` was taken from it."""

    version: str
    error: Exception | None = None
    established: bool = True
    """The server accepted it; False if the request itself failed."""


Input: TypeAlias = PageListed | ListFailed | WatchEnded


# ---------------------------------------------------------------- actions


@dataclass(frozen=True, slots=True)
class Commit:
    """Everything staged is the complete list of this version."""

    version: str


@dataclass(frozen=True, slots=True)
class Discard:
    """Forget what was staged."""


@dataclass(frozen=True, slots=True)
class Report:
    """Tell about an error."""

    error: Exception


Action: TypeAlias = Commit | Discard | Report


# ---------------------------------------------------------------- decisions


class Recovery(enum.Enum):
    """How to go on after an error."""

    RESUME = "watch again from the last version"
    RELIST = "list again, not older than the last version"
    RELIST_NEWEST = "list again, the newest state"
    RELIST_ANEW = "list again, the newest state, and believe nothing known before"


def recovery_for(error: Exception) -> Recovery:
    """How to go on after a watch, or a list, failed; the one table of it.

    There is no error after which an informer gives up: permissions, credentials and
    kinds come back while it runs.
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
        case DecodeError():
            # Watched again from there, the same bytes would come again, for ever.
            return Recovery.RELIST
        case _:
            return Recovery.RESUME


def advance(phase: Phase, happened: Input) -> tuple[Phase, list[Action]]:
    """The next phase, and what to do on the way to it.

    Raises:
        InternalError: The input cannot happen in this phase; nothing is decided.
    """
    match phase, happened:
        case Listing(), PageListed(version=version, token=token):
            return _listed(phase, phase.listed or version, token)
        case Listing(), ListFailed(error=error):
            newest = recovery_for(error) is Recovery.RELIST_NEWEST
            again = phase.newest() if newest else phase.again()
            return again, [Discard(), Report(error)]
        case Watching(), WatchEnded(version=version, error=None):
            return Watching(version), []
        case Watching(), WatchEnded(version=version, error=error):
            assert error is not None
            return _after(recovery_for(error), version), [Report(error)]
        case _:
            raise InternalError(f"{happened!r} cannot happen while {phase!r}")


def list_options(phase: Listing, page_size: int | None) -> ListOptions:
    """The list request of a phase.

    A limit never goes with a bare version: the server would read the past.

    Args:
        phase: What is to be listed.
        page_size: Objects in one page if the user chose it, else None.
    """
    if phase.token:
        return ListOptions(limit=page_size or PAGE_SIZE, continue_token=phase.token)

    if phase.version in ("", "0"):
        return ListOptions(resource_version=phase.version, limit=page_size or PAGE_SIZE)

    return ListOptions(
        resource_version=phase.version,
        resource_version_match="NotOlderThan",
        limit=page_size or 0,
    )


def is_refusal(error: Exception) -> bool:
    """True for an answer that only a person can change.

    The request is wrong (400, 422: a field that cannot be selected by), or we are not
    known (401), not allowed (403), or ask for what is not served (404, 405).
    """
    return isinstance(error, Invalid | Unauthorized | Forbidden | NotFound) or (
        isinstance(error, ApiError) and error.status == 405
    )


def _listed(phase: Listing, listed: str, token: str) -> tuple[Phase, list[Action]]:
    """After a page: the next one, the watch, or the list again if it cannot be."""
    if token and token == phase.token:
        error: Exception = DecodeError("the next page of a list is the page itself")
        return phase.again(), [Discard(), Report(error)]

    if token:
        return replace(phase, token=token, listed=listed), []

    number = version_number(listed)
    if not phase.anew and 0 <= number < version_number(phase.known):
        error = _reset(f"a list of version {listed}", phase.known)
        return _after(Recovery.RELIST_ANEW, phase.known), [Discard(), Report(error)]

    return Watching(listed), [Commit(listed)]


def _reset(what: str, known: str | int) -> HistoryReset:
    return HistoryReset(
        f"{what} after version {known}: the server's history is not the one known so far"
    )


def _after(recovery: Recovery, version: str) -> Phase:
    match recovery:
        case Recovery.RESUME:
            return Watching(version)
        case Recovery.RELIST:
            return Listing(version, known=version)
        case Recovery.RELIST_NEWEST:
            return Listing("", known=version)
        case Recovery.RELIST_ANEW:
            return Listing("", known=version, anew=True)
        case _:
            assert_never(recovery)


def _too_large(error: ApiError) -> bool:
    """Whether the version asked for is ahead of the server.

    Current servers say so in a cause of the Status; those before 1.19 only in words.
    """
    causes = error.details.get("causes")
    causes = causes if isinstance(causes, list) else ()
    reasons = [cause.get("reason") for cause in causes if isinstance(cause, dict)]
    return (
        "ResourceVersionTooLarge" in reasons
        or "Too large resource version" in error.message
    )


# ---------------------------------------------------------------- events of a watch


@dataclass(slots=True)
class Sifted:
    """What a batch of events means."""

    deltas: list[Delta[KubeObject]]
    version: str
    """The version up to which the watch has brought everything."""

    duplicates: int = 0
    error: Exception | None = None
    """Why the watch is over, if the batch says so."""


def sift(
    events: list[WatchEvent],
    version: str,
    known: Callable[[str], KubeObject | None],
) -> Sifted:
    """Check the versions of a batch and turn its events into changes.

    Inside one watch decimal versions only grow. An event that repeats uid and version
    of the object we know is a duplicate, unless it is a deletion: some servers delete
    under the last version of the object. Any other that is not above the last version
    means that the server's history is not the one we know (a restored backup); so does
    a bookmark below it. Versions that are not decimal are not compared with anything.

    How the events were cut into batches makes no difference.

    Args:
        events: In the order they came.
        version: The last version before them.
        known: The newest state known of the object with a key; None if it is gone.

    Raises:
        DecodeError: If an ERROR event cannot be read.
    """
    result = Sifted([], version)
    append = result.deltas.append
    # What the events before say of their objects; `known` learns it after the batch.
    told: dict[str, KubeObject | None] = {}
    last = version_number(version)
    for event in events:
        obj = event.object
        if event.type is EventType.ERROR:
            result.error = event.error()
            break

        key = obj.key
        number = version_number(obj.resource_version)
        if 0 <= number <= last:
            if event.type is EventType.BOOKMARK and number == last:
                continue

            before = told[key] if key in told else known(key)
            if before is None or not same_state(before, obj):
                result.error = _reset(f"{event.type} of version {number}", last)
                break

            if event.type is not EventType.DELETED:
                result.duplicates += 1
                continue
        elif obj.resource_version:
            last = number
            result.version = obj.resource_version

        if event.type is not EventType.BOOKMARK:
            append(Delta(_DELTAS[event.type], obj))
            told[key] = None if event.type is EventType.DELETED else obj

    return result


# Versions are unsigned 64-bit numbers, which have 20 digits at most. What is longer is
# no number: `int()` refuses to read more than some thousand digits.
LONGEST_VERSION = 20


def version_number(version: str) -> int:
    """A decimal version as a number; -1 for any other, which cannot be compared."""
    if len(version) <= LONGEST_VERSION and version.isdecimal():
        return int(version)

    return -1


_DELTAS = {
    EventType.ADDED: DeltaType.ADDED,
    EventType.MODIFIED: DeltaType.UPDATED,
    EventType.DELETED: DeltaType.DELETED,
}


def same_state(one: KubeObject, other: KubeObject) -> bool:
    """True for the same version of the same object; an empty version is no version."""
    return (
        one.resource_version == other.resource_version
        and one.uid == other.uid
        and bool(one.resource_version)
    )
