"""`RequestMetrics`: what a client tells its metrics sink."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from aioinformer._user_code import guarded_logger, user_errors

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from aioinformer.metrics import MetricsSink

__all__ = ["NO_ANSWER", "RequestMetrics"]

logger = guarded_logger(__name__)

NO_ANSWER = "<error>"
"""The code of a request that got no answer, as client-go writes it."""


class RequestMetrics:
    """Measures the requests to one server; a sink that fails is told no more.

    Names are those of client-go, all with the label `host`:

    * `rest_client_requests_total`, by `method` and `code`: requests that were sent, each
      repetition too; the code is that of HTTP, or `<error>` where no answer came;
    * `rest_client_request_duration_seconds`, by `verb`: from sending to the head of the
      answer, where client-go takes the body and all repetitions with it;
    * `rest_client_request_retries_total`, by `verb` and `code`: requests that were sent
      again, with the code of what was not good enough;
    * `rest_client_rate_limiter_duration_seconds`, by `verb`: how long requests waited
      for the client's own rate limit, if it has one.

    The verb is the method, as in client-go.

    Args:
        sink: Where measurements go.
        server: The URL of the server.
    """

    def __init__(self, sink: MetricsSink, server: str) -> None:
        self._sink = sink
        self._host = urlsplit(server).netloc
        self._failed = False

    @contextmanager
    def attempt(self, method: str) -> Iterator[Callable[[int], None]]:
        """Measure one request, for as long as the block lasts.

        Yields:
            What to call with the status of the answer.
        """
        now = asyncio.get_running_loop().time
        code, started = NO_ANSWER, now()

        def answered(status: int) -> None:
            nonlocal code
            code = str(status)

        try:
            yield answered
        finally:
            sink, seconds = self._sink, now() - started
            self._tell(
                sink.count, "rest_client_requests_total", 1.0, method=method, code=code
            )
            self._tell(
                sink.observe,
                "rest_client_request_duration_seconds",
                seconds,
                verb=method,
            )

    def repeated(self, method: str, code: int | str) -> None:
        """A request is sent again, after this code."""
        name = "rest_client_request_retries_total"
        self._tell(self._sink.count, name, 1.0, verb=method, code=str(code))

    def throttled(self, method: str, seconds: float) -> None:
        """A request has waited for the client's own rate limit."""
        name = "rest_client_rate_limiter_duration_seconds"
        self._tell(self._sink.observe, name, seconds, verb=method)

    def _tell(
        self, tell: Callable[..., None], name: str, value: float, **labels: str
    ) -> None:
        if self._failed:
            return

        try:
            tell(name, value, **labels, host=self._host)
        except user_errors():  # the user's sink: logged, and told no more
            logger.exception("the client of %s: the metrics sink failed", self._host)
            self._failed = True
