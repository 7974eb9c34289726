"""`Reading`: the verbs of a client that change nothing."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from aioinformer.client import verbs
from aioinformer.client.discovery import Discovery
from aioinformer.client.endpoint import Endpoint
from aioinformer.client.list_watch import ListWatch
from aioinformer.client.pager import PAGE_SIZE, Pager
from aioinformer.client.verbs import Request
from aioinformer.errors import DecodeError
from aioinformer.model.objects import KubeObject
from aioinformer.watch.interface import ListOptions, WatchOptions

if TYPE_CHECKING:
    import builtins
    from collections.abc import AsyncGenerator
    from contextlib import AbstractAsyncContextManager

    from aioinformer.model.resource import Resource
    from aioinformer.watch.interface import Watch

__all__ = ["Reading"]


class Reading(Endpoint):
    """An endpoint that can be read; see `Client` for the errors of every verb."""

    @cached_property
    def discovery(self) -> Discovery:
        """What the server has, by all its names; in memory, and shared by all who ask.

        Nothing is asked before somebody wants to know. For files, or another age, make
        a `Discovery` of your own.
        """
        return Discovery(self)

    async def get(
        self, resource: Resource, name: str, *, namespace: str | None = None
    ) -> KubeObject:
        """Read one object.

        Raises:
            NotFound: If there is none; for other errors see the class.

        Cancellation:
            Safe.
        """
        name = verbs.named(resource, name)
        path = resource.path(namespace, name)
        return await self._object(Request("GET", path))

    async def list(
        self,
        resource: Resource,
        *,
        namespace: str | None = None,
        label_selector: str = "",
        field_selector: str = "",
        limit: int = 0,
        resource_version: str = "",
    ) -> builtins.list[KubeObject]:
        """Read all objects, in pages if asked to; the answer is always complete.

        If the server forgets the list between two pages, all is read again at once.

        Args:
            resource: What to list.
            namespace: Only objects of this one; None for all.
            label_selector: As kubectl accepts it.
            field_selector: As kubectl accepts it.
            limit: Objects in one page; 0 for all in one answer.
            resource_version: `""` for the newest state, `"0"` for what the server has
                at hand.

        Raises:
            SelectorSyntaxError: If a selector cannot be parsed; for other errors see
                the class.

        Cancellation:
            Safe.
        """
        source = self._collection(resource, namespace, label_selector, field_selector)
        options = ListOptions(resource_version=resource_version)
        return (await Pager(source, page_size=limit).list(options)).objects

    def list_pages(
        self,
        resource: Resource,
        *,
        namespace: str | None = None,
        label_selector: str = "",
        field_selector: str = "",
        limit: int = PAGE_SIZE,
        resource_version: str = "",
    ) -> AsyncGenerator[builtins.list[KubeObject], None]:
        """Read all objects in pages, and iterate over them as they arrive.

        Each step gives those that are complete, at most a page. Who leaves the iteration
        early closes it: `async with aclosing(client.list_pages(PODS)) as pages:`.

        Args:
            resource: What to list.
            namespace: Only objects of this one; None for all.
            label_selector: As kubectl accepts it.
            field_selector: As kubectl accepts it.
            limit: Objects in one page; 0 for all in one answer.
            resource_version: As for `list()`. A server answers `"0"` without pages.

        Raises:
            ResourceExpired: If the server forgot the list between two pages.
            SelectorSyntaxError: If a selector cannot be parsed, at once; for other
                errors, which come from the iteration, see the class.
        """
        source = self._collection(resource, namespace, label_selector, field_selector)
        options = ListOptions(resource_version=resource_version)
        return Pager(source, page_size=limit).batches(options)

    def watch(
        self,
        resource: Resource,
        *,
        namespace: str | None = None,
        label_selector: str = "",
        field_selector: str = "",
        resource_version: str = "",
        timeout_seconds: int | None = None,
        bookmarks: bool = False,
        send_initial_events: bool = False,
    ) -> AbstractAsyncContextManager[Watch]:
        """Watch changes: `async with client.watch(PODS) as stream:`, then iterate it.

        A bare watch: it ends when the server or the network ends it, and an ERROR event
        is given like any other. Informers and `RetryWatch` carry on by themselves.

        Args:
            resource: What to watch.
            namespace: Only objects of this one; None for all.
            label_selector: As kubectl accepts it.
            field_selector: As kubectl accepts it.
            resource_version: Changes after this one; `""` begins with what is there.
            timeout_seconds: When the server should end it; None leaves it to the server.
            bookmarks: Ask for BOOKMARK events as well.
            send_initial_events: Begin with what is there, ended by a BOOKMARK.

        Raises:
            SelectorSyntaxError: If a selector cannot be parsed; for other errors, which
                come on entering the context, see the class.
        """
        source = self._collection(resource, namespace, label_selector, field_selector)
        return source.watch(
            WatchOptions(
                resource_version=resource_version,
                timeout_seconds=timeout_seconds,
                bookmarks=bookmarks or send_initial_events,
                send_initial_events=send_initial_events,
            )
        )

    def _collection(
        self,
        resource: Resource,
        namespace: str | None,
        label_selector: str,
        field_selector: str,
    ) -> ListWatch:
        return ListWatch(
            self,
            resource,
            namespace=namespace,
            label_selector=label_selector,
            field_selector=field_selector,
        )

    async def _object(self, request: Request) -> KubeObject:
        body = await self._fetch(request)
        try:
            return KubeObject.of(body)
        except DecodeError as exc:
            # Without an excerpt: it may be a Secret.
            raise DecodeError(
                f"{self.config.server} answered {request.method} {request.path} with "
                f"something that is no object: {exc}"
            ) from exc
