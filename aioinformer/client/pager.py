"""`Pager`: reads a list in pages, whole or as it comes."""

from __future__ import annotations

from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

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

logger = guarded_logger(__name__)

PAGE_SIZE = 500

ALL = ListOptions()


@dataclass(frozen=True, slots=True)
class PagedList:
    """A whole list, and what was learnt while it was read."""

    objects: list[KubeObject]
    """In the server's order."""

    resource_version: str
    """That of the first page, which all pages show."""

    paginated: bool
    """False if all came in one answer."""

    skipped: int
    """Objects left out, because they cannot be read or are of another kind."""


class Pager:
    """Reads lists in pages; what client-go calls a ListPager.

    While one page is read, the next one is asked for (see `PagesAhead`). All pages show
    one moment, that of the first one, for as long as the server remembers it: about
    five minutes.

    Where the options of a call have a limit of their own, it is the page's size. The
    version and its match are said to the server for the first page alone: with a
    continue token it refuses them. (client-go's ListPager clears them in one of its two
    ways to list, and not in the other.)

    Errors of every method:
        ApiError: If the server refused.
        TransportError: If the network failed.
        DecodeError: If an answer cannot be read, or leads back to an earlier page.

    Args:
        source: What to list.
        page_size: Objects in one page; 0 for all in one answer. A server may ignore it.
        full_list_if_expired: Read all at once, without pages, if the server forgets the
            list between two pages of a `list()`.
        pages_ahead: 1 to ask for the next page while one is read, 0 not to. There is no
            more: read ahead, ten pages of 500 pods (client-go's default) take 35 MB.

    Raises:
        OptionsError: If a number is none of these.
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

        If the server forgets it between two pages (410, whatever its reason says), all
        is read again, once, without pages and as of the version that was asked for; not
        where `options` begin in the middle of a list.

        Raises:
            ResourceExpired: If the server does not have the first page as asked for, or
                forgot the list for good; for other errors see the class.

        Cancellation:
            Safe: the connections are closed.
        """
        walk = self._walk(options)
        try:
            return await self._whole(walk)
        except ResourceExpired as exc:
            # Expired on the first page, it is what was asked for that is too old.
            in_between = walk.pages and not options.continue_token
            if not in_between or not self._full_list_if_expired:
                raise

            logger.info("a list expired between two pages, reading it whole: %s", exc)

        # Counted as the second page: what is answered was not read in one.
        walk = _Walk(replace(options, limit=0), pages=1)
        return await self._whole(walk)

    def batches(
        self, options: ListOptions = ALL
    ) -> AsyncGenerator[builtins.list[KubeObject], None]:
        """Iterate over the objects as they arrive, some at each step.

        Who leaves the iteration early closes it: `async with aclosing(...)`. If it is
        just let go, asyncio closes it a little later, in a task of its own.

        Pages are read as the objects are taken. A server waits for that only so long
        (a minute, unless told), then the rest of the page is a `TransportError`: what
        takes longer is done behind the iteration, or with smaller pages.

        Raises:
            ResourceExpired: If the server forgot the list between two pages: there are
                no others that would continue what was handed out. For other errors see
                the class; they come when what arrived before was handed out.

        Cancellation:
            Safe if it is closed then: see above.
        """
        return self._read(self._walk(options))

    async def items(
        self, options: ListOptions = ALL
    ) -> AsyncGenerator[KubeObject, None]:
        """Iterate over the objects: `async for pod in pager.items():`.

        As `batches()` in all else.

        Raises:
            ResourceExpired: If the server forgot the list between two pages; for other
                errors see the class.

        Cancellation:
            As of `batches()`.
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
                "%d objects of a list cannot be read: they are left out", walk.skipped
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
                        if self._pages_ahead and walk.goes_on(page):
                            pages.ask(walk.following(page))

                        yield objects  # noqa: ASYNC119 - see batches()

                walk.turn(page)


@dataclass(slots=True)
class _Walk:
    """How far a list has been read."""

    options: ListOptions | None
    """What to ask for next; None at the end."""

    pages: int = 0
    """Pages read to their end."""

    version: str = ""
    skipped: int = 0
    limit: int = field(init=False)
    tokens: set[str] = field(default_factory=set)
    """Where the pages asked for so far began."""

    def __post_init__(self) -> None:
        assert self.options is not None
        self.limit = self.options.limit
        self.tokens.add(self.options.continue_token)

    def goes_on(self, page: ListPage) -> bool:
        """Whether a page that was not asked for yet follows this one, as far as known."""
        return bool(page.continue_token) and page.continue_token not in self.tokens

    def following(self, page: ListPage) -> ListOptions:
        """What to ask for behind this page."""
        return ListOptions(limit=self.limit, continue_token=page.continue_token)

    def turn(self, page: ListPage) -> None:
        """Go on to the page behind this one.

        Raises:
            DecodeError: If it is one that was read before.
        """
        self.pages += 1
        self.skipped += page.skipped
        self.version = self.version or page.resource_version
        if not page.continue_token:
            self.options = None
            return

        if not self.goes_on(page):
            raise DecodeError("a list does not get on: its next page is the same again")

        self.tokens.add(page.continue_token)
        self.options = self.following(page)
