"""`RequestMetrics`: client-go's request metrics of a client."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from aioinformer._user_code import guarded_logger, user_errors

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from aioinformer.metrics import MetricsSink

__all__ = ["NO_ANSWER", "RequestMetrics"]

logger: Final = guarded_logger(__name__)

NO_ANSWER = "<error>"
"""Code of a request without a response, as in client-go."""


class RequestMetrics:
    """Metrics of the requests to one server. A sink that raises is not called again.

    The names are those of client-go, all with the label `host`:

    * `rest_client_requests_total`, by `method` and `code`: requests sent, including
      retries; the code is the HTTP status, or `<error>` without a response;
    * `rest_client_request_duration_seconds`, by `verb`: time from sending a request to
      the head of its response (client-go includes the body and all retries);
    * `rest_client_request_retries_total`, by `verb` and `code`: retried requests, with
      the code of the failed attempt;
    * `rest_client_rate_limiter_duration_seconds`, by `verb`: time that requests waited
      for the client's own rate limit, if it has one.

    The verb is the HTTP method, as in client-go.

    Args:
        sink: Receiver of the measurements.
        server: URL of the server.
    """

    def __init__(self, sink: MetricsSink, server: str) -> None:
        self._sink = sink
        self._host = urlsplit(server).netloc
        self._failed = False

    @contextmanager
    def attempt(self, method: str) -> Iterator[Callable[[int], None]]:
        """Measure the request that is sent in the block.

        Yields:
            Function to call with the status of the response.
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
            self._report(
                sink.count, "rest_client_requests_total", 1.0, method=method, code=code
            )
            self._report(
                sink.observe,
                "rest_client_request_duration_seconds",
                seconds,
                verb=method,
            )

    def repeated(self, method: str, code: int | str) -> None:
        """Count a retry after this code."""
        name = "rest_client_request_retries_total"
        self._report(self._sink.count, name, 1.0, verb=method, code=str(code))

    def throttled(self, method: str, seconds: float) -> None:
        """Observe the wait for the client's own rate limit."""
        name = "rest_client_rate_limiter_duration_seconds"
        self._report(self._sink.observe, name, seconds, verb=method)

    def _report(
        self, report: Callable[..., None], name: str, value: float, **labels: str
    ) -> None:
        if self._failed:
            return

        try:
            report(name, value, **labels, host=self._host)
        except user_errors():  # the user's sink: logged, and not called again
            logger.exception("the client of %s: the metrics sink failed", self._host)
            self._failed = True
