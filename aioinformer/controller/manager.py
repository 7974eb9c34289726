"""`Manager`: runs controllers, their informers and their client as one unit."""

from __future__ import annotations

import asyncio
import inspect
import operator
from contextlib import AsyncExitStack, nullcontext
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, Protocol, runtime_checkable

from aioinformer._runnables import Runnable, Runnables
from aioinformer._tasks import Supervisor, unexpected_cancellation
from aioinformer._user_code import guarded_logger, text_of
from aioinformer.client.keep_open import keep_open
from aioinformer.controller.controller import (
    Controller,
    deadline_in,
    wait_with_warnings,
)
from aioinformer.controller.event_recorder import EventRecorder
from aioinformer.controller.leader_election import LeaderElector
from aioinformer.controller.shards.shards import Shards
from aioinformer.controller.signals import shutdown_signals
from aioinformer.errors import (
    AioInformerError,
    InformerStopped,
    LeadershipLost,
    NotSynced,
    OptionsError,
    WrongLoop,
)
from aioinformer.informer.factory import SharedInformerFactory, not_ready
from aioinformer.informer.lifecycle import Lifecycle, WebLifespan, running_loop
from aioinformer.metrics import check_sink
from aioinformer.model.callables import check_runs, check_takes, is_coroutine_function
from aioinformer.model.misuse import with_advice
from aioinformer.model.times import seconds_of
from aioinformer.web.checks import CHECK_SECONDS

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping
    from typing import TypeAlias, Unpack

    from opentelemetry.trace import TracerProvider

    from aioinformer.client.client import Client
    from aioinformer.controller.serving import Serving
    from aioinformer.informer.informer_spec import InformerOptions
    from aioinformer.informer.shared_informer import SharedInformer
    from aioinformer.metrics import MetricsSink
    from aioinformer.model.resource import Resource
    from aioinformer.model.times import Duration
    from aioinformer.recording import Recorder
    from aioinformer.web.checks import Check
    from aioinformer.web.dashboard.app import DashboardOptions

    Function: TypeAlias = Callable[[], Awaitable[object]]

__all__ = ["Manager", "Runs"]

logger: Final = guarded_logger(__name__)

LIVENESS_TOLERANCE_SECONDS = 20.0
"""Time after which work that outlives its lease is considered stuck, as in
controller-runtime."""


@dataclass(eq=False, slots=True)
class _Part:
    """Entry of `Manager.add()`."""

    part: Any
    runnable: Runnable
    leader_only: bool
    removed: bool = False
    """True once it is not started any more. It may still be ending."""


@runtime_checkable
class _Measured(Protocol):
    def set_metrics(self, sink: MetricsSink) -> None: ...


class Runs(Protocol):
    """Object that can run, such as a `Controller` or a server."""

    async def run(self) -> None:
        """Run until cancelled."""


class Manager(Lifecycle, WebLifespan):
    """Owner of controllers, informers and a client, which run as one unit.

    ::

        client = Client.from_env()
        elector = LeaderElector(LeaseLock(client, "copier"))
        manager = Manager(client, elector=elector)
        maps = manager.informer("v1", "configmaps")
        manager.add(Controller("copier", reconcile, for_=maps))
        manager.serve(port=8080)  # health, metrics, debug page
        await manager.run(handle_signals=True)

    It starts the client, the informers, and the runnables of every replica. Once all
    caches are synced and this replica leads, it starts its controllers. It stops in
    reverse order: controllers drain, the lease is released, and the other runnables
    stop. What `serve()` serves is there from the beginning to the end.

    When leadership is lost, for example in an outage of the API server, only the
    leader's runnables stop. Informers and other runnables continue, and the manager
    waits to lead again. When it leads, all of the leader's runnables run again:
    controllers reconcile all objects, coroutine functions and `run()` are called anew,
    including those that have returned. So keep what a run needs in local variables.

    Guarantees:
        G8: It ends as a whole. If an informer, a controller or another runnable fails,
            everything stops, and `run()` and `shutdown()` raise the first error. Later
            ones are logged, and so are those of runnables that stop because leadership
            was lost. A runnable that returns ends nothing else.
        G9: No task, timer or connection is left afterwards.
        G11: The leader's work is cancelled at the deadline, controllers without a
            drain, and `ctx.client` refuses further writes. The lease is released only
            after the work has ended, and only then the manager waits to lead again.

    Not guaranteed:
        That controllers start: if a cache cannot sync, for example for lack of
        permissions, the manager logs a warning every 30 s, and fails after the shortest
        `cache_sync_timeout` of its controllers (2 minutes). To fail earlier, call
        `wait_for_cache_sync()` before `run()`. A client that cannot be entered for
        a local reason, such as a full disk, is retried with backoff and a warning.

    Lifetime:
        It runs once. It can be started in one task and shut down in another, like a
        factory: in a fixture, or by `FastAPI(lifespan=manager.lifespan)`. It starts and
        stops its client and factory, unless their owner has started them. Runnables
        added while it runs start at once.

    Args:
        client: Client of the informers and reconciles.
        factory: Factory of the informers, if it needs options such as a namespace, or
            is already running.
        elector: Leader election among several replicas; None for one replica.
        drain_timeout: Seconds that the leader's runnables, and then all others, may
            take to end before they are cancelled again. Controllers have a shorter
            timeout of their own.
        exit_on_loss: True to end with `LeadershipLost` when leadership is lost, instead
            of waiting to lead again.
        metrics: Sink of the metrics of all parts: the client, the factory, the elector,
            controllers with their queues, and other parts with a `set_metrics()`, such
            as a `WebhookServer`. A part with a sink of its own keeps that. None for a
            `PrometheusSink` if `serve()` is called, else for none.
        tracer_provider: OpenTelemetry's provider, such as `trace.get_tracer_provider()`,
            to trace the reconciles of controllers without one: see
            `aioinformer.tracing`. None for no traces.

    Raises:
        OptionsError: If an argument is invalid.
    """

    def __init__(
        self,
        client: Client,
        *,
        factory: SharedInformerFactory | None = None,
        elector: LeaderElector | None = None,
        drain_timeout: Duration = 15.0,
        exit_on_loss: bool = False,
        metrics: MetricsSink | None = None,
        tracer_provider: TracerProvider | None = None,
    ) -> None:
        self._check_parts(factory, elector, metrics)
        self.factory: SharedInformerFactory = (
            SharedInformerFactory(client) if factory is None else factory
        )
        """Factory of the informers."""
        self.elector = elector
        """Leader election among several replicas, or None."""
        self._client = client
        self._drain_seconds = seconds_of(drain_timeout)
        if self._drain_seconds < 0:
            raise OptionsError(f"drain_timeout must not be negative: {drain_timeout!r}")

        self._exit_on_loss = exit_on_loss
        self._parts: list[_Part] = []
        # A new group for each time that this replica leads.
        self._leader_only = self._group(leader_only=True)
        self._all_replicas = self._group(leader_only=False)
        self._controllers: list[Controller] = []
        self._followers: list[Callable[[], None]] = []
        self._supervisor = Supervisor(self._run_supervised, "manager")
        self._loop: asyncio.AbstractEventLoop | None = None  # where it was started
        self._begun = False
        self._over = asyncio.Event()  # set to end it, and once it has ended
        self._idle = asyncio.Event()  # nothing runs that `_over` would end
        self._idle.set()
        self._failure: BaseException | None = None
        self._raised = False  # True once `shutdown()` has raised the failure
        self._serving: Serving | None = None
        self._tracer_provider = tracer_provider
        self._metrics: MetricsSink | None = None
        if metrics is not None:
            self._measure(metrics)

    @staticmethod
    def _check_parts(factory: object, elector: object, metrics: object) -> None:
        if not isinstance(factory, SharedInformerFactory | None):
            raise OptionsError(
                f"factory= takes a SharedInformerFactory, not {factory!r}"
            )

        if not isinstance(elector, LeaderElector | None):
            raise OptionsError(f"elector= takes a LeaderElector, not {elector!r}")

        if metrics is not None:
            check_sink(metrics)

    def __repr__(self) -> str:
        state = "running" if self.running else "stopped" if self._begun else "idle"
        leader_only, all_replicas = self._leader_only, self._all_replicas
        return f"<Manager {state} {leader_only=} {all_replicas=}>"

    @property
    def running(self) -> bool:
        """True from `start()` until it has ended."""
        return self._supervisor.running

    # ------------------------------------------------------------ runnables

    @with_advice
    def informer(
        self,
        api_version: str | Resource,
        resource: str = "",
        **options: Unpack[InformerOptions],
    ) -> SharedInformer:
        """Return the informer of a resource: see `SharedInformerFactory.informer`."""
        return self.factory.informer(api_version, resource, **options)

    def add(
        self,
        part: Controller | Runs | Function,
        *,
        leader_only: bool = True,
        name: str | None = None,
    ) -> None:
        """Add a controller or another runnable.

        A controller gets the client and, with `leader_only`, the elector. While the
        manager runs, it starts at once, or when this replica leads.

        Args:
            part: Controller, coroutine function without arguments, or object with such
                a `run()`, for example a web server. It is stopped by a cancellation.
            leader_only: True to start it once all caches are synced and this replica
                leads. False to run it on every replica: a controller starts once caches
                are synced, anything else at once. Controllers with `shards=` run on
                every replica, together with their `Shards`.
            name: Name in the log; None for that of the controller or the function.

        Raises:
            OptionsError: If it cannot be run (plain functions and lambdas cannot, even
                if they return a coroutine: use `functools.partial`), if the controller
                or its name was added before, or if the manager has ended.
            WrongLoop: If the manager runs in another event loop.
        """
        self._check_loop()
        if self._over.is_set():
            raise OptionsError("cannot add to a manager that has ended")

        if isinstance(part, Controller) and part.shards is not None:
            leader_only = False
            if any(
                it.name == part.shards.name
                for it in self.shards
                if it is not part.shards
            ):
                raise OptionsError(
                    f"this manager has other Shards named {part.shards.name}: pass the "
                    "same object to all controllers of a group, or other names"
                )

            if all(it.part is not part.shards for it in self._parts):
                self.add(
                    part.shards, leader_only=False, name=f"shards {part.shards.name}"
                )

        runnable = self._runnable(part, name, leader_only=leader_only)
        if self._metrics is not None and isinstance(part, _Measured):
            part.set_metrics(self._metrics)

        self._parts.append(_Part(part, runnable, leader_only))
        if isinstance(part, Controller):
            # Events outlive the leader's work. They start first, as the controller
            # writes them itself if nothing else does.
            events = Runnable(f"events of {part.name}", part.write_events)
            self._parts.append(_Part(part, events, leader_only=False))
            self._all_replicas.add(events)

        group = self._leader_only if leader_only else self._all_replicas
        if not group.ended:  # the next group of the leader starts it
            group.add(runnable)

        if isinstance(part, Controller):
            self._call_followers()

    async def remove(self, part: Controller | Runs | Function) -> None:
        """End a controller or another runnable, and forget it. Others continue.

        A controller drains. Afterwards it, or another one of its name, may be added
        again. Its informers continue. If the part itself calls it, for example in a
        reconcile, it does not wait.

        Args:
            part: Controller, function or object that was added. If it was added several
                times, all of them end.

        Raises:
            OptionsError: If it is not part of this manager.
            WrongLoop: If the manager runs in another event loop.

        Cancellation:
            Deferred until it has ended. It is cancelled again after `drain_timeout`.
        """
        self._check_loop()
        # Each access to a method makes another object, which is equal.
        same = operator.eq if inspect.ismethod(part) else operator.is_
        entries = [it for it in self._parts if same(it.part, part)]
        if not entries:
            raise OptionsError(f"{part!r} is not part of this manager")

        for entry in entries:
            entry.removed = True

        async with AsyncExitStack() as stack:  # all end, even if this is cancelled
            for entry in reversed(entries):  # a controller ends before its events
                stack.push_async_callback(self._end_part, entry)

    async def _end_part(self, entry: _Part) -> None:
        group = self._leader_only if entry.leader_only else self._all_replicas
        await group.stop(
            entry.runnable,
            wait=not entry.runnable.contains_caller(),
            then=lambda: self._forget(entry),
        )

    def _forget(self, entry: _Part) -> None:
        if entry in self._parts:
            self._parts.remove(entry)
            if entry.part in self._controllers:
                self._controllers.remove(entry.part)
                self._call_followers()

    def _call_followers(self) -> None:
        for function in tuple(self._followers):
            function()

    def _group(self, *, leader_only: bool) -> Runnables:
        """Return a group of all parts for the leader, or for every replica."""
        failed = self._leaders_failed if leader_only else self._runnable_failed
        group = Runnables(failed, drain_seconds=self._drain_seconds)
        for entry in self._parts:
            if entry.leader_only == leader_only and not entry.removed:
                group.add(entry.runnable)

        return group

    def _runnable(self, part: Any, name: str | None, *, leader_only: bool) -> Runnable:
        if isinstance(part, Controller):
            if part in self._controllers:
                raise OptionsError(
                    f"controller {part.name} was already added to this manager"
                )

            if part.name in {it.name for it in self._controllers}:
                raise OptionsError(
                    f"this manager has another controller named {part.name}: names must "
                    "differ in the log and in metrics"
                )

            self._controllers.append(part)
            if self._tracer_provider is not None:
                part.set_tracer_provider(self._tracer_provider)

            elector = self.elector if leader_only else None
            return Runnable(
                name or f"controller {part.name}",
                lambda: self._control(part, elector),
                part.hurry,
            )

        run: Any = getattr(part, "run", part)
        if isinstance(part, type) or not is_coroutine_function(run):
            raise OptionsError(
                "a manager runs controllers, coroutine functions without arguments, and "
                f"objects with such a run(), not {part!r}. Use functools.partial() to pass "
                "arguments."
            )

        check_runs(run, "a runnable")
        check_takes(run, "a runnable", "run()")
        own: str = getattr(part, "__qualname__", type(part).__name__)
        return Runnable(name or own, run)

    def serve(
        self,
        port: int = 8080,
        *,
        host: str | None = None,
        checks: Mapping[str, Check] | None = None,
        livez_checks: Mapping[str, Check] | None = None,
        check_timeout: Duration = CHECK_SECONDS,
        max_staleness: Duration | None = None,
        reasons: bool = False,
        debug: bool = True,
        dashboard: DashboardOptions | bool = False,
        recorder: Recorder | None = None,
    ) -> None:
        """Serve health, metrics and a debug page, on every replica.

        ::

            manager.serve(port=8080, checks={"database": database.ping})

        - `/readyz`: 503 while a cache is not synced, the Lease was never reached, ranges
          of shards are not worked on, or a check fails.
        - `/livez`: 503 if a restart helps, but not in an outage of the API server.
        - `/metrics`: the metrics of all parts, for Prometheus. Requires the `metrics`
          extra, or a sink with a registry.
        - `/debug`: informers, queues, running reconciles with their causes, and failing
          requests with the time of their next attempt. It shows names of objects and
          classes of errors. With `?format=json` it is JSON.
        - `/`: the list of these paths.

        The port is open before anything else starts, and until everything has ended.
        Requests are neither authenticated nor logged.

        Args:
            port: Port to listen on; 0 for any free one, which the log names. Then pass
                a host: IPv4 and IPv6 would have different ports.
            host: Address to listen on. None for all addresses, as a kubelet sends
                probes to that of the pod. A loopback address answers 403 to requests
                to other names than localhost: see `aioinformer.web.aiohttp.serve`.
            checks: Own checks of `/readyz` by name: functions without arguments, plain
                or async. One that returns a text, raises or times out has failed. The
                log has the text. Plain ones are called in the event loop.
            livez_checks: Own checks of `/livez` by name: what only a restart mends.
            check_timeout: Maximum duration of each check, below the timeout of the
                probe.
            max_staleness: Maximum age of a cache in `/readyz`. None keeps the replica
                ready during an outage.
            reasons: True to show error messages, which name servers, users and files.
                Parts that look like secrets are left out.
            debug: False for no debug page.
            dashboard: True for the dashboard at `/debug/`, or its options, such as
                `{"guard": is_admin, "actions": True}`; see
                `aioinformer.web.aiohttp.dashboard`. Without a guard, everybody who
                reaches the port sees all objects of the informers, so pass one, or
                `host="127.0.0.1"`, which `kubectl port-forward` reaches. It shows error
                messages only with `reasons`. The debug page is at `/debug/tables` then.
            recorder: Recorder with `last=`, whose recording `/debug/recording` returns.
                It has the objects of the informers. None for no such path.

        Raises:
            OptionsError: If it was called before, the manager runs or has ended, or the
                port, a time, a check or its name is invalid. (If the port is in use,
                `start()` and `run()` raise OSError.)
            WrongLoop: If the manager runs in another event loop.
        """
        self._check_loop()
        if self._serving is not None:
            raise OptionsError(f"this manager already serves port {self._serving.port}")

        if self.running or self._over.is_set():
            raise OptionsError("call serve() before the manager starts")

        from aioinformer.controller.serving import Serving, default_sink

        metrics = default_sink() if self._metrics is None else self._metrics
        self._serving = Serving(
            self,
            port=port,
            host=host,
            metrics=metrics,
            debug=debug,
            dashboard=None if dashboard is False else _options_of(dashboard, reasons),
            recorder=recorder,
            reasons=reasons,
            checks=checks,
            livez_checks=livez_checks,
            check_timeout=check_timeout,
            max_staleness=max_staleness,
        )
        if metrics is not None:
            self._measure(metrics)

    def _measure(self, sink: MetricsSink) -> None:
        """Pass a sink to all parts that have none. Later ones get it, too."""
        self._metrics = sink
        self._client._endpoint.set_metrics(sink)  # noqa: SLF001
        for part in (self.factory, self.elector, *(it.part for it in self._parts)):
            if isinstance(part, _Measured):
                part.set_metrics(sink)

    # ------------------------------------------------------------ status

    @property
    def controllers(self) -> tuple[Controller, ...]:
        """All controllers that were added."""
        return tuple(self._controllers)

    def follow(self, function: Callable[[], None]) -> Callable[[], None]:
        """Call a function after a controller was added or removed.

        Args:
            function: Plain function. It must not raise.

        Returns:
            Function that ends this. Idempotent.
        """
        self._followers.append(function)

        def end() -> None:
            if function in self._followers:
                self._followers.remove(function)

        return end

    @property
    def shards(self) -> tuple[Shards, ...]:
        """Groups of replicas that its controllers belong to, or that were added."""
        return tuple(it.part for it in self._parts if isinstance(it.part, Shards))

    @property
    def recorders(self) -> tuple[EventRecorder, ...]:
        """All event recorders that were added, and those of controllers."""
        own = [it.recorder for it in tuple(self._controllers)]
        own += [it.part for it in self._parts if isinstance(it.part, EventRecorder)]
        return tuple(it for it in own if it is not None)

    @property
    def informers(self) -> tuple[SharedInformer, ...]:
        """All informers of its factory, including temporary ones, and of controllers."""
        return self._with_controllers(self.factory.informers)

    @property
    def lasting(self) -> tuple[SharedInformer, ...]:
        """Permanent informers of its factory, and those of controllers."""
        return self._with_controllers(self.factory.lasting)

    def _with_controllers(
        self, informers: Iterable[SharedInformer]
    ) -> tuple[SharedInformer, ...]:
        of_controllers = (it.informers for it in tuple(self._controllers))
        return tuple(dict.fromkeys(chain(informers, *of_controllers)))

    def not_ready(self) -> dict[str, str]:
        """Return reasons for not being ready, by name, for a readiness endpoint.

        The names are those of informers, as in `SharedInformerFactory.not_ready`, of
        shards, and `"manager"`. A replica that waits to lead is ready, once it has
        reached the Lease: one without permissions must not replace a leader.
        Thread-safe.
        """
        own = self.why_dead() or self.why_not_elected()
        own = own or ("" if self.running else "not running")
        found = not_ready(self.lasting) | self._not_sharing()
        return found | ({"manager": own} if own else {})

    def _not_sharing(self) -> dict[str, str]:
        reasons = {f"shards {it.name}": it.why_not_ready() for it in self.shards}
        return {name: why for name, why in reasons.items() if why}

    def why_dead(self) -> str:
        """Return the reason for a restart of the process, or an empty string.

        A restart helps if the manager has failed, or if its work still runs 20 s after
        its lease expired and may be stuck. Thread-safe.
        """
        if self._failure is not None:
            return f"failed: {text_of(self._failure, repr)}"

        elector = self.elector
        if elector is not None and not elector.healthy(LIVENESS_TOLERANCE_SECONDS):
            return "the leader's work still runs after its lease expired"

        return ""

    def why_not_elected(self) -> str:
        """Return why this replica cannot take part in the election, or an empty string.

        See `LeaderElector.why_not_ready`. Thread-safe.
        """
        elector = self.elector if self.running else None
        if elector is None or not any(it.leader_only for it in self._parts):
            return ""  # it does not stand without work for the leader

        return elector.why_not_ready()

    def why_not_sharing(self) -> str:
        """Return why this replica does not do its part in its shards, or an empty string.

        See `Shards.why_not_ready`. Thread-safe.
        """
        return "; ".join(f"{name}: {why}" for name, why in self._not_sharing().items())

    async def wait_for_cache_sync(
        self, timeout: Duration | None = None, *, fail_fast: bool = True
    ) -> None:
        """Wait until all caches are synced: see `SharedInformerFactory`.

        Controllers wait by themselves.

        Raises:
            NotSynced: If caches are not synced in time.
            InformerStopped: If an informer has ended.

        Cancellation:
            Safe.
        """
        await self.factory.wait_for_cache_sync(timeout, fail_fast=fail_fast)

    # ------------------------------------------------------------ lifetime

    async def run(self, *, handle_signals: bool = False) -> None:
        """Run until a failure, `shutdown()`, or a signal.

        It starts the manager if necessary. When it returns, everything has ended. If
        the manager has run and ended before, it returns at once.

        Args:
            handle_signals: True to end it on SIGTERM and SIGINT. A second signal ends
                it at once. Signal handlers are restored afterwards.

        Raises:
            LeadershipLost: If leadership was lost, with `exit_on_loss`.
            OSError: If the port of `serve()` is in use.
            OptionsError: If it was shut down before its start, there is no usable
                configuration, or signals should be handled outside of the main thread.
            BaseException: Failure of a runnable, or of an informer by a bug.

        Cancellation:
            Stops it, as `shutdown()` does, and is raised at the end. A second
            cancellation stops it at once.
        """
        with shutdown_signals(self._signalled) if handle_signals else nullcontext():
            if not self._begun:
                ended = self._over.is_set()
                try:
                    await self.start()
                except AioInformerError:
                    if ended or not self._over.is_set():
                        raise

            try:
                await self._over.wait()
            finally:
                await self.shutdown()

    async def start(self) -> None:
        """Start the informers and the runnables of every replica, and return.

        Raises:
            OptionsError: If it is running, has ended, or there is no usable
                configuration. In the last case it can be started again.
            OSError: If the port of `serve()` is in use. It can be started again.
            WrongLoop: If it runs in another event loop.

        Cancellation:
            Stops it again.
        """
        self._check_loop()
        if self._over.is_set():
            raise OptionsError("a manager runs only once, and this one has ended")

        self._loop = asyncio.get_running_loop()
        await self._supervisor.start()

    async def shutdown(self) -> None:
        """Stop everything, in the reverse order of the start.

        Idempotent. If one of its runnables calls it, for example in a reconcile, it
        does not wait.

        Raises:
            BaseException: Failure of the manager, once.
            WrongLoop: If called from another event loop.

        Cancellation:
            Cancels again whatever still runs, and is raised at the end. It still waits
            for the release of the lease (at most `renew_deadline`), handlers of
            informers (5 s), and functions in `ctx.run_in_thread()`.
        """
        self._check_loop()
        self._over.set()
        if self._supervisor.contains_caller():
            return

        try:
            await self._idle.wait()
        except asyncio.CancelledError:
            self._hurry("by a cancellation of shutdown()")
            raise
        finally:
            await self._supervisor.stop()

        if self._failure is not None and not self._raised:
            self._raised = True
            raise self._failure

    async def _run_supervised(self, ready: Callable[[], None]) -> None:
        try:
            async with AsyncExitStack() as stack:
                if self._serving is not None:
                    await stack.enter_async_context(self._serving.listening())

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
            replicas = group.create_task(self._all_replicas.run(), name="manager all")
            leading = group.create_task(self._lead(), name="manager leader")
            for task in (watching, replicas, leading):
                task.add_done_callback(self._part_ended)

            try:
                ready()
                await self._over.wait()
            except asyncio.CancelledError:
                if not (self._over.is_set() or self._supervisor.stopping):
                    self._fail("manager", unexpected_cancellation("'manager'"))

                raise
            finally:
                self._over.set()
                # If cancelled meanwhile, the group ends both at the same time. If
                # leadership was lost, a second cancellation would cut clean-up short.
                await _end(leading, cancel=not self._leader_only.ended)
                await _end(replicas)
                watching.cancel()

    def _part_ended(self, task: asyncio.Task[None]) -> None:
        """Fail if other code cancelled a task of this manager."""
        if task.cancelled() and not self._over.is_set():
            name = task.get_name()
            self._fail(name, unexpected_cancellation(repr(name)))

    async def _watch(self) -> None:
        """Fail with the first informer that fails."""
        try:
            self._fail("an informer", await self.factory.failed())
        except InformerStopped as exc:  # stopped by its owner
            self._fail("the informers", exc)

    async def _lead(self) -> None:
        """Run the leader's runnables once there are any, caches are synced, and it leads.

        After a loss of leadership, wait to lead again.
        """
        try:
            await self._leader_only.wait_nonempty()
            await self._wait_for_caches()
            while not self._over.is_set():
                await self._lead_once()
        except Exception as exc:  # noqa: BLE001 - raised by `shutdown()`
            self._fail("leading", exc)

    async def _lead_once(self) -> None:
        elector = self.elector
        await self._leader_only.wait_nonempty()
        try:
            async with nullcontext() if elector is None else elector.leading():
                if elector is not None:
                    logger.info("leading, starting the leader's runnables")

                await self._leader_only.run()
        except LeadershipLost as exc:
            if self._exit_on_loss:
                raise

            if not self._over.is_set():
                logger.warning(
                    "the leader's runnables have ended, waiting to lead again: %s", exc
                )
                self._leader_only = self._group(leader_only=True)

    async def _wait_for_caches(self) -> None:
        """Wait as long as the first controller does: see its `cache_sync_timeout`."""
        limits = (it.cache_sync_timeout for it in self._controllers)
        limit = min((it for it in limits if it is not None), default=None)

        def warn(exc: NotSynced) -> None:
            logger.warning("controllers are waiting for caches: %s", exc)

        async def wait(seconds: float) -> None:
            if not all(it.has_synced for it in self.factory.lasting):
                await self.wait_for_cache_sync(seconds, fail_fast=False)

        await wait_with_warnings(wait, deadline_in(limit), warn)

    async def _control(
        self, controller: Controller, elector: LeaderElector | None
    ) -> None:
        await self._wait_for_caches()
        await controller.run(client=self._client, elector=elector)

    def _runnable_failed(self, runnable: Runnable, failure: BaseException) -> None:
        self._fail(runnable.name, failure)

    def _leaders_failed(self, runnable: Runnable, failure: BaseException) -> None:
        elector = self.elector
        lost = elector is not None and not elector.is_leader
        if not lost or self._over.is_set():
            self._fail(runnable.name, failure)
        elif not isinstance(failure, LeadershipLost):
            # Its clean-up may need the server that could not be reached.
            logger.error(
                "%s failed while it stopped, as leadership was lost",
                runnable.name,
                exc_info=failure,
            )

    def _fail(self, what: str, failure: BaseException) -> None:
        if self._failure is None:
            self._failure = failure
            self._log_end(what, failure)
        else:
            logger.error("%s failed during shutdown: %r", what, failure)

        self._over.set()

    @staticmethod
    def _log_end(what: str, failure: BaseException) -> None:
        if isinstance(failure, LeadershipLost):
            # Part of normal operation: a traceback would suggest a bug.
            logger.critical("%s failed, stopping the manager: %s", what, failure)
        else:
            logger.critical("%s failed, stopping the manager", what, exc_info=failure)

    def _signalled(self) -> None:
        if self._over.is_set():
            self._hurry("by a signal while stopping")

        self._over.set()
        if not self._begun:
            # The start may wait for long, as for a client that cannot be entered.
            self._supervisor.cancel()

    def _hurry(self, reason: str) -> None:
        self._leader_only.hurry(reason)
        self._all_replicas.hurry(reason)

    def _check_loop(self) -> None:
        if self.running and self._loop is not running_loop():
            raise WrongLoop(
                "the manager runs in another event loop: call this from a coroutine there"
            )


def _options_of(dashboard: DashboardOptions | bool, reasons: bool) -> DashboardOptions:
    options: DashboardOptions = {"reasons": reasons}
    if not isinstance(dashboard, bool):
        options.update(dashboard)

    return options


async def _end(task: asyncio.Task[None], *, cancel: bool = True) -> None:
    if cancel:
        task.cancel()

    await asyncio.wait({task})
