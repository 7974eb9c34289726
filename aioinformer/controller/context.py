"""`Context`: what a reconcile is given besides its request."""

from __future__ import annotations

import asyncio
import functools
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar

from aioinformer._tasks import in_thread_until_done, wait_through_cancellation
from aioinformer.errors import DecodeError, OptionsError, TerminalError
from aioinformer.model.callables import check_plain, check_runs
from aioinformer.model.objects import KubeObject

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from aioinformer.controller.causes import Cause
    from aioinformer.controller.client import ReconcileClient
    from aioinformer.controller.reconcile import Reconcile
    from aioinformer.controller.request import ReconcileRequest
    from aioinformer.controller.result import Result
    from aioinformer.informer.lister import Lister

__all__ = ["Context", "Threads", "with_object"]

P = ParamSpec("P")
T = TypeVar("T")

MOST_THREADS: Final = 8
"""So many functions of one reconcile run in threads at the same time."""


class Threads:
    """Threads of one reconcile, which does not end before they have.

    Args:
        name: Prefix of their names.
        overdue: Called with the name of a function and the seconds since its
            cancellation, if it has not ended long after it.
    """

    __slots__ = ("_calls", "_name", "_over", "_overdue", "_quiet", "_slots")

    def __init__(self, name: str, overdue: Callable[[str, float], None]) -> None:
        self._name = name
        self._overdue = overdue
        self._slots = asyncio.Semaphore(MOST_THREADS)
        # Calls that have not ended. While there are any, `_quiet` is pending.
        self._calls = 0
        self._quiet: asyncio.Future[None] | None = None
        self._over = False

    async def call(self, function: Callable[[], T], name: str) -> T:
        """Call a function in a thread: see `Context.run_in_thread`."""
        if self._over:
            raise OptionsError(f"{name} cannot be called: its reconcile has ended")

        if not self._calls:
            self._quiet = asyncio.get_running_loop().create_future()

        self._calls += 1
        try:
            async with self._slots:
                return await in_thread_until_done(
                    function,
                    f"{self._name} {name}",
                    overdue=functools.partial(self._overdue, name),
                )
        finally:
            self._calls -= 1
            if not self._calls and self._quiet is not None:
                self._quiet.set_result(None)

    async def ended(self) -> None:
        """Wait until no call is left, and refuse further ones.

        A reconcile may end before a call: one that it made in a task which it does not
        await.

        Cancellation:
            Deferred until then.
        """
        interrupted = None
        while self._calls and self._quiet is not None:
            interrupted = await wait_through_cancellation(self._quiet) or interrupted

        self._over = True
        if interrupted is not None:
            raise interrupted


class Context:
    """What one reconcile is given besides its request. Made by `Controller`.

    Attributes:
        request: What it is about.
        lister: Reads the objects of the informer that is the controller's `for_`.
        causes: Why it is called: what has happened to the request since it was worked on
            last, the first things first, 10 of them at most. There may be none, as for
            what was put into the queue by hand.
        attempt: 1, and one more for each failure in a row, as the queue's rate limiter
            counts them.
        stale: True if something that an earlier reconcile of this request, or this one,
            has written is not shown by the informers in time: reads may not see it.
    """

    __slots__ = (
        "_client",
        "_settle",
        "_threads",
        "attempt",
        "causes",
        "lister",
        "request",
        "stale",
    )

    def __init__(
        self,
        request: ReconcileRequest,
        lister: Lister,
        *,
        causes: tuple[Cause, ...],
        attempt: int,
        stale: bool,
        client: ReconcileClient | None,
        settle: Callable[[Context], Awaitable[None]],
        threads: Threads,
    ) -> None:
        self.request = request
        self.lister = lister
        self.causes = causes
        self.attempt = attempt
        self.stale = stale
        self._client = client
        self._settle = settle
        self._threads = threads

    def __repr__(self) -> str:
        return f"<Context of {self.request.key} attempt={self.attempt}>"

    @property
    def client(self) -> ReconcileClient:
        """The controller's client, which remembers what is written through it.

        The next reconcile of the same request begins when the informers of the
        controller show it: what you have written, you read.

        Raises:
            OptionsError: If the controller was given no client.
        """
        if self._client is None:
            raise OptionsError("this controller has no client: Controller(client=...)")

        return self._client

    async def settled(self) -> None:
        """Wait, in the middle of a reconcile, until what it has written is shown.

        It is what happens anyway before the next one. After 10 s, or if the versions of
        the server went backwards, it returns with `stale` set to True, and a warning.

        Cancellation:
            Safe.
        """
        await self._settle(self)

    async def run_in_thread(
        self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Call a plain function that blocks in a thread, and wait until it has ended.

        ::

            report = await ctx.run_in_thread(requests.get, url, timeout=30)

        No thread can be cancelled, so it is always waited for: the key stays in work and
        the Lease is neither released nor given to another until the function has
        ended (G10, G11). `asyncio.to_thread()` has neither: its thread goes on after a
        timeout, beside the next reconcile of the same key. Give the function a timeout of
        its own, and let it do one write at a time: nothing fences its writes.

        The function gets a copy of the context variables, and a thread that nothing else
        waits for. A reconcile has 8 threads at most; further calls wait for them.

        Args:
            function: A plain function. It must not use the objects of the event loop,
                such as `ctx.client`.
            args: Its arguments.
            kwargs: The same.

        Returns:
            What the function returned.

        Raises:
            OptionsError: If the function is a coroutine function, or the reconcile has
                ended.
            RuntimeError: If the operating system cannot start a thread.
            BaseException: The exception of the function.

        Cancellation:
            Deferred until the function has ended, by a timeout or the end of the program
            as well, and then raised. A warning is logged 10 s after it, and then once a
            minute. A function that never ends holds its key and the Lease until the
            process is killed.
        """
        check_plain(function, "what runs in a thread")
        name = getattr(function, "__qualname__", repr(function))
        return await self._threads.call(
            functools.partial(function, *args, **kwargs), name
        )


def with_object(
    kind: type[T],
) -> Callable[[Callable[[T, Context], Awaitable[Result | None]]], Reconcile]:
    """Decorate a reconcile that takes the object itself in the place of its request.

    ::

        @with_object(Site)  # a msgspec Struct, a Pydantic model, ...; or KubeObject
        async def reconcile(site: Site, ctx: Context) -> Result | None: ...

    It is not called for an object that is not there: nothing is left to do then, unless
    the object has a finalizer, and that keeps it there. (The request is in
    `ctx.request`.) A method is wrapped when it is bound: `with_object(Site)(self.sync)`.

    Args:
        kind: What the cached object is turned into, as by `KubeObject.into`. One that
            does not fit is a `TerminalError`: nothing helps but a change of it.

    Raises:
        OptionsError: The decorated function is a generator.
    """

    def adapt(function: Callable[[T, Context], Awaitable[Result | None]]) -> Reconcile:
        check_runs(function, "a reconcile")

        @functools.wraps(function)
        async def reconcile(request: ReconcileRequest, ctx: Context) -> Result | None:
            cached = ctx.lister.get(request.key)
            if cached is None:
                return None

            try:
                obj: Any = cached if kind is KubeObject else cached.into(kind)
            except DecodeError as exc:
                raise TerminalError(str(exc)) from exc

            return await function(obj, ctx)

        return reconcile

    return adapt
