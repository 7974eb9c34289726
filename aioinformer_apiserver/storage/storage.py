"""`Storage`: all objects, with one version counter and a bounded history.

Synchronous: no tasks, no clock, no HTTP. The registry validates bodies. Every write is
one step: version, object, history, and waking the readers.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import OrderedDict, deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec

from aioinformer import json_codec
from aioinformer.errors import OptionsError
from aioinformer_apiserver.storage.dispatcher import Dispatcher
from aioinformer_apiserver.storage.encoding import encode, event_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from aioinformer.model import Resource
    from aioinformer_apiserver.storage.kinds import Kind

__all__ = ["Change", "Collection", "SavedState", "Storage", "StoredObject"]

_UNCACHED = frozenset({("", "events"), ("events.k8s.io", "events")})
# Maximum number of snapshots of a collection for paged lists. Without one, each page
# costs a reconstruction.
MAX_SNAPSHOTS = 4


@dataclass(frozen=True, slots=True)
class SavedState:
    """All objects at one version, like a backup of etcd.

    Attributes:
        version: Newest version.
        contents: Every served kind with its objects.
    """

    version: int
    contents: tuple[tuple[Kind, tuple[StoredObject, ...]], ...]


class Collection:
    """All objects of one resource, and their latest changes.

    Only its `Storage` modifies it. Readers take snapshots and cursors.
    """

    def __init__(self, kind: Kind, *, history: int, floor: int) -> None:
        self.kind: Kind = kind
        self.closed: bool = False
        self.siblings: tuple[Collection, ...] = (self,)
        """Collections of the same objects in all API versions, including this one."""
        self.dispatcher: Dispatcher = Dispatcher(self.subscribe)
        """Dispatcher of changes to watches."""
        self.watch_generation: int = 0
        """Number of times that all watches were ended while the kind remains served."""
        self.tail: Change = Change(kind, floor)
        self.floor: int = floor
        """Oldest version whose objects are known."""
        self.watch_floor: int = floor
        """Oldest version after which all changes are known."""
        self.cached: bool = (kind.resource.group, kind.resource.plural) not in _UNCACHED
        """True if a real server has a watch cache; only events have none."""
        self._objects: dict[str, StoredObject] = {}
        # States in another version, which the conversion webhook has not converted yet.
        self._unconverted: dict[StoredObject, None] = {}
        # Invariant: the sorted keys of `_objects`.
        self._order: list[str] = []
        self._history: deque[Change] = deque()
        self._bound = history
        self._snapshots: OrderedDict[int, list[StoredObject]] = OrderedDict()
        # Not a set, whose order differs between processes.
        self._readers: dict[Callable[[], None], None] = {}

    def __len__(self) -> int:
        return len(self._objects)

    def __iter__(self) -> Iterator[StoredObject]:
        return iter(self._objects.values())

    def __repr__(self) -> str:
        return (
            f"<Collection {self.kind.resource} objects={len(self)} "
            f"history={self.floor}..{self.tail.version}>"
        )

    def get(self, key: str) -> StoredObject | None:
        """Return the object with the key `"namespace/name"` or `"name"`, or None."""
        return self._objects.get(key)

    @property
    def unconverted(self) -> tuple[StoredObject, ...]:
        """States that a conversion webhook must convert before anybody reads them."""
        return tuple(self._unconverted)

    def convert(self, converted: Mapping[StoredObject, StoredObject]) -> None:
        """Replace unconverted states by converted ones."""
        for key, stored in self._objects.items():
            self._objects[key] = converted.get(stored, stored)

        for change in (*self._history, self.tail):
            change.replace_states(converted)

        self._snapshots.clear()
        for stored in converted:
            self._unconverted.pop(stored, None)

    def readable(self, key: str) -> tuple[Collection, StoredObject]:
        """Return an object in a version in which it needs no conversion.

        Raises:
            KeyError: If it does not exist.
        """
        for sibling in self.siblings:
            stored = sibling.get(key)
            if stored is not None and stored not in sibling.unconverted:
                return sibling, stored

        return self, self._objects[key]

    def has_history_since(self, version: int) -> bool:
        """Return whether the state at a version and all later changes are known."""
        return version >= self.floor

    def has_changes_since(self, version: int) -> bool:
        """Return whether all changes after a version are known."""
        return version >= self.watch_floor

    def snapshot(self, version: int | None = None) -> list[StoredObject]:
        """Return all objects in the order of their keys. Callers must not modify it.

        Args:
            version: Version of the state, not older than the history; None for now.
        """
        latest = self.tail.version
        if version is None or version >= latest:
            version = latest

        kept = self._snapshots.get(version)
        if kept is None:
            kept = self._list_at(version)
            self._snapshots[version] = kept
            while len(self._snapshots) > MAX_SNAPSHOTS:
                self._snapshots.popitem(last=False)

        self._snapshots.move_to_end(version)
        return kept

    def cursor_at(self, version: int) -> Change:
        """Return a cursor whose next change is the first one after a version."""
        later: Change | None = None
        for change in reversed(self._history):
            if change.version <= version:
                return change

            later = change

        if later is None:
            return self.tail

        return Change(self.kind, version, next=later)

    def subscribe(self, wake: Callable[[], None]) -> Callable[[], None]:
        """Call `wake` after each change, until the returned function is called."""
        self._readers[wake] = None
        return lambda: self._readers.pop(wake, None)

    def record(self, version: int, key: str, new: StoredObject | None) -> None:
        """Apply one change. For `Storage` only."""
        change = Change(self.kind, version, self._objects.get(key), new)
        if new is not None:
            self._mark(new)

        if new is None:
            del self._objects[key]
            del self._order[bisect_left(self._order, key)]
        else:
            self._objects[key] = new
            if change.old is None:
                insort(self._order, key)

        self.tail.next = change
        self.tail = change
        self._history.append(change)
        while len(self._history) > self._bound:
            self.floor = floor = self._history.popleft().version
            # A watch cache does not know the version of the last event that it dropped.
            if self._history and self.cached:
                floor = self._history[0].version - 1

            self.watch_floor = max(self.watch_floor, floor)

        self._drop_expired_snapshots()
        self.wake()

    def _mark(self, stored: StoredObject) -> None:
        """Note a state in another version."""
        if self.kind.conversion is not None and not stored.is_of(self.kind):
            self._unconverted[stored] = None

    def discard_history(self, version: int) -> None:
        """Discard the changes up to a version. For `Storage` only."""
        # After a compaction, etcd still has the change of the version itself.
        watched = version if self.cached else version - 1
        while self._history and self._history[0].version <= watched:
            self._history.popleft()

        self.floor = max(self.floor, version)
        self.watch_floor = max(self.watch_floor, watched)
        self._drop_expired_snapshots()

    def reset(self, objects: Iterable[StoredObject], version: int) -> None:
        """Replace all objects, without a history before a version. For `Storage` only.

        Ends all watches, because later changes do not continue their events.
        """
        self._objects = {stored.key: stored for stored in objects}
        self._unconverted.clear()
        for stored in self._objects.values():
            self._mark(stored)

        self._order = sorted(self._objects)
        self._history.clear()
        self._snapshots.clear()
        self.floor = self.watch_floor = version
        self.tail = Change(self.kind, version)
        self.watch_generation += 1
        self.wake()

    def redefine(self, kind: Kind, version: int) -> None:
        """Serve the objects as another kind from a version on. For `Storage` only.

        Ends all watches. New ones cannot start before, as with a new watch cache.
        """
        self.kind = kind
        self.watch_floor = version
        for key, stored in self._objects.items():
            if stored not in self._unconverted:
                new = StoredObject.of(kind, stored.body(), stored.version)
                self._objects[key] = new

        self._snapshots.clear()
        self.watch_generation += 1
        self.wake()

    def close(self) -> None:
        """Mark the end of all changes. For `Storage` only."""
        self.closed = True
        self.wake()

    def wake(self) -> None:
        """Wake all readers."""
        for wake in tuple(self._readers):
            wake()

    def _drop_expired_snapshots(self) -> None:
        """Drop snapshots of expired versions, with their old objects."""
        for version in [it for it in self._snapshots if it < self.floor]:
            del self._snapshots[version]

    def _list_at(self, version: int) -> list[StoredObject]:
        """Return all objects at a version, in the order of their keys."""
        if version >= self.tail.version:
            return [self._objects[key] for key in self._order]

        objects = self._objects_at(version)
        return [objects[key] for key in sorted(objects)]

    def _objects_at(self, version: int) -> dict[str, StoredObject]:
        """Return the objects without the changes after a version."""
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
    """All collections, with one version counter.

    Args:
        history: Number of changes to keep for each collection. Older versions get 410.
    """

    def __init__(self, *, history: int = 1000) -> None:
        if history < 0:
            raise OptionsError(f"history must be at least 0, not {history}")

        self.version: int = 1
        self._history = history
        self._collections: dict[tuple[str, str, str], Collection] = {}
        # Not a set, whose order differs between processes.
        self._readers: dict[Callable[[], None], None] = {}

    def __iter__(self) -> Iterator[Collection]:
        return iter(self._collections.values())

    def serve(self, kind: Kind, *, sibling: Collection | None = None) -> Collection:
        """Return the collection of a kind, and create it if necessary.

        Args:
            kind: Kind of the objects.
            sibling: Collection of another version of the resource, whose objects the
                new one shares; None for an empty collection.
        """
        path = _path_of(kind.resource)
        if path in self._collections:
            return self._collections[path]

        new = Collection(kind, history=self._history, floor=self.version)
        self._collections[path] = new
        if sibling is not None:
            new.reset([_shown(it, sibling.kind, kind) for it in sibling], self.version)
            _set_siblings((*sibling.siblings, new))

        return new

    def redefine(self, collection: Collection, kind: Kind) -> None:
        """Serve a collection as another kind of the same name, and end its watches.

        Watches from earlier versions get 410.
        """
        collection.redefine(kind, self.version)
        if kind.conversion is None or kind.resource.version == kind.storage_version:
            return

        # A webhook may convert the stored objects in another way than before.
        for sibling in collection.siblings:
            if sibling.kind.resource.version == kind.storage_version:
                collection.reset(list(sibling), self.version)

    def stop_serving(self, collection: Collection) -> None:
        """Stop serving one version of a resource. The others keep its objects."""
        _set_siblings(tuple(it for it in collection.siblings if it is not collection))
        del self._collections[_path_of(collection.kind.resource)]
        collection.close()

    def find(self, group: str, version: str, plural: str) -> Collection | None:
        """Return the served collection of a resource, or None."""
        found = self._collections.get((group, version, plural))
        return found if found is not None and found.kind.served else None

    def collection(self, resource: Resource) -> Collection:
        """Return the collection of a resource.

        Raises:
            OptionsError: If it is not served.
        """
        found = self.find(*_path_of(resource))
        if found is None:
            raise OptionsError(
                f"{resource} ({resource.api_version}) is not served: "
                "register() a custom resource first"
            )

        return found

    def remove_resource(self, collection: Collection) -> None:
        """Delete all objects of a resource, end its watches, and stop serving it."""
        for stored in list(collection):
            self.drop(collection, stored)

        for sibling in collection.siblings:
            del self._collections[_path_of(sibling.kind.resource)]
            sibling.close()

    def put(
        self,
        collection: Collection,
        body: dict[str, Any],
        *,
        converted: Mapping[Collection, dict[str, Any]] | None = None,
    ) -> StoredObject:
        """Store a complete body as the next version of its object.

        Args:
            collection: Collection of the resource, in the version of the body.
            body: The object.
            converted: The object in other versions, if it is known.
        """
        new = StoredObject.of(collection.kind, body, self.version + 1)
        self.version += 1
        collection.record(self.version, new.key, new)
        for sibling in collection.siblings:
            if sibling is not collection:
                given = (converted or {}).get(sibling)
                shown = (
                    _shown(new, collection.kind, sibling.kind)
                    if given is None
                    else StoredObject.of(sibling.kind, given, self.version)
                )
                sibling.record(self.version, new.key, shown)

        self._wake()
        return new

    def drop(self, collection: Collection, stored: StoredObject) -> None:
        """Delete an object. The deletion has a version of its own."""
        self.version += 1
        for sibling in collection.siblings:
            sibling.record(self.version, stored.key, None)

        self._wake()

    def compact(self) -> None:
        """Discard all history: lists and watches of older versions get 410."""
        for collection in self._collections.values():
            collection.discard_history(self.version)

    def save(self) -> SavedState:
        """Return the current state, for `restore()`."""
        return SavedState(self.version, tuple((it.kind, tuple(it)) for it in self))

    def restore(self, state: SavedState) -> None:
        """Restore a state with its version and its served resources.

        Ends all watches.
        """
        self.version = state.version
        served = {_path_of(kind.resource) for kind, _ in state.contents}
        for path in [it for it in self._collections if it not in served]:
            self._collections.pop(path).close()

        related: dict[tuple[str, str], tuple[Collection, ...]] = {}
        for kind, objects in state.contents:
            collection = self.serve(kind)
            collection.kind = kind
            collection.reset(objects, self.version)
            name = kind.stored.group, kind.stored.plural
            related[name] = (*related.get(name, ()), collection)

        for collections in related.values():
            _set_siblings(collections)

        self._wake()

    def start_new_history(self, make_uid: Callable[[], str]) -> None:
        """Restart the versions from the beginning, and give every object a new uid.

        Objects keep the order in which they were written. Ends all watches.
        """
        found = [
            it.readable(stored.key)
            for it in self._collections.values()
            if it is it.siblings[0]
            for stored in it
        ]
        before, self.version = self.version, 1
        renewed: dict[Collection, list[StoredObject]] = {}
        for collection, stored in sorted(found, key=lambda pair: pair[1].version):
            body = stored.body()
            body["metadata"]["uid"] = make_uid()
            self.version += 1
            for sibling in collection.siblings:
                made = StoredObject.of(collection.kind, body, self.version)
                new = _shown(made, collection.kind, sibling.kind)
                renewed.setdefault(sibling, []).append(new)

        if self.version == before:
            # Without any earlier change, both histories would end at the same version,
            # and clients could not distinguish them. Real histories are never that
            # short.
            self.version += 1

        for collection in self._collections.values():
            collection.reset(renewed.get(collection, ()), self.version)

        self._wake()

    def subscribe(self, wake: Callable[[], None]) -> Callable[[], None]:
        """Call `wake` after each write, until the returned function is called."""
        self._readers[wake] = None
        return lambda: self._readers.pop(wake, None)

    def _wake(self) -> None:
        for wake in tuple(self._readers):
            wake()


def _set_siblings(collections: tuple[Collection, ...]) -> None:
    for collection in collections:
        collection.siblings = collections


def _shown(stored: StoredObject, kind: Kind, other: Kind) -> StoredObject:
    """Return an object in another version; unchanged if a webhook must convert it."""
    if kind is other or other.conversion is not None:
        return stored

    body = other.from_storage(kind.to_storage(stored.body()))
    return StoredObject.of(other, body, stored.version)


def _path_of(resource: Resource) -> tuple[str, str, str]:
    return resource.group, resource.version, resource.plural


class StoredObject(msgspec.Struct, frozen=True, eq=False, gc=False):
    """One state of one object. Immutable: the next state is another `StoredObject`.

    There may be tens of thousands. They hold only strings, so the garbage collector
    does not track them.

    Attributes:
        key: Key `"namespace/name"` or `"name"`, which is also the order of lists.
        namespace: Namespace; empty for cluster-scoped kinds.
        name: Name.
        uid: Uid.
        version: Resource version, as a number.
        raw: Encoded object.
        labels: Labels, for selectors.
        fields: Values of the kind's selectable fields.
    """

    key: str
    namespace: str
    name: str
    uid: str
    version: int
    raw: bytes
    labels: dict[str, str]
    fields: dict[str, str]

    @classmethod
    def of(cls, kind: Kind, body: dict[str, Any], version: int) -> StoredObject:
        """Encode a complete body with a version (0 for none).

        The body is neither modified nor kept.
        """
        metadata = {**body["metadata"], "resourceVersion": str(version or "")}
        namespace, name = metadata.get("namespace") or "", metadata["name"]
        return cls(
            key=f"{namespace}/{name}" if namespace else name,
            namespace=namespace,
            name=name,
            uid=metadata.get("uid") or "",
            version=version,
            raw=encode(kind, {**body, "metadata": metadata}),
            labels=dict(metadata.get("labels") or {}),
            fields=kind.field_values(body),
        )

    def body(self) -> dict[str, Any]:
        """Return the object as a new dictionary, which the caller may modify."""
        decoded: dict[str, Any] = json_codec.loads(self.raw)
        return decoded

    def is_of(self, kind: Kind) -> bool:
        """Return whether a custom resource is in the version of a kind."""
        version = f'{{"apiVersion":"{kind.resource.api_version}"'
        return self.raw.startswith(version.encode())

    def field(self, path: str) -> str:
        """Return a selectable field; `""` if it is missing."""
        if path == "metadata.name":
            return self.name

        if path == "metadata.namespace":
            return self.namespace

        return self.fields.get(path, "")


@dataclass(slots=True, eq=False)
class Change:
    """One write: from `old` (None: created) to `new` (None: deleted), at `version`.

    Changes are linked. A reader keeps a cursor, the last change that it has seen. So a
    slow reader loses nothing when the history drops changes, and changes that only a
    reader needs live as long as that reader.
    """

    kind: Kind
    version: int
    old: StoredObject | None = None
    new: StoredObject | None = None
    next: Change | None = None
    _encoded: dict[tuple[str, str], bytes] = field(default_factory=dict)

    def replace_states(self, converted: Mapping[StoredObject, StoredObject]) -> None:
        """Replace unconverted states by converted ones."""
        self._encoded.clear()
        if self.old is not None:
            self.old = converted.get(self.old, self.old)

        if self.new is not None:
            self.new = converted.get(self.new, self.new)

    def line(self, event: str) -> bytes:
        """Return the watch line of this change, encoded once for all watches.

        Args:
            event: `"ADDED"`, `"MODIFIED"` or `"DELETED"`.
        """
        return self.encode(event, "line", lambda state: event_line(event, state.raw))

    def encode(
        self, event: str, form: str, show: Callable[[StoredObject], bytes]
    ) -> bytes:
        """Return the result of `show` for this change, computed once for all watches.

        Args:
            event: Type of the event, which selects the state; see `state()`.
            form: Name of the format: equal names mean equal bytes.
            show: Encoder, called for the first request of this format.
        """
        made = self._encoded.get((event, form))
        if made is None:
            made = self._encoded[event, form] = show(self.state(event))

        return made

    def state(self, event: str) -> StoredObject:
        """Return the object of an event.

        Args:
            event: Type of the event. `"ADDED"` and `"MODIFIED"` have the new state.
                `"DELETED"` has the old one at the version of this change, also if the
                object has only stopped matching a selector.
        """
        state = self.old if event == "DELETED" else self.new
        assert state is not None
        if event != "DELETED":
            return state

        return StoredObject.of(self.kind, state.body(), self.version)
