"""`Journal.deletions`: what a watch repeats of the objects that are deleted already."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from contents_helpers import made, opened

from aioinformer.cache.disk.records import Records
from aioinformer.informer.cached.journal import Journal
from aioinformer.informer.notifications import Added, Deleted, Updated

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from aioinformer.cache.disk.environment import Environment


@pytest.fixture
def env(tmp_path: Path) -> Iterator[Environment]:
    env = opened("disk", tmp_path)
    assert env is not None
    yield env
    env.close()


@pytest.fixture
def journal(env: Environment) -> Journal:
    return Journal(env, Records(env))


def test_deletions_above_a_version_are_found(
    env: Environment, journal: Journal
) -> None:
    with env.write():
        journal.append(
            [
                Added(made("a", 4)),
                Deleted(made("a", 5)),
                Deleted(made("b", 6)),
                Deleted(made("missed", 9), True),
                Updated(made("c", 7), made("c", 8)),
            ]
        )
        journal.append([Deleted(made("c", 9)), Deleted(made("x", "not-a-number"))])

    assert journal.deletions("5") == {"b": 6, "c": 9}
    assert journal.deletions("9") == {}
    assert journal.deletions("not-a-number") == {}


def test_empty_journal_has_no_deletions(journal: Journal) -> None:
    assert journal.deletions("5") == {}
