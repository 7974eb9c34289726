"""`CachePlace`: stores that begin with the objects of an unused one."""

from __future__ import annotations

import os
import shutil
from contextlib import ExitStack, closing
from typing import TYPE_CHECKING, Any

import pytest
from msgspec.structs import replace
from store_processes import StoreProcess

from aioinformer.cache.disk.data_file import Session
from aioinformer.cache.disk.environment import Environment
from aioinformer.cache.disk.header import FORMAT, Header
from aioinformer.informer.cached.place import CachePlace

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.realtime

OLD = Header(transform="old")
NEW = Header(transform="new")


@pytest.fixture
def place(tmp_path: Path) -> CachePlace:
    return CachePlace(tmp_path, "pods-0123456789ab", "pods")


def opened(place: CachePlace, claims: Header) -> Environment:
    return place.open(place.path(claims))


def store(place: CachePlace, claims: Header, version: str) -> Path:
    """Create a store with a version, and close it; return its directory."""
    with closing(opened(place, claims)) as env, env.write():
        env.set_header(replace(env.header, version=version))

    return place.path(claims)


def version_of(place: CachePlace, claims: Header) -> str:
    with closing(opened(place, claims)) as env:
        return env.header.version


def test_path_tells_selection_and_format_and_differs_by_identity(
    place: CachePlace,
) -> None:
    claims = [Header(), OLD, NEW, Header(endpoint="old"), Header(endpoint="new")]
    paths = {place.path(it) for it in claims}

    assert len(paths) == 5
    assert {it.parent for it in paths} == {place.root}
    start = f"{place.directory}-{FORMAT}-"
    assert all(it.name.startswith(start) for it in paths)


def test_new_store_has_the_objects_of_an_unused_one(place: CachePlace) -> None:
    old = store(place, OLD, "5")

    with closing(opened(place, NEW)) as env:
        assert env.header.version == "5"
        session = Session.read(env.path)
        assert session is not None
        assert session.state == "open"  # not trusted after a power loss
        assert not old.exists()

    assert version_of(place, NEW) == "5"
    assert version_of(place, OLD) == "5"


def test_new_store_has_the_objects_of_the_last_used_one(place: CachePlace) -> None:
    for number in (1, 2, 3):
        path = store(place, Header(transform=str(number)), str(number))
        age = {1: 20, 2: 0, 3: 10}[number]
        time = os.stat(path / "data.mdb").st_mtime - age
        os.utime(path / "data.mdb", (time, time))
        path.rename(place.root / f"aside-{number}")  # else the next one adopts it

    for number in (1, 2, 3):
        path = place.path(Header(transform=str(number)))
        (place.root / f"aside-{number}").rename(path)

    assert version_of(place, NEW) == "2"
    assert version_of(place, Header(transform="3")) == "3"


def test_store_with_objects_adopts_nothing(place: CachePlace) -> None:
    with closing(opened(place, OLD)) as env:
        store(place, NEW, "1")
        with env.write():
            env.set_header(replace(env.header, version="5"))

    assert version_of(place, NEW) == "1"
    assert version_of(place, OLD) == "5"


def test_store_that_this_process_has_open_is_neither_adopted_nor_removed(
    place: CachePlace,
) -> None:
    store(place, OLD, "5")
    with closing(opened(place, OLD)) as env:
        Environment.remove(env.path)
        assert version_of(place, NEW) == ""
        assert env.header.version == "5"
        with StoreProcess(env.path) as other:  # the locks are still there
            assert not other("Locks(path).is_alone()")

    shutil.rmtree(place.path(NEW))
    assert version_of(place, NEW) == "5"


def test_store_that_another_process_has_open_is_neither_adopted_nor_removed(
    place: CachePlace,
) -> None:
    old = store(place, OLD, "5")
    with StoreProcess(old) as other:
        other("start()")
        Environment.remove(old)
        assert version_of(place, NEW) == ""
        assert other("env.header.version") == "5"

    Environment.remove(old)
    assert not old.exists()


def remove_session(path: Path) -> None:
    (path / "session").unlink()


def restart_machine(path: Path) -> None:
    Session("another boot").write(path)


def damage(path: Path) -> None:
    (path / "data.mdb").write_bytes(b"damage" * 10_000)


def open_to_all(path: Path) -> None:
    path.chmod(0o777)


def link(path: Path) -> None:
    path.rename(path.parent / "elsewhere")
    path.symlink_to(path.parent / "elsewhere")


@pytest.mark.parametrize(
    "spoil", [remove_session, restart_machine, damage, open_to_all, link]
)
def test_store_that_cannot_be_trusted_is_not_adopted(
    place: CachePlace, spoil: Callable[[Path], None]
) -> None:
    spoil(store(place, OLD, "5"))

    assert version_of(place, NEW) == ""


def test_store_that_is_adopted_while_it_is_opened_is_created_again(
    place: CachePlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    mkdir = os.mkdir

    def made_and_removed(path: str, *options: Any, **more: Any) -> None:
        mkdir(path, *options, **more)
        monkeypatch.undo()
        os.rmdir(path, dir_fd=more["dir_fd"])  # as by another process

    monkeypatch.setattr(os, "mkdir", made_and_removed)
    assert version_of(place, OLD) == ""


def test_processes_that_start_at_once_share_the_adopted_objects(
    place: CachePlace,
) -> None:
    """Some want the old store, and some a new one: one of the two has the objects."""
    opens = "globals().update(env=place.open(place.path(Header(transform={!r}))))"
    prepare = (
        "exec('from aioinformer.informer.cached.place import CachePlace\\n"
        'place = CachePlace(path, "pods-0123456789ab", "pods")\', globals())'
    )
    with ExitStack() as stack:
        processes = [stack.enter_context(StoreProcess(place.root)) for _ in range(4)]
        for process in processes:
            process(prepare)

        for _ in range(20):
            shutil.rmtree(place.root)
            store(place, OLD, "5")
            wanted = ["old", "new", "old", "new"]
            for process, transform in zip(processes, wanted, strict=True):
                process.send(opens.format(transform))

            assert [it.result() for it in processes] == [None] * 4
            found = [it("env.header.version") for it in processes]
            assert sorted(found) == ["", "", "5", "5"]
            assert (found[0], found[1]) == (found[2], found[3])
            for process in processes:
                process("env.close()")
