"""`PagesAhead`: requests the next page of a list while the current one is read.

The first bytes of a page have the token of the next one. If that is requested at once,
it has arrived when the current page has been read. So a list in pages takes no longer
than a list without pages.
"""

from __future__ import annotations

from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Self

from aioinformer._tasks import BackgroundContext

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from aioinformer.watch.interface import ListerWatcher, ListOptions, ListPage

__all__ = ["PagesAhead"]


class PagesAhead:
    """Pages of a list, of which at most one is requested ahead.

    ::

        async with PagesAhead(source) as pages:
            async with pages.page(options) as page:
                async for objects in page:
                    pages.request_ahead(next_options)
                    ...

    A page ahead is a response whose body is not read yet. It takes a connection and the
    buffers of a socket, not the memory of a page. It is entered and left by a task of
    its own, and none is left when the outer context has ended.

    Args:
        source: Source of the pages.
    """

    def __init__(self, source: ListerWatcher) -> None:
        self._source = source
        self._ahead: BackgroundContext[ListPage] | None = None
        # Options of the page ahead; unused if there is none.
        self._ahead_options: ListOptions | None = None
        # Invariant: all pages that are being closed, and perhaps some that are closed.
        self._dropped: list[BackgroundContext[ListPage]] = []

    def request_ahead(self, options: ListOptions) -> None:
        """Request a page ahead; drop another one that was requested ahead.

        Repeating the same request changes nothing, so it may be called at each step of
        an iteration. It does not wait. An error is raised by the `page()` that uses
        that page, or never if none does.
        """
        if self._ahead is not None and self._ahead_options == options:
            return

        self._drop()
        self._ahead = BackgroundContext(self._source.list(options), "page ahead")
        self._ahead_options = options

    @asynccontextmanager
    async def page(self, options: ListOptions) -> AsyncIterator[ListPage]:
        """Return the page for these options: the one requested ahead, or a new one.

        A page that was requested ahead with other options is dropped.

        Raises:
            ApiError: If the server refused.
            TransportError: If the network failed.
            DecodeError: If the response cannot be read.

        Cancellation:
            Safe: the page is left.
        """
        held = self._take(options)
        if held is None:
            async with self._source.list(options) as page:
                yield page

            return

        try:
            yield await held.value()
        finally:
            await held.leave()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self._drop()
        async with AsyncExitStack() as leaving:
            for held in self._dropped:
                leaving.push_async_callback(held.leave)

    def _take(self, options: ListOptions) -> BackgroundContext[ListPage] | None:
        if self._ahead_options != options:
            self._drop()

        held, self._ahead = self._ahead, None
        return held

    def _drop(self) -> None:
        if self._ahead is not None:
            self._ahead.drop()
            self._dropped = [it for it in self._dropped if not it.left]
            self._dropped.append(self._ahead)
            self._ahead = None
