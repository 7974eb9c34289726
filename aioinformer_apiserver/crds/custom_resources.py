"""Custom resources: served as their definitions say, from the moment they are stored.

Synchronous. The registry tells of each write of a definition, and of each object that
goes; what follows has happened when it is told of.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aioinformer.model.resources import CUSTOM_RESOURCE_DEFINITIONS
from aioinformer_apiserver.crds.conditions import holds
from aioinformer_apiserver.crds.states import (
    emptied,
    is_terminating,
    next_statuses,
    removing,
)
from aioinformer_apiserver.crds.versions import kinds_of
from aioinformer_apiserver.patches.managed_fields import reset_fields, tracked

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from aioinformer.model.resource import Resource
    from aioinformer_apiserver.storage.storage import Collection, Storage, Stored

__all__ = ["CustomResources"]

# In whose name the server itself writes.
_MANAGER = "kube-apiserver"


class CustomResources:
    """Opens and closes collections as definitions come and go.

    A resource has one collection for each of its versions, which hold the same objects.
    A change of its definition ends the watches of its objects, as on a real server.

    Args:
        storage: Of the definitions and the objects.
        delete: Deletes one object, or marks it for deletion while it has finalizers.
        now: Tells the time, as a timestamp.
    """

    def __init__(
        self,
        storage: Storage,
        *,
        delete: Callable[[Collection, Stored], object],
        now: Callable[[], str],
    ) -> None:
        self._storage = storage
        self._definitions = storage.collection(CUSTOM_RESOURCE_DEFINITIONS)
        self._delete = delete
        self._now = now

    def written(self, old: Stored | None, new: Stored | None) -> None:
        """Do what follows from a write of a definition.

        Args:
            old: The definition before; None if it is new.
            new: The definition now; None if it is gone.
        """
        if new is not None:
            self._settle(new.name)
        elif old is not None:
            self._close(old.body())
            self._settle_others(old.body())

    def dropped(self, collection: Collection) -> None:
        """Do what follows from the end of an object: of a definition, if it was the last.

        Args:
            collection: Whose object it was; of custom resources or not.
        """
        if collection.kind.terminating and not len(collection):
            resource = collection.kind.resource
            self._finish(f"{resource.plural}.{resource.group}")

    def remove(self, resource: Resource) -> None:
        """Remove a definition with all objects, whatever finalizers they have.

        Args:
            resource: Whose definition; any version of it.
        """
        stored = self._definitions.get(f"{resource.plural}.{resource.group}")
        if stored is not None:
            self._close(stored.body())
            self._storage.drop(self._definitions, stored)
            self._settle_others(stored.body())

    # ---------------------------------------------------------------- definitions

    def _settle(self, name: str) -> None:
        """Bring a definition, and what it defines, to where they stay by themselves."""
        body = self._body(name)
        if body is None:
            return

        others = [it for it in self._bodies() if it["metadata"]["name"] != name]
        group = [it for it in others if it["spec"]["group"] == body["spec"]["group"]]
        before = _accepted(body)
        for state in next_statuses(body, group, self._now()):
            body = self._write(name, state)

        self._open(body)
        if is_terminating(body):
            self._end(name, body)
        elif _accepted(body) != before:
            self._settle_others(body)

    def _settle_others(self, body: dict[str, Any]) -> None:
        """Look anew at those who may have waited for the names of a definition."""
        for other in self._bodies():
            waits = not holds(other, "NamesAccepted")
            if waits and other["spec"]["group"] == body["spec"]["group"]:
                self._settle(other["metadata"]["name"])

    def _end(self, name: str, body: dict[str, Any]) -> None:
        """Delete the objects of a definition, and then, if they are gone, itself."""
        body = self._write(name, removing(body, self._now()))
        collections = self._collections(body)
        for collection in collections[:1]:
            for stored in list(collection):
                self._delete(collection, stored)

        if not any(len(collection) for collection in collections):
            self._finish(name)

    def _finish(self, name: str) -> None:
        """Let go of a definition without objects."""
        stored = self._definitions.get(name)
        if stored is None or not is_terminating(stored.body()):
            return

        body = emptied(stored.body(), self._now())
        if body["metadata"]["finalizers"]:
            self._open(self._write(name, body))
            return

        self._close(body)
        # The last state is never stored, so the DELETED event still shows the finalizer.
        self._storage.drop(self._definitions, stored)
        self._settle_others(body)

    def _bodies(self) -> Iterator[dict[str, Any]]:
        for stored in list(self._definitions):
            yield stored.body()

    def _body(self, name: str) -> dict[str, Any] | None:
        stored = self._definitions.get(name)
        return None if stored is None else stored.body()

    def _write(self, name: str, new: dict[str, Any]) -> dict[str, Any]:
        """Store the next state of a definition; returns it as it is stored."""
        stored = self._definitions.get(name)
        assert stored is not None
        kind, old = self._definitions.kind, stored.body()
        if old == new:
            return old

        fields = tracked(
            kind.schema,
            old,
            new,
            manager=_MANAGER,
            api_version=kind.resource.api_version,
            now=self._now(),
            subresource="status",
            reset=reset_fields(kind, "status"),
        )
        metadata = {**new["metadata"], "managedFields": fields}
        new = {**new, "metadata": metadata}
        return self._storage.put(self._definitions, new).body()

    # ---------------------------------------------------------------- collections

    def _open(self, body: dict[str, Any]) -> None:
        """Serve a resource as its definition says now, and in no other version."""
        wanted = {kind.resource.version: kind for kind in kinds_of(body)}
        if not wanted:
            return

        found = {it.kind.resource.version: it for it in self._collections(body)}
        for version, kind in wanted.items():
            held = found.get(version)
            if held is None:
                beside = next(iter(found.values()), None)
                found[version] = self._storage.serve(kind, beside=beside)
            elif held.kind.definition != kind.definition:
                self._storage.redefine(held, kind)
            elif held.kind.terminating != kind.terminating:
                held.kind = kind

        for version, collection in found.items():
            if version not in wanted:
                self._storage.withdraw(collection)

    def _close(self, body: dict[str, Any]) -> None:
        """Serve a resource no longer, and drop what is left of its objects."""
        for collection in self._collections(body)[:1]:
            self._storage.retire(collection)

    def _collections(self, body: dict[str, Any]) -> list[Collection]:
        """Return the collections of a definition, in all versions."""
        place = body["spec"]["group"], body["spec"]["names"]["plural"]
        return [
            it
            for it in self._storage
            if not it.kind.typed
            and (it.kind.resource.group, it.kind.resource.plural) == place
        ]


def _accepted(body: dict[str, Any]) -> object:
    return (body.get("status") or {}).get("acceptedNames")
