"""Errors of LMDB and of the system, in terms of what to do."""

from __future__ import annotations

import errno

__all__ = ["cause_of", "is_damage", "is_shortage", "lacks_descriptors"]

_FULL = (
    "no space is left on its disk, or a quota or limit of the file size is reached. Free "
    "some space, or choose a larger volume for cache_dir"
)
_DAMAGED = (
    "the file is damaged. The next process that opens it alone starts a new one. Check "
    "the disk"
)
_DAMAGES = {
    "BadChecksumError",
    "BadTxnError",  # of a new transaction whose first page cannot be read
    "CorruptedError",
    "CursorFullError",
    "InvalidError",
    "PageFullError",
    "PageNotFoundError",
    "ProblemError",
}
_CAUSES = {
    **dict.fromkeys(_DAMAGES, _DAMAGED),
    "MapFullError": (
        "its file has the largest size for which this process has reserved addresses: "
        "64 GiB, or less if they are limited. Raise that limit (ulimit -v)"
    ),
    "MapResizedError": (
        "another process, whose address space has no limit or a higher one, has made the "
        "file larger than this process can map. Raise the limit (ulimit -v)"
    ),
    "ReadersFullError": (
        "too many transactions are open. Use it from fewer processes or threads"
    ),
    "DbsFullError": "it has too many databases. Use fewer indexes",
    "ReadonlyError": "it was opened to be read only",
    "LockError": (
        "another container uses it, with the same process id. Let the containers share "
        "their process ids (shareProcessNamespace: true), or give each a cache_dir of "
        "its own"
    ),
    "PanicError": (
        "an earlier write failed while it was half done. Restart the process to use a "
        "cache again"
    ),
    "DiskError": _FULL,
}
_DESCRIPTORS = {errno.EMFILE, errno.ENFILE}
_MEMORY = {errno.ENOMEM, errno.ENOLCK}
_CAUSES_BY_NUMBER = {
    errno.ENOSPC: _FULL,
    errno.EDQUOT: _FULL,
    errno.EFBIG: _FULL,
    # After the part of a write for which there was space.
    errno.EIO: (
        "its disk is full or fails. Free some space, or choose a larger volume for "
        "cache_dir"
    ),
    errno.EROFS: "its file system is read-only. Choose another cache_dir",
    errno.EACCES: (
        "this user has no permission. Correct that, or choose another cache_dir"
    ),
    errno.ENOENT: "its directory was removed. Restart the process to use a cache again",
    errno.ENOMEM: (
        "there is not enough memory or address space. Raise the limit (ulimit -v)"
    ),
}


def cause_of(exc: Exception) -> str:
    """Return the cause of an error of LMDB or of the system, and what to do."""
    for kind in type(exc).__mro__:
        if kind.__name__ in _CAUSES:
            return _CAUSES[kind.__name__]

    found = _CAUSES_BY_NUMBER.get(_number(exc))
    if found is None and isinstance(exc, OSError) and exc.strerror:
        found = f"{exc.strerror} ({exc.filename})" if exc.filename else exc.strerror

    return found or str(exc)


def is_damage(exc: Exception) -> bool:
    """Return True if an error of LMDB stands for a damaged file."""
    return type(exc).__name__ in _DAMAGES


def lacks_descriptors(exc: Exception) -> bool:
    """Return True if the system could not open a file just now, also as a cause.

    The limit of open files is often reached for a moment, and every other file of the
    process is then refused, too.
    """
    return _number(exc.__cause__ or exc) in _DESCRIPTORS


def is_shortage(exc: Exception) -> bool:
    """Return True if the system lacked descriptors or memory just now, also as a cause."""
    return _number(exc.__cause__ or exc) in _DESCRIPTORS | _MEMORY


def _number(exc: BaseException) -> int:
    """Return the number of an error of LMDB or of the system; 0 without one."""
    return getattr(exc, "code", None) or getattr(exc, "errno", None) or 0
