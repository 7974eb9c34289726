"""Storage: the objects, one version counter over all of them, and a bounded history.

Pure and synchronous: no task, no clock, no HTTP, and no opinion on what a body should
say (that is the registry's). Every write is one step: version, object, history, and the
bells of those who wait.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import TYPE_CHECKING, Any

from aioinformer.errors import OptionsError
from aioinformer.testing.changes import Change, Stored

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from aioinformer.model.resource import Resource
    from aioinformer.testing.kinds import Kind

__all__ = ["Collection", "Storage"]

# Lists that are being paged through at the same time, for each collection. One too many
# costs its reader a reconstruction for each page, nothing else.
SNAPSHOTS_KEPT = 4


class Collection:
    """All objects of one resource, and what happened to them lately.

    Changed only by its `Storage`. Readers take snapshots and cursors.
    """

    def __init__(self, kind: Kind, *, history: int, floor: int) -> None:
        self.kind = kind
        self.closed = False
        self.tail = Change(kind, floor)
        self.floor = floor
        """The oldest version from which changes can still be told."""
        self._objects: dict[str, Stored] = {}
        self._history: deque[Change] = deque()
        self._bound = history
        self._snapshots: OrderedDict[int, list[Stored]] = OrderedDict()
        self._readers: set[Callable[[], None]] = set()

    def __len__(self) -> int:
        return len(self._objects)

    def __iter__(self) -> Iterator[Stored]:
        return iter(self._objects.values())

    def __repr__(self) -> str:
        return (
            f"<Collection {self.kind.resource} objects={len(self)} "
            f"history={self.floor}..{self.tail.version}>"
        )

    def get(self, key: str) -> Stored | None:
        """Return the object under `"namespace/name"` or `"name"`, if it exists."""
        return self._objects.get(key)

    def has_history_since(self, version: int) -> bool:
        """True if the state at `version`, and all changes after it, are known."""
        return version >= self.floor

    def snapshot(self, version: int | None = None) -> list[Stored]:
        """Return all objects in the order of their keys; not to be changed.

        Args:
            version: As they were at this version, which must not be older than the
                history; None for now.
        """
        latest = self.tail.version
        if version is None or version >= latest:
            version = latest

        kept = self._snapshots.get(version)
        if kept is None:
            objects = self._objects_at(version)
            kept = [objects[key] for key in sorted(objects)]
            self._snapshots[version] = kept
            while len(self._snapshots) > SNAPSHOTS_KEPT:
                self._snapshots.popitem(last=False)

        self._snapshots.move_to_end(version)
        return kept

    def cursor_at(self, version: int) -> Change:
        """Return a cursor whose next change is the first one after `version`."""
        later: Change | None = None
        for change in reversed(self._history):
            if change.version <= version:
                return change

            later = change

        if later is None:
            return self.tail

        return Change(self.kind, version, next=later)

    def subscribe(self, wake: Callable[[], None]) -> Callable[[], None]:
        """Call `wake` after each change, until the function returned is called."""
        self._readers.add(wake)
        return lambda: self._readers.discard(wake)

    def record(self, version: int, key: str, new: Stored | None) -> None:
        """Take one change in: for `Storage` only."""
        change = Change(self.kind, version, self._objects.get(key), new)
        if new is None:
            del self._objects[key]
        else:
            self._objects[key] = new

        self.tail.next = change
        self.tail = change
        self._history.append(change)
        while len(self._history) > self._bound:
            self.floor = self._history.popleft().version

        self.wake()

    def forget_until(self, version: int) -> None:
        """Forget what happened up to `version`: for `Storage` only."""
        while self._history and self._history[0].version <= version:
            self._history.popleft()

        self.floor = max(self.floor, version)

    def close(self) -> None:
        """Say that there will be no more changes: for `Storage` only."""
        self.closed = True
        self.wake()

    def wake(self) -> None:
        """Wake all readers."""
        for wake in tuple(self._readers):
            wake()

    def _objects_at(self, version: int) -> dict[str, Stored]:
        """Undo what happened after `version`."""
        objects = dict(self._objects)
        for change in reversed(self._history):
            if change.version <= version:
                break

            state = change.new or change.old
            assert state is not None
            if change.old is None:
                objects.pop(state.key)
            else:
                objects[state.key] = change.old

        return objects


class Storage:
    """Every collection, under one counter of versions.

    Args:
        history: How many changes of each collection are remembered; older versions
            are answered with 410.
    """

    def __init__(self, *, history: int = 1000) -> None:
        if history < 0:
            raise OptionsError(f"history cannot be {history}")

        self.version = 1
        self._history = history
        self._collections: dict[tuple[str, str, str], Collection] = {}
        self._readers: set[Callable[[], None]] = set()

    def __iter__(self) -> Iterator[Collection]:
        return iter(self._collections.values())

    def serve(self, kind: Kind) -> Collection:
        """Open an empty collection for `kind`; an existing one is returned."""
        path = _path_of(kind.resource)
        if path not in self._collections:
            self._collections[path] = Collection(
                kind, history=self._history, floor=self.version
            )

        return self._collections[path]

    def find(self, group: str, version: str, plural: str) -> Collection | None:
        """Return the collection that is served under these names, if there is one."""
        return self._collections.get((group, version, plural))

    def collection(self, resource: Resource) -> Collection:
        """Return the collection of `resource`.

        Raises:
            OptionsError: If it is not served.
        """
        found = self._collections.get(_path_of(resource))
        if found is None:
            raise OptionsError(
                f"{resource} ({resource.api_version}) is not served here; "
                "a custom resource is registered first"
            )

        return found

    def retire(self, collection: Collection) -> None:
        """Delete all objects of a collection, end its watches, serve it no longer."""
        for stored in list(collection):
            self.drop(collection, stored)

        del self._collections[_path_of(collection.kind.resource)]
        collection.close()

    def put(self, collection: Collection, body: dict[str, Any]) -> Stored:
        """Store a complete body as the next version of its object."""
        new = Stored.of(collection.kind, body, self.version + 1)
        self.version += 1
        collection.record(self.version, new.key, new)
        self._wake()
        return new

    def drop(self, collection: Collection, stored: Stored) -> None:
        """Delete an object; the deletion has a version of its own."""
        self.version += 1
        collection.record(self.version, stored.key, None)
        self._wake()

    def compact(self) -> None:
        """Forget all history: only the present can be listed or watched from."""
        for collection in self._collections.values():
            collection.forget_until(self.version)

    def subscribe(self, wake: Callable[[], None]) -> Callable[[], None]:
        """Call `wake` after each write, until the function returned is called."""
        self._readers.add(wake)
        return lambda: self._readers.discard(wake)

    def _wake(self) -> None:
        for wake in tuple(self._readers):
            wake()


def _path_of(resource: Resource) -> tuple[str, str, str]:
    return resource.group, resource.version, resource.plural
