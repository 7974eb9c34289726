"""Custom resources: collections and kinds for each definition.

Synchronous. The registry reports each write of a definition and each removed object.
The collections are up to date when these calls return.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from aioinformer.model import Resource
from aioinformer.model.resources import CUSTOM_RESOURCE_DEFINITIONS
from aioinformer_apiserver.crds.status import (
    is_condition_true,
    is_terminating,
    next_statuses,
    with_instances_deleted,
    with_instances_deleting,
)
from aioinformer_apiserver.patches.managed_fields import (
    reset_fields,
    update_managed_fields,
)
from aioinformer_apiserver.schema import Schema
from aioinformer_apiserver.storage.kinds import ScalePaths, custom_kind, version_order

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from aioinformer_apiserver.storage.kinds import FieldRule, Kind
    from aioinformer_apiserver.storage.storage import Collection, Storage, StoredObject

__all__ = [
    "CustomResources",
    "definition_name_of",
    "definition_of",
    "kinds_of",
    "with_version",
]

logger: Final = logging.getLogger(__name__)

# CEL rules of a schema, in the encoded definition.
_RULES = b'"x-kubernetes-validations":'
# Field manager of the server's own writes.
_MANAGER = "kube-apiserver"


class CustomResources:
    """Collections of custom resources, opened and closed as definitions change.

    A resource has one collection for each of its versions; they hold the same objects.
    A changed definition ends the watches of its objects, as on a real server.

    Args:
        storage: Storage of the definitions and objects.
        delete: Function that deletes one object, or marks it if it has finalizers.
        now: Function that returns the current time as a timestamp.
    """

    def __init__(
        self,
        storage: Storage,
        *,
        delete: Callable[[Collection, StoredObject], object],
        now: Callable[[], str],
    ) -> None:
        self._storage = storage
        self._definitions = storage.collection(CUSTOM_RESOURCE_DEFINITIONS)
        self._delete = delete
        self._now = now

    def reconcile(self, old: StoredObject | None, new: StoredObject | None) -> None:
        """Update the status and the served resources of a definition after a write.

        Args:
            old: Definition before the write; None if it is new.
            new: Definition after the write; None if it was removed.
        """
        if new is not None:
            if _RULES in new.raw and (old is None or _RULES not in old.raw):
                logger.warning(
                    "CustomResourceDefinition %s: its rules in CEL "
                    "(x-kubernetes-validations) are ignored, as this server has no CEL",
                    new.name,
                )

            self._reconcile(new.name)
        elif old is not None:
            self._stop_serving(old.body())
            self._reconcile_waiting(old.body())

    def finalize_if_empty(self, collection: Collection) -> None:
        """Remove a terminating definition after its last object was removed.

        Args:
            collection: Collection of the removed object, of custom resources or not.
        """
        if collection.kind.terminating and not len(collection):
            resource = collection.kind.resource
            self._finalize(f"{resource.plural}.{resource.group}")

    def remove(self, resource: Resource) -> None:
        """Remove a definition with all of its objects, regardless of finalizers.

        Args:
            resource: Resource of the definition, in any of its versions.
        """
        stored = self._definitions.get(f"{resource.plural}.{resource.group}")
        if stored is not None:
            self._stop_serving(stored.body())
            self._storage.drop(self._definitions, stored)
            self._reconcile_waiting(stored.body())

    # ---------------------------------------------------------------- definitions

    def _reconcile(self, name: str) -> None:
        """Update the status of a definition, and serve its resource."""
        body = self._body(name)
        if body is None:
            return

        others = [it for it in self._bodies() if it["metadata"]["name"] != name]
        group = [it for it in others if it["spec"]["group"] == body["spec"]["group"]]
        before = _accepted_names(body)
        for state in next_statuses(body, group, self._now()):
            body = self._write(name, state)

        self._serve(body)
        if is_terminating(body):
            self._delete_instances(name, body)
        elif _accepted_names(body) != before:
            self._reconcile_waiting(body)

    def _reconcile_waiting(self, body: dict[str, Any]) -> None:
        """Update definitions that may have waited for the names of another one."""
        for other in self._bodies():
            waits = not is_condition_true(other, "NamesAccepted")
            if waits and other["spec"]["group"] == body["spec"]["group"]:
                self._reconcile(other["metadata"]["name"])

    def _delete_instances(self, name: str, body: dict[str, Any]) -> None:
        """Delete the objects of a definition, and the definition if none is left."""
        body = self._write(name, with_instances_deleting(body, self._now()))
        collections = self._collections(body)
        for collection in collections[:1]:
            for stored in list(collection):
                self._delete(*collection.readable(stored.key))

        if not any(len(collection) for collection in collections):
            self._finalize(name)

    def _finalize(self, name: str) -> None:
        """Remove a definition without objects."""
        stored = self._definitions.get(name)
        if stored is None or not is_terminating(stored.body()):
            return

        body = with_instances_deleted(stored.body(), self._now())
        if body["metadata"]["finalizers"]:
            self._serve(self._write(name, body))
            return

        self._stop_serving(body)
        # The last state is never stored, so the DELETED event still shows the
        # finalizer.
        self._storage.drop(self._definitions, stored)
        self._reconcile_waiting(body)

    def _bodies(self) -> Iterator[dict[str, Any]]:
        for stored in list(self._definitions):
            yield stored.body()

    def _body(self, name: str) -> dict[str, Any] | None:
        stored = self._definitions.get(name)
        return None if stored is None else stored.body()

    def _write(self, name: str, new: dict[str, Any]) -> dict[str, Any]:
        """Store the next state of a definition, and return the stored body."""
        stored = self._definitions.get(name)
        assert stored is not None
        kind, old = self._definitions.kind, stored.body()
        if old == new:
            return old

        fields = update_managed_fields(
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

    def _serve(self, body: dict[str, Any]) -> None:
        """Serve exactly the versions that a definition lists."""
        kinds = {kind.resource.version: kind for kind in kinds_of(body)}
        if not kinds:
            return

        found = {it.kind.resource.version: it for it in self._collections(body)}
        for version, kind in kinds.items():
            collection = found.get(version)
            if collection is None:
                sibling = next(iter(found.values()), None)
                found[version] = self._storage.serve(kind, sibling=sibling)
            elif collection.kind.definition != kind.definition:
                self._storage.redefine(collection, kind)
            elif collection.kind.terminating != kind.terminating:
                collection.kind = kind

        for version, served in found.items():
            if version not in kinds:
                self._storage.stop_serving(served)

    def _stop_serving(self, body: dict[str, Any]) -> None:
        """Stop serving a resource, and remove its remaining objects."""
        for collection in self._collections(body)[:1]:
            self._storage.remove_resource(collection)

    def _collections(self, body: dict[str, Any]) -> list[Collection]:
        """Return the collections of a definition, in all versions."""
        place = body["spec"]["group"], body["spec"]["names"]["plural"]
        return [
            it
            for it in self._storage
            if not it.kind.typed
            and (it.kind.resource.group, it.kind.resource.plural) == place
        ]


def _accepted_names(body: dict[str, Any]) -> object:
    return (body.get("status") or {}).get("acceptedNames")


# ------------------------------------------------------------------ kinds


_API_VERSION = "apiextensions.k8s.io/v1"


def kinds_of(body: Mapping[str, Any]) -> list[Kind]:
    """Return the kinds of a definition; none until it is established.

    Returns:
        One kind for each served version, in the order of the definition, and one for
        the storage version.
    """
    if not is_condition_true(body, "Established"):
        return []

    versions = body["spec"]["versions"]
    storage = next(it for it in versions if it.get("storage"))
    return [
        _kind(body, version, storage)
        for version in versions
        if version.get("served") or version is storage
    ]


def definition_name_of(resource: Resource) -> str:
    """Return the name of a custom resource's definition."""
    return f"{resource.plural}.{resource.group}"


def definition_of(resource: Resource) -> dict[str, Any]:
    """Return a schemaless definition of a resource, with a status subresource."""
    return {
        "apiVersion": _API_VERSION,
        "kind": "CustomResourceDefinition",
        "metadata": {"name": definition_name_of(resource)},
        "spec": {
            "group": resource.group,
            "names": {"plural": resource.plural, "kind": resource.kind},
            "scope": "Namespaced" if resource.namespaced else "Cluster",
            "versions": [_open_version(resource.version, storage=True)],
        },
    }


def with_version(body: Mapping[str, Any], resource: Resource) -> dict[str, Any]:
    """Return a definition with one more version."""
    spec = body["spec"]
    versions = [it for it in spec["versions"] if it["name"] != resource.version]
    new = _open_version(resource.version, storage=not versions)
    return {**body, "spec": {**spec, "versions": [*versions, new]}}


def _open_version(name: str, *, storage: bool) -> dict[str, Any]:
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    return {
        "name": name,
        "served": True,
        "storage": storage,
        "schema": {"openAPIV3Schema": schema},
        "subresources": {"status": {}},
    }


def _kind(
    body: Mapping[str, Any], version: Mapping[str, Any], storage: Mapping[str, Any]
) -> Kind:
    spec, names = body["spec"], body["status"]["acceptedNames"]
    subresources = version.get("subresources") or {}
    webhook = _conversion_webhook(spec)
    resource = Resource(
        spec["group"],
        version["name"],
        names["plural"],
        names["kind"],
        spec["scope"] == "Namespaced",
    )
    return replace(
        custom_kind(resource),
        definition=(spec, names),
        conversion=webhook,
        storage_version="" if webhook is None else storage["name"],
        versions=tuple(f"{spec['group']}/{it['name']}" for it in spec["versions"]),
        served=bool(version.get("served")),
        has_status=subresources.get("status") is not None,
        fields=dict(_field(it) for it in version.get("selectableFields") or ()),
        short_names=tuple(names.get("shortNames") or ()),
        categories=tuple(names.get("categories") or ()),
        singular=names.get("singular") or "",
        list_kind=names.get("listKind") or "",
        scale=_scale(subresources.get("scale")),
        columns=tuple(version.get("additionalPrinterColumns") or ()),
        custom_schema=_schema(version),
        storage_schema=None if webhook or version is storage else _schema(storage),
        warning=_warning(body, version),
        terminating=is_condition_true(body, "Terminating"),
    )


def _conversion_webhook(spec: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the webhook that converts between versions; None if none is needed."""
    conversion = spec.get("conversion") or {}
    if conversion.get("strategy") != "Webhook" or len(spec["versions"]) == 1:
        return None

    return conversion.get("webhook") or {}


def _schema(version: Mapping[str, Any]) -> Schema:
    return Schema((version.get("schema") or {}).get("openAPIV3Schema") or {})


def _field(selectable: Mapping[str, Any]) -> tuple[str, FieldRule]:
    path = _path(selectable["jsonPath"])
    return ".".join(path), (path, "")


def _scale(given: Mapping[str, Any] | None) -> ScalePaths | None:
    if given is None:
        return None

    return ScalePaths(
        replicas=_path(given["specReplicasPath"]),
        current=_path(given["statusReplicasPath"]),
        selector=_path(given.get("labelSelectorPath") or ""),
    )


def _path(text: str) -> tuple[str, ...]:
    return tuple(part for part in text.split(".") if part)


def _warning(body: Mapping[str, Any], version: Mapping[str, Any]) -> str:
    """Return the deprecation warning of a version; empty if it is not deprecated."""
    if not version.get("deprecated"):
        return ""

    given = version.get("deprecationWarning")
    if given is not None:
        return str(given)

    spec, kind = body["spec"], body["status"]["acceptedNames"]["kind"]
    warning = f"{spec['group']}/{version['name']} {kind} is deprecated"
    better = _replacement_version(spec["versions"], version["name"])
    return f"{warning}; use {spec['group']}/{better} {kind}" if better else warning


def _replacement_version(versions: list[Mapping[str, Any]], name: str) -> str:
    """Return the best newer version that is not deprecated; empty if there is none."""
    fine = [
        it["name"] for it in versions if it.get("served") and not it.get("deprecated")
    ]
    newer = [it for it in fine if version_order(it) < version_order(name)]
    return min(newer, key=version_order, default="")
