"""Options of `Controller`."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from controller_helpers import Notes, controlled, informed, informer_of

from aioinformer import Controller, PriorityQueue, ReconcileRequest, WorkQueue
from aioinformer.controller import Context, generation_changed
from aioinformer.errors import OptionsError
from aioinformer.testing import FakeListerWatcher


async def hang(request: ReconcileRequest, ctx: Context) -> None:
    await asyncio.Event().wait()


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"name": ""}, "needs a name"),
        ({"reconcile": None}, "coroutine function"),
        ({"concurrency": 0}, "at least 1"),
        ({"concurrency": 2.5}, "an integer of at least 1"),
        ({"concurrency": "4"}, "an integer of at least 1"),
        ({"timeout": 0}, "must be positive"),
        ({"timeout": float("inf")}, "duration"),
        ({"cache_sync_timeout": 0}, "cache_sync_timeout must be positive"),
        ({"drain_timeout": -1}, "drain"),
        ({"predicates": generation_changed}, "predicates= takes a list"),
        ({"owns": informer_of(FakeListerWatcher())}, "owns= takes a list"),
        ({"watches": [informer_of(FakeListerWatcher())]}, "watches= takes tuples"),
        ({"owns": [(informer_of(FakeListerWatcher()), str, print, 7)]}, "a predicate"),
        ({"owns": [()]}, "owns= takes informers"),
        ({"watches": (informer_of(FakeListerWatcher()), str)}, "takes tuples"),
        ({"queue": WorkQueue()}, "PriorityQueue"),
        ({"for_": None}, "watches informers"),
        ({"watches": [(None, str)]}, "watches informers"),
    ],
    ids=lambda it: next(iter(it)) if isinstance(it, dict) else "",
)
def test_invalid_controller_options_are_refused(
    options: dict[str, Any], text: str
) -> None:
    given: dict[str, Any] = {
        "name": "pods",
        "reconcile": hang,
        "for_": informer_of(FakeListerWatcher()),
        **options,
    }

    with pytest.raises(OptionsError, match=text):
        Controller(**given)


def test_owns_without_known_resource_is_refused() -> None:
    class Bare:
        list = watch = None

    bare = informer_of(Bare())  # type: ignore[arg-type]
    pods = informer_of(FakeListerWatcher())

    with pytest.raises(OptionsError, match="use watches="):
        Controller("bare", hang, for_=bare, owns=[pods])


async def test_empty_queue_of_user_is_used() -> None:
    queue: PriorityQueue[ReconcileRequest] = PriorityQueue("mine")
    async with controlled(Notes(), queue=queue) as (_, controller):
        assert controller.queue is queue

    assert queue.shutting_down


async def test_controller_fails_if_queue_has_no_request() -> None:
    pods = informer_of(FakeListerWatcher())
    controller = Controller("pods", hang, for_=pods)
    controller.queue.add("default/web")  # type: ignore[arg-type]
    async with informed(pods):
        with pytest.raises(OptionsError, match="not 'default/web'"):
            await controller.run()


async def test_queue_of_another_controller_is_refused() -> None:
    queue: PriorityQueue[ReconcileRequest] = PriorityQueue()
    async with controlled(Notes(), queue=queue):
        pass

    for used in (queue, PriorityQueue[ReconcileRequest]()):
        pods = informer_of(FakeListerWatcher())
        if used is not queue:
            Controller("first", hang, for_=pods, queue=used)

        with pytest.raises(OptionsError, match="belongs to another controller"):
            Controller("second", hang, for_=pods, queue=used)


def test_repr_shows_name_workers_and_queue() -> None:
    controller = Controller("pods", hang, for_=informer_of(FakeListerWatcher()))

    assert repr(controller).startswith("<Controller pods <Workers pods running=0>")
    assert [it.name for it in controller.informers] == ["pods"]
