"""The API server: a Kubernetes API over real HTTP on the loopback interface.

It has no controllers, no garbage collector, no scheduler and no kubelets: what is
written stays as it is written. What it does answer, it answers as a kube-apiserver.
"""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Self

import yaml

from aioinformer._tasks import Supervisor
from aioinformer.errors import OptionsError
from aioinformer.model.resources import CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES
from aioinformer.testing.access.gate import Access
from aioinformer.testing.access.rbac import User, first_roles
from aioinformer.testing.arrangement import Arrangement
from aioinformer.testing.direct import DirectEndpoint
from aioinformer.testing.serving.edge import HTTPEdge
from aioinformer.testing.serving.handlers import HandlerOptions, Handlers
from aioinformer.testing.storing.storage import Storage
from aioinformer.testing.writing.registry import Registry

if TYPE_CHECKING:
    from collections import deque
    from collections.abc import Iterable, Mapping
    from types import TracebackType

    from aioinformer.client import Client, ListWatch
    from aioinformer.model.resource import Resource
    from aioinformer.testing.faults import Faults
    from aioinformer.testing.requests.routes import RequestRecord
    from aioinformer.testing.storing.storage import SavedState

__all__ = ["APIServer", "User"]


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
        OptionsError: If a time is not positive, a custom resource names no kind, or a
            token is empty or given twice.

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
        if min(bookmark_seconds, watch_seconds) <= 0 or fresh_seconds < 0:
            raise OptionsError("the times of an APIServer must be positive")

        storage = Storage(history=history)
        super().__init__(Registry(storage, auto_namespaces=auto_namespaces))
        options = HandlerOptions(
            bookmark_seconds=bookmark_seconds,
            watch_seconds=watch_seconds,
            fresh_seconds=fresh_seconds,
        )
        tokens = [*(users or {}), *(() if token is None else (token,))]
        if "" in tokens or len(set(tokens)) < len(tokens):
            raise OptionsError("a token of an APIServer is empty, or given twice")

        self._access = Access(storage, token=token, users=_users_of(users or {}))
        self._handlers = Handlers(self._registry, self._access, options)
        self._edge = HTTPEdge(self._handlers, port=port)
        self._supervisor = Supervisor(self._edge.run, "aioinformer-apiserver")
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

        await self._supervisor.start()

    async def stop(self) -> None:
        """End all watches cleanly, close all connections, and listen no longer.

        Does nothing if the server does not run.

        Cancellation:
            Deferred until it has stopped, which takes at most a few seconds.
        """
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
            OptionsError: If both are given.
            OSError: If another program has taken the port meanwhile.

        Cancellation:
            Leaves it stopped, or running.
        """
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
        """The administrator's token; may be changed at any time."""
        return self._access.token

    @token.setter
    def token(self, token: str | None) -> None:
        self._access.token = token

    def client(self, *, token: str | None = None) -> Client:
        """Return a client of this server, not entered yet.

        Args:
            token: Whose; None for the administrator's.
        """
        # Imported here, so that a user of plain HTTP does not pay for the client.
        from aioinformer.client import Client

        return Client.from_url(self.url, token=token or self.token)

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

    def snapshot(self) -> SavedState:
        """Return what a backup would hold now; `restart()` goes back to it."""
        return self._storage.save()

    def compact(self) -> None:
        """Forget all history: every older version and continue token gets 410 now."""
        self._storage.compact()

    def _arrange_roles(self) -> None:
        for binds, body in first_roles(self._storage):
            self.create(CLUSTER_ROLE_BINDINGS if binds else CLUSTER_ROLES, body)


def _users_of(users: Mapping[str, str | User]) -> dict[str, User]:
    return {
        token: User(user) if isinstance(user, str) else user
        for token, user in users.items()
    }
