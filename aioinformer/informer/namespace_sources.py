"""`NamespaceSources`: the list-watches of one informer.

Most informers have one source. An informer of several namespaces has one per namespace.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

from aioinformer.cache.delta_fifo import DeltaFIFO
from aioinformer.errors import NotSynced, OptionsError, Stale
from aioinformer.informer.lifecycle import running_loop
from aioinformer.informer.listwatch.current_selection import selectors_of
from aioinformer.informer.status import InformerStatus, combined, describe_state
from aioinformer.informer.store.shared_store import SharedStore
from aioinformer.metrics import GuardedSink
from aioinformer.model.times import seconds_of
from aioinformer.watch.interface import Reselectable, Selection

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence
    from contextlib import AbstractAsyncContextManager

    from aioinformer.cache.queue import Queue
    from aioinformer.cache.store import Indexer
    from aioinformer.informer.lifecycle import RunState
    from aioinformer.informer.listwatch.reflector import Reflector
    from aioinformer.informer.store.pipeline import Pipeline
    from aioinformer.metrics import ScopedSink
    from aioinformer.model.objects import KubeObject
    from aioinformer.model.resource import Resource
    from aioinformer.model.times import Duration
    from aioinformer.watch.interface import ListerWatcher, Selectors

__all__ = [
    "NamespaceSource",
    "NamespaceSources",
    "Source",
    "make_sources",
    "sources_of",
]


class Source(Protocol):
    """Source of an informer: fills its store, and has a state of its own."""

    @property
    def namespace(self) -> str | None:
        """Namespace of its objects; None for all objects of the informer."""

    @property
    def list_watch(self) -> ListerWatcher:
        """List-watch of its objects."""

    @property
    def synced(self) -> bool:
        """True once its first complete list is in the store."""

    @property
    def stored(self) -> bool:
        """True if the store has a complete list, perhaps one that is not confirmed."""

    @property
    def version(self) -> str:
        """Version up to which its objects are in the store."""

    @property
    def pipeline(self) -> Pipeline | None:
        """Pipeline into its store; None while that is on disk."""

    @property
    def failures(self) -> int:
        """Number of attempts that failed in a row."""

    @property
    def refusals(self) -> int:
        """Number of attempts in a row with an error that only a person can correct."""

    @property
    def history_resets(self) -> int:
        """Number of times that the server's versions went backwards."""

    @property
    def last_error(self) -> Exception | None:
        """Last failure, until the next success."""

    def tasks(self) -> dict[str, Callable[[], Coroutine[Any, Any, NoReturn]]]:
        """Return its tasks by name; all of them run until they are cancelled."""

    def set_watch_error_handler(
        self, handler: Callable[[Exception], None] | None
    ) -> None:
        """Set a function to call with the error of every list or watch that fails."""

    def age(self, now: float) -> float | None:
        """Return the maximum staleness of the store in seconds; None if unknown."""

    def status(self, phase: str, now: float | None) -> InformerStatus:
        """Return the status of this source.

        Args:
            phase: Phase of the whole informer; empty to use that of the source.
            now: Time of the loop; None if the informer does not run.
        """

    def describe(self, phase: str) -> str:
        """Return the phase and the failures in one line."""

    async def close(self) -> None:
        """Free what handlers may read until they have ended. Idempotent."""

    def reading(self) -> AbstractAsyncContextManager[None]:
        """Read the store in a block as of the last change that waiting tasks were told.

        The block must not wait.
        """


@dataclass(frozen=True, slots=True)
class NamespaceSource:
    """One list-watch of an informer, with its pipeline into the store.

    Attributes:
        namespace: Namespace of its objects; None for all objects of the informer.
        reflector: Reflector that lists and watches.
        pipeline: Pipeline from the reflector into the store.
    """

    namespace: str | None
    reflector: Reflector
    pipeline: Pipeline

    @property
    def list_watch(self) -> ListerWatcher:
        """List-watch of its objects."""
        return self.reflector.source

    @property
    def synced(self) -> bool:
        """True once its first complete list is in the store."""
        return self.pipeline.synced

    @property
    def stored(self) -> bool:
        """True once its first complete list is in the store."""
        return self.pipeline.synced

    @property
    def version(self) -> str:
        """Version up to which its objects are in the store."""
        return self.pipeline.version

    @property
    def failures(self) -> int:
        """Number of attempts that failed in a row."""
        return self.reflector.failures

    @property
    def refusals(self) -> int:
        """Number of attempts in a row with an error that only a person can correct."""
        return self.reflector.refusals

    @property
    def history_resets(self) -> int:
        """Number of times that the server's versions went backwards."""
        return self.reflector.history_resets

    @property
    def last_error(self) -> Exception | None:
        """Last failure, until the next success."""
        return self.reflector.last_error

    def tasks(self) -> dict[str, Callable[[], Coroutine[Any, Any, NoReturn]]]:
        """Return its tasks by name; all of them run until they are cancelled."""
        name = self.reflector.name
        return {
            f"{name} pipeline": self.pipeline.run,
            f"{name} reflector": self.reflector.run,
        }

    def set_watch_error_handler(
        self, handler: Callable[[Exception], None] | None
    ) -> None:
        """Set a function to call with the error of every list or watch that fails."""
        self.reflector.set_watch_error_handler(handler)

    def age(self, now: float) -> float | None:
        """Return the maximum staleness of the store in seconds; None if unknown."""
        in_step = self.reflector.in_step
        return None if in_step is None else now - in_step

    def reading(self) -> AbstractAsyncContextManager[None]:
        """Read the store in a block as of the last change that waiting tasks were told.

        The block must not wait.
        """
        return nullcontext()

    def status(self, phase: str, now: float | None) -> InformerStatus:
        """Return the status of this source.

        Args:
            phase: Phase of the whole informer; empty to use that of the reflector.
            now: Time of the loop; None if the informer does not run.
        """
        reflector, pipeline = self.reflector, self.pipeline
        return InformerStatus(
            phase=phase or reflector.phase,
            synced=pipeline.synced,
            last_contact=reflector.last_contact,
            last_event=reflector.last_event,
            age=None if now is None else self.age(now),
            resource_version=pipeline.version,
            restarts=reflector.restarts,
            relists=reflector.relists,
            last_relist=reflector.relist_reason,
            duplicates=reflector.duplicates + pipeline.duplicates,
            history_resets=reflector.history_resets,
            degraded=reflector.skipped,
            not_served=reflector.not_served,
            last_error=reflector.last_error,
            failures=reflector.failures,
            sharded_by_server=reflector.sharded_by_server,
        )

    def describe(self, phase: str) -> str:
        """Return the phase and the failures in one line."""
        reflector = self.reflector
        text = describe_state(
            phase or reflector.phase,
            reflector.last_error,
            reflector.failures,
            streams_given_up=reflector.streamless,
        )
        return text if self.namespace is None else f"{self.namespace}: {text}"

    async def close(self) -> None:
        """Do nothing: objects in memory stay readable."""


class NamespaceSources:
    """Sources of one informer: their states, and that of the whole informer.

    Args:
        name: Name of the informer in errors.
        sources: At least one source.
        indexer: Store that the sources fill.
        run_state: State of the informer's run.
    """

    def __init__(
        self,
        name: str,
        sources: tuple[Source, ...],
        indexer: Indexer[KubeObject],
        run_state: RunState,
    ) -> None:
        self.name = name
        self.all = sources
        """The sources."""
        self._indexer = indexer
        self._run_state = run_state
        self._by_namespace = {
            source.namespace: source
            for source in sources
            if source.namespace is not None
        }

    def __repr__(self) -> str:
        return f"<NamespaceSources {self.name} {len(self.all)}>"

    @property
    def resource(self) -> Resource | None:
        """Resource of the objects; None if the list-watches do not know it."""
        selections = self._selections()
        return selections[0].resource if selections else None

    def selects(self, obj: KubeObject) -> bool:
        """Return True if a list-watch selects an object, or none can tell."""
        selections = self._selections()
        return not selections or any(it.selects(obj) for it in selections)

    @property
    def selection(self) -> Selectors:
        """Selectors of the objects in the store, of any namespace."""
        first = self.all[0]
        if isinstance(first, NamespaceSource):
            return first.reflector.selectors

        return selectors_of(first.list_watch)

    @property
    def selected(self) -> bool:
        """True if the store has the selection that was set last."""
        reflectors = [
            it.reflector for it in self.all if isinstance(it, NamespaceSource)
        ]
        return all(it.selectors == it.wanted for it in reflectors)

    def reflector_to_select(self) -> Reflector:
        """Return the reflector whose selection can be changed.

        Raises:
            OptionsError: If there is none.
        """
        first = self.all[0]
        if len(self.all) > 1:
            raise OptionsError(
                f"cannot change the selection of {self.name}: it has several namespaces; "
                "request one informer for each"
            )

        if not isinstance(first, NamespaceSource):
            raise OptionsError(
                f"cannot change the selection of {self.name}: processes share its store "
                "on disk; request it with cached=False"
            )

        if not isinstance(first.list_watch, Reselectable):
            raise OptionsError(
                f"cannot change the selection of {self.name}: its source "
                f"{first.list_watch!r} has no with_selectors()"
            )

        return first.reflector

    @property
    def pipelines_in_memory(self) -> list[Pipeline]:
        """Pipelines into a store in memory; none while that is on disk."""
        pipelines = (source.pipeline for source in self.all)
        return [it for it in pipelines if it is not None]

    def wake(self) -> None:
        """Make pipelines that run in this loop look at the sink of metrics soon.

        Others do so with the next event or bookmark.
        """
        if self._run_state.loop is running_loop() and not self._run_state.stopping:
            for pipeline in self.pipelines_in_memory:
                pipeline.wake()

    def _selections(self) -> list[Selection]:
        list_watches = [source.list_watch for source in self.all]
        return [it for it in list_watches if isinstance(it, Selection)]

    @property
    def synced(self) -> bool:
        """True once the first complete lists of all sources are in the store."""
        return all(source.synced for source in self.all)

    @property
    def run_phase(self) -> str:
        """Phase of the informer as a whole; empty while it lists and watches."""
        if self._run_state.stopped:
            return "stopped"

        if self._run_state.stopping:
            return "stopping"

        return "idle" if self._run_state.loop is None else ""

    def of(self, namespace: str | None) -> tuple[Source, ...]:
        """Return the sources of a namespace, or all for None.

        Raises:
            OptionsError: The informer has no source of that namespace.
        """
        if namespace is None or not self._by_namespace:
            return self.all

        source = self._by_namespace.get(namespace)
        if source is not None:
            return (source,)

        names = ", ".join(self._by_namespace)
        raise OptionsError(
            f"{self.name} does not watch namespace {namespace!r}, only {names}"
        )

    def tasks(self) -> dict[str, Callable[[], Coroutine[Any, Any, NoReturn]]]:
        """Return the tasks of all sources by name."""
        return {
            name: run for source in self.all for name, run in source.tasks().items()
        }

    async def close(self) -> None:
        """Close all sources, after the last handler has ended."""
        for source in self.all:
            await source.close()

    def version(self, namespace: str | None) -> str:
        """Return the version up to which a namespace, or all, is in the store.

        Empty before the first complete lists; a stored version may be unconfirmed then.
        """
        if namespace is None:
            return self._indexer.resource_version if self.synced else ""

        (source,) = self.of(namespace)
        return source.version

    def reading(self) -> AbstractAsyncContextManager[None]:
        """Read the store in a block as of the last change that waiting tasks were told.

        The block must not wait.
        """
        return self.all[0].reading()

    def status(self) -> InformerStatus:
        """Return the state of all sources. May be called from any thread."""
        phase, loop = self.run_phase, self._run_state.loop
        now = None if loop is None else loop.time()
        if not self._by_namespace:
            (source,) = self.all
            return source.status(phase, now)

        statuses = {
            namespace: source.status(phase, now)
            for namespace, source in self._by_namespace.items()
        }
        return combined(statuses, self._indexer.resource_version)

    def describe(self, sources: Sequence[Source] | None = None) -> str:
        """Return phase and failures of some sources, or all, in one line.

        If some sources are failing or not synced, only those are included.
        """
        sources = self.all if sources is None else sources
        phase = self.run_phase
        failing = [it for it in sources if not it.synced or it.failures]
        return "; ".join(source.describe(phase) for source in failing or sources)

    def not_synced_error(self, sources: Sequence[Source] | None = None) -> NotSynced:
        """Return the error for sources, all by default, that are not synced."""
        sources = self.all if sources is None else sources
        reason = self.describe(sources)
        error = NotSynced(
            f"{self.name} is not synced: {reason}", results={self.name: reason}
        )
        causes = [it.last_error for it in sources if not it.synced]
        error.__cause__ = next((it for it in causes if it is not None), None)
        return error

    def check_live(
        self, namespace: str | None = None, *, unconfirmed: bool = False
    ) -> None:
        """Raise unless a namespace, or all, is synced and the informer has not ended.

        Args:
            namespace: Namespace of the reads; None for all.
            unconfirmed: True to accept a stored list that is not confirmed yet.
        """
        self._run_state.check_not_stopped()
        sources = self.of(namespace)
        if all(source.synced for source in sources):
            return

        if not (unconfirmed and all(source.stored for source in sources)):
            raise self.not_synced_error(sources)

    def check_age(self, limit: Duration, namespace: str | None = None) -> None:
        """Raise `Stale` if a namespace, or any, is older than the limit."""
        seconds = seconds_of(limit)
        if seconds < 0:
            raise OptionsError(f"max_staleness must not be negative: {limit}")

        loop = self._run_state.loop
        for source in self.of(namespace):
            age = None if loop is None else source.age(loop.time())
            if age is None:
                raise Stale(
                    f"{self.name} has not listed yet: {self.describe([source])}"
                )

            if age > seconds:
                raise Stale(
                    f"{self.name} is {age:.1f} s old, more than {seconds:g} s: "
                    f"{self.describe([source])}"
                )


def sources_of(
    source: ListerWatcher | Mapping[str, ListerWatcher],
) -> dict[str | None, ListerWatcher]:
    """Return sources by namespace; None is the key of a single source.

    Raises:
        OptionsError: If there is no source, or an empty namespace.
    """
    if not isinstance(source, Mapping):
        return {None: source}

    if not source:
        raise OptionsError("an informer needs at least one namespace")

    for namespace in source:
        if not namespace:
            raise OptionsError(f"invalid name of a namespace: {namespace!r}")

    return {namespace: source[namespace] for namespace in source}


def make_sources(
    name: str,
    list_watches: Mapping[str | None, ListerWatcher],
    queue: Queue[KubeObject] | None,
    metrics: ScopedSink,
    pipeline: Callable[..., Pipeline],
    reflector: Callable[..., Reflector],
) -> tuple[NamespaceSource, ...]:
    """Return the sources of an informer.

    Args:
        name: Name of the informer.
        list_watches: List-watches by namespace; None is the key of a single one.
        queue: Queue between reflector and store. None for a `DeltaFIFO` of each.
        metrics: Sink of the informer.
        pipeline: Constructor of a pipeline, with the parts that all of them share.
        reflector: Constructor of a reflector, with the options of all of them.

    Raises:
        OptionsError: If a queue is given for several namespaces.
    """
    several = len(list_watches) > 1
    if queue is not None and several:
        raise OptionsError(
            "queue= cannot be combined with several namespaces: each has its own queue"
        )

    shared = SharedStore() if several else None
    sources = []
    for namespace, list_watch in list_watches.items():
        own = name if shared is None else f"{name}/{namespace}"
        filled = pipeline(
            queue=queue
            if queue is not None
            else DeltaFIFO(key_func=attrgetter("key"), name=own, metrics=metrics),
            metrics=GuardedSink(metrics, own, name=own),
            name=own,
            namespace=namespace or "",
            shared=shared,
        )
        lists = reflector(list_watch, filled, name=own, metrics=metrics)
        sources.append(NamespaceSource(namespace, lists, filled))

    return tuple(sources)
