"""Directories of stores on disk: safe ones only, one for each informer."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import shutil
import stat
import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

from aioinformer._user_code import guarded_logger
from aioinformer.errors import CacheError

with contextlib.suppress(ImportError):  # on Windows, there are no caches
    import fcntl

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = [
    "OpenLock",
    "WriterLock",
    "create_file",
    "last_used",
    "remove_directory",
    "safe_directory",
    "set_aside",
]

logger: Final = guarded_logger(__name__)

DATA = "data.mdb"
LOCK = "lock.mdb"
WRITER_LOCK = "writer.lock"
OPEN_LOCK = "open.lock"
SESSION = "session"
READERS = "readers"

_FILES = (DATA, LOCK, WRITER_LOCK, OPEN_LOCK, SESSION)

# Files that are kept after `set_aside`, for an examination.
_KEPT = 2

_WITHOUT_LINKS = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
_DIRECTORY = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | _WITHOUT_LINKS

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
        mode = os.stat(parent).st_mode
        shared = mode & stat.S_IWOTH and not mode & stat.S_ISVTX
        if shared and not os.path.ismount(parent):
            raise _unsafe(
                root,
                f"everybody may replace it, as everybody may write to {parent} (mode "
                f"{stat.S_IMODE(mode):o})",
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
    """Return the mounted file systems; empty if the system does not tell."""
    try:
        return os.fsdecode(Path("/proc/self/mountinfo").read_bytes())
    except OSError:  # not Linux
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

    Only for a process that keeps all others from opening it, by the `OpenLock`. Blocks.

    Raises:
        OSError: If a file cannot be removed, or another process has created new ones.
    """
    for it in path.iterdir():
        if it.name == OPEN_LOCK:
            continue

        if it.is_dir():
            shutil.rmtree(it)
        else:
            it.unlink(missing_ok=True)

    # Last: without it, a process that waits for the lock creates new files.
    (path / OPEN_LOCK).unlink()
    path.rmdir()


# ------------------------------------------------------------ locks


def create_file(path: Path) -> None:
    """Create an empty file for locks, unless there is one."""
    if not path.exists():
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | _WITHOUT_LINKS, 0o600))


class _RecordLocks:
    """Record locks on a file of a store.

    The kernel frees them when the process ends, at once and in any way. A child of a
    fork does not inherit them, unlike those of `flock()`. They are also freed when the
    process closes any descriptor of the file, so there may be only one.
    """

    def __init__(self, path: Path, *, create: bool = True) -> None:
        self._path = path
        self._create = create
        self._fd = -1
        self._pid = 0

    def open(self) -> None:
        self.close()
        create = os.O_CREAT if self._create else 0
        try:
            self._fd = os.open(self._path, os.O_RDWR | create | _WITHOUT_LINKS, 0o600)
        except OSError as exc:
            raise self._failed(exc) from exc

        self._pid = os.getpid()

    def lock(self, kind: int, start: int = 0) -> bool:
        """Lock one byte, without waiting; return False if another process has it."""
        try:
            fcntl.lockf(self._fd, kind | fcntl.LOCK_NB, 1, start)
        except OSError as exc:
            if exc.errno in {errno.EAGAIN, errno.EACCES}:
                return False

            raise self._failed(exc) from exc

        return True

    def unlock(self, start: int = 0) -> None:
        with contextlib.suppress(OSError):
            fcntl.lockf(self._fd, fcntl.LOCK_UN, 1, start)

    @property
    def is_current(self) -> bool:
        """True if the path still is the file that was opened, by this process."""
        if self._fd < 0 or self._pid != os.getpid():
            return False

        try:
            opened, found = os.fstat(self._fd), os.lstat(self._path)
        except OSError:
            return False

        return (opened.st_dev, opened.st_ino) == (found.st_dev, found.st_ino)

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _failed(self, exc: OSError) -> CacheError:
        if isinstance(exc, FileNotFoundError):
            why = "its directory was removed. Restart the process to use a cache again"
        else:
            why = f"{exc.strerror or exc}. The directory must be on a local, writable disk"

        return CacheError(f"cannot lock {self._path}: {why}")


class OpenLock:
    """Lock of a process that opens or closes a store, and count of its users.

    Files are examined and set aside by one process at a time, and only while no other
    process has the store open.

    Args:
        path: Directory of the store.
        create: False to use an existing file only.

    Raises:
        CacheError: If the file cannot be opened.
    """

    _OPENING, _USING = 0, 1

    def __init__(self, path: Path, *, create: bool = True) -> None:
        self._path = path
        self._locks = _RecordLocks(path / OPEN_LOCK, create=create)
        self._locks.open()

    def enter(self, seconds: float) -> bool:
        """Wait until no other process opens or closes the store.

        Returns:
            False after a time, or if the file was removed or replaced.

        Raises:
            CacheError: If the file cannot be locked at all.
        """
        pause = threading.Event()
        for _ in range(int(seconds * 100)):
            if not self._locks.is_current:
                self._locks.open()

            # Another process may have removed the file in between.
            if (
                self._locks.lock(fcntl.LOCK_EX, self._OPENING)
                and self._locks.is_current
            ):
                return True

            pause.wait(0.01)

        return False

    def leave(self) -> None:
        """Let other processes open or close the store."""
        self._locks.unlock(self._OPENING)

    def is_alone(self) -> bool:
        """Return True if no other process has the store open, and keep it so."""
        return self._locks.lock(fcntl.LOCK_EX, self._USING)

    def share(self) -> None:
        """Count this process as a user, until `close()` or its end."""
        self._locks.lock(fcntl.LOCK_SH, self._USING)

    def close(self) -> None:
        """Free all locks."""
        self._locks.close()


class WriterLock:
    """Lock of the one process that writes a store, freed by the kernel when it dies.

    A record lock (`lockf`) on `writer.lock`, and a flag within this process.

    Args:
        path: Directory of the store.
    """

    # Who has the lock of a directory in this process. The kernel knows processes only.
    _owners: dict[Path, WriterLock] = {}  # noqa: RUF012 - shared on purpose
    _guard = threading.RLock()

    def __init__(self, path: Path) -> None:
        self._path = path
        self._locks = _RecordLocks(path / WRITER_LOCK)

    @property
    def held(self) -> bool:
        """True from a successful `acquire()` until `release()`.

        Also False in a child of a fork, and once the file was removed or replaced:
        another process can lock the new one then.
        """
        return self._owners.get(self._path) is self and self._locks.is_current

    def acquire(self) -> bool:
        """Try to lock, without waiting; return True if this object has the lock.

        Raises:
            CacheError: If the file cannot be opened or locked at all.
        """
        with self._guard:
            owner = self._owners.get(self._path)
            if owner is not None:
                if owner.held:
                    return owner is self

                # Its file was removed, or this is the child of a fork.
                owner.release()

            self._locks.open()
            # Another process may have removed the file in between.
            if self._locks.lock(fcntl.LOCK_EX) and self._locks.is_current:
                self._owners[self._path] = self
                return True

            self._locks.close()
            return False

    def check(self) -> None:
        """Check that it is held; every second.

        Raises:
            CacheError: If its file was removed or replaced. Another process may write.
        """
        if not self.held:
            raise CacheError(
                f"cannot write the cache {self._path}: {WRITER_LOCK} was removed or "
                "replaced, so another process may write it now. Restart the process to "
                "use a cache again"
            )

    def release(self) -> None:
        """Free the lock. Idempotent."""
        with self._guard:
            if self._owners.get(self._path) is self:
                del self._owners[self._path]
                self._locks.close()
