"""`ListWatch` and `DiscoveredListWatch`: lists and watches of one collection."""

from __future__ import annotations

import errno
from contextlib import asynccontextmanager, contextmanager
from copy import copy
from typing import TYPE_CHECKING, Any, Final, Protocol, Self, TypeVar, runtime_checkable

import msgspec

from aioinformer._tasks import in_thread
from aioinformer._user_code import guarded_logger
from aioinformer.budget import LoopBudget
from aioinformer.client.verbs import selection
from aioinformer.errors import DecodeError, Forbidden, Invalid, NotFound
from aioinformer.model.resources import NAMESPACES, check_resource
from aioinformer.watch.connectivity import Connectivity
from aioinformer.watch.decoding import (
    LIST_OF_METADATA,
    WATCH_OF_METADATA,
    ListSplitter,
    MetadataDecoder,
    ObjectDecoder,
    StreamDecoder,
    without_managed_fields,
)
from aioinformer.watch.interface import Selectors
from aioinformer.watch.stream_watch import StreamWatch

if TYPE_CHECKING:
    from collections.abc import (
        AsyncGenerator,
        AsyncIterator,
        Callable,
        Iterator,
        Mapping,
    )
    from contextlib import AbstractAsyncContextManager

    from aioinformer.client.config import ClientConfig
    from aioinformer.client.discovery import Discovery
    from aioinformer.model.objects import KubeObject
    from aioinformer.model.resource import Resource
    from aioinformer.model.shards import ShardSelector
    from aioinformer.watch.interface import ListOptions, WatchOptions
    from aioinformer.watch.stream_watch import ByteStream

__all__ = [
    "DiscoveredListWatch",
    "HTTPListPage",
    "ListWatch",
    "Requester",
    "list_parameters",
    "watch_parameters",
]


logger: Final = guarded_logger(__name__)

_Document = TypeVar("_Document", bound=msgspec.Struct)

# No object has this name.
_NOTHING: Final = "metadata.name=."


class Requester(Protocol):
    """Sender of requests: a client, or a connection to a server in the same process."""

    def stream(
        self,
        method: str,
        path: str,
        params: Mapping[str, str] | None = None,
        *,
        gzip: bool | None = None,
        accept: str = "",
    ) -> AbstractAsyncContextManager[ByteStream]:
        """Send a request and read its response; see `Client.stream()`."""


@runtime_checkable
class _Configured(Protocol):
    """Optional part of a `Requester`: the configuration of its client."""

    @property
    def config(self) -> ClientConfig:
        """Configuration, once the client was entered."""


class DiscoveringRequester(Requester, Protocol):
    """Sender of requests that knows the resources of its server, such as a `Client`."""

    @property
    def discovery(self) -> Discovery:
        """Resources of the server by their names."""


class ListWatch:
    """Lists and watches of one resource, optionally of one namespace and by selectors.

    Implements `ListerWatcher`, `Connected`, `Identified`, `ManagedFieldsOptOut`,
    `Reselectable` and `ServedCheck` of `aioinformer.watch`, which describe the errors of
    its contexts. It holds no
    connection itself, and may be created before the client is entered.

    Args:
        client: Client that sends the requests. Enter it before use.
        resource: Resource to list and watch.
        namespace: Namespace of the objects; None for all.
        label_selector: Selector in kubectl's syntax; empty for all.
        field_selector: Selector in kubectl's syntax; empty for all.
        gzip: True to request compressed responses; None for the client's default.
        metadata_only: True to request only the metadata of objects. The server then
            sends them as `PartialObjectMetadata` of `meta.k8s.io/v1`.
        shards: Selector by a hash of each object's uid or namespace; None for all. A
            server may ignore it and send all objects. Informers drop the others.

    Raises:
        SelectorSyntaxError: If a selector cannot be parsed.
        OptionsError: If a namespace is given for a cluster-scoped resource.
    """

    def __init__(
        self,
        client: Requester,
        resource: Resource,
        *,
        namespace: str | None = None,
        label_selector: str = "",
        field_selector: str = "",
        gzip: bool | None = None,
        metadata_only: bool = False,
        shards: ShardSelector | None = None,
    ) -> None:
        check_resource(resource)
        self._client = client
        self._resource = resource
        self._namespace = namespace or ""
        self._path = resource.path(namespace or None)
        self._selectors = Selectors(
            label_selector=label_selector, field_selector=field_selector, shards=shards
        )
        self._parameters = _parameters_of(self._selectors)
        self._gzip = gzip
        self._metadata_only = metadata_only
        self._drops_managed_fields = False
        self._connectivity = Connectivity.of(client)
        self._decoder = (
            MetadataDecoder(resource) if metadata_only else ObjectDecoder(resource)
        )

    @classmethod
    def from_kubernetes_asyncio(
        cls,
        list_func: Callable[..., Any],
        /,
        *,
        resource: Resource | None = None,
        **kwargs: Any,
    ) -> Self:
        """List and watch through a client of kubernetes_asyncio.

        ::

            pods = ListWatch.from_kubernetes_asyncio(
                core_v1.list_namespaced_pod, namespace="shop", label_selector="app=web"
            )

        Requests go through that client, with its credentials (its
        `refresh_api_key_hook` is called for each), proxy, TLS and connections. It does
        not decode bodies. Close it after the informers have ended: a watch notices the
        end of the client within 10 s, and then retries forever.

        Connections:
            Each watch occupies one. The client has 100 by default: further informers
            wait for 30 s, fail and retry. Set `configuration.connection_pool_maxsize =
            None` before creating the client. A watch may buffer up to 4 MiB of unread
            events.

        Args:
            list_func: Bound list method of the generated APIs, of `CustomObjectsApi`,
                or of those of `kubernetes.aio`.
            resource: Resource that it lists; None to take it from its path. Required
                only for the kind of custom objects, or if these are cluster-scoped.
            **kwargs: Arguments of the method: namespace, selectors, group and plural of
                custom objects, but no versions, pages and time limits.

        Raises:
            SelectorSyntaxError: If a selector cannot be parsed.
            OptionsError: If it is not a list method, or the arguments do not fit.
        """
        from aioinformer.client.kubernetes_asyncio import (
            KubernetesAsyncioRequester,
            ListFunction,
        )

        function = ListFunction.of(list_func, kwargs, resource)
        more = dict(function.query)
        source = cls(
            KubernetesAsyncioRequester(function),
            function.resource,
            namespace=function.namespace,
            label_selector=more.pop("labelSelector", ""),
            field_selector=more.pop("fieldSelector", ""),
        )
        source._parameters |= more
        source._connectivity = Connectivity.of(function.client)
        return source

    @property
    def resource(self) -> Resource:
        """Resource that is listed and watched."""
        return self._resource

    @property
    def connectivity(self) -> Connectivity:
        """Reachability of the server, shared by all users of the client."""
        return self._connectivity

    @property
    def selectors(self) -> Selectors:
        """Selectors of its objects."""
        return self._selectors

    def with_selectors(self, selectors: Selectors) -> Self:
        """Return a list-watch with other selectors, and everything else the same.

        Raises:
            SelectorSyntaxError: If a selector cannot be parsed.
        """
        other = copy(self)
        other._selectors = selectors  # noqa: SLF001 - a copy
        other._parameters = {**self._parameters, **_parameters_of(selectors)}  # noqa: SLF001 - a copy
        return other

    def without_managed_fields(self) -> Self:
        """Return a list-watch without managed fields, and everything else the same.

        Its requests have `drop=metadata.managedFields` in `Accept`, which Kubernetes 1.38
        supports behind the feature gate `ManagedFieldsOptOut`. Other servers ignore it,
        so their objects have managed fields.
        """
        other = copy(self)
        other._drops_managed_fields = True  # noqa: SLF001 - a copy
        return other

    def selects(self, obj: KubeObject) -> bool:
        """Return whether namespace and selectors include an object of the resource.

        Field selectors are evaluated as far as possible on the client: a server may
        know fields under other names, or with defaults.
        """
        return self._namespace in {"", obj.namespace} and self._selectors.selects(obj)

    def list(self, options: ListOptions) -> AbstractAsyncContextManager[HTTPListPage]:
        """List the objects, or one page of them.

        Raises:
            ApiError: If the server refused the request.
            TransportError: If the network failed.
            DecodeError: If the response is a web page.

        Cancellation:
            Safe: the connection is closed.
        """
        return self._listed(options)

    @asynccontextmanager
    async def _listed(self, options: ListOptions) -> AsyncIterator[HTTPListPage]:
        params = {**self._parameters, **list_parameters(options)}
        async with self._get(params, LIST_OF_METADATA) as response:
            yield HTTPListPage(response, ListSplitter(self._decoder))

    def watch(self, options: WatchOptions) -> AbstractAsyncContextManager[StreamWatch]:
        """Watch the changes.

        With `options.timeout_seconds` the watch ends by itself
        `options.grace_seconds` after the server should have ended it.

        Raises:
            ApiError: If the server refused the request.
            TransportError: If the network failed.
            DecodeError: If the response is a web page.

        Cancellation:
            Safe: the connection is closed.
        """
        return self._watched(options)

    @asynccontextmanager
    async def _watched(self, options: WatchOptions) -> AsyncIterator[StreamWatch]:
        params = {**self._parameters, **watch_parameters(options)}
        async with self._get(params, WATCH_OF_METADATA) as response:
            seconds = options.timeout_seconds
            limit = None if seconds is None else seconds + options.grace_seconds
            decoder = StreamDecoder(self._decoder)
            async with StreamWatch(response, decoder, limit) as stream:
                yield stream

    async def is_served(self) -> bool:
        """Return whether the server's discovery lists the resource.

        The discovery document of its group and version lists a custom resource only
        once its definition was accepted. A list may answer 404 for other reasons.

        Raises:
            ApiError: If the server refused the request.
            TransportError: If the network failed.
            DecodeError: If the response cannot be read.

        Cancellation:
            Safe: the connection is closed.
        """
        path = self._resource.path().rpartition("/")[0]
        try:
            document = await self._read(path)
        except NotFound:
            return False

        listed = _decoded(document, _ResourceList, "a discovery document").resources
        return any(it.name == self._resource.plural for it in listed or ())

    async def endpoint_print(self) -> str:
        """Return a print of the server's certificate authority or address.

        Sends no request. Empty if the client has no configuration, or the file of its
        authority cannot be read.

        Raises:
            OptionsError: If the client was never entered.
            OSError: If the process cannot open more files just now.

        Cancellation:
            Safe.
        """
        if not isinstance(self._client, _Configured):
            return ""

        try:
            return await in_thread(self._client.config.endpoint_print)
        except OSError as exc:
            if exc.errno in {errno.EMFILE, errno.ENFILE}:
                raise  # with an empty print, it would count as another server

            logger.debug("certificate authority cannot be read: %r", exc)
            return ""

    async def cluster_uid(self) -> str:
        """Return the uid of the namespace `kube-system`, which identifies the cluster.

        Empty if the user may not get it, or the server has no such namespace.

        Raises:
            ApiError: If the server refused the request.
            TransportError: If the network failed.
            DecodeError: If the response cannot be read.

        Cancellation:
            Safe: the connection is closed.
        """
        path = NAMESPACES.path(name="kube-system")
        try:
            document = await self._read(path, accept=WATCH_OF_METADATA)
        except (Forbidden, NotFound):
            return ""

        return _decoded(document, _Identity, "the namespace kube-system").metadata.uid

    async def _read(self, path: str, *, accept: str = "") -> bytes:
        """Request a small document, and read it to its end."""
        async with self._client.stream("GET", path, accept=accept) as response:
            pieces = []
            while piece := await response.read_some():
                pieces.append(piece)

        return b"".join(pieces)

    def _get(
        self, params: Mapping[str, str], accept: str
    ) -> AbstractAsyncContextManager[ByteStream]:
        accept = accept if self._metadata_only else ""
        if self._drops_managed_fields:
            accept = without_managed_fields(accept)

        return self._client.stream(
            "GET", self._path, params, gzip=self._gzip, accept=accept
        )

    def __repr__(self) -> str:
        selectors = "".join(f" {text!r}" for text in self._parameters.values() if text)
        return f"<ListWatch {self._path}{selectors}>"


class _Named(msgspec.Struct, gc=False):
    name: str = ""


class _ResourceList(msgspec.Struct, gc=False):
    resources: list[_Named] | None


class _Uid(msgspec.Struct, gc=False):
    uid: str = ""


class _Identity(msgspec.Struct, gc=False):
    metadata: _Uid


def _decoded(document: bytes, kind: type[_Document], what: str) -> _Document:
    """Decode a document.

    Raises:
        DecodeError: If it is not such a document.
    """
    try:
        return msgspec.json.decode(document, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as exc:
        raise DecodeError(f"cannot read {what}: {exc}") from exc


def _parameters_of(selectors: Selectors) -> dict[str, str]:
    """Return the query parameters of selectors.

    Raises:
        SelectorSyntaxError: If one of them cannot be parsed.
    """
    parameters = selection(selectors.label_selector, selectors.field_selector)
    shards = selectors.shards
    if shards is None:
        return parameters | {"shardSelector": ""}

    if not shards.ranges:
        # A server that ignores shards would send all objects, only to be dropped.
        fields = filter(None, (selectors.field_selector, _NOTHING))
        parameters["fieldSelector"] = ",".join(fields)

    return parameters | {"shardSelector": str(shards)}


def list_parameters(options: ListOptions) -> dict[str, str]:
    """Return the query parameters of a list. Requests leave out empty ones."""
    return {
        "limit": str(options.limit or ""),
        "continue": options.continue_token,
        "resourceVersion": options.resource_version,
        "resourceVersionMatch": options.resource_version_match,
    }


def watch_parameters(options: WatchOptions) -> dict[str, str]:
    """Return the query parameters of a watch. Requests leave out empty ones."""
    initial, seconds = options.send_initial_events, options.timeout_seconds
    return {
        "watch": "true",
        "allowWatchBookmarks": "true" if options.bookmarks else "",
        "resourceVersion": options.resource_version,
        "sendInitialEvents": "true" if initial else "",
        "resourceVersionMatch": "NotOlderThan" if initial else "",
        "timeoutSeconds": "" if seconds is None else str(seconds),
    }


class HTTPListPage:
    """Response to a list request, read while it arrives.

    Iterate once, to the end. Each step yields the objects that are complete.
    """

    def __init__(self, response: ByteStream, splitter: ListSplitter) -> None:
        self._response = response
        self._splitter = splitter

    @property
    def resource_version(self) -> str:
        """Resource version of the list, known when the iteration has ended."""
        return self._splitter.resource_version

    @property
    def continue_token(self) -> str:
        """Token of the next page; empty on the last one.

        Known with the first objects, if the server writes it in front of them.
        """
        return self._splitter.continue_token

    @property
    def skipped(self) -> int:
        """Number of unreadable objects left out so far."""
        return self._splitter.skipped

    @property
    def unreadable(self) -> list[str]:
        """Keys of the unreadable objects, as far as they are of the requested kind."""
        return self._splitter.unreadable

    @property
    def sharded(self) -> bool:
        """True if the list shows that the server has filtered it by shard.

        Known when the iteration has ended.
        """
        return bool(self._splitter.shard_selector)

    async def __aiter__(self) -> AsyncGenerator[list[KubeObject], None]:
        budget = LoopBudget.current()
        while piece := await self._response.read_view():
            await budget.start()
            try:
                objects = self._splitter.feed(piece)
            finally:
                budget.end()

            if objects:
                yield objects

        objects = self._splitter.finish()
        if objects:
            yield objects


class DiscoveredListWatch:
    """Lists and watches of a resource that is found by a name.

    The first list looks up the name by `client.discovery`. An unknown name raises
    `NotFound`, and the next list looks it up again. So a CRD may be created later,
    deleted, and created again with another plural.

    Implements `ListerWatcher`, `Connected`, `Identified`, `ManagedFieldsOptOut`,
    `Reselectable` and `ServedCheck`, like `ListWatch`.

    Args:
        client: Client that sends the requests. Enter it before use.
        resource: Group, version and kind of the resource. Without a kind, the plural
            may be any of its names.
        namespace: Namespace of the objects; None for all.
        label_selector: Selector in kubectl's syntax; empty for all.
        field_selector: Selector in kubectl's syntax; empty for all.
        metadata_only: True to request only the metadata of objects.
        shards: Selector by a hash of each object's uid or namespace; None for all.

    Raises:
        SelectorSyntaxError: If a selector cannot be parsed.
    """

    def __init__(
        self,
        client: DiscoveringRequester,
        resource: Resource,
        *,
        namespace: str | None = None,
        label_selector: str = "",
        field_selector: str = "",
        metadata_only: bool = False,
        shards: ShardSelector | None = None,
    ) -> None:
        self._client = client
        self._namespace = namespace
        self._metadata_only = metadata_only
        self._drops_managed_fields = False
        self._selectors = Selectors(
            label_selector=label_selector, field_selector=field_selector, shards=shards
        )
        self._requested = self._source_of(resource)
        self._found: ListWatch | None = None

    def __repr__(self) -> str:
        return f"<DiscoveredListWatch {self._found or self._requested!r}>"

    @property
    def resource(self) -> Resource:
        """Resource that is listed and watched; the requested one until it is found."""
        return (self._found or self._requested).resource

    @property
    def connectivity(self) -> Connectivity:
        """Reachability of the server, shared by all users of the client."""
        return self._requested.connectivity

    @property
    def selectors(self) -> Selectors:
        """Selectors of its objects."""
        return self._selectors

    def with_selectors(self, selectors: Selectors) -> Self:
        """Return a list-watch with other selectors, and everything else the same.

        Raises:
            SelectorSyntaxError: If a selector cannot be parsed.
        """
        other = copy(self)
        other._selectors = selectors  # noqa: SLF001 - a copy
        other._requested = self._requested.with_selectors(selectors)  # noqa: SLF001 - a copy
        if self._found is not None:
            other._found = self._found.with_selectors(selectors)  # noqa: SLF001 - a copy

        return other

    def without_managed_fields(self) -> Self:
        """Return a list-watch without managed fields; see `ListWatch`."""
        other = copy(self)
        other._drops_managed_fields = True  # noqa: SLF001 - a copy
        other._requested = self._requested.without_managed_fields()  # noqa: SLF001 - a copy
        if self._found is not None:
            other._found = self._found.without_managed_fields()  # noqa: SLF001 - a copy

        return other

    def selects(self, obj: KubeObject) -> bool:
        """Return whether namespace and selectors include an object of the resource."""
        return self._requested.selects(obj)

    def list(self, options: ListOptions) -> AbstractAsyncContextManager[HTTPListPage]:
        """List the objects, or one page of them.

        Raises:
            NotFound: If the server has no resource of this name, or not any more.
            Invalid: If a namespace is given for a cluster-scoped resource.
            ApiError: If the server refused the request.
            TransportError: If the network failed.
            DecodeError: If the response is a web page, or discovery cannot be read.
        Cancellation:
            Safe: the connection is closed.
        """
        return self._listed(options)

    @asynccontextmanager
    async def _listed(self, options: ListOptions) -> AsyncIterator[HTTPListPage]:
        source = await self._source()
        with self._forget_resource_on_404():
            async with source.list(options) as page:
                yield page

    def watch(self, options: WatchOptions) -> AbstractAsyncContextManager[StreamWatch]:
        """Watch the changes; see `ListWatch.watch()`.

        Raises:
            NotFound: Same errors as `list()`.

        Cancellation:
            Safe: the connection is closed.
        """
        return self._watched(options)

    @asynccontextmanager
    async def _watched(self, options: WatchOptions) -> AsyncIterator[StreamWatch]:
        source = await self._source()
        with self._forget_resource_on_404():
            async with source.watch(options) as watch:
                yield watch

    async def is_served(self) -> bool:
        """Return whether the server has the resource.

        Raises:
            ApiError: If the server refused the request.
            TransportError: If the network failed.
            DecodeError: If the response cannot be read.

        Cancellation:
            Safe.
        """
        try:
            source = await self._source()
        except NotFound:
            return False

        return await source.is_served()

    async def _source(self) -> ListWatch:
        """Return the `ListWatch` of the resource, after finding it."""
        if self._found is None:
            requested = self._requested.resource
            found = await self._client.discovery.resource(
                requested.kind or requested.plural, requested.api_version
            )
            if self._namespace and not found.namespaced:
                raise Invalid(
                    f"{found} is cluster-scoped and has no namespace "
                    f"{self._namespace!r}: pass namespace=''"
                )

            self._found = self._source_of(found)

        return self._found

    async def endpoint_print(self) -> str:
        """Return a print of the server; see `ListWatch.endpoint_print()`.

        Raises:
            OptionsError: If the client was never entered.
            OSError: If the process cannot open more files just now.

        Cancellation:
            Safe.
        """
        return await self._requested.endpoint_print()

    async def cluster_uid(self) -> str:
        """Return the uid of the cluster; see `ListWatch.cluster_uid()`.

        Raises:
            ApiError: If the server refused the request.
            TransportError: If the network failed.
            DecodeError: If the response cannot be read.

        Cancellation:
            Safe: the connection is closed.
        """
        return await self._requested.cluster_uid()

    def _source_of(self, resource: Resource) -> ListWatch:
        source = ListWatch(
            self._client,
            resource,
            namespace=self._namespace,
            label_selector=self._selectors.label_selector,
            field_selector=self._selectors.field_selector,
            metadata_only=self._metadata_only,
            shards=self._selectors.shards,
        )
        return source.without_managed_fields() if self._drops_managed_fields else source

    @contextmanager
    def _forget_resource_on_404(self) -> Iterator[None]:
        """After a 404, find the resource again: it may have moved."""
        try:
            yield
        except NotFound:
            self._found = None
            self._client.discovery.invalidate()
            raise
