"""`SharedInformer`: transform and watch error handler."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from fake_source import Page, Stream, added, error_event, modified, thing
from informer_helpers import pods_of, running, settle
from queue_helpers import error_in_thread

from aioinformer.errors import (
    InformerStopped,
    OptionsError,
    ResourceExpired,
    ServerError,
    WrongLoop,
)
from aioinformer.informer import Added, Updated
from aioinformer.model import KubeObject, drop, strip_managed_fields

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioinformer.errors import HandlerError
    from aioinformer.informer import SharedInformer

BUSY = ServerError("busy", status=503)


def without_status(obj: KubeObject) -> KubeObject:
    content = obj.to_dict()
    del content["status"]
    return KubeObject.of(content)


# ---------------------------------------------------------------- transform


async def test_handlers_and_readers_see_the_transformed_object() -> None:
    stream = Stream()
    pods = pods_of(watches=(stream,), transform=without_status)
    events: list[Any] = []
    pods.add_event_handler(on_event=events.append)

    async with running(pods.run()):
        await settle()
        stream.send(modified(thing("a", 6)), added(thing("c", 7)))
        await settle()
        stored = pods.lister.list()

    assert pods.transform is without_status
    assert {type(event) for event in events} == {Added, Updated}
    seen = [getattr(event, name, None) for event in events for name in event.__slots__]
    objects = [obj for obj in (*seen, *stored) if isinstance(obj, KubeObject)]
    assert len(objects) >= 8
    assert not [obj for obj in objects if "status" in obj]


async def test_transform_can_be_set_before_the_run() -> None:
    pods = pods_of(transform=strip_managed_fields)
    pods.set_transform(drop("spec"))
    pods.set_transform(without_status)

    async with running(pods.run()):
        await pods.wait_synced()
        (first, _) = pods.lister.list()

    assert "status" not in first
    assert "spec" in first, "the last transform applies"


async def test_transform_can_be_removed() -> None:
    pods = pods_of(transform=without_status)
    pods.set_transform(None)

    async with running(pods.run()):
        await pods.wait_synced()

        assert all("status" in obj for obj in pods.lister.list())


async def test_transform_cannot_be_set_during_the_run() -> None:
    pods = pods_of()

    async with running(pods.run()):
        await settle()
        with pytest.raises(
            OptionsError, match="pods has been started already: set the transform"
        ):
            pods.set_transform(without_status)

    with pytest.raises(InformerStopped):
        pods.set_transform(without_status)

    assert pods.transform is None


def test_invalid_transform_is_refused() -> None:
    async def wait(obj: KubeObject) -> KubeObject:
        return obj

    pods = pods_of()
    for wrong in (wait, 5):
        with pytest.raises(OptionsError, match="a transform must be"):
            pods.set_transform(wrong)  # type: ignore[arg-type]

        with pytest.raises(OptionsError, match="a transform must be"):
            pods_of(transform=wrong)


async def test_failing_transform_is_reported_and_does_not_prevent_the_sync() -> None:
    received: list[HandlerError] = []

    def fail(obj: KubeObject) -> KubeObject:
        raise ValueError(obj.name)

    pods = pods_of(transform=fail, on_error=received.append)

    async with running(pods.run()):
        await pods.wait_synced(timeout=1)

        assert len(pods.lister.list()) == pods.status.degraded == 2

    assert [(it.where, it.subject) for it in received] == [
        ("transform", thing("a")),
        ("transform", thing("b")),
    ]
    assert all("fail" in it.name for it in received)


# ---------------------------------------------------------------- watch errors


async def test_watch_error_handler_gets_every_failure() -> None:
    stream = Stream(5.0, [error_event(410)])
    pods = pods_of(
        BUSY, Page([thing("a")], version=5), watches=(stream, BUSY, Stream())
    )
    received: list[Exception] = []
    pods.set_watch_error_handler(received.append)

    async with running(pods.run()):
        await asyncio.sleep(30)

    assert [type(error) for error in received] == [
        *(ServerError, ResourceExpired, ServerError),
    ]


async def test_watch_error_handler_can_be_changed_during_the_run() -> None:
    stream = Stream(5.0, [error_event(410)], 5.0)
    pods = pods_of(BUSY, Page([thing("a")], version=5), watches=(stream,))
    first: list[Exception] = []
    second: list[Exception] = []
    pods.set_watch_error_handler(first.append)

    async with running(pods.run()):
        await pods.wait_synced()
        pods.set_watch_error_handler(second.append)
        await asyncio.sleep(20)
        pods.set_watch_error_handler(None)

    assert (len(first), len(second)) == (1, 1)


def test_invalid_watch_error_handler_is_refused() -> None:
    async def wait(error: Exception) -> None:
        pass

    with pytest.raises(OptionsError):
        pods_of().set_watch_error_handler(wait)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "setting",
    [
        lambda pods: pods.set_transform(None),
        lambda pods: pods.set_watch_error_handler(None),
    ],
    ids=["set_transform", "set_watch_error_handler"],
)
async def test_settings_refuse_another_loop(
    setting: Callable[[SharedInformer], None],
) -> None:
    pods = pods_of()

    async with running(pods.run()):
        await pods.wait_synced()
        error = error_in_thread(lambda: setting(pods))

    assert isinstance(error, WrongLoop)
    with pytest.raises(InformerStopped):
        setting(pods)
