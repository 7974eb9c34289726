"""Checks of callables that users pass in."""

from __future__ import annotations

import asyncio
import functools
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from each_case import each_case

from aioinformer import (
    Client,
    Controller,
    Indexer,
    Manager,
    SharedInformerFactory,
    Store,
    until,
    until_with_sync,
)
from aioinformer.controller import Predicate, with_object
from aioinformer.errors import OptionsError
from aioinformer.model.callables import check_plain, check_runs
from aioinformer.model.transforms import transform_dict
from aioinformer.testing import FakeListerWatcher
from aioinformer.watch import FakeWatch, filtered, until_without_retry

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator


def plain(obj: object) -> object:
    return obj


async def coroutine(obj: object) -> object:
    return obj


def generator(obj: object) -> Iterator[object]:
    yield obj


async def stream(obj: object) -> AsyncIterator[object]:
    yield obj


class Generating:
    def __call__(self, obj: object) -> Iterator[object]:
        yield obj


class Streaming:
    async def __call__(self, obj: object) -> AsyncIterator[object]:
        yield obj

    async def method(self, obj: object) -> AsyncIterator[object]:
        yield obj


class Plain:
    def __call__(self, obj: object) -> object:
        return obj


class Async:
    async def __call__(self, obj: object) -> object:
        return obj

    async def method(self, obj: object) -> object:
        return obj


@each_case(
    "function",
    [plain, lambda obj: obj, partial(plain, 1), Plain(), Plain, len, [].append],
    ids=["function", "lambda", "partial", "object", "class", "builtin", "method"],
)
def test_check_plain_accepts_plain_callables(function: Any) -> None:
    check_plain(function, "a filter")


@each_case(
    "function",
    [
        coroutine,
        partial(coroutine, 1),
        Async(),
        partial(Async(), 1),
        Async().method,
        asyncio.sleep,
        5,
        None,
    ],
    ids=[
        "function",
        "partial",
        "object",
        "partial-of-object",
        "method",
        "sleep",
        "number",
        "none",
    ],
)
def test_check_plain_rejects_coroutine_functions_and_non_callables(
    function: Any,
) -> None:
    with pytest.raises(OptionsError, match="a filter must be a plain function"):
        check_plain(function, "a filter")


STREAMS = [
    pytest.param(stream, id="async-function"),
    pytest.param(Streaming(), id="async-object"),
    pytest.param(Streaming().method, id="async-method"),
    pytest.param(partial(stream, 1), id="async-partial"),
    pytest.param(partial(partial(Streaming()), 1), id="async-partial-of-object"),
]
GENERATORS = [
    pytest.param(generator, id="function"),
    pytest.param(Generating(), id="object"),
    pytest.param(partial(generator, 1), id="partial"),
    pytest.param(partial(Generating(), 1), id="partial-of-object"),
]


@each_case("check", [check_plain, check_runs])
@each_case("function", [*STREAMS, *GENERATORS])
def test_checks_reject_generator_functions(check: Any, function: Any) -> None:
    with pytest.raises(OptionsError, match=r"is a generator.*A filter must not yield"):
        check(function, "a filter")


@pytest.mark.parametrize("function", GENERATORS)
def test_checks_accept_generator_functions_with_may_yield(
    function: Any,
) -> None:
    check_plain(function, "a mapping", may_yield=True)


@each_case("function", STREAMS)
def test_checks_reject_async_generators_with_may_yield(function: Any) -> None:
    with pytest.raises(OptionsError, match="is a generator"):
        check_plain(function, "a mapping", may_yield=True)


# ------------------------------------------------------------ users of the checks

FACTORY = SharedInformerFactory(Client.from_url("http://127.0.0.1:1"))
PODS = FACTORY.informer("v1", "pods")


def controller(reconcile: Any, **options: Any) -> object:
    return Controller("c", reconcile, for_=PODS, **options)


async def reconcile(request: object, ctx: object) -> None: ...


async def reconcile_stream(request: object, ctx: object) -> AsyncIterator[None]:
    yield


@functools.wraps(reconcile)
async def disguised_stream(request: object, ctx: object) -> AsyncIterator[None]:
    yield


async def work_stream() -> AsyncIterator[None]:
    yield


async def update_stream(old: object, new: object) -> AsyncIterator[None]:
    yield


# Arguments that type checkers would reject.
STREAM: Any = stream
GENERATOR: Any = generator
RECONCILE_STREAM: Any = reconcile_stream
WORK_STREAM: Any = work_stream


@each_case(
    "register",
    [
        pytest.param(lambda: PODS.add_event_handler(STREAM), id="on-add"),
        pytest.param(lambda: PODS.on_update(update_stream), id="on-update"),
        pytest.param(lambda: PODS.on_delete(Streaming()), id="on-delete"),
        pytest.param(
            lambda: PODS.add_event_handler(on_event=partial(STREAM), coalesce=True),
            id="on-event",
        ),
        pytest.param(
            lambda: PODS.add_event_handler(print, filter=STREAM), id="handler-filter"
        ),
        pytest.param(
            lambda: PODS.add_event_handler(STREAM, thread=True), id="in-a-thread"
        ),
        pytest.param(lambda: PODS.set_transform(STREAM), id="transform"),
        pytest.param(lambda: transform_dict(STREAM), id="transform-dict"),
        pytest.param(lambda: PODS.add_indexers({"x": STREAM}), id="index"),
        pytest.param(lambda: PODS.set_watch_error_handler(STREAM), id="watch-error"),
        pytest.param(lambda: PODS.set_death_handler(STREAM), id="death"),
        pytest.param(
            lambda: SharedInformerFactory(FACTORY._client, on_error=STREAM),
            id="on-error",
        ),
        pytest.param(lambda: Store(on_error=STREAM), id="store-on-error"),
        pytest.param(lambda: controller(RECONCILE_STREAM), id="reconcile"),
        pytest.param(lambda: controller(disguised_stream), id="disguised-reconcile"),
        pytest.param(lambda: with_object(dict)(RECONCILE_STREAM), id="with-object"),
        pytest.param(
            lambda: controller(reconcile, predicates=[STREAM]), id="predicate"
        ),
        pytest.param(lambda: Predicate(STREAM), id="a-predicate-itself"),
        pytest.param(
            lambda: controller(reconcile, watches=[(PODS, STREAM)]), id="mapping"
        ),
        pytest.param(lambda: filtered(FakeWatch(), STREAM), id="watch-filter"),
        pytest.param(lambda: Manager(FACTORY._client).add(WORK_STREAM), id="part"),
    ],
)
def test_async_generator_is_refused_at_registration(
    register: Callable[[], object],
) -> None:
    with pytest.raises(OptionsError, match=r"is a generator|coroutine function"):
        register()


@each_case(
    "wait",
    [
        pytest.param(lambda: until(FakeListerWatcher(), "1", STREAM), id="until"),
        pytest.param(
            lambda: until_without_retry(FakeWatch(), STREAM), id="without-retry"
        ),
        pytest.param(
            lambda: until_with_sync(FakeListerWatcher(), STREAM), id="with-sync"
        ),
        pytest.param(
            lambda: until_with_sync(FakeListerWatcher(), precondition=STREAM),
            id="precondition",
        ),
        pytest.param(lambda: PODS.wait_until(STREAM), id="wait-until"),
    ],
)
async def test_async_generator_is_refused_as_a_condition(
    wait: Callable[[], Awaitable[object]],
) -> None:
    with pytest.raises(OptionsError, match="is a generator"):
        await wait()


def test_mappings_and_index_functions_may_be_generators() -> None:
    controller(reconcile, watches=[(PODS, generator)])
    store: Indexer[Any] = Indexer({"x": GENERATOR}, key_func=str)
    store.add("key")

    assert store.by_index("x", "key") == ["key"]
