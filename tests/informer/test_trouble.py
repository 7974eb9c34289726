"""`describe_state`: what is wrong with an informer, for a person."""

from __future__ import annotations

import pytest

from aioinformer.errors import (
    DecodeError,
    Forbidden,
    NotFound,
    ServerError,
    TransportError,
    Unauthorized,
)
from aioinformer.informer.status import describe_state


@pytest.mark.parametrize(
    ("error", "failures", "text"),
    [
        (None, 0, "no error so far"),
        (ServerError("busy", status=503), 1, "1 attempt failed: 503: busy"),
        (TransportError("down"), 2, "2 attempts failed: down"),
        (DecodeError("no list"), 1, "1 attempt failed: no list"),
        (
            Unauthorized("who", status=401, reason="Unauthorized"),
            2,
            "2 attempts failed: 401 Unauthorized: who (the server does not accept the credentials)",
        ),
        (
            Forbidden("no", status=403, reason="Forbidden"),
            2,
            "2 attempts failed: 403 Forbidden: no (to list and to watch must both be allowed)",
        ),
        (
            NotFound("where", status=404, reason="NotFound"),
            1,
            "1 attempt failed: 404 NotFound: where (the server has no such resource)",
        ),
    ],
    ids=["none", "500", "network", "unreadable", "401", "403", "404"],
)
def test_state_includes_the_last_error(
    error: Exception | None, failures: int, text: str
) -> None:
    assert describe_state("listing", error, failures) == f"listing, {text}"


def test_state_includes_abandoned_streams() -> None:
    assert describe_state("backing off", None, 0, streams_given_up=True) == (
        "backing off, no error so far, lists are asked for in pages, as the server did "
        "not stream them"
    )
