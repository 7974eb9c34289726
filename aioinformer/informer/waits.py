"""`InformerWaits`: waits for the sync, versions and states of an informer."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from typing import TYPE_CHECKING, Any, Final

from aioinformer._user_code import guarded_logger
from aioinformer.errors import HistoryReset, OptionsError
from aioinformer.informer.expected_state import NOTHING, after_write
from aioinformer.model.callables import check_plain
from aioinformer.model.object_meta import version_number
from aioinformer.model.objects import KubeObject
from aioinformer.model.times import timeout_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from aioinformer.cache.store import Indexer
    from aioinformer.informer.expected_state import ExpectedState
    from aioinformer.informer.lifecycle import RunState
    from aioinformer.informer.namespace_sources import NamespaceSources, Source
    from aioinformer.informer.store.waiters import StoreWaiters
    from aioinformer.metrics import GuardedSink
    from aioinformer.model.times import Duration
    from aioinformer.watch.interface import Selectors

__all__ = ["InformerWaits"]

logger: Final = guarded_logger(__name__)

IDLE_SECONDS = 10.0
"""Seconds after which a wait for an informer that does not run logs a warning."""

CONSISTENCY_WAIT = "controller_runtime_client_consistency_wait_duration_seconds"

REFUSALS_TO_FAIL_FAST = 2
"""Refusals in a row after which a wait fails. A single one may come from a role that is
being granted at the moment."""


class InformerWaits:
    """Waits of one informer; see the methods of `SharedInformer` with the same names.

    Args:
        sources: Sources of the informer.
        indexer: Store of the informer.
        waiters: Waiting tasks, which the pipelines wake.
        run_state: State of the informer's run.
        metrics: Sink of `controller_runtime_client_consistency_wait_duration_seconds`.
    """

    def __init__(
        self,
        sources: NamespaceSources,
        indexer: Indexer[KubeObject],
        waiters: StoreWaiters,
        run_state: RunState,
        metrics: GuardedSink,
    ) -> None:
        self._sources = sources
        self._indexer = indexer
        self._waiters = waiters
        self._run_state = run_state
        self._metrics = metrics

    async def wait_synced(
        self, timeout: Duration | None = None, *, fail_fast: bool = True
    ) -> None:
        """Wait until the first complete lists are in the store."""
        self._run_state.check_open()
        loop = asyncio.get_running_loop()
        idle = loop.call_later(IDLE_SECONDS, self._warn_if_idle)
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(timeout_of(timeout)):
                    await self._wait_listed(self._sources.all, fail_fast=fail_fast)
        finally:
            idle.cancel()

        if not self._sources.synced:
            raise self._sources.not_synced_error()

    def _warn_if_idle(self) -> None:
        if self._sources.run_phase == "idle":
            logger.warning(
                "%s has had waiters for %d s but is not running: enter its factory, or "
                "await its run()",
                self._sources.name,
                IDLE_SECONDS,
            )

    async def wait_selection(
        self, timeout: Duration | None = None, *, other_than: Selectors | None = None
    ) -> None:
        """Wait until the store has the selection that was set last, or another one."""
        self._run_state.check_open()
        seconds = timeout_of(timeout)
        try:
            async with asyncio.timeout(seconds):
                while not (self._sources.synced and self._has_selection(other_than)):
                    await self._run_state.wait_for_change()
                    self._run_state.check_not_stopping()
        except TimeoutError:
            raise TimeoutError(
                f"{self._sources.name} does not have its new selection after "
                f"{seconds:g} s: {self._sources.describe()}"
            ) from None

    def _has_selection(self, other_than: Selectors | None) -> bool:
        if other_than is None:
            return self._sources.selected

        return self._sources.selection != other_than

    async def wait_for_version(
        self,
        resource_version: str,
        timeout: Duration | None = None,
        *,
        namespace: str | None = None,
    ) -> None:
        """Wait until the store has everything up to a version."""
        self._run_state.check_open()
        version = _decimal(resource_version)
        sources = self._sources.of(namespace)
        scope = None if len(sources) == len(self._sources.all) else namespace
        seconds = timeout_of(timeout)
        try:
            async with asyncio.timeout(seconds):
                await self._wait_version(version, scope, sources)
        except TimeoutError:
            raise TimeoutError(
                f"{self._sources.name} did not reach version {version} within {seconds:g} s "
                f"(version={self._sources.version(scope) or 'none'}): "
                f"{self._describe(sources)}"
            ) from None

    async def has_seen(
        self, written: KubeObject, timeout: Duration | None = None, *, deleted: bool
    ) -> None:
        """Wait until the store shows a write, or a later state."""
        self._run_state.check_open()
        self._check_written(written)
        key = written.key
        selected = self._sources.selects(written)
        if not deleted:
            _decimal(written.resource_version)
        elif not written.uid:
            raise OptionsError(f"cannot wait for the deletion of {key}: it has no uid")

        expected = NOTHING
        seconds = timeout_of(timeout)
        try:
            async with asyncio.timeout(seconds):
                # Handlers may not have been told yet what a store on disk has.
                async with self._sources.reading():
                    cached = self._indexer.get_by_key(key) is not None

                if not deleted:
                    expected = after_write(
                        written, NOTHING, selected=selected, cached=cached
                    )
                elif selected or cached:
                    expected = NOTHING.after_deletion(written.uid, marked=True)

                if expected is not NOTHING:
                    await self._check_listed(self._sources.of(_namespace_of(key)))

                await self.reached(key, expected)
        except TimeoutError:
            sources = self._sources.of(_namespace_of(key))
            what = "the deletion" if deleted else f"version {expected.version}"
            raise TimeoutError(
                f"{self._sources.name} did not show {what} of {key} within {seconds:g} s: "
                f"{self._last_state(sources, key)} ({self._describe(sources)})"
            ) from None

    def _check_written(self, written: object) -> None:
        if not isinstance(written, KubeObject):
            raise OptionsError(
                f"has_seen() takes the object that a write returned, not "
                f"{type(written).__name__}: "
                "after a deletion, pass the deleted object and deleted=True"
            )

        resource = self._sources.resource
        kind = "" if resource is None else resource.kind
        if kind and written.kind not in {"", "PartialObjectMetadata", kind}:
            raise OptionsError(
                f"{self._sources.name} has objects of kind {kind}, not {written.kind}"
            )

    async def reached(self, key: str, expected: ExpectedState) -> None:
        """Wait until the store has an expected state of an object, and measure that."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            if expected.version:
                version = str(expected.version)
                await self.wait_for_version(version, namespace=_namespace_of(key))

            if expected.deleted:
                await self.wait_until(expected.is_gone, key=key)
        finally:
            if expected is not NOTHING:
                self._metrics.observe(CONSISTENCY_WAIT, loop.time() - began)

    async def wait_until(
        self,
        predicate: Callable[[Any], object],
        key: str | None = None,
        timeout: Duration | None = None,
    ) -> KubeObject | None:
        """Wait until a predicate of the store, or of one object, is true."""
        self._run_state.check_open()
        check_plain(predicate, "a predicate")
        sources = self._sources.of(None if key is None else _namespace_of(key))
        seconds = timeout_of(timeout)
        limit = asyncio.timeout(seconds)
        try:
            async with limit:
                await self._check_listed(sources)
                if key is not None:
                    return await self._wait_object(predicate, key)

                await self._wait_store(predicate)
                return None
        except TimeoutError:
            if seconds is None or not limit.expired():
                raise  # raised by the predicate

            last = self._last_state(sources, key)
            raise TimeoutError(
                f"condition was not met within {seconds:g} s: {last} "
                f"({self._describe(sources)})"
            ) from None

    async def _check_listed(self, sources: Sequence[Source]) -> None:
        """Wait until all sources have listed, or raise after repeated refusals."""
        await self._wait_listed(sources)
        if not all(source.synced for source in sources):
            raise self._sources.not_synced_error(sources)

    async def _wait_listed(
        self, sources: Sequence[Source], *, fail_fast: bool = True
    ) -> None:
        """Wait until all sources have listed, or one was refused repeatedly."""
        while True:
            missing = [source for source in sources if not source.synced]
            refusals = [source.refusals for source in missing]
            if not missing or (fail_fast and max(refusals) >= REFUSALS_TO_FAIL_FAST):
                return

            await self._run_state.wait_for_change()
            self._run_state.check_not_stopping()

    async def _wait_version(
        self, version: int, scope: str | None, sources: Sequence[Source]
    ) -> None:
        resets = _resets_of(sources)
        while _decimal(await self._told_version(scope) or "0") < version:
            if _resets_of(sources) > resets:
                raise HistoryReset(
                    f"version {version} may never be reached: the server's history was reset"
                )

            with self._waiters.for_version(version, scope) as wakeup:
                await wakeup.wait()

            self._run_state.check_not_stopping()

    async def _told_version(self, scope: str | None) -> str:
        """Return the version up to which handlers are told and indexes are complete.

        A store on disk may be ahead of both.
        """
        async with self._sources.reading():
            return self._sources.version(scope)

    async def _wait_store(self, predicate: Callable[[Any], object]) -> None:
        with self._waiters.for_steps() as wakeup:
            while True:
                wakeup.clear()
                async with self._sources.reading():
                    if _holds(predicate, self._indexer):
                        return

                await wakeup.wait()
                self._run_state.check_not_stopping()

    async def _wait_object(
        self, predicate: Callable[[Any], object], key: str
    ) -> KubeObject | None:
        with contextlib.ExitStack() as waiting:
            async with self._sources.reading():
                state = self._indexer.get_by_key(key)
                # It gets each change after this state.
                waiter = waiting.enter_context(self._waiters.for_key(key))

            while not _holds(predicate, state):
                while not waiter.states:
                    self._run_state.check_not_stopping()
                    waiter.wakeup.clear()
                    await waiter.wakeup.wait()

                state = waiter.states.popleft()

            return state

    def _last_state(self, sources: Sequence[Source], key: str | None) -> str:
        """Describe the last state that a predicate was called with."""
        if not all(source.synced for source in sources):
            return f"{self._sources.name} has not listed yet"

        if key is None:
            version = self._indexer.resource_version or "none"
            return f"{self._sources.name} has {len(self._indexer)} objects at version {version}"

        obj = self._indexer.get_by_key(key)
        if obj is None:
            return f"{self._sources.name} has no object {key}{self._hint_for(key)}"

        return (
            f"{self._sources.name} has object {key} at version {obj.resource_version}"
        )

    def _hint_for(self, key: str) -> str:
        """Return a hint if the key has no namespace, but the objects have one."""
        some = next(iter(self._indexer.contents.objects.values()), None)
        if "/" in key or some is None or not some.namespace:
            return ""

        return f", keys are namespace/name, such as {some.key}"

    def _describe(self, sources: Sequence[Source]) -> str:
        """Return the phase of the informer, and the failures of some sources."""
        if any(source.failures for source in sources) or not self._sources.synced:
            return self._sources.describe(sources)

        return self._sources.status().phase


def _holds(predicate: Callable[[Any], object], subject: object) -> bool:
    result = predicate(subject)
    if inspect.isawaitable(result):  # always truthy
        if inspect.iscoroutine(result):
            result.close()

        raise OptionsError(f"a predicate must be a plain function, not {predicate!r}")

    return bool(result)


def _namespace_of(key: str) -> str | None:
    namespace, slash, _ = key.rpartition("/")
    return namespace if slash else None


def _resets_of(sources: Sequence[Source]) -> int:
    return sum(source.history_resets for source in sources)


def _decimal(version: object) -> int:
    number = version_number(version) if isinstance(version, str) else -1
    if number < 0:
        raise OptionsError(f"cannot compare resource version {version!r}: not a number")

    return number
