"""`safe_directory` and `set_aside`: only this user may read and write a store."""

from __future__ import annotations

import errno
import logging
import os
import socket
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from aioinformer.cache.disk.directory import (
    _check_file_system,
    _file_system,
    _unusable,
    safe_directory,
    set_aside,
)
from aioinformer.errors import CacheError


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_safe_directory_creates_private_directories(tmp_path: Path) -> None:
    root = tmp_path / "var" / "cache"

    path = safe_directory(root, "v1/pods")

    assert path == root / "v1" / "pods"
    assert [mode(it) for it in (root, path.parent, path)] == [0o700] * 3


def test_safe_directory_accepts_its_own_directory_again(tmp_path: Path) -> None:
    first = safe_directory(tmp_path, "pods")
    (first / "data.mdb").touch(0o600)

    assert safe_directory(tmp_path, "pods") == first


def test_safe_directory_ignores_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        path = safe_directory(tmp_path / "cache", "pods")
    finally:
        os.umask(before)

    assert mode(path) == 0o700


def test_safe_directory_uses_the_current_directory_for_a_relative_root(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    assert safe_directory(Path("cache"), "pods") == tmp_path / "cache" / "pods"


def test_safe_directory_accepts_a_long_path(tmp_path: Path) -> None:
    root = tmp_path.joinpath(*["d" * 200] * 5)

    assert safe_directory(root, "p" * 200).is_dir()


@pytest.mark.parametrize("name", ["", "/etc", "../pods", "v1/../../pods"])
def test_safe_directory_refuses_names_outside_of_the_root(
    tmp_path: Path, name: str
) -> None:
    with pytest.raises(CacheError, match="as the name of a cache"):
        safe_directory(tmp_path, name)


# ------------------------------------------------------------ links and other files


@pytest.mark.parametrize("link", ["cache", "cache/v1", "cache/v1/pods"])
@pytest.mark.parametrize("dangling", [False, True])
def test_safe_directory_refuses_symbolic_links(
    tmp_path: Path, link: str, dangling: bool
) -> None:
    elsewhere = tmp_path / "elsewhere"
    if not dangling:
        elsewhere.mkdir()
    (tmp_path / link).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / link).symlink_to(elsewhere)

    with pytest.raises(CacheError, match="it is a symbolic link") as caught:
        safe_directory(tmp_path / "cache", "v1/pods")

    assert str(tmp_path / link) in str(caught.value)
    assert not elsewhere.exists() or not any(elsewhere.iterdir())


@pytest.mark.parametrize("link", [True, False])
def test_safe_directory_refuses_a_link_or_file_in_place_of_readers(
    tmp_path: Path, link: bool
) -> None:
    place = safe_directory(tmp_path, "pods") / "readers"
    if link:
        (tmp_path / "elsewhere").mkdir()
        place.symlink_to(tmp_path / "elsewhere")
    else:
        place.touch()

    with pytest.raises(CacheError, match="readers: it is not a directory"):
        safe_directory(tmp_path, "pods")


@pytest.mark.parametrize("link", [True, False])
def test_safe_directory_refuses_a_parent_that_everybody_may_write_to(
    tmp_path: Path, link: bool
) -> None:
    parent = tmp_path / "open"
    parent.mkdir()
    root = parent / "cache"
    if link:
        (tmp_path / "real").mkdir()
        (parent / "link").symlink_to(tmp_path / "real")
        root = parent / "link" / "cache"

    parent.chmod(0o777)
    with pytest.raises(CacheError, match=f"everybody may write to {parent} .mode 777."):
        safe_directory(root, "pods")

    parent.chmod(0o1777)
    assert safe_directory(root, "pods").is_dir()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give files away")
def test_safe_directory_refuses_a_parent_of_another_user(tmp_path: Path) -> None:
    parent = tmp_path / "theirs"
    parent.mkdir()
    os.chown(parent, 12345, -1)
    with pytest.raises(CacheError, match=f"the user 12345 may replace it, as {parent}"):
        safe_directory(parent / "cache", "pods")


def test_safe_directory_follows_links_above_the_root(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")

    assert safe_directory(tmp_path / "link" / "cache", "pods").is_dir()


@pytest.mark.parametrize("place", ["cache", "cache/pods"])
def test_safe_directory_refuses_a_file_in_its_place(tmp_path: Path, place: str) -> None:
    (tmp_path / place).parent.mkdir(exist_ok=True)
    (tmp_path / place).touch()

    with pytest.raises(CacheError, match="is not a directory"):
        safe_directory(tmp_path / "cache", "pods")


@pytest.mark.parametrize("name", ["data.mdb", "lock.mdb", "store.lock", "session"])
def test_safe_directory_refuses_links_as_files(tmp_path: Path, name: str) -> None:
    path = safe_directory(tmp_path, "pods")
    (tmp_path / "victim").write_text("precious", encoding="ascii")
    (path / name).symlink_to(tmp_path / "victim")

    with pytest.raises(CacheError, match=f"{name}: it is not a regular file"):
        safe_directory(tmp_path, "pods")


def test_safe_directory_refuses_a_file_with_another_name(tmp_path: Path) -> None:
    path = safe_directory(tmp_path, "pods")
    (tmp_path / "victim").touch()
    (path / "data.mdb").hardlink_to(tmp_path / "victim")

    with pytest.raises(CacheError, match="hard link"):
        safe_directory(tmp_path, "pods")


def test_safe_directory_refuses_a_socket_as_file(tmp_path: Path) -> None:
    path = safe_directory(tmp_path, "pods")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path / "data.mdb"))

        with pytest.raises(CacheError, match="it is not a regular file"):
            safe_directory(tmp_path, "pods")


# ------------------------------------------------------------ owners and modes


def test_safe_directory_narrows_modes_that_are_too_wide(tmp_path: Path) -> None:
    """A mount of a volume with an fsGroup makes them so."""
    path = safe_directory(tmp_path, "pods")
    (path / "data.mdb").touch()
    (path / "data.mdb").chmod(0o660)
    path.chmod(0o2770)

    safe_directory(tmp_path, "pods")

    assert mode(path) & 0o777 == 0o700
    assert mode(path / "data.mdb") == 0o600


def test_safe_directory_refuses_what_everybody_may_write_to(tmp_path: Path) -> None:
    path = safe_directory(tmp_path, "pods")
    path.chmod(0o777)

    with pytest.raises(CacheError, match="everybody may write to it"):
        safe_directory(tmp_path, "pods")

    path.chmod(0o700)
    (path / "data.mdb").touch()
    (path / "data.mdb").chmod(0o666)

    with pytest.raises(CacheError, match=r"data\.mdb: everybody may write to it"):
        safe_directory(tmp_path, "pods")


@pytest.mark.parametrize("wide", [0o777, 0o775, 0o2770])
def test_safe_directory_refuses_a_root_for_several_users(
    tmp_path: Path, wide: int
) -> None:
    root = tmp_path / "cache"
    root.mkdir()
    root.chmod(wide)

    with pytest.raises(CacheError, match=f"other users may write to it .mode {wide:o}"):
        safe_directory(root, "pods")


def test_safe_directory_accepts_a_root_with_the_sticky_bit(tmp_path: Path) -> None:
    root = tmp_path / "cache"
    root.mkdir()
    root.chmod(0o1777)

    path = safe_directory(root, "pods")

    assert mode(path) == 0o700
    assert mode(root) == 0o1777


def test_safe_directory_refuses_the_directory_of_another_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    safe_directory(tmp_path, "pods")
    owner = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)

    with pytest.raises(CacheError, match=f"it belongs to the user {owner}") as caught:
        safe_directory(tmp_path, "pods")

    assert f"this process runs as {owner + 1}" in str(caught.value)


_AS_NOBODY = """
import os, sys
from pathlib import Path
from aioinformer.cache.disk.directory import safe_directory
from aioinformer.errors import CacheError

if os.geteuid() == 0:
    os.setuid(65534)

try:
    safe_directory(Path(sys.argv[1]), "pods")
except CacheError as exc:
    print(exc)
"""


@pytest.mark.realtime
def test_safe_directory_names_a_missing_permission(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir()
    closed.chmod(0o500)

    done = subprocess.run(
        [sys.executable, "-c", _AS_NOBODY, closed / "cache"],
        check=True,
        capture_output=True,
        text=True,
    )

    assert "has no permission. Correct that, or choose another cache_dir" in done.stdout


# ------------------------------------------------------------ file systems

_MOUNTS = r"""
22 27 0:21 / /proc rw,relatime - proc proc rw
27 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
30 25 0:27 / /dev/shm rw,relatime - tmpfs tmpfs rw,size=65536k
51 27 0:44 / /mnt/nfs rw,relatime shared:9 - nfs4 server:/export rw,vers=4.2
52 51 8:1 / /mnt/nfs/local rw,relatime - xfs /dev/sda1 rw
53 27 0:45 / /mnt/with\040space rw - cifs //server/share rw
57 27 0:49 / /mnt/größe\134x rw - nfs server:/export rw
54 27 0:46 / /users/ada/remote rw,nosuid - fuse.sshfs ada@server: rw
55 27 0:47 / /mnt/over rw - ext4 /dev/sdb rw
56 55 0:48 / /mnt/over rw - 9p hostshare rw
broken line
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/var/cache/app", "ext4"),
        ("/dev/shm/app", "tmpfs"),
        ("/dev/shm2/app", "ext4"),
        ("/mnt/nfs", "nfs4"),
        ("/mnt/nfs/cache", "nfs4"),
        ("/mnt/nfs/local/cache", "xfs"),
        ("/mnt/with space/cache", "cifs"),
        ("/mnt/größe\\x/cache", "nfs"),
        ("/users/ada/remote/x", "fuse.sshfs"),
        ("/mnt/over/cache", "9p"),
    ],
)
def test_file_system_is_that_of_the_innermost_mount(path: str, kind: str) -> None:
    assert _file_system(_MOUNTS, path) == kind


def test_file_system_is_unknown_without_mounts() -> None:
    assert _file_system("", "/var/cache") == ""


@pytest.mark.parametrize(
    "kind", ["nfs", "nfs4", "cifs", "9p", "virtiofs", "fuse", "fuse.sshfs"]
)
def test_network_file_systems_are_refused(tmp_path: Path, kind: str) -> None:
    mounts = f"27 1 254:0 / / rw,relatime - {kind} server:/export rw"

    with pytest.raises(CacheError, match=f"on a file system of type {kind}, which"):
        _check_file_system(tmp_path, mounts)


@pytest.mark.parametrize("kind", ["ext4", "xfs", "btrfs", "tmpfs", "overlay", "zfs"])
def test_local_file_systems_are_accepted(tmp_path: Path, kind: str) -> None:
    _check_file_system(tmp_path, f"27 1 254:0 / / rw,relatime - {kind} /dev/vda rw")


@pytest.mark.parametrize(
    ("number", "why"),
    [
        (errno.EROFS, "the file system is read-only"),
        (errno.ENOSPC, "no space is left on the disk"),
        (errno.EDQUOT, "no space is left on the disk"),
        (errno.EMFILE, "Too many open files"),
    ],
)
def test_errors_of_the_system_are_explained(
    tmp_path: Path, number: int, why: str
) -> None:
    error = _unusable(tmp_path, OSError(number, os.strerror(number)))

    assert str(error) == (
        f"cannot keep a cache in {tmp_path}: {why}. Correct that, or choose another "
        "cache_dir"
    )


_WITHOUT_POSIX = """
import os, sys

for name in ("fcntl", "resource", "lmdb"):
    sys.modules[name] = None
for name in ("geteuid", "O_NOFOLLOW", "O_DIRECTORY", "O_CLOEXEC"):
    delattr(os, name)

from pathlib import Path
from aioinformer import SharedInformerFactory
from aioinformer.cache.disk.directory import safe_directory
from aioinformer.errors import CacheError

try:
    safe_directory(Path(sys.argv[1]), "pods")
except CacheError as exc:
    print(exc)
"""


@pytest.mark.realtime
def test_package_is_usable_without_caches_on_other_systems(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _WITHOUT_POSIX, tmp_path],
        check=True,
        capture_output=True,
        text=True,
    )

    assert "this system has no owners of files and no record locks" in done.stdout


# ------------------------------------------------------------ set aside


def test_set_aside_renames_the_file_and_warns(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "data.mdb").write_bytes(b"damaged")
    (tmp_path / "lock.mdb").touch()

    with caplog.at_level(logging.WARNING):
        set_aside(tmp_path, "its header is damaged")

    (kept,) = tmp_path.iterdir()
    assert kept.name.startswith("data.mdb.2")
    assert kept.read_bytes() == b"damaged"
    assert "its header is damaged" in caplog.text
    assert str(kept) in caplog.text


def test_set_aside_keeps_the_two_newest_files(tmp_path: Path) -> None:
    for number in range(4):
        (tmp_path / "data.mdb").write_bytes(b"%d" % number)
        set_aside(tmp_path, "test")

    kept = sorted(tmp_path.iterdir())
    assert [it.read_bytes() for it in kept] == [b"2", b"3"]


def test_set_aside_keeps_nothing_that_the_disk_has_no_space_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = os.statvfs(tmp_path)
    full = os.statvfs_result((*disk[:4], 0, *disk[5:]))
    monkeypatch.setattr(os, "statvfs", lambda _: full)
    (tmp_path / "data.mdb").write_bytes(b"damaged")

    set_aside(tmp_path, "test")

    assert not any(tmp_path.iterdir())


def test_set_aside_without_file_raises(tmp_path: Path) -> None:
    with pytest.raises(CacheError, match="No such file"):
        set_aside(tmp_path, "test")
