"""Faults that act before a request is handled, or replace its response."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from http import HTTPStatus
from typing import TYPE_CHECKING, ClassVar, Literal

from aioinformer.errors import OptionsError
from aioinformer_apiserver.errors import statuses
from aioinformer_apiserver.faults.base import Fault, check_number, check_status
from aioinformer_apiserver.serialization.responses import APIResponse, error_response

if TYPE_CHECKING:
    from aioinformer.errors import ApiError
    from aioinformer_apiserver.faults.base import Strike, Verb
    from aioinformer_apiserver.storage.dispatcher import Waker
    from aioinformer_apiserver.storage.storage import Storage

__all__ = ["Compact", "Delay", "Gone", "Page", "Refuse"]

_PHRASES = {int(it): it.phrase for it in HTTPStatus}
_PAGE = """\
<html>
<head><title>{status} {phrase}</title></head>
<body><center><h1>{status} {phrase}</h1></center><hr></body>
</html>
"""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Refuse(Fault):
    """Returns an error instead of handling the request.

    Args:
        status: HTTP status code, 400 or above.
        reason: Machine-readable reason; empty for the usual reason of the code.
        message: Human-readable message; empty for the usual message of the code.
        retry_after: Seconds for the `Retry-After` header and the details of the
            Status.
        retry_date: True to write the header as an HTTP date, which has a resolution
            of one second.
    """

    status: int
    reason: str = ""
    message: str = ""
    retry_after: int | None = None
    retry_date: bool = False

    def __post_init__(self) -> None:
        # Not super(): the class that a slotted dataclass replaces is not its base.
        Fault.__post_init__(self)
        check_status(repr(self), self.status, range(400, 600))
        if self.retry_after is not None:
            check_number(repr(self), "retry_after", self.retry_after)

        if self.retry_date and self.retry_after is None:
            raise OptionsError(f"{self}: retry_date needs retry_after, in seconds")

    async def before(
        self, strike: Strike, storage: Storage, waker: Waker
    ) -> APIResponse | None:
        """Return the error."""
        error = statuses.of_code(
            self.status,
            reason=self.reason,
            message=self.message,
            retry_after=self.retry_after,
        )
        response = error_response(error)
        if self.retry_date:
            when = datetime.now(tz=UTC) + timedelta(seconds=self.retry_after or 0)
            response.headers["Retry-After"] = format_datetime(when, usegmt=True)

        return response


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Gone(Fault):
    """Reports that the resource version has expired: 410.

    A watch ends with an ERROR event. With `after_events=0`, and for all other verbs,
    the request fails with the HTTP status instead.

    Args:
        after_events: Number of events that a watch delivers first; bookmarks do not
            count.
    """

    verb: Verb | Literal[""] = "watch"
    after_events: int = 0

    def __post_init__(self) -> None:
        Fault.__post_init__(self)
        check_number(repr(self), "after_events", self.after_events)

    async def before(
        self, strike: Strike, storage: Storage, waker: Waker
    ) -> APIResponse | None:
        """Return 410, unless a watch is to deliver events first."""
        if strike.occasion.verb == "watch" and self.after_events:
            return None

        return error_response(statuses.of_code(410))

    @property
    def alters_content(self) -> bool:
        """True: a watch may end by this fault."""
        return True

    def watch_end(self, events: int) -> ApiError | bool:
        """End the watch after `after_events` events."""
        if events != self.after_events:
            return False

        return statuses.expired("too old resource version: it has expired")


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Page(Fault):
    """Returns a web page, as a proxy or a login page in between does.

    Args:
        status: HTTP status code. With 200, only the content type reveals the page.
        body: HTML; empty for the page of a reverse proxy.
    """

    status: int = 502
    body: str = ""

    def __post_init__(self) -> None:
        Fault.__post_init__(self)
        check_status(repr(self), self.status, range(200, 600))

    def html(self) -> str:
        """Return the page."""
        phrase = _PHRASES.get(self.status, "")
        return self.body or _PAGE.format(status=self.status, phrase=phrase)

    async def before(
        self, strike: Strike, storage: Storage, waker: Waker
    ) -> APIResponse | None:
        """Return the page."""
        body = [self.html().encode()]
        return APIResponse(status=self.status, body=body, content_type="text/html")


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Compact(Fault):
    """Fault that discards all history before the request, as `compact()` does.

    With `parameter="continue"`, the token of a paged list has expired. The response
    changes only if there is a newer version than the requested one.
    """

    acts_on: ClassVar[tuple[str, ...]] = ("list", "watch")

    async def before(
        self, strike: Strike, storage: Storage, waker: Waker
    ) -> APIResponse | None:
        """Compact the storage."""
        storage.compact()
        return None


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Delay(Fault):
    """Delays a request before the server handles it, as a slow network or queue does.

    The response shows the state after the delay. (A `Stall` with `head=False` holds
    back a response that was made before.)

    Args:
        seconds: Delay on the loop's clock.
    """

    seconds: float

    def __post_init__(self) -> None:
        Fault.__post_init__(self)
        check_number(repr(self), "seconds", self.seconds, whole=False)

    async def before(
        self, strike: Strike, storage: Storage, waker: Waker
    ) -> APIResponse | None:
        """Wait."""
        strike.record_effect()
        await waker.sleep(self.seconds)
        return None
