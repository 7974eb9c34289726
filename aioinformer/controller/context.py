"""`Reconcile`: the function that a user writes, and its `Context`."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable
from typing import (
    TYPE_CHECKING,
    Any,
    Literal,
    ParamSpec,
    TypeAlias,
    TypeVar,
    cast,
    get_origin,
)

from aioinformer.controller.client import required_client
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
    from collections.abc import Mapping

    from aioinformer.client.verbs import Body
    from aioinformer.controller.client import ReconcileClient
    from aioinformer.controller.reconcile import Cause
    from aioinformer.controller.threads import Threads
    from aioinformer.controller.writer import Writer
    from aioinformer.informer.lister import Lister
    from aioinformer.model.resource import Resource

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
    """Context of one reconcile, or of one call of a daemon, created by `Controller`.

    Attributes:
        request: Request of the reconcile.
        lister: Lister of the controller's `for_` informer.
        causes: Changes since the last reconcile of the request, oldest first, at most
            10. Empty for a daemon, or if the request was added to the queue by hand.
        attempt: Number of attempts in a row, by the queue's rate limiter, 1 for the
            first.
        stale: True if the informers did not show the writes of this or an earlier
            reconcile of the request in time.
    """

    __slots__ = (
        "_client",
        "_settle",
        "_threads",
        "_writer",
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
        writer: Writer,
    ) -> None:
        self.request: ReconcileRequest = request
        self.lister: Lister = lister
        self.causes: tuple[Cause, ...] = causes
        self.attempt: int = attempt
        self.stale: bool = stale
        self._client = client
        self._settle = settle
        self._threads = threads
        self._writer = writer

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
        return required_client(self._client)

    @property
    def object(self) -> KubeObject:
        """Object with which the reconcile began: of `with_object`, the one it passed.

        A reconcile of typed objects passes it to `event()`.

        Raises:
            NotFound: If it did not exist.
        """
        return self._writer.owner

    # ------------------------------------------------------------ writing

    async def apply(
        self, child: Body, *, resource: Resource | None = None
    ) -> KubeObject:
        """Create or change an object that the object of this reconcile owns.

        ::

            deployment = await ctx.apply(deployment_of(site))

        It adds an owner reference, as `set_controller_reference`, and applies the body
        by server-side apply, as `Client.apply` with `force=True`. The controller's name
        is the field manager. A missing namespace is that of the owner.

        A write that would change nothing is skipped: the body is that of the last
        apply, and an informer of this controller (`owns=`) shows the state that the
        server returned then. The status may differ. After a restart, or if a transform
        removes fields that others change, it applies once more than necessary, which
        the server ignores. Without an informer of the child it always applies.

        Args:
            child: Complete body: dict, `KubeObject` or model. Fields that earlier
                bodies had, and that this one lacks, are removed.
            resource: Resource of the child; None to find it by `apiVersion` and kind.

        Returns:
            The child, as returned by the server. If the write is skipped, as shown by the
            informer, so without what its transform or `metadata_only=` leaves out.

        Raises:
            AlreadyOwned: If an informer shows that another object controls the child.
                Nothing is written.
            NotFound: If the object of this reconcile did not exist when it began, or
                the cache shows another one of that name by now, or the server has no
                such kind or namespace.
            LeadershipLost: If another process may lead by now.
            OptionsError: If the controller has no client, or the child is in another
                namespace, cluster-scoped with a namespaced owner, or the owner itself;
                for other errors see `Client.apply`.

        Cancellation:
            The connection is closed; the child may have been changed.
        """
        return await self._writer.apply(self.client, child, resource)

    def event(
        self,
        regarding: KubeObject | Mapping[str, Any],
        type: Literal["Normal", "Warning"],  # noqa: A002 - the API's own word
        reason: str,
        note: str,
        *,
        action: str | None = None,
        related: KubeObject | Mapping[str, Any] | None = None,
    ) -> None:
        """Record a Kubernetes Event, without waiting: see `EventRecorder.event`.

        The recorder needs no setup: the controller creates and runs it, and its name is
        that of the controller. At the end of the controller, or of its `Manager`,
        remaining events get 5 s to be written.

        Args:
            regarding: Object of the event, its body, or a reference.
            type: `"Warning"` if it needs attention, else `"Normal"`.
            reason: Reason as one CamelCase word, such as `"Deployed"`.
            note: Explanation for people.
            action: Action that was taken or failed, as one word; None for the reason.
            related: Related object.

        Raises:
            OptionsError: If the controller has no client, or the server would refuse
                the event.
        """
        self._threads.in_loop(
            lambda: self._writer.recorder().event(
                regarding, type, reason, note, action=action, related=related
            )
        )

    def set_status(self, status: Body = None, /, **fields: Any) -> bool:
        """Set fields of the status of the object of this reconcile.

        ::

            ctx.set_status(ready=2, url="https://blog.example.com")

        Changes are collected. One request writes them when the reconcile has ended,
        also if it failed or timed out, but not if it was cancelled or leadership was
        lost. Nothing is written if the status has them already, or the object with which
        the reconcile began does not exist any more: another one of that name keeps its
        status. The next reconcile of the request sees the write. If it fails,
        or takes more than 30 s, the reconcile counts as failed.

        The write has the version that was read. After a `Conflict` the object is read
        again and the changes are applied to it, up to 5 times. Fields and conditions of
        other writers are kept.

        Args:
            status: Fields as a dict or a model.
            fields: Further fields. Each value replaces the whole field; None removes
                it.

        Returns:
            True if a field differs from the cached object, with changes so far.

        Raises:
            OptionsError: If the controller has no client, the resource of the informer
                is unknown, a value is not JSON, or the reconcile has ended.
        """
        set_fields = self._writer.status.set_fields
        return self._threads.in_loop(lambda: set_fields(status, fields))

    def set_condition(
        self,
        type: str,  # noqa: A002 - the API's own word
        status: bool | Literal["True", "False", "Unknown"],
        *,
        reason: str,
        message: str = "",
    ) -> bool:
        """Set a condition in the status of the object of this reconcile.

        ::

            reason = "Deployed" if done else "Deploying"
            if ctx.set_condition("Ready", done, reason=reason):
                ctx.event(site, "Normal", reason, f"{ready} replicas are ready")

        It is written as by `set_status`. Other conditions are kept. `observedGeneration`
        is that of the object with which the reconcile began (of `with_object`: that was
        passed), also if its spec has changed since: the change is reconciled next. For a
        daemon, it is that of the cached object. `lastTransitionTime` changes with the
        status of the condition only.

        Args:
            type: Type of the condition, such as `"Ready"`.
            status: Status of the condition.
            reason: Reason as one CamelCase word.
            message: Explanation for people.

        Returns:
            True if its status, reason or message differs from the cached object, with
            changes so far. A new `observedGeneration` is written, but returns False.

        Raises:
            OptionsError: If the server would refuse the condition; for other reasons
                see `set_status`.
        """
        set_condition = self._writer.status.set_condition
        return self._threads.in_loop(
            lambda: set_condition(type, status, reason=reason, message=message)
        )

    async def write_status(self) -> KubeObject | None:
        """Write what `set_status` and `set_condition` collected, before the end.

        Returns:
            The object as stored by the server; None if there was nothing to write, or
            the object does not exist any more.

        Raises:
            Conflict: If other writers changed the object during each of 5 attempts.
            NotFound: If the resource has no subresource `status`.
            LeadershipLost: If another process may lead by now.

        Cancellation:
            The connection is closed; the status may have been written.
        """
        return await self._writer.status.write()

    # ------------------------------------------------------------ waiting

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
            function: Plain function. It may use `ctx.lister`, `ctx.event`,
                `ctx.set_status` and `ctx.set_condition`, and coroutines of `ctx` by
                `ctx.wait()`, but no other objects of the event loop.
            args: Positional arguments of the function.
            kwargs: Keyword arguments of the function.

        Returns:
            Return value of the function.

        Raises:
            OptionsError: If the function is a coroutine function, or the reconcile has
                ended.
            OSError: If the operating system cannot start a thread.
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
        OptionsError: If it is called without a type, or the decorated function is a
            generator or does not take two arguments.
    """
    given: object = kind
    special = get_origin(given) is not None or type(given).__module__ == "typing"
    if not (isinstance(given, type) or special):
        raise OptionsError(
            "with_object takes the type of the objects, as in @with_object(KubeObject), "
            f"not {given!r}"
        )

    def adapt(
        function: Callable[[T, Context], Awaitable[Result | None] | Result | None],
    ) -> Reconcile:
        check_runs(function, "a reconcile")
        what = "a reconcile with_object (if it is a method, the bound one)"
        check_takes(function, what, "reconcile(obj, ctx)")
        called = _called(function)

        @functools.wraps(function)
        async def reconcile(request: ReconcileRequest, ctx: Context) -> Result | None:
            cached = ctx._writer.begin()  # noqa: SLF001 - the object that is acted on
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
