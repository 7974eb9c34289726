"""Sources: informers of a controller, and mappings from their objects to requests.

A mapping is a plain function that takes an object and returns requests or their keys:

    def users_of(secret: KubeObject) -> list[str]:
        return [pod.key for pod in pods.indexer.by_index("secret", secret.key)]

    Controller("rotate", reconcile, for_=pods, watches=[(secrets, users_of)])

An update maps both the old and the new object, so that a former owner is notified, too.
Predicates after an informer, or after its mapping, filter its changes:

    Controller("sites", reconcile, for_=sites, owns=[(deployments, generation_changed)])
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from aioinformer._user_code import user_errors
from aioinformer.controller.predicates import Predicate
from aioinformer.controller.reconcile import Cause, ReconcileRequest, cause_of
from aioinformer.errors import OptionsError
from aioinformer.informer.notifications import Added, Deleted, Updated, object_of
from aioinformer.informer.shared_informer import SharedInformer
from aioinformer.model.callables import check_plain
from aioinformer.model.objects import KubeObject
from aioinformer.workqueue.priority import LOW_PRIORITY

if TYPE_CHECKING:
    from aioinformer.informer.handlers.error_reporter import ErrorReporter
    from aioinformer.informer.notifications import Notification
    from aioinformer.model.resource import Resource

__all__ = [
    "Mapping",
    "Owned",
    "Source",
    "Watched",
    "enqueue_owner",
    "enqueue_self",
    "request_of",
    "sources_of",
]

T = TypeVar("T")

Mapping: TypeAlias = Callable[[KubeObject], Iterable[ReconcileRequest | str]]
"""Function that returns the requests of an object: none, one or many."""

Owned: TypeAlias = SharedInformer | tuple[SharedInformer, *tuple[Predicate, ...]]
"""Informer, alone or followed by predicates."""

Watched: TypeAlias = tuple[SharedInformer, Mapping, *tuple[Predicate, ...]]
"""Informer and mapping, optionally followed by predicates."""

Uids: TypeAlias = Callable[[KubeObject], dict[ReconcileRequest, str]]
"""Function that returns the uids of the objects that an object's requests are for."""

# Changes that are not urgent.
_LOW_PRIORITY_CHANGES = frozenset({"initial", "resync"})


# ------------------------------------------------------------ mappings


def enqueue_self(obj: KubeObject) -> list[ReconcileRequest]:
    """Map an object to the request of the same name."""
    namespace, _, name = obj.key.rpartition("/")
    return [ReconcileRequest(namespace, name)]


def enqueue_owner(owner: Resource, *, controller: bool = True) -> Mapping:
    """Return a mapping from an object to its owners, by its owner references.

    Owners match by group and kind. The version of their API does not matter.

    Args:
        owner: Resource of the owners.
        controller: True for the owner that is the object's controller, False for all.

    Raises:
        OptionsError: If the resource has no kind.
    """
    if not owner.kind:
        raise OptionsError(
            f"enqueue_owner() needs a Resource with a kind, which {owner} lacks: owner "
            "references name kinds"
        )

    return lambda obj: list(_owners(obj, owner, controller=controller))


def _owners(
    obj: KubeObject, owner: Resource, *, controller: bool
) -> dict[ReconcileRequest, str]:
    """Return the requests of an object's owners, and the uids of these."""
    namespace = obj.namespace if owner.namespaced else ""
    return {
        ReconcileRequest(namespace, str(reference["name"])): str(reference.get("uid"))
        for reference in obj.owner_references
        if reference.get("kind") == owner.kind
        and _group_of(reference.get("apiVersion")) == owner.group
        and (reference.get("controller") or not controller)
    }


def _own_uid(obj: KubeObject) -> dict[ReconcileRequest, str]:
    return dict.fromkeys(enqueue_self(obj), obj.uid)


def _group_of(api_version: object) -> str:
    return str(api_version or "").rpartition("/")[0]


_RULE = "a mapping must return"
_NO_LIST = "a mapping must return a list, not a {}"


def request_of(item: object, rule: str) -> ReconcileRequest:
    """Return the request of a request or a key.

    Args:
        item: Item of a user's function.
        rule: Begin of the error, such as `"a mapping must return"`.

    Raises:
        TypeError: If it is neither.
        OptionsError: If the key is invalid.
    """
    if isinstance(item, ReconcileRequest):
        return item

    if isinstance(item, str):
        return ReconcileRequest.of(item)

    raise TypeError(f"{rule} requests or keys, not a {type(item).__name__}")


# ------------------------------------------------------------ sources


@dataclass(frozen=True, slots=True)
class Source:
    """One informer of a controller, and how its changes become requests.

    Attributes:
        informer: Informer whose changes are handled.
        mapping: Function from an object to requests.
        predicates: Filters. A change passes if all of them return True.
        reporter: Reporter of failures in the user's functions.
        kind: Kind of the objects, or the informer's name if that is unknown.
        uids: Function from an object to the uids of its requests' objects, if it tells
            them.
        finalizers: Finalizers whose objects need a reconcile when they are deleted: then
            predicates get an addition.
    """

    informer: SharedInformer
    mapping: Mapping
    predicates: tuple[Predicate, ...]
    reporter: ErrorReporter
    kind: str
    uids: Uids | None = None
    finalizers: frozenset[str] = frozenset()

    @classmethod
    def of(
        cls,
        informer: SharedInformer,
        mapping: Mapping,
        predicates: Iterable[Predicate],
        reporter: ErrorReporter,
        uids: Uids | None = None,
        finalizers: frozenset[str] = frozenset(),
    ) -> Source:
        """Check the arguments and return a source.

        Raises:
            OptionsError: If `informer` is not an informer, or a function is not plain.
        """
        if not isinstance(informer, SharedInformer):
            raise OptionsError(f"a controller watches informers, not {informer!r}")

        check_plain(mapping, "a mapping", may_yield=True)
        filters = tuple(predicates)
        for predicate in filters:
            check_plain(predicate, "a predicate")

        resource = informer.resource
        kind = resource.kind if resource is not None else ""
        kind = kind or informer.name
        return cls(informer, mapping, filters, reporter, kind, uids, finalizers)

    def requests(
        self, event: Notification
    ) -> tuple[Iterable[ReconcileRequest], Cause, int] | None:
        """Return the distinct requests of a change, their cause and priority, or None."""
        # A deletion with a finalizer counts as an addition, which most predicates pass.
        asked = Added(object_of(event)) if self._begins_cleanup(event) else event
        for predicate in self.predicates:
            if not self._passes(predicate, asked):
                return None

        if not isinstance(event, Updated):
            objects = [event.obj]
        elif event.old is event.new or self.mapping is enqueue_self:
            objects = [event.new]
        else:
            objects = [event.old, event.new]

        # A dict keeps the order and drops duplicates.
        found: dict[ReconcileRequest, None] = {}
        for obj in objects:
            try:
                answer = self.mapping(obj)
                if isinstance(answer, str) or not isinstance(answer, Iterable):
                    raise TypeError(_NO_LIST.format(type(answer).__name__))

                found |= dict.fromkeys(
                    [
                        it
                        if isinstance(it, ReconcileRequest)
                        else request_of(it, _RULE)
                        for it in answer
                    ]
                )
            except user_errors() as exc:
                self._report("mapping", obj, exc)

        if not found:
            return None

        cause = cause_of(event, self.kind)
        low = cause.change in _LOW_PRIORITY_CHANGES
        return found, cause, LOW_PRIORITY if low else 0

    def _begins_cleanup(self, event: Notification) -> bool:
        """Return True if a change begins the deletion of an object with a finalizer.

        Or the deletion goes on, as another finalizer was removed.
        """
        if not self.finalizers or isinstance(event, Deleted):
            return False

        obj = object_of(event)
        if obj.deletion_timestamp is None or self.finalizers.isdisjoint(obj.finalizers):
            return False

        if not isinstance(event, Updated):
            return True

        before = event.old
        return before.deletion_timestamp is None or before.finalizers != obj.finalizers

    def _passes(self, predicate: Predicate, event: Notification) -> bool:
        try:
            return predicate(event)
        except user_errors() as exc:
            self._report("predicate", event, exc)
            return True

    def _report(self, where: str, subject: object, cause: BaseException) -> None:
        self.reporter.failed(where, f"of {self.kind}", subject, cause)


def sources_of(
    for_: SharedInformer,
    owns: Iterable[Owned],
    watches: Iterable[Watched],
    predicates: Iterable[Predicate],
    reporter: ErrorReporter,
    finalizers: frozenset[str],
) -> list[Source]:
    """Return the sources of a controller, the one of `for_` first.

    The arguments are the options of `Controller`, and the finalizers of its reconcile.

    Raises:
        OptionsError: If an option is invalid.
    """
    filters = _listed("predicates", predicates)
    sources = [Source.of(for_, enqueue_self, filters, reporter, _own_uid, finalizers)]
    for owned in _listed("owns", owns):
        informer, *optional = _owned(owned)
        if for_.resource is None:
            raise OptionsError(
                f"owns= needs the resource of {for_.name}, which is unknown: use "
                "watches= and enqueue_owner()"
            )

        mapping = enqueue_owner(for_.resource)
        uids = partial(_owners, owner=for_.resource, controller=True)
        sources.append(Source.of(informer, mapping, optional, reporter, uids))

    for watched in _listed("watches", watches):
        _check_watched(watched)
        informer, mapping, *optional = watched
        sources.append(Source.of(informer, mapping, optional, reporter))

    return sources


def _owned(owned: Owned) -> tuple[SharedInformer, *tuple[Predicate, ...]]:
    if isinstance(owned, tuple) and not owned:
        raise OptionsError("owns= takes informers, or tuples of one and predicates")

    return owned if isinstance(owned, tuple) else (owned,)


def _check_watched(watched: object) -> None:
    if not isinstance(watched, tuple) or len(watched) < 2:
        raise OptionsError(
            "watches= takes tuples of an informer, a mapping, and optionally "
            f"predicates, not {watched!r}"
        )


def _listed(option: str, given: Iterable[T]) -> list[T]:
    if not isinstance(given, Iterable):
        raise OptionsError(f"{option}= takes a list, not {given!r}")

    return list(given)
