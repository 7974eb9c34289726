"""Helpers of the scenarios: many objects, a running informer, a fresh list.

All but the informer uses a plain HTTP session, so that the informer's state is compared
with that of an independent client.
"""

from __future__ import annotations

import asyncio
import random
import secrets
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from contract_servers import ServerUnderTest, real_server
from disclosures import note
from recovery_bounds import BOUNDS

from aioinformer import Client, SharedInformerFactory

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Sequence
    from types import TracebackType
    from typing import Self, TypeAlias

    import aiohttp
    from control_plane import ControlPlane

    from aioinformer import Resource, SharedInformer

__all__ = [
    "PATIENCE_SECONDS",
    "Churn",
    "Contents",
    "Following",
    "Recovery",
    "change",
    "client_of",
    "config_map",
    "create",
    "following",
    "fresh",
    "remove",
    "restarted",
    "same",
    "server_of",
    "until",
    "up",
    "watched",
]

Contents: TypeAlias = "dict[str, tuple[str, str]]"
"""Uid and version of objects, by key."""

# Polling interval for states that other programs reach.
_POLL_SECONDS = 0.1
# Concurrent requests of bulk writes.
_WRITERS = 16

# Timeout of steps that a scenario does not measure.
PATIENCE_SECONDS = 60.0


# ---------------------------------------------------------------- servers


def server_of(plane: ControlPlane | None) -> ServerUnderTest:
    """Return a control plane, or the shared server, with an unused namespace."""
    namespace = f"scene-{secrets.token_hex(6)}"
    real = real_server(namespace)
    if plane is None:
        return real

    return ServerUnderTest(
        url=plane.url,
        ca=str(plane.certificate),
        token=real.token,
        user_token=real.user_token,
        etcd=plane.etcd_url,
        namespace=namespace,
    )


async def up(plane: ControlPlane) -> None:
    """Wait until a control plane serves."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        # In a thread, because it blocks and the informers have to continue.
        while not await asyncio.to_thread(lambda: plane.ready):
            assert not plane.failure(), plane.failure()
            await asyncio.sleep(_POLL_SECONDS)


async def restarted(plane: ControlPlane, **gates: bool) -> None:
    """Restart the API server with these feature gates, while clients are connected."""
    await asyncio.to_thread(plane.end, "kube-apiserver")
    plane.set_feature_gates(**gates)
    plane.start("kube-apiserver")
    await up(plane)


def client_of(
    server: ServerUnderTest, *, url: str = "", token: str = "", **options: Any
) -> Client:
    """Make a client of the administrator, or of another user.

    Args:
        server: Server under test.
        url: Another address, such as a proxy's.
        token: Token of another user.
        **options: Options of `Client.from_url`.
    """
    if "token_file" not in options:
        options["token"] = token or server.token

    return Client.from_url(url or server.url, ca_file=server.ca, **options)


# ---------------------------------------------------------------- objects


def config_map(name: str, size: int = 10, **labels: str) -> dict[str, Any]:
    """Make a ConfigMap with the given number of bytes."""
    return {"metadata": {"name": name, "labels": labels}, "data": {"it": "x" * size}}


async def create(
    http: aiohttp.ClientSession, path: str, bodies: Iterable[dict[str, Any]]
) -> None:
    """Create objects, many at once."""
    waiting = iter(bodies)

    async def writer() -> None:
        for body in waiting:
            async with http.post(path, json=body) as answer:
                assert answer.status == 201, await answer.text()

    async with asyncio.TaskGroup() as group:
        for _ in range(_WRITERS):
            group.create_task(writer())


async def change(http: aiohttp.ClientSession, path: str, value: str) -> None:
    """Change the data of a ConfigMap."""
    async with http.patch(
        path,
        json={"data": {"it": value}},
        headers={"Content-Type": "application/merge-patch+json"},
    ) as answer:
        assert answer.status == 200, await answer.text()


async def remove(http: aiohttp.ClientSession, path: str) -> None:
    """Delete an object."""
    async with http.delete(path) as answer:
        assert answer.status in {200, 202}, await answer.text()


@dataclass
class Churn:
    """Creates, changes and deletes ConfigMaps, by a seed."""

    http: aiohttp.ClientSession
    path: str
    seed: int = 1
    prefix: str = "map"
    names: list[str] = field(default_factory=list)
    _count: int = 0

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)

    async def go(self, writes: int) -> None:
        """Do the given number of writes."""
        for _ in range(writes):
            await self._write()

    async def _write(self) -> None:
        deed = self._random.choice(("create", "change", "change", "delete"))
        if deed == "create" or len(self.names) < 3:
            self._count += 1
            self.names.append(f"{self.prefix}-{self._count}")
            await create(self.http, self.path, [config_map(self.names[-1])])
        elif deed == "change":
            name = self._random.choice(self.names)
            await change(self.http, f"{self.path}/{name}", str(self._random.random()))
        else:
            place = self._random.randrange(len(self.names))
            await remove(self.http, f"{self.path}/{self.names.pop(place)}")


# ---------------------------------------------------------------- informers


@dataclass
class Following:
    """A running informer, and the errors of its watches and lists."""

    informer: SharedInformer
    errors: list[Exception] = field(default_factory=list)

    @property
    def stored(self) -> Contents:
        """Contents of the store."""
        return {
            it.key: (it.uid, it.resource_version) for it in self.informer.store.list()
        }

    def failed(self, kind: type[Exception]) -> bool:
        """Return whether a list or watch has failed with this class of error."""
        return any(isinstance(it, kind) for it in self.errors)


@asynccontextmanager
async def following(
    client: Client, resource: Resource, *, synced: bool = True, **options: Any
) -> AsyncIterator[Following]:
    """Run an informer, and record the texts that users might print.

    Args:
        client: Client of the informer.
        resource: Resource of the informer.
        synced: Wait until it is synced.
        **options: Options of `SharedInformerFactory.informer`.
    """
    factory = SharedInformerFactory(client)
    it = Following(factory.informer(resource, **options))
    it.informer.set_watch_error_handler(it.errors.append)
    note(client, factory, it.informer)
    async with factory:
        if synced:
            await it.informer.wait_synced(timeout=PATIENCE_SECONDS)

        yield it
        note(client, factory, it.informer, it.informer.status, it.informer.store)

    note(*it.errors)


async def fresh(http: aiohttp.ClientSession, *paths: str) -> Contents:
    """List collections now."""
    found: Contents = {}
    for path in paths:
        async with http.get(path) as answer:
            assert answer.status == 200, await answer.text()
            items = (await answer.json())["items"]

        for item in items:
            metadata = item["metadata"]
            key = f"{metadata['namespace']}/{metadata['name']}"
            found[key] = (metadata["uid"], metadata["resourceVersion"])

    return found


async def same(it: Following, http: aiohttp.ClientSession, *paths: str) -> None:
    """Wait until the store equals a fresh list: keys, uids and versions."""
    while it.stored != await fresh(http, *paths):
        await asyncio.sleep(_POLL_SECONDS)


async def watched(it: Following, http: aiohttp.ClientSession, path: str) -> None:
    """Wait until the store equals a fresh list, and its watch has sent an event."""
    events = it.informer.status.last_event
    await create(http, path, [config_map(f"witness-{secrets.token_hex(4)}")])
    await same(it, http, path)
    if it.informer.status.last_event == events:
        # The list already had it: the next one comes by the watch.
        await watched(it, http, path)


async def until(reached: Callable[[], bool]) -> None:
    """Wait for an intermediate state; fail after a minute."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not reached():
            await asyncio.sleep(_POLL_SECONDS)


# ---------------------------------------------------------------- how long it takes


class Recovery:
    """Measures and bounds the time from the end of a failure to the end of a block.

    Args:
        rows: Rows of the table of recoveries.
        name: Key in `BOUNDS`.
        detail: Further words for the table.
    """

    def __init__(
        self, rows: list[Sequence[Any]], name: str, *, detail: str = ""
    ) -> None:
        self._rows = rows
        self._bound = BOUNDS[name]
        self._what = self._bound.what + (f" ({detail})" if detail else "")
        self._patience = asyncio.timeout(None)

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        self._began = loop.time()
        self._patience = asyncio.timeout(self._bound.seconds)
        await self._patience.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        seen = asyncio.get_running_loop().time() - self._began
        self._rows.append((self._what, self._bound.seconds, round(seen, 1)))
        try:
            await self._patience.__aexit__(kind, error, trace)
        except TimeoutError as exc:
            bound = self._bound
            raise AssertionError(
                f"{bound.what}: not over in {bound.seconds} s"
            ) from exc
