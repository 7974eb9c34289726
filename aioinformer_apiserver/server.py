"""The API server: a Kubernetes API over real HTTP on the loopback interface.

It has no controllers, no garbage collector and no scheduler; of the rest of a cluster it
plays only those who end a deleted pod, and empty a deleted namespace. What it does answer,
it answers as a kube-apiserver.
"""

from __future__ import annotations

import asyncio
import threading
import uuid
from inspect import iscoroutine
from pathlib import Path
from typing import TYPE_CHECKING, Self, TypeVar

import yaml

from aioinformer._tasks import Supervisor
from aioinformer.errors import NotFound, OptionsError, WrongLoop
from aioinformer.model.resources import CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES
from aioinformer_apiserver.arguments import (
    flag_of,
    instance_of,
    resources_of,
    seconds_of,
    text_of,
    token_of,
    tokens_of,
    whole_of,
)
from aioinformer_apiserver.arrangement import Arrangement
from aioinformer_apiserver.auth.gate import Access
from aioinformer_apiserver.auth.rbac import User, first_roles
from aioinformer_apiserver.direct import DirectEndpoint
from aioinformer_apiserver.http.edge import HTTPEdge
from aioinformer_apiserver.http.handlers import HandlerOptions, Handlers
from aioinformer_apiserver.registry.registry import Registry
from aioinformer_apiserver.requests.options import WriteOptions
from aioinformer_apiserver.storage.storage import SavedState, Storage
from aioinformer_apiserver.storage.waker import EARLY_SECONDS, Bell

if TYPE_CHECKING:
    from collections import deque
    from collections.abc import Callable, Iterable, Mapping
    from types import TracebackType

    from aioinformer.client import Client, ListWatch
    from aioinformer.model.resource import Resource
    from aioinformer_apiserver.faults import Faults
    from aioinformer_apiserver.requests.routes import RequestRecord

__all__ = ["APIServer", "User"]

_T = TypeVar("_T")

_ARRANGED = WriteOptions(part="all")
# How often `until()` looks for what no write announces, such as a request.
_LOOK_SECONDS = 0.05


class APIServer(Arrangement):
    """A Kubernetes API server for tests, in this process.

    Enter it with `async with`, or call `start()` and `stop()`, which may happen in
    different tasks of one loop. After a stop it can be started again: it keeps its
    objects, versions and port, as a restarted server does.

    `create()`, `update()`, ... arrange what a test needs without HTTP: see `Arrangement`.

    Args:
        resources: Custom resources to serve besides the built-in ones.
        history: Changes remembered for each resource. A watch or list from an older
            version gets 410.
        token: Of an administrator. Requests that bear another one get 401; those that
            bear none are anonymous, and get 403 nearly everywhere.
        users: Further users by their tokens: a name, or a `User` with groups. They may
            do what the roles in the server allow, which is next to nothing at first.
        auto_namespaces: Create a missing namespace with the first object in it. A real
            server answers 404, and so does this one unless asked.
        port: Where to listen; 0 for any free port.
        bookmark_seconds: The time between two bookmarks of one watch.
        watch_seconds: The length of a watch that does not ask for one.
        fresh_seconds: How long a request waits for a version that lies in the future.

    Raises:
        OptionsError: If an option cannot be what is given; the message names it. A time
            is positive (`fresh_seconds` may be 0), a custom resource names its kind and
            a domain as its group, and nobody's token is another one's.

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
        users: Mapping[str, str | User] | None = None,
        auto_namespaces: bool = False,
        port: int = 0,
        bookmark_seconds: float = 60.0,
        watch_seconds: float = 1800.0,
        fresh_seconds: float = 3.0,
    ) -> None:
        options = HandlerOptions(
            bookmark_seconds=seconds_of("bookmark_seconds", bookmark_seconds),
            watch_seconds=seconds_of("watch_seconds", watch_seconds),
            fresh_seconds=seconds_of("fresh_seconds", fresh_seconds, zero=True),
        )
        whole_of("port", port, least=0, most=65535)
        flag_of("auto_namespaces", auto_namespaces)
        resources = resources_of("resources", resources)
        named = _users_of({} if users is None else users)
        _check_token(token, named)

        storage = Storage(history=whole_of("history", history, least=0))
        registry = Registry(storage, auto_namespaces=auto_namespaces)
        super().__init__(registry, check=self._check_thread)
        self._access = Access(storage, token=token, users=named)
        self._handlers = Handlers(self._registry, self._access, options)
        self._edge = HTTPEdge(self._handlers, port=port)
        self._supervisor = Supervisor(self._edge.run, "aioinformer-apiserver")
        # Where it was started: its methods belong to that loop, and to its thread.
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = 0
        self._arrange_roles()
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

        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        await self._supervisor.start()

    async def stop(self) -> None:
        """End all watches cleanly, close all connections, and listen no longer.

        Does nothing if the server does not run.

        Raises:
            WrongLoop: If it was started in another event loop.

        Cancellation:
            Deferred until it has stopped, which takes at most a few seconds.
        """
        self._check_loop()
        await self._supervisor.stop()

    async def restart(
        self, *, snapshot: SavedState | None = None, new_history: bool = False
    ) -> None:
        """Stop, and start again: every watch ends, every connection closes.

        Args:
            snapshot: Go back to this state, as an etcd that was restored from a backup:
                versions that clients have seen are given again, for other states.
            new_history: Come back as another cluster that was set up with the same
                objects: other uids, and versions that begin anew.

        Raises:
            OptionsError: If both are given, or the snapshot is none.
            OSError: If another program has taken the port meanwhile.
            WrongLoop: If it was started in another event loop.

        Cancellation:
            Leaves it stopped, or running.
        """
        flag_of("new_history", new_history)
        if snapshot is not None:
            instance_of("snapshot", snapshot, SavedState, "what snapshot() returned")

        if snapshot is not None and new_history:
            raise OptionsError("a server has one history: snapshot or new_history")

        await self.stop()
        if snapshot is not None:
            self._storage.restore(snapshot)
        elif new_history:
            self._storage.renew(lambda: str(uuid.uuid4()))

        await self.start()

    # ---------------------------------------------------------------- for clients

    @property
    def url(self) -> str:
        """Where it listens, such as `"http://127.0.0.1:40123"`.

        Raises:
            OptionsError: If it has never been started, so that there is no port yet.
        """
        if not self._edge.port:
            raise OptionsError("an APIServer has no address before it is started")

        return self._edge.url

    @property
    def token(self) -> str | None:
        """The administrator's token; may be changed at any time.

        Raises:
            OptionsError: If it is set to what is no token, or a user's.
        """
        return self._access.token

    @token.setter
    def token(self, token: str | None) -> None:
        _check_token(token, self._access.users)
        self._access.token = token

    def client(self, *, token: str | None = None) -> Client:
        """Return a client of this server, not entered yet.

        Args:
            token: Whose; None for the administrator's.

        Raises:
            OptionsError: If the token is none, or the server was never started.
        """
        # Imported here, so that a user of plain HTTP does not pay for the client.
        from aioinformer.client import Client

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

        It asks this server as a client would, with its present token; faults strike it,
        and `requests` remembers it. The server need not have been started. Arguments
        and errors are those of `ListWatch`.
        """
        from aioinformer.client.list_watch import ListWatch

        return ListWatch(
            DirectEndpoint(self._handlers, token=self.token),
            resource,
            namespace=namespace,
            label_selector=label_selector,
            field_selector=field_selector,
        )

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
        if file.is_file():  # It may have been there before; or be a device.
            file.chmod(0o600)

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

    async def until(self, condition: Callable[[], _T], *, timeout: float = 5.0) -> _T:
        """Wait until a condition holds: until the program under test has done something.

        Looks at once, after each write, and 20 times a second besides, so that it may
        be about anything: objects, `requests`, what the program has put down. States
        that follow each other within one turn of the loop may be passed over.

        Args:
            condition: A plain function; any true value is what is waited for. What it
                reads need not exist yet: `NotFound` and `LookupError` mean "not yet".
            timeout: Seconds until it gives up.

        Returns:
            What the condition returned.

        Raises:
            TimeoutError: If it does not hold in time; says what it gave last.
            OptionsError: If the condition is a coroutine function or no function, or the
                timeout no number of seconds.
            WrongLoop: If the server runs in another event loop.

        Cancellation:
            Safe: nothing is left behind.
        """
        seconds_of("timeout", timeout, zero=True)
        if not callable(condition):
            raise OptionsError(f"condition is a function, not {condition!r}")

        self._check_loop()
        loop, bell = asyncio.get_running_loop(), Bell()
        end = loop.time() + timeout
        leave = self._storage.subscribe(bell.ring)
        try:
            while True:
                found, gave = _look(condition)
                if found:
                    return found

                if loop.time() + EARLY_SECONDS >= end:
                    raise TimeoutError(f"not within {timeout:g} s; at last: {gave}")

                await bell.wait(min(end, loop.time() + _LOOK_SECONDS))
        finally:
            leave()

    def snapshot(self) -> SavedState:
        """Return what a backup would hold now; `restart()` goes back to it."""
        self._check_thread()
        return self._storage.save()

    def compact(self) -> None:
        """Forget all history: every older version and continue token gets 410 now."""
        self._check_thread()
        self._storage.compact()

    def _check_loop(self) -> None:
        if self._supervisor.running and self._loop is not asyncio.get_running_loop():
            raise WrongLoop(f"{self!r} was started in another event loop")

    def _check_thread(self) -> None:
        # Plain calls need no running loop, as long as its thread makes them.
        if self._supervisor.running and self._thread != threading.get_ident():
            raise WrongLoop(
                f"{self!r} runs in another thread: call its methods there, such as by "
                "loop.call_soon_threadsafe()"
            )

    def _arrange_roles(self) -> None:
        for binds, body in first_roles(self._storage):
            kind = CLUSTER_ROLE_BINDINGS if binds else CLUSTER_ROLES
            self._registry.create(self._collection(kind), "", body, _ARRANGED)


def _users_of(users: object) -> dict[str, User]:
    return {
        token: user
        if isinstance(user, User)
        else User(text_of("each of users is a User, or a name, which", user))
        for token, user in tokens_of("users", users).items()
    }


def _check_token(token: str | None, users: Mapping[str, User]) -> None:
    if token is not None and token_of("token", token) in users:
        raise OptionsError("token is given twice: it is that of one of users, too")


def _look(condition: Callable[[], _T]) -> tuple[_T | None, str]:
    """Return what a condition gives, None if it is not there yet; and how to show it.

    Raises:
        OptionsError: If the condition is a coroutine function, which is always true.
    """
    try:
        found = condition()
    except (NotFound, LookupError) as exc:
        return None, f"{type(exc).__name__}: {exc}"

    if iscoroutine(found):
        found.close()
        raise OptionsError("the condition is a coroutine function; use a plain one")

    return found, repr(found)
