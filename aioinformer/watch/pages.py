"""`PagesAhead`: asks for the next page of a list while the one before is read.

Where the next page begins is known as soon as the first bytes of a page are here. Asked
for then, it waits at the door when the page before has been read: a list in pages takes
as long as a whole one.
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
    """The pages of a list, of which one at most is asked for ahead.

    ::

        async with PagesAhead(source) as pages:
            async with pages.page(options) as page:
                async for objects in page:
                    pages.ask(next_options)
                    ...

    What is asked for ahead is a request whose answer's body nobody reads yet: it takes
    a connection and the buffers of a socket, not the memory of a page. It is entered
    and left by a task of its own, and none is left when the outer context is.

    Args:
        source: Answers the requests.
    """

    def __init__(self, source: ListerWatcher) -> None:
        self._source = source
        self._ahead: BackgroundContext[ListPage] | None = None
        # What the page ahead was asked for with; without meaning if there is none.
        self._asked: ListOptions | None = None
        # Invariant: all that is on its way out, and perhaps some that is out.
        self._dropped: list[BackgroundContext[ListPage]] = []

    def ask(self, options: ListOptions) -> None:
        """Begin to ask for a page; another one that was asked for ahead is dropped.

        Asking again for the same changes nothing, so it may be called at each step of
        an iteration. It waits for nothing; an error is raised by the `page()` that
        wants that page, and by nobody if none does.
        """
        if self._ahead is not None and self._asked == options:
            return

        self._drop()
        self._ahead = BackgroundContext(self._source.list(options), "page ahead")
        self._asked = options

    @asynccontextmanager
    async def page(self, options: ListOptions) -> AsyncIterator[ListPage]:
        """The page of these options: the one asked for ahead, or one asked for now.

        A page of other options that was asked for ahead is dropped.

        Raises:
            ApiError: If the server refused.
            TransportError: If the network failed.
            DecodeError: If the answer cannot be read.

        Cancellation:
            Safe: the page is left, whoever asked for it.
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
        if self._asked != options:
            self._drop()

        held, self._ahead = self._ahead, None
        return held

    def _drop(self) -> None:
        if self._ahead is not None:
            self._ahead.drop()
            self._dropped = [it for it in self._dropped if not it.left]
            self._dropped.append(self._ahead)
            self._ahead = None
