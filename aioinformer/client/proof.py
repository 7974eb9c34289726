"""`Proof`: what proves to the API server who we are, at one moment."""

from __future__ import annotations

import errno
import math
import socket
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TypeAlias

from aioinformer.errors import OptionsError

__all__ = ["Proof", "ProofSource", "bearer", "is_transient"]


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

    wait_seconds: float = field(default=0.0, compare=False)
    """How long a renewal may hold up requests while this one is valid, counted from the
    start of the renewal. Zero renews in the background only."""


ProofSource: TypeAlias = Callable[[], Awaitable[Proof]]
"""Gets a new proof. Fails with `OptionsError`, or `OSError` for what passes by itself
(see `is_transient`). The texts hold no secret."""

_TRANSIENT = frozenset(
    {
        errno.EAGAIN,
        errno.EDQUOT,
        errno.EMFILE,
        errno.ENFILE,
        errno.ENOMEM,
        errno.ENOSPC,
    }
)


def is_transient(exc: OSError) -> bool:
    """Return whether a local error passes by itself: this machine ran out of something.

    Threads, processes, memory, open files or disk space. Nothing is wrong with the
    configuration then.
    """
    # Errors of `ssl` and of name look-ups have numbers of their own.
    foreign = isinstance(exc, ssl.SSLError | socket.gaierror)
    return exc.errno in _TRANSIENT and not foreign


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
