"""`Discovery`: resources of a server, found by all their names."""

from __future__ import annotations

import asyncio
import copy
import functools
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from aioinformer._tasks import in_thread, run_concurrently
from aioinformer._user_code import guarded_logger
from aioinformer.client import verbs
from aioinformer.client.discovery_cache import folder_of, load, save
from aioinformer.client.discovery_documents import (
    AGGREGATED,
    read_groups,
    read_resources,
)
from aioinformer.client.rest_mapper import RESTMapper
from aioinformer.errors import (
    AioInformerError,
    ApiError,
    DecodeError,
    Forbidden,
    InternalError,
    NotFound,
    OptionsError,
    ServerError,
    TransportError,
)
from aioinformer.model.resources import find_kind
from aioinformer.model.times import seconds_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from contextlib import AbstractAsyncContextManager

    from aioinformer.client.config import ClientConfig
    from aioinformer.client.discovery_documents import Group, GroupVersion
    from aioinformer.client.response import Response
    from aioinformer.client.rest_mapper import ServedResource
    from aioinformer.client.verbs import Body
    from aioinformer.model.resource import Resource
    from aioinformer.model.times import Duration

__all__ = ["Discovery", "DiscoveryRequests"]


logger: Final = guarded_logger(__name__)


# As in kubectl. Unknown names cause earlier requests.
MAX_AGE_SECONDS = 6 * 60 * 60.0


# A CRD is served a second or two after it was accepted. Repeated queries for an unknown
# name cost the server two small responses per interval.
REFRESH_SECONDS = 2.0


class DiscoveryRequester(Protocol):
    """Sender of discovery requests, such as a `Client`."""

    @property
    def config(self) -> ClientConfig:
        """Configuration; raises `OptionsError` if it was never read."""

    def stream(
        self, method: str, path: str, *, accept: str = "", etag: str = ""
    ) -> AbstractAsyncContextManager[Response]:
        """Send a request and read its response; see `Client.stream()`."""


class Discovery:
    """Resources of a server, found by plural, singular, short name or kind.

    ::

        async with Client.from_env() as client:
            found = await client.discovery.resource("deploy")
            found.path("shop")      # '/apis/apps/v1/namespaces/shop/deployments'

    A client has one, `client.discovery`. Others can be created, for files or another
    maximum age. Requests are sent on first use, once for all concurrent callers. The
    result is kept in memory, and optionally in files. It is renewed after `max_age`,
    and when a name is unknown, at most every 2 s.

    Words are interpreted as in kubectl: a plural, a singular, a short name or a kind,
    in any case (`deployments`, `deployment`, `deploy`, `Deployment`), optionally with a
    group (`deploy.apps`) or a version and a group (`deployments.v1.apps`). If several
    resources have the name, the first one wins, in the server's order of groups and in
    the version that the server prefers.

    A group that the server cannot describe, such as one whose APIService is down, does
    not affect other groups: see `broken`.

    Errors of every coroutine:
        ApiError: If the server refused the discovery.
        TransportError: If the network failed.
        DecodeError: If the response cannot be read.
        OptionsError: If the client was never entered.
        WrongLoop: If the client was entered in another event loop.

    Args:
        client: Client that sends the requests. Enter it before use.
        cache_dir: Folder for files in kubectl's layout, shared with kubectl: its own is
            `~/.kube/cache/discovery`. New files and folders are readable only by their
            owner. None for no files.
        max_age: Maximum age of the result, in seconds or as a timedelta.

    Raises:
        OptionsError: If `max_age` is negative or not a duration.
    """

    def __init__(
        self,
        client: DiscoveryRequester,
        cache_dir: str | Path | None = None,
        *,
        max_age: Duration = MAX_AGE_SECONDS,
    ) -> None:
        self._client = client
        self._cache_dir = None if cache_dir is None else Path(cache_dir).expanduser()
        self._max_age = seconds_of(max_age)
        if self._max_age < 0:
            raise OptionsError("max_age must not be negative")

        self._requests = DiscoveryRequests(client)
        self._known: RESTMapper | None = None
        # Time of the server's response. All times are of this loop.
        self._known_since = 0.0
        self._fetched_at: float | None = None
        # Outcome of the last attempt, and the number of attempts.
        self._outcome: RESTMapper | AioInformerError | None = None
        self._attempts = 0
        self._invalidations = 0
        # Invariant: all of the above belongs to this loop and this server.
        self._loop: asyncio.AbstractEventLoop | None = None
        self._config: ClientConfig | None = None
        self._lock = asyncio.Lock()

    def __repr__(self) -> str:
        return f"<Discovery known={self._known}>"

    @property
    def broken(self) -> Mapping[str, str]:
        """Versions such as `metrics.k8s.io/v1beta1` that failed, and why.

        Of the last result; empty before the first one.
        """
        return {} if self._known is None else dict(self._known.broken)

    async def resource(self, word: str, api_version: str = "") -> Resource:
        """Find a resource by one of its names.

        Args:
            word: Name of the resource, see the class.
            api_version: Only this version, such as `"apps/v1"`; the word is then a name
                without a group.

        Returns:
            Resource, in the version that the server prefers unless one is given.

        Raises:
            NotFound: If the server has no resource of this name. The text suggests
                similar ones, and lists groups that could not be discovered.
            ServerError: If the server cannot describe `api_version`. For other errors
                see the class.

        Cancellation:
            Safe.
        """
        return (await self.served(word, api_version)).resource

    async def resource_of(self, body: Body) -> Resource:
        """Find the resource of an object by its `apiVersion` and kind.

        Those that Kubernetes has built in need no request.

        Args:
            body: Object, as a dict, a `KubeObject` or a model.

        Raises:
            NotFound: If the server has no such kind. Other errors are those of
                `resource()`.
            OptionsError: If the body has no `apiVersion` or no kind.

        Cancellation:
            Safe.
        """
        api_version, kind = verbs.type_of(body)
        known = find_kind(api_version, kind)
        return known or await self.resource(kind, api_version)

    async def served(self, word: str, api_version: str = "") -> ServedResource:
        """Find a resource with its names, verbs and subresources.

        Raises:
            NotFound: Same errors as `resource()`.

        Cancellation:
            Safe.
        """
        known = await self._mapper()
        found = known.find(word, api_version)
        if found is None:
            known = await self._mapper(newer_than=known)
            found = known.find(word, api_version)

        if found is not None:
            return found

        if api_version in known.broken:
            # Not a NotFound: the resource may exist.
            problem = known.broken[api_version]
            text = f"the server cannot describe {api_version}: {problem}"
            raise ServerError(text, status=503, reason="ServiceUnavailable")

        # Takes 20 ms with 1,000 resources.
        text = await in_thread(functools.partial(known.unknown, word, api_version))
        raise NotFound(text, status=404, reason="NotFound")

    async def resources(self, *, category: str = "") -> tuple[ServedResource, ...]:
        """Return the resources of the server, each in its preferred version.

        The order is the server's, as in `kubectl api-resources`.

        Args:
            category: Only resources of this category, such as `"all"`; empty for all.

        Raises:
            ApiError: See the class.

        Cancellation:
            Safe.
        """
        return (await self._mapper()).preferred(category)

    def invalidate(self) -> None:
        """Drop the result, also that in files: the next call sends requests."""
        self._known = self._fetched_at = None
        self._invalidations += 1

    # ------------------------------------------------------------ result

    async def _mapper(self, *, newer_than: RESTMapper | None = None) -> RESTMapper:
        """Return the mapper, discovered again if necessary.

        Args:
            newer_than: Mapper that lacked a name. It is returned again if requests were
                sent a moment ago.
        """
        self._check_loop_and_server()
        known = self._known
        if known is not None and self._is_current(known, newer_than):
            return known

        attempts = self._attempts
        async with self._lock:
            if self._attempts == attempts:
                return await self._refresh(use_files=newer_than is None)

        # Another task has sent the requests meanwhile: share its outcome.
        match self._outcome:
            case RESTMapper() as found:
                return found
            case AioInformerError() as exc:
                raise copy.copy(exc) from exc
            case _:
                raise InternalError("discovery ended without a result")

    def _is_current(self, known: RESTMapper, newer_than: RESTMapper | None) -> bool:
        now = asyncio.get_running_loop().time()
        if now - self._known_since > self._max_age:
            return False

        fetched_now = (
            self._fetched_at is not None and now - self._fetched_at < REFRESH_SECONDS
        )
        return known is not newer_than or fetched_now

    async def _refresh(self, *, use_files: bool) -> RESTMapper:
        """Read the files, or send requests. Called by one task at a time."""
        invalidations = self._invalidations
        outcome: RESTMapper | AioInformerError
        try:
            outcome = await self._read_or_fetch(use_files=use_files)
        except AioInformerError as exc:
            outcome = exc

        # Callers after an `invalidate()` must not get a result from before it.
        if invalidations == self._invalidations:
            self._outcome = outcome
            self._attempts += 1

        if isinstance(outcome, AioInformerError):
            raise outcome

        return outcome

    async def _read_or_fetch(self, *, use_files: bool) -> RESTMapper:
        loop, folder = asyncio.get_running_loop(), self._folder()
        invalidations = self._invalidations
        if folder is not None and use_files and not invalidations:
            found = await in_thread(functools.partial(load, folder, self._max_age))
            if found is not None:
                known, known_since = await _index(found[0]), loop.time() - found[1]
                if not self._invalidations:
                    return self._take(known, known_since)

            invalidations = self._invalidations

        started = loop.time()
        known = await _index(await self._requests.fetch())
        if invalidations == self._invalidations:
            self._take(known, started)
            self._fetched_at = loop.time()

        if folder is not None:
            await in_thread(functools.partial(save, folder, known.groups))

        return known

    def _take(self, known: RESTMapper, known_since: float) -> RESTMapper:
        before = self.broken
        self._known, self._known_since = known, known_since
        for name, why in known.broken.items():
            if name not in before:
                logger.warning("discovery of %s failed: %s", name, why)

        return known

    def _folder(self) -> Path | None:
        if self._cache_dir is None:
            return None

        return folder_of(self._cache_dir, self._client.config.server)

    def _check_loop_and_server(self) -> None:
        """Start over in another loop, which has another clock, or for another server."""
        loop, config = asyncio.get_running_loop(), self._client.config
        if loop is not self._loop or config is not self._config:
            self._loop, self._config, self._lock = loop, config, asyncio.Lock()
            self._known = self._fetched_at = None


async def _index(groups: Iterable[Group]) -> RESTMapper:
    """Index the resources in a thread, as it takes 7 ms for 1,000 of them."""
    return await in_thread(functools.partial(RESTMapper, groups))


_ROOTS = ("/api", "/apis")


# Old servers have a document for each version. With many groups these are a hundred
# requests, which should not be sent at once.
REQUESTS_AT_ONCE = 10


@dataclass(frozen=True, slots=True)
class _CachedDocument:
    """Result of one discovery document, and its ETag."""

    etag: str
    groups: list[Group]


class DiscoveryRequests:
    """Discovery requests, with a cache of unchanged documents by ETag.

    Servers since 1.26 need two requests, older ones one more for each version of a
    group. Newer servers answer 304 if a document has not changed.

    Args:
        client: Client that sends the requests. Enter it before use.
    """

    def __init__(self, client: DiscoveryRequester) -> None:
        self._client = client
        self._cached: dict[str, _CachedDocument] = {}

    async def fetch(self) -> list[Group]:
        """Return all groups in the server's order, the core group first.

        If the server cannot describe a group, only its versions are affected: they have
        a `problem`.

        Raises:
            Forbidden: If discovery is not permitted.
            ApiError: If the server refused to list its groups for another reason.
            TransportError: If the network failed.
            DecodeError: If the list of groups cannot be read.

        Cancellation:
            Safe: connections are closed.
        """
        found: dict[str, list[Group]] = {}
        refused: list[ApiError] = []

        async def fetch(path: str) -> None:
            try:
                found[path] = await self._groups_at(path)
            except (NotFound, Forbidden) as exc:
                # Access may be limited to one of the two, as in client-go.
                refused.append(exc)

        await run_concurrently(*(fetch(path) for path in _ROOTS))
        if not found:
            raise _no_discovery(refused)

        groups = [group for path in _ROOTS for group in found.get(path, ())]
        await self._fetch_versions(groups)
        return groups

    async def _groups_at(self, path: str) -> list[Group]:
        known = self._cached.get(path)
        etag = known.etag if known is not None else ""
        async with self._client.stream(
            "GET", path, accept=AGGREGATED, etag=etag
        ) as response:
            if known is not None and response.status == 304:
                return known.groups

            # In a thread, as it takes 5 ms with 1,000 resources.
            groups = await in_thread(
                functools.partial(read_groups, await response.read())
            )
            etag = response.headers.get("ETag", "")

        self._cached.pop(path, None)
        if etag and all(it.known for group in groups for it in group.versions):
            self._cached[path] = _CachedDocument(etag, groups)

        return groups

    async def _fetch_versions(self, groups: list[Group]) -> None:
        """Request the versions that the group documents did not describe."""
        missing = (
            (group, version)
            for group in groups
            for version in group.versions
            if not version.known
        )

        async def fetch(rest: Iterator[tuple[Group, GroupVersion]]) -> None:
            for group, version in rest:
                await self._fetch_version(group, version)

        await run_concurrently(*(fetch(missing) for _ in range(REQUESTS_AT_ONCE)))

    async def _fetch_version(self, group: Group, version: GroupVersion) -> None:
        root = "/apis" if group.name else "/api"
        try:
            async with self._client.stream(
                "GET", f"{root}/{group.api_version(version)}"
            ) as response:
                version.resources = read_resources(await response.read())

        except (ApiError, DecodeError, TransportError) as exc:
            version.problem = str(exc)


def _no_discovery(refused: Sequence[ApiError]) -> Exception:
    """Return the error for a server without any discovery document."""
    forbidden = next((it for it in refused if isinstance(it, Forbidden)), None)
    if forbidden is not None:
        return forbidden

    # Not a `NotFound`, which would mean that a resource does not exist.
    return DecodeError(
        f"the server has neither {' nor '.join(_ROOTS)}: check that its URL is that of "
        f"an API server. It responded {str(refused[0])!r}"
    )
