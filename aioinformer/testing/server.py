"""The API server: a Kubernetes API over real HTTP on the loopback interface.

It has no controllers, no garbage collector, no scheduler and no kubelets: what is
written stays as it is written. What it does answer, it answers as a kube-apiserver.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import yaml
from aiohttp import web

from aioinformer._tasks import Supervisor
from aioinformer.errors import OptionsError
from aioinformer.testing.handlers import HandlerOptions, Handlers
from aioinformer.testing.kinds import custom_kind
from aioinformer.testing.registry import Registry
from aioinformer.testing.storage import Storage

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop, Task
    from collections import deque
    from collections.abc import Callable, Iterable, Mapping
    from types import TracebackType

    from aiohttp.abc import AbstractStreamWriter
    from aiohttp.http_parser import RawRequestMessage
    from aiohttp.streams import StreamReader
    from aiohttp.web_protocol import RequestHandler

    from aioinformer.client import Client
    from aioinformer.model.resource import Resource
    from aioinformer.testing.changes import Stored
    from aioinformer.testing.faults import Faults
    from aioinformer.testing.routes import RequestRecord

__all__ = ["APIServer"]

_HOST = "127.0.0.1"
# What a real server accepts at most as the body of one request.
_BODY_BYTES = 3 * 1024 * 1024
# How long answers may take to leave when the server stops; a client that does not read
# would otherwise hold it up for ever.
_STOP_SECONDS = 1.0


class APIServer:
    """A Kubernetes API server for tests, in this process.

    Enter it with `async with`, or call `start()` and `stop()`, which may happen in
    different tasks of one loop. After a stop it can be started again: it keeps its
    objects, versions and port, as a restarted server does.

    The methods that take a resource (`create()`, `update()`, ...) arrange what a test
    needs: plain calls without HTTP, effective at once and seen by all watches. They do
    what the whole cluster could do, so they store a `status` with the rest, and put
    what names no namespace into `default`.

    Args:
        resources: Custom resources to serve besides the built-in ones.
        history: Changes remembered for each resource. A watch or list from an older
            version gets 410.
        token: If not None, requests must bear it, or get 401.
        auto_namespaces: Create a missing namespace with the first object in it. A real
            server answers 404, and so does this one unless asked.
        port: Where to listen; 0 for any free port.
        bookmark_seconds: The time between two bookmarks of one watch.
        watch_seconds: The length of a watch that does not ask for one.
        fresh_seconds: How long a request waits for a version that lies in the future.

    Raises:
        OptionsError: If a time is not positive, or a custom resource names no kind.

    Lifetime:
        One task, and one for each open connection; none is left after the stop.

    Example:
        >>> from aioinformer.model.resources import PODS
        >>> server = APIServer()
        >>> pod = server.create(PODS, {"metadata": {"name": "web"}})
        >>> pod["metadata"]["namespace"]
        'default'
    """

    def __init__(
        self,
        *,
        resources: Iterable[Resource] = (),
        history: int = 1000,
        token: str | None = None,
        auto_namespaces: bool = False,
        port: int = 0,
        bookmark_seconds: float = 60.0,
        watch_seconds: float = 1800.0,
        fresh_seconds: float = 3.0,
    ) -> None:
        if min(bookmark_seconds, watch_seconds) <= 0 or fresh_seconds < 0:
            raise OptionsError("the times of an APIServer must be positive")

        self._storage = Storage(history=history)
        self._registry = Registry(self._storage, auto_namespaces=auto_namespaces)
        options = HandlerOptions(
            bookmark_seconds=bookmark_seconds,
            watch_seconds=watch_seconds,
            fresh_seconds=fresh_seconds,
        )
        self._handlers = Handlers(self._registry, options, token=token)
        self._port = port
        # By identity, because requests are mappings and so have no hash.
        self._busy: dict[int, web.BaseRequest] = {}
        self._idle: asyncio.Event | None = None
        self._supervisor = Supervisor(self._life, "aioinformer-apiserver")
        for resource in resources:
            self.register(resource)

    def __repr__(self) -> str:
        state = self.url if self._supervisor.running else "stopped"
        return f"<APIServer {state} version={self.resource_version}>"

    # ---------------------------------------------------------------- life

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.stop()

    async def start(self) -> None:
        """Listen, and return when requests are answered.

        Raises:
            OptionsError: If it runs already.
            OSError: If the port is taken.

        Cancellation:
            Stops the server again.
        """
        if self._supervisor.running:
            raise OptionsError(f"{self!r} runs already")

        await self._supervisor.start()

    async def stop(self) -> None:
        """End all watches cleanly, close all connections, and listen no longer.

        Does nothing if the server does not run.

        Cancellation:
            Deferred until it has stopped, which takes at most a few seconds.
        """
        await self._supervisor.stop()

    async def _life(self, ready: Callable[[], None]) -> None:
        self._handlers.open()
        server = web.Server(
            self._serve,
            request_factory=_request_of,
            handler_cancellation=True,
            access_log=None,
        )
        runner = web.ServerRunner(server, shutdown_timeout=_STOP_SECONDS)
        await runner.setup()
        try:
            site = web.TCPSite(runner, _HOST, self._port)
            await site.start()
            self._port = runner.addresses[0][1]
            ready()
            await asyncio.get_running_loop().create_future()
        finally:
            await self._end(runner)

    async def _serve(self, request: web.BaseRequest) -> web.StreamResponse:
        self._busy[id(request)] = request
        try:
            return await self._handlers.handle(request)
        finally:
            del self._busy[id(request)]
            if not self._busy and self._idle is not None:
                self._idle.set()

    async def _end(self, runner: web.ServerRunner) -> None:
        """Stop in an order that leaves nothing for aiohttp to wait for."""
        for site in list(runner.sites):
            await site.stop()

        self._handlers.stop()
        await self._wait_idle()
        for request in tuple(self._busy.values()):
            if request.transport is not None:
                request.transport.abort()

        await runner.cleanup()
        # Transports close, and connection tasks end, in the turns that follow.
        for _ in range(3):
            await asyncio.sleep(0)

    async def _wait_idle(self) -> None:
        if not self._busy:
            return

        self._idle = asyncio.Event()
        try:
            async with asyncio.timeout(_STOP_SECONDS):
                await self._idle.wait()
        except TimeoutError:
            return

    # ---------------------------------------------------------------- for clients

    @property
    def url(self) -> str:
        """Where it listens, such as `"http://127.0.0.1:40123"`.

        Raises:
            OptionsError: If it has never been started, so that there is no port yet.
        """
        if not self._port:
            raise OptionsError("an APIServer has no address before it is started")

        return f"http://{_HOST}:{self._port}"

    @property
    def token(self) -> str | None:
        """The bearer token that requests must carry; may be changed at any time."""
        return self._handlers.token

    @token.setter
    def token(self, token: str | None) -> None:
        self._handlers.token = token

    def client(self) -> Client:
        """Return a client of this server, not entered yet."""
        # Imported here, so that a user of plain HTTP does not pay for the client.
        from aioinformer.client import Client

        return Client.from_url(self.url, token=self.token)

    def kubeconfig(self, path: str | Path, *, namespace: str = "default") -> Path:
        """Write a kubeconfig file for this server, readable by its owner alone.

        It works for kubectl too, except with a token: clients made of client-go send
        none over plain HTTP.

        Args:
            path: The file; replaced if it exists.
            namespace: The namespace of its context.

        Returns:
            The path.
        """
        user = {} if self.token is None else {"token": self.token}
        context = {"cluster": "test", "user": "test", "namespace": namespace}
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "test", "cluster": {"server": self.url}}],
            "users": [{"name": "test", "user": user}],
            "contexts": [{"name": "test", "context": context}],
            "current-context": "test",
        }
        file = Path(path)
        file.touch(mode=0o600)
        file.write_text(yaml.safe_dump(document, sort_keys=False), encoding="utf-8")
        return file

    # ---------------------------------------------------------------- for tests

    @property
    def faults(self) -> Faults:
        """The faults to come; `faults.add(...)` scripts one."""
        return self._handlers.faults

    @property
    def requests(self) -> deque[RequestRecord]:
        """What has been asked, oldest first, except health checks; clear it at will."""
        return self._handlers.records

    @property
    def resource_version(self) -> str:
        """The newest version: that of the last write to whatever resource."""
        return str(self._storage.version)

    def compact(self) -> None:
        """Forget all history: every older version and continue token gets 410 now."""
        self._storage.compact()

    def register(self, resource: Resource) -> None:
        """Serve a custom resource from now on, with a status subresource.

        Raises:
            OptionsError: If it names no kind or no group.
        """
        self._storage.serve(custom_kind(resource))

    def unregister(self, resource: Resource) -> None:
        """Delete all objects of a resource, end its watches, and answer 404 from now on.

        Raises:
            OptionsError: If it is not served.
        """
        self._storage.retire(self._storage.collection(resource))

    def create(
        self, resource: Resource, body: Mapping[str, Any], *, namespace: str = ""
    ) -> dict[str, Any]:
        """Create an object; returns it as it is stored.

        Args:
            resource: Of which resource.
            body: `apiVersion` and `kind` may be missing.
            namespace: Where; otherwise the one in the body, or `default`.

        Raises:
            ApiError: As a client would get it, such as `AlreadyExists`.
            OptionsError: If the resource is not served.
        """
        collection = self._storage.collection(resource)
        full = _typed(collection.kind.resource, body)
        place = _place(collection.kind.resource, namespace, body)
        return self._registry.create(collection, place, full, keep_status=True).body()

    def get(
        self, resource: Resource, name: str, *, namespace: str = ""
    ) -> dict[str, Any]:
        """Return an object, as a fresh dictionary.

        Raises:
            NotFound: If it does not exist.
            OptionsError: If the resource is not served.
        """
        return self._find(resource, name, namespace).body()

    def update(self, resource: Resource, body: Mapping[str, Any]) -> dict[str, Any]:
        """Replace an object with its status; without a version, whatever it was.

        Raises:
            ApiError: As a client would get it, such as `Conflict`.
            OptionsError: If the resource is not served.
        """
        collection = self._storage.collection(resource)
        metadata = dict(body.get("metadata") or {})
        name, place = metadata.get("name") or "", _place(resource, "", body)
        stored = self._find(resource, name, place)
        metadata.setdefault("resourceVersion", str(stored.version))
        full = {**_typed(collection.kind.resource, body), "metadata": metadata}
        return self._registry.update(collection, place, name, full, part="all").body()

    def patch(
        self,
        resource: Resource,
        name: str,
        patch: Mapping[str, Any],
        *,
        namespace: str = "",
    ) -> dict[str, Any]:
        """Apply a JSON merge patch to an object and its status.

        Raises:
            ApiError: As a client would get it, such as `NotFound`.
            OptionsError: If the resource is not served.
        """
        collection = self._storage.collection(resource)
        place = _place(resource, namespace)
        stored = self._registry.patch(collection, place, name, dict(patch), part="all")
        return stored.body()

    def delete(self, resource: Resource, name: str, *, namespace: str = "") -> None:
        """Delete an object, or mark it for deletion while it has finalizers.

        Raises:
            NotFound: If it does not exist.
            OptionsError: If the resource is not served.
        """
        collection = self._storage.collection(resource)
        self._registry.delete(collection, _place(resource, namespace), name)

    def objects(
        self, resource: Resource, *, namespace: str = ""
    ) -> list[dict[str, Any]]:
        """Return all objects of a resource, in the order of lists, as fresh dictionaries.

        Args:
            resource: Of which resource.
            namespace: Only those in there; empty for all.

        Raises:
            OptionsError: If the resource is not served.
        """
        found = self._storage.collection(resource).snapshot()
        return [it.body() for it in found if namespace in {"", it.namespace}]

    def _find(self, resource: Resource, name: str, namespace: str) -> Stored:
        collection = self._storage.collection(resource)
        return self._registry.require(collection, _place(resource, namespace), name)


def _place(
    resource: Resource, namespace: str, body: Mapping[str, Any] | None = None
) -> str:
    """Return the namespace that is meant; empty for cluster-scoped kinds."""
    if not resource.namespaced:
        return ""

    metadata = (body or {}).get("metadata") or {}
    return namespace or metadata.get("namespace") or "default"


def _typed(resource: Resource, body: Mapping[str, Any]) -> dict[str, Any]:
    return {"apiVersion": resource.api_version, "kind": resource.kind, **body}


def _request_of(
    message: RawRequestMessage,
    payload: StreamReader,
    protocol: RequestHandler,
    writer: AbstractStreamWriter,
    task: Task[None],
) -> web.BaseRequest:
    loop: AbstractEventLoop = asyncio.get_running_loop()
    return web.BaseRequest(
        message, payload, protocol, writer, task, loop, client_max_size=_BODY_BYTES
    )
