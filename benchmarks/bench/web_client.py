"""A client of a web app: one kept-alive connection, with requests at fixed times.

It records the duration of each request. Requests do not overlap: those that become due
while a response is missing are left out. So a stall appears as one slow request with its
full duration.
"""

from __future__ import annotations

import gc
import re
import selectors
import socket
import time
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

__all__ = ["Request", "keep_reading", "keep_requesting"]

FEEDS = ("api/overview", "api/rows?informer=pods0&count=60")
"""Paths that an open page of the dashboard reads."""

REQUEST = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"
LENGTH = re.compile(rb"(?i)\r\ncontent-length: *(\d+)\r\n")
TIMEOUT_SECONDS = 60.0


class Request(NamedTuple):
    """One request.

    Attributes:
        sent: Time by `time.monotonic()`, which all processes of a machine share.
        seconds: Time until its response was complete.
    """

    sent: float
    seconds: float


def keep_requesting(pipe: Connection, port: int, every: float) -> None:
    """Send requests until the pipe receives something, then send it the list of requests.

    Args:
        pipe: Receives True after the first response, and the list at the end.
        port: Port of the web app on this machine.
        every: Seconds from one request to the next.
    """
    requests: list[Request] = []
    gc.disable()  # its pauses would count as the app's
    with socket.create_connection(("127.0.0.1", port), TIMEOUT_SECONDS) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        _send(connection)
        pipe.send(True)
        due = time.monotonic()
        while not pipe.poll():
            sent = _wait_until(due)
            _send(connection)
            received = time.monotonic()
            requests.append(Request(sent, received - sent))
            missed = max(0.0, received - due) // every
            due += (missed + 1) * every

    pipe.send(requests)


def _wait_until(due: float) -> float:
    """Sleep until a time, and return the time afterwards."""
    wait = due - time.monotonic()
    if wait > 0:
        time.sleep(wait)

    return time.monotonic()


def _send(connection: socket.socket) -> None:
    connection.sendall(REQUEST)
    response = b""
    missing = 1
    while missing > 0:
        data = connection.recv(65536)
        if not data:
            raise ConnectionError("the web app closed the connection")

        response += data
        missing = _missing(response)

    if not response.startswith(b"HTTP/1.1 200 ") or missing:
        raise ConnectionError(f"unexpected response of the web app: {response!r}")


def _missing(response: bytes) -> int:
    """Return the number of missing bytes; at least one while it is unknown."""
    head = response.find(b"\r\n\r\n")
    if head < 0:
        return 1

    length = LENGTH.search(response, 0, head + 2)
    if length is None:
        raise ConnectionError(f"response without a Content-Length: {response!r}")

    return head + 4 + int(length[1]) - len(response)


def keep_reading(pipe: Connection, port: int, pages: int) -> None:
    """Read what pages of the dashboard read, until killed.

    Args:
        pipe: Receives True after the first bytes of each feed.
        port: Port of the web app on this machine.
        pages: Number of pages.
    """
    with selectors.DefaultSelector() as ready:
        for feed in FEEDS * pages:
            connection = socket.create_connection(("127.0.0.1", port), TIMEOUT_SECONDS)
            request = f"GET /dashboard/{feed} HTTP/1.1\r\nHost: localhost\r\n\r\n"
            connection.sendall(request.encode())
            if not connection.recv(65536).startswith(b"HTTP/1.1 200 "):
                raise ConnectionError(f"the web app does not serve {feed}")

            ready.register(connection, selectors.EVENT_READ, connection)

        pipe.send(True)
        while True:
            for key, _ in ready.select():
                if not key.data.recv(65536):
                    raise ConnectionError("the web app ended a feed of the dashboard")
