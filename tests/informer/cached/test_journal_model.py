"""`Journal` in random interleavings of a writer and readers, against a model."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest
from journal_model import JournalModel

if TYPE_CHECKING:
    from pathlib import Path

KEYS = [f"pod-{number}" for number in range(6)]


@pytest.mark.parametrize("seed", range(30))
def test_readers_are_told_each_change_once_in_any_interleaving(
    tmp_path: Path, seed: int
) -> None:
    """Writer and readers die, fall behind, and read while entries are trimmed."""
    chance = random.Random(seed)
    model = JournalModel(tmp_path, entries=chance.choice([0, 3, 10]))
    dies = chance.choice([0.0, 0.1])
    lists = chance.choice([0.0, 0.02])
    try:
        for _ in range(500):
            _step(model, chance, dies=dies, lists=lists)

        _end(model)
    finally:
        model.close()


def _step(
    model: JournalModel, chance: random.Random, *, dies: float, lists: float
) -> None:
    keys = [chance.choice(KEYS) for _ in range(chance.randrange(1, 5))]
    what = chance.random()
    if what < lists:
        model.list_anew(keys)
    elif what < 0.2:
        model.change(keys, dies=chance.random() < dies)
    elif what < 0.25:
        model.relist(keys, dies=chance.random() < dies)
    elif what < 0.4:
        model.trim()
    elif what < 0.45 and len(model.readers) < 5:
        model.join(limit=chance.choice([1, 3, 500]))
    elif model.readers:
        # The first ones are slow.
        weights = [4**place for place in range(len(model.readers))]
        (reader,) = chance.choices(model.readers, weights)
        if chance.random() < 0.01:
            model.leave(reader)
        elif reader.reads:
            reader.act()
        else:
            reader.begin()


def _end(model: JournalModel) -> None:
    """Let all readers catch up, while the writer trims."""
    for reader in model.readers:
        if reader.reads:
            reader.act()

    for reader in model.readers:
        reader.begin()
        while not reader.act():
            model.trim()
            reader.begin()

        assert reader.told == model.stored()

    while model.trim():
        pass

    for _ in range(4):
        model.trim()

    with model.env.read() as txn:
        journal, behind = map(model.env.database, ("journal", "behind"))
        assert txn.stat(journal)["entries"] <= 10
        assert txn.stat(behind)["entries"] == 0
