"""`LiveCopy`: the part of an informer that is read, asked how it is, and waited for."""

from __future__ import annotations

from dataclasses import replace
from operator import attrgetter
from typing import TYPE_CHECKING

from aioinformer.cache.delta_fifo import DeltaFIFO
from aioinformer.cache.index import NAMESPACE_INDEX, by_namespace
from aioinformer.cache.store import Indexer
from aioinformer.errors import NotSynced, OptionsError, Stale
from aioinformer.informer.body_check import BodyCheck
from aioinformer.informer.compressing import Compressing
from aioinformer.informer.lister import Lister
from aioinformer.informer.liveness import Liveness
from aioinformer.informer.partial import PartialPipeline, Whole
from aioinformer.informer.parts import Part, sources_of, trouble_with
from aioinformer.informer.pipeline import Pipeline
from aioinformer.informer.processor import Processor
from aioinformer.informer.reflector import Reflector, ReflectorOptions
from aioinformer.informer.reporting import Reporter
from aioinformer.informer.resync import resync_seconds
from aioinformer.informer.status import combined
from aioinformer.informer.transforming import Transforming
from aioinformer.informer.waiting import Waiting
from aioinformer.metrics import NULL_SINK, GuardedSink, ScopedSink
from aioinformer.model.times import seconds_of
from aioinformer.watch.interface import Selection

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Mapping, Sequence

    from aioinformer.cache.index import IndexFunction
    from aioinformer.cache.queue import Queue
    from aioinformer.errors import HandlerError
    from aioinformer.informer.status import InformerStatus
    from aioinformer.metrics import MetricsSink
    from aioinformer.model.compression import Compression
    from aioinformer.model.objects import KubeObject
    from aioinformer.model.resource import Resource
    from aioinformer.model.times import Duration
    from aioinformer.model.transforms import Transform
    from aioinformer.watch.interface import ListerWatcher

__all__ = ["LiveCopy"]


class LiveCopy:
    """The base of `SharedInformer`: its parts, its content, how it is doing.

    Args: those of `SharedInformer`.
    """

    def __init__(
        self,
        source: ListerWatcher | Mapping[str, ListerWatcher],
        *,
        name: str = "informer",
        indexers: Mapping[str, IndexFunction[KubeObject]] | None = None,
        transform: Transform | None = None,
        options: ReflectorOptions | None = None,
        on_error: Callable[[HandlerError], None] | None = None,
        metrics: MetricsSink = NULL_SINK,
        rng: random.Random | None = None,
        queue: Queue[KubeObject] | None = None,
        resync_period: Duration | None = None,
        compression: Compression | None = None,
    ) -> None:
        self.name = name
        self._resync_seconds = resync_seconds(resync_period)
        self.options = options or ReflectorOptions()
        self._metrics = ScopedSink(metrics, name)
        self._reporter = Reporter(name, on_error, self._metrics)
        self._indexer: Indexer[KubeObject] = Indexer(
            {NAMESPACE_INDEX: by_namespace},
            key_func=attrgetter("key"),
            on_error=self._reporter.report,
        )
        self._indexer.add_indexers(indexers or {})
        self._live = Liveness(name)
        self._waiting = Waiting()
        self._live.followers.append(self._waiting.wake_all)
        self._transforming = Transforming(self._reporter)
        self._transforming.function = transform
        self._compressing = Compressing(compression, name)
        self._processor = Processor()
        sources = sources_of(source)
        self._selections = tuple(
            it for it in sources.values() if isinstance(it, Selection)
        )
        if queue is not None and len(sources) > 1:
            raise OptionsError(
                "several namespaces cannot share the queue that is given"
            )

        self._told_synced = False
        self._whole = Whole()
        self._parts: tuple[Part, ...] = tuple(
            self._part(namespace, it, len(sources) == 1, queue, rng)
            for namespace, it in sources.items()
        )
        self._named = None not in sources
        self._bodies = BodyCheck(name)
        self._lister = Lister(
            self._indexer, self._check_live, self._check_age, bodies=self._bodies
        )

    def _part(
        self,
        namespace: str | None,
        source: ListerWatcher,
        alone: bool,
        queue: Queue[KubeObject] | None,
        rng: random.Random | None,
    ) -> Part:
        """Make what lists and watches one source, or one of several namespaces."""
        name = self.name if alone or namespace is None else f"{self.name}/{namespace}"
        if queue is None:
            queue = DeltaFIFO(
                key_func=attrgetter("key"), name=name, metrics=self._metrics
            )

        common = (
            self._indexer,
            self._processor,
            self._applied,
            self._transforming,
            queue,
            self._waiting,
            self._compressing,
            GuardedSink(self._metrics, name, name=name),
        )
        pipeline = (
            Pipeline(*common)
            if alone or namespace is None
            else PartialPipeline(namespace, self._whole, *common)
        )
        reflector = Reflector(
            source,
            pipeline,
            name=name,
            options=self.options,
            on_change=self._changed,
            metrics=self._metrics,
            rng=rng,
        )
        return Part(namespace, reflector, pipeline)

    def __repr__(self) -> str:
        return (
            f"<SharedInformer {self.name} {self.status.phase} "
            f"{len(self._indexer)} objects>"
        )

    # ------------------------------------------------------------ what it holds

    @property
    def resource(self) -> Resource | None:
        """What its objects are; None if its source does not say."""
        return self._selections[0].resource if self._selections else None

    def selects(self, obj: KubeObject) -> bool:
        """Whether an object of its resource belongs here, as far as can be told.

        True if its source does not say.
        """
        selections = self._selections
        return not selections or any(it.selects(obj) for it in selections)

    @property
    def indexer(self) -> Indexer[KubeObject]:
        """The cache, a bare container: it never complains about the informer's state."""
        return self._indexer

    @property
    def store(self) -> Indexer[KubeObject]:
        """The same as `indexer`."""
        return self._indexer

    @property
    def lister(self) -> Lister:
        """Reads that refuse to answer from a cache that is not complete, or dead."""
        return self._lister

    def add_indexers(self, indexers: Mapping[str, IndexFunction[KubeObject]]) -> None:
        """Add indexes; objects that are there are entered before this returns.

        At any time. That takes some microseconds for each object and index, in one go:
        with 100,000 objects the event loop stands still for half a second. With so
        many, add them before the informer runs, or `await build_indexers`. Adding the
        same function under the same name again changes nothing.

        Raises:
            OptionsError: A name is taken by another function, or one is no plain
                function; nothing was added.
            InformerStopped: The informer has ended.
            WrongLoop: Called from another event loop or thread.
        """
        self._check_open()
        self._indexer.add_indexers(indexers)

    async def build_indexers(
        self, indexers: Mapping[str, IndexFunction[KubeObject]]
    ) -> None:
        """The same as `add_indexers`, in slices that leave time for everything else.

        What comes and goes meanwhile is in the indexes too. They are there, all of them
        and complete, when this returns, and not before.

        Raises:
            OptionsError, InformerStopped, WrongLoop: As `add_indexers`.

        Cancellation:
            Safe: none of them is there.
        """
        self._check_open()
        await self._indexer.build_indexers(indexers)

    @property
    def transform(self) -> Transform | None:
        """What each object passes before it is kept; None for nothing."""
        return self._transforming.function

    def set_transform(self, transform: Transform | None) -> None:
        """Set what each object passes before it is kept, in the place of any before.

        Args:
            transform: As the argument of `SharedInformer`; None for nothing.

        Raises:
            OptionsError: If the informer has been run: what is kept then, and told, has
                passed the one before. Or if it is no plain function.
            InformerStopped: The informer has ended.
            WrongLoop: Called from another event loop or thread.
        """
        self._check_open()
        if self._live.loop is not None:
            raise OptionsError(f"{self.name} runs: set its transform before")

        self._transforming.function = transform

    # ------------------------------------------------------------ how it is doing

    @property
    def has_synced(self) -> bool:
        """True once the first complete list is in the store and in the handlers' queues.

        Never becomes False again: freshness is in `status`.
        """
        return all(part.synced for part in self._parts)

    @property
    def status(self) -> InformerStatus:
        """How it is doing now. May be read from any thread."""
        phase, loop = self._life, self._live.loop
        now = None if loop is None else loop.time()
        parts = [part.status(phase, now) for part in self._parts]
        if self._named:
            names = [str(part.namespace) for part in self._parts]
            version = self._indexer.resource_version
            status = combined(dict(zip(names, parts, strict=True)), version)
        else:
            (status,) = parts

        failures = self._transforming.failures + self._bodies.failures
        return replace(
            status,
            degraded=status.degraded + failures,
            last_error=self._live.failure or status.last_error,
        )

    def why_not_synced(self) -> str:
        """`"synced"`, or the phase and last error: what a person wants to know."""
        return "synced" if self.has_synced else self._trouble

    # ------------------------------------------------------------ inside

    @property
    def _life(self) -> str:
        """What it is at as a whole; empty while it lists and watches."""
        if self._live.stopped:
            return "stopped"

        if self._live.stopping:
            return "stopping"

        return "idle" if self._live.loop is None else ""

    @property
    def _trouble(self) -> str:
        """The phase, and what went wrong: what a person wants to know."""
        return trouble_with(self._parts, self._life)

    def _of(self, namespace: str | None) -> Sequence[Part]:
        """Those of the parts that bring what is in a namespace; all for None.

        Raises:
            OptionsError: If none of them does.
        """
        if namespace is None or not self._named:
            return self._parts

        for part in self._parts:
            if part.namespace == namespace:
                return (part,)

        names = ", ".join(str(part.namespace) for part in self._parts)
        raise OptionsError(
            f"{self.name} has nothing of namespace {namespace!r}, only of {names}"
        )

    def _changed(self) -> None:
        """A reflector is at something else."""
        self._live.tell()
        self._waiting.wake_versions()

    def _applied(self) -> None:
        """The store has changed."""
        if not self._told_synced:
            # Once it is synced, only its end and what the reflectors are at matter.
            self._told_synced = self.has_synced
            self._live.tell()

        self._waiting.applied(self._version)

    def _version(self, namespace: str | None) -> str:
        """Up to which version everything is in the store, of a namespace or of all."""
        if namespace is None:
            return self._indexer.resource_version

        (part,) = self._of(namespace)
        return part.pipeline.version

    def _not_synced(self, parts: Sequence[Part]) -> NotSynced:
        reason = trouble_with(parts, self._life)
        error = NotSynced(
            f"{self.name} is not synced: {reason}", results={self.name: reason}
        )
        causes = [it.reflector.last_error for it in parts if not it.synced]
        error.__cause__ = next((it for it in causes if it is not None), None)
        return error

    def _check_live(self, namespace: str | None = None) -> None:
        self._live.check_not_stopped()
        parts = self._of(namespace)
        if not all(part.synced for part in parts):
            raise self._not_synced(parts)

    def _check_age(self, most: Duration, namespace: str | None = None) -> None:
        limit = seconds_of(most)
        if limit < 0:
            raise OptionsError(f"max_staleness must not be negative, as {most}")

        parts, loop = self._of(namespace), self._live.loop
        for part in parts:
            age = None if loop is None else part.age(loop.time())
            if age is None:
                raise Stale(
                    f"{self.name} has no state of the server yet: "
                    f"{trouble_with([part], self._life)}"
                )

            if age > limit:
                raise Stale(
                    f"{self.name} is {age:.1f} s old, and at most {limit:g} s are "
                    f"accepted: {trouble_with([part], self._life)}"
                )

    def _check_open(self) -> None:
        self._live.check_not_stopped()
        self._live.check_loop()
