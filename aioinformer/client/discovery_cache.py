"""What is known of a server, in files: those that kubectl has, in the same places.

`<folder>/<host_port>/servergroups.json` names groups and versions, and
`<folder>/<host_port>/<group>/<version>/serverresources.json` what is served in one. So
both can use what the other has written, as client-go's disk cache lays it out. These
functions block: call them in a thread.
"""

from __future__ import annotations

import os
import re
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

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

logger = guarded_logger(__name__)

# As client-go: what some file system may not have in a name.
_STRANGE = re.compile(r"[^(\w/.)]", re.ASCII)

# A server's word, which becomes that of a folder.
_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9.-]*")

_GROUPS = "servergroups.json"
_RESOURCES = "serverresources.json"


def folder_of(cache_dir: Path, server: str) -> Path:
    """The folder of a server, below the one for all of them.

    Args:
        cache_dir: kubectl's is `~/.kube/cache/discovery`.
        server: Its URL.
    """
    address = server.partition("://")[2] or server
    parts = _STRANGE.sub("_", address).split("/")
    return cache_dir.joinpath(*(it for it in parts if it.strip(".")))


def load(folder: Path, max_age: float) -> tuple[list[Group], float] | None:
    """Read the files of a server.

    Args:
        folder: That of the server.
        max_age: How old they may be, in seconds.

    Returns:
        The groups with what is served in them, and the age of the oldest file in
        seconds; None if one of the files is missing, too old, or cannot be read.
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
        logger.debug("no use for the discovery files in %s: %s", folder, exc)
        return None

    return groups, oldest


def save(folder: Path, groups: Iterable[Group]) -> None:
    """Write the files of a server, each at once, for nobody else to read.

    What could not be learnt is left out, so that whoever reads the files asks for it.
    A folder that cannot be written to is told in the log, and no error: kubectl goes on
    without it, too.
    """
    groups = list(groups)
    try:
        for group in groups:
            for version in group.versions:
                if version.resources:
                    name = group.api_version(version)
                    place = folder / _place(name)
                    _write(place / _RESOURCES, write_resources(name, version.resources))

        # Last: whoever finds it finds the others.
        _write(folder / _GROUPS, write_groups(groups))
    except OSError as exc:
        logger.warning("cannot keep what the server serves in %s: %s", folder, exc)


def _place(api_version: str) -> str:
    """The folder of a version, below that of its server.

    Raises:
        OSError: The server has thought up a name that could lead elsewhere.
    """
    if not all(_PLAIN.fullmatch(part) for part in api_version.split("/")):
        raise OSError(f"{api_version!r} cannot be the name of a folder")

    return api_version


def _read(file: Path, max_age: float) -> tuple[bytes, float]:
    """The content of a file, and its age in seconds.

    Raises:
        OSError: It cannot be read, or is too old, or from the future.
    """
    with file.open("rb") as opened:
        changed = os.fstat(opened.fileno()).st_mtime
        age = datetime.now(tz=UTC).timestamp() - changed
        if not -1.0 <= age <= max_age:
            raise OSError(f"{file} is {age:.0f} s old")

        return opened.read(), max(age, 0.0)


def _write(file: Path, content: bytes) -> None:
    """Put a file in its place, whole, whoever reads it meanwhile."""
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
    """Make a folder, and those above it that are missing, for its owner alone."""
    if not folder.is_dir():
        _make_private(folder.parent)
        folder.mkdir(mode=0o700, exist_ok=True)
