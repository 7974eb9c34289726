"""Wrappers of `Client` for reconciles, elections and Events."""

from __future__ import annotations

from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol, TypeVar

from aioinformer.client import verbs
from aioinformer.client.pager import PAGE_SIZE
from aioinformer.controller.pending_writes import READ_METHODS
from aioinformer.errors import ApiError, LeadershipLost, OptionsError
from aioinformer.model.misuse import methods_with_advice

if TYPE_CHECKING:
    import builtins
    from collections.abc import AsyncGenerator, Callable, Generator, Mapping
    from contextlib import AbstractAsyncContextManager

    from aioinformer.client.client import Client
    from aioinformer.client.config import ClientConfig
    from aioinformer.client.discovery import Discovery
    from aioinformer.client.response import Response
    from aioinformer.client.verbs import Body, PatchType, Propagation, Request
    from aioinformer.controller.pending_writes import PendingWrites
    from aioinformer.model.objects import KubeObject
    from aioinformer.model.resource import Resource
    from aioinformer.watch.interface import Watch

__all__ = ["ElectionClient", "Elector", "EventsClient", "ReconcileClient"]


C = TypeVar("C")


def required_client(client: C | None) -> C:
    """Return the client of a controller.

    Raises:
        OptionsError: If it has none.
    """
    if client is None:
        raise OptionsError("this controller has no client: pass Controller(client=...)")

    return client


class Elector(Protocol):
    """Check for leadership, such as a `LeaderElector`."""

    def check(self) -> None:
        """Raise `LeadershipLost` unless this process leads."""


@methods_with_advice
class ReconcileClient:
    """Wrapper of a `Client` for one reconcile, which records and fences writes.

    Verbs, arguments and errors are those of `Client`. The owner of the client enters
    and leaves it.

    The next reconcile of the same request sees the writes of this one. Exceptions are
    deletions of collections, evictions, requests sent by `stream()`, and writes whose
    response was lost (`TransportError`, a timeout, a cancellation). A write without a
    response may have succeeded, so an object with `generateName` may be created twice.

    Raises:
        LeadershipLost: By each write, if another process may lead by now. Nothing is
            sent. The elector is checked right before each request, once a connection is
            open.

    Args:
        client: Client that sends the requests.
        writes: Record of the writes.
        elector: Elector to check before each write, or None without an election.
    """

    def __init__(
        self, client: Client, writes: PendingWrites, elector: Elector | None = None
    ) -> None:
        self._client = client
        self._writes = writes
        self._elector = elector

    def __repr__(self) -> str:
        return f"<ReconcileClient of {self._client!r}>"

    @property
    def config(self) -> ClientConfig:
        """Configuration of the client.

        Raises:
            OptionsError: If the client was never entered.
        """
        return self._client.config

    @property
    def namespace(self) -> str:
        """Namespace of the kubeconfig context or pod.

        Raises:
            OptionsError: If the client was never entered.
        """
        return self._client.namespace

    @property
    def discovery(self) -> Discovery:
        """Discovery of the client, shared by all reconciles."""
        return self._client.discovery

    # ------------------------------------------------------------ reads

    async def get(
        self, resource: Resource, name: str, *, namespace: str | None = None
    ) -> KubeObject:
        """Read one object: see `Client.get`."""
        return await self._client.get(resource, name, namespace=namespace)

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
        """Read all objects: see `Client.list`."""
        return await self._client.list(
            resource,
            namespace=namespace,
            label_selector=label_selector,
            field_selector=field_selector,
            limit=limit,
            resource_version=resource_version,
        )

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
        """Iterate over all objects in pages: see `Client.list_pages`."""
        return self._client.list_pages(
            resource,
            namespace=namespace,
            label_selector=label_selector,
            field_selector=field_selector,
            limit=limit,
            resource_version=resource_version,
        )

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
        """Watch changes: see `Client.watch`."""
        return self._client.watch(
            resource,
            namespace=namespace,
            label_selector=label_selector,
            field_selector=field_selector,
            resource_version=resource_version,
            timeout_seconds=timeout_seconds,
            bookmarks=bookmarks,
            send_initial_events=send_initial_events,
        )

    # ------------------------------------------------------------ writes

    async def create(
        self,
        resource: Resource,
        body: Body,
        *,
        namespace: str | None = None,
        dry_run: bool = False,
        field_manager: str | None = None,
    ) -> KubeObject:
        """Create an object: see `Client.create`."""
        request = verbs.create(
            resource,
            body,
            namespace=namespace,
            dry_run=dry_run,
            field_manager=field_manager,
        )
        return await self._write(request)

    async def update(
        self,
        resource: Resource,
        body: Body,
        *,
        namespace: str | None = None,
        dry_run: bool = False,
        field_manager: str | None = None,
    ) -> KubeObject:
        """Replace an object, without its status: see `Client.update`."""
        request = verbs.update(
            resource,
            body,
            namespace=namespace,
            dry_run=dry_run,
            field_manager=field_manager,
        )
        return await self._write(request)

    async def update_status(
        self,
        resource: Resource,
        body: Body,
        *,
        namespace: str | None = None,
        dry_run: bool = False,
        field_manager: str | None = None,
    ) -> KubeObject:
        """Replace the status of an object: see `Client.update_status`."""
        request = verbs.update(
            resource,
            body,
            namespace=namespace,
            subresource="status",
            dry_run=dry_run,
            field_manager=field_manager,
        )
        return await self._write(request)

    async def patch(
        self,
        resource: Resource,
        name: str,
        body: Body,
        *,
        namespace: str | None = None,
        type: PatchType = "merge",  # noqa: A002 - the API's own word
        subresource: str | None = None,
        dry_run: bool = False,
        field_manager: str | None = None,
        force: bool = False,
    ) -> KubeObject:
        """Change parts of an object: see `Client.patch`."""
        request = verbs.patch(
            resource,
            name,
            body,
            namespace=namespace,
            type=type,
            subresource=subresource,
            dry_run=dry_run,
            field_manager=field_manager,
            force=force,
        )
        return await self._write(request)

    async def apply(
        self,
        obj: Body,
        *,
        field_manager: str,
        resource: Resource | None = None,
        namespace: str | None = None,
        force: bool = False,
        dry_run: bool = False,
        subresource: str | None = None,
    ) -> KubeObject:
        """Create or change an object by server-side apply: see `Client.apply`."""
        request = verbs.apply(
            resource or await self.discovery.resource_of(obj),
            obj,
            namespace=namespace,
            subresource=subresource,
            dry_run=dry_run,
            field_manager=field_manager,
            force=force,
        )
        return await self._write(request)

    async def patch_status(
        self,
        resource: Resource,
        name: str,
        body: Body,
        *,
        namespace: str | None = None,
        type: PatchType = "merge",  # noqa: A002 - the API's own word
        dry_run: bool = False,
        field_manager: str | None = None,
        force: bool = False,
    ) -> KubeObject:
        """Change parts of an object's status: see `Client.patch_status`."""
        return await self.patch(
            resource,
            name,
            body,
            namespace=namespace,
            type=type,
            subresource="status",
            dry_run=dry_run,
            field_manager=field_manager,
            force=force,
        )

    async def delete(
        self,
        resource: Resource,
        name: str,
        *,
        namespace: str | None = None,
        uid: str | None = None,
        propagation: Propagation | None = None,
        grace_seconds: int | None = None,
        dry_run: bool = False,
    ) -> KubeObject | None:
        """Delete an object: see `Client.delete`."""
        request = verbs.delete(
            resource,
            verbs.named(resource, name),
            namespace=namespace,
            uid=uid,
            propagation=propagation,
            grace_seconds=grace_seconds,
            dry_run=dry_run,
        )
        answer = await self._write(request)
        return None if answer.kind == "Status" else answer

    async def delete_collection(
        self,
        resource: Resource,
        *,
        namespace: str | None = None,
        label_selector: str = "",
        field_selector: str = "",
        propagation: Propagation | None = None,
        grace_seconds: int | None = None,
        dry_run: bool = False,
    ) -> None:
        """Delete all selected objects: see `Client.delete_collection`."""
        request = verbs.delete(
            resource,
            namespace=namespace,
            propagation=propagation,
            grace_seconds=grace_seconds,
            dry_run=dry_run,
            params=verbs.selection(label_selector, field_selector),
        )
        with self._noting():
            await self._client._fetch(self._fenced(request), discard=True)  # noqa: SLF001

    def stream(
        self,
        method: str,
        path: str,
        params: Mapping[str, str] | None = None,
        *,
        body: bytes | None = None,
        content_type: str = "application/json",
        gzip: bool | None = None,
        accept: str = "",
        etag: str = "",
    ) -> AbstractAsyncContextManager[Response]:
        """Send any request: see `Client.stream`. Writes are not recorded."""
        request = verbs.Request(
            method, path, params or {}, body, content_type, gzip, accept, etag
        )
        if method in READ_METHODS:
            return self._client._stream(request)  # noqa: SLF001

        return self._written_stream(self._fenced(request))

    @asynccontextmanager
    async def _written_stream(self, request: Request) -> AsyncGenerator[Response, None]:
        async with AsyncExitStack() as stack:
            with self._noting():
                stream = self._client._stream(request)  # noqa: SLF001
                response = await stack.enter_async_context(stream)

            yield response

    async def _write(self, request: Request) -> KubeObject:
        with self._noting():
            answer = await self._client._object(self._fenced(request))  # noqa: SLF001

        self._writes.add(request, answer)
        return answer

    @contextmanager
    def _noting(self) -> Generator[None, None, None]:
        """Note a write without an answer, which the server may execute later."""
        try:
            yield
        except BaseException as exc:
            # After a 5xx, it may still be in progress.
            answered = isinstance(exc, ApiError) and exc.status < 500
            if not answered and not isinstance(exc, LeadershipLost | OptionsError):
                self._writes.unanswered = True

            raise

    def _fenced(self, request: Request) -> Request:
        if self._elector is None:
            return request

        # Checked now, as the request may wait for its rate limit, new credentials or a
        # connection, and checked again after these.
        self._elector.check()
        return replace(request, fence=self._elector.check)


class ElectionClient:
    """Wrapper of a `Client` for elections and shards, not delayed by its `qps`.

    A renewal that waits for other requests would cost the leadership.

    Args:
        client: Client that sends the requests. Its owner enters and leaves it.
    """

    def __init__(self, client: Client) -> None:
        self._client = client

    def __repr__(self) -> str:
        return f"<ElectionClient of {self._client!r}>"

    @property
    def namespace(self) -> str:
        """Namespace of the kubeconfig context or pod.

        Raises:
            OptionsError: If the client was never entered.
        """
        return self._client.namespace

    def stream(
        self,
        method: str,
        path: str,
        params: Mapping[str, str] | None = None,
        *,
        gzip: bool | None = None,
        accept: str = "",
    ) -> AbstractAsyncContextManager[Response]:
        """Send any request, such as a list or a watch: see `Client.stream`."""
        request = verbs.Request(
            method, path, params or {}, gzip=gzip, accept=accept, urgent=True
        )
        return self._client._stream(request)  # noqa: SLF001

    async def get(
        self, resource: Resource, name: str, *, namespace: str | None = None
    ) -> KubeObject:
        """Read one object: see `Client.get`."""
        path = resource.path(namespace, verbs.named(resource, name))
        return await self._urgent(verbs.Request("GET", path))

    async def create(
        self,
        resource: Resource,
        body: Body,
        *,
        namespace: str | None = None,
        fence: Callable[[], None] | None = None,
    ) -> KubeObject:
        """Create an object: see `Client.create`.

        Args:
            resource: Resource of the object.
            body: The object.
            namespace: Its namespace.
            fence: Function called right before the request is sent, to refuse it. With
                one, the request does not arrive long after it was given up.
        """
        request = verbs.create(resource, body, namespace=namespace)
        return await self._urgent(replace(request, fence=fence))

    async def update(
        self,
        resource: Resource,
        body: Body,
        *,
        namespace: str | None = None,
        fence: Callable[[], None] | None = None,
    ) -> KubeObject:
        """Replace an object: see `Client.update`, and `create` for `fence`."""
        request = verbs.update(resource, body, namespace=namespace)
        return await self._urgent(replace(request, fence=fence))

    async def delete(
        self, resource: Resource, name: str, *, namespace: str | None, uid: str
    ) -> None:
        """Delete an object with this uid: see `Client.delete`."""
        await self._urgent(verbs.delete(resource, name, namespace=namespace, uid=uid))

    async def _urgent(self, request: Request) -> KubeObject:
        return await self._client._object(replace(request, urgent=True))  # noqa: SLF001


class EventsClient:
    """Wrapper of a `Client` for Events, which repeats no request.

    A recorder has a backoff of its own. While the server refuses the Events of one
    namespace, it writes others.

    Args:
        client: Client that sends the requests. Its owner enters and leaves it.
    """

    def __init__(self, client: Client) -> None:
        self._client = client

    def __repr__(self) -> str:
        return f"<EventsClient of {self._client!r}>"

    async def create(
        self, resource: Resource, body: Body, *, namespace: str | None = None
    ) -> KubeObject:
        """Create an object: see `Client.create`."""
        return await self._once(verbs.create(resource, body, namespace=namespace))

    async def patch(
        self, resource: Resource, name: str, body: Body, *, namespace: str | None = None
    ) -> KubeObject:
        """Change parts of an object: see `Client.patch`."""
        return await self._once(verbs.patch(resource, name, body, namespace=namespace))

    async def _once(self, request: Request) -> KubeObject:
        return await self._client._object(replace(request, repeated=False))  # noqa: SLF001
