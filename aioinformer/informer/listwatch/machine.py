"""The list-watch machine: what to ask the server next, given what it answered.

Pure and synchronous: it never waits, logs, or looks at a clock. The reflector asks what
the phase says, gives the outcome to `advance`, and performs the actions it returns.

Theory of operation. A phase holds just what is meaningful in it; v is the version it
goes on from, r that of the answer, and the first row that fits is the one that counts:

=================  ==========================  ====================  =================
phase              input                       next phase            actions
=================  ==========================  ====================  =================
Listing(v)         page with a token           Listing(v, token)
  "                last page, or all initial   Listing("", anew)     Discard, Report
                   events, of an r older than
                   what is known
  "                last page, or all initial   Watching(r)           Commit(r)
                   events, of another r
  "                not served for long, while  Listing("0")          Discard, Vacate,
                   something was listed                              Report
  "                broken history              Listing("", anew)     Discard, Report
  "                410, version too large,     Listing("")           Discard, Report
                   invalid request
  "                other failure               Listing(v)            Discard, Report
Watching(v)        broken history at r         Listing("", anew)     Report
  "                410, version too large,     Listing("")           Report
                   invalid request
  "                any end, r is no version    Listing("")           Report, if failed
  "                404, 405, unreadable, or    Listing(r)            Report
                   internal errors for long
  "                other end at r              Watching(r)           Report, if failed
=================  ==========================  ====================  =================

`Listing("")` asks for the newest state, `Listing("0")` for any that the server has at
hand, `Listing(v)` for one not older than v. Each remembers what is known, to notice that
a server's history went backwards (restored from a backup); `anew` takes its list as it
is, because then the same version may mean another state. A list that fails behind its
first page, but for a failure that passes, is asked for whole the next time, once: its
pages may be the reason. They expire (410) before a slow reader is through, or lead in a
circle. client-go asks for the whole list then, too.

Whether lists are asked for as streams goes along from phase to phase. A stream that
fails may decide how its list is asked for next; the rows above decide the rest:

==================================================  ==================================
a stream                                            lists from then on
==================================================  ==================================
no end of its initial events in sight, or 405, or   in pages, for good
invalid with no version to blame (then v stays)
410, version too large, invalid, broken history,    streams
429, unreachable (no word about streams)
third failure in a row, after it was accepted       in pages, for good
third failure in a row, before                      this one in pages, then streams;
                                                    streams at once if its first page
                                                    fails as well
other failure                                       streams
==================================================  ==================================

client-go answers any failure of a stream by a list, at once, and the next time asks for a
stream again: a server without streams is asked in vain each time, and one that is
restarting gets the larger request of the two.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypeAlias, assert_never

from aioinformer.backoff import Failure
from aioinformer.errors import InternalError, Invalid, TooManyRequests
from aioinformer.informer.listwatch.recovery import (
    Recovery,
    is_unsupported,
    pace_of,
    recovery_for,
)
from aioinformer.informer.listwatch.watch_events import NO_VERSION, history_reset
from aioinformer.model.keys import version_number
from aioinformer.watch.interface import ListOptions, WatchOptions

__all__ = [
    "Action",
    "Commit",
    "Discard",
    "Input",
    "ListFailed",
    "Listing",
    "PageListed",
    "Phase",
    "Report",
    "StreamListed",
    "Vacate",
    "WatchEnded",
    "Watching",
    "advance",
    "list_options",
    "stream_options",
]

# client-go's page size. A server with a watch cache answers version "0" whole.
PAGE_SIZE = 500

STREAMS_TO_GIVE_UP = 3
"""A server restarts, a proxy cuts: that many streams of initial events in a row which
failed are no accident."""


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

    known: str | None = None
    """The version up to which everything was known before; None before any list."""

    anew: bool = False
    """The server's history is another one: what was known means nothing any more."""

    streaming: bool = False
    """Asked for as a stream: a watch that begins with the current objects."""

    broken: int = 0
    """Streams in a row that failed without a word about streams."""

    detour: bool = False
    """In pages this once, as streams failed before they began."""

    whole: bool = False
    """Not in pages this once, as further pages could not be had."""


@dataclass(frozen=True, slots=True)
class Watching:
    """A complete list is in the store; changes after `version` have to be asked for."""

    version: str

    streaming: bool = False
    """Lists are asked for as streams, should one be needed."""


Phase: TypeAlias = Listing | Watching


# ---------------------------------------------------------------- inputs


@dataclass(frozen=True, slots=True)
class PageListed:
    """A page was read to its end and staged."""

    version: str
    token: str = ""


@dataclass(frozen=True, slots=True)
class StreamListed:
    """The initial events of a stream are complete and staged; it goes on as a watch."""

    version: str


@dataclass(frozen=True, slots=True)
class ListFailed:
    """A list, in pages or as a stream, was refused, or broke off."""

    error: Exception
    established: bool = False
    """It was a stream that the server had accepted."""

    endless: bool = False
    """It was a stream whose initial events did not come to their end in time."""

    absent: bool = False
    """For long, the server has not even named the resource among those it serves."""


@dataclass(frozen=True, slots=True)
class WatchEnded:
    """A watch is over, and everything up to `version` was taken from it."""

    version: str
    error: Exception | None = None
    established: bool = True
    """The server accepted it; False if the request itself failed."""

    persistent: bool = False
    """Internal errors of the server have been ending watches for too long."""


Input: TypeAlias = PageListed | StreamListed | ListFailed | WatchEnded


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


@dataclass(frozen=True, slots=True)
class Vacate:
    """The server has the resource no more: every object is gone."""


Action: TypeAlias = Commit | Discard | Report | Vacate


# ---------------------------------------------------------------- decisions


def advance(phase: Phase, happened: Input) -> tuple[Phase, list[Action]]:
    """The next phase, and what to do on the way to it.

    Raises:
        InternalError: The input cannot happen in this phase; nothing is decided.
    """
    match phase, happened:
        case Listing(streaming=False), PageListed(version=version, token=token):
            return _listed(phase, phase.listed or version, token)
        case Listing(streaming=True), StreamListed(version=version):
            return _complete(phase, version)
        case Listing(streaming=True), ListFailed():
            return _list_failed(phase, happened)
        case Listing(), ListFailed(established=False, endless=False):
            return _list_failed(phase, happened)
        case Watching(), WatchEnded():
            return _watch_ended(phase, happened)
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

    anything = phase.version in NO_VERSION
    limit = page_size or (PAGE_SIZE if anything else 0)
    return ListOptions(
        resource_version=phase.version,
        resource_version_match="" if anything else "NotOlderThan",
        limit=0 if phase.whole else limit,
    )


def stream_options(phase: Listing, seconds: int) -> WatchOptions:
    """The request for a list as a stream.

    Args:
        phase: What is to be listed.
        seconds: When the server is to end the stream, which goes on as a watch.
    """
    # No version at hand there: the newest, which the stream waits for.
    version = "" if phase.version == "0" else phase.version
    return WatchOptions(
        resource_version=version, send_initial_events=True, timeout_seconds=seconds
    )


def _listed(phase: Listing, listed: str, token: str) -> tuple[Phase, list[Action]]:
    """After a page: the next one, or the end of the list."""
    if token:
        return replace(phase, token=token, listed=listed), []

    return _complete(phase, listed)


def _complete(phase: Listing, listed: str) -> tuple[Phase, list[Action]]:
    """After a complete list: the watch, or the list again if it cannot be believed."""
    number = version_number(listed)
    known = phase.known or ""
    if not phase.anew and 0 <= number < version_number(known):
        error = history_reset(f"a list of version {listed}", known)
        return _again(phase, Recovery.RELIST_ANEW), [Discard(), Report(error)]

    return Watching(listed, phase.streaming or phase.detour), [Commit(listed)]


def _list_failed(phase: Listing, failed: ListFailed) -> tuple[Phase, list[Action]]:
    report = Report(failed.error)
    if failed.absent and phase.known is not None:
        vacant = Listing(streaming=phase.streaming or phase.detour)
        return vacant, [Discard(), Vacate(), report]

    recovery = recovery_for(failed.error)
    whole = bool(phase.token) and recovery is not Recovery.RESUME
    if phase.streaming and _refuses_streams(phase, failed):
        # The version is not to blame for it.
        phase, recovery = replace(phase, streaming=False, broken=0), Recovery.RELIST
    elif phase.streaming:
        phase = _after_stream(phase, failed, recovery)
    elif phase.detour and not phase.token:
        phase = replace(phase, streaming=True, detour=False)

    return _again(phase, recovery, whole=whole), [Discard(), report]


def _again(phase: Listing, recovery: Recovery, *, whole: bool = False) -> Listing:
    """The same list from its beginning, or that of a version that can be had."""
    phase = replace(phase, token="", listed="", whole=whole)
    match recovery:
        case Recovery.RELIST_ANEW:
            return replace(phase, version="", anew=True)
        case Recovery.RELIST_NEWEST:
            return replace(phase, version="")
        case _:
            return phase


def _refuses_streams(phase: Listing, failed: ListFailed) -> bool:
    """Whether a stream failed for being one, so that a list may succeed.

    Servers without them say that the request is invalid, or take it for a common watch,
    whose initial events nobody marks as complete.
    """
    unversioned = phase.version in NO_VERSION
    invalid = isinstance(failed.error, Invalid) and unversioned
    return failed.endless or invalid or is_unsupported(failed.error)


def _after_stream(phase: Listing, failed: ListFailed, recovery: Recovery) -> Listing:
    """How to ask for a list whose stream failed, perhaps for another reason."""
    about_versions = recovery in (Recovery.RELIST_NEWEST, Recovery.RELIST_ANEW)
    unreachable = pace_of(failed.error) is Failure.UNREACHABLE
    if about_versions or unreachable or isinstance(failed.error, TooManyRequests):
        return phase

    if phase.broken + 1 < STREAMS_TO_GIVE_UP:
        return replace(phase, broken=phase.broken + 1)

    # One that never begins: a proxy may be waiting for its end, where a list gets
    # through; or the server is down, and can do streams when it is back.
    return replace(phase, streaming=False, broken=0, detour=not failed.established)


def _watch_ended(phase: Watching, ended: WatchEnded) -> tuple[Phase, list[Action]]:
    version, error = ended.version, ended.error
    recovery = Recovery.RESUME
    if error is not None:
        recovery = recovery_for(error, persistent=ended.persistent)

    if version in NO_VERSION and recovery is not Recovery.RELIST_ANEW:
        # Watched from no version, what was deleted in between would stay.
        recovery = Recovery.RELIST_NEWEST

    next_phase = _after(recovery, version, phase.streaming)
    return next_phase, [] if error is None else [Report(error)]


def _after(recovery: Recovery, version: str, streaming: bool) -> Phase:
    match recovery:
        case Recovery.RESUME:
            return Watching(version, streaming)
        case Recovery.RELIST:
            return Listing(version, known=version, streaming=streaming)
        case Recovery.RELIST_NEWEST:
            return Listing("", known=version, streaming=streaming)
        case Recovery.RELIST_ANEW:
            return Listing("", known=version, anew=True, streaming=streaming)
        case _:
            assert_never(recovery)
