"""`LocalAPIServer`: a Kubernetes API server on the loopback interface.

It has no controllers and no scheduler. Of the rest of a cluster it imitates only what
ends a deleted pod and empties a deleted namespace and, on request, the garbage
collector. Its responses are those of a kube-apiserver.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import uuid
from inspect import iscoroutine
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Self, TypeVar

import yaml
from multidict import CIMultiDict

from aioinformer.errors import (
    AlreadyExists,
    ApiError,
    NotFound,
    OptionsError,
    WrongLoop,
)
from aioinformer.model.resources import (
    CLUSTER_ROLE_BINDINGS,
    CLUSTER_ROLES,
    CUSTOM_RESOURCE_DEFINITIONS,
)
from aioinformer_apiserver.arguments import (
    body_of,
    check_token,
    feature_gates_of,
    flag_of,
    instance_of,
    name_of,
    namespace_of,
    path_of,
    resource_of,
    resources_of,
    seconds_of,
    services_of,
    token_of,
    users_of,
    whole_of,
)
from aioinformer_apiserver.auth.access import AccessControl
from aioinformer_apiserver.auth.rbac import User, bootstrap_roles
from aioinformer_apiserver.crds import custom_resources
from aioinformer_apiserver.faults import Fault
from aioinformer_apiserver.http.background import BackgroundTask
from aioinformer_apiserver.http.handler import HandlerDurations, RequestHandler
from aioinformer_apiserver.http.memory import MemoryResponse, exchange
from aioinformer_apiserver.http.server import HTTPServer
from aioinformer_apiserver.manifests import manifests_in, patterns_of, unknown_kind
from aioinformer_apiserver.registry.garbage import GarbageCollector
from aioinformer_apiserver.registry.registry import Registry
from aioinformer_apiserver.requests.options import DeleteOptions, WriteOptions
from aioinformer_apiserver.requests.request import APIRequest
from aioinformer_apiserver.schema.decoding import decode_metadata
from aioinformer_apiserver.storage.dispatcher import TIMER_RESOLUTION, Waker
from aioinformer_apiserver.storage.storage import SavedState, Storage

if TYPE_CHECKING:
    from collections import deque
    from collections.abc import Callable, Iterable, Mapping
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path
    from types import TracebackType

    from aioinformer.model import Resource
    from aioinformer_apiserver.faults import Faults
    from aioinformer_apiserver.manifests import Manifest
    from aioinformer_apiserver.requests.routes import RequestRecord
    from aioinformer_apiserver.storage.storage import Collection, StoredObject

__all__ = ["LocalAPIServer", "User"]

_T = TypeVar("_T")

_ARRANGED = WriteOptions(part="all")
_VALIDATED = WriteOptions(dry_run=True, field_validation="Strict")
_REMOVED = DeleteOptions(grace_seconds=0, immediate=True)
# Interval at which `until()` checks for changes that are not writes.
_POLL_SECONDS = 0.05
_ADVICE = ". To see more here, return a value that is true in the end, not a comparison"


class LocalAPIServer:
    """A Kubernetes API server for tests, in this process.

    Enter it with `async with`, or call `start()` and `stop()`, which may happen in
    different tasks of one loop. It can be started again after a stop, and keeps its
    objects, versions and port like a real server.

    `create()`, `get()`, `update()`, `patch()`, `delete()` and `objects()` arrange
    objects without HTTP. They take effect at once, and all watches see them. They do
    what the whole cluster could do: they store a `status` with the other fields, check
    no schema, delete a pod without waiting for its end, and put objects without a
    namespace into `default`. Objects get the defaults of their kind, and the fields
    that a server always writes, so that typed clients can read an incomplete object. A
    required list is then empty. Unknown fields are kept. A built-in object with a value
    of a wrong type is stored as given. Fields that admission and registries add, such
    as tolerations and cluster IPs, are left out.

    Every method raises `OptionsError` for an invalid argument, such as a body that JSON
    cannot represent or a resource that is not served, and `WrongLoop` if the server
    runs in another thread.

    Args:
        resources: Custom resources to serve besides the built-in ones.
        history: Number of changes to keep for each resource. A watch or list from an
            older version gets 410.
        token: Bearer token of an administrator. Requests with an unknown token get 401.
            Requests without a token are anonymous, and get 403 for nearly everything.
        users: Further users by token: a name, or a `User` with groups. They have the
            permissions that the roles in the server grant, almost none at first.
            Requires `token`.
        auto_namespaces: True to create a missing namespace with the first object in it.
            By default the server returns 404, as a real server does.
        garbage_collector: True to collect dependents whose owners are gone, as a cluster
            does, while the server runs.
        port: Port to listen on; 0 for any free port.
        bookmark_seconds: Interval between the bookmarks of a watch.
        watch_seconds: Duration of a watch that does not request one.
        fresh_seconds: Maximum time that a request waits for a future version.
        webhook_services: Base URLs of the services in webhook configurations, by
            `"namespace/name"`, such as `{"shop/operator": "https://127.0.0.1:9443"}`.
            The server has no network of services.
        feature_gates: Feature gates by name, such as `{"ShardedListAndWatch": True}`.
            The others have their defaults, which `feature_gates` shows.
        load: YAML files to load at once; see `load()`.
        root: Folder of relative paths in `load`. None for the working directory.

    Raises:
        OptionsError: If an option is invalid; the message names it. Durations must be
            positive (`fresh_seconds` may be 0), custom resources need a kind and a
            domain as their group, and tokens must be unique.

    Lifetime:
        One task, and one for each open connection. None is left after the stop.

    Example:
        >>> from aioinformer.model.resources import PODS
        >>> server = LocalAPIServer()
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
        users: Mapping[str, str | User] | None = None,
        auto_namespaces: bool = False,
        garbage_collector: bool = False,
        port: int = 0,
        bookmark_seconds: float = 60.0,
        watch_seconds: float = 1800.0,
        fresh_seconds: float = 3.0,
        webhook_services: Mapping[str, str] | None = None,
        feature_gates: Mapping[str, bool] | None = None,
        load: str | Path | Iterable[str | Path] = (),
        root: str | Path | None = None,
    ) -> None:
        options = HandlerDurations(
            bookmark_seconds=seconds_of("bookmark_seconds", bookmark_seconds),
            watch_seconds=seconds_of("watch_seconds", watch_seconds),
            fresh_seconds=seconds_of("fresh_seconds", fresh_seconds, zero=True),
        )
        whole_of("port", port, least=0, most=65535)
        flag_of("auto_namespaces", auto_namespaces)
        resources = resources_of("resources", resources)
        named = users_of("users", {} if users is None else users)
        check_token(token, named)

        self._storage = Storage(history=whole_of("history", history, least=0))
        self._registry = Registry(self._storage, auto_namespaces=auto_namespaces)
        self._access_control = AccessControl(self._storage, token=token, users=named)
        self._webhook_services = services_of("webhook_services", webhook_services or {})
        self._feature_gates = feature_gates_of("feature_gates", feature_gates or {})
        self._handler = RequestHandler(
            self._registry,
            self._access_control,
            options,
            self._webhook_services,
            self._feature_gates,
        )
        self._http_server = HTTPServer(self._handler, port=port)
        collects = flag_of("garbage_collector", garbage_collector)
        self._collector = GarbageCollector(self._registry) if collects else None
        self._task = BackgroundTask(self._http_server.run, "the API server")
        # Loop and thread of the last start: all methods belong there.
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = 0
        for binds, body in bootstrap_roles(self._storage):
            kind = CLUSTER_ROLE_BINDINGS if binds else CLUSTER_ROLES
            self._registry.create(self._storage.collection(kind), "", body, _ARRANGED)

        for resource in resources:
            self.register(resource)

        self._root = path_of("root", "." if root is None else root, "a folder or None")
        if given := patterns_of("load", load):
            self.load(*given)

    def __repr__(self) -> str:
        state = self.url if self._task.running else "stopped"
        return f"<APIServer {state} version={self.resource_version}>"

    # ---------------------------------------------------------------- lifetime

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
        """Listen, and return when the server accepts requests.

        Raises:
            OptionsError: If it is already running.
            OSError: If the port is in use.

        Cancellation:
            Stops the server again.
        """
        if self._task.running:
            raise OptionsError(f"{self!r} is already running")

        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        await self._task.start()
        if self._collector is not None:
            self._collector.start()

    async def stop(self) -> None:
        """End all watches cleanly, close all connections, and stop listening.

        Does nothing if the server is not running.

        Raises:
            WrongLoop: If it was started in another event loop.

        Cancellation:
            Deferred until it has stopped, which takes at most a few seconds.
        """
        self._check_loop()
        if self._collector is not None:
            self._collector.stop()

        await self._task.stop()

    async def restart(
        self, *, snapshot: SavedState | None = None, new_history: bool = False
    ) -> None:
        """Stop and start again: every watch ends, every connection closes.

        Args:
            snapshot: State to restore, like an etcd backup: versions that clients have
                seen are used again for other states.
            new_history: True to come back like another cluster with the same objects:
                new uids, and versions from the beginning.

        Raises:
            OptionsError: If both are given, or the snapshot is not one.
            OSError: If another program has taken the port meanwhile.
            WrongLoop: If it was started in another event loop.

        Cancellation:
            Leaves it stopped or running.
        """
        flag_of("new_history", new_history)
        if snapshot is not None:
            instance_of("snapshot", snapshot, SavedState, "a result of snapshot()")

        if snapshot is not None and new_history:
            raise OptionsError("pass either snapshot or new_history, not both")

        await self.stop()
        if snapshot is not None:
            self._storage.restore(snapshot)
        elif new_history:
            self._storage.start_new_history(lambda: str(uuid.uuid4()))

        await self.start()

    # ---------------------------------------------------------------- for clients

    @property
    def url(self) -> str:
        """URL of the server, such as `"http://127.0.0.1:40123"`.

        Raises:
            OptionsError: If it has never been started, so that there is no port yet.
        """
        if not self._http_server.port:
            raise OptionsError("an APIServer has no URL before its first start")

        return self._http_server.url

    @property
    def token(self) -> str | None:
        """Bearer token of the administrator; may be changed at any time.

        Raises:
            OptionsError: If the new value is invalid, or is the token of a user.
        """
        return self._access_control.token

    @token.setter
    def token(self, token: str | None) -> None:
        check_token(token, self._access_control.users)
        self._access_control.token = token

    @property
    def webhook_services(self) -> dict[str, str]:
        """Base URLs of services with webhooks, by `"namespace/name"`; may be changed.

        `server.webhook_services["shop/operator"] = "https://127.0.0.1:9443"` is for a
        webhook server that has started after this one. A plain `http://` URL works, too.
        """
        return self._webhook_services

    @property
    def feature_gates(self) -> Mapping[str, bool]:
        """All feature gates; may be assigned at any time.

        Gates that are not in the new mapping get their defaults. Open watches keep the
        gates with which they started: to switch a gate as a cluster does, call
        `restart()` after the assignment.

        Raises:
            OptionsError: If a gate is unknown, or its value is not a boolean.
        """
        return MappingProxyType(self._feature_gates)

    @feature_gates.setter
    def feature_gates(self, gates: Mapping[str, bool]) -> None:
        self._feature_gates.update(feature_gates_of("feature_gates", gates))

    def kubeconfig(
        self,
        path: str | Path,
        *,
        namespace: str = "default",
        token: str | None = None,
    ) -> Path:
        """Write a kubeconfig file for this server, readable by its owner only.

        It works for kubectl too, except with a token: clients made of client-go send
        none over plain HTTP.

        Args:
            path: Path of the file, which is replaced if it exists.
            namespace: Namespace of the context.
            token: Bearer token, such as that of one of `users`; None for the
                administrator's.

        Returns:
            The path.
        """
        file = path_of("path", path, "a path, such as tmp_path / 'config'")
        bearer = self.token if token is None else token_of("token", token)
        user = {} if bearer is None else {"token": bearer}
        context = {"cluster": "test", "user": "test", "namespace": namespace}
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "test", "cluster": {"server": self.url}}],
            "users": [{"name": "test", "user": user}],
            "contexts": [{"name": "test", "context": context}],
            "current-context": "test",
        }
        file.touch(mode=0o600)
        if file.is_file():  # It may have existed before, or be a device.
            file.chmod(0o600)

        file.write_text(yaml.safe_dump(document, sort_keys=False), encoding="utf-8")
        return file

    def exchange(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        body: bytes = b"",
    ) -> AbstractAsyncContextManager[MemoryResponse]:
        """Send a request without a network, and read its response from memory.

        The server need not have been started. After a stop, requests fail until the
        next start.

        Args:
            method: HTTP method.
            path: Path that begins with `/`, percent-encoded, without a query.
            query: Query parameters.
            headers: Headers.
            body: Body, of the type that the header `Content-Type` says.

        Raises:
            ConnectionError: If the server is stopped.
        """
        request = APIRequest(
            method=method,
            path=path,
            query=dict(query or {}),
            headers=CIMultiDict(headers or {}),
            body=body,
        )
        return exchange(self._handler, request)

    # ---------------------------------------------------------------- for tests

    @property
    def faults(self) -> Faults:
        """Pending faults; `faults.add(...)` scripts one."""
        return self._handler.faults

    def unserved_faults(self) -> list[Fault]:
        """Return the faults that struck nothing and name a resource that is not served.

        The name is probably mistyped. The pytest fixture warns of them after a test.
        """
        self._check_thread()
        served = {"", *(it.kind.resource.plural for it in self._storage)}
        used = [it.fault for it in self.faults.taken]
        pending = (it for it in self.faults if isinstance(it, Fault))
        return [it for it in pending if it.resource not in served and it not in used]

    @property
    def requests(self) -> deque[RequestRecord]:
        """Requests so far, oldest first, except health checks; may be cleared."""
        return self._handler.records

    @property
    def resource_version(self) -> str:
        """Newest version: that of the last write to any resource."""
        return str(self._storage.version)

    async def until(self, condition: Callable[[], _T], *, timeout: float = 5.0) -> _T:
        """Wait until a condition holds, such as an effect of the program under test.

        Checks at once, after each write, and 20 times a second. So the condition may be
        about anything: objects, `requests`, or state of the program. States that follow
        each other within one turn of the loop may be missed.

        Args:
            condition: Plain function that returns a true value to end the wait.
                `NotFound` and `LookupError` mean "not yet". Return the value that you
                wait for rather than a comparison, so that a timeout shows it.
            timeout: Maximum time in seconds.

        Returns:
            Result of the condition.

        Raises:
            TimeoutError: If it does not hold in time. The message has its last result.
            OptionsError: If the condition is a coroutine function or not a function, or
                the timeout is not a number of seconds.
            WrongLoop: If the server runs in another event loop.

        Cancellation:
            Safe.
        """
        __tracebackhide__ = True  # pytest shows the line of the test
        seconds_of("timeout", timeout, zero=True)
        if not callable(condition):
            raise OptionsError(f"condition must be a function, not {condition!r}")

        self._check_loop()
        loop, waker = asyncio.get_running_loop(), Waker()
        end = loop.time() + timeout
        unsubscribe = self._storage.subscribe(waker.wake)
        try:
            while True:
                found, shown = _evaluate(condition)
                if found:
                    return found

                if loop.time() + TIMER_RESOLUTION >= end:
                    advice = _ADVICE if shown == "False" else ""
                    raise TimeoutError(
                        f"timed out after {timeout:g} s, last result: {shown}{advice}"
                    )

                await waker.wait(min(end, loop.time() + _POLL_SECONDS))
        finally:
            unsubscribe()

    def snapshot(self) -> SavedState:
        """Return a backup of the current state, which `restart()` can restore."""
        self._check_thread()
        return self._storage.save()

    def compact(self) -> None:
        """Discard all history: every older version and continue token gets 410 now."""
        self._check_thread()
        self._storage.compact()

    # ---------------------------------------------------------------- objects

    def register(self, resource: Resource) -> None:
        """Serve a custom resource from now on, with a status subresource.

        Its objects may have any content. The server creates a CustomResourceDefinition
        for it, or adds a version to the existing one. Does nothing if the resource is
        served already.

        Raises:
            OptionsError: If the resource has no kind, or its group is not a domain.
        """
        self._check_thread()
        resource_of("resource", resource)
        served = self._storage.find(resource.group, resource.version, resource.plural)
        if served is not None:
            return

        _check_registrable(resource)
        definitions = self._storage.collection(CUSTOM_RESOURCE_DEFINITIONS)
        stored = definitions.get(custom_resources.definition_name_of(resource))
        try:
            if stored is None:
                body = custom_resources.definition_of(resource)
                self._registry.create(definitions, "", body, _ARRANGED)
            else:
                body = custom_resources.with_version(stored.body(), resource)
                self._registry.update(definitions, "", stored.name, body, _ARRANGED)
        except ApiError as exc:
            raise OptionsError(f"{resource!r} cannot be served: {exc}") from exc

    def unregister(self, resource: Resource) -> None:
        """Delete all objects of a resource, end its watches, and serve 404 for it.

        Deletes its definition with all versions, without waiting for finalizers.

        Raises:
            OptionsError: If it is not served.
        """
        self._collection(resource)
        self._registry.custom_resources.remove(resource)

    def create(
        self, resource: Resource, body: Mapping[str, Any], *, namespace: str = ""
    ) -> dict[str, Any]:
        """Create an object, and return it as it is stored.

        Args:
            resource: Resource of the object.
            body: The object. `apiVersion` and `kind` may be missing. A
                `creationTimestamp` is kept, so that objects may be old.
            namespace: Namespace; empty for the one in the body, or `default`.

        Raises:
            ApiError: Error of a real server, such as `AlreadyExists`.
            OptionsError: If the resource is not served.
        """
        collection = self._collection(resource)
        full = _with_type_meta(collection, body)
        place = _namespace_in(collection, namespace, full)
        made = self._registry.create(collection, place, full, _ARRANGED)
        return made.stored.body()

    def load(self, *paths: str | Path) -> list[dict[str, Any]]:
        """Create the objects of YAML files, and return them in the order of the files.

        It validates the objects like `kubectl apply -f`, and stores them like
        `create()`, with their status. It creates CRDs first, then namespaces, so that
        one call may load a CRD and its objects. An existing object gets the fields of
        the file. A `List` stands for its items. Fields that a server has written, such
        as `resourceVersion`, are ignored.

        Args:
            paths: Files, folders of YAML and JSON files, or patterns such as
                `"crds/*.yaml"` and `"deploy/**/*.yaml"`. Relative ones start at the
                option `root`: for the pytest fixture, at the root folder of pytest,
                otherwise at the working directory.

        Raises:
            OptionsError: If nothing matches, a file cannot be read, or an object is
                invalid. The message names the file, the document and the reason.
                Objects before it have been created.

        Blocking:
            Reads files.
        """
        self._check_thread()
        if not paths:
            raise OptionsError("load() needs at least one path, such as 'crds/*.yaml'")

        found = manifests_in(patterns_of("paths", paths), self._root)
        made = {id(it): self._load(it) for it in sorted(found, key=lambda it: it.order)}
        return [made[id(it)] for it in found]

    def _load(self, manifest: Manifest) -> dict[str, Any]:
        resources = (it.kind.resource for it in self._storage)
        served = {(it.api_version, it.kind): it for it in resources}
        resource = served.get(manifest.type)
        if resource is None:
            raise OptionsError(f"{manifest}: {unknown_kind(manifest.type, served)}")

        collection, body = self._storage.collection(resource), manifest.body
        try:
            name = decode_metadata(body.get("metadata")).get("name", "")
            place = _namespace_in(collection, "", body)
            with contextlib.suppress(AlreadyExists):
                self._registry.create(collection, place, body, _VALIDATED)
                return self.create(resource, body)

            return self.patch(resource, name, body, namespace=place)
        except ApiError as exc:
            advice = ". Load its Namespace, too." if isinstance(exc, NotFound) else ""
            raise OptionsError(f"{manifest}: {exc}{advice}") from exc

    def get(
        self, resource: Resource, name: str, *, namespace: str = ""
    ) -> dict[str, Any]:
        """Return an object as a new dictionary.

        Raises:
            NotFound: If it does not exist.
            OptionsError: If the resource is not served.
        """
        collection = self._collection(resource)
        place = _namespace_in(collection, namespace)
        return self._find(collection, name, place).body()

    def update(self, resource: Resource, body: Mapping[str, Any]) -> dict[str, Any]:
        """Replace an object and its status; without a version, unconditionally.

        Raises:
            ApiError: Error of a real server, such as `Conflict`.
            OptionsError: If the resource is not served, or the body has no name.
        """
        collection = self._collection(resource)
        full = _with_type_meta(collection, body)
        metadata = decode_metadata(full.get("metadata"))
        name = metadata.get("name")
        if not name:
            raise OptionsError("the body of an update needs metadata.name")

        place = _namespace_in(collection, "", full)
        stored = self._find(collection, name, place)
        metadata.setdefault("resourceVersion", str(stored.version))
        full["metadata"] = metadata
        written = self._registry.update(collection, place, name, full, _ARRANGED)
        return written.stored.body()

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
            ApiError: Error of a real server, such as `NotFound`.
            OptionsError: If the resource is not served.
        """
        collection = self._collection(resource)
        name, place = name_of(resource, name), _namespace_in(collection, namespace)
        change = body_of("a merge patch", patch)
        written = self._registry.patch(collection, place, name, change, _ARRANGED)
        return written.stored.body()

    def delete(self, resource: Resource, name: str, *, namespace: str = "") -> None:
        """Delete an object, or mark it for deletion while it has finalizers.

        Raises:
            NotFound: If it does not exist.
            OptionsError: If the resource is not served.
        """
        collection = self._collection(resource)
        name, place = name_of(resource, name), _namespace_in(collection, namespace)
        self._registry.delete(collection, place, name, _REMOVED)

    def put(self, resource: Resource, body: Mapping[str, Any]) -> dict[str, Any]:
        """Store an object exactly as it is, with the next version, and return it.

        Nothing is validated, completed or called: no admission, no defaults, no
        finalizers. For objects that another server has accepted.

        Raises:
            OptionsError: If the resource is not served, or the body has no name.
        """
        collection = self._collection(resource)
        full = _with_type_meta(collection, body)
        if not decode_metadata(full.get("metadata")).get("name"):
            raise OptionsError("the body of an object needs metadata.name")

        return self._storage.put(collection, full).body()

    def drop(self, resource: Resource, name: str, *, namespace: str = "") -> None:
        """Remove an object at once, whatever depends on it; nothing if it is absent.

        Raises:
            OptionsError: If the resource is not served.
        """
        collection = self._collection(resource)
        stored = collection.get(f"{namespace}/{name}" if namespace else name)
        if stored is not None:
            self._storage.drop(collection, stored)

    def objects(
        self, resource: Resource, *, namespace: str = ""
    ) -> list[dict[str, Any]]:
        """Return all objects of a resource as new dictionaries, in the order of lists.

        Args:
            resource: Resource of the objects.
            namespace: Namespace of the objects; empty for all.

        Raises:
            OptionsError: If the resource is not served.
        """
        collection = self._collection(resource)
        selected = namespace_of(resource, namespace)
        found = collection.snapshot()
        return [it.body() for it in found if selected in {"", it.namespace}]

    # ---------------------------------------------------------------- helpers

    def _collection(self, resource: Resource) -> Collection:
        self._check_thread()
        found = self._storage.collection(resource_of("resource", resource))
        if found.unconverted:
            raise OptionsError(
                f"{resource} has objects that its conversion webhook must convert: use "
                "a client, or the version in which they were written"
            )

        return found

    def _find(self, collection: Collection, name: str, place: str) -> StoredObject:
        name = name_of(collection.kind.resource, name)
        return self._registry.require(collection, place, name)

    def _check_loop(self) -> None:
        if self._task.running and self._loop is not asyncio.get_running_loop():
            raise WrongLoop(f"{self!r} was started in another event loop")

    def _check_thread(self) -> None:
        # Synchronous methods need the thread of the loop, but no running loop.
        if self._task.running and self._thread != threading.get_ident():
            raise WrongLoop(
                f"{self!r} runs in another thread: call its methods there, for example "
                "with loop.call_soon_threadsafe()"
            )


def _check_registrable(resource: Resource) -> None:
    """Check a resource, with shorter messages than those for its definition."""
    if not resource.kind:
        raise OptionsError(
            f"{resource} has no kind and cannot be served: set one, such as "
            "kind='Widget', in its Resource"
        )

    if "." not in resource.group:
        raise OptionsError(
            f"{resource} cannot be served: the group of a custom resource is a domain "
            f"such as 'example.com', not {resource.group!r}"
        )


def _evaluate(condition: Callable[[], _T]) -> tuple[_T | None, str]:
    """Return the result of a condition, None for "not yet", and its representation.

    Raises:
        OptionsError: If the condition is a coroutine function, which is always true.
    """
    try:
        found = condition()
    except (NotFound, LookupError) as exc:
        return None, f"{type(exc).__name__}: {exc}"

    if iscoroutine(found):
        found.close()
        raise OptionsError(
            "condition must be a plain function, not a coroutine function"
        )

    return found, repr(found)


def _namespace_in(
    collection: Collection, namespace: str, body: Mapping[str, Any] | None = None
) -> str:
    """Return the namespace of an object; empty for cluster-scoped kinds.

    Raises:
        ApiError: 400, if the metadata of the body is not an object.
    """
    resource = collection.kind.resource
    given = namespace_of(resource, namespace)
    metadata = decode_metadata((body or {}).get("metadata"))
    if not resource.namespaced:
        return ""

    return given or metadata.get("namespace") or "default"


def _with_type_meta(collection: Collection, body: object) -> dict[str, Any]:
    resource = collection.kind.resource
    given = body_of("a body", body)
    return {"apiVersion": resource.api_version, "kind": resource.kind, **given}
