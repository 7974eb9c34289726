"""Preconditions: uids and resource versions in a write. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aioinformer.model import resources
from aioinformer_apiserver.errors import statuses

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aioinformer.errors import ApiError
    from aioinformer.model import Resource
    from aioinformer_apiserver.requests.options import DeleteOptions
    from aioinformer_apiserver.storage.kinds import Kind
    from aioinformer_apiserver.storage.storage import StoredObject

__all__ = [
    "check_applied",
    "check_bound",
    "check_deletion",
    "check_new",
    "check_served",
    "check_uid",
    "check_version",
]

# Storage keys of a real server that differ from the resource's name.
_STORED_AS: dict[Resource, str] = {
    resources.CUSTOM_RESOURCE_DEFINITIONS: (
        "apiextensions.k8s.io/customresourcedefinitions"
    ),
    resources.ENDPOINTS: "services/endpoints",
    resources.INGRESSES: "ingress",
    resources.NODES: "minions",
    resources.REPLICATION_CONTROLLERS: "controllers",
    resources.SERVICES: "services/specs",
}
# Marking these kinds is a write of its own, so the storage checks the preconditions.
_CHECKED_BY_STORAGE = frozenset(
    {resources.CUSTOM_RESOURCE_DEFINITIONS, resources.NAMESPACES}
)


def check_new(metadata: Mapping[str, Any]) -> None:
    """Check that a new object has no resource version.

    Raises:
        ApiError: 500 if it has one, as on a real server.
    """
    version = str(metadata.get("resourceVersion") or "0")
    if version.isdecimal() and int(version):
        message = "resourceVersion should not be set on objects to be created"
        raise statuses.failure(500, "", message)


def check_served(kind: Kind, name: str) -> None:
    """Check that the definition of a custom resource is not terminating.

    Raises:
        ApiError: 403 if it is terminating.
    """
    if kind.terminating:
        why = "create not allowed while custom resource definition is terminating"
        raise statuses.forbidden(kind.resource, name, why)


def check_uid(
    kind: Kind, key: str, stored: StoredObject | None, metadata: Mapping[str, Any]
) -> None:
    """Check the uid of an update.

    Raises:
        ApiError: 409 if the uid differs from the stored one, or if a uid is given and the
            object does not exist.
    """
    found = "" if stored is None else stored.uid
    uid = metadata.get("uid") or found
    if uid != found:
        raise _precondition_conflict(kind, key, _mismatch_text("UID", uid, found))


def check_bound(kind: Kind, stored: StoredObject, metadata: Mapping[str, Any]) -> None:
    """Check the uid and resource version of a binding.

    Raises:
        ApiError: 409 if one differs from the stored one.
    """
    check_uid(kind, stored.key, stored, metadata)
    expected, found = metadata.get("resourceVersion") or "", str(stored.version)
    if expected not in {"", found}:
        failed = _mismatch_text("ResourceVersion", expected, found)
        raise _precondition_conflict(kind, stored.key, failed)


def check_version(
    kind: Kind, stored: StoredObject, metadata: Mapping[str, Any]
) -> None:
    """Check the resource version of an update.

    Raises:
        ApiError: 409 if the version differs from the stored one, 422 if it is required
            and missing, 500 if it is malformed.
    """
    version = str(metadata.get("resourceVersion") or "")
    if version and not version.isdecimal():
        message = f'strconv.ParseUint: parsing "{version}": invalid syntax'
        raise statuses.failure(500, "", message)

    if int(version or 0):
        if int(version) != stored.version:
            raise statuses.conflict(kind.resource, stored.name)
    elif not kind.unconditional:
        raise statuses.invalid(
            kind.resource.plural,
            kind.resource.group,
            stored.name,
            field="metadata.resourceVersion",
            reason="FieldValueInvalid",
            problem="Invalid value: 0: must be specified for an update",
        )


def check_deletion(kind: Kind, stored: StoredObject, options: DeleteOptions) -> None:
    """Check the preconditions of a deletion.

    Raises:
        ApiError: 409 if the uid or resource version differs from the stored one.
    """
    for what, expected, found, why in (
        ("UID", options.uid, stored.uid, "deleted and then recreated"),
        ("ResourceVersion", options.version, str(stored.version), "modified"),
    ):
        if expected in {"", found}:
            continue

        if kind.resource in _CHECKED_BY_STORAGE:
            failed = _mismatch_text(what, expected, found)
            raise statuses.conflict(kind.resource, stored.name, failed)

        message = (
            f"the {what} in the precondition ({expected}) does not match the {what} "
        )
        message += f"in record ({found}). The object might have been {why}"
        raise _conflict_of_kind(kind, stored.name, message)


def check_applied(
    kind: Kind, name: str, stored: StoredObject | None, applied: Mapping[str, Any]
) -> None:
    """Check the uid and resource version of an applied object.

    The object is not validated yet. Values that are not strings count as missing.

    Raises:
        ApiError: 409 if the version differs from the stored one, or if a uid is given
            and the object does not exist.
    """
    given = applied.get("metadata")
    metadata = given if isinstance(given, dict) else {}
    uid, version = metadata.get("uid") or "", metadata.get("resourceVersion") or ""
    if stored is not None:
        if version and isinstance(version, str):
            check_version(kind, stored, metadata)
    elif uid:
        why = f"uid mismatch: the provided object specified uid {uid}, and no existing "
        raise statuses.conflict(kind.resource, name, f"{why}object was found")


def _precondition_conflict(kind: Kind, key: str, failed: str) -> ApiError:
    resource = kind.resource
    place = _STORED_AS.get(resource, resource.plural)
    if not kind.typed:
        place = f"{resource.group}/{resource.plural}"

    why = "StorageError: invalid object, Code: 4, "
    why += f"Key: /registry/{place}/{key}, ResourceVersion: 0, "
    why += f"AdditionalErrorMsg: {failed}"
    return statuses.conflict(resource, key.rpartition("/")[2], why)


def _mismatch_text(what: str, expected: str, found: str) -> str:
    return (
        f"Precondition failed: {what} in precondition: {expected}, "
        f"{what} in object meta: {found}"
    )


def _conflict_of_kind(kind: Kind, name: str, why: str) -> ApiError:
    """Make a conflict that names the kind instead of the resource."""
    resource = kind.resource
    title = f"{resource.kind}.{resource.group}" if resource.group else resource.kind
    details = {"name": name, "group": resource.group, "kind": resource.kind}
    message = f'Operation cannot be fulfilled on {title} "{name}": {why}'
    kept = {key: value for key, value in details.items() if value}
    return statuses.failure(409, "Conflict", message, kept)
