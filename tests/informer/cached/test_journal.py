"""`Journal`: entries, bounds, and what readers lose."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import suppress
from subprocess import PIPE
from typing import TYPE_CHECKING

import pytest
from fake_source import thing

from aioinformer.cache.disk.environment import Environment
from aioinformer.cache.disk.readers import Readers
from aioinformer.cache.disk.records import Records
from aioinformer.errors import CacheError
from aioinformer.informer import Added, Deleted, Updated
from aioinformer.informer.cached.journal import Behind, EntryKind, Journal

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from aioinformer.model import KubeObject

A1, A2, A3 = (thing("a", version) for version in (1, 2, 3))
B4, B5 = (thing("b", version) for version in (4, 5))


@pytest.fixture
def env(tmp_path: Path) -> Iterator[Environment]:
    path = tmp_path / "store"
    path.mkdir(mode=0o700)
    env = Environment.open(path)
    yield env
    env.close()


class Written:
    """A journal with one entry for each write transaction."""

    def __init__(
        self, env: Environment, *, entries: int = 2, size: int = 2**20
    ) -> None:
        self.env = env
        self.records = Records(env)
        self.journal = Journal(env, self.records, entries=entries, size=size)
        with env.write():
            self.journal.recover()

    def append(self, *events: Added | Updated | Deleted) -> None:
        for event in events:
            with self.env.write():
                self.journal.append([event])

    def trim(self, times: int = 2, **positions: int) -> None:
        at = {name.replace("_", "-"): it for name, it in positions.items()}
        for _ in range(times):
            with self.env.write():
                self.journal.trim(lambda: at)

    def read(self, after: int = 0, limit: int = 500) -> list[str] | None:
        with self.env.read():
            entries = self.journal.read(after, limit)
            if entries is None:
                return None

            return [
                f"{it.number} {it.kind.name} {it.key}: {self.text(it.key, it.old)} -> "
                f"{self.text(it.key, it.new)}"
                for it in entries
            ]

    def behind(self, reader: str, after: int) -> Behind | None:
        with self.env.read():
            return self.journal.behind(reader, after)

    def known(self, reader: str, after: int) -> dict[str, str]:
        behind = self.behind(reader, after)
        assert behind is not None
        with self.env.read():
            return {key: self.text(key, it) for key, it in behind.known.items()}

    def text(self, key: str, record: bytes) -> str:
        return self.records.decode(key, record).resource_version if record else "none"


# ---------------------------------------------------------------- entries


def test_entries_have_old_and_new_state_in_order(env: Environment) -> None:
    written = Written(env)
    with env.write():
        written.journal.append([Added(A1), Updated(A1, A2)])
        written.journal.append([Deleted(A2), Added(B4), Deleted(B4, True)])
        written.journal.append([])

    assert written.read() == [
        "1 ADDED default/a: none -> 1",
        "2 UPDATED default/a: 1 -> 2",
        "3 DELETED default/a: 2 -> none",
        "4 ADDED default/b: none -> 4",
        "5 MISSED_DELETION default/b: 4 -> none",
    ]
    assert written.read(3, 1) == ["4 ADDED default/b: none -> 4"]
    assert (written.read(5), written.read(9)) == ([], [])
    assert (env.header.first, env.header.last) == (1, 5)


def test_list_into_an_empty_store_is_one_entry(env: Environment) -> None:
    written = Written(env)
    with env.write():
        written.journal.append_listed(first=True)
        written.journal.append_listed(first=False)

    with env.read():
        kinds = [it.kind for it in written.journal.read(0) or []]

    assert kinds == [EntryKind.FIRST_LISTED, EntryKind.LISTED]


def test_staged_changes_are_read_after_the_next_append(env: Environment) -> None:
    written = Written(env)
    for event in (Added(A1), Added(B4)):
        with env.write():
            written.journal.stage([event])

    before = written.read()
    with env.write():
        written.journal.append([Updated(A1, A2)])

    assert before == []
    assert written.read() == [
        "1 ADDED default/a: none -> 1",
        "2 ADDED default/b: none -> 4",
        "3 UPDATED default/a: 1 -> 2",
    ]


def test_aborted_and_staged_changes_leave_no_trace(env: Environment) -> None:
    written = Written(env)
    written.append(Added(A1))
    with suppress(RuntimeError), env.write():
        written.journal.append([Updated(A1, A2)])
        raise RuntimeError("the writer fails")

    with env.write():
        written.journal.stage([Updated(A1, A2), Added(B4)])

    again = Written(env)
    again.append(Updated(A1, A3))

    assert again.read() == [
        "1 ADDED default/a: none -> 1",
        "2 UPDATED default/a: 1 -> 3",
    ]


def test_missing_entry_is_an_error(env: Environment) -> None:
    written = Written(env)
    written.append(Added(A1), Updated(A1, A2), Updated(A2, A3))
    with env.write() as txn:
        txn.delete((2).to_bytes(8, "big"), db=env.database("journal"))

    with pytest.raises(CacheError, match="entry 2 of 1 to 3 is missing"):
        written.read()

    with pytest.raises(CacheError, match="journal is damaged"):
        env.check()


def test_damaged_entry_is_an_error(env: Environment) -> None:
    written = Written(env)
    written.append(Added(A1))
    with env.write() as txn:
        txn.put((1).to_bytes(8, "big"), b"\xffdamaged", db=env.database("journal"))

    with pytest.raises(CacheError, match="journal is damaged: entry 1: "):
        written.read()

    with pytest.raises(CacheError, match="journal is damaged"):
        env.check()


# ---------------------------------------------------------------- bounds


def test_trim_keeps_the_newest_entries(env: Environment) -> None:
    written = Written(env, entries=2)
    written.append(Added(A1), Updated(A1, A2), Updated(A2, A3), Added(B4))
    written.trim()

    assert written.read(1) is None
    assert written.read(2) == [
        "3 UPDATED default/a: 2 -> 3",
        "4 ADDED default/b: none -> 4",
    ]
    assert (env.header.first, env.header.last) == (3, 4)
    written.trim()
    assert (env.header.first, env.header.last) == (3, 4)


def test_trim_bounds_the_bytes(env: Environment) -> None:
    written = Written(env, entries=1000, size=200_000)
    large = [thing("a", version, blob="x" * 10_000) for version in range(1, 101)]
    written.append(*map(Added, large))
    written.trim(8)

    with env.read() as txn:
        stat = txn.stat(env.database("journal"))

    pages = stat["leaf_pages"] + stat["overflow_pages"] + stat["branch_pages"]
    assert 150_000 < pages * stat["psize"] <= 200_000
    assert 12 <= stat["entries"] == env.header.last - env.header.first + 1 <= 20


def test_empty_journal_continues_its_numbers(env: Environment) -> None:
    written = Written(env, entries=0)
    written.append(Added(A1), Updated(A1, A2))
    written.trim()
    written.append(Added(B4))

    assert (env.header.first, env.header.last) == (3, 3)
    assert written.read(2) == ["3 ADDED default/b: none -> 4"]


def test_trim_ends_when_time_is_up(env: Environment) -> None:
    written = Written(env, entries=0)
    with env.write():
        written.journal.append([Added(A1), Deleted(A1)] * 50)

    results: list[bool] = []
    while not results or results[-1]:
        with env.write():
            results.append(written.journal.trim(dict, lambda: True))

    assert results == [True] * 7 + [False]
    with env.read() as txn:
        assert txn.stat(env.database("journal"))["entries"] == 0


def test_new_writer_removes_staged_changes_in_steps(env: Environment) -> None:
    written = Written(env)
    written.append(Added(A1))
    with env.write():
        written.journal.stage([Updated(A1, A2)] * 100)

    journal = Journal(env, written.records)
    steps = 1
    while not journal.recover(lambda: True):
        steps += 1

    written.append(Updated(A1, A2))
    assert 5 < steps < 10
    assert written.read(1) == ["2 UPDATED default/a: 1 -> 2"]


def test_staged_list_does_not_trim_the_entries_that_readers_need(
    env: Environment,
) -> None:
    written = Written(env, entries=1000, size=200_000)
    written.append(Added(A1))
    with env.write():
        large = [thing("b", version, blob="x" * 10_000) for version in range(1, 51)]
        written.journal.stage(map(Added, large))

    written.trim(4, **{"7_1": 0})
    staged = written.read()
    with env.write():
        written.journal.append([])

    written.trim(4, **{"7_1": 51})
    assert staged == ["1 ADDED default/a: none -> 1"]
    assert written.read() is None


# ---------------------------------------------------------------- slow readers


def test_slow_reader_gets_the_first_state_of_each_key(env: Environment) -> None:
    written = Written(env, entries=0)
    written.append(Added(A1), Updated(A1, A2), Added(B4), Updated(A2, A3))
    written.append(Updated(B4, B5))
    waits = []
    written.trim(1, **{"7_1": 1})
    waits.append(written.behind("7-1", 1))
    written.trim(1, **{"7_1": 1})
    behind = written.behind("7-1", 1)

    assert waits == [None]
    assert behind is not None
    assert (behind.number, behind.listed) == (5, None)
    assert written.known("7-1", 1) == {"default/a": "1", "default/b": "none"}


def test_object_that_came_and_went_is_not_kept(env: Environment) -> None:
    """So what is kept for a stopped reader does not grow with each new name."""
    written = Written(env, entries=0)
    written.append(Added(A1))
    written.append(Added(B4), Updated(B4, B5), Deleted(B5), Deleted(A1), Added(A2))
    written.trim(**{"7_1": 1})

    assert written.known("7-1", 1) == {"default/a": "1"}


def test_list_after_the_position_makes_all_objects_new(env: Environment) -> None:
    written = Written(env, entries=0)
    written.append(Added(A1), Deleted(A1, True))
    with env.write():
        written.journal.append_listed(first=False)

    written.append(Updated(B4, B5))
    written.trim(**{"7_1": 1})
    behind = written.behind("7-1", 1)

    assert behind is not None
    assert (behind.number, behind.listed) == (4, EntryKind.LISTED)
    assert written.known("7-1", 1) == {"default/a": "1"}


def test_difference_is_removed_when_the_reader_has_it_or_is_dead(
    env: Environment,
) -> None:
    written = Written(env, entries=0)
    written.append(Added(A1), Updated(A1, A2))
    written.trim(**{"7_1": 1, "8_1": 1})
    kept = [written.known(name, 1) for name in ("7-1", "8-1")]
    written.trim(**{"7_1": 2})
    written.append(Updated(A2, A3))
    written.trim(**{"7_1": 2})

    assert kept == [{"default/a": "1"}] * 2
    assert written.known("7-1", 2) == {"default/a": "2"}
    with pytest.raises(CacheError, match="reader 8-1 has missed the changes 2 to 3"):
        written.behind("8-1", 1)

    with pytest.raises(CacheError, match="journal is damaged"):
        env.check()


def test_reader_that_reads_on_loses_few_entries_of_a_large_trim(
    env: Environment,
) -> None:
    """It waits for one call, though the trim takes many."""
    written = Written(env, entries=0)
    with env.write():
        written.journal.append([Added(A1), Deleted(A1)] * 2000)

    position, lost, waits, longest = 0, 0, 0, 0
    more = True
    while more:
        with env.write():
            at = {"7-1": position, "8-1": position}
            more = written.journal.trim(at.copy)

        with env.read():
            entries = written.journal.read(position, 300)
            if entries is None:
                behind = written.journal.behind("7-1", position)
                if behind is None:
                    waits += 1
                    longest = max(longest, waits)
                    continue

                lost += behind.number - position
                position = behind.number
                entries = written.journal.read(position, 300)

            assert entries is not None
            waits = 0
            position += len(entries)

    assert (position, env.header.first) == (4000, 4001)
    assert longest == 1
    assert 0 < lost <= 256


def test_stopped_reader_does_not_end_the_trim(env: Environment) -> None:
    written = Written(env, entries=0)
    with env.write():
        written.journal.append([Added(A1), Deleted(A1)] * 500)

    written.trim(6, **{"7_1": 0})
    assert env.header.first == 1001
    assert written.known("7-1", 0) == {}


def test_unreadable_positions_postpone_the_trim(env: Environment) -> None:
    written = Written(env, entries=0)
    written.append(Added(A1))
    written.trim(1)

    def fail() -> dict[str, int]:
        raise CacheError("too many open files")

    with env.write():
        assert not written.journal.trim(fail)

    with env.read() as txn:
        assert txn.stat(env.database("journal"))["entries"] == 1

    written.trim(1, **{"7_1": 0})
    assert written.known("7-1", 0) == {"default/a": "none"}


def test_long_keys_are_kept(env: Environment) -> None:
    """LMDB has keys of 511 bytes at most."""
    written = Written(env, entries=0)
    obj: KubeObject = thing("n" * 600, 1)
    written.append(Added(obj))
    written.trim(**{"7_1": 0})

    assert written.known("7-1", 0) == {obj.key: "none"}


def test_position_set_by_a_reader_in_another_process_is_awaited(
    env: Environment,
) -> None:
    """A reader has read entries, and sets its position only later.

    If the writer merged meanwhile, the difference would begin at another position.
    """
    written = Written(env, entries=0)
    written.append(Added(A1))
    readers = Readers(env.path / "readers")
    command = [sys.executable, "-c", SLOW_READER, os.fspath(env.path)]
    with subprocess.Popen(command, stdin=PIPE, stdout=PIPE) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        try:
            assert child.stdout.readline() == b"reads\n"
            written.append(Updated(A1, A2))
            for _ in range(5):
                with env.write():
                    written.journal.trim(readers.positions)

            ((name, position),) = readers.positions().items()
            waits = written.behind(name, 0)
            child.stdin.write(b"go\n")
            child.stdin.flush()
            assert child.stdout.readline() == b"has read\n"
            with env.write():
                written.journal.trim(readers.positions)

            assert (position, waits) == (0, None)
            assert readers.positions() == {name: 1}
            assert written.known(name, 1) == {"default/a": "1"}
        finally:
            child.kill()


SLOW_READER = """
import pathlib, sys
from aioinformer.cache.disk.environment import Environment
from aioinformer.cache.disk.readers import ReaderSlot
from aioinformer.cache.disk.records import Records
from aioinformer.informer.cached.journal import Journal

path = pathlib.Path(sys.argv[1])
env = Environment.open(path)
journal = Journal(env, Records(env))
slot = ReaderSlot(path / "readers")
slot.position = 0
with env.read():
    entries = journal.read(0)
    print("reads", flush=True)
    sys.stdin.readline()
    slot.position = len(entries)

print("has read", flush=True)
sys.stdin.readline()
"""
