"""`APIServer`: the test server with clients of this package."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioinformer.client import Client, ListWatch
from aioinformer.testing.direct import DirectEndpoint
from aioinformer_apiserver import LocalAPIServer
from aioinformer_apiserver.arguments import token_of

if TYPE_CHECKING:
    from aioinformer.model.resource import Resource

__all__ = ["APIServer"]


class APIServer(LocalAPIServer):
    """Kubernetes API server for tests, in this process, with clients of this package.

    Adds `client()` and `list_watch()` to `LocalAPIServer`, which describes the arguments,
    the other methods and the errors.
    """

    def client(self, *, token: str | None = None) -> Client:
        """Return a client of this server, not entered yet.

        Args:
            token: Bearer token; None for the administrator's.

        Raises:
            OptionsError: If the token is invalid, or the server was never started.
        """
        bearer = self.token if token is None else token_of("token", token)
        return Client.from_url(self.url, token=bearer)

    def list_watch(
        self,
        resource: Resource,
        *,
        namespace: str | None = None,
        label_selector: str = "",
        field_selector: str = "",
    ) -> ListWatch:
        """Return a source for an informer that uses no network.

        It sends the current administrator's token. Faults strike its requests, and
        `requests` records them. The server need not have been started. Arguments and
        errors are those of `ListWatch`.
        """
        return ListWatch(
            DirectEndpoint(self, token=self.token),
            resource,
            namespace=namespace,
            label_selector=label_selector,
            field_selector=field_selector,
        )
