"""The tables of volumes: the claims to them, and the classes that they are made from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aioinformer.model import resources
from aioinformer.tables.cells import (
    UNSET,
    access_modes,
    age,
    at,
    mapping,
    name,
    quantity,
    strings,
    text,
)
from aioinformer.tables.columns import AGE, NAME, Layout, texts

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from aioinformer.model.resource import Resource

__all__ = ["STORAGE_LAYOUTS"]

_OLD_CLASS_ANNOTATION = "volume.beta.kubernetes.io/storage-class"
_DEFAULT_CLASS_ANNOTATIONS = (
    "storageclass.kubernetes.io/is-default-class",
    "storageclass.beta.kubernetes.io/is-default-class",
)


def _volume_cells(body: Mapping[str, Any], now: datetime) -> list[Any]:
    spec, status = mapping(body, "spec"), mapping(body, "status")
    claim = mapping(spec, "claimRef")
    return [
        name(body),
        quantity(spec, "capacity", "storage"),
        access_modes(strings(spec, "accessModes")),
        text(spec, "persistentVolumeReclaimPolicy"),
        _volume_phase(body),
        f"{text(claim, 'namespace')}/{text(claim, 'name')}" if claim else "",
        _storage_class(body),
        text(spec, "volumeAttributesClassName") or UNSET,
        text(status, "reason"),
        age(body, now),
        text(spec, "volumeMode") or UNSET,
    ]


def _claim_cells(body: Mapping[str, Any], now: datetime) -> list[Any]:
    spec, status = mapping(body, "spec"), mapping(body, "status")
    volume = text(spec, "volumeName")
    return [
        name(body),
        _volume_phase(body),
        volume,
        quantity(status, "capacity", "storage") if volume else "",
        access_modes(strings(status, "accessModes")) if volume else "",
        _storage_class(body),
        text(spec, "volumeAttributesClassName") or UNSET,
        age(body, now),
        text(spec, "volumeMode") or UNSET,
    ]


def _volume_phase(body: object) -> str:
    if text(body, "metadata", "deletionTimestamp"):
        return "Terminating"

    return text(body, "status", "phase")


def _storage_class(body: object) -> str:
    old = text(body, "metadata", "annotations", _OLD_CLASS_ANNOTATION)
    return old or text(body, "spec", "storageClassName")


def _class_cells(body: Mapping[str, Any], now: datetime) -> list[Any]:
    annotations = mapping(body, "metadata", "annotations")
    is_default = any(annotations.get(it) == "true" for it in _DEFAULT_CLASS_ANNOTATIONS)
    return [
        name(body) + (" (default)" if is_default else ""),
        text(body, "provisioner"),
        text(body, "reclaimPolicy") or "Delete",
        text(body, "volumeBindingMode") or "Immediate",
        at(body, "allowVolumeExpansion") is True,
        age(body, now),
    ]


_VOLUME_MODE = texts("VolumeMode", wide=True)

STORAGE_LAYOUTS: dict[Resource, Layout] = {
    resources.PERSISTENT_VOLUMES: Layout(
        (
            NAME,
            *texts("Capacity", "Access Modes", "Reclaim Policy", "Status", "Claim"),
            *texts("StorageClass", "VolumeAttributesClass", "Reason"),
            AGE,
            *_VOLUME_MODE,
        ),
        _volume_cells,
    ),
    resources.PERSISTENT_VOLUME_CLAIMS: Layout(
        (
            NAME,
            *texts("Status", "Volume", "Capacity", "Access Modes"),
            *texts("StorageClass", "VolumeAttributesClass"),
            AGE,
            *_VOLUME_MODE,
        ),
        _claim_cells,
    ),
    resources.STORAGE_CLASSES: Layout(
        (
            NAME,
            *texts(
                "Provisioner",
                "ReclaimPolicy",
                "VolumeBindingMode",
                "AllowVolumeExpansion",
            ),
            AGE,
        ),
        _class_cells,
    ),
}
