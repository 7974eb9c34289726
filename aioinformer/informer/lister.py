"""`Lister`: reads an informer's cache, from any thread."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from operator import attrgetter, methodcaller
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Generic, TypeVar

import msgspec

from aioinformer._user_code import guarded_logger
from aioinformer.cache.index import NAMESPACE_INDEX, index_by_label
from aioinformer.errors import DecodeError, OptionsError
from aioinformer.model.deep_json import check_json
from aioinformer.model.selectors import LabelSelector
from aioinformer.model.validation import shown

if TYPE_CHECKING:
    import builtins
    from collections.abc import Callable, Iterator

    from aioinformer.cache.store import Contents, Indexer
    from aioinformer.model.objects import KubeObject
    from aioinformer.model.times import Duration

__all__ = ["BodyJoiner", "Lister", "TypedLister"]


T = TypeVar("T")


class Lister:
    """Reads of the cached objects of one informer, or of one of its namespaces.

    Each read returns at once, from one snapshot in memory. The cache may lag slightly
    behind the server. Reads may be made from any thread.

    With several namespaces, a read in one of them only requires that this one is synced
    and fresh. Reads in a namespace that the informer does not have raise
    `OptionsError`.

    All reads have these options and errors:

    - `NotSynced` before the first complete list, and `InformerStopped` after the end of
      the informer, when the cache is no longer updated. With `allow_unsynced=True`,
      reads return the cached objects instead.
    - `Stale` if the cache may be further behind the server than `max_staleness`
      (seconds, or a timedelta): if `InformerStatus.age` is above it, or there was no
      list yet. Without `max_staleness`, reads return the last known state during an
      outage. The limit also applies with `allow_unsynced=True`.

    If an index fits, a read takes time in proportion to its result: by key, by
    namespace, by an index, or by a label with an `index_by_label`. Other selectors are
    checked for every object of the collection, or of the lister's namespace.

    Choice of `max_staleness`: in a collection without changes, only bookmarks and the
    end of the watch prove that the cache is fresh. Real servers send a bookmark about
    every minute, for some resources none. A watch ends after up to two times
    `watch_seconds` (10 minutes by default). So use at least 2 minutes with bookmarks;
    without them, more than two times `watch_seconds`, and lower that if needed. To read
    your own write, use `SharedInformer.wait_for_version`.

    Args:
        indexer: Cache of the informer.
        check_live: Function that raises unless a namespace, or all for None, is synced
            and live.
        check_age: Function that raises if a namespace is older than a limit.
        namespace: Namespace of the reads; None for all.
        bodies: Joiner of bodies for `json`, shared by the listers of an informer.
    """

    def __init__(
        self,
        indexer: Indexer[KubeObject],
        check_live: Callable[[str | None], None],
        check_age: Callable[[Duration, str | None], None],
        namespace: str | None = None,
        bodies: BodyJoiner | None = None,
    ) -> None:
        self._indexer = indexer
        self._check_live = check_live
        self._check_age = check_age
        self._namespace = namespace
        self._bodies = BodyJoiner() if bodies is None else bodies

    def __repr__(self) -> str:
        where = "all namespaces" if self._namespace is None else self._namespace
        return f"<Lister of {where}>"

    def namespace(self, namespace: str) -> Lister:
        """Return a lister of one namespace; `""` selects cluster-scoped objects."""
        return Lister(
            self._indexer, self._check_live, self._check_age, namespace, self._bodies
        )

    def into(self, kind: type[T]) -> TypedLister[T]:
        """Return a lister of typed objects, decoded by each read. You may change them.

        Args:
            kind: Type as in `KubeObject.into`: a `msgspec.Struct`, a dataclass, a
                TypedDict, a Pydantic model, or a model of kubernetes_asyncio.
        """
        return TypedLister(self, kind)

    def get(
        self,
        key: str,
        *,
        max_staleness: Duration | None = None,
        allow_unsynced: bool = False,
    ) -> KubeObject | None:
        """Return one object, or None.

        Args:
            key: Key of the object: `"namespace/name"`, or the name if it is
                cluster-scoped, or if the lister has a namespace. `get("web")` never
                finds a namespaced object.
            max_staleness: Maximum age; see `Lister`.
            allow_unsynced: Whether to read an incomplete cache; see `Lister`.

        Raises:
            NotSynced, InformerStopped, Stale: Cache not readable; see `Lister`.
            OptionsError: If `max_staleness` is negative or not finite, or the key is no
                string.
        """
        try:
            where = self._namespace or key.rpartition("/")[0] or None
        except AttributeError:
            raise OptionsError(f"a key must be a string, not {shown(key)}") from None

        self._check(max_staleness, allow_unsynced=allow_unsynced, namespace=where)
        if self._namespace and "/" not in key:
            key = f"{self._namespace}/{key}"

        found = self._indexer.get_by_key(key)
        if found is None or self._namespace is None:
            return found

        return found if found.namespace == self._namespace else None

    def list(
        self,
        selector: str | LabelSelector = "",
        *,
        limit: int | None = None,
        max_staleness: Duration | None = None,
        allow_unsynced: bool = False,
    ) -> builtins.list[KubeObject]:
        """Return the objects whose labels match, unordered, in a new list.

        Args:
            selector: Label selector in kubectl's syntax, such as
                `"app=web,tier in (a,b)"`; empty for all.
            limit: Maximum number of objects; None for all.
            max_staleness: Maximum age; see `Lister`.
            allow_unsynced: Whether to read an incomplete cache; see `Lister`.

        Raises:
            SelectorSyntaxError: If the selector cannot be parsed.
            OptionsError: If the limit is negative, and as in `get`.
            NotSynced, InformerStopped, Stale: Cache not readable; see `Lister`.
        """
        selector = _selector(selector, limit)
        self._check(max_staleness, allow_unsynced=allow_unsynced)
        return self._matching(self._indexer.contents, selector, limit)

    def by_index(
        self,
        name: str,
        value: str,
        *,
        max_staleness: Duration | None = None,
        allow_unsynced: bool = False,
    ) -> builtins.list[KubeObject]:
        """Return the objects that have `value` in the index `name`, in a new list.

        Raises:
            OptionsError: If the informer has no such index, and as in `get`.
            NotSynced, InformerStopped, Stale: Cache not readable; see `Lister`.
        """
        self._check(max_staleness, allow_unsynced=allow_unsynced)
        indexes = self._indexer.contents.indexes
        index, namespace = indexes.get(name), self._namespace
        if index is None or namespace is None:
            return self._indexer.by_index(name, value)

        found = index.buckets.get(value, _NOTHING)
        here = indexes[NAMESPACE_INDEX].buckets.get(namespace, _NOTHING)
        if len(found) <= len(here):
            return [obj for obj in list(found.values()) if obj.namespace == namespace]

        # One C call, so that no change by another thread is made between two objects.
        both = list(map(found.get, here))
        return [obj for obj in both if obj is not None]

    def json(
        self,
        selector: str | LabelSelector = "",
        *,
        limit: int | None = None,
        max_staleness: Duration | None = None,
        allow_unsynced: bool = False,
    ) -> bytes:
        """Return the result of `list` as a Kubernetes `List` in JSON.

        The stored bodies are joined, not decoded. That takes about a millisecond for
        each megabyte. The first call for a body also checks it: an object whose body is
        not JSON is left out, and counted in `status.degraded`. Secrets are included
        with their data. The list has the version of the cache, so that a client can
        watch from there. In another thread than the informer's, some objects may be
        newer than that, but none is older. Options and errors are those of `list`.
        """
        selector = _selector(selector, limit)
        self._check(max_staleness, allow_unsynced=allow_unsynced)
        contents = self._indexer.contents
        # Before the objects: a client that watches from it misses no change.
        version = contents.resource_version
        objects = self._matching(contents, selector, limit)
        return b"".join(
            (
                b'{"apiVersion":"v1","kind":"List","metadata":{"resourceVersion":',
                msgspec.json.encode(version),
                b'},"items":[',
                self._bodies.joined(objects, contents.objects),
                b"]}",
            )
        )

    def _matching(
        self, contents: Contents[KubeObject], selector: LabelSelector, limit: int | None
    ) -> builtins.list[KubeObject]:
        found = self._candidates(contents, selector)
        if not selector.empty:
            found = selector.select(found)

        return found if limit is None else found[:limit]

    def _candidates(
        self, contents: Contents[KubeObject], selector: LabelSelector
    ) -> builtins.list[KubeObject]:
        """Return the objects of the smallest index buckets that may match."""
        namespace = self._namespace
        places = list(_labelled(contents, selector))
        if namespace is not None:
            here = contents.indexes[NAMESPACE_INDEX].buckets
            places.insert(0, (here, (namespace,)))

        if not places:
            return list(contents.objects.values())

        best = min(places, key=_size_of)
        found = _read(*best)
        if namespace is None or best is places[0]:
            return found

        return [obj for obj in found if obj.namespace == namespace]

    def _check(
        self,
        max_staleness: Duration | None,
        *,
        allow_unsynced: bool,
        namespace: str | None = None,
    ) -> None:
        where = namespace or self._namespace
        if not allow_unsynced:
            self._check_live(where)

        if max_staleness is not None:
            self._check_age(max_staleness, where)


def _selector(selector: str | LabelSelector, limit: int | None) -> LabelSelector:
    """Check the arguments of a read; return the parsed selector."""
    if limit is not None and limit < 0:
        raise OptionsError(f"limit must not be negative: {limit}")

    return (
        selector
        if isinstance(selector, LabelSelector)
        else LabelSelector.parse(selector)
    )


_Buckets = Mapping[str, Mapping[str, "KubeObject"]]


_Place = tuple[_Buckets, Sequence[str]]
"""Buckets of an index, and the values whose objects may match."""


_NOTHING: Mapping[str, KubeObject] = MappingProxyType({})


_ITEMS = methodcaller("items")


def _labelled(
    contents: Contents[KubeObject], selector: LabelSelector
) -> Iterator[_Place]:
    """Yield the buckets of each required label that has an index."""
    for it in selector.requirements:
        if it.operator in ("=", "in"):
            function = index_by_label(it.key)
            for index in list(contents.indexes.values()):
                if index.function == function:
                    yield index.buckets, it.values


def _size_of(place: _Place) -> int:
    buckets, values = place
    return sum(len(buckets.get(value, _NOTHING)) for value in values)


def _read(buckets: _Buckets, values: Sequence[str]) -> list[KubeObject]:
    """Return the objects of some buckets, each once."""
    if len(values) == 1:
        return list(buckets.get(values[0], _NOTHING).values())

    # One call, including the search for the buckets: in another thread, no object moves
    # between two buckets meanwhile.
    full = filter(None, map(buckets.get, values))
    found: dict[str, KubeObject] = dict(chain.from_iterable(map(_ITEMS, full)))
    return list(found.values())


class TypedLister(Generic[T]):
    """Reads of typed objects; made by `Lister.into`.

    ::

        class Pod(msgspec.Struct):
            metadata: Metadata
            spec: PodSpec

        pods.lister.into(Pod).namespace("shop").list("app=web")  # list[Pod]

    Reads have the options and errors of the `Lister`. They also raise `DecodeError` if
    an object does not fit the type.

    Each read decodes the objects, which then belong to the caller. Types with fewer
    fields are faster. Many objects take many milliseconds, which block the event loop.

    Args:
        lister: Lister of the objects.
        kind: Type to decode objects into.
    """

    def __init__(self, lister: Lister, kind: type[T]) -> None:
        self._lister = lister
        self._kind = kind

    def __repr__(self) -> str:
        name = getattr(self._kind, "__name__", self._kind)
        return f"<TypedLister of {name}, {self._lister!r}>"

    def namespace(self, namespace: str) -> TypedLister[T]:
        """Return a lister of one namespace."""
        return TypedLister(self._lister.namespace(namespace), self._kind)

    def get(
        self,
        key: str,
        *,
        max_staleness: Duration | None = None,
        allow_unsynced: bool = False,
    ) -> T | None:
        """Return one object, or None.

        Raises:
            DecodeError: If it does not fit the type.
            NotSynced, InformerStopped, Stale, OptionsError: See `Lister.get`.
        """
        found = self._lister.get(
            key, max_staleness=max_staleness, allow_unsynced=allow_unsynced
        )
        return None if found is None else found.into(self._kind)

    def list(
        self,
        selector: str | LabelSelector = "",
        *,
        limit: int | None = None,
        max_staleness: Duration | None = None,
        allow_unsynced: bool = False,
    ) -> builtins.list[T]:
        """Return the objects whose labels match, in a new list.

        Raises:
            DecodeError: If one of them does not fit the type.
            SelectorSyntaxError: If the selector cannot be parsed.
            NotSynced, InformerStopped, Stale, OptionsError: See `Lister.get`.
        """
        found = self._lister.list(
            selector,
            limit=limit,
            max_staleness=max_staleness,
            allow_unsynced=allow_unsynced,
        )
        return [obj.into(self._kind) for obj in found]

    def by_index(
        self,
        name: str,
        value: str,
        *,
        max_staleness: Duration | None = None,
        allow_unsynced: bool = False,
    ) -> builtins.list[T]:
        """Return the objects that have `value` in the index `name`, in a new list.

        Raises:
            DecodeError: If one of them does not fit the type.
            OptionsError: If the informer has no such index, and as in `Lister.get`.
            NotSynced, InformerStopped, Stale: See `Lister.get`.
        """
        found = self._lister.by_index(
            name, value, max_staleness=max_staleness, allow_unsynced=allow_unsynced
        )
        return [obj.into(self._kind) for obj in found]


logger: Final = guarded_logger(__name__)


# Old hashes are dropped if there are more than this above twice the number of objects.
_SLACK = 1024


_BODY = attrgetter("body")


class BodyJoiner:
    """Joiner of the bodies of objects, without those that are not JSON.

    On arrival only the head of a body is parsed: checking all of it would double the
    cost of a listed object. So each body is checked here, once, which takes about 0.6
    ms per megabyte. Its hash is kept, so later calls take 0.05 ms for 1,000 objects.
    Calls may be made from any thread.

    Args:
        name: Name of the informer in the log.
    """

    def __init__(self, name: str = "informer") -> None:
        self._name = name
        # Hashes of bodies, including some that are no longer stored.
        self._plain: set[int] = set()  # stored as JSON
        self._packed: set[int] = set()  # stored as compressed JSON
        self._bad: set[int] = set()
        self.failures: int = 0
        """Number of bodies that are not JSON, each counted once."""

    def __repr__(self) -> str:
        return f"<BodyJoiner {self.failures} failures>"

    def __len__(self) -> int:
        return len(self._plain) + len(self._packed) + len(self._bad)

    def joined(
        self, objects: list[KubeObject], stored: Mapping[str, KubeObject]
    ) -> bytes:
        """Join the bodies that are JSON, with commas.

        Args:
            objects: Objects to join; all of them are stored.
            stored: All stored objects. Hashes of other bodies are dropped now and then.

        Raises:
            InternalError: If a compressed body is damaged.
        """
        bodies = list(map(_BODY, objects))
        if not self._plain.issuperset(map(hash, bodies)):
            bodies = [raw for obj in objects if (raw := self._checked(obj))]
            if len(self) > 2 * len(stored) + _SLACK:
                self._forget_all_but(list(stored.values()))

        return b",".join(bodies)

    def _forget_all_but(self, objects: list[KubeObject]) -> None:
        now = set(map(hash, map(_BODY, objects)))
        self._plain, self._packed = self._plain & now, self._packed & now
        self._bad &= now

    def _checked(self, obj: KubeObject) -> bytes:
        """Return the body of an object; empty if it is not JSON."""
        body_hash = hash(obj.body)
        if body_hash in self._bad:
            return b""

        raw = obj.raw
        if body_hash in self._plain or body_hash in self._packed:
            return raw

        try:
            check_json(raw)
            if not raw.isascii():
                raw.decode()
        except (DecodeError, UnicodeDecodeError) as exc:
            self._bad.add(body_hash)
            self.failures += 1
            logger.warning(
                "%s: body is not JSON, leaving the object out of lists "
                "(key=%s, version=%s): %s",
                self._name,
                obj.key,
                obj.resource_version,
                exc,
            )
            return b""

        (self._plain if obj.context.codec is None else self._packed).add(body_hash)
        return raw
