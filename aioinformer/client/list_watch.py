"""`ListWatch`: lists and watches one collection of a server."""

from __future__ import annotations

from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any, Protocol, Self

import msgspec

from aioinformer.budget import LoopBudget
from aioinformer.client.verbs import selection
from aioinformer.errors import DecodeError, Invalid, NotFound
from aioinformer.model.resource import check_resource
from aioinformer.model.selectors import FieldSelector, LabelSelector
from aioinformer.watch.connectivity import Connectivity
from aioinformer.watch.decoding import (
    LIST_OF_METADATA,
    WATCH_OF_METADATA,
    ListSplitter,
    MetadataDecoder,
    ObjectDecoder,
    StreamDecoder,
)
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

    from aioinformer.client.discovery import Discovery
    from aioinformer.model.objects import KubeObject
    from aioinformer.model.resource import Resource
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


class Requester(Protocol):
    """Sends requests: a client, or what speaks to a server without a network."""

    def stream(
        self,
        method: str,
        path: str,
        params: Mapping[str, str] | None = None,
        *,
        gzip: bool | None = None,
        accept: str = "",
    ) -> AbstractAsyncContextManager[ByteStream]:
        """Send a request and read its answer; see `Client.stream()`."""


class DiscoveringRequester(Requester, Protocol):
    """Sender of requests that knows the resources of its server, such as a `Client`."""

    @property
    def discovery(self) -> Discovery:
        """Resources of the server by their names."""


class ListWatch:
    """Lists and watches one resource, perhaps in one namespace, perhaps by selectors.

    Implements `ListerWatcher`, `Connected` and `ServedCheck` of `aioinformer.watch`; see there for
    the errors of its contexts. It holds no connection itself, and may be made before
    the client is entered.

    Args:
        client: Sends the requests; must be entered by then.
        resource: What to list and watch.
        namespace: Only objects of this one; None for all.
        label_selector: As kubectl accepts it; empty for all.
        field_selector: As kubectl accepts it; empty for all.
        gzip: Ask for compressed answers; None for what the client was told.
        metadata_only: Ask for nothing but the metadata of objects, which are of the kind
            `PartialObjectMetadata` of `meta.k8s.io/v1` then, as the server sends them.

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
    ) -> None:
        check_resource(resource)
        self._client = client
        self._resource = resource
        self._namespace = namespace or ""
        self._path = resource.path(namespace or None)
        self._selection = selection(label_selector, field_selector)
        self._gzip = gzip
        self._metadata_only = metadata_only
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
        `refresh_api_key_hook` is called for each), proxy, TLS and connections; bodies
        are not decoded by it. Close it when the informers have ended: a watch notices
        after 10 s that it was closed, and is then tried again for ever.

        Connections:
            Each watch takes one, for as long as it lives. The client has 100 unless
            told: of more informers than that, some wait for 30 s, fail and try again.
            Set `configuration.connection_pool_maxsize = None` before the client is
            made. A watch may hold up to 4 MiB that nobody has read yet.

        Args:
            list_func: A bound method that lists: of the generated APIs, of
                `CustomObjectsApi`, or of those of `kubernetes.aio`.
            resource: What it lists; None to take it from its path. Needed only to know
                the kind of custom objects, and that they are cluster-scoped.
            **kwargs: Its arguments: namespace, selectors, group and plural of custom
                objects. Versions, pages and time limits are not for you to say.

        Raises:
            SelectorSyntaxError: If a selector cannot be parsed.
            OptionsError: If it is no such function, or the arguments do not fit.
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
        source._selection |= more
        source._connectivity = Connectivity.of(function.client)
        return source

    @property
    def resource(self) -> Resource:
        """What is listed and watched."""
        return self._resource

    @property
    def connectivity(self) -> Connectivity:
        """Whether the server can be reached, as known to all who use the client."""
        return self._connectivity

    def selects(self, obj: KubeObject) -> bool:
        """Whether an object of the resource is one that is listed and watched.

        Of fields it is said as far as it can be told from here: a server may know some
        by another name, or by a default.
        """
        if self._namespace not in {"", obj.namespace}:
            return False

        labels = LabelSelector.parse(self._selection["labelSelector"])
        fields = FieldSelector.parse(self._selection["fieldSelector"])
        return labels.matches(obj.labels) and fields.matches(
            lambda path: _text_of(obj.at(path, ""))
        )

    @asynccontextmanager
    async def list(self, options: ListOptions) -> AsyncIterator[HTTPListPage]:
        """Ask for the objects, or for one page of them.

        Raises:
            ApiError: If the server refused.
            TransportError: If the network failed.
            DecodeError: If the answer is a web page.

        Cancellation:
            Safe: the connection is closed.
        """
        params = {**self._selection, **list_parameters(options)}
        async with self._get(params, LIST_OF_METADATA) as response:
            yield HTTPListPage(response, ListSplitter(self._decoder))

    @asynccontextmanager
    async def watch(self, options: WatchOptions) -> AsyncIterator[StreamWatch]:
        """Ask for the changes.

        With `options.timeout_seconds` the watch ends by itself
        `options.grace_seconds` after the server should have ended it.

        Raises:
            ApiError: If the server refused.
            TransportError: If the network failed.
            DecodeError: If the answer is a web page.

        Cancellation:
            Safe: the connection is closed.
        """
        params = {**self._selection, **watch_parameters(options)}
        async with self._get(params, WATCH_OF_METADATA) as response:
            seconds = options.timeout_seconds
            limit = None if seconds is None else seconds + options.grace_seconds
            decoder = StreamDecoder(self._decoder)
            async with StreamWatch(response, decoder, limit) as stream:
                yield stream

    async def is_served(self) -> bool:
        """Ask the server, now, whether it names the resource among those it serves.

        Asks the discovery document of its group and version. The server says of a
        custom resource there only when it has accepted its definition; a list may
        answer 404 for other reasons.

        Raises:
            ApiError: If the server refused to say.
            TransportError: If the network failed.
            DecodeError: If the answer cannot be read.

        Cancellation:
            Safe: the connection is closed.
        """
        path = self._resource.path().rpartition("/")[0]
        try:
            async with self._client.stream("GET", path) as response:
                pieces = []
                while piece := await response.read_some():
                    pieces.append(piece)

        except NotFound:
            return False

        return _names_resource(b"".join(pieces), self._resource.plural)

    def _get(
        self, params: Mapping[str, str], accept: str
    ) -> AbstractAsyncContextManager[ByteStream]:
        if not self._metadata_only:
            return self._client.stream("GET", self._path, params, gzip=self._gzip)

        return self._client.stream(
            "GET", self._path, params, gzip=self._gzip, accept=accept
        )

    def __repr__(self) -> str:
        selectors = "".join(f" {text!r}" for text in self._selection.values() if text)
        return f"<ListWatch {self._path}{selectors}>"


class _Named(msgspec.Struct, gc=False):
    name: str = ""


class _ResourceList(msgspec.Struct, gc=False):
    resources: list[_Named] | None


def _names_resource(document: bytes, plural: str) -> bool:
    """Whether a discovery document names a resource.

    Raises:
        DecodeError: If it is no such document.
    """
    try:
        found = msgspec.json.decode(document, type=_ResourceList)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as exc:
        raise DecodeError(f"discovery that cannot be read: {exc}") from exc

    return any(it.name == plural for it in found.resources or ())


def _text_of(value: object) -> str:
    """A field as selectors spell it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def list_parameters(options: ListOptions) -> dict[str, str]:
    """The query parameters of a list; those that are empty are left out of a request."""
    return {
        "limit": str(options.limit or ""),
        "continue": options.continue_token,
        "resourceVersion": options.resource_version,
        "resourceVersionMatch": options.resource_version_match,
    }


def watch_parameters(options: WatchOptions) -> dict[str, str]:
    """The query parameters of a watch; those that are empty are left out of a request."""
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
    """The answer to one list request, read while it arrives.

    Iterate it once, to its end; each step yields the objects that are complete.
    """

    def __init__(self, response: ByteStream, splitter: ListSplitter) -> None:
        self._response = response
        self._splitter = splitter

    @property
    def resource_version(self) -> str:
        """The version of the list; complete when the iteration has ended."""
        return self._splitter.resource_version

    @property
    def continue_token(self) -> str:
        """Where the next page begins; empty on the last one.

        Known as soon as the first objects are, where the server writes it in front.
        """
        return self._splitter.continue_token

    @property
    def skipped(self) -> int:
        """Objects left out so far, because they cannot be read."""
        return self._splitter.skipped

    @property
    def unreadable(self) -> list[str]:
        """The keys of those of them that are of the kind asked for."""
        return self._splitter.unreadable

    async def __aiter__(self) -> AsyncGenerator[list[KubeObject], None]:
        budget = LoopBudget.current()
        while piece := await self._response.read_some():
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
        client: DiscoveringRequester,
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
