"""Files of earlier processes and boots: some are mapped, the others set aside."""

from __future__ import annotations

import logging
import os
import random
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

import lmdb
import msgspec
import pytest
from shortages import no_descriptors

from aioinformer.cache.disk.data_file import EARLY_SECONDS, Session, boot_id, doubt
from aioinformer.cache.disk.environment import Environment
from aioinformer.cache.disk.failures import lacks_descriptors
from aioinformer.cache.disk.header import FORMAT, Header
from aioinformer.errors import CacheError

if TYPE_CHECKING:
    from pathlib import Path

PAGE = os.sysconf("SC_PAGESIZE")
STORED = Header(version="7", count=1)


@dataclass(frozen=True)
class Reopened:
    """Result of opening a store again."""

    kept: bool
    log: str


class Store:
    """Directory with a store, and ways to damage it."""

    def __init__(self, path: Path, caplog: pytest.LogCaptureFixture) -> None:
        self.path = path
        self.data = path / "data.mdb"
        self._caplog = caplog
        env = Environment.open(path)
        objects = env.database("o0")
        with env.write() as txn:
            env.set_header(STORED)
            for number in range(50):
                txn.put(b"pod-%d" % number, b"x" * 500, db=objects)
        env.close()

    def session(self, **changes: object) -> None:
        session = Session.read(self.path)
        assert session is not None
        session._replace(**changes).write(self.path)  # type: ignore[arg-type]

    def killed(self, **changes: object) -> None:
        """Make it look as after a kill."""
        self.session(state="open", **changes)

    def reopen(self) -> Reopened:
        self._caplog.clear()
        with self._caplog.at_level(logging.WARNING):
            env = Environment.open(self.path)

        assert env.header in (STORED, Header())
        kept = env.header == STORED
        # A new store is usable, and as durable as the first.
        with env.write():
            env.set_header(STORED)
        env.close()
        assert len(list(self.path.glob("data.mdb.*"))) == (not kept)
        return Reopened(kept, self._caplog.text)


@pytest.fixture
def store(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> Store:
    return Store(tmp_path, caplog)


# ------------------------------------------------------------ ends of processes


def test_store_is_kept_after_an_orderly_close(store: Store) -> None:
    assert store.reopen() == Reopened(kept=True, log="")


def test_store_is_kept_after_a_kill(store: Store) -> None:
    store.killed()

    assert store.reopen() == Reopened(kept=True, log="")


def test_store_is_kept_after_an_orderly_close_and_a_restart_of_the_machine(
    store: Store,
) -> None:
    store.session(boot="earlier")

    assert store.reopen().kept


def test_store_is_set_aside_after_a_kill_and_a_restart_of_the_machine(
    store: Store,
) -> None:
    store.killed(boot="earlier")

    reopened = store.reopen()

    assert not reopened.kept
    assert "the machine was restarted without an orderly close" in reopened.log


def test_store_without_boot_id_is_kept_only_after_an_orderly_close(
    store: Store,
) -> None:
    store.session(boot="")
    assert store.reopen().kept

    store.killed(boot="")
    assert not store.reopen().kept


def test_opening_removes_the_mark_of_an_orderly_close(tmp_path: Path) -> None:
    Environment.open(tmp_path).close()
    closed = Session.read(tmp_path)

    env = Environment.open(tmp_path)

    opened = Session.read(tmp_path)
    env.close()
    assert closed is not None
    assert opened is not None
    assert (closed.state, opened.state) == ("closed", "open")


@pytest.mark.parametrize("text", ["", "boot", "a b c d", "a b 1.0 2 3", "\x00\xff"])
def test_store_with_a_damaged_session_is_set_aside(store: Store, text: str) -> None:
    (store.path / "session").write_text(text, encoding="latin-1")

    reopened = store.reopen()

    assert not reopened.kept
    assert "no record of how it was closed" in reopened.log


def test_store_is_set_aside_after_several_early_ends(store: Store) -> None:
    """A damaged page that ends each process would do so forever."""
    kept = []
    for _ in range(7):
        env = Environment.open(store.path)
        session = Session.read(store.path)
        kept.append(env.header == STORED)
        env.close()
        # As if a signal had ended the process before.
        assert session is not None
        session.write(store.path)

    assert kept == [True] * 5 + [False] * 2


def test_young_session_in_use_has_not_ended_early(store: Store) -> None:
    store.killed(early_ends=4)
    session = Session.read(store.path)

    assert "ended within 10 s each" in doubt(store.path, session)
    assert doubt(store.path, session, in_use=True) == ""


def test_session_counts_early_ends_only(tmp_path: Path) -> None:
    session = Session.new()
    session.write(tmp_path)
    early = session.next(tmp_path)

    last = session.since + EARLY_SECONDS + 1
    os.utime(tmp_path / "session", (last, last))

    assert early.early_ends == 1
    assert early.next(tmp_path).early_ends == 0
    assert session.next(tmp_path).early_ends == 0
    assert session._replace(state="closed").next(tmp_path).early_ends == 0


# ------------------------------------------------------------ damaged files


def test_truncated_store_is_set_aside(store: Store) -> None:
    size = store.data.stat().st_size
    os.truncate(store.data, size - 4096)

    reopened = store.reopen()

    assert not reopened.kept
    assert f"it was truncated: it has {size - 4096} bytes of {size}" in reopened.log


@pytest.mark.parametrize("size", [1, 100, 4096, 8191])
def test_store_without_its_first_pages_is_set_aside(store: Store, size: int) -> None:
    os.truncate(store.data, size)

    assert not store.reopen().kept


def test_empty_file_becomes_a_new_store(store: Store) -> None:
    os.truncate(store.data, 0)
    env = Environment.open(store.path)

    assert env.header == Header()
    env.close()


@pytest.mark.parametrize("content", [b"x" * 20_000, b"SQLite format 3\x00" * 2000])
def test_other_file_is_set_aside(store: Store, content: bytes) -> None:
    store.data.write_bytes(content)

    reopened = store.reopen()

    assert not reopened.kept
    assert "it is not a file of LMDB" in reopened.log


def test_store_with_damaged_pages_is_set_aside(store: Store) -> None:
    size = store.data.stat().st_size
    with store.data.open("r+b") as file:
        file.seek(2 * PAGE)
        file.write(random.Random(1).randbytes(size - 2 * PAGE))

    reopened = store.reopen()

    assert not reopened.kept
    assert "the file is damaged" in reopened.log


def test_store_damaged_while_it_is_open_is_set_aside_by_the_next_process(
    store: Store,
) -> None:
    env = Environment.open(store.path)
    size = store.data.stat().st_size
    with store.data.open("r+b") as file:
        file.seek(2 * PAGE)
        file.write(random.Random(2).randbytes(size - 2 * PAGE))

    with pytest.raises(CacheError), env.read() as txn:
        txn.get(b"pod-1", db=env.database("o0"))
    env.close()

    assert "found damaged data" in store.reopen().log


def test_store_with_a_damaged_second_page_is_set_aside(store: Store) -> None:
    with store.data.open("r+b") as file:
        file.seek(4096)
        file.write(b"\xff" * 4096)

    assert not store.reopen().kept


def test_store_of_an_unknown_version_of_lmdb_is_set_aside(store: Store) -> None:
    with store.data.open("r+b") as file:
        for page in (0, 4096):
            file.seek(page + 20)
            file.write((77).to_bytes(4, sys.byteorder))

    reopened = store.reopen()

    assert not reopened.kept
    assert "LMDB does not know its layout, 77" in reopened.log


def test_environment_of_another_program_is_set_aside(store: Store) -> None:
    store.data.unlink()
    with (
        lmdb.open(str(store.path), max_dbs=2) as env,
        env.begin(write=True) as txn,
    ):
        txn.put(b"key", b"value")

    reopened = store.reopen()

    assert not reopened.kept
    assert "it is not a store of aioinformer" in reopened.log


class OtherHeader(msgspec.Struct):
    """Header of another version: no field but `format` is known."""

    format: int
    generation: list[str]


@pytest.mark.parametrize(
    ("header", "why"),
    [
        (b"", "its header is damaged"),
        (b"\xc1\xc1", "its header is damaged"),
        (msgspec.msgpack.encode(OtherHeader(FORMAT, [])), "its header is damaged"),
        (msgspec.msgpack.encode(OtherHeader(FORMAT + 1, [])), "it has format 2, and"),
    ],
)
def test_store_with_another_header_is_set_aside(
    store: Store, header: bytes, why: str
) -> None:
    with lmdb.open(str(store.path), max_dbs=8) as env:
        meta = env.open_db(b"meta")
        with env.begin(write=True) as txn:
            txn.put(b"header", header, db=meta)

    reopened = store.reopen()

    assert not reopened.kept
    assert why in reopened.log


def test_store_in_which_damage_was_found_is_set_aside_at_the_next_opening(
    store: Store,
) -> None:
    env = Environment.open(store.path)
    env.damaged("record", "test")
    env.close()

    reopened = store.reopen()

    assert not reopened.kept
    assert "a process found damaged data in it" in reopened.log


def test_opening_without_create_sets_nothing_aside(store: Store) -> None:
    store.data.write_bytes(b"x" * 20_000)

    with pytest.raises(CacheError, match="it is not a file of LMDB"):
        Environment.open(store.path, create=False)

    assert store.data.stat().st_size == 20_000
    assert not store.reopen().kept


def test_opening_without_create_makes_no_file(tmp_path: Path) -> None:
    with pytest.raises(CacheError, match="there is no cache in"):
        Environment.open(tmp_path, create=False)

    assert not any(tmp_path.iterdir())


def test_closing_without_create_leaves_the_session_alone(store: Store) -> None:
    store.killed()
    Environment.open(store.path, create=False).close()

    session = Session.read(store.path)
    assert session is not None
    assert session.state == "open"


def test_file_of_lmdb_1_is_left_to_lmdb(tmp_path: Path) -> None:
    with lmdb.open(str(tmp_path), lib_version=1) as env:
        env.sync(True)
    session = Session.new()
    session.write(tmp_path)

    assert doubt(tmp_path, session) == ""


def test_store_is_kept_while_its_session_cannot_be_read(tmp_path: Path) -> None:
    """What cannot be read because of a full table of files is neither old nor damaged."""
    Environment.open(tmp_path).close()
    with no_descriptors():
        for read in (lambda: Session.read(tmp_path), boot_id):
            with pytest.raises(OSError, match="Too many open files"):
                read()

        with pytest.raises(CacheError, match="Too many open files") as caught:
            Environment.open(tmp_path)

    assert lacks_descriptors(caught.value)
    Environment.open(tmp_path).close()
    assert not list(tmp_path.glob("data.mdb.*"))
