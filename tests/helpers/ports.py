"""Ports for servers that cannot choose one themselves."""

from __future__ import annotations

import random
import socket
from contextlib import suppress

__all__ = ["free_port"]

# No system gives these to servers that ask for any port, such as those of other tests.
_PORTS = range(20_000, 32_000)
_random = random.SystemRandom()  # each process its own, whatever the seed of the tests


def free_port() -> int:
    """Return a port of 127.0.0.1 that nobody listens on."""
    while True:
        port = _random.choice(_PORTS)
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port
