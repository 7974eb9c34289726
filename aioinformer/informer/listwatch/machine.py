"""List-watch machine: decides on the next request after each response.

Pure and synchronous: it does not wait, log, or read a clock. The reflector sends the
request of the phase, passes the outcome to `advance`, and performs the actions
returned.

Each phase has only the fields that it needs. Below, v is the version to continue from
and r is the version of the response. The first matching row applies:

=================  ==========================  ====================  =================
phase              input                       next phase            actions
=================  ==========================  ====================  =================
the first one      nothing is stored           Listing("0")
  "                a stored list of v          Watching(v)
  "                the same, not comparable    Listing("", reset)
Listing(v)         page with a token           Listing(v, token)
  "                last page, or all initial   Listing("", reset)    Discard, Report
                   events, of an r older than
                   the known version
  "                last page, or all initial   Watching(r)           Commit(r)
                   events, of another r
  "                absent resource that was    Listing("0")          Discard, Clear,
                   listed before                                     Report
  "                broken history              Listing("", reset)    Discard, Report
  "                410, version too large,     Listing("")           Discard, Report
                   invalid request
  "                other failure               Listing(v)            Discard, Report
Watching(v)        other selection             Listing(v)
  "                list of more shards at r    Watching(min(v, r)),  Extend
                                               ahead max(v, r)
  "                the same, v or r is no      Listing(v)
                   decimal number
  "                not verified: temporary     Watching(v)           Report
  "                not verified: any other     Listing("", reset)    Report
  "                broken history at r         Listing("", reset)    Report
  "                410, version too large,     Listing("")           Report
                   invalid request
  "                any end, r is no version    Listing("")           Report, if failed
  "                404, 405, unreadable, or    Listing(r)            Report
                   internal errors for long
  "                other end at r              Watching(r)           Report, if failed
=================  ==========================  ====================  =================

While a watch is behind some shards of the store (`ahead`), a list must not be older than
they are: there, v and r are that version. `Listing("")` requests the newest state,
`Listing("0")` any state that the server has, `Listing(v)` a state not older than v.
Each keeps the known version, to detect that a server's history went backwards (restored
from a backup). With `after_reset`, the next list is accepted at any version, because
the same version may now be another state. If a list fails after its first page, and the
failure is not temporary, the next list is requested once without pages. The pages may
be the cause: their tokens may expire (410) before a slow reader gets there, or form a
loop. client-go also requests the whole list then.

A stored list is verified before the watch that resumes from it; see `Resume`. A list
that compares all objects is right in any case, so it follows unless the failure is
temporary.

Each phase also has whether lists are requested as streams. A failed stream may change
that as follows; the table above decides on the rest:

==================================================  ==================================
stream                                              next lists
==================================================  ==================================
no end of its initial events, or 405, or invalid    in pages, for good
without a version as the cause (then v stays)
410, version too large, invalid, broken history,    streams
429, unreachable (nothing about streams)
third failure in a row, after it was accepted       in pages, for good
third failure in a row, before                      this one in pages, then streams;
                                                    streams at once if its first page
                                                    fails as well
other failure                                       streams
==================================================  ==================================

client-go lists in pages at once after any failure of a stream, and requests a stream
again for the next list. So each list begins with a useless request if the server does
not support streams. And while a server restarts, it gets the more expensive request.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias, assert_never

from aioinformer.backoff import Failure
from aioinformer.errors import ApiError, InternalError, Invalid, TooManyRequests
from aioinformer.informer.listwatch.recovery import (
    Recovery,
    is_unsupported,
    pace_of,
    recovery_for,
)
from aioinformer.informer.listwatch.watch_events import NO_VERSION, history_reset
from aioinformer.model.object_meta import version_number
from aioinformer.watch.interface import ListOptions, WatchOptions

if TYPE_CHECKING:
    from aioinformer.informer.listwatch.interface import Resume

__all__ = [
    "Action",
    "Clear",
    "Commit",
    "Discard",
    "Extend",
    "Input",
    "ListFailed",
    "Listing",
    "PageListed",
    "Phase",
    "Report",
    "Reselected",
    "ShardsListed",
    "StreamListed",
    "Unverified",
    "WatchEnded",
    "Watching",
    "advance",
    "first_phase",
    "list_options",
    "retry_after",
    "stream_options",
]

# client-go's page size. A server with a watch cache answers version "0" whole.
PAGE_SIZE = 500

STREAMS_TO_GIVE_UP = 3
"""Number of failed streams in a row after which streams are given up. One or two
failures may come from restarts of the server or a proxy."""


# ---------------------------------------------------------------- phases


@dataclass(frozen=True, slots=True)
class Listing:
    """Phase in which a list, or its next page, is requested."""

    version: str = "0"
    """Minimum version; `"0"` for any state, `""` for the newest."""

    token: str = ""
    """Token of the requested page; empty for the first one."""

    listed: str = ""
    """Version of the list, from its first page; empty before that."""

    known: str | None = None
    """Version that the store has; None before the first list."""

    after_reset: bool = False
    """True if the server's history was reset, so that known versions are not
    comparable."""

    streaming: bool = False
    """True to request a stream: a watch that begins with the current objects."""

    broken: int = 0
    """Number of streams in a row that failed without a clear cause: see
    `_after_stream`."""

    detour: bool = False
    """True to list in pages this time only, because streams failed to start."""

    whole: bool = False
    """True to list without pages this time, because later pages failed."""


@dataclass(frozen=True, slots=True)
class Watching:
    """Phase in which changes after `version` are requested; the store has a list."""

    version: str

    streaming: bool = False
    """True if later lists are requested as streams."""

    ahead: int = -1
    """Version that some shards of the store have, if it is above `version`. A list must
    not be older."""


Phase: TypeAlias = Listing | Watching


# ---------------------------------------------------------------- inputs


@dataclass(frozen=True, slots=True)
class PageListed:
    """Input: a page was read and staged."""

    version: str
    token: str = ""


@dataclass(frozen=True, slots=True)
class StreamListed:
    """Input: the initial events of a stream are staged, and it continues as a watch."""

    version: str


@dataclass(frozen=True, slots=True)
class ListFailed:
    """Input: a list, in pages or as a stream, was refused or broke off."""

    error: Exception
    established: bool = False
    """True for a stream that the server had accepted."""

    endless: bool = False
    """True for a stream whose initial events did not end in time."""

    absent: bool = False
    """True if the resource is absent; see `Absence`."""


@dataclass(frozen=True, slots=True)
class WatchEnded:
    """Input: a watch has ended, and the store has everything up to `version`."""

    version: str
    error: Exception | None = None
    established: bool = True
    """True if the server accepted it; False if the request failed."""

    persistent: bool = False
    """True if internal errors of the server have been ending watches for too long, or
    have ended one that should confirm a stored list."""


@dataclass(frozen=True, slots=True)
class Unverified:
    """Input: a stored list could not be verified, or is of another history."""

    error: Exception


@dataclass(frozen=True, slots=True)
class Reselected:
    """Input: the selection has changed, so that it has to be listed."""


@dataclass(frozen=True, slots=True)
class ShardsListed:
    """Input: further shards were listed beside the watch, which has ended."""

    version: str


Input: TypeAlias = (
    PageListed
    | StreamListed
    | ListFailed
    | WatchEnded
    | Unverified
    | Reselected
    | ShardsListed
)


# ---------------------------------------------------------------- actions


@dataclass(frozen=True, slots=True)
class Commit:
    """Action: commit the staged objects, the complete list of this version."""

    version: str


@dataclass(frozen=True, slots=True)
class Discard:
    """Action: drop the staged objects."""


@dataclass(frozen=True, slots=True)
class Report:
    """Action: report an error."""

    error: Exception


@dataclass(frozen=True, slots=True)
class Clear:
    """Action: remove all objects, because the server no longer has the resource."""


@dataclass(frozen=True, slots=True)
class Extend:
    """Action: add the objects of further shards."""

    watched: int
    """Version of the watch that has ended."""

    listed: int
    """Version of the list of further shards."""


Action: TypeAlias = Commit | Discard | Report | Clear | Extend


# ---------------------------------------------------------------- decisions


def first_phase(resume: Resume | None, *, streaming: bool) -> Phase:
    """Return the phase to begin with.

    Args:
        resume: List that the store has, or None.
        streaming: True to request lists as streams.
    """
    if resume is None:
        return Listing(streaming=streaming)

    if not resume.comparable:
        stored = Watching(resume.version, streaming)
        return _after(Recovery.RELIST_ANEW, stored, stored.version)

    if not resume.version:
        return Listing(streaming=streaming)

    return Watching(resume.version, streaming)


def advance(phase: Phase, happened: Input) -> tuple[Phase, list[Action]]:
    """Return the next phase, and the actions to perform before it.

    Raises:
        InternalError: If the input cannot happen in this phase.
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
        case Watching(), Reselected():
            return _after(Recovery.RELIST, phase, phase.version), []
        case Watching(), ShardsListed(version=listed):
            return _shards_listed(phase, listed)
        case Watching(), Unverified(error=error):
            resumes = recovery_for(error) is Recovery.RESUME
            recovery = Recovery.RESUME if resumes else Recovery.RELIST_ANEW
            return _after(recovery, phase, phase.version), [Report(error)]
        case _:
            raise InternalError(f"unexpected {happened!r} in phase {phase!r}")


def list_options(phase: Listing, page_size: int | None) -> ListOptions:
    """Return the list request of a phase.

    A limit is never sent with a version alone, which would request exactly that state.

    Args:
        phase: Phase of the machine.
        page_size: Number of objects in a page; None for the default.
    """
    if phase.token:
        return ListOptions(limit=page_size or PAGE_SIZE, continue_token=phase.token)

    any_version = phase.version in NO_VERSION
    limit = page_size or (PAGE_SIZE if any_version else 0)
    return ListOptions(
        resource_version=phase.version,
        resource_version_match="" if any_version else "NotOlderThan",
        limit=0 if phase.whole else limit,
    )


def stream_options(phase: Listing, seconds: int) -> WatchOptions:
    """Return the request for a list as a stream.

    Args:
        phase: Phase of the machine.
        seconds: Seconds after which the server should end the stream.
    """
    # Streams cannot request "any state".
    version = "" if phase.version == "0" else phase.version
    return WatchOptions(
        resource_version=version, send_initial_events=True, timeout_seconds=seconds
    )


def _listed(phase: Listing, listed: str, token: str) -> tuple[Phase, list[Action]]:
    """Return the phase after a page: its next page, or the watch after the list."""
    if token:
        return replace(phase, token=token, listed=listed), []

    return _complete(phase, listed)


def _complete(phase: Listing, listed: str) -> tuple[Phase, list[Action]]:
    """Return the phase after a complete list: a watch, or a relist if it is too old."""
    number = version_number(listed)
    known = phase.known or ""
    if not phase.after_reset and 0 <= number < version_number(known):
        error = history_reset(f"list of version {listed}", known)
        return _again(phase, Recovery.RELIST_ANEW), [Discard(), Report(error)]

    return Watching(listed, phase.streaming or phase.detour), [Commit(listed)]


def _list_failed(phase: Listing, failed: ListFailed) -> tuple[Phase, list[Action]]:
    report = Report(failed.error)
    if failed.absent and phase.known is not None:
        empty = Listing(streaming=phase.streaming or phase.detour)
        return empty, [Discard(), Clear(), report]

    recovery = recovery_for(failed.error)
    whole = bool(phase.token) and recovery is not Recovery.RESUME
    if phase.streaming and _refuses_streams(phase, failed):
        # The version is not the cause.
        phase, recovery = replace(phase, streaming=False, broken=0), Recovery.RELIST
    elif phase.streaming:
        phase = _after_stream(phase, failed, recovery)
    elif phase.detour and not phase.token:
        phase = replace(phase, streaming=True, detour=False)

    return _again(phase, recovery, whole=whole), [Discard(), report]


def _again(phase: Listing, recovery: Recovery, *, whole: bool = False) -> Listing:
    """Return the list from its first page, with the version of the recovery."""
    phase = replace(phase, token="", listed="", whole=whole)
    match recovery:
        case Recovery.RELIST_ANEW:
            return replace(phase, version="", after_reset=True)
        case Recovery.RELIST_NEWEST:
            return replace(phase, version="")
        case _:
            return phase


def _refuses_streams(phase: Listing, failed: ListFailed) -> bool:
    """Return True if the server does not seem to support streams.

    Such servers refuse the request as invalid, or start a plain watch, whose initial
    events never end.
    """
    unversioned = phase.version in NO_VERSION
    invalid = isinstance(failed.error, Invalid) and unversioned
    return failed.endless or invalid or is_unsupported(failed.error)


def _after_stream(phase: Listing, failed: ListFailed, recovery: Recovery) -> Listing:
    """Return the phase after a failed stream whose server may support streams."""
    about_versions = recovery in (Recovery.RELIST_NEWEST, Recovery.RELIST_ANEW)
    unreachable = pace_of(failed.error) is Failure.UNREACHABLE
    if about_versions or unreachable or isinstance(failed.error, TooManyRequests):
        return phase

    if phase.broken + 1 < STREAMS_TO_GIVE_UP:
        return replace(phase, broken=phase.broken + 1)

    # A proxy may buffer streams, so that they never begin, and pass lists. Or the
    # server is down, and will support streams when it is up again.
    return replace(phase, streaming=False, broken=0, detour=not failed.established)


def _shards_listed(phase: Watching, listed: str) -> tuple[Phase, list[Action]]:
    """Return the watch of all shards, from where the objects of each of them are known."""
    watched, number = version_number(phase.version), version_number(listed)
    if watched < 0 or number < 0:
        return _after(Recovery.RELIST, phase, phase.version), []

    version = phase.version if watched <= number else listed
    ahead = max(phase.ahead, watched, number)
    known = replace(phase, ahead=ahead)
    return _after(Recovery.RESUME, known, version), [Extend(watched, number)]


def retry_after(outcome: Input) -> float | None:
    """Return the seconds that the server requested to wait, or None."""
    match outcome:
        case (
            ListFailed(error=ApiError() as error)
            | WatchEnded(error=ApiError() as error)
            | Unverified(error=ApiError() as error)
        ):
            return error.retry_after
        case _:
            return None


def _watch_ended(phase: Watching, ended: WatchEnded) -> tuple[Phase, list[Action]]:
    version, error = ended.version, ended.error
    recovery = Recovery.RESUME
    if error is not None:
        recovery = recovery_for(error, persistent=ended.persistent)

    if version in NO_VERSION and recovery is not Recovery.RELIST_ANEW:
        # A watch without a version would miss the deletions in between.
        recovery = Recovery.RELIST_NEWEST

    next_phase = _after(recovery, phase, version)
    return next_phase, [] if error is None else [Report(error)]


def _after(recovery: Recovery, phase: Watching, version: str) -> Phase:
    """Return the phase after a watch that has reached a version."""
    streaming = phase.streaming
    ahead = phase.ahead if phase.ahead > version_number(version) else -1
    if recovery is Recovery.RESUME:
        return Watching(version, streaming, ahead)

    if ahead >= 0:
        version = str(ahead)

    match recovery:
        case Recovery.RELIST:
            return Listing(version, known=version, streaming=streaming)
        case Recovery.RELIST_NEWEST:
            return Listing("", known=version, streaming=streaming)
        case Recovery.RELIST_ANEW:
            return Listing("", known=version, after_reset=True, streaming=streaming)
        case _:
            assert_never(recovery)
