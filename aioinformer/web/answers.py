"""`Answer`: what a route answers, whoever serves it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TypeAlias

__all__ = ["Answer", "Responder", "refusal"]


@dataclass(frozen=True, slots=True)
class Answer:
    """What a route answers."""

    status: int
    body: bytes
    content_type: str = "text/plain; charset=utf-8"
    headers: dict[str, str] = field(default_factory=dict)
    """Beside `Content-Type`."""


Responder: TypeAlias = Callable[[str], Awaitable[Answer]]
"""Called with the header `Accept`, which may be empty."""


def refusal(status: int, text: str, **headers: str) -> Answer:
    """An answer that says in a line of text why there is no other.

    The text may repeat what was asked: no browser is to take it for a page.
    """
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    named["X-Content-Type-Options"] = "nosniff"
    return Answer(status, f"{text}\n".encode(), headers=named)
