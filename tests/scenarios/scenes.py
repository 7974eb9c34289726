"""What the scenarios share: objects in numbers, an informer that follows, a fresh list.

Everything but the informer uses a plain HTTP session, so that what an informer has is
compared with what somebody else was told.
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
    "same",
    "server_of",
    "until",
    "up",
    "watched",
]

Contents: TypeAlias = "dict[str, tuple[str, str]]"
"""Uid and version of objects, by key."""

# How often a state is looked at that somebody else has to reach.
_POLL_SECONDS = 0.1
# Requests under way at once, of those who write much.
_WRITERS = 16

# A failure to get somewhere, which is not what a scenario is about.
PATIENCE_SECONDS = 60.0


# ---------------------------------------------------------------- servers


def server_of(plane: ControlPlane | None) -> ServerUnderTest:
    """Name a namespace that nobody uses, of a control plane or of the one for all."""
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
        # Elsewhere, as it blocks, and the informers are to go on.
        while not await asyncio.to_thread(lambda: plane.ready):
            assert not plane.failure(), plane.failure()
            await asyncio.sleep(_POLL_SECONDS)


def client_of(
    server: ServerUnderTest, *, url: str = "", token: str = "", **options: Any
) -> Client:
    """Make a client of the one who may do everything, or of somebody else.

    Args:
        server: Whom it asks.
        url: By another address, such as a proxy's.
        token: Of somebody else.
        **options: As for `Client.from_url`.
    """
    if "token_file" not in options:
        options["token"] = token or server.token

    return Client.from_url(url or server.url, ca_file=server.ca, **options)


# ---------------------------------------------------------------- objects


def config_map(name: str, size: int = 10, **labels: str) -> dict[str, Any]:
    """Make one with so many bytes in it."""
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
    """Change what is in a ConfigMap."""
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
        """Write so often."""
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
    """An informer that runs, and what its watches and lists have failed with."""

    informer: SharedInformer
    errors: list[Exception] = field(default_factory=list)

    @property
    def stored(self) -> Contents:
        """What the store has."""
        return {
            it.key: (it.uid, it.resource_version) for it in self.informer.store.list()
        }

    def failed(self, kind: type[Exception]) -> bool:
        """Whether a list or watch has failed with it."""
        return any(isinstance(it, kind) for it in self.errors)


@asynccontextmanager
async def following(
    client: Client, resource: Resource, *, synced: bool = True, **options: Any
) -> AsyncIterator[Following]:
    """Run an informer, and write down what somebody might print of it.

    Args:
        client: Of whom it asks.
        resource: What it follows.
        synced: Wait until it is complete.
        **options: As for `SharedInformerFactory.informer`.
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
    """List collections anew."""
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
    """Wait until the store is as a fresh list: keys, uids and versions."""
    while it.stored != await fresh(http, *paths):
        await asyncio.sleep(_POLL_SECONDS)


async def watched(it: Following, http: aiohttp.ClientSession, path: str) -> None:
    """Wait until the store is as a fresh list, and a watch of it has been answered."""
    events = it.informer.status.last_event
    await create(http, path, [config_map(f"witness-{secrets.token_hex(4)}")])
    await same(it, http, path)
    if it.informer.status.last_event == events:
        # The list had it already: the next one comes by the watch.
        await watched(it, http, path)


async def until(reached: Callable[[], bool]) -> None:
    """Wait for something on the way; fails after a minute."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not reached():
            await asyncio.sleep(_POLL_SECONDS)


# ---------------------------------------------------------------- how long it takes


class Recovery:
    """Measures from the end of a trouble to the end of a block, and bounds it.

    Args:
        rows: Where what was seen is kept, for the table at the end.
        name: Of its bound, in `BOUNDS`.
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
