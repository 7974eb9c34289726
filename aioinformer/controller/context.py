"""`Reconcile`: the function that a user writes, and its `Context`."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, ParamSpec, TypeAlias, TypeVar, cast

from aioinformer.controller.reconcile import ReconcileRequest, Result
from aioinformer.controller.threads import close_coroutine
from aioinformer.errors import DecodeError, OptionsError, TerminalError
from aioinformer.model.callables import (
    check_plain,
    check_runs,
    check_takes,
    is_coroutine_function,
)
from aioinformer.model.objects import KubeObject

if TYPE_CHECKING:
    from aioinformer.controller.client import ReconcileClient
    from aioinformer.controller.reconcile import Cause
    from aioinformer.controller.threads import Threads
    from aioinformer.informer.lister import Lister

__all__ = [
    "Context",
    "PlainReconcile",
    "Reconcile",
    "check_reconcile",
    "reconcile_of",
    "with_object",
]


P = ParamSpec("P")
T = TypeVar("T")


class Context:
    """Context of one reconcile, created by `Controller`.

    Attributes:
        request: Request of the reconcile.
        lister: Lister of the controller's `for_` informer.
        causes: Changes since the last reconcile of the request, oldest first, at most
            10. Empty if the request was added to the queue by hand.
        attempt: Number of attempts in a row, by the queue's rate limiter, 1 for the
            first.
        stale: True if the informers did not show the writes of this or an earlier
            reconcile of the request in time.
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
        self.request: ReconcileRequest = request
        self.lister: Lister = lister
        self.causes: tuple[Cause, ...] = causes
        self.attempt: int = attempt
        self.stale: bool = stale
        self._client = client
        self._settle = settle
        self._threads = threads

    def __repr__(self) -> str:
        return f"<Context of {self.request.key} attempt={self.attempt}>"

    @property
    def client(self) -> ReconcileClient:
        """Client that records its writes.

        The next reconcile of the same request begins when the informers of the
        controller show them, so that it reads its own writes.

        Raises:
            OptionsError: If the controller has no client.
        """
        if self._client is None:
            raise OptionsError(
                "this controller has no client: pass Controller(client=...)"
            )

        return self._client

    async def settled(self) -> None:
        """Wait, within a reconcile, until the informers show its writes.

        Otherwise that happens before the next reconcile. After 10 s, or if the versions
        of the server go backwards, it sets `stale` and logs a warning.

        Cancellation:
            Safe.
        """
        await self._settle(self)

    async def run_in_thread(
        self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Call a blocking function in a thread, and wait until it has ended.

        ::

            report = await ctx.run_in_thread(requests.get, url, timeout=30)

        Threads cannot be cancelled, so the call always waits for its end: the key stays
        in work and the Lease is held until then (G10, G11). With `asyncio.to_thread()`,
        the thread runs on after a timeout, concurrently with the next reconcile of the
        key. Give the function a timeout of its own. Its writes are not fenced, so let
        it do one write at a time.

        The function gets a copy of the context variables, and a thread of its own. A
        reconcile has at most 8 threads, and further calls wait.

        Args:
            function: Plain function. It uses objects of the event loop, such as
                `ctx.client`, by `ctx.wait()` only.
            args: Positional arguments of the function.
            kwargs: Keyword arguments of the function.

        Returns:
            Return value of the function.

        Raises:
            OptionsError: If the function is a coroutine function, or the reconcile has
                ended.
            RuntimeError: If the operating system cannot start a thread.
            BaseException: Exception of the function.

        Cancellation:
            Deferred until the function has ended, also by a timeout or the end of the
            program. A warning is logged after 10 s, and then every minute. A function
            that never ends holds its key and the Lease until the process is killed.
        """
        check_plain(function, "a function for a thread")
        name = getattr(function, "__qualname__", repr(function))
        return await self._threads.call(
            functools.partial(function, *args, **kwargs), name
        )

    def wait(self, awaitable: Awaitable[T], /) -> T:
        """Await something in the event loop, and block this thread until it has ended.

        For plain functions in threads: a plain reconcile, and functions of
        `run_in_thread()`. Writes of `ctx.client` are fenced and recorded as usual.

        ::

            def reconcile(request: ReconcileRequest, ctx: Context) -> None:
                ctx.wait(ctx.client.delete(PODS, request.name, namespace=request.namespace))

        Args:
            awaitable: Coroutine, or anything else that can be awaited.

        Returns:
            Its result.

        Raises:
            CancelledError: If the reconcile was cancelled, for example by its timeout.
                It is `asyncio.CancelledError`, which `except Exception` does not catch.
                Further calls raise it at once.
            OptionsError: If it is called in the event loop, where `await` belongs, or
                the argument cannot be awaited.
            BaseException: Exception of the coroutine.
        """
        return self._threads.wait(awaitable)


Reconcile: TypeAlias = Callable[[ReconcileRequest, Context], Awaitable[Result | None]]
"""Coroutine function that brings an object to its desired state: see `Controller`."""

PlainReconcile: TypeAlias = Callable[[ReconcileRequest, Context], Result | None]
"""Plain function that does the same in a thread: see `Context.wait`."""


def with_object(
    kind: type[T],
) -> Callable[
    [Callable[[T, Context], Awaitable[Result | None] | Result | None]], Reconcile
]:
    """Decorate a reconcile that takes the object itself instead of its request.

    ::

        @with_object(Site)  # a msgspec Struct, a Pydantic model, ...; or KubeObject
        async def reconcile(site: Site, ctx: Context) -> Result | None: ...

    It is not called for an object that does not exist. Use a finalizer to clean up
    before a deletion. The request is in `ctx.request`. Wrap a method when it is bound:
    `with_object(Site)(self.sync)`. A plain function is called in a thread.

    Args:
        kind: Type of the argument, as for `KubeObject.into`. An object that does not
            fit is a `TerminalError`, as only a change of the object helps.

    Raises:
        OptionsError: If the decorated function is a generator.
    """

    def adapt(
        function: Callable[[T, Context], Awaitable[Result | None] | Result | None],
    ) -> Reconcile:
        check_runs(function, "a reconcile")
        called = _called(function)

        @functools.wraps(function)
        async def reconcile(request: ReconcileRequest, ctx: Context) -> Result | None:
            cached = ctx.lister.get(request.key)
            if cached is None:
                return None

            try:
                obj: Any = cached if kind is KubeObject else cached.into(kind)
            except DecodeError as exc:
                raise TerminalError(str(exc)) from exc

            return await called(obj, ctx)

        return reconcile

    return adapt


def reconcile_of(function: Reconcile | PlainReconcile) -> Reconcile:
    """Return a reconcile as a coroutine function. A plain one is called in a thread.

    Raises:
        OptionsError: If it is neither, is a generator, or does not take two arguments.
    """
    if isinstance(function, type) or not callable(function):
        raise OptionsError(
            "a reconcile must be a coroutine function (`async def`) or a plain function, "
            f"not {function!r}"
        )

    check_runs(function, "a reconcile")
    check_takes(function, "a reconcile", "reconcile(request, ctx)")
    return _called(function)


def check_reconcile(function: object, what: str) -> None:
    """Check a function that is called like a reconcile, but never in a thread.

    Args:
        function: Function of a request and a context.
        what: Description for the error, such as `"a daemon"`.

    Raises:
        OptionsError: If it is not a coroutine function (or an object whose `__call__`
            is one, or a decorated one), is a generator, or does not take two arguments.
    """
    if not is_coroutine_function(function):
        raise OptionsError(
            f"{what} must be a coroutine function (`async def`), not {function!r}"
        )

    check_runs(function, what)
    check_takes(function, what, "function(request, ctx)")


def _called(
    function: Callable[[T, Context], Awaitable[Result | None] | Result | None],
) -> Callable[[T, Context], Awaitable[Result | None]]:
    """Return a coroutine function, which calls a plain function in a thread."""
    if is_coroutine_function(function):
        return function

    plain = cast("Callable[[T, Context], Any]", function)

    @functools.wraps(plain)
    async def called(subject: T, ctx: Context) -> Result | None:
        answer = await ctx.run_in_thread(plain, subject, ctx)
        if inspect.isawaitable(answer):
            close_coroutine(answer)
            raise TypeError(
                f"{plain!r} was called in a thread, as it is a plain function, and "
                "returned a coroutine: define it by `async def`"
            )

        return cast("Result | None", answer)

    return called
