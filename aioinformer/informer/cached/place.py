"""`CachePlace`: where the stores of an informer are, one for each identity."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from aioinformer._extras import import_extra
from aioinformer.cache.disk.directory import last_used, safe_directory
from aioinformer.cache.disk.environment import Environment
from aioinformer.cache.disk.header import FORMAT
from aioinformer.errors import CacheError, OptionsError

if TYPE_CHECKING:
    from aioinformer.cache.disk.header import Header
    from aioinformer.model.resource import Resource

__all__ = ["CachePlace", "cache_root"]

UNUSED_SECONDS: Final = 600.0
"""Time after its last use for which a store is kept: its program may be restarting."""

ATTEMPTS: Final = 3
"""Attempts to open a store that other processes remove, as they adopt its objects."""


def cache_root(cache_dir: str | os.PathLike[str] | None) -> Path | None:
    """Return the directory of all stores, or None; nothing is opened.

    Raises:
        OptionsError: If it is not a path, or a package for stores on disk is missing.
    """
    if cache_dir is None:
        return None

    given: Any = cache_dir
    path = os.fspath(given) if isinstance(given, str | os.PathLike) else None
    if not isinstance(path, str) or not path or "\0" in path:
        raise OptionsError(
            f"cache_dir must be the path of a directory, not {cache_dir!r}"
        )

    for package in ("lmdb", "zstandard"):
        import_extra(package, "shared", f"cache_dir= needs {package}")

    try:
        return Path(path).expanduser().absolute()
    except RuntimeError as exc:
        raise OptionsError(
            f"cannot find the home directory of {path!r}: {exc}"
        ) from exc


@dataclass(frozen=True, slots=True)
class CachePlace:
    """Place of the stores of one informer on disk.

    Each selection, format, API server and transform has a store of its own. So all
    processes that have a store open agree on its objects. A new store begins with the
    objects of an unused one of the same selection and format.

    Attributes:
        root: Directory of all stores of a factory.
        directory: Start of the names of these stores in `root`: one for each selection.
        selection: Selection of the objects, as text.
        metadata_of: Resource of metadata-only objects, or None.
    """

    root: Path
    directory: str
    selection: str
    metadata_of: Resource | None = None

    def path(self, claims: Header) -> Path:
        """Return the directory of a store, by the endpoint and transform of a header."""
        identity = f"{claims.endpoint}\n{claims.transform}"
        digest = hashlib.sha256(identity.encode()).hexdigest()
        return self.root / f"{self.directory}-{FORMAT}-{digest[:8]}"

    def open(self, path: Path) -> Environment:
        """Open a store. Blocks for up to 10 s: call it in a thread.

        Raises:
            CacheError: If it cannot be used.
        """
        for attempt in range(1, ATTEMPTS + 1):
            try:
                # Another process may adopt this store, and remove its directory.
                path = safe_directory(self.root, path.name)
                others = self._others(path, f"{self.directory}-{FORMAT}-")
                return Environment.open(path, adopts=others)
            except CacheError as exc:
                removed = isinstance(exc.__cause__, FileNotFoundError)
                if attempt == ATTEMPTS or not (removed or not path.exists()):
                    raise

        raise AssertionError  # unreachable

    def remove_unused(self, path: Path) -> None:
        """Remove other stores of the selection that were not used for ten minutes.

        Blocks: call it in a thread.

        Args:
            path: Directory of the store that is kept.
        """
        now = datetime.now(tz=UTC).timestamp()
        for other in self._others(path, f"{self.directory}-"):
            if now - last_used(other) > UNUSED_SECONDS:
                Environment.remove(other)

    def _others(self, path: Path, start: str) -> list[Path]:
        """Return the directories of other stores, the last used one first."""
        found = [it for it in path.parent.glob(f"{start}*") if it.name != path.name]
        return sorted(found, key=last_used, reverse=True)
