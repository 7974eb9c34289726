"""Volume checks: what a real server asks of the volumes of a Pod."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aioinformer_apiserver.schema import field_checks as fields
from aioinformer_apiserver.schema import findings
from aioinformer_apiserver.schema.container_checks import relative_path_problems
from aioinformer_apiserver.schema.field_checks import listed
from aioinformer_apiserver.schema.quantities import quantity

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aioinformer_apiserver.errors.field_errors import Problem

__all__ = ["host_path_problems", "volume_problems"]

Object = dict[str, Any]

# In the order in which the real server looks at them; the second one is too many.
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
# What a source must name.
_REQUIRED = {
    "configMap": ("name",),
    "csi": ("driver",),
    "ephemeral": ("volumeClaimTemplate",),
    "hostPath": ("path",),
    "nfs": ("server", "path"),
    "persistentVolumeClaim": ("claimName",),
    "secret": ("secretName",),
}


def volume_problems(path: str, volumes: list[Object]) -> Iterator[Problem]:
    """Find what is wrong with the volumes of a Pod."""
    seen: set[str] = set()
    for index, volume in enumerate(volumes):
        where, name = f"{path}[{index}]", volume.get("name", "")
        given = [it for it in _SOURCES if it in volume]
        for number, field in enumerate(given):
            if number:
                why = "may not specify more than 1 volume type"
                yield findings.forbidden(f"{where}.{field}", why)
            else:
                yield from _source_problems(f"{where}.{field}", field, volume[field])

        if not name:
            yield findings.required(f"{where}.name")
            continue

        yield from fields.dns_label(f"{where}.name", name)
        if name in seen:
            yield findings.duplicate(f"{where}.name", name)

        seen.add(name)


def _source_problems(path: str, field: str, source: Object) -> Iterator[Problem]:
    for name in _REQUIRED.get(field, ()):
        if not source.get(name):
            yield findings.required(f"{path}.{name}")

    match field:
        case "emptyDir":
            if quantity(source.get("sizeLimit", "0")) < 0:
                why = "SizeLimit field must be a valid resource quantity"
                yield findings.forbidden(f"{path}.sizeLimit", why)
        case "hostPath":
            yield from host_path_problems(path, source)
        case "nfs":
            if not source.get("path", "").startswith("/"):
                why = "must be an absolute path"
                yield findings.invalid(f"{path}.path", source.get("path", ""), why)
        case "configMap" | "secret":
            yield from _file_problems(path, source)
        case "downwardAPI":
            yield from _downward_problems(path, source)
        case "projected":
            yield from _mode_problems(f"{path}.defaultMode", source.get("defaultMode"))
            for index, it in enumerate(listed(source.get("sources"))):
                yield from _projection_problems(f"{path}.sources[{index}]", it)
        case _:
            pass


def host_path_problems(path: str, source: Object) -> Iterator[Problem]:
    """Find what is wrong with a directory of the host, except that it is missing."""
    if ".." in source.get("path", "").split("/"):
        why = "must not contain '..'"
        yield findings.invalid(f"{path}.path", source["path"], why)

    yield from fields.one_of(f"{path}.type", source.get("type", ""), _HOST_PATHS)


def _file_problems(path: str, source: Object) -> Iterator[Problem]:
    yield from _mode_problems(f"{path}.defaultMode", source.get("defaultMode"))
    for index, item in enumerate(listed(source.get("items"))):
        where = f"{path}.items[{index}]"
        for field in ("key", "path"):
            if not item.get(field):
                yield findings.required(f"{where}.{field}")

        yield from relative_path_problems(f"{where}.path", item.get("path", ""))
        yield from _mode_problems(f"{where}.mode", item.get("mode"))


def _mode_problems(path: str, mode: int | None) -> Iterator[Problem]:
    if mode is not None and not 0 <= mode <= _MOST_PERMISSIVE:
        why = "must be a number between 0 and 0777 (octal), both inclusive"
        yield findings.invalid(path, mode, why)


def _downward_problems(path: str, source: Object) -> Iterator[Problem]:
    yield from _mode_problems(f"{path}.defaultMode", source.get("defaultMode"))
    for item in listed(source.get("items")):
        if not item.get("path"):
            yield findings.required(f"{path}.path")

        if "fieldRef" not in item and "resourceFieldRef" not in item:
            why = "one of fieldRef and resourceFieldRef is required"
            yield findings.required(path, why)


def _projection_problems(path: str, source: Object) -> Iterator[Problem]:
    for field in ("secret", "configMap"):
        if field in source:
            if not source[field].get("name"):
                yield findings.required(f"{path}.{field}.name")

            yield from _file_problems(f"{path}.{field}", source[field])

    if "downwardAPI" in source:
        yield from _downward_problems(f"{path}.downwardAPI", source["downwardAPI"])
