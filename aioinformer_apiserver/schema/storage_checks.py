"""Storage checks: what a real server asks of volumes, claims and their classes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aioinformer_apiserver.schema import field_checks as fields
from aioinformer_apiserver.schema import findings
from aioinformer_apiserver.schema.field_checks import listed
from aioinformer_apiserver.schema.quantities import quantity
from aioinformer_apiserver.schema.volume_checks import host_path_problems

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aioinformer_apiserver.errors.field_errors import Problem

__all__ = ["claim_problems", "storage_class_problems", "volume_problems"]

Object = dict[str, Any]

_MODES = ("ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod")
_VOLUME_MODES = ("Block", "Filesystem")
_SOURCES = (
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


def claim_problems(body: Object) -> Iterator[Problem]:
    """Find what is wrong with a PersistentVolumeClaim."""
    spec = body.get("spec") or {}
    if not spec.get("accessModes"):
        why = "at least 1 access mode is required"
        yield findings.required("spec.accessModes", why)

    yield from fields.selector("spec.selector", spec.get("selector"))
    yield from _mode_problems(spec)
    size = ((spec.get("resources") or {}).get("requests") or {}).get("storage")
    if size is None:
        yield findings.required("spec.resources[storage]")
    elif quantity(size) <= 0:
        why = "must be greater than zero"
        yield findings.invalid("spec.resources[storage]", size, why)

    if spec.get("storageClassName"):
        yield from fields.subdomain("spec.storageClassName", spec["storageClassName"])

    volume_mode = spec.get("volumeMode", "Filesystem")
    yield from fields.one_of("spec.volumeMode", volume_mode, _VOLUME_MODES)


def volume_problems(body: Object) -> Iterator[Problem]:
    """Find what is wrong with a PersistentVolume."""
    spec = body.get("spec") or {}
    if not spec.get("accessModes"):
        yield findings.required("spec.accessModes")

    yield from _mode_problems(spec)
    capacity: Object = spec.get("capacity") or {}
    if not capacity:
        yield findings.required("spec.capacity")

    if capacity.keys() != {"storage"}:
        yield findings.not_supported("spec.capacity", capacity or None, ["storage"])
    elif quantity(capacity["storage"]) <= 0:
        why = "must be greater than zero"
        yield findings.invalid("spec.capacity[storage]", capacity["storage"], why)

    policies = ("Delete", "Recycle", "Retain")
    policy = spec.get("persistentVolumeReclaimPolicy")
    yield from fields.one_of("spec.persistentVolumeReclaimPolicy", policy, policies)
    yield from _source_problems(spec)
    if spec.get("storageClassName"):
        yield from fields.subdomain("spec.storageClassName", spec["storageClassName"])

    volume_mode = spec.get("volumeMode", "Filesystem")
    yield from fields.one_of("spec.volumeMode", volume_mode, _VOLUME_MODES)


def _mode_problems(spec: Object) -> Iterator[Problem]:
    for it in listed(spec.get("accessModes")):
        yield from fields.one_of("spec.accessModes", it, _MODES)


def _source_problems(spec: Object) -> Iterator[Problem]:
    given = [it for it in _SOURCES if it in spec]
    if not given:
        yield findings.required("spec", "must specify a volume type")

    for field in given[1:]:
        why = "may not specify more than 1 volume type"
        yield findings.forbidden(f"spec.{field}", why)

    if given[:1] == ["hostPath"]:
        if not spec["hostPath"].get("path"):
            yield findings.required("spec.hostPath.path")

        yield from host_path_problems("spec.hostPath", spec["hostPath"])


def storage_class_problems(body: Object) -> Iterator[Problem]:
    """Find what is wrong with a StorageClass."""
    provisioner = body.get("provisioner", "")
    if not provisioner:
        yield findings.required("provisioner")
    else:
        yield from fields.qualified("provisioner", provisioner.lower())

    if any(not it for it in body.get("parameters") or ()):
        yield findings.invalid("parameters", "", "field can not be empty.")

    policy, mode = body.get("reclaimPolicy"), body.get("volumeBindingMode")
    yield from fields.one_of("reclaimPolicy", policy, ("Delete", "Retain"))
    modes = ("Immediate", "WaitForFirstConsumer")
    yield from fields.one_of("volumeBindingMode", mode, modes)
