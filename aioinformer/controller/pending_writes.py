"""Writes of a reconcile that the informers of its controller do not show yet."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import unquote

from aioinformer.errors import HistoryReset, InformerStopped, OptionsError
from aioinformer.informer.expected_state import NOTHING, ExpectedState, after_write
from aioinformer.model.object_meta import version_number

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aioinformer.client.verbs import Request
    from aioinformer.informer.shared_informer import SharedInformer
    from aioinformer.model.objects import KubeObject

__all__ = ["READ_METHODS", "ObjectPath", "OwnWrite", "PendingWrites"]

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
        limit: Maximum number of objects, beyond which the oldest are forgotten; None
            for no limit.

    Attributes:
        own: Writes of the running reconcile, shown or not. Empty with a limit.
        newest: Newest version that was written to the objects of each informer; 0 if
            that is not known, as of a deletion.
        unanswered: True if it is not known of a write whether the server executes it,
            now or later.
    """

    def __init__(
        self, informers: Iterable[SharedInformer], *, limit: int | None = None
    ) -> None:
        self.own: list[OwnWrite] = []
        self.newest: dict[SharedInformer, int] = {}
        self.unanswered: bool = False
        self._limit = limit
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

            version = max(0, version_number(answer.resource_version))
            self.newest[informer] = max(version, self.newest.get(informer, 0))
            if request.method == "DELETE":
                self._expect_deletion(informer, path, answer)
            else:
                self._expect_write(informer, answer)

            if self._limit is None:
                self._note(informer, path.key, request, answer)

        if self._limit is not None:
            while len(self._expected) > self._limit:
                del self._expected[next(iter(self._expected))]

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
                with suppress(InformerStopped, OptionsError):
                    await informer._waits.reached(key, expected)  # noqa: SLF001
            except HistoryReset:
                self._expected.clear()
                raise

            # A later write may have replaced this expectation.
            if self._expected.get((informer, key)) is expected:
                del self._expected[informer, key]

    def _note(
        self, informer: SharedInformer, key: str, request: Request, answer: KubeObject
    ) -> None:
        ended = answer.kind == "Status"
        if not ended:  # the path of a creation has no name
            version = answer.resource_version
            self.own.append(OwnWrite(informer, answer.key, version, request))

        # Without its last finalizer, a deleted object ends, with a later version.
        if ended or (answer.deletion_timestamp is not None and not answer.finalizers):
            self.own.append(OwnWrite(informer, key, "", request))

    def _expect_write(self, informer: SharedInformer, obj: KubeObject) -> None:
        which = informer, obj.key
        expected = after_write(
            obj,
            self._expected.get(which, NOTHING),
            selected=informer.selects(obj),
            cached=informer.store.get_by_key(obj.key) is not None,
        )
        if expected is not NOTHING:
            self._expected[which] = expected

    def _expect_deletion(
        self, informer: SharedInformer, path: ObjectPath, answer: KubeObject
    ) -> None:
        ended = answer.kind == "Status"
        uid = str(answer.at("details.uid", "")) if ended else answer.uid
        if uid:
            which = informer, path.key
            before = self._expected.get(which, NOTHING)
            self._expected[which] = before.after_deletion(uid, marked=not ended)
