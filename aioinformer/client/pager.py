"""`Pager`: lists in pages, complete or as they arrive."""

from __future__ import annotations

from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from aioinformer._user_code import guarded_logger
from aioinformer.errors import DecodeError, OptionsError, ResourceExpired
from aioinformer.watch.interface import ListOptions
from aioinformer.watch.pages import PagesAhead

if TYPE_CHECKING:
    import builtins
    from collections.abc import AsyncGenerator

    from aioinformer.model.objects import KubeObject
    from aioinformer.watch.interface import ListerWatcher, ListPage

__all__ = ["PagedList", "Pager"]

logger: Final = guarded_logger(__name__)

PAGE_SIZE = 500

ALL = ListOptions()


@dataclass(frozen=True, slots=True)
class PagedList:
    """Complete list, with details of its reading."""

    objects: list[KubeObject]
    """Objects in the server's order."""

    resource_version: str
    """Resource version of the first page, which all pages reflect."""

    paginated: bool
    """True if there was more than one response."""

    skipped: int
    """Number of objects left out as unreadable or of another kind."""


class Pager:
    """Reader of lists in pages, client-go's ListPager.

    The next page is requested while one is read (see `PagesAhead`). All pages reflect
    the resource version of the first one, which the server remembers for about five
    minutes.

    A limit in the options of a call overrides the page size. The resource version and
    its match are sent only for the first page: servers refuse them with a continue
    token. (client-go's ListPager clears them in one of its two list methods only.)

    Errors of every method:
        ApiError: If the server refused the request.
        TransportError: If the network failed.
        DecodeError: If a response cannot be read, or leads back to an earlier page.

    Args:
        source: Collection to list.
        page_size: Objects per page; 0 for all in one response. Servers may ignore it.
        full_list_if_expired: True to read everything without pages if the list expires
            between two pages of a `list()`.
        pages_ahead: 1 to request the next page while one is read, else 0. Ten pages of
            500 pods, client-go's default, would take 35 MB.

    Raises:
        OptionsError: If a number is out of range.
    """

    def __init__(
        self,
        source: ListerWatcher,
        *,
        page_size: int = PAGE_SIZE,
        full_list_if_expired: bool = True,
        pages_ahead: int = 1,
    ) -> None:
        if page_size < 0:
            raise OptionsError(f"page_size must be at least 0, not {page_size}")

        if pages_ahead not in {0, 1}:
            raise OptionsError(f"pages_ahead must be 0 or 1, not {pages_ahead}")

        self._source = source
        self._page_size = page_size
        self._full_list_if_expired = full_list_if_expired
        self._pages_ahead = pages_ahead

    async def list(self, options: ListOptions = ALL) -> PagedList:
        """Read a list to its end.

        If it expires between two pages (any 410), everything is read once more, without
        pages and from the requested resource version; not if `options` start within a
        list.

        Raises:
            ResourceExpired: If the requested version is too old, or the list expired
                again; for other errors see the class.

        Cancellation:
            Safe: the connections are closed.
        """
        walk = self._walk(options)
        try:
            return await self._whole(walk)
        except ResourceExpired as exc:
            # On the first page, the requested version itself is too old.
            in_between = walk.pages and not options.continue_token
            if not in_between or not self._full_list_if_expired:
                raise

            logger.info(
                "list expired between two pages, reading it without pages: %s", exc
            )

        # Counted as the second page, so that `paginated` is True.
        walk = _Walk(replace(options, limit=0), pages=1)
        return await self._whole(walk)

    def batches(
        self, options: ListOptions = ALL
    ) -> AsyncGenerator[builtins.list[KubeObject], None]:
        """Iterate over the objects as they arrive, in batches.

        To leave the iteration early, close it: `async with aclosing(...)`. Otherwise,
        asyncio closes it later in a separate task.

        Pages are read at the pace of the iteration. A slow consumer gets a
        `TransportError`, as a server waits only for a limited time (a minute by
        default): process slowly after the iteration, or use smaller pages.

        Raises:
            ResourceExpired: If the list expired between two pages, as other pages would
                not continue the earlier ones. For other errors see the class. They are
                raised after all objects that arrived before.

        Cancellation:
            Safe if it is closed afterwards: see above.
        """
        return self._read(self._walk(options))

    async def items(
        self, options: ListOptions = ALL
    ) -> AsyncGenerator[KubeObject, None]:
        """Iterate over the objects: `async for pod in pager.items():`.

        Otherwise like `batches()`.

        Raises:
            ResourceExpired: If the list expired between two pages; for other errors see
                the class.

        Cancellation:
            Same as for `batches()`.
        """
        async with aclosing(self._read(self._walk(options))) as batches:
            async for objects in batches:
                for obj in objects:
                    yield obj  # noqa: ASYNC119 - see batches()

    def _walk(self, options: ListOptions) -> _Walk:
        return _Walk(replace(options, limit=options.limit or self._page_size))

    async def _whole(self, walk: _Walk) -> PagedList:
        objects: builtins.list[KubeObject] = []
        async with aclosing(self._read(walk)) as batches:
            async for batch in batches:
                objects += batch

        if walk.skipped:
            logger.warning(
                "list has %d unreadable objects, leaving them out", walk.skipped
            )

        return PagedList(objects, walk.version, walk.pages > 1, walk.skipped)

    async def _read(
        self, walk: _Walk
    ) -> AsyncGenerator[builtins.list[KubeObject], None]:
        async with PagesAhead(self._source) as pages:
            while walk.options is not None:
                async with (
                    pages.page(walk.options) as page,
                    aclosing(aiter(page)) as pieces,
                ):
                    async for objects in pieces:
                        # Servers write the token in front of the objects.
                        if self._pages_ahead and walk.has_new_page(page):
                            pages.request_ahead(walk.following(page))

                        yield objects  # noqa: ASYNC119 - see batches()

                walk.advance(page)


@dataclass(slots=True)
class _Walk:
    """Progress in reading a list."""

    options: ListOptions | None
    """Options of the next request; None at the end."""

    pages: int = 0
    """Number of pages read to their end."""

    version: str = ""
    skipped: int = 0
    limit: int = field(init=False)
    tokens: set[str] = field(default_factory=set)
    """Continue tokens of the pages requested so far."""

    def __post_init__(self) -> None:
        assert self.options is not None
        self.limit = self.options.limit
        self.tokens.add(self.options.continue_token)

    def has_new_page(self, page: ListPage) -> bool:
        """Return whether a new page is known to follow this one."""
        return bool(page.continue_token) and page.continue_token not in self.tokens

    def following(self, page: ListPage) -> ListOptions:
        """Return the options of the request after this page."""
        return ListOptions(limit=self.limit, continue_token=page.continue_token)

    def advance(self, page: ListPage) -> None:
        """Continue with the next page.

        Raises:
            DecodeError: If that page was read before.
        """
        self.pages += 1
        self.skipped += page.skipped
        self.version = self.version or page.resource_version
        if not page.continue_token:
            self.options = None
            return

        if not self.has_new_page(page):
            raise DecodeError(
                "server repeats a page of the list: its continue token is not new"
            )

        self.tokens.add(page.continue_token)
        self.options = self.following(page)
