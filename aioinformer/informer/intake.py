"""The intake: what a reflector learns, on its way into the queue of a pipeline.

Lists are staged beside what the store holds, changes are queued. What comes in passes
the user's transform here, so that what is queued, stored and told has passed it. It is
compressed, if it is to be, when its index values are known: that of lists here, that of
changes when they are applied.
"""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING

from aioinformer.budget import LoopBudget, release
from aioinformer.cache.delta_fifo import DeltaFIFO
from aioinformer.cache.deltas import Delta, DeltaType
from aioinformer.informer.compressing import Compressing
from aioinformer.informer.sifting import same_state
from aioinformer.informer.transforming import Transforming, identity_of, is_left_out
from aioinformer.model.compression import SAMPLES
from aioinformer.model.keys import version_number

if TYPE_CHECKING:
    from aioinformer.cache.queue import Queue
    from aioinformer.cache.store import Contents, Indexer
    from aioinformer.model.objects import KubeObject

__all__ = ["Intake"]


class _Staging:
    """A list under way: what it has, and what the transform left out of it."""

    __slots__ = ("contents", "left_out", "newest", "uncompressed")

    def __init__(self, contents: Contents[KubeObject]) -> None:
        self.contents = contents
        # Invariant: no key is in both.
        self.left_out: dict[str, KubeObject] = {}
        # The highest version of an object that was listed, if all are decimal.
        self.newest = ""
        # The keys of what came before anything could be compressed, and waits for that.
        self.uncompressed: list[str] = []

    def __contains__(self, key: str) -> bool:
        return key in self.contents.objects or key in self.left_out

    def is_ahead_of(self, obj: KubeObject) -> bool:
        """True if the list has a newer state of an object that it names again.

        Versions that are not decimal are not compared.
        """
        listed = self.contents.objects.get(obj.key) or self.left_out.get(obj.key)
        if listed is None:
            return False

        number = version_number(obj.resource_version)
        return 0 <= number < version_number(listed.resource_version)

    def put(self, key: str, obj: KubeObject, taken: KubeObject) -> None:
        self.left_out.pop(key, None)
        self.contents.put(key, obj, taken)

    def keep(self, key: str, obj: KubeObject, source: Contents[KubeObject]) -> None:
        self.left_out.pop(key, None)
        self.contents.keep(key, obj, source)

    def leave_out(self, key: str, identity: KubeObject) -> None:
        self.contents.remove(key)
        self.left_out[key] = identity

    def remove(self, key: str) -> None:
        self.contents.remove(key)
        self.left_out.pop(key, None)


_version_of = attrgetter("resource_version")


def _newest(versions: list[str]) -> str:
    """The highest of some versions."""
    if len(set(map(len, versions))) == 1:
        return max(versions)  # the usual case, without a call for each

    return max(set(versions), key=_as_a_number)


def _as_a_number(version: str) -> tuple[int, str]:
    """Compares as the number does, at a fifth of what it costs to read it."""
    return len(version), version


class Intake:
    """The reflector's side of a pipeline: it takes lists and changes.

    The transform sees each state of an object once, when it comes in. A relist does not
    ask it again about what did not change. (client-go's queue does, and asks it twice
    about a list that came as a stream.)

    Args:
        indexer: The informer's store, which is only read here.
        transforming: The user's transform; it may be set until the reflector runs.
        queue: Where it all goes; a `DeltaFIFO` if left out.
        compressing: What makes the objects smaller that are stored.
    """

    def __init__(
        self,
        indexer: Indexer[KubeObject],
        transforming: Transforming | None = None,
        queue: Queue[KubeObject] | None = None,
        compressing: Compressing | None = None,
    ) -> None:
        self._indexer = indexer
        self._transforming = transforming or Transforming()
        self._compressing = compressing or Compressing()
        if queue is None:
            queue = DeltaFIFO(key_func=attrgetter("key"))

        self._fifo = queue
        self._staged: _Staging | None = None
        # The newest complete list that waits in the queue.
        self._committed: Contents[KubeObject] | None = None
        # Of the objects whose newest state the transform left out, the identities.
        self._left_out: dict[str, KubeObject] = {}
        # The version up to which everything has come in; None before the first list.
        self._version: str | None = None
        # Up to this version the watch repeats what the list was ahead of; -1 for none.
        self._listed_ahead = -1
        self.duplicates = 0
        """Changes that repeated what is known, and were told to nobody."""

    @property
    def waiting(self) -> int:
        """Entries that wait to be applied."""
        return len(self._fifo)

    def known(self, key: str) -> KubeObject | None:
        """The newest state that this was given for `key`, applied or still queued.

        None if there is none, or if it was deleted. Of one that the transform left out
        just the identity and version.
        """
        left_out = self._left_out.get(key)
        if left_out is not None:
            return left_out

        waiting = self._fifo.newest(key)
        if waiting is not None:
            return None if waiting.type is DeltaType.DELETED else waiting.object

        contents = self._committed or self._indexer.contents
        return contents.objects.get(key)

    async def stage(self, objects: list[KubeObject], *, anew: bool = False) -> None:
        """Take some objects of the list under way.

        What is in the store already, with the same uid and version, is kept: then the
        new bytes are let go at once, and a relist needs no second copy of everything.
        If the list names an object again, its newer state stays, or the later one if
        their versions cannot be compared.

        Args:
            objects: As the server gave them.
            anew: The same version may be another state: keep only what is equal.

        Cancellation:
            Leaves the list incomplete: `discard()` it.
        """
        staged = self._begin_staging()
        if self._compressing.due:
            await self._compressing.renew(self._listed)

        current = self._indexer.contents
        # Most often a first list: there is nothing to ask about any of it.
        put = staged.contents.put if self._takes_all(current) else None
        listed = staged.contents.objects
        staged.newest = _newest([staged.newest, *map(_version_of, objects)])
        budget = LoopBudget.current()
        await budget.start()
        for obj in objects:
            if put is not None and obj.key not in listed:
                put(obj.key, obj)
            elif not staged.is_ahead_of(obj):  # else an older state, of another page
                self._stage(obj, staged, current, anew=anew)

            if budget.over():
                await budget.start()

        budget.end()
        if len(staged.uncompressed) >= SAMPLES:
            await self._compress(staged)

    async def stage_unreadable(self, keys: list[str]) -> None:
        """Of the list under way, objects that are there but cannot be read.

        What the store holds of them stays, rather than seeming deleted.

        Cancellation:
            Leaves the list incomplete: `discard()` it.
        """
        staged = self._begin_staging()
        current = self._indexer.contents
        budget = LoopBudget.current()
        await budget.start()
        for key in keys:
            old = current.objects.get(key)
            if key in staged:
                pass  # the list had a state of it that could be read
            elif old is not None:
                staged.keep(key, old, current)
            elif key in self._left_out:
                staged.leave_out(key, self._left_out[key])

            if budget.over():
                await budget.start()

        budget.end()

    async def stage_deleted(self, keys: list[str]) -> None:
        """Of the list under way, objects that were deleted while it streamed in.

        Keys that it has not named are no error.

        Cancellation:
            Leaves the list incomplete: `discard()` it.
        """
        staged = self._begin_staging()
        for key in keys:
            staged.remove(key)

    async def discard(self) -> None:
        """The list under way failed: forget what was staged.

        Cancellation:
            Safe: it is forgotten.
        """
        staged, self._staged = self._staged, None
        if staged is not None:
            await release(list(staged.contents.objects.values()))

    async def commit(self, resource_version: str) -> None:
        """The list is complete: what was staged is everything there is.

        Cancellation:
            Safe: it is queued, or it is not.
        """
        staged = self._begin_staging()
        if staged.uncompressed or self._compressing.waits:
            await self._compress(staged)

        self._staged = None
        self._committed = staged.contents
        self._left_out = staged.left_out
        self._version = resource_version
        newest = version_number(staged.newest)
        ahead = 0 <= version_number(resource_version) < newest
        self._listed_ahead = newest if ahead else -1
        await self._fifo.feed_replacement(staged.contents, resource_version)

    async def vacate(self) -> None:
        """The server has the resource no more: every object is gone.

        As with a list of nothing: the store is emptied in one step, and each object is
        told as `Deleted(final_state_unknown=True)`. What is synced stays so. The store
        keeps its version: all up to there was seen, and where the resource comes back,
        the versions go on. Without a list before, nothing happens.

        Cancellation:
            Safe: it is queued, or it is not.
        """
        await self.discard()
        if self._version is not None:
            await self.commit(self._version)

    async def feed(
        self, deltas: list[Delta[KubeObject]], resource_version: str
    ) -> None:
        """Take changes, and the version up to which they bring everything.

        Cancellation:
            Safe: all of them are queued, or none.
        """
        if self._compressing.due:
            await self._compressing.renew(self.known)

        ahead = self._listed_ahead >= 0
        if ahead:
            deltas = [delta for delta in deltas if not self._overtaken(delta.object)]

        newest: dict[str, KubeObject | None] | None = None
        if self._transforming.function is not None:
            newest = {}
            deltas = await self._transformed(deltas, newest)

        await self._fifo.feed(deltas, resource_version)
        self._version = resource_version or self._version
        if ahead and version_number(resource_version) >= self._listed_ahead:
            self._listed_ahead = -1

        if newest is None:
            return

        for key, obj in newest.items():
            if obj is not None and is_left_out(obj):
                self._left_out[key] = obj
            else:
                self._left_out.pop(key, None)

    # ------------------------------------------------------------ helpers

    def _begin_staging(self) -> _Staging:
        if self._staged is None:
            self._staged = _Staging(self._indexer.replacement())

        return self._staged

    def _takes_all(self, current: Contents[KubeObject]) -> bool:
        """True if what is listed is stored as it comes, whatever it is."""
        known = current.objects or self._left_out
        changing = self._transforming.function or self._compressing.compression
        return not (known or changing)

    def _stage(
        self,
        obj: KubeObject,
        staged: _Staging,
        current: Contents[KubeObject],
        *,
        anew: bool,
    ) -> None:
        key = obj.key
        old = current.objects.get(key)
        same = old is not None and same_state(old, obj)
        if old is not None and same and not anew:
            staged.keep(key, old, current)
            return

        left_out = self._left_out.get(key)
        if left_out is not None and same_state(left_out, obj) and not anew:
            staged.leave_out(key, left_out)
            return

        taken = self._transforming(obj)
        if taken is None:
            staged.leave_out(key, identity_of(obj))
        elif old is not None and same and old == taken:
            staged.keep(key, old, current)
        else:
            staged.put(key, self._compressing(taken), taken)
            if self._compressing.waits:
                staged.uncompressed.append(key)

    async def _compress(self, staged: _Staging) -> None:
        """Compress what came before that could be done; by a dictionary made of it.

        Cancellation:
            Safe: what is left is still to be done.
        """
        contents, waiting = staged.contents, staged.uncompressed
        if self._compressing.waits:
            samples = map(contents.objects.get, waiting[:SAMPLES])
            await self._compressing.begin(it for it in samples if it is not None)

        budget = LoopBudget.current()
        await budget.start()
        while waiting:
            key = waiting.pop()
            obj = contents.objects.get(key)
            if obj is not None:  # not gone meanwhile
                contents.keep(key, self._compressing(obj), contents)

            if budget.over():
                await budget.start()

        budget.end()

    def _listed(self, key: str) -> KubeObject | None:
        """The state of an object in the list under way; else the one known before."""
        listed = self._begin_staging().contents.objects.get(key)
        return self.known(key) if listed is None else listed

    def _overtaken(self, obj: KubeObject) -> bool:
        """True for a state that is older than what the list said of the same key.

        A list may be newer than the version that it names. The watch from there tells
        once more how it came to what was listed, in states that would lead back.

        Asked only as long as the watch is behind the list: of an object that no list
        could read, a state may be kept from a history in which versions were higher.
        """
        known = self.known(obj.key)
        if known is None:
            return False

        number = version_number(obj.resource_version)
        overtaken = 0 <= number < version_number(known.resource_version)
        self.duplicates += overtaken
        return overtaken

    async def _transformed(
        self, deltas: list[Delta[KubeObject]], newest: dict[str, KubeObject | None]
    ) -> list[Delta[KubeObject]]:
        """The changes that are left when all objects have passed the transform.

        Args:
            deltas: As they came.
            newest: Learns what is known of each object after them.
        """
        result: list[Delta[KubeObject]] = []
        budget = LoopBudget.current()
        await budget.start()
        for delta in deltas:
            key = delta.object.key
            before = newest[key] if key in newest else self.known(key)
            if delta.type is DeltaType.DELETED:
                newest[key] = None
                change = self._transformed_end(delta, before)
            elif before is not None and same_state(before, delta.object):
                self.duplicates += 1
                change = None
            else:
                newest[key], change = self._transformed_state(delta, before)

            if change is not None:
                result.append(change)

            if budget.over():
                await budget.start()

        budget.end()
        return result

    def _transformed_state(
        self, delta: Delta[KubeObject], before: KubeObject | None
    ) -> tuple[KubeObject, Delta[KubeObject] | None]:
        """What is known then, and the change, if it is one."""
        obj = delta.object
        taken = self._transforming(obj)
        if taken is not None:
            return taken, Delta(delta.type, taken)

        identity = identity_of(obj)
        if before is None or is_left_out(before):
            return identity, None

        # As if it matched a selector no more: it goes, in the state known last. If it
        # was another object, that one's end was not seen, which the other uid tells.
        gone = before if before.uid == obj.uid else identity
        return identity, Delta(DeltaType.DELETED, gone)

    def _transformed_end(
        self, delta: Delta[KubeObject], before: KubeObject | None
    ) -> Delta[KubeObject] | None:
        """The deletion; None of an object that nobody was told of.

        Its final state passes the transform, too. Left out, the one known last stands
        in for it: the object is gone, whatever is wanted of its last state.
        """
        obj = delta.object
        if before is None or is_left_out(before):
            return None

        if before.uid != obj.uid:
            return delta  # the one known ended unseen; this state is told to nobody

        if same_state(before, obj):
            return Delta(DeltaType.DELETED, before)

        return Delta(DeltaType.DELETED, self._transforming(obj) or before)
