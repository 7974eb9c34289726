"""`Questions`: asks a server, now, what it serves."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING

from aioinformer._tasks import in_thread, together
from aioinformer.client.discovery_documents import (
    AGGREGATED,
    read_groups,
    read_resources,
)
from aioinformer.errors import (
    ApiError,
    DecodeError,
    Forbidden,
    NotFound,
    TransportError,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from aioinformer.client.discovery_documents import Group, GroupVersion
    from aioinformer.client.endpoint import Endpoint

__all__ = ["Questions"]

_ROOTS = ("/api", "/apis")

# Of the older form there is a document for each version: at an old server with many
# groups that is a hundred requests, which it should not get at once.
REQUESTS_AT_ONCE = 10


@dataclass(frozen=True, slots=True)
class _Told:
    """What a server has told at one place, and the name that it gave to that."""

    etag: str
    groups: list[Group]


class Questions:
    """Asks a server what it serves, and remembers what it need not tell again.

    Servers from 1.26 on are asked two things, and others one more for each version of a
    group. To what has not changed since the last time, the newer ones answer so.

    Args:
        client: Sends the requests; must be entered by then.
    """

    def __init__(self, client: Endpoint) -> None:
        self._client = client
        self._told: dict[str, _Told] = {}

    async def ask(self) -> list[Group]:
        """Ask for everything; groups come in the server's order, the core group first.

        A group that the server cannot tell of hides nothing but itself: its versions
        have a `problem`.

        Raises:
            Forbidden: We may not know what there is.
            ApiError: The server refused otherwise to name its groups.
            TransportError: The network failed.
            DecodeError: What it says of its groups cannot be read.

        Cancellation:
            Safe: connections are closed.
        """
        found: dict[str, list[Group]] = {}
        refused: list[ApiError] = []

        async def ask(path: str) -> None:
            try:
                found[path] = await self._groups_at(path)
            except (NotFound, Forbidden) as exc:
                # Somebody may be let at one of the two only: as in client-go.
                refused.append(exc)

        await together(*(ask(path) for path in _ROOTS))
        if not found:
            raise _nothing_there(refused)

        groups = [group for path in _ROOTS for group in found.get(path, ())]
        await self._ask_versions(groups)
        return groups

    async def _groups_at(self, path: str) -> list[Group]:
        known = self._told.get(path)
        etag = known.etag if known is not None else ""
        async with self._client.stream(
            "GET", path, accept=AGGREGATED, etag=etag
        ) as response:
            if known is not None and response.status == 304:
                return known.groups

            # 5 ms with 1,000 resources: in a thread.
            groups = await in_thread(
                functools.partial(read_groups, await response.read())
            )
            etag = response.headers.get("ETag", "")

        self._told.pop(path, None)
        if etag and all(it.known for group in groups for it in group.versions):
            self._told[path] = _Told(etag, groups)

        return groups

    async def _ask_versions(self, groups: list[Group]) -> None:
        """Ask for what the documents of the groups have not told."""
        missing = (
            (group, version)
            for group in groups
            for version in group.versions
            if not version.known
        )

        async def ask(rest: Iterator[tuple[Group, GroupVersion]]) -> None:
            for group, version in rest:
                await self._ask_version(group, version)

        await together(*(ask(missing) for _ in range(REQUESTS_AT_ONCE)))

    async def _ask_version(self, group: Group, version: GroupVersion) -> None:
        root = "/apis" if group.name else "/api"
        try:
            async with self._client.stream(
                "GET", f"{root}/{group.api_version(version)}"
            ) as response:
                version.resources = read_resources(await response.read())

        except (ApiError, DecodeError, TransportError) as exc:
            version.problem = str(exc)


def _nothing_there(refused: Sequence[ApiError]) -> Exception:
    """What is wrong with a server that says nothing at all of its groups."""
    forbidden = next((it for it in refused if isinstance(it, Forbidden)), None)
    if forbidden is not None:
        return forbidden

    # Not a `NotFound`, which says that of one resource.
    return DecodeError(
        f"the server has neither {' nor '.join(_ROOTS)}: is its URL that of an API "
        f"server? It said {str(refused[0])!r}"
    )
