"""Clients on the connections of another one: of one reconcile, and of an election."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NoReturn, Protocol

from aioinformer.client.client import Client
from aioinformer.controller.writes import READING
from aioinformer.errors import OptionsError

if TYPE_CHECKING:
    from aioinformer.client.config import ClientConfig
    from aioinformer.client.discovery import Discovery
    from aioinformer.client.response import Response
    from aioinformer.client.verbs import Request
    from aioinformer.controller.writes import Writes

__all__ = ["ElectionClient", "Elector", "ReconcileClient"]


class Elector(Protocol):
    """Who knows whether this process leads, such as a `LeaderElector`."""

    def check(self) -> None:
        """Raise `LeadershipLost` unless it does; asked right before writes are sent."""


class _ClientView(Client):
    """A client that sends its requests through another one, on its connections.

    Args:
        client: Sends the requests. Its owner enters and leaves it.
    """

    def __init__(self, client: Client) -> None:
        # Not that of `Client`: there is no second endpoint.
        self._client = client

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._client!r}>"

    @property
    def entered(self) -> bool:
        """True while requests can be made."""
        return self._client.entered

    @property
    def config(self) -> ClientConfig:
        """What was configured.

        Raises:
            OptionsError: If it has not been read, as the client was never entered.
        """
        return self._client.config

    @property
    def discovery(self) -> Discovery:
        """The discovery of the client, shared by all views of it."""
        return self._client.discovery

    async def start(self) -> NoReturn:
        """Refused.

        Raises:
            OptionsError: Always: it is entered by whom it belongs to.
        """
        raise OptionsError(f"{self} is entered by its owner")

    async def close(self) -> NoReturn:
        """Refused.

        Raises:
            OptionsError: Always: it is left by whom it belongs to.
        """
        raise OptionsError(f"{self} is left by its owner")


class ElectionClient(_ClientView):
    """The client of an election, whose requests are not delayed by the client's `qps`.

    Renewals that queue after other requests would cost the leadership.

    Args:
        client: The client that sends the requests. It belongs to somebody else, who
            enters and leaves it.
    """

    async def _send(self, request: Request) -> Response:
        urgent = replace(request, urgent=True)
        return await self._client._send(urgent)  # noqa: SLF001 - of one kind


class ReconcileClient(_ClientView):
    """A client that is used by one reconcile: all verbs of `Client`, on its connections.

    What it writes is remembered, so that the next reconcile of the same request sees it.
    Not remembered are a write whose answer was lost (`TransportError`, a timeout, a
    cancellation: it may have been done, and the next reconcile may not see that yet, so
    that names made up by the server, as with `generateName`, can come twice); deletions
    of whole collections; evictions; and what is sent by `stream()`.

    Raises, besides the errors of `Client`:
        LeadershipLost: On each write, if somebody else may lead by now: nothing is sent.
            That is asked right before each sending, when there is a connection.

    Args:
        client: The client that sends the requests. It belongs to somebody else, who
            enters and leaves it.
        writes: Remembers.
        elector: Asked before each write; None where nobody is elected.
    """

    def __init__(
        self, client: Client, writes: Writes, elector: Elector | None = None
    ) -> None:
        super().__init__(client)
        self._writes = writes
        self._elector = elector

    async def _fetch(self, request: Request, *, discard: bool = False) -> bytes:
        answer = await super()._fetch(request, discard=discard)
        self._writes.note(request, answer)
        return answer

    async def _send(self, request: Request) -> Response:
        if self._elector is not None and request.method not in READING:
            # Now, as it may not even come to sending; and behind whatever takes long:
            # its turn, new credentials, a new connection.
            self._elector.check()
            request = replace(request, fence=self._elector.check)

        return await self._client._send(request)  # noqa: SLF001 - of one kind
