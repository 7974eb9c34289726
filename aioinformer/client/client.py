"""`Client`: the API server's verbs as coroutines."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

from aioinformer.client import config_sources, verbs
from aioinformer.client.discovery import Discovery
from aioinformer.client.endpoint import Endpoint, RepeatingRequester
from aioinformer.client.list_watch import ListWatch
from aioinformer.client.pager import PAGE_SIZE, Pager
from aioinformer.client.verbs import Request
from aioinformer.errors import DecodeError
from aioinformer.metrics import NULL_SINK
from aioinformer.model.misuse import ToBeEntered, methods_with_advice
from aioinformer.model.objects import KubeObject
from aioinformer.watch.interface import ListOptions, WatchOptions

if TYPE_CHECKING:
    import builtins
    from collections.abc import AsyncGenerator, Mapping
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path

    from aioinformer.client.config import ClientConfig, ConfigSource
    from aioinformer.client.response import Response
    from aioinformer.client.verbs import Body, PatchType, Propagation
    from aioinformer.metrics import MetricsSink
    from aioinformer.model.resource import Resource
    from aioinformer.watch.interface import Watch

__all__ = ["Client"]


@methods_with_advice
class Client:
    """Client of one API server.

    Enter it before use: `async with client:`, or `await client.start()` and `await
    client.close()`, which may be called by different tasks of one loop. Files are read
    and aiohttp is imported only then. A closed client can be entered again.

    Only `qps` limits requests. They are retried once after a 401 if the credentials
    could be renewed, a GET once if a kept-alive connection turned out to be dead, and all
    but those of `stream()` by the `Retry-After` of a 429 or 5xx: see `ClientConfig`.

    Guarantees:
        After `close()`, none of its connections, tasks or timers is left.
        Tokens and keys appear in no `repr`, log line or error.

    Errors of every verb:
        ApiError: If the server refused the request; its subclasses say why.
        TransportError: If the network failed, or the client was closed. The server may
            have executed a write.
        DecodeError: If the response cannot be read.
        OptionsError: If the client was never entered, or the arguments are invalid.
        WrongLoop: If it was entered in another event loop.

    Bodies are dicts, `KubeObject`, `msgspec.Struct`, Pydantic models (written by alias
    and without None) or kubernetes_asyncio models, also nested in dicts. `create`,
    `update` and apply patches fill in a missing `apiVersion` and `kind` from the
    `Resource`, apply patches also the name and the namespace. `dry_run=True` makes the
    server do everything except store the object. `field_manager` is the name under
    which the server records the fields set.

    Args:
        source: Configuration, or a function that reads it in a thread on each entry.
        qps: Requests per second; None for no limit. Further requests wait in their
            order. A watch counts once, when it is opened. Requests of a `LeaseLock`
            neither wait nor count.
        burst: Requests sent at once after a pause; None for two seconds' worth.
        metrics: Receiver of client-go's request metrics; see `RequestMetrics`.

    Raises:
        OptionsError: If the source is no configuration, or a limit is invalid.
    """

    def __init__(
        self,
        source: ClientConfig | ConfigSource,
        *,
        qps: float | None = None,
        burst: int | None = None,
        metrics: MetricsSink = NULL_SINK,
    ) -> None:
        self._endpoint = Endpoint(source, qps=qps, burst=burst, metrics=metrics)

    # ------------------------------------------------------------ configuration

    @classmethod
    def from_env(
        cls,
        *,
        context: str | None = None,
        gzip: bool = False,
        qps: float | None = None,
        burst: int | None = None,
        metrics: MetricsSink = NULL_SINK,
    ) -> Self:
        """Use `KUBECONFIG`, `~/.kube/config`, or the service account of this pod.

        The proxy is that of the kubeconfig, else that of `HTTPS_PROXY`.

        Args:
            context: Context of the kubeconfig files; None for the current one. With a
                context, entering fails if there is no kubeconfig, also in a pod.
            gzip: True to request compressed responses, for slow links only.
            qps: See the class.
            burst: See the class.
            metrics: See the class.
        """
        source = config_sources.source_of_environment(context, gzip=gzip)
        return cls(source, qps=qps, burst=burst, metrics=metrics)

    @classmethod
    def from_kubeconfig(
        cls,
        path: str | Path | None = None,
        *,
        context: str | None = None,
        gzip: bool = False,
        qps: float | None = None,
        burst: int | None = None,
        metrics: MetricsSink = NULL_SINK,
    ) -> Self:
        """Use kubeconfig files.

        Args:
            path: One file; None for those of `KUBECONFIG`, or `~/.kube/config`.
            context: One of its contexts; None for the current one.
            gzip: True to request compressed responses, for slow links only.
            qps: See the class.
            burst: See the class.
            metrics: See the class.
        """
        source = config_sources.source_of_kubeconfig(path, context, gzip=gzip)
        return cls(source, qps=qps, burst=burst, metrics=metrics)

    @classmethod
    def in_cluster(
        cls,
        *,
        gzip: bool = False,
        qps: float | None = None,
        burst: int | None = None,
        metrics: MetricsSink = NULL_SINK,
    ) -> Self:
        """Use the service account of the pod that this process runs in.

        Args:
            gzip: True to request compressed responses, for slow links only.
            qps: See the class.
            burst: See the class.
            metrics: See the class.
        """
        source = config_sources.source_of_pod(gzip=gzip)
        return cls(source, qps=qps, burst=burst, metrics=metrics)

    @classmethod
    def from_url(
        cls,
        url: str,
        *,
        token: str | None = None,
        token_file: str | Path | None = None,
        ca_file: str | Path | None = None,
        verify: bool = True,
        namespace: str = "default",
        gzip: bool = False,
        qps: float | None = None,
        burst: int | None = None,
        metrics: MetricsSink = NULL_SINK,
    ) -> Self:
        """Use a server by its URL, such as that of `kubectl proxy`.

        Args:
            url: `http://` or `https://`, host, optionally port and path.
            token: Bearer token.
            token_file: File with a bearer token, reread once a minute.
            ca_file: PEM certificates to trust; None for those of the system.
            verify: False accepts every certificate. For tests only.
            namespace: Value of `client.namespace`.
            gzip: True to request compressed responses, for slow links only.
            qps: See the class.
            burst: See the class.
            metrics: See the class.

        Raises:
            OptionsError: If the URL or the token is malformed.
        """
        config = config_sources.config_of_url(
            url,
            token=token,
            token_file=token_file,
            ca_file=ca_file,
            verify=verify,
            namespace=namespace,
            gzip=gzip,
        )
        return cls(config, qps=qps, burst=burst, metrics=metrics)

    @classmethod
    def from_kubernetes_asyncio(
        cls,
        client: Any,
        *,
        gzip: bool = False,
        qps: float | None = None,
        burst: int | None = None,
        metrics: MetricsSink = NULL_SINK,
    ) -> Self:
        """Use the server and credentials of a client of kubernetes_asyncio.

        That client may be closed. Its `refresh_api_key_hook` is called before each
        request. `ListWatch.from_kubernetes_asyncio` sends requests through it instead.

        Args:
            client: An `ApiClient`, whose default headers are sent too, or a
                `Configuration`. Those of `kubernetes.aio` work as well.
            gzip: True to request compressed responses, for slow links only.
            qps: See the class.
            burst: See the class.
            metrics: See the class.
        """
        source = config_sources.source_of_kubernetes_asyncio(client, gzip=gzip)
        return cls(source, qps=qps, burst=burst, metrics=metrics)

    # ------------------------------------------------------------ lifetime

    @property
    def entered(self) -> bool:
        """True while requests can be sent."""
        return self._endpoint.entered

    @property
    def config(self) -> ClientConfig:
        """Configuration of the client.

        Raises:
            OptionsError: If it was not read yet, because the client was never entered.
        """
        return self._endpoint.config

    @property
    def namespace(self) -> str:
        """Namespace of the kubeconfig context or pod. The client itself never uses it.

        Raises:
            OptionsError: If the client was never entered.
        """
        return self.config.namespace

    @cached_property
    def discovery(self) -> Discovery:
        """Resources of the server by all their names, kept in memory.

        The first call sends requests. Create a `Discovery` for other settings.
        """
        return Discovery(self)

    async def start(self) -> None:
        """Read the configuration and prepare requests. No connection is opened yet.

        Raises:
            OptionsError: If it is entered already, or the configuration is invalid.
            TransportError: If it was closed meanwhile. If this machine is temporarily
                out of threads, files or memory, requests retry instead.

        Cancellation:
            Safe: the client stays closed.
        """
        await self._endpoint.start()

    async def close(self) -> None:
        """Close all connections, also those in use. Idempotent.

        Requests, watches and a `start()` in progress end with `TransportError`. If
        another task is closing the client, this call waits for the same end.

        Raises:
            WrongLoop: If it was entered in another event loop.

        Cancellation:
            Deferred until all is closed, 5 s at most.
        """
        await self._endpoint.close()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __repr__(self) -> str:
        return repr(self._endpoint)

    # ------------------------------------------------------------ reading

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
        """Read all objects, in pages if `limit` is set. The result is always complete.

        If the list expires between two pages, it is read again without pages.

        Args:
            resource: Resource to list.
            namespace: Namespace of the objects; None for all.
            label_selector: Selector in kubectl's syntax.
            field_selector: Selector in kubectl's syntax.
            limit: Objects per page; 0 for all in one response.
            resource_version: `""` for the newest state, `"0"` for the server's cache.

        Raises:
            SelectorSyntaxError: If a selector cannot be parsed; for other errors see
                the class.

        Cancellation:
            Safe.
        """
        source = self._list_watch(resource, namespace, label_selector, field_selector)
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

        Each step yields the complete objects, at most a page. To leave early, close it:
        `async with aclosing(client.list_pages(PODS)) as pages:`. Arguments are those of
        `list()`. Servers answer `resource_version="0"` without pages.

        Raises:
            ResourceExpired: If the list expired between two pages.
            SelectorSyntaxError: If a selector cannot be parsed, at once; for other
                errors, which the iteration raises, see the class.
        """
        source = self._list_watch(resource, namespace, label_selector, field_selector)
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
        """Watch changes: `async with client.watch(PODS) as stream:`, then iterate.

        A single watch: the server or the network may end it, and it yields ERROR
        events. Informers and `RetryWatch` resume by themselves. Arguments that are not
        described here are those of `list()`.

        Args:
            resource_version: Version after which changes are sent; `""` starts with the
                existing objects.
            timeout_seconds: Time after which the server ends the watch; None for its
                default.
            bookmarks: True to request BOOKMARK events as well.
            send_initial_events: True to begin with existing objects, then a BOOKMARK.

        Raises:
            SelectorSyntaxError: If a selector cannot be parsed; for other errors, which
                entering the context raises, see the class.
        """
        source = self._list_watch(resource, namespace, label_selector, field_selector)
        options = WatchOptions(
            resource_version=resource_version,
            timeout_seconds=timeout_seconds,
            bookmarks=bookmarks or send_initial_events,
            send_initial_events=send_initial_events,
        )
        return ToBeEntered(source.watch(options), "client.watch(...)")

    # ------------------------------------------------------------ writing

    async def create(
        self,
        resource: Resource,
        body: Body,
        *,
        namespace: str | None = None,
        dry_run: bool = False,
        field_manager: str | None = None,
    ) -> KubeObject:
        """Create an object.

        Args:
            resource: Resource of the object.
            body: The object.
            namespace: Namespace; None for that of the body.
            dry_run: See the class.
            field_manager: See the class.

        Returns:
            The object as stored by the server.

        Raises:
            AlreadyExists: If the name is taken; for other errors see the class.

        Cancellation:
            The connection is closed; the object may have been created.
        """
        request = verbs.create(
            resource,
            body,
            namespace=namespace,
            dry_run=dry_run,
            field_manager=field_manager,
        )
        return await self._object(request)

    async def update(
        self,
        resource: Resource,
        body: Body,
        *,
        namespace: str | None = None,
        dry_run: bool = False,
        field_manager: str | None = None,
    ) -> KubeObject:
        """Replace the object that the body names (not its status).

        Args:
            resource: Resource of the object.
            body: The whole object. With a `resourceVersion`, the update fails if the
                object has changed since.
            namespace: Namespace; None for that of the body.
            dry_run: See the class.
            field_manager: See the class.

        Returns:
            The object as stored by the server.

        Raises:
            Conflict: If the object has changed; for other errors see the class.

        Cancellation:
            The connection is closed; the object may have been replaced.
        """
        request = verbs.update(
            resource,
            body,
            namespace=namespace,
            dry_run=dry_run,
            field_manager=field_manager,
        )
        return await self._object(request)

    async def update_status(
        self,
        resource: Resource,
        body: Body,
        *,
        namespace: str | None = None,
        dry_run: bool = False,
        field_manager: str | None = None,
    ) -> KubeObject:
        """Replace only the status of the object that the body names.

        Arguments, result and errors are those of `update()`.

        Raises:
            Conflict: If the object has changed; for other errors see the class.

        Cancellation:
            The connection is closed; the status may have been replaced.
        """
        request = verbs.update(
            resource,
            body,
            namespace=namespace,
            subresource="status",
            dry_run=dry_run,
            field_manager=field_manager,
        )
        return await self._object(request)

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
        """Change parts of an object.

        Args:
            resource: Resource of the object.
            name: Name of the object.
            body: Operations for `"json"`, else the parts to change.
            namespace: Namespace; required for namespaced resources.
            type: `"merge"` (None deletes), `"json"`, `"strategic"` (built-in kinds
                only), or `"apply"` (creates the object if needed; requires
                `field_manager`).
            subresource: Subresource, such as `"status"` or `"scale"`.
            dry_run: See the class.
            field_manager: See the class.
            force: True to take over fields of other managers, for `"apply"`.

        Returns:
            The object as stored by the server.

        Raises:
            NotFound: If there is none; for other errors see the class.

        Cancellation:
            The connection is closed; the object may have been changed.
        """
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
        return await self._object(request)

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
        """Create or change an object by server-side apply.

        The server sets the fields of the body, and removes those that this field
        manager applied before and that the body lacks.

        Args:
            obj: The object, with its name and all fields that the manager owns.
            field_manager: Name of the owner of the fields.
            resource: Resource of the object; None to find it by `apiVersion` and kind.
                Kinds that are not built in need `client.discovery` then.
            namespace: Namespace; None for that of the object.
            force: True to take over fields of other managers.
            dry_run: See the class.
            subresource: Subresource, such as `"status"`.

        Returns:
            The object as stored by the server.

        Raises:
            Conflict: If another manager owns a field, without `force`.
            NotFound: If the kind or the namespace does not exist; for other errors see
                the class.

        Cancellation:
            The connection is closed; the object may have been changed.
        """
        request = verbs.apply(
            resource or await self.discovery.resource_of(obj),
            obj,
            namespace=namespace,
            subresource=subresource,
            dry_run=dry_run,
            field_manager=field_manager,
            force=force,
        )
        return await self._object(request)

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
        """Change parts of an object's status: `patch(subresource="status")`.

        Raises:
            NotFound: If there is none; for other errors see the class.

        Cancellation:
            The connection is closed; the status may have been changed.
        """
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
        """Delete an object. Finalizers or a grace period may delay its removal.

        Args:
            resource: Resource of the object.
            name: Name of the object.
            namespace: Namespace; required for namespaced resources.
            uid: Uid that the object must have, as a precondition; None for any.
            propagation: Treatment of the objects that it owns; None for the kind's
                default.
            grace_seconds: Grace period; None for that of the object.
            dry_run: See the class.

        Returns:
            The object, if it still exists or the server returns its last state; else
            None.

        Raises:
            NotFound: If there is none.
            Conflict: If it has another uid; for other errors see the class.

        Cancellation:
            The connection is closed; the object may have been deleted.
        """
        request = verbs.delete(
            resource,
            verbs.named(resource, name),
            namespace=namespace,
            uid=uid,
            propagation=propagation,
            grace_seconds=grace_seconds,
            dry_run=dry_run,
        )
        answer = await self._object(request)
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
        """Delete all selected objects; without selectors and namespace, all objects.

        Args:
            resource: Resource of the objects.
            namespace: Namespace of the objects; None for all.
            label_selector: Selector in kubectl's syntax.
            field_selector: Selector in kubectl's syntax.
            propagation: Treatment of the objects that they own.
            grace_seconds: Grace period; None for that of each object.
            dry_run: See the class.

        Raises:
            SelectorSyntaxError: If a selector cannot be parsed; for other errors see
                the class.

        Cancellation:
            The connection is closed; any of the objects may have been deleted.
        """
        request = verbs.delete(
            resource,
            namespace=namespace,
            propagation=propagation,
            grace_seconds=grace_seconds,
            dry_run=dry_run,
            params=verbs.selection(label_selector, field_selector),
        )
        await self._fetch(request, discard=True)

    # ------------------------------------------------------------ any request

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
        """Send any request and read its response as it arrives.

        ::

            path = PODS.path("shop", "web-0", "log")
            async with client.stream("GET", path, {"follow": "true"}) as response:
                while data := await response.read_some(patient=True):
                    print(data.decode())

        Leaving the context closes the connection if the body was not read to its end.

        Args:
            method: HTTP method, such as `"GET"`.
            path: Path, escaped, starting with `/`, without a query.
            params: Query parameters; empty ones are left out.
            body: Body to send.
            content_type: Content type of the body.
            gzip: True to request a compressed response; None for the client's default.
            accept: Media types to accept; empty for JSON.
            etag: `ETag` of a known version. If it is still current, the response has
                the status 304 and no body.

        Raises:
            ApiError: If the server refused the request; for other errors see the class.

        Cancellation:
            Safe: the connection is closed. The server may have executed a write.
        """
        request = Request(
            method, path, params or {}, body, content_type, gzip, accept, etag
        )
        return self._stream(request)

    def _stream(self, request: Request) -> AbstractAsyncContextManager[Response]:
        return self._endpoint.stream(request)

    async def _fetch(self, request: Request, *, discard: bool = False) -> bytes:
        """Send a request and read its whole response, which `discard` drops."""
        async with self._endpoint.stream(request, repeat=True) as response:
            return await response.read(discard=discard)

    async def _object(self, request: Request) -> KubeObject:
        body = await self._fetch(request)
        try:
            return KubeObject.of(body)
        except DecodeError as exc:
            # Without an excerpt: it may be a Secret.
            raise DecodeError(
                f"{self.config.server} returned an invalid object for {request.method} "
                f"{request.path}: {exc}"
            ) from exc

    def _list_watch(
        self, resource: Resource, namespace: str | None, labels: str, fields: str
    ) -> ListWatch:
        return ListWatch(
            RepeatingRequester(self._endpoint),
            resource,
            namespace=namespace,
            label_selector=labels,
            field_selector=fields,
        )
