"""`AppliedChildren`: memory of what a controller applied, to skip writes without effect."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from aioinformer import json_codec

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from aioinformer.controller.reconcile import ReconcileRequest
    from aioinformer.informer.shared_informer import SharedInformer
    from aioinformer.model.objects import KubeObject
    from aioinformer.model.resource import Resource

__all__ = ["MAX_CHILDREN", "AppliedChildren", "Child"]

MAX_OWNERS: Final = 100_000
"""Maximum number of owners whose children are remembered. The oldest are forgotten,
which costs a write without effect."""

MAX_CHILDREN: Final = 10_000
"""Maximum number of remembered children of one owner."""

# Fields that change without a change of what was applied.
_CHANGING: Final = ("resourceVersion", "managedFields")


class Child(NamedTuple):
    """Object that a controller applies, in any version of its API."""

    group: str
    plural: str
    key: str

    @classmethod
    def of(cls, resource: Resource, metadata: Mapping[str, Any]) -> Child:
        """Return the child with a name and a namespace."""
        name, namespace = metadata.get("name"), metadata.get("namespace")
        key = f"{namespace}/{name}" if namespace else str(name)
        return cls(resource.group, resource.plural, key)


@dataclass(frozen=True, slots=True)
class _Applied:
    """One successful apply.

    Attributes:
        body: Digest of the body.
        version: Resource version of the response.
        state: Digest of the response.
    """

    body: bytes
    version: str
    state: bytes


class AppliedChildren:
    """Memory of the last apply of each child, by its owner.

    An apply is skipped if it has the same body as the last one, and an informer shows
    the state that the server returned then, or a state that differs in its status only.

    Args:
        informers: Informers of the controller.
        max_children: Maximum number of remembered children of one owner.
    """

    def __init__(
        self,
        informers: Iterable[SharedInformer],
        *,
        max_children: int = MAX_CHILDREN,
    ) -> None:
        self._informers = tuple(informers)
        self._max_children = max_children
        # In the order of the last reconcile that applied.
        self._applied: dict[ReconcileRequest, dict[Child, _Applied]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._applied.values()))

    def resource_of(self, api_version: str, kind: str) -> Resource | None:
        """Return the resource of an informer with objects of this kind, or None."""
        resources = (it.resource for it in self._informers)
        return next(
            (
                it
                for it in resources
                if it is not None and (it.api_version, it.kind) == (api_version, kind)
            ),
            None,
        )

    def shown(self, child: Child) -> KubeObject | None:
        """Return a child as an informer shows it, or None."""
        for informer in self._informers_of(child):
            found = informer.store.get_by_key(child.key)
            if found is not None:
                return found

        return None

    def is_applied(
        self,
        owner: ReconcileRequest,
        child: Child,
        body: Mapping[str, Any],
        shown: KubeObject,
    ) -> bool:
        """Return True if applying this body would change nothing.

        Args:
            owner: Request of the owner.
            child: Name of the child.
            body: Body to apply.
            shown: Child as an informer shows it.
        """
        last = self._applied.get(owner, {}).get(child)
        if last is None or last.body != _digest(body):
            return False

        if shown.resource_version == last.version:
            return True

        # Fields that a transform removed could have changed: then the digests differ.
        return _state(shown.to_dict(), body) == last.state

    def remember(
        self,
        owner: ReconcileRequest,
        child: Child,
        body: Mapping[str, Any],
        answer: KubeObject,
    ) -> None:
        """Remember a successful apply.

        Args:
            owner: Request of the owner.
            child: Name of the child.
            body: Body that was applied.
            answer: Response of the server.
        """
        if not any(True for _ in self._informers_of(child)):
            return  # it is never skipped

        state = _state(answer.to_dict(), body)
        applied = self._applied.pop(owner, {})
        applied[child] = _Applied(_digest(body), answer.resource_version, state)
        if len(applied) > self._max_children:
            del applied[next(iter(applied))]

        self._applied[owner] = applied
        if len(self._applied) > MAX_OWNERS:
            del self._applied[next(iter(self._applied))]

    def end(
        self, owner: ReconcileRequest, used: Iterable[Child], *, exists: bool
    ) -> None:
        """Forget children after a reconcile.

        Args:
            owner: Request of the reconcile.
            used: Children that it applied. Of others, those are forgotten that no
                informer shows.
            exists: False to forget all children, as the owner does not exist any more.
        """
        applied = self._applied.get(owner)
        if applied is None:
            return

        used = frozenset(used)
        for child in list(applied):
            if not exists or (child not in used and self.shown(child) is None):
                del applied[child]

        if not applied:
            del self._applied[owner]

    def forget(self, owner: ReconcileRequest, child: Child) -> None:
        """Forget the last apply of a child: the next one is sent."""
        self._applied.get(owner, {}).pop(child, None)

    def _informers_of(self, child: Child) -> Iterator[SharedInformer]:
        for informer in self._informers:
            resource = informer.resource
            if resource is None or not informer.has_synced:
                continue

            if (resource.group, resource.plural) == (child.group, child.plural):
                yield informer


def _state(obj: dict[str, Any], body: Mapping[str, Any]) -> bytes:
    """Return the digest of an object, without what its apply does not set."""
    metadata = {
        key: value
        for key, value in (obj.get("metadata") or {}).items()
        if key not in _CHANGING
    }
    state = obj | {"metadata": metadata}
    if "status" not in body:
        state.pop("status", None)

    return _digest(state)


def _digest(value: Mapping[str, Any]) -> bytes:
    text = json_codec.dumps(value, option=json_codec.OPT_SORT_KEYS)
    return hashlib.blake2b(text, digest_size=16).digest()
