"""Validation of pod volumes, persistent volumes, claims and storage classes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aioinformer_apiserver.errors import field_errors
from aioinformer_apiserver.schema import field_validation as fields
from aioinformer_apiserver.schema.field_validation import (
    as_list,
    validate_relative_path,
)
from aioinformer_apiserver.schema.quantities import quantity

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aioinformer_apiserver.errors.field_errors import FieldError

__all__ = [
    "validate_persistent_volume",
    "validate_persistent_volume_claim",
    "validate_storage_class",
    "validate_volumes",
]

Object = dict[str, Any]

# Order of a real server; it reports the second source of a volume.
_SOURCES = (
    "emptyDir",
    "hostPath",
    "gitRepo",
    "gcePersistentDisk",
    "awsElasticBlockStore",
    "secret",
    "nfs",
    "iscsi",
    "glusterfs",
    "persistentVolumeClaim",
    "rbd",
    "cinder",
    "cephfs",
    "flocker",
    "downwardAPI",
    "fc",
    "flexVolume",
    "configMap",
    "azureFile",
    "vsphereVolume",
    "photonPersistentDisk",
    "portworxVolume",
    "azureDisk",
    "storageos",
    "projected",
    "scaleIO",
    "csi",
    "ephemeral",
    "image",
    "quobyte",
)

_HOST_PATHS = (
    "",
    "BlockDevice",
    "CharDevice",
    "Directory",
    "DirectoryOrCreate",
    "File",
    "FileOrCreate",
    "Socket",
)
_MOST_PERMISSIVE = 0o777
# Required fields of volume sources.
_REQUIRED = {
    "configMap": ("name",),
    "csi": ("driver",),
    "ephemeral": ("volumeClaimTemplate",),
    "hostPath": ("path",),
    "nfs": ("server", "path"),
    "persistentVolumeClaim": ("claimName",),
    "secret": ("secretName",),
}


def validate_volumes(path: str, volumes: list[Object]) -> Iterator[FieldError]:
    """Validate the volumes of a Pod."""
    seen: set[str] = set()
    for index, volume in enumerate(volumes):
        where, name = f"{path}[{index}]", volume.get("name", "")
        given = [it for it in _SOURCES if it in volume]
        for number, field in enumerate(given):
            if number:
                why = "may not specify more than 1 volume type"
                yield field_errors.forbidden(f"{where}.{field}", why)
            else:
                yield from _validate_source(f"{where}.{field}", field, volume[field])

        if not name:
            yield field_errors.required(f"{where}.name")
            continue

        yield from fields.dns_label(f"{where}.name", name)
        if name in seen:
            yield field_errors.duplicate(f"{where}.name", name)

        seen.add(name)


def _validate_source(path: str, field: str, source: Object) -> Iterator[FieldError]:
    for name in _REQUIRED.get(field, ()):
        if not source.get(name):
            yield field_errors.required(f"{path}.{name}")

    match field:
        case "emptyDir":
            if quantity(source.get("sizeLimit", "0")) < 0:
                why = "SizeLimit field must be a valid resource quantity"
                yield field_errors.forbidden(f"{path}.sizeLimit", why)
        case "hostPath":
            yield from _validate_host_path(path, source)
        case "nfs":
            if not source.get("path", "").startswith("/"):
                why = "must be an absolute path"
                yield field_errors.invalid(f"{path}.path", source.get("path", ""), why)
        case "configMap" | "secret":
            yield from _validate_file(path, source)
        case "downwardAPI":
            yield from _validate_downward(path, source)
        case "projected":
            yield from _validate_mode(f"{path}.defaultMode", source.get("defaultMode"))
            for index, it in enumerate(as_list(source.get("sources"))):
                yield from _validate_projection(f"{path}.sources[{index}]", it)
        case _:
            pass


def _validate_host_path(path: str, source: Object) -> Iterator[FieldError]:
    """Validate a host path that is not empty."""
    if ".." in source.get("path", "").split("/"):
        why = "must not contain '..'"
        yield field_errors.invalid(f"{path}.path", source["path"], why)

    yield from fields.one_of(f"{path}.type", source.get("type", ""), _HOST_PATHS)


def _validate_file(path: str, source: Object) -> Iterator[FieldError]:
    yield from _validate_mode(f"{path}.defaultMode", source.get("defaultMode"))
    for index, item in enumerate(as_list(source.get("items"))):
        where = f"{path}.items[{index}]"
        for field in ("key", "path"):
            if not item.get(field):
                yield field_errors.required(f"{where}.{field}")

        yield from validate_relative_path(f"{where}.path", item.get("path", ""))
        yield from _validate_mode(f"{where}.mode", item.get("mode"))


def _validate_mode(path: str, mode: int | None) -> Iterator[FieldError]:
    if mode is not None and not 0 <= mode <= _MOST_PERMISSIVE:
        why = "must be a number between 0 and 0777 (octal), both inclusive"
        yield field_errors.invalid(path, mode, why)


def _validate_downward(path: str, source: Object) -> Iterator[FieldError]:
    yield from _validate_mode(f"{path}.defaultMode", source.get("defaultMode"))
    for item in as_list(source.get("items")):
        if not item.get("path"):
            yield field_errors.required(f"{path}.path")

        if "fieldRef" not in item and "resourceFieldRef" not in item:
            why = "one of fieldRef and resourceFieldRef is required"
            yield field_errors.required(path, why)


def _validate_projection(path: str, source: Object) -> Iterator[FieldError]:
    for field in ("secret", "configMap"):
        if field in source:
            if not source[field].get("name"):
                yield field_errors.required(f"{path}.{field}.name")

            yield from _validate_file(f"{path}.{field}", source[field])

    if "downwardAPI" in source:
        yield from _validate_downward(f"{path}.downwardAPI", source["downwardAPI"])


# ------------------------------------------------------------------ volumes and claims


_MODES = ("ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod")
_VOLUME_MODES = ("Block", "Filesystem")
_PERSISTENT_SOURCES = (
    "hostPath",
    "gcePersistentDisk",
    "awsElasticBlockStore",
    "glusterfs",
    "flocker",
    "nfs",
    "rbd",
    "quobyte",
    "cephfs",
    "iscsi",
    "cinder",
    "fc",
    "flexVolume",
    "azureFile",
    "vsphereVolume",
    "photonPersistentDisk",
    "portworxVolume",
    "azureDisk",
    "scaleIO",
    "local",
    "storageos",
    "csi",
)


def validate_persistent_volume_claim(body: Object) -> Iterator[FieldError]:
    """Validate a PersistentVolumeClaim."""
    spec = body.get("spec") or {}
    if not spec.get("accessModes"):
        why = "at least 1 access mode is required"
        yield field_errors.required("spec.accessModes", why)

    yield from fields.selector("spec.selector", spec.get("selector"))
    yield from _validate_access_mode(spec)
    size = ((spec.get("resources") or {}).get("requests") or {}).get("storage")
    if size is None:
        yield field_errors.required("spec.resources[storage]")
    elif quantity(size) <= 0:
        why = "must be greater than zero"
        yield field_errors.invalid("spec.resources[storage]", size, why)

    if spec.get("storageClassName"):
        yield from fields.subdomain("spec.storageClassName", spec["storageClassName"])

    volume_mode = spec.get("volumeMode", "Filesystem")
    yield from fields.one_of("spec.volumeMode", volume_mode, _VOLUME_MODES)


def validate_persistent_volume(body: Object) -> Iterator[FieldError]:
    """Validate a PersistentVolume."""
    spec = body.get("spec") or {}
    if not spec.get("accessModes"):
        yield field_errors.required("spec.accessModes")

    yield from _validate_access_mode(spec)
    capacity: Object = spec.get("capacity") or {}
    if not capacity:
        yield field_errors.required("spec.capacity")

    if capacity.keys() != {"storage"}:
        yield field_errors.not_supported("spec.capacity", capacity or None, ["storage"])
    elif quantity(capacity["storage"]) <= 0:
        why = "must be greater than zero"
        yield field_errors.invalid("spec.capacity[storage]", capacity["storage"], why)

    policies = ("Delete", "Recycle", "Retain")
    policy = spec.get("persistentVolumeReclaimPolicy")
    yield from fields.one_of("spec.persistentVolumeReclaimPolicy", policy, policies)
    yield from _validate_persistent_source(spec)
    if spec.get("storageClassName"):
        yield from fields.subdomain("spec.storageClassName", spec["storageClassName"])

    volume_mode = spec.get("volumeMode", "Filesystem")
    yield from fields.one_of("spec.volumeMode", volume_mode, _VOLUME_MODES)


def _validate_access_mode(spec: Object) -> Iterator[FieldError]:
    for it in as_list(spec.get("accessModes")):
        yield from fields.one_of("spec.accessModes", it, _MODES)


def _validate_persistent_source(spec: Object) -> Iterator[FieldError]:
    given = [it for it in _PERSISTENT_SOURCES if it in spec]
    if not given:
        yield field_errors.required("spec", "must specify a volume type")

    for field in given[1:]:
        why = "may not specify more than 1 volume type"
        yield field_errors.forbidden(f"spec.{field}", why)

    if given[:1] == ["hostPath"]:
        if not spec["hostPath"].get("path"):
            yield field_errors.required("spec.hostPath.path")

        yield from _validate_host_path("spec.hostPath", spec["hostPath"])


def validate_storage_class(body: Object) -> Iterator[FieldError]:
    """Validate a StorageClass."""
    provisioner = body.get("provisioner", "")
    if not provisioner:
        yield field_errors.required("provisioner")
    else:
        yield from fields.qualified("provisioner", provisioner.lower())

    if any(not it for it in body.get("parameters") or ()):
        yield field_errors.invalid("parameters", "", "field can not be empty.")

    policy, mode = body.get("reclaimPolicy"), body.get("volumeBindingMode")
    yield from fields.one_of("reclaimPolicy", policy, ("Delete", "Retain"))
    modes = ("Immediate", "WaitForFirstConsumer")
    yield from fields.one_of("volumeBindingMode", mode, modes)
