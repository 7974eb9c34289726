"""`MutationDetector`: times of comparison, and objects that are added again."""

from __future__ import annotations

import asyncio

import pytest
from informer_helpers import running

from aioinformer.cache import Mutation, MutationDetector


@pytest.fixture
def slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the loop turn after each object."""
    monkeypatch.setattr("aioinformer.budget.SLICE_SECONDS", 0.0)


async def test_run_compares_in_every_period() -> None:
    reported: list[Mutation[dict[str, int]]] = []
    detector = MutationDetector[dict[str, int]](
        enabled=True, period=2, on_mutation=reported.append
    )
    obj = {"a": 1}
    detector.add(obj)

    async with running(detector.run()):
        await asyncio.sleep(0)
        obj["a"] = 2
        await asyncio.sleep(1.9)
        before = len(reported)
        await asyncio.sleep(0.2)

    assert (before, len(reported)) == (0, 1)


async def test_object_is_compared_for_retain_to_twice_retain() -> None:
    detector = MutationDetector[dict[str, int]](enabled=True, retain=60)
    kept = []

    async with running(detector.run()):
        detector.add({"a": 1})
        for _ in range(3):
            await asyncio.sleep(59)
            kept.append(len(detector))

    assert kept == [1, 1, 0]


async def test_late_change_is_found_in_the_older_generation() -> None:
    reported: list[Mutation[dict[str, int]]] = []
    detector = MutationDetector[dict[str, int]](
        enabled=True, retain=60, on_mutation=reported.append
    )
    obj = {"a": 1}
    detector.add(obj)

    async with running(detector.run()):
        await asyncio.sleep(65)
        obj["a"] = 2
        await asyncio.sleep(2)

    assert [it.obj for it in reported] == [obj]
    assert len(detector) == 0


@pytest.mark.usefixtures("slices")
async def test_mutation_detector_compares_in_slices() -> None:
    detector = MutationDetector[dict[str, int]](enabled=True, period=1)
    objects = [{"a": number} for number in range(50)]
    for obj in objects:
        detector.add(obj)

    left = []
    async with running(detector.run()):
        await asyncio.sleep(0)
        for obj in objects:
            obj["a"] += 1

        await asyncio.sleep(1)
        while len(detector):
            left.append(len(detector))
            await asyncio.sleep(0)

    assert len(set(left)) > 10


# ---------------------------------------------------------------- added again


def test_change_is_found_after_object_is_added_again() -> None:
    """Code that takes an object out, changes it and puts it back is found."""
    detector = MutationDetector[dict[str, int]](enabled=True)
    obj = {"a": 1}
    detector.add(obj)
    obj["a"] = 2
    detector.add(obj)
    assert len(detector) == 1

    assert [it.paths for it in detector.check()] == [("a",)]
    detector.add(obj)
    assert detector.check() == []


async def test_object_added_again_is_compared_for_retain_again() -> None:
    reported: list[Mutation[dict[str, int]]] = []
    detector = MutationDetector[dict[str, int]](
        enabled=True, retain=60, on_mutation=reported.append
    )
    obj = {"a": 1}
    detector.add(obj)

    async with running(detector.run()):
        await asyncio.sleep(65)
        detector.add(obj)
        await asyncio.sleep(59)
        kept = len(detector)
        obj["a"] = 2
        await asyncio.sleep(3)

    assert kept == 1
    assert [it.obj for it in reported] == [obj]
    assert len(detector) == 0


@pytest.mark.usefixtures("slices")
async def test_mutation_is_reported_once_despite_concurrent_checks() -> None:
    reported: list[Mutation[dict[str, int]]] = []
    detector = MutationDetector[dict[str, int]](
        enabled=True, period=1, retain=2, on_mutation=reported.append
    )
    objects = [{"a": number} for number in range(50)]
    for obj in objects:
        detector.add(obj)

    async with running(detector.run()):
        await asyncio.sleep(2.5)  # they are the older ones now
        for obj in objects:
            obj["a"] += 1

        await asyncio.sleep(0.5)
        while len(reported) < 10:
            await asyncio.sleep(0)

        for obj in objects[10:]:
            detector.add(obj)

        detector.check()
        await asyncio.sleep(5)

    numbers = [it.obj["a"] for it in reported]
    assert numbers == sorted(set(numbers))
    assert len(numbers) == len(objects)
