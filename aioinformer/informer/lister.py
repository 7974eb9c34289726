"""`Lister`: reads from an informer's cache, plain calls from any thread."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from operator import attrgetter, methodcaller
from types import MappingProxyType
from typing import TYPE_CHECKING, Generic, TypeVar

import msgspec

from aioinformer._user_code import guarded_logger
from aioinformer.cache.index import NAMESPACE_INDEX, index_by_label
from aioinformer.errors import DecodeError, OptionsError
from aioinformer.model.deep_json import check_json
from aioinformer.model.selectors import LabelSelector

if TYPE_CHECKING:
    import builtins
    from collections.abc import Callable, Iterator

    from aioinformer.cache.store import Contents, Indexer
    from aioinformer.model.objects import KubeObject
    from aioinformer.model.times import Duration

__all__ = ["BodyJoiner", "Lister", "TypedLister"]


T = TypeVar("T")


class Lister:
    """Reads the objects of one informer, or of one namespace of it.

    Every read answers from one snapshot and returns at once: it is memory. The cache
    follows the server at some distance; what is read may be a little old. Reads may
    come from any thread.

    Of an informer of several namespaces, a read in one of them asks no more than that
    this one is complete and fresh; reads in a namespace that it does not have raise
    `OptionsError`.

    All reads take these options, and raise these errors:

    - `NotSynced` before the first complete list is there and `InformerStopped` after
      the informer has ended, because a dead cache looks just like a live one.
      `allow_unsynced=True` answers with what there is.
    - `Stale` if the cache may be further behind the server than `max_staleness`
      (seconds, or a timedelta): if `InformerStatus.age` is above it, or there is no
      state at all; the text says how old it is. Without it, a read answers through any
      outage with the last known state. It holds for `allow_unsynced=True`, too.

    A read takes time for what it finds, and not for what there is, if an index leads to
    it: by key, of a namespace, by an index, or by a label that has an index of
    `index_by_label`. Any other selector looks at each object; in a namespace's lister,
    of that namespace.

    How much staleness to accept: while nothing happens in a collection, only bookmarks
    show that nothing did, about one a minute from a real server, though none for some
    resources; and then the end of the watch, after up to two times `watch_seconds` (10
    minutes unless set). So choose at least 2 minutes where bookmarks come; elsewhere
    more than two times `watch_seconds`, and lower those for less. A read that has to
    see a certain write waits for its version instead: `SharedInformer.wait_for_version`.

    Args:
        indexer: The informer's cache.
        check_live: Raises if what is cached of a namespace, or of all for None, is not
            complete, or dead, or if there is nothing of it.
        check_age: Raises if it is older than so much.
        namespace: Restricts it to one namespace.
        bodies: Tells which bodies `json` may join; shared by the listers of an informer.
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
        """The same for one namespace; `""` is that of cluster-scoped objects."""
        return Lister(
            self._indexer, self._check_live, self._check_age, namespace, self._bodies
        )

    def into(self, kind: type[T]) -> TypedLister[T]:
        """The same, with objects of a type: decoded by each read, and yours to change.

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
        """One object, or None if there is none.

        Args:
            key: `"namespace/name"`; the bare name in a namespace's lister, and for
                cluster-scoped kinds.
            max_staleness: Maximum age; see `Lister`.
            allow_unsynced: Whether to read an incomplete cache; see `Lister`.

        Raises:
            NotSynced, InformerStopped, Stale: Cache not readable; see `Lister`.
            OptionsError: If `max_staleness` is negative or not finite.
        """
        where = self._namespace or key.rpartition("/")[0] or None
        self._trust(max_staleness, allow_unsynced=allow_unsynced, namespace=where)
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
        """The objects whose labels match, in no particular order, in a fresh list.

        Args:
            selector: A label selector as kubectl takes it, such as
                `"app=web,tier in (a,b)"`; empty for all.
            limit: At most so many; None for all.
            max_staleness: Maximum age; see `Lister`.
            allow_unsynced: Whether to read an incomplete cache; see `Lister`.

        Raises:
            SelectorSyntaxError: If the selector cannot be parsed.
            OptionsError: If the limit is negative; and as `get`.
            NotSynced, InformerStopped, Stale: Cache not readable; see `Lister`.
        """
        selector = _selector(selector, limit)
        self._trust(max_staleness, allow_unsynced=allow_unsynced)
        return self._matching(self._indexer.contents, selector, limit)

    def by_index(
        self,
        name: str,
        value: str,
        *,
        max_staleness: Duration | None = None,
        allow_unsynced: bool = False,
    ) -> builtins.list[KubeObject]:
        """The objects that have `value` in the index `name`, in a fresh list.

        Raises:
            OptionsError: If the informer has no such index; and as `get`.
            NotSynced, InformerStopped, Stale: Cache not readable; see `Lister`.
        """
        self._trust(max_staleness, allow_unsynced=allow_unsynced)
        indexes = self._indexer.contents.indexes
        index, namespace = indexes.get(name), self._namespace
        if index is None or namespace is None:
            return self._indexer.by_index(name, value)

        found = index.buckets.get(value, _NOTHING)
        here = indexes[NAMESPACE_INDEX].buckets.get(namespace, _NOTHING)
        if len(found) <= len(here):
            return [obj for obj in list(found.values()) if obj.namespace == namespace]

        # One call, so that a thread that reads sees no change between two objects.
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
        """The same as `list`, as a Kubernetes `List` in JSON.

        The stored bodies are joined, not decoded, in one go: that takes about a
        millisecond for each megabyte. The first call that joins a body checks it, too: an
        object whose body is not JSON is left out, and counted in `status.degraded`.
        Nothing else is left out: Secrets go in with their data. The list's version is
        that of the cache, so that a client can go on from it. Read in another thread than
        the informer's, it may have objects that are newer, but none that is older.
        Options and errors are those of `list`.
        """
        selector = _selector(selector, limit)
        self._trust(max_staleness, allow_unsynced=allow_unsynced)
        contents = self._indexer.contents
        # Before the objects: what is applied in between is told to the client again.
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
        """All that can be meant, of this namespace: from where there are fewest."""
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

    def _trust(
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
    """The parsed selector of a read; both of its arguments are checked."""
    if limit is not None and limit < 0:
        raise OptionsError(f"limit must not be negative, as {limit}")

    if isinstance(selector, str):
        return LabelSelector.parse(selector)

    if not isinstance(selector, LabelSelector):
        raise OptionsError(
            f"a selector is a text such as 'app=web', or a LabelSelector, not {selector!r}"
        )

    return selector


_Buckets = Mapping[str, Mapping[str, "KubeObject"]]


_Place = tuple[_Buckets, Sequence[str]]
"""Buckets of an index, and by which values objects are in those that are meant."""


_NOTHING: Mapping[str, KubeObject] = MappingProxyType({})


_ITEMS = methodcaller("items")


def _labelled(
    contents: Contents[KubeObject], selector: LabelSelector
) -> Iterator[_Place]:
    """For each label that is asked for and has an index, the buckets it may be in."""
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
    """The objects of these buckets, each once."""
    if len(values) == 1:
        return list(buckets.get(values[0], _NOTHING).values())

    # One call, the look for the buckets included, so that a thread that reads misses
    # none that moves from one into another meanwhile.
    there = filter(None, map(buckets.get, values))
    found: dict[str, KubeObject] = dict(chain.from_iterable(map(_ITEMS, there)))
    return list(found.values())


class TypedLister(Generic[T]):
    """Reads objects as a type; made by `Lister.into`.

    ::

        class Pod(msgspec.Struct):
            metadata: Metadata
            spec: PodSpec

        pods.lister.into(Pod).namespace("shop").list("app=web")  # list[Pod]

    Options and errors of its reads are those of the `Lister`. Besides, they raise
    `DecodeError` if an object does not fit the type.

    What is read is decoded by that read and belongs to the caller: nothing is kept. The
    fewer fields the type has, the less that takes; many objects take many milliseconds,
    during which the event loop does not turn.

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
        """The same for one namespace."""
        return TypedLister(self._lister.namespace(namespace), self._kind)

    def get(
        self,
        key: str,
        *,
        max_staleness: Duration | None = None,
        allow_unsynced: bool = False,
    ) -> T | None:
        """One object, or None if there is none.

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
        """The objects whose labels match, in a fresh list.

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
        """The objects that have `value` in the index `name`, in a fresh list.

        Raises:
            DecodeError: If one of them does not fit the type.
            OptionsError: If the informer has no such index; and as `Lister.get`.
            NotSynced, InformerStopped, Stale: See `Lister.get`.
        """
        found = self._lister.by_index(
            name, value, max_staleness=max_staleness, allow_unsynced=allow_unsynced
        )
        return [obj.into(self._kind) for obj in found]


logger = guarded_logger(__name__)


# Behind its head, a body is not looked at when it comes in: that would double the cost of
# a listed object. So a broken one shows only when somebody joins it with others.
_SLACK = 1024


_BODY = attrgetter("body")


class BodyJoiner:
    """Joins the bodies of objects, without those that are not JSON.

    A body is looked at once, which takes about 0.6 ms for each megabyte. From then on
    its hash tells: bodies remember their hashes, so that 1,000 objects take 0.05 ms.
    Calls may come from any thread.

    Args:
        name: Names the informer in the log.
    """

    def __init__(self, name: str = "informer") -> None:
        self._name = name
        # Hashes of bodies. They keep no body alive; some are of bodies that are gone.
        self._plain: set[int] = set()  # JSON as they are stored
        self._packed: set[int] = set()  # compressed JSON
        self._bad: set[int] = set()
        self.failures = 0
        """Bodies so far that are not JSON, each counted once."""

    def __repr__(self) -> str:
        return f"<BodyJoiner {self.failures} failures>"

    def __len__(self) -> int:
        return len(self._plain) + len(self._packed) + len(self._bad)

    def joined(
        self, objects: list[KubeObject], stored: Mapping[str, KubeObject]
    ) -> bytes:
        """Join the bodies that are JSON, with commas.

        Args:
            objects: Some of the stored ones.
            stored: All of them. What is remembered of others is dropped at times.

        Raises:
            InternalError: A body was compressed, and is damaged.
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
        """Return the JSON of an object; nothing if it is none."""
        mark = hash(obj.body)
        if mark in self._bad:
            return b""

        raw = obj.raw
        if mark in self._plain or mark in self._packed:
            return raw

        try:
            check_json(raw)
            if not raw.isascii():
                raw.decode()
        except (DecodeError, UnicodeDecodeError) as exc:
            self._bad.add(mark)
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

        (self._plain if obj.context.codec is None else self._packed).add(mark)
        return raw
