"""Faults that answer in the place of the server, or before it does."""

from __future__ import annotations

from dataclasses import dataclass
from http import HTTPStatus
from typing import ClassVar

from aioinformer.errors import OptionsError
from aioinformer_apiserver.faults.base import Fault
from aioinformer_apiserver.faults.checks import check_number, check_status

__all__ = ["Compact", "Gone", "Page", "Refuse"]

_PHRASES = {int(it): it.phrase for it in HTTPStatus}
_PAGE = """\
<html>
<head><title>{status} {phrase}</title></head>
<body><center><h1>{status} {phrase}</h1></center><hr></body>
</html>
"""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Refuse(Fault):
    """Answers with an error, and does nothing that was asked for."""

    status: int
    """The HTTP status code, 400 or above."""

    reason: str = ""
    """For machines; empty for the usual one of the code."""

    message: str = ""
    """For people; empty for the usual one of the code."""

    retry_after: int | None = None
    """Seconds for the `Retry-After` header and the Status's details."""

    retry_date: bool = False
    """Write the header as an HTTP date instead, which is as exact as a second."""

    def __post_init__(self) -> None:
        Fault.__post_init__(self)
        check_status(repr(self), self.status, range(400, 600))
        if self.retry_after is not None:
            check_number(repr(self), "retry_after", self.retry_after)

        if self.retry_date and self.retry_after is None:
            raise OptionsError(f"{self}: retry_date needs retry_after, in seconds")


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Gone(Fault):
    """Says that the version has expired: 410.

    A watch ends with an ERROR event. With `after_events=0`, and for every other verb,
    the whole request is refused with the HTTP status instead.
    """

    verb: str = "watch"

    after_events: int = 0
    """How many events (bookmarks do not count) a watch delivers before."""

    def __post_init__(self) -> None:
        Fault.__post_init__(self)
        check_number(repr(self), "after_events", self.after_events)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Page(Fault):
    """Answers with a web page, as a proxy or a log-in in between does."""

    status: int = 502
    """The HTTP status code; with 200 only the content type gives it away."""

    body: str = ""
    """The HTML; empty for what a reverse proxy writes."""

    def __post_init__(self) -> None:
        Fault.__post_init__(self)
        check_status(repr(self), self.status, range(200, 600))

    def html(self) -> str:
        """Return the page."""
        phrase = _PHRASES.get(self.status, "")
        return self.body or _PAGE.format(status=self.status, phrase=phrase)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Compact(Fault):
    """Forgets all history before the request is answered, as `APIServer.compact()` does.

    With `parameter="continue"` it is the token of a list that has expired meanwhile. It
    changes an answer only if there is something newer than what is asked for.
    """

    acts_on: ClassVar[tuple[str, ...]] = ("list", "watch")
