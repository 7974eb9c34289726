"""`Lister`: reads an informer's cache, from any thread."""

from __future__ import annotations

from enum import Enum, auto
from operator import attrgetter
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Generic, Protocol, TypeVar

import msgspec

from aioinformer._user_code import guarded_logger
from aioinformer.errors import DecodeError, OptionsError
from aioinformer.model.deep_json import check_json
from aioinformer.model.selectors import LabelSelector
from aioinformer.model.validation import shown

if TYPE_CHECKING:
    import builtins
    from collections.abc import Callable, Mapping

    from aioinformer.cache.store import Indexer
    from aioinformer.model.objects import KubeObject
    from aioinformer.model.times import Duration

__all__ = ["BodyJoiner", "Lister", "TypedLister"]


T = TypeVar("T")


class CheckLive(Protocol):
    """Function that raises if a cache must not be read."""

    def __call__(self, namespace: str | None, *, unconfirmed: bool = False) -> None:
        """Raise unless a namespace, or all for None, is synced and live."""


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
    - With `cache_dir`, a restarted program has a complete list at once, but `NotSynced`
      is raised until the server has confirmed it. Reads with `allow_unconfirmed=True`
      return it. So do reads with `max_staleness`, if its age is known and within the
      limit. Reads of damaged files, and reads after a fork, raise `CacheError`.

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
            and live. With `unconfirmed=True`, a complete list that the server has not
            confirmed yet is enough.
        check_age: Function that raises if a namespace is older than a limit.
        namespace: Namespace of the reads; None for all.
        bodies: Joiner of bodies for `json`, shared by the listers of an informer.
    """

    def __init__(
        self,
        indexer: Indexer[KubeObject],
        check_live: CheckLive,
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
        allow_unconfirmed: bool = False,
    ) -> KubeObject | None:
        """Return one object, or None.

        Args:
            key: Key of the object: `"namespace/name"`, or the name if it is
                cluster-scoped, or if the lister has a namespace. `get("web")` never
                finds a namespaced object.
            max_staleness: Maximum age; see `Lister`.
            allow_unsynced: Whether to read an incomplete cache; see `Lister`.
            allow_unconfirmed: Whether to read a complete list that the server has not
                confirmed; see `Lister`.

        Raises:
            NotSynced, InformerStopped, Stale: Cache not readable; see `Lister`.
            OptionsError: If `max_staleness` is negative or not finite, or the key is no
                string.
        """
        try:
            where = self._namespace or key.rpartition("/")[0] or None
        except AttributeError:
            raise OptionsError(f"a key must be a string, not {shown(key)}") from None

        self._check(max_staleness, allow_unsynced, allow_unconfirmed, where)
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
        allow_unconfirmed: bool = False,
    ) -> builtins.list[KubeObject]:
        """Return the objects whose labels match, unordered, in a new list.

        Args:
            selector: Label selector in kubectl's syntax, such as
                `"app=web,tier in (a,b)"`; empty for all.
            limit: Maximum number of objects; None for all.
            max_staleness: Maximum age; see `Lister`.
            allow_unsynced: Whether to read an incomplete cache; see `Lister`.
            allow_unconfirmed: Whether to read a complete list that the server has not
                confirmed; see `Lister`.

        Raises:
            SelectorSyntaxError: If the selector cannot be parsed.
            OptionsError: If the limit is negative, and as in `get`.
            NotSynced, InformerStopped, Stale: Cache not readable; see `Lister`.
        """
        selector = _selector(selector, limit)
        self._check(max_staleness, allow_unsynced, allow_unconfirmed)
        return self._indexer.contents.select(selector, self._namespace, limit)

    def by_index(
        self,
        name: str,
        value: str,
        *,
        max_staleness: Duration | None = None,
        allow_unsynced: bool = False,
        allow_unconfirmed: bool = False,
    ) -> builtins.list[KubeObject]:
        """Return the objects that have `value` in the index `name`, in a new list.

        Raises:
            OptionsError: If the informer has no such index, and as in `get`.
            NotSynced, InformerStopped, Stale: Cache not readable; see `Lister`.
        """
        self._check(max_staleness, allow_unsynced, allow_unconfirmed)
        namespace, contents = self._namespace, self._indexer.contents
        if namespace is None or name not in contents.indexes:
            return self._indexer.by_index(name, value)

        return contents.by_index(name, value, namespace)

    def json(
        self,
        selector: str | LabelSelector = "",
        *,
        limit: int | None = None,
        max_staleness: Duration | None = None,
        allow_unsynced: bool = False,
        allow_unconfirmed: bool = False,
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
        self._check(max_staleness, allow_unsynced, allow_unconfirmed)
        contents = self._indexer.contents
        with contents.reading():
            # Before the objects: a client that watches from it misses no change.
            version = contents.resource_version
            objects = contents.select(selector, self._namespace, limit)
            stored = len(contents.objects)

        return b"".join(
            (
                b'{"apiVersion":"v1","kind":"List","metadata":{"resourceVersion":',
                msgspec.json.encode(version),
                b'},"items":[',
                self._bodies.joined(objects, stored),
                b"]}",
            )
        )

    def _check(
        self,
        max_staleness: Duration | None,
        allow_unsynced: bool,
        allow_unconfirmed: bool,
        namespace: str | None = None,
    ) -> None:
        where = namespace or self._namespace
        if not allow_unsynced:
            if max_staleness is None and not allow_unconfirmed:
                self._check_live(where)
            else:  # a list of a known age need not be confirmed
                self._check_live(where, unconfirmed=True)

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


_NOTHING: Mapping[str, KubeObject] = MappingProxyType({})


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
        allow_unconfirmed: bool = False,
    ) -> T | None:
        """Return one object, or None.

        Raises:
            DecodeError: If it does not fit the type.
            NotSynced, InformerStopped, Stale, OptionsError: See `Lister.get`.
        """
        found = self._lister.get(
            key,
            max_staleness=max_staleness,
            allow_unsynced=allow_unsynced,
            allow_unconfirmed=allow_unconfirmed,
        )
        return None if found is None else found.into(self._kind)

    def list(
        self,
        selector: str | LabelSelector = "",
        *,
        limit: int | None = None,
        max_staleness: Duration | None = None,
        allow_unsynced: bool = False,
        allow_unconfirmed: bool = False,
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
            allow_unconfirmed=allow_unconfirmed,
        )
        return [obj.into(self._kind) for obj in found]

    def by_index(
        self,
        name: str,
        value: str,
        *,
        max_staleness: Duration | None = None,
        allow_unsynced: bool = False,
        allow_unconfirmed: bool = False,
    ) -> builtins.list[T]:
        """Return the objects that have `value` in the index `name`, in a new list.

        Raises:
            DecodeError: If one of them does not fit the type.
            OptionsError: If the informer has no such index, and as in `Lister.get`.
            NotSynced, InformerStopped, Stale: See `Lister.get`.
        """
        found = self._lister.by_index(
            name,
            value,
            max_staleness=max_staleness,
            allow_unsynced=allow_unsynced,
            allow_unconfirmed=allow_unconfirmed,
        )
        return [obj.into(self._kind) for obj in found]


logger: Final = guarded_logger(__name__)


# Hashes are kept for as many bodies as there are objects, and this many more.
_SLACK = 512


_BODY = attrgetter("body")


class _Body(Enum):
    """Stored form of a body that was checked."""

    PLAIN = auto()
    PACKED = auto()
    """Compressed JSON."""
    INVALID = auto()


_PLAIN_ONLY: Final = {_Body.PLAIN}


class BodyJoiner:
    """Joiner of the bodies of objects, without those that are not JSON.

    On arrival only the head of a body is parsed: checking all of it would double the
    cost of a listed object. So each body is checked here, once, which takes about 0.6
    ms per megabyte. Its hash is kept, so later calls take 0.05 ms for 1,000 objects. A
    body that was not joined for a long time may be checked again. Calls may be made
    from any thread.

    Args:
        name: Name of the informer in the log.
    """

    def __init__(self, name: str = "informer") -> None:
        self._name = name
        # Forms of bodies by hash: of those joined lately, and of those before them.
        self._recent: dict[int, _Body] = {}
        self._older: dict[int, _Body] = {}
        self.failures: int = 0
        """Number of times that a body was found not to be JSON."""

    def __repr__(self) -> str:
        return f"<BodyJoiner {self.failures} failures>"

    def __len__(self) -> int:
        return len(self._recent) + len(self._older)

    def joined(self, objects: list[KubeObject], stored: int) -> bytes:
        """Join the bodies that are JSON, with commas.

        Args:
            objects: Objects to join; all of them are stored.
            stored: Number of stored objects, which bounds that of hashes.

        Raises:
            InternalError: If a compressed body is damaged.
        """
        bodies = list(map(_BODY, objects))
        if not _PLAIN_ONLY.issuperset(map(self._recent.get, map(hash, bodies))):
            bodies = [raw for obj in objects if (raw := self._checked(obj))]
            if len(self._recent) > stored + _SLACK:
                self._older, self._recent = self._recent, {}

        return b",".join(bodies)

    def _checked(self, obj: KubeObject) -> bytes:
        """Return the body of an object; empty if it is not JSON."""
        body_hash = hash(obj.body)
        form = self._recent.get(body_hash) or self._older.get(body_hash)
        if form is _Body.INVALID:
            self._recent[body_hash] = form
            return b""

        raw = obj.raw
        if form is None:
            form = self._form_of(obj, raw)

        self._recent[body_hash] = form
        return b"" if form is _Body.INVALID else raw

    def _form_of(self, obj: KubeObject, raw: bytes) -> _Body:
        """Check a body."""
        try:
            check_json(raw)
            if not raw.isascii():
                raw.decode()
        except (DecodeError, UnicodeDecodeError) as exc:
            self.failures += 1
            logger.warning(
                "%s: body is not JSON, leaving the object out of lists "
                "(key=%s, version=%s): %s",
                self._name,
                obj.key,
                obj.resource_version,
                exc,
            )
            return _Body.INVALID

        return _Body.PLAIN if obj.context.codec is None else _Body.PACKED
