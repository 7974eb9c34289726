"""`RequestLog`: log lines of one request."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final
from urllib.parse import quote, urlencode

if TYPE_CHECKING:
    from aioinformer_apiserver.http.response import ResponseWriter
    from aioinformer_apiserver.requests.request import APIRequest

__all__ = ["RequestLog"]

logger: Final = logging.getLogger(__name__)

# Characters of selectors and names, which are hard to read when escaped.
_READABLE = "=!,/:()@"


class RequestLog:
    """Log of one request: a line at its end, for a watch also one at its beginning.

    Args:
        request: The request.
        writer: Writer of the response.

    Attributes:
        user: Name of the user; empty until the request is authenticated.
    """

    def __init__(self, request: APIRequest, writer: ResponseWriter) -> None:
        self.user = ""
        self._request = request
        self._writer = writer
        self._watching = False
        self._enabled = logger.isEnabledFor(logging.INFO)
        self._start = asyncio.get_running_loop().time() if self._enabled else 0.0

    def watch_began(self) -> None:
        """Log that the head of a watch has been sent, unless a fault prevented it."""
        self._watching = bool(self._writer.status)
        if self._enabled and self._watching:
            logger.info("%s: watch began (%s)", self._title(), self._details())

    def ended(self) -> None:
        """Log the end of the request."""
        if not self._enabled:
            return

        seconds = asyncio.get_running_loop().time() - self._start
        if self._watching:
            event, shown = "watch ended", f"{seconds:.1f} s"
        else:
            event = "answered" if self._writer.status else "ended without a response"
            shown = f"{seconds * 1000:.1f} ms"

        logger.info("%s: %s (%s)", self._title(), event, self._details(shown))

    def _title(self) -> str:
        query = urlencode(self._request.query, safe=_READABLE)
        path = f"{self._request.path}?{query}" if query else self._request.path
        return f"{self._request.method} {path}"

    def _details(self, duration: str = "") -> str:
        status = f"status={self._writer.status}" if self._writer.status else ""
        user = f"user={quote(self.user, safe=_READABLE)}" if self.user else ""
        return ", ".join(filter(None, (status, user, duration)))
