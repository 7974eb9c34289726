"""`Manager`: runs controllers, and what belongs to them, as one whole."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, nullcontext
from itertools import chain
from typing import TYPE_CHECKING, Any, Protocol

from aioinformer._tasks import Supervisor
from aioinformer._user_code import guarded_logger
from aioinformer.client.keep_open import keep_open
from aioinformer.controller.controller import SYNC_PATIENCE_SECONDS, Controller
from aioinformer.controller.crew import Crew, Part
from aioinformer.controller.signals import ending_signals
from aioinformer.errors import InformerStopped, NotSynced, OptionsError, WrongLoop
from aioinformer.informer.cache_sync import not_ready
from aioinformer.informer.factory import SharedInformerFactory
from aioinformer.informer.hosting import Hosted
from aioinformer.informer.liveness import running_loop
from aioinformer.model.callables import check_runs, check_takes, is_coroutine_function
from aioinformer.model.times import seconds_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from typing import TypeAlias, Unpack

    from aioinformer.client.client import Client
    from aioinformer.controller.leader_election import LeaderElector
    from aioinformer.informer.asking import InformerOptions
    from aioinformer.informer.shared_informer import SharedInformer
    from aioinformer.model.resource import Resource
    from aioinformer.model.times import Duration

    Function: TypeAlias = Callable[[], Awaitable[object]]

__all__ = ["Manager", "Runs"]

logger = guarded_logger(__name__)

LIVENESS_TOLERANCE_SECONDS = 20.0
"""Work that outlives its lease by so much is taken for stuck, as in controller-runtime."""


class Runs(Protocol):
    """Something with a life, such as a `Controller` or a server."""

    async def run(self) -> None:
        """Live, until cancelled."""


class Manager(Hosted):
    """Runs controllers, and what belongs to them, as one whole.

    ::

        client = Client.from_env()
        elector = LeaderElector(LeaseLock(client, "copier"))
        async with Manager(client, elector=elector) as manager:
            maps = manager.informer("v1", "configmaps")
            manager.add(Controller("copier", reconcile, for_=maps))
            manager.add(serve_health, leader_only=False)
            await manager.run()

    It starts in this order: the client, the informers, what runs on every replica; then,
    when all caches are synced and this replica leads, its controllers. It stops in the
    reverse order: controllers drain before the lease is released, and that before the
    others stop, of which a server of the health goes on answering until then.

    Guarantees:
        G8: It ends as a whole. If an informer, a controller or another part fails, or
            leadership is lost, everything is stopped, and `run()` and `shutdown()` raise
            that error, the first there was; later ones are logged. A part that returns
            is done, and ends nothing.
        G9: Afterwards no task, timer or connection of it is left.
        G11: The leader's work is cancelled when the deadline has passed, controllers
            without a drain, and `ctx.client` refuses to write from then on; the lease is
            released only after the work has ended.

    Not guaranteed:
        That it ever begins: caches that cannot be filled, as for want of a permission,
        are waited for, with a warning each 30 s. Call `wait_for_cache_sync()` before
        `run()` to fail instead. A client that cannot be entered for a local reason, such
        as a full disk, is tried again with backoff and a warning.

    Lifetime:
        It runs once; entered in one task, and left in the same or another, like a
        factory: in a fixture, or as `FastAPI(lifespan=manager.lifespan)`. A client that
        nobody has entered is entered and left by it, and so is the factory; what
        somebody has entered stays theirs. Parts that are added while it runs start at
        once.

    Args:
        client: What informers read from and reconciles write through.
        factory: Makes and runs the informers; give one to have its options, such as a
            namespace or metrics, or one that runs already.
        elector: Which of several replicas works; None if there is one.
        drain_timeout: How many seconds the leader's parts may take to end together, and
            then all others; then they are cancelled again. Controllers have a shorter
            time of their own.

    Raises:
        OptionsError: If the client is none, or the timeout cannot be one.
    """

    def __init__(
        self,
        client: Client,
        *,
        factory: SharedInformerFactory | None = None,
        elector: LeaderElector | None = None,
        drain_timeout: Duration = 15.0,
    ) -> None:
        self.factory = SharedInformerFactory(client) if factory is None else factory
        """Makes the informers, and runs them."""
        self.elector = elector
        """Which replica works; None if there is only one."""
        self._client = client
        seconds = seconds_of(drain_timeout)
        self._leaders = Crew(seconds, self._fail)
        self._everyone = Crew(seconds, self._fail)
        self._controllers: list[Controller] = []
        self._supervisor = Supervisor(self._life, "manager")
        self._loop: asyncio.AbstractEventLoop | None = None  # where it was started
        self._begun = False
        self._over = asyncio.Event()  # it is to end, or has
        self._idle = asyncio.Event()  # nothing is left that `_over` would end
        self._idle.set()
        self._failure: BaseException | None = None
        self._raised = False  # that, to somebody

    def __repr__(self) -> str:
        state = "running" if self.running else "stopped" if self._begun else "idle"
        return f"<Manager {state} leader={self._leaders!r} all={self._everyone!r}>"

    # ------------------------------------------------------------ what it runs

    def informer(
        self,
        api_version: str | Resource,
        resource: str = "",
        **options: Unpack[InformerOptions],
    ) -> SharedInformer:
        """The informer of a resource, as `SharedInformerFactory.informer` says."""
        return self.factory.informer(api_version, resource, **options)

    def add(
        self,
        part: Controller | Runs | Function,
        *,
        leader_only: bool = True,
        name: str | None = None,
    ) -> None:
        """Add a controller, or something else that is to run beside it.

        A controller is given the client and, if it is only for the leader, the elector.

        Args:
            part: A controller; or a coroutine function without arguments, or an object
                with such a `run()`: a web server, something periodic. It is cancelled
                to end it.
            leader_only: It begins when all caches are synced and this replica leads;
                without an elector, when they are synced. False for what is to run on
                every replica: a controller begins when caches are synced, anything else
                at once.
            name: In the log; else that of the controller or the function.

        Raises:
            OptionsError: If it cannot be run (a plain function or a lambda cannot, even
                if it returns a coroutine: use `functools.partial`), is a controller that
                was added already, or named like one, or the manager has ended.
            WrongLoop: The manager runs in another event loop.
        """
        self._check_loop()
        if self._over.is_set():
            raise OptionsError("the manager has ended: nothing can be added")

        crew = self._leaders if leader_only else self._everyone
        crew.add(self._part(part, name, leader_only=leader_only))

    def _part(self, part: Any, name: str | None, *, leader_only: bool) -> Part:
        if isinstance(part, Controller):
            if part in self._controllers:
                raise OptionsError(
                    f"the manager has the controller {part.name} already"
                )

            if part.name in {it.name for it in self._controllers}:
                raise OptionsError(
                    f"the manager has another controller named {part.name}: log and "
                    "metrics would not tell them apart"
                )

            self._controllers.append(part)
            elector = self.elector if leader_only else None
            return Part(
                name or f"controller {part.name}",
                lambda: self._control(part, elector),
                part.hurry,
            )

        run: Any = getattr(part, "run", part)
        if isinstance(part, type) or not is_coroutine_function(run):
            raise OptionsError(
                "a part is a controller, a coroutine function without arguments, or an "
                f"object with such a run(); not {part!r}. functools.partial() gives a "
                "function its arguments."
            )

        check_runs(run, "a part")
        check_takes(run, "a part", "run()")
        own: str = getattr(part, "__qualname__", type(part).__name__)
        return Part(name or own, run)

    # ------------------------------------------------------------ how it is doing

    @property
    def informers(self) -> tuple[SharedInformer, ...]:
        """All informers of its factory; those that are used for a time as well."""
        return self.factory.informers

    @property
    def lasting(self) -> tuple[SharedInformer, ...]:
        """The same without those that are only used for a time."""
        return self.factory.lasting

    def not_ready(self) -> dict[str, str]:
        """What is not ready, and why: for a readiness route; empty if all is.

        The informers, as `SharedInformerFactory.not_ready` says, with those of its
        controllers, whoever runs them; and `"manager"` itself.
        A replica that waits to lead is ready. May be called from any thread.
        """
        own = self.why_dead() or ("" if self.running else "not running")
        theirs = (it.informers for it in tuple(self._controllers))
        found = not_ready(chain(self.lasting, *theirs))
        return found | ({"manager": own} if own else {})

    def why_dead(self) -> str:
        """Why a restart of the process would help; empty if it would not.

        It has failed; or its work goes on 20 s after its lease ran out, so that it may
        be stuck. May be called from any thread.
        """
        if self._failure is not None:
            return f"failed: {self._failure!r}"

        elector = self.elector
        if elector is not None and not elector.healthy(LIVENESS_TOLERANCE_SECONDS):
            return "its work goes on, and the lease has run out"

        return ""

    async def wait_for_cache_sync(
        self, timeout: Duration | None = None, *, fail_fast: bool = True
    ) -> None:
        """Wait until all caches are synced, as `SharedInformerFactory` says.

        Controllers are waited for by nobody: they begin by themselves.

        Raises:
            NotSynced: Not all of them are.
            InformerStopped: One has ended.

        Cancellation:
            Safe.
        """
        await self.factory.wait_for_cache_sync(timeout, fail_fast=fail_fast)

    # ------------------------------------------------------------ its life

    async def run(self, *, handle_signals: bool = False) -> None:
        """Run until it ends: by a failure, by `shutdown()`, or by a signal.

        Starts it, if nobody has; when this ends, all has ended.

        Args:
            handle_signals: SIGTERM and SIGINT end it, and this returns; another one ends
                it at once. Their handlers are put back afterwards.

        Raises:
            LeadershipLost: Somebody else may lead now.
            OptionsError: It has ended before, there is no usable configuration to
                connect with, or signals are to be handled outside of the main thread.
            BaseException: What it failed with: a part's own error, or that of an
                informer which died of a bug.

        Cancellation:
            Stops it, as `shutdown()` does; raised when all has ended. A second
            cancellation stops it at once.
        """
        if not self._begun:
            await self.start()

        with ending_signals(self._signalled) if handle_signals else nullcontext():
            try:
                await self._over.wait()
            finally:
                await self.shutdown()

    async def start(self) -> None:
        """Start it; returns when informers and what is for every replica are started.

        Raises:
            OptionsError: It runs already, or has ended, or there is no usable
                configuration to connect with; with another one it can be tried again.
            WrongLoop: It runs in another event loop.

        Cancellation:
            Stops it again.
        """
        self._check_loop()
        if self._over.is_set():
            raise OptionsError("a manager runs once, and this one has ended")

        self._loop = asyncio.get_running_loop()
        await self._supervisor.start()

    async def shutdown(self) -> None:
        """Stop it: the leader's parts, the lease, other parts, informers, the client.

        Idempotent. Called from inside of it, such as by a reconcile, it asks for that
        and does not wait.

        Raises:
            BaseException: What it has failed with, if it has: once.
            WrongLoop: Called from another event loop.

        Cancellation:
            What still runs is cancelled again, to end at once; raised when all has.
            What stays is the release of the lease, for `renew_deadline` at most, handlers
            of informers, for 5 s, and functions in `ctx.run_in_thread()`, until they
            have returned.
        """
        self._check_loop()
        self._over.set()
        if self._supervisor.contains_caller():
            return

        try:
            await self._idle.wait()
        except asyncio.CancelledError:
            self._hurry()
            raise
        finally:
            await self._supervisor.stop()

        if self._failure is not None and not self._raised:
            self._raised = True
            raise self._failure

    async def _life(self, ready: Callable[[], None]) -> None:
        try:
            async with AsyncExitStack() as stack:
                await stack.enter_async_context(keep_open(self._client))
                if not self.factory.running:
                    await self.factory.start()
                    stack.push_async_callback(self._stop_factory)

                await self._run_parts(ready)
        finally:
            self._idle.set()

    async def _stop_factory(self) -> None:
        try:
            await self.factory.shutdown()
        except Exception as exc:  # noqa: BLE001 - raised by `shutdown()`
            if exc is not self._failure:
                self._fail("an informer", exc)

    async def _run_parts(self, ready: Callable[[], None]) -> None:
        self._begun = True
        self._idle.clear()
        async with asyncio.TaskGroup() as group:
            watching = group.create_task(self._watch(), name="manager watch")
            everyone = group.create_task(self._everyone.run(), name="manager all")
            leading = group.create_task(self._lead(), name="manager leader")
            try:
                ready()
                await self._over.wait()
            finally:
                self._over.set()
                # If cancelled meanwhile, the group ends all at the same time.
                await _end(leading)
                await _end(everyone)
                watching.cancel()

    async def _watch(self) -> None:
        """Fail with the first informer that dies."""
        try:
            self._fail("an informer", await self.factory.failed())
        except InformerStopped as exc:  # by its owner
            self._fail("the informers", exc)

    async def _lead(self) -> None:
        """Run the leader's parts when there are some, caches are warm, and it leads."""
        try:
            await self._leaders.wanted()
            await self._warm()
            async with (
                nullcontext() if self.elector is None else self.elector.leading()
            ):
                await self._leaders.run()
        except Exception as exc:  # noqa: BLE001 - raised by `shutdown()`
            self._fail("leading", exc)

    async def _warm(self) -> None:
        while not all(it.has_synced for it in self.factory.lasting):
            try:
                await self.wait_for_cache_sync(SYNC_PATIENCE_SECONDS, fail_fast=False)
            except NotSynced as exc:
                logger.warning("controllers have not begun: %s", exc)

    async def _control(
        self, controller: Controller, elector: LeaderElector | None
    ) -> None:
        await self._warm()
        await controller.run(client=self._client, elector=elector)

    def _fail(self, what: str, failure: BaseException) -> None:
        if self._failure is None:
            self._failure = failure
            logger.critical("%s failed: the manager ends", what, exc_info=failure)
        else:
            logger.error("%s failed, too: %r", what, failure)

        self._over.set()

    def _signalled(self) -> None:
        if self._over.is_set():
            self._hurry()

        self._over.set()

    def _hurry(self) -> None:
        self._leaders.hurry()
        self._everyone.hurry()

    def _check_loop(self) -> None:
        if self.running and self._loop is not running_loop():
            raise WrongLoop(
                "the manager runs in another event loop: call this from a coroutine there"
            )


async def _end(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.wait({task})
