"""`DiscoveredListWatch`: lists and watches what the server has under a name."""

from __future__ import annotations

from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING

from aioinformer.client.list_watch import ListWatch
from aioinformer.errors import Invalid, NotFound

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from aioinformer.client.client import Client
    from aioinformer.client.list_watch import HTTPListPage
    from aioinformer.model.objects import KubeObject
    from aioinformer.model.resource import Resource
    from aioinformer.watch.connectivity import Connectivity
    from aioinformer.watch.interface import ListOptions, WatchOptions
    from aioinformer.watch.stream_watch import StreamWatch

__all__ = ["DiscoveredListWatch"]


class DiscoveredListWatch:
    """Lists and watches a resource of which a name is known, and not where it is.

    The first list asks `client.discovery`; a name that the server does not have is a
    `NotFound`, and is asked for again by the next list. So a definition may come later,
    go, and come back under another plural.

    Implements `ListerWatcher`, `Connected`, `ServedCheck` and `Selection`, as `ListWatch` does.

    Args:
        client: Sends the requests; must be entered by then.
        resource: What is known: group, version, and the kind; or, without a kind, any of
            its names in the place of the plural.
        namespace: Only objects of this one; None for all.
        label_selector: As kubectl accepts it; empty for all.
        field_selector: As kubectl accepts it; empty for all.
        metadata_only: Ask for nothing of the objects but their metadata.

    Raises:
        SelectorSyntaxError: If a selector cannot be parsed.
    """

    def __init__(
        self,
        client: Client,
        resource: Resource,
        *,
        namespace: str | None = None,
        label_selector: str = "",
        field_selector: str = "",
        metadata_only: bool = False,
    ) -> None:
        self._client = client
        self._namespace = namespace
        self._label_selector = label_selector
        self._field_selector = field_selector
        self._metadata_only = metadata_only
        self._asked = self._source_of(resource)
        self._found: ListWatch | None = None

    def __repr__(self) -> str:
        return f"<DiscoveredListWatch {self._found or self._asked!r}>"

    @property
    def resource(self) -> Resource:
        """What is listed and watched; before it is found, what is known of it."""
        return (self._found or self._asked).resource

    @property
    def connectivity(self) -> Connectivity:
        """Whether the server can be reached, as known to all who use the client."""
        return self._asked.connectivity

    def selects(self, obj: KubeObject) -> bool:
        """Whether an object of the resource is one that is listed and watched."""
        return self._asked.selects(obj)

    @asynccontextmanager
    async def list(self, options: ListOptions) -> AsyncIterator[HTTPListPage]:
        """Ask for the objects, or for one page of them.

        Raises:
            NotFound: The server has no resource of this name, or it is gone.
            Invalid: A namespace was given, and its objects have none.
            ApiError: If the server refused.
            TransportError: If the network failed.
            DecodeError: If the answer is a web page, or no discovery.

        Cancellation:
            Safe: the connection is closed.
        """
        source = await self._source()
        with self._forgets():
            async with source.list(options) as page:
                yield page

    @asynccontextmanager
    async def watch(self, options: WatchOptions) -> AsyncIterator[StreamWatch]:
        """Ask for the changes; see `ListWatch.watch()`.

        Raises:
            NotFound: As `list()`, and so for the other errors.

        Cancellation:
            Safe: the connection is closed.
        """
        source = await self._source()
        with self._forgets():
            async with source.watch(options) as watch:
                yield watch

    async def is_served(self) -> bool:
        """Ask the server, now, whether it has the resource.

        Raises:
            ApiError: If the server refused to say.
            TransportError: If the network failed.
            DecodeError: If the answer cannot be read.

        Cancellation:
            Safe.
        """
        try:
            source = await self._source()
        except NotFound:
            return False

        return await source.is_served()

    async def _source(self) -> ListWatch:
        """What lists and watches it, when it has been found."""
        if self._found is None:
            asked = self._asked.resource
            found = await self._client.discovery.resource(
                asked.kind or asked.plural, asked.api_version
            )
            if self._namespace and not found.namespaced:
                raise Invalid(
                    f"{found} is cluster-scoped and has no namespace "
                    f"{self._namespace!r}: give namespace=''"
                )

            self._found = self._source_of(found)

        return self._found

    def _source_of(self, resource: Resource) -> ListWatch:
        return ListWatch(
            self._client,
            resource,
            namespace=self._namespace,
            label_selector=self._label_selector,
            field_selector=self._field_selector,
            metadata_only=self._metadata_only,
        )

    @contextmanager
    def _forgets(self) -> Iterator[None]:
        """Where there is nothing any more, there may be something elsewhere."""
        try:
            yield
        except NotFound:
            self._found = None
            self._client.discovery.invalidate()
            raise
