"""`AwaitedCopy`: the part of an informer that is waited for."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from typing import TYPE_CHECKING, overload

from aioinformer._user_code import guarded_logger
from aioinformer.errors import HistoryReset, OptionsError
from aioinformer.informer.live_copy import LiveCopy
from aioinformer.informer.parts import trouble_with
from aioinformer.model.callables import check_plain
from aioinformer.model.keys import version_number
from aioinformer.model.times import timeout_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from aioinformer.cache.store import Indexer
    from aioinformer.informer.parts import Part
    from aioinformer.model.objects import KubeObject
    from aioinformer.model.times import Duration

__all__ = ["AwaitedCopy"]

logger = guarded_logger(__name__)

IDLE_SECONDS = 10.0
"""Who waits for so long for an informer that nobody runs has forgotten to, perhaps."""

REFUSALS_TO_FAIL_FAST = 2
"""One refusal may be a role that is just being granted; two in a row are not."""


class AwaitedCopy(LiveCopy):
    """A live copy that can be waited for.

    Args: those of `SharedInformer`.
    """

    async def wait_synced(
        self, timeout: Duration | None = None, *, fail_fast: bool = True
    ) -> None:
        """Wait until the first complete list is in the store; of all namespaces.

        Says nothing about handlers; for these use `Registration.wait_synced`.

        Args:
            timeout: Seconds, or a timedelta; None waits as long as it takes.
            fail_fast: Give up when two attempts in a row ended in a refusal that no
                patience mends: 400, 401, 403, 404, 405 or 422. The informer itself
                keeps trying. A failing transform is no reason: what it fails for is
                stored as it came.

        Raises:
            NotSynced: The time is over, or two attempts were refused; the text and
                `results` say the phase and the last error.
            InformerStopped: The informer has ended, synced or not.
            WrongLoop: Called from another event loop or thread.

        Cancellation:
            Safe.
        """
        self._check_open()
        loop = asyncio.get_running_loop()
        idle = loop.call_later(IDLE_SECONDS, self._warn_if_idle)
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(timeout_of(timeout)):
                    await self._listed(self._parts, fail_fast=fail_fast)
        finally:
            idle.cancel()

        if not self.has_synced:
            raise self._not_synced(self._parts)

    def _warn_if_idle(self) -> None:
        if self._life == "idle":
            logger.warning(
                "%s is waited for since %d s, and nobody runs it: enter its factory, or "
                "await its run()",
                self.name,
                IDLE_SECONDS,
            )

    async def wait_for_version(
        self,
        resource_version: str,
        timeout: Duration | None = None,
        *,
        namespace: str | None = None,
    ) -> None:
        """Wait until the store shows everything up to a version.

        With the version that a write answered, a read behind it sees that write.

        Of an informer of several namespaces that is when each of them has got so far,
        and one in which nothing happens learns only from bookmarks, about one a minute,
        how far that is. So for a write, name its namespace.

        Args:
            resource_version: As the server gave it; it must be a decimal number.
            timeout: Seconds, or a timedelta; None waits as long as it takes.
            namespace: Wait for what is in this namespace alone. Without effect unless
                the informer lists its namespaces one by one.

        Raises:
            TimeoutError: The time is over; the text says how far the store is.
            HistoryReset: The server's versions went backwards meanwhile, so that this
                one may never come.
            OptionsError: Not a decimal version, or those of the server are not: such
                cannot be compared. Or the informer has nothing of that namespace.
            InformerStopped: The informer has ended.
            WrongLoop: Called from another event loop or thread.

        Cancellation:
            Safe.
        """
        self._check_open()
        wanted = _decimal(resource_version)
        parts = self._of(namespace)
        scope = None if len(parts) == len(self._parts) else namespace
        seconds = timeout_of(timeout)
        try:
            async with asyncio.timeout(seconds):
                await self._reached(wanted, scope, parts)
        except TimeoutError:
            raise TimeoutError(
                f"{self.name} is at version {self._version(scope) or 'none'}, "
                f"not at {wanted}, after {seconds:g} s: {self._state_of(parts)}"
            ) from None

    @overload
    async def wait_until(
        self,
        predicate: Callable[[KubeObject | None], object],
        key: str,
        timeout: Duration | None = None,
    ) -> None: ...

    @overload
    async def wait_until(
        self,
        predicate: Callable[[Indexer[KubeObject]], object],
        key: None = None,
        timeout: Duration | None = None,
    ) -> None: ...

    async def wait_until(
        self,
        predicate: Callable[[Any], object],
        key: str | None = None,
        timeout: Duration | None = None,
    ) -> None:
        """Wait until something holds in the store.

        ::

            await pods.wait_until(is_ready, key="shop/web-0", timeout=30)
            await pods.wait_until(lambda store: len(store) >= 3)

        It is asked about the state now, and then about changes, for as long as it does
        not hold. The first complete list is waited for: what has not been listed yet is
        not told to be absent.

        With a key it is asked about each state that this object comes to, in order, and
        about None when it goes; so what held only for a moment is seen, too, though the
        store may have moved on. States that the informer itself never learnt, because
        it was disconnected, are not. Waiting for one key costs nothing while others
        change.

        Without one it is asked about the store as it is after a change, by each waiter
        and for each batch of changes that has been applied.

        Args:
            predicate: A plain function that does not wait: of a `KubeObject | None`
                with a key, else of the store. It is called in the task that waits.
            key: `"namespace/name"`, or the bare name of a cluster-scoped object.
            timeout: Seconds, or a timedelta; None waits as long as it takes.

        Raises:
            Exception: What the predicate raised, as it is.
            TimeoutError: The time is over; the text says what was seen last.
            NotSynced: The first list was refused twice in a row: see `wait_synced`.
            OptionsError: The predicate is no plain function, or the informer has
                nothing of the key's namespace.
            InformerStopped: The informer has ended.
            WrongLoop: Called from another event loop or thread.

        Cancellation:
            Safe.
        """
        self._check_open()
        check_plain(predicate, "a predicate")
        parts = self._parts if key is None else self._of(_namespace_of(key))
        seconds = timeout_of(timeout)
        patience = asyncio.timeout(seconds)
        try:
            async with patience:
                await self._listed(parts)
                if not all(part.synced for part in parts):
                    raise self._not_synced(parts)

                if key is None:
                    await self._until_store(predicate)
                else:
                    await self._until_object(predicate, key)
        except TimeoutError:
            if seconds is None or not patience.expired():
                raise  # the predicate's own

            seen = self._seen(parts, key)
            raise TimeoutError(
                f"{seen} after {seconds:g} s: {self._state_of(parts)}"
            ) from None

    # ------------------------------------------------------------ inside

    async def _listed(self, parts: Sequence[Part], *, fail_fast: bool = True) -> None:
        """Wait until these have listed, or one that has not was refused too often."""
        while True:
            missing = [part for part in parts if not part.synced]
            refusals = [part.reflector.refusals for part in missing]
            if not missing or (fail_fast and max(refusals) >= REFUSALS_TO_FAIL_FAST):
                return

            await self._live.wait_for_change()
            self._live.check_not_stopping()

    async def _reached(
        self, wanted: int, scope: str | None, parts: Sequence[Part]
    ) -> None:
        resets = _resets_of(parts)
        while _decimal(self._version(scope) or "0") < wanted:
            if _resets_of(parts) > resets:
                raise HistoryReset(f"version {wanted} may never come")

            with self._waiting.for_version(wanted, scope) as news:
                await news.wait()

            self._live.check_not_stopping()

    async def _until_store(self, predicate: Callable[[Any], object]) -> None:
        with self._waiting.for_steps() as news:
            while not _holds(predicate, self._indexer):
                await news.wait()
                news.clear()
                self._live.check_not_stopping()

    async def _until_object(self, predicate: Callable[[Any], object], key: str) -> None:
        with self._waiting.for_key(key) as waiter:
            state = self._indexer.get_by_key(key)
            while not _holds(predicate, state):
                while not waiter.states:
                    self._live.check_not_stopping()
                    waiter.news.clear()
                    await waiter.news.wait()

                state = waiter.states.popleft()

    def _seen(self, parts: Sequence[Part], key: str | None) -> str:
        """What a waiter has seen last."""
        if not all(part.synced for part in parts):
            return f"{self.name} has not been listed"

        if key is None:
            version = self._indexer.resource_version or "none"
            return f"{self.name} has {len(self._indexer)} objects at version {version}"

        obj = self._indexer.get_by_key(key)
        if obj is None:
            return f"{self.name} has no {key}"

        return f"{self.name} has {key} at version {obj.resource_version}"

    def _state_of(self, parts: Sequence[Part]) -> str:
        """What these are at, and what is wrong with them."""
        if any(part.reflector.failures for part in parts) or not self.has_synced:
            return trouble_with(parts, self._life)

        return self.status.phase


def _holds(predicate: Callable[[Any], object], subject: object) -> bool:
    answer = predicate(subject)
    if inspect.isawaitable(answer):
        # It would count as true.
        if inspect.iscoroutine(answer):
            answer.close()

        raise OptionsError(f"a predicate must be a plain function: {predicate!r}")

    return bool(answer)


def _namespace_of(key: str) -> str | None:
    namespace, slash, _ = key.rpartition("/")
    return namespace if slash else None


def _resets_of(parts: Sequence[Part]) -> int:
    return sum(part.reflector.history_resets for part in parts)


def _decimal(version: object) -> int:
    number = version_number(version) if isinstance(version, str) else -1
    if number < 0:
        raise OptionsError(f"versions are not comparable here: {version!r}")

    return number
