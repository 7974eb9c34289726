"""Writes of a reconcile that the informers of its controller do not show yet.

A write is identified by the resource version in its response. A deletion has none: it
is identified by the uid of the object, which then is missing or marked as being
deleted.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import unquote

from aioinformer.errors import HistoryReset, InformerStopped, OptionsError
from aioinformer.model.object_meta import version_number

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aioinformer.client.verbs import Request
    from aioinformer.informer.shared_informer import SharedInformer
    from aioinformer.model.objects import KubeObject

__all__ = [
    "READ_METHODS",
    "ExpectedState",
    "ObjectPath",
    "OwnWrite",
    "PendingWrites",
]

READ_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})

# Subresources of a namespace itself. Other names after a namespace are resources in it.
_NAMESPACE_SUBRESOURCES = frozenset({"status", "finalize"})


class ObjectPath(NamedTuple):
    """Object that a request path names, in any API version.

    Example:
        >>> ObjectPath.of("/apis/apps/v1/namespaces/shop/deployments/web/status")
        ObjectPath(group='apps', plural='deployments', key='shop/web')
    """

    group: str
    plural: str
    key: str

    @classmethod
    def of(cls, path: str) -> ObjectPath:
        """Parse a path. The key of a collection ends in a slash or is empty."""
        parts = [unquote(part) for part in path.split("/")[1:]]
        group, parts = ("", parts[2:]) if parts[0] == "api" else (parts[1], parts[3:])
        namespace = ""
        if parts[0] == "namespaces" and not _NAMESPACE_SUBRESOURCES.issuperset(
            parts[2:3]
        ):
            namespace, parts = f"{parts[1]}/", parts[2:]

        return cls(group, parts[0], namespace + "".join(parts[1:2]))


@dataclass(frozen=True, slots=True)
class ExpectedState:
    """State of one object that an informer is to reach.

    Attributes:
        version: Resource version to reach, 0 for none.
        left: True if the object left the informer's selection with that version.
        deleted: Uid of the deleted object, empty for none.
        marked: True if a deletion timestamp on that object is enough.
    """

    version: int = 0
    left: bool = False
    deleted: str = ""
    marked: bool = False

    def is_gone(self, obj: KubeObject | None) -> bool:
        """Return True if a cached object shows the deletion."""
        if obj is None or obj.uid != self.deleted:
            return True

        return self.marked and obj.at("metadata.deletionTimestamp") is not None


_NOTHING = ExpectedState()


class OwnWrite(NamedTuple):
    """Successful write of a reconcile to an object of an informer.

    Attributes:
        informer: Informer of the object's resource.
        key: Key of the object.
        version: Resource version of the response, empty for a deletion.
        request: Request of the write.
    """

    informer: SharedInformer
    key: str
    version: str
    request: Request


class PendingWrites:
    """Writes of one reconcile to resources that its controller watches.

    Args:
        informers: Informers of the controller.

    Attributes:
        own: Writes of the running reconcile, shown or not.
    """

    def __init__(self, informers: Iterable[SharedInformer]) -> None:
        self.own: list[OwnWrite] = []
        self._informers = tuple(informers)
        self._expected: dict[tuple[SharedInformer, str], ExpectedState] = {}

    def __len__(self) -> int:
        return len(self._expected)

    def add(self, request: Request, answer: KubeObject) -> None:
        """Add a successful write.

        Dry runs, objects outside of the informers' selections, and deletions of
        collections, whose objects are unknown, are ignored.

        Args:
            request: Request of the write.
            answer: Object or Status that the server returned.
        """
        if request.params.get("dryRun"):
            return

        path = ObjectPath.of(request.path)
        for informer in self._informers:
            resource = informer.resource
            if resource is None:
                continue

            if (resource.group, resource.plural) != (path.group, path.plural):
                continue

            if request.method == "DELETE":
                self._expect_deletion(informer, path, answer)
                ended = answer.kind == "Status"
                version = "" if ended else answer.resource_version
                self.own.append(OwnWrite(informer, path.key, version, request))
            else:
                self._expect_version(informer, answer)
                version = answer.resource_version
                self.own.append(OwnWrite(informer, answer.key, version, request))
                if _released_last_finalizer(answer):
                    self._expect_end(informer, answer.key, answer.uid, marked=False)
                    self.own.append(OwnWrite(informer, answer.key, "", request))

    async def applied(self) -> None:
        """Wait until the informers show all writes, and forget them.

        Informers that have ended, or whose versions are not numbers, are not waited
        for.

        Raises:
            HistoryReset: The server's versions went backwards, so that writes may be
                lost. All writes are forgotten.

        Cancellation:
            Safe: writes that are not shown yet are kept.
        """
        while self._expected:
            (informer, key), expected = next(iter(self._expected.items()))
            try:
                await _shown(informer, key, expected)
            except HistoryReset:
                self._expected.clear()
                raise

            # A later write may have replaced this expectation.
            if self._expected.get((informer, key)) is expected:
                del self._expected[informer, key]

    def _expect_version(self, informer: SharedInformer, obj: KubeObject) -> None:
        version = version_number(obj.resource_version)
        which = informer, obj.key
        expected = self._expected.get(which)
        selected = informer.selects(obj)
        if expected is None:
            # An object that leaves the selection is reported, if it was cached.
            reported = selected or informer.store.get_by_key(obj.key) is not None
        else:
            reported = selected or not expected.left

        if version > 0 and reported:
            expected = expected or _NOTHING
            changed = replace(expected, version=version, left=not selected)
            self._expected[which] = changed

    def _expect_deletion(
        self, informer: SharedInformer, path: ObjectPath, answer: KubeObject
    ) -> None:
        ended = answer.kind == "Status"
        uid = str(answer.at("details.uid", "")) if ended else answer.uid
        if uid:
            self._expect_end(informer, path.key, uid, marked=not ended)

    def _expect_end(
        self, informer: SharedInformer, key: str, uid: str, *, marked: bool
    ) -> None:
        expected = self._expected.get((informer, key), _NOTHING)
        self._expected[informer, key] = replace(expected, deleted=uid, marked=marked)


async def _shown(informer: SharedInformer, key: str, expected: ExpectedState) -> None:
    namespace = key.rpartition("/")[0]
    with suppress(InformerStopped, OptionsError):
        if expected.version:
            version = str(expected.version)
            await informer.wait_for_version(version, namespace=namespace or None)

        if expected.deleted:
            await informer.wait_until(expected.is_gone, key=key)


def _released_last_finalizer(answer: KubeObject) -> bool:
    """Return True if the write removed the last finalizer of a deleted object.

    The answer may then have the version before the write, which informers show already.
    """
    return (
        answer.deletion_timestamp is not None
        and not answer.finalizers
        and not answer.at("metadata.deletionGracePeriodSeconds")
    )
