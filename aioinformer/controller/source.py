"""`Source`: an informer whose changes lead to requests."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from aioinformer._user_code import user_errors
from aioinformer.controller.causes import Cause, cause_of
from aioinformer.controller.mapping import (
    Mapping,
    enqueue_owner,
    enqueue_self,
    requests_for,
)
from aioinformer.controller.predicates import Predicate
from aioinformer.errors import OptionsError
from aioinformer.informer.notifications import Updated
from aioinformer.informer.shared_informer import SharedInformer
from aioinformer.model.callables import check_plain
from aioinformer.workqueue.priority import LOW_PRIORITY

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aioinformer.controller.request import ReconcileRequest
    from aioinformer.informer.notifications import Notification
    from aioinformer.informer.reporting import Reporter
    from aioinformer.model.objects import KubeObject

__all__ = ["Source", "Watched", "priority_of", "sources_of"]

T = TypeVar("T")

Watched: TypeAlias = (
    tuple[SharedInformer, Mapping] | tuple[SharedInformer, Mapping, Predicate]
)
"""An informer, which requests its objects lead to, and perhaps which changes matter."""

# Of what nobody waits for.
_UNHURRIED = frozenset({"initial", "resync"})


def priority_of(cause: Cause) -> int:
    """How urgent a request is for this reason."""
    return LOW_PRIORITY if cause.change in _UNHURRIED else 0


@dataclass(frozen=True, slots=True)
class Source:
    """One informer of a controller, and what its changes lead to.

    Attributes:
        informer: Whose changes.
        mapping: Which requests an object leads to.
        predicates: What all say yes to is looked at.
        reporter: Who is told of failures in the user's code.
        kind: What its objects are.
    """

    informer: SharedInformer
    mapping: Mapping
    predicates: tuple[Predicate, ...]
    reporter: Reporter
    kind: str

    @classmethod
    def of(
        cls,
        informer: SharedInformer,
        mapping: Mapping,
        predicates: Iterable[Predicate],
        reporter: Reporter,
    ) -> Source:
        """Make one.

        Raises:
            OptionsError: If the informer is none, or a function is not a plain one.
        """
        if not isinstance(informer, SharedInformer):
            raise OptionsError(f"a controller watches informers, not {informer!r}")

        check_plain(mapping, "a mapping", may_yield=True)
        asked = tuple(predicates)
        for predicate in asked:
            check_plain(predicate, "a predicate")

        resource = informer.resource
        kind = resource.kind if resource is not None else ""
        return cls(informer, mapping, asked, reporter, kind or informer.name)

    def requests(
        self, event: Notification
    ) -> tuple[Iterable[ReconcileRequest], Cause] | None:
        """The requests that a change leads to, each once, and the cause; None if none."""
        if not all(self._passes(it, event) for it in self.predicates):
            return None

        # Ordered, and each once.
        found = {it: None for obj in _states_of(event) for it in self._mapped(obj)}
        return (found, cause_of(event, self.kind)) if found else None

    def _passes(self, predicate: Predicate, event: Notification) -> bool:
        try:
            return predicate(event)
        except user_errors() as exc:  # reported
            self._report("predicate", event, exc)
            return True

    def _mapped(self, obj: KubeObject) -> list[ReconcileRequest]:
        try:
            return requests_for(self.mapping, obj)
        except user_errors() as exc:  # reported
            self._report("mapping", obj, exc)
            return []

    def _report(self, where: str, subject: object, cause: BaseException) -> None:
        self.reporter.failed(where, f"of {self.kind}", subject, cause)


def sources_of(
    for_: SharedInformer,
    owns: Iterable[SharedInformer],
    watches: Iterable[Watched],
    predicates: Iterable[Predicate],
    reporter: Reporter,
) -> list[Source]:
    """Make those of a controller, that of `for_` first; the options are its own.

    Raises:
        OptionsError: If one of them cannot work.
    """
    asked = _listed("predicates", predicates)
    sources = [Source.of(for_, enqueue_self, asked, reporter)]
    for informer in _listed("owns", owns):
        if for_.resource is None:
            raise OptionsError(
                f"{for_.name} does not say of which resource it is, so nobody knows who "
                "owns something: use watches= and enqueue_owner()"
            )

        mapping = enqueue_owner(for_.resource)
        sources.append(Source.of(informer, mapping, (), reporter))

    for watched in _listed("watches", watches):
        _check_watched(watched)
        informer, mapping, *perhaps = watched
        sources.append(Source.of(informer, mapping, perhaps, reporter))

    return sources


def _check_watched(watched: object) -> None:
    if not isinstance(watched, tuple) or len(watched) not in {2, 3}:
        raise OptionsError(
            "watches= takes tuples of an informer, a mapping, and perhaps a predicate, "
            f"not {watched!r}"
        )


def _listed(option: str, given: Iterable[T]) -> list[T]:
    if not isinstance(given, Iterable):
        raise OptionsError(f"{option}= takes a list, not {given!r}")

    return list(given)


def _states_of(event: Notification) -> Iterator[KubeObject]:
    """The states that are to be mapped: the old one as well, if it differs."""
    if not isinstance(event, Updated):
        yield event.obj
        return

    if event.old is not event.new:
        yield event.old

    yield event.new
