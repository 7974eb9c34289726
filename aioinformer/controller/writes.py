"""`Writes`: what a reconcile has written, until the informers show it.

A write is known by the version that it answered. A deletion answers none of its own: it
is known by the uid of the object, which is gone then, or marked as being deleted.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import unquote

from aioinformer.errors import DecodeError, HistoryReset, InformerStopped, OptionsError
from aioinformer.model.keys import version_number
from aioinformer.model.objects import KubeObject

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aioinformer.client.verbs import Request
    from aioinformer.informer.shared_informer import SharedInformer

__all__ = ["READING", "Awaited", "Target", "Writes"]

READING = frozenset({"GET", "HEAD", "OPTIONS"})
"""The methods that change nothing."""

# The parts of a namespace itself: what else stands behind its name is what is in it.
_OF_NAMESPACES = frozenset({"status", "finalize"})


class Target(NamedTuple):
    """What a request is about. Not the version: an object may be written in another one.

    Example:
        >>> Target.of("/apis/apps/v1/namespaces/shop/deployments/web/status")
        Target(group='apps', plural='deployments', key='shop/web')
    """

    group: str
    plural: str
    key: str

    @classmethod
    def of(cls, path: str) -> Target:
        """Read it from a path; of a collection, the key ends in a slash or is empty."""
        parts = [unquote(part) for part in path.split("/")[1:]]
        group, parts = ("", parts[2:]) if parts[0] == "api" else (parts[1], parts[3:])
        namespace = ""
        if parts[0] == "namespaces" and not _OF_NAMESPACES.issuperset(parts[2:3]):
            namespace, parts = f"{parts[1]}/", parts[2:]

        return cls(group, parts[0], namespace + "".join(parts[1:2]))


@dataclass(frozen=True, slots=True)
class Awaited:
    """What an informer is to show of one object.

    Attributes:
        version: Everything up to this one; 0 for none.
        left: True if the object left the selection with it.
        deleted: The uid of the object that is to be gone; empty for none.
        marked: It is enough if that object is marked as being deleted.
    """

    version: int = 0
    left: bool = False
    deleted: str = ""
    marked: bool = False

    def is_gone(self, obj: KubeObject | None) -> bool:
        """Whether this state shows the deletion."""
        if obj is None or obj.uid != self.deleted:
            return True

        return self.marked and obj.at("metadata.deletionTimestamp") is not None


_NOTHING = Awaited()


class Writes:
    """What one reconcile has written, of kinds that its controller watches.

    Args:
        informers: Those of the controller.
    """

    def __init__(self, informers: Iterable[SharedInformer]) -> None:
        self._informers = tuple(informers)
        self._awaited: dict[tuple[SharedInformer, str], Awaited] = {}

    def __len__(self) -> int:
        return len(self._awaited)

    def note(self, request: Request, answer: bytes) -> None:
        """Remember a request that the server has answered, if it was a write.

        Not remembered are what was only tried (`dry_run=True`), what the informers do
        not select, and deletions of whole collections, whose objects nobody names.
        """
        if request.method in READING or request.params.get("dryRun") or not answer:
            return

        target = Target.of(request.path)
        informers = [it for it in self._informers if _has(it, target)]
        if not informers:
            return

        try:
            obj = KubeObject.of(answer)
        except DecodeError:
            return  # told to whoever asked

        for informer in informers:
            if request.method == "DELETE":
                self._note_deletion(informer, target, obj)
            else:
                self._note_version(informer, obj)
                if _was_the_end(obj):
                    self._note_end(informer, obj.key, obj.uid, marked=False)

    async def applied(self) -> None:
        """Wait until the informers show all of it, and forget it.

        An informer that has ended, or whose versions are no numbers, is not waited for.

        Raises:
            HistoryReset: The server's versions went backwards: what was written may be
                lost. All of it is forgotten.

        Cancellation:
            Safe: what is not shown yet is remembered.
        """
        while self._awaited:
            (informer, key), awaited = next(iter(self._awaited.items()))
            try:
                await _shown(informer, key, awaited)
            except HistoryReset:
                self._awaited.clear()
                raise

            # Unless more was written meanwhile.
            if self._awaited.get((informer, key)) is awaited:
                del self._awaited[informer, key]

    def _note_version(self, informer: SharedInformer, obj: KubeObject) -> None:
        version = version_number(obj.resource_version)
        place = informer, obj.key
        awaited = self._awaited.get(place)
        selected = informer.selects(obj)
        if awaited is None:
            # What was selected before leaves the selection, and that is shown as well.
            told = selected or informer.store.get_by_key(obj.key) is not None
        else:
            told = selected or not awaited.left

        if version > 0 and told:
            awaited = awaited or _NOTHING
            changed = replace(awaited, version=version, left=not selected)
            self._awaited[place] = changed

    def _note_deletion(
        self, informer: SharedInformer, target: Target, answer: KubeObject
    ) -> None:
        ended = answer.kind == "Status"
        uid = str(answer.at("details.uid", "")) if ended else answer.uid
        if uid:
            self._note_end(informer, target.key, uid, marked=not ended)

    def _note_end(
        self, informer: SharedInformer, key: str, uid: str, *, marked: bool
    ) -> None:
        awaited = self._awaited.get((informer, key), _NOTHING)
        self._awaited[informer, key] = replace(awaited, deleted=uid, marked=marked)


async def _shown(informer: SharedInformer, key: str, awaited: Awaited) -> None:
    namespace = key.rpartition("/")[0]
    with suppress(InformerStopped, OptionsError):
        if awaited.version:
            version = str(awaited.version)
            await informer.wait_for_version(version, namespace=namespace or None)

        if awaited.deleted:
            await informer.wait_until(awaited.is_gone, key=key)


def _was_the_end(answer: KubeObject) -> bool:
    """Whether the write let a deleted object go: it took the last finalizer away.

    The answer may then have the version of before, so that waiting for it shows nothing.
    """
    return (
        answer.deletion_timestamp is not None
        and not answer.finalizers
        and not answer.at("metadata.deletionGracePeriodSeconds")
    )


def _has(informer: SharedInformer, target: Target) -> bool:
    resource = informer.resource
    return resource is not None and (
        (resource.group, resource.plural) == (target.group, target.plural)
    )
