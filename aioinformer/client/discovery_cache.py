"""Disk cache of discovery, shared with kubectl.

`<folder>/<host_port>/servergroups.json` lists groups and versions, and
`<folder>/<host_port>/<group>/<version>/serverresources.json` the resources of a
version, as in client-go's disk cache. The functions block: call them in a thread.
"""

from __future__ import annotations

import os
import re
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

from aioinformer._user_code import guarded_logger
from aioinformer.client.discovery_documents import (
    read_groups,
    read_resources,
    write_groups,
    write_resources,
)
from aioinformer.errors import DecodeError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aioinformer.client.discovery_documents import Group

__all__ = ["folder_of", "load", "save"]

logger: Final = guarded_logger(__name__)

# As in client-go: characters that some file systems do not allow.
_STRANGE = re.compile(r"[^(\w/.)]", re.ASCII)

# Names chosen by the server that may become folders.
_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9.-]*")

_GROUPS = "servergroups.json"
_RESOURCES = "serverresources.json"


def folder_of(cache_dir: Path, server: str) -> Path:
    """Return the folder of a server.

    Args:
        cache_dir: Folder for all servers. kubectl's is `~/.kube/cache/discovery`.
        server: URL of the server.
    """
    address = server.partition("://")[2] or server
    parts = _STRANGE.sub("_", address).split("/")
    return cache_dir.joinpath(*(it for it in parts if it.strip(".")))


def load(folder: Path, max_age: float) -> tuple[list[Group], float] | None:
    """Read the files of a server.

    Args:
        folder: Folder of the server.
        max_age: Maximum age of each file in seconds.

        Returns:
            Groups with their resources, and the age of the oldest file in seconds; None
            if a file is missing, too old, or unreadable.
    """
    try:
        content, oldest = _read(folder / _GROUPS, max_age)
        groups = read_groups(content)
        for group in groups:
            for version in group.versions:
                name = _place(group.api_version(version))
                content, age = _read(folder / name / _RESOURCES, max_age)
                version.resources = read_resources(content)
                oldest = max(oldest, age)

    except (OSError, DecodeError) as exc:
        logger.debug("discovery files in %s are not usable: %s", folder, exc)
        return None

    return groups, oldest


def save(folder: Path, groups: Iterable[Group]) -> None:
    """Write the files of a server atomically, readable only by their owner.

    Versions that could not be discovered are left out, so that readers request them. If
    the folder is not writable, that is logged and not an error, as in kubectl.
    """
    groups = list(groups)
    try:
        for group in groups:
            for version in group.versions:
                if version.resources:
                    name = group.api_version(version)
                    place = folder / _place(name)
                    _write(place / _RESOURCES, write_resources(name, version.resources))

        # Last, so that its readers find the others.
        _write(folder / _GROUPS, write_groups(groups))
    except OSError as exc:
        logger.warning("cannot write discovery files to %s: %s", folder, exc)


def _place(api_version: str) -> str:
    """Return the folder of a version, relative to that of its server.

    Raises:
        OSError: If the name chosen by the server could lead elsewhere.
    """
    if not all(_PLAIN.fullmatch(part) for part in api_version.split("/")):
        raise OSError(f"{api_version!r} is not a valid folder name")

    return api_version


def _read(file: Path, max_age: float) -> tuple[bytes, float]:
    """Return the content of a file, and its age in seconds.

    Raises:
        OSError: If it cannot be read, is too old, or is from the future.
    """
    with file.open("rb") as opened:
        changed = os.fstat(opened.fileno()).st_mtime
        age = datetime.now(tz=UTC).timestamp() - changed
        if not -1.0 <= age <= max_age:
            raise OSError(f"{file} is {age:.0f} s old")

        return opened.read(), max(age, 0.0)


def _write(file: Path, content: bytes) -> None:
    """Replace a file atomically."""
    _make_private(file.parent)
    handle, name = tempfile.mkstemp(dir=file.parent, prefix=f"{file.name}.")
    try:
        with os.fdopen(handle, "wb") as opened:
            opened.write(content)

        Path(name).replace(file)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _make_private(folder: Path) -> None:
    """Create a folder and its missing parents, accessible only by their owner."""
    if not folder.is_dir():
        _make_private(folder.parent)
        folder.mkdir(mode=0o700, exist_ok=True)
