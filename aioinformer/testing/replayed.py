"""`ReplayedServer`: a test server whose objects are those of a recording."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from aioinformer._user_code import guarded_logger
from aioinformer.errors import AioInformerError
from aioinformer.model.object_meta import version_number
from aioinformer.model.objects import METADATA_KIND

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aioinformer.model.objects import KubeObject
    from aioinformer.model.resource import Resource
    from aioinformer.recording.reading import Happening
    from aioinformer.testing.server import APIServer

__all__ = ["ReplayedServer"]

logger: Final = guarded_logger(__name__)

# Changes after which clients get a chance to read them, while nothing else paces them.
_PAUSE_SECONDS: Final = 0.005


class ReplayedServer:
    """Target of a replay that changes the objects of a test server.

    Objects are stored as they were recorded, but with versions of this server: those of
    several informers, or of a restored cluster, would not increase. Custom resources are
    served as in `APIServer.register`. An object that two informers have is stored once,
    in its newest state.

    Args:
        server: Server to change.

    Attributes:
        changes: Number of objects stored and removed so far.
    """

    def __init__(self, server: APIServer) -> None:
        self._server = server
        self.changes: int = 0
        # Versions of the objects in the recording, and the informers that have them,
        # each with its version.
        self._versions: dict[tuple[Resource, str], str] = {}
        self._holders: dict[tuple[Resource, str], dict[str, str]] = {}
        # Places of objects of which only the metadata are known.
        self._partial: set[tuple[Resource, str]] = set()
        # Resources that were seen, and whether they are served.
        self._served: dict[Resource, bool] = {}

    def serve(self, resources: Iterable[Resource]) -> None:
        """Serve resources, before the recording has objects of them."""
        for resource in resources:
            self._serves(resource)

    def apply(self, happening: Happening, *, quietly: bool = False) -> bool:
        """Store and remove the objects of an entry. Clients never have to list again."""
        del quietly
        informer = happening.informer
        if informer is None or not (happening.changes or happening.kind == "SNAPSHOT"):
            return False

        resource = informer.resource
        if not self._serves(resource):
            return False

        if happening.kind == "SNAPSHOT":
            present = {it.obj.key for it in happening.changes}
            for place, holders in list(self._holders.items()):
                if place[0] == resource and place[1] not in present:
                    self._drop(place, informer.name, holders)

        for change in happening.changes:
            place = (resource, change.obj.key)
            holders = self._holders.setdefault(place, {})
            if change.kind == "DELETED":
                self._drop(place, informer.name, holders)
            else:
                self._put(place, change.obj, holders.get(informer.name))
                holders[informer.name] = change.obj.resource_version

        if informer.follows and happening.kind in {"SNAPSHOT", "LIST"}:
            for place, holders in list(self._holders.items()):
                if place[0] == resource:
                    self._drop(place, informer.follows, holders)

        return False

    def expire(self) -> None:
        """Discard the history, so that clients that are behind list again."""
        self._server.compact()

    async def taken(self) -> None:
        """Give clients time to read. Cancellation: safe."""
        await asyncio.sleep(_PAUSE_SECONDS)

    def _put(
        self, place: tuple[Resource, str], obj: KubeObject, before: str | None
    ) -> None:
        """Store an object.

        Args:
            place: Its place.
            obj: The object.
            before: Version that its informer had before; None for a new object.
        """
        stored, version = self._versions.get(place), obj.resource_version
        whole = obj.kind != METADATA_KIND
        if stored is not None and not whole and place not in self._partial:
            return  # another informer has the whole object

        if stored == (version or None) and not (whole and place in self._partial):
            return  # another informer had it

        # An informer that is behind another one does not take the object back. One
        # that goes back itself does: of a cluster that was restored.
        goes_back = before is not None and version_number(before) > version_number(
            version
        )
        if version_number(stored or "") > version_number(version) and not goes_back:
            return

        if whole:
            self._partial.discard(place)
        else:
            self._partial.add(place)

        self._versions[place] = obj.resource_version
        self._server.put(place[0], obj.to_dict())
        self.changes += 1

    def _drop(
        self, place: tuple[Resource, str], informer: str, holders: dict[str, str]
    ) -> None:
        if informer not in holders:
            return

        del holders[informer]
        # The others may have only the metadata, whose changes have to be served then.
        self._partial.add(place)
        if not holders:
            resource, key = place
            namespace, _, name = key.rpartition("/")
            self._server.drop(resource, name, namespace=namespace)
            self._versions.pop(place, None)
            self._partial.discard(place)
            del self._holders[place]
            self.changes += 1

    def _serves(self, resource: Resource) -> bool:
        """Serve a resource; return False if that is impossible, which is logged once."""
        served = self._served.get(resource)
        if served is None:
            try:
                self._server.register(resource)
                served = True
            except AioInformerError as exc:
                text = "%s of the recording are not served: %s"
                logger.warning(text, resource, exc)
                served = False

            self._served[resource] = served

        return served
