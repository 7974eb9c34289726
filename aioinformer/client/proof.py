"""`Proof`: what proves to the API server who we are, at one moment."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TypeAlias

from aioinformer.errors import OptionsError

__all__ = ["Proof", "ProofSource", "bearer"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """A header, a client certificate, both, or nothing. Secrets are in no `repr`."""

    authorization: str = field(default="", repr=False)
    """The value of the Authorization header; empty for none."""

    certificate: bytes | None = field(default=None, repr=False)
    """A client certificate with its chain, PEM; it comes with `key`."""

    key: bytes | None = field(default=None, repr=False)
    """The key of `certificate`, PEM."""

    fresh_seconds: float = field(default=math.inf, compare=False)
    """How long to use it before a newer one is asked for."""

    valid_seconds: float = field(default=math.inf, compare=False)
    """How long it may be used if no newer one can be got."""


ProofSource: TypeAlias = Callable[[], Awaitable[Proof]]
"""Gets a new proof; fails with `OptionsError`, whose text holds no secret."""


def bearer(token: str, what: str) -> str:
    """The header of a bearer token, without the white space around it.

    Args:
        token: The token.
        what: Names it in errors, which never show it.

    Raises:
        OptionsError: If it is empty, or has characters that no header can carry.
    """
    token = token.strip()
    if not token:
        raise OptionsError(f"{what} is empty")

    # Anything else would be refused by the HTTP library, with the token in its error.
    if not token.isascii() or not token.isprintable() or " " in token:
        raise OptionsError(f"{what} has characters that no token can have")

    return f"Bearer {token}"
