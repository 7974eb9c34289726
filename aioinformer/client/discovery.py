"""`Discovery`: which resources a server has, and which one a word means."""

from __future__ import annotations

import asyncio
import copy
import functools
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from aioinformer._tasks import in_thread, run_concurrently
from aioinformer._user_code import guarded_logger
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
from aioinformer.model.times import seconds_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from contextlib import AbstractAsyncContextManager

    from aioinformer.client.config import ClientConfig
    from aioinformer.client.discovery_documents import Group, GroupVersion
    from aioinformer.client.response import Response
    from aioinformer.client.rest_mapper import ServedResource
    from aioinformer.model.resource import Resource
    from aioinformer.model.times import Duration

__all__ = ["Discovery", "Questions"]


logger = guarded_logger(__name__)


# As kubectl has it. What it does not know, it asks for earlier.
MAX_AGE_SECONDS = 6 * 60 * 60.0


# A definition is served a second or two after it was accepted. Whoever asks for an
# unknown name again and again costs the server two small answers in this time.
REFRESH_SECONDS = 2.0


class DiscoveryRequester(Protocol):
    """Sender of discovery requests, such as a `Client`."""

    @property
    def config(self) -> ClientConfig:
        """The configuration; raises `OptionsError` if it was never read."""

    def stream(
        self, method: str, path: str, *, accept: str = "", etag: str = ""
    ) -> AbstractAsyncContextManager[Response]:
        """Send a request and read its response; see `Client.stream()`."""


class Discovery:
    """Knows which resources a server has, and finds those that words mean.

    ::

        async with Client.from_env() as client:
            found = await client.discovery.resource("deploy")
            found.path("shop")      # '/apis/apps/v1/namespaces/shop/deployments'

    A client has one, `client.discovery`; it may be made, and asked for names, by
    anybody else, too. Nothing is asked before somebody wants to know, and then once for
    all who do. The answer is kept in memory, and on request in files; after `max_age`
    the server is asked again, and also when a name is unknown, at most every 2 s.

    Words are understood as kubectl does: a plural, a singular, a short name or a kind,
    in upper or lower case (`deployments`, `deployment`, `deploy`, `Deployment`), perhaps
    with a group (`deploy.apps`) or a version and a group (`deployments.v1.apps`). Of
    several with one name the first counts, in the server's order of groups; of one in
    several versions it is the one that the server prefers.

    A group that the server cannot tell of, such as one whose APIService does not answer,
    hides only itself: see `broken`.

    Errors of every coroutine:
        ApiError: The server refused to say what it has.
        TransportError: The network failed.
        DecodeError: The answer cannot be read.
        OptionsError: The client was never entered.
        WrongLoop: The client was entered in another event loop.

    Args:
        client: Whom to ask; must be entered by then.
        cache_dir: Where to keep files, in the layout of kubectl, so that both use them:
            kubectl's own folder is `~/.kube/cache/discovery`. New files and folders can
            be read by their owner only. None for no files.
        max_age: For how many seconds, or how long, an answer is good.

    Raises:
        OptionsError: If `max_age` cannot be one.
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
            raise OptionsError("max_age cannot be less than 0")

        self._questions = Questions(client)
        self._known: RESTMapper | None = None
        # When the server said it; all times are of this loop.
        self._learnt_at = 0.0
        self._asked_at: float | None = None
        # How the last attempt to learn it ended, and how many have.
        self._outcome: RESTMapper | AioInformerError | None = None
        self._attempts = 0
        self._invalidations = 0
        # Invariant: all of the above is of this loop, and of this server.
        self._loop: asyncio.AbstractEventLoop | None = None
        self._config: ClientConfig | None = None
        self._turn = asyncio.Lock()

    def __repr__(self) -> str:
        return f"<Discovery known={self._known}>"

    @property
    def broken(self) -> Mapping[str, str]:
        """What the server could not tell of: `"metrics.k8s.io/v1beta1"`, and why.

        Of the last answer; empty before the first one.
        """
        return {} if self._known is None else dict(self._known.broken)

    async def resource(self, word: str, api_version: str = "") -> Resource:
        """Find the resource that a word means.

        Args:
            word: See the class.
            api_version: Only in this one, such as `"apps/v1"`; then the word is a name
                without a group.

        Returns:
            The resource, in the version that the server prefers unless told.

        Raises:
            NotFound: The server has, a moment ago, none of this name. The text says what
                is similar, and which groups could not be asked.
            ServerError: The server cannot tell what is in `api_version`. For other
                errors see the class.

        Cancellation:
            Safe.
        """
        return (await self.served(word, api_version)).resource

    async def served(self, word: str, api_version: str = "") -> ServedResource:
        """The same with all that the server says of it: its names, verbs, subresources.

        Raises:
            NotFound: As `resource()`, and so for the other errors.

        Cancellation:
            Safe.
        """
        known = await self._catalogue()
        found = known.find(word, api_version)
        if found is None:
            known = await self._catalogue(newer_than=known)
            found = known.find(word, api_version)

        if found is not None:
            return found

        if api_version in known.broken:
            # Whether it is there is not known: nobody may take it for gone.
            problem = known.broken[api_version]
            text = f"the server cannot tell what is in {api_version}: {problem}"
            raise ServerError(text, status=503, reason="ServiceUnavailable")

        # 20 ms with 1,000 resources.
        text = await in_thread(functools.partial(known.unknown, word, api_version))
        raise NotFound(text, status=404, reason="NotFound")

    async def resources(self, *, category: str = "") -> tuple[ServedResource, ...]:
        """What the server has, each in the version that it prefers.

        In the server's order, as `kubectl api-resources` finds them.

        Args:
            category: Only those of a set, such as `"all"`; empty for all.

        Raises:
            ApiError: See the class.

        Cancellation:
            Safe.
        """
        return (await self._catalogue()).preferred(category)

    def invalidate(self) -> None:
        """Forget everything, and ignore files from before: who asks next asks the server."""
        self._known = self._asked_at = None
        self._invalidations += 1

    # ------------------------------------------------------------ what is known

    async def _catalogue(self, *, newer_than: RESTMapper | None = None) -> RESTMapper:
        """What the server has.

        Args:
            newer_than: What was not enough; it is good enough still if the server was
                asked a moment ago.
        """
        self._check_place()
        known = self._known
        if known is not None and self._is_good(known, newer_than):
            return known

        attempts = self._attempts
        async with self._turn:
            if self._attempts == attempts:
                return await self._learn(files_count=newer_than is None)

        # Somebody else asked while we waited: it is an answer to us, too.
        match self._outcome:
            case RESTMapper() as found:
                return found
            case AioInformerError() as exc:
                raise copy.copy(exc) from exc
            case _:
                raise InternalError("an attempt has ended without an outcome")

    def _is_good(self, known: RESTMapper, newer_than: RESTMapper | None) -> bool:
        now = asyncio.get_running_loop().time()
        if now - self._learnt_at > self._max_age:
            return False

        asked_now = (
            self._asked_at is not None and now - self._asked_at < REFRESH_SECONDS
        )
        return known is not newer_than or asked_now

    async def _learn(self, *, files_count: bool) -> RESTMapper:
        """Read the files, or ask the server. Called by one at a time."""
        invalidations = self._invalidations
        outcome: RESTMapper | AioInformerError
        try:
            outcome = await self._read_or_ask(files_count=files_count)
        except AioInformerError as exc:
            outcome = exc

        # Who asked behind an `invalidate()` is not content with what was under way.
        if invalidations == self._invalidations:
            self._outcome = outcome
            self._attempts += 1

        if isinstance(outcome, AioInformerError):
            raise outcome

        return outcome

    async def _read_or_ask(self, *, files_count: bool) -> RESTMapper:
        loop, folder = asyncio.get_running_loop(), self._folder()
        invalidations = self._invalidations
        if folder is not None and files_count and not invalidations:
            found = await in_thread(functools.partial(load, folder, self._max_age))
            if found is not None:
                known, learnt_at = await _arranged(found[0]), loop.time() - found[1]
                if not self._invalidations:
                    return self._take(known, learnt_at)

            invalidations = self._invalidations

        asked_at = loop.time()
        known = await _arranged(await self._questions.ask())
        if invalidations == self._invalidations:
            self._take(known, asked_at)
            self._asked_at = loop.time()

        if folder is not None:
            await in_thread(functools.partial(save, folder, known.groups))

        return known

    def _take(self, known: RESTMapper, learnt_at: float) -> RESTMapper:
        before = self.broken
        self._known, self._learnt_at = known, learnt_at
        for name, why in known.broken.items():
            if name not in before:
                logger.warning("what is in %s is not known: %s", name, why)

        return known

    def _folder(self) -> Path | None:
        if self._cache_dir is None:
            return None

        return folder_of(self._cache_dir, self._client.config.server)

    def _check_place(self) -> None:
        """Begin anew in another loop, which has other times, or with another server."""
        loop, config = asyncio.get_running_loop(), self._client.config
        if loop is not self._loop or config is not self._config:
            self._loop, self._config, self._turn = loop, config, asyncio.Lock()
            self._known = self._asked_at = None


async def _arranged(groups: Iterable[Group]) -> RESTMapper:
    """Arrange by names; in a thread, as it takes 7 ms with 1,000 resources."""
    return await in_thread(functools.partial(RESTMapper, groups))


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

    def __init__(self, client: DiscoveryRequester) -> None:
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

        await run_concurrently(*(ask(path) for path in _ROOTS))
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

        await run_concurrently(*(ask(missing) for _ in range(REQUESTS_AT_ONCE)))

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
