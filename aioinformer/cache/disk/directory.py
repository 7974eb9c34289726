"""Directories of stores on disk: safe ones only, one for each informer."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import shutil
import stat
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

from aioinformer._user_code import guarded_logger
from aioinformer.cache.disk.failures import lacks_descriptors
from aioinformer.errors import CacheError

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = [
    "check_complete",
    "device_and_inode",
    "last_used",
    "remove_directory",
    "safe_directory",
    "set_aside",
]

logger: Final = guarded_logger(__name__)

DATA = "data.mdb"
LOCK = "lock.mdb"
STORE_LOCK = "store.lock"
SESSION = "session"
READERS = "readers"

_FILES = (DATA, LOCK, STORE_LOCK, SESSION)

# Files that are kept after `set_aside`, for an examination.
_KEPT = 2

WITHOUT_LINKS = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
"""Flags to open a file that is no symbolic link."""

_DIRECTORY = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | WITHOUT_LINKS

# LMDB needs one page cache for all processes that map a file, and record locks. Types of
# /proc/self/mountinfo; `fuse.sshfs` counts as `fuse`. Several virtual machines, or the
# host, may map the same file of `virtiofs`, `vboxsf` or `9p`.
_REMOTE = frozenset({
    "9p",
    "afs",
    "beegfs",
    "ceph",
    "cifs",
    "coda",
    "fuse",
    "gfs2",
    "glusterfs",
    "gpfs",
    "lustre",
    "ncpfs",
    "nfs",
    "nfs4",
    "ocfs2",
    "prl_fs",
    "smb3",
    "smbfs",
    "vboxsf",
    "virtiofs",
})  # fmt: skip


_OCTAL = re.compile(r"\\([0-7]{3})")


# ------------------------------------------------------------ directories


def safe_directory(root: Path, name: str, *, create: bool = True) -> Path:
    """Create, or check, the directory of a store below `root`; return its path.

    Directories have mode 0700 and files 0600. Those of the store must belong to this
    user, and none of them, nor `root`, may be a symbolic link. `root` may belong to the
    superuser; others may write to it only if it has the sticky bit, as /tmp, or is a
    mounted volume, as an `emptyDir`. Directories above `root` may be links, but only
    those two kinds may be writable by everybody. Blocks: call it in a thread.

    Args:
        root: Directory of all stores; created with its parents if it is missing.
        name: Path of the store below `root`.
        create: False to only check it.

    Raises:
        CacheError: If it cannot be created, is not safe, or is on a network file
            system, where LMDB does not work.
    """
    if not hasattr(os, "geteuid"):
        raise CacheError(
            f"cannot keep a cache in {root}: this system has no owners of files and no "
            "record locks. Omit cache_dir"
        )

    path = root = Path(os.path.abspath(root))
    parts = Path(name).parts
    if not parts or os.path.isabs(name) or ".." in parts:
        raise CacheError(f"cannot use {name!r} as the name of a cache below {root}")

    try:
        # Exists already if it is a link; then opening it fails.
        with contextlib.suppress(FileExistsError):
            if create:
                os.makedirs(root, 0o700)

        with contextlib.ExitStack() as opened:
            fd = opened.enter_context(_directory(root))
            _check_root(root, os.fstat(fd))
            _check_parents(root)
            for part in parts:
                path /= part
                with contextlib.suppress(FileExistsError):
                    if create:
                        os.mkdir(part, 0o700, dir_fd=fd)

                fd = opened.enter_context(_directory(path, part, fd))
                _make_private(path, fd, 0o700)

            _check_files(path, fd)

        _check_file_system(path, _mounts())
    except OSError as exc:
        raise _unusable(path, exc) from exc

    return path


@contextlib.contextmanager
def _directory(
    path: Path, name: str | None = None, parent: int | None = None
) -> Iterator[int]:
    """Open a directory that is not a symbolic link."""
    fd = os.open(name or path, _DIRECTORY, dir_fd=parent)
    try:
        yield fd
    finally:
        os.close(fd)


def _check_root(root: Path, status: os.stat_result) -> None:
    if status.st_uid not in {0, os.geteuid()}:
        raise _unsafe(
            root,
            f"it belongs to the user {status.st_uid}, and this process runs as "
            f"{os.geteuid()}",
        )

    shared = status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    if shared and not status.st_mode & stat.S_ISVTX and not os.path.ismount(root):
        raise _unsafe(
            root, f"other users may write to it (mode {stat.S_IMODE(status.st_mode):o})"
        )


def _check_parents(root: Path) -> None:
    """Check that nobody else can rename a directory above a root, or replace a link.

    Afterwards, files are opened by their paths. Groups are trusted: some systems give
    each user a group of its own.
    """
    # Those of the path as it is written have the links, and the others their targets.
    for parent in (*root.parents, *Path(os.path.realpath(root)).parents):
        status = os.stat(parent)
        mode, owner = status.st_mode, status.st_uid
        shared = mode & stat.S_IWOTH and not mode & stat.S_ISVTX
        if os.path.ismount(parent):
            continue

        if shared:
            raise _unsafe(
                root,
                f"everybody may replace it, as everybody may write to {parent} (mode "
                f"{stat.S_IMODE(mode):o})",
            )

        if owner not in {0, os.geteuid()}:
            raise _unsafe(
                root,
                f"the user {owner} may replace it, as {parent} belongs to that user",
            )


def _make_private(path: Path, fd: int, mode: int) -> None:
    """Check the owner of a directory or file of a store, and narrow its mode.

    A volume with an `fsGroup` makes everything in it writable for that group when it is
    mounted.
    """
    status = os.fstat(fd)
    if status.st_uid != os.geteuid():
        raise _unsafe(
            path,
            f"it belongs to the user {status.st_uid}, and this process runs as "
            f"{os.geteuid()}",
        )

    if status.st_mode & stat.S_IWOTH:
        raise _unsafe(
            path, f"everybody may write to it (mode {stat.S_IMODE(status.st_mode):o})"
        )

    if status.st_mode & 0o077:
        os.fchmod(fd, mode)


def _check_files(path: Path, directory: int) -> None:
    for name in (*_FILES, READERS):
        try:
            status = os.stat(name, dir_fd=directory, follow_symlinks=False)
        except FileNotFoundError:
            continue

        file = path / name
        if name == READERS:
            if not stat.S_ISDIR(status.st_mode):
                raise _unsafe(file, "it is not a directory")

        elif not stat.S_ISREG(status.st_mode):
            raise _unsafe(file, "it is not a regular file")

        elif status.st_nlink > 1:
            raise _unsafe(file, "it has another name (a hard link)")

        if status.st_uid != os.geteuid():
            raise _unsafe(file, f"it belongs to the user {status.st_uid}")

        if status.st_mode & stat.S_IWOTH:
            raise _unsafe(file, "everybody may write to it")

        # By its name: closing a descriptor of a lock file would free this process's
        # locks on it.
        if status.st_mode & 0o077:
            os.chmod(name, 0o700 if name == READERS else 0o600, dir_fd=directory)


def _check_file_system(path: Path, mounts: str) -> None:
    kind = _file_system(mounts, os.path.realpath(path))
    if kind.partition(".")[0] in _REMOTE:
        raise CacheError(
            f"cannot keep a cache in {path}: it is on a file system of type {kind}, "
            "which processes cannot map together. Choose a directory on a local disk, or "
            "on tmpfs, for cache_dir"
        )

    if not os.access(path, os.R_OK | os.W_OK | os.X_OK):
        read_only = os.statvfs(path).f_flag & os.ST_RDONLY
        raise OSError(errno.EROFS if read_only else errno.EACCES, "")


def _mounts() -> str:
    """Return the mounted file systems; empty if the system does not tell.

    Raises:
        OSError: If no file can be opened just now.
    """
    try:
        return os.fsdecode(Path("/proc/self/mountinfo").read_bytes())
    except OSError as exc:  # not Linux
        if lacks_descriptors(exc):
            raise

        return ""


def _file_system(mounts: str, path: str) -> str:
    """Return the type of the file system of a path; empty if it is unknown.

    Args:
        mounts: Text of /proc/self/mountinfo.
        path: Path without symbolic links.
    """
    longest, kind = -1, ""
    for line in mounts.splitlines():
        before, _, after = line.partition(" - ")
        fields = before.split()
        if len(fields) < 5 or not after:
            continue

        # Spaces and the like are written as octal numbers: \040.
        point = _OCTAL.sub(lambda found: chr(int(found[1], 8)), fields[4])
        inside = path == point or path.startswith(point.rstrip("/") + "/")
        # Of two on the same directory, the later one covers the earlier one.
        if inside and len(point) >= longest:
            longest, kind = len(point), after.split()[0]

    return kind


def _unsafe(path: Path, why: str) -> CacheError:
    return CacheError(
        f"cannot keep a cache in {path}: {why}. Choose a directory that only this user "
        "can write to for cache_dir"
    )


def _unusable(path: Path, exc: OSError) -> CacheError:
    if os.path.islink(path):
        return _unsafe(path, "it is a symbolic link")

    match exc.errno:
        case errno.ENOTDIR | errno.EEXIST:
            why = "it, or a directory above it, is not a directory"
        case errno.EACCES | errno.EPERM:
            why = f"the user {os.geteuid()} has no permission"
        case errno.EROFS:
            why = "the file system is read-only"
        case errno.ENOSPC | errno.EDQUOT:
            why = "no space is left on the disk"
        case _:
            why = exc.strerror or str(exc)

    return CacheError(
        f"cannot keep a cache in {path}: {why}. Correct that, or choose another cache_dir"
    )


def set_aside(path: Path, why: str) -> None:
    """Rename the file of a store that cannot be used, and log a warning.

    At most two such files are kept, and none that is larger than the free space of the
    disk. Only for a process that knows that no other one has the store open. Blocks:
    call it in a thread.

    Args:
        path: Directory of the store.
        why: Reason, for the log.

    Raises:
        CacheError: If the file can be neither renamed nor removed.
    """
    data = path / DATA
    aside = path / f"{DATA}.{datetime.now(tz=UTC):%Y%m%dT%H%M%S.%f}"
    try:
        size = data.stat().st_size
        os.replace(data, aside)
        (path / LOCK).unlink(missing_ok=True)
        disk = os.statvfs(path)
        kept = _KEPT if size < disk.f_bavail * disk.f_frsize else 0
        for old in sorted(path.glob(f"{DATA}.*"), reverse=True)[kept:]:
            old.unlink(missing_ok=True)
    except OSError as exc:
        raise _unusable(path, exc) from exc

    logger.warning(
        "stored objects cannot be used and are listed again "
        "(reason=%r, file=%s, size=%d, kept=%s)",
        why,
        aside if kept else data,
        size,
        bool(kept),
    )


def last_used(path: Path) -> float:
    """Return the time at which a store was last written; 0 if it is missing.

    A writer writes each second.
    """
    for it in (path / DATA, path):
        with contextlib.suppress(OSError):
            return it.stat().st_mtime

    return 0.0


def remove_directory(path: Path) -> None:
    """Remove the directory of a store, with all files.

    Only for a process that keeps all others from opening it, by `Locks`. Blocks.

    Raises:
        OSError: If a file cannot be removed, or another process has created new ones.
    """
    for it in path.iterdir():
        if it.name == STORE_LOCK:
            continue

        if it.is_dir():
            shutil.rmtree(it)
        else:
            it.unlink(missing_ok=True)

    # Last: without it, a process that waits for the lock creates new files.
    (path / STORE_LOCK).unlink()
    path.rmdir()


def check_complete(path: Path) -> None:
    """Check that a store has all files that LMDB, or a lock, would create.

    They would belong to the user of the command that looks at the store, who may be
    another one than that of the program.

    Raises:
        CacheError: If one is missing, or the store itself.
    """
    if device_and_inode(path / DATA) is None:
        raise CacheError(f"there is no cache in {path}")

    what = ""
    for name in (LOCK, STORE_LOCK):
        if device_and_inode(path / name) is None:
            what = f"{name} is missing"

    if not os.lstat(path / DATA).st_size:
        what = f"{DATA} is empty"

    if what:
        raise CacheError(
            f"cannot open the cache {path}: {what}. The next program that uses it "
            "creates it"
        )


def device_and_inode(path: Path | str) -> tuple[int, int] | None:
    """Return what identifies a file or directory; None if it is missing."""
    try:
        status = os.lstat(path)
    except OSError:
        return None

    return status.st_dev, status.st_ino
