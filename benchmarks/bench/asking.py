"""A client of a web app: one kept-alive connection, a request at fixed times.

It notes how long each answer took. There is one request at a time: those that would be
due while an answer is missing are left out, so that a stall is one slow request, however
long it is. What its worst is, that does not change.
"""

from __future__ import annotations

import gc
import re
import socket
import time
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

__all__ = ["Request", "keep_asking"]

QUESTION = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"
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


def keep_asking(pipe: Connection, port: int, every: float) -> None:
    """Ask until the pipe says something; then tell it the list of requests.

    Args:
        pipe: Told True after the first answer.
        port: Of the web app, on this machine.
        every: Seconds from one request to the next.
    """
    requests: list[Request] = []
    gc.disable()  # its pauses are none of the app's
    with socket.create_connection(("127.0.0.1", port), TIMEOUT_SECONDS) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        _ask(connection)
        pipe.send(True)
        due = time.monotonic()
        while not pipe.poll():
            sent = _wait_until(due)
            _ask(connection)
            answered = time.monotonic()
            requests.append(Request(sent, answered - sent))
            missed = max(0.0, answered - due) // every
            due += (missed + 1) * every

    pipe.send(requests)


def _wait_until(due: float) -> float:
    """Sleep until then; returns when that was over."""
    wait = due - time.monotonic()
    if wait > 0:
        time.sleep(wait)

    return time.monotonic()


def _ask(connection: socket.socket) -> None:
    connection.sendall(QUESTION)
    answer = b""
    missing = 1
    while missing > 0:
        data = connection.recv(65536)
        if not data:
            raise ConnectionError("the web app has closed the connection")

        answer += data
        missing = _missing(answer)

    if not answer.startswith(b"HTTP/1.1 200 ") or missing:
        raise ConnectionError(f"the web app has answered {answer!r}")


def _missing(answer: bytes) -> int:
    """Number of bytes still to come; at least one while that is unknown."""
    head = answer.find(b"\r\n\r\n")
    if head < 0:
        return 1

    length = LENGTH.search(answer, 0, head + 2)
    if length is None:
        raise ConnectionError(f"no length in the answer {answer!r}")

    return head + 4 + int(length[1]) - len(answer)
