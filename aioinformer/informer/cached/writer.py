"""`CacheWriter`: becomes the writer of a store on disk, and keeps it up to date."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import NoReturn

__all__ = ["CacheWriter"]


class CacheWriter:
    """Loop that waits for the lock of the writer, and then runs reflector and pipeline.

    The pipeline writes into a `DiskContents`; its notifications go into the journal, and
    every follower, that of this process too, reads them there.
    """

    async def run(self) -> NoReturn:
        """Try to become the writer every quarter of a second, then write until cancelled.

        Raises:
            CacheError: If the store cannot be written.
        """
        raise NotImplementedError
