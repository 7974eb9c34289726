"""`SharedInformerFactory`: identity of its informers, and waits for their sync."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import TYPE_CHECKING, Any

import pytest
from factory_helpers import API, FakeClient, served
from fake_source import Page, Silence
from informer_helpers import Recorder, pods_of, running, settle
from queue_helpers import error_in_thread

from aioinformer.cache import index_by
from aioinformer.client import Client
from aioinformer.errors import (
    Forbidden,
    InformerStopped,
    InternalError,
    NotSynced,
    OptionsError,
    SelectorSyntaxError,
    ServerError,
    WrongLoop,
)
from aioinformer.informer import (
    ReflectorOptions,
    SharedInformer,
    SharedInformerFactory,
    wait_for_cache_sync,
)
from aioinformer.informer.informer_spec import InformerOptions
from aioinformer.model import Resource
from aioinformer.model.resources import NODES, PODS, SECRETS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

WIDGETS = Resource("example.com", "v1", "widgets", "Widget")
REFUSED = Forbidden("no", status=403)
BUSY = ServerError("busy", status=503)


@pytest.fixture
def factory() -> SharedInformerFactory:
    """Make a factory whose server never responds."""
    return SharedInformerFactory(FakeClient())


@pytest.fixture
async def api() -> AsyncIterator[API]:
    async with served() as api:
        yield api


# ---------------------------------------------------------------- identity


def test_equal_options_give_the_same_informer(
    factory: SharedInformerFactory,
) -> None:
    pods = factory.informer("v1", "pods", namespace="shop", label_selector="app=web")

    again = factory.informer(
        "v1",
        "pods",
        namespace="shop",
        label_selector="app=web",
        indexers={"node": index_by("spec.nodeName")},
    )

    assert again is pods
    assert factory.informers == (pods,)
    assert sorted(pods.indexer.indexers) == ["namespace", "node"]


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        pytest.param(("v1", "nodes"), "nodes", id="resource"),
        pytest.param(("apps/v1", "deployments"), "deployments.apps", id="group"),
        pytest.param((WIDGETS,), "widgets.example.com", id="custom"),
        pytest.param(
            (Resource("", "v2", "pods", "Pod"),), "pods.v2", id="another-version"
        ),
        pytest.param(
            (Resource("example.com", "v1beta1", "widgets"),),
            "widgets.v1beta1.example.com",
            id="version-and-group",
        ),
    ],
)
def test_another_resource_gives_another_informer(
    factory: SharedInformerFactory, arguments: tuple[Any, ...], name: str
) -> None:
    pods = factory.informer("v1", "pods")
    other = factory.informer(*arguments)

    assert other is not pods
    assert (pods.name, other.name) == ("pods", name)


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"namespace": "shop"}, "pods in shop"),
        ({"label_selector": "app=web"}, "pods where app=web"),
        ({"field_selector": "app=web"}, "pods having app=web"),
        ({"name": "mine"}, "mine"),
        (
            {"namespace": "a", "label_selector": "b", "field_selector": "c=d"},
            "pods in a where b having c=d",
        ),
    ],
    ids=["namespace", "labels", "fields", "name", "all"],
)
def test_another_selection_gives_another_informer(
    factory: SharedInformerFactory, options: dict[str, str], name: str
) -> None:
    pods = factory.informer("v1", "pods")
    other = factory.informer("v1", "pods", **options)  # type: ignore[arg-type]

    assert other is not pods
    assert other.name == name
    assert factory.informers == (pods, other)


def test_no_namespace_means_all_namespaces(factory: SharedInformerFactory) -> None:
    pods = factory.informer("v1", "pods")

    assert factory.informer("v1", "pods", namespace="") is pods


def test_built_in_resource_constant_is_accepted(
    factory: SharedInformerFactory,
) -> None:
    pods = factory.informer("v1", "pods")

    assert factory.informer(Resource.of("v1", "pods", "Pod")) is pods


def test_conflicting_options_are_refused(
    factory: SharedInformerFactory,
) -> None:
    factory.informer("v1", "pods", page_size=10)

    with pytest.raises(OptionsError) as raised:
        factory.informer("v1", "pods", watch_seconds=60)

    text = str(raised.value)
    assert "'pods'" in text
    assert str(ReflectorOptions(page_size=10)) in text
    assert str(ReflectorOptions(watch_seconds=60)) in text
    assert "name=" in text
    other = factory.informer("v1", "pods", watch_seconds=60, name="short")
    assert other.options == ReflectorOptions(watch_seconds=60)


def test_factory_passes_every_reflector_option_to_the_informer(
    factory: SharedInformerFactory,
) -> None:
    options: dict[str, Any] = {
        "page_size": 7,
        "watch_seconds": 60,
        "watch_grace_seconds": 3,
        "streaming_list": True,
        "internal_error_seconds": 20,
    }
    names = {field.name for field in dataclasses.fields(ReflectorOptions)}

    pods = factory.informer("v1", "pods", **options)

    assert options.keys() == names
    assert names < InformerOptions.__annotations__.keys()
    assert pods.options == ReflectorOptions(**options)


def test_factory_rejects_a_negative_watch_grace(factory: SharedInformerFactory) -> None:
    with pytest.raises(OptionsError, match="watch_grace_seconds"):
        factory.informer("v1", "pods", watch_grace_seconds=-1)


def test_another_function_for_an_index_is_refused(
    factory: SharedInformerFactory,
) -> None:
    factory.informer("v1", "pods", indexers={"node": index_by("spec.nodeName")})

    with pytest.raises(OptionsError, match="'node'"):
        factory.informer("v1", "pods", indexers={"node": index_by("spec.other")})


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("v1", "widgets"), "not a built-in resource. Custom ones have a group"),
        (("apps/v1", "Pod"), "Did you mean 'v1', 'pods'"),
        (("v1", "deployments"), "Did you mean 'apps/v1', 'deployments'"),
        (("pods",), "'pods' is not .* Did you mean 'v1', 'pods'"),
        (("v1",), "'v1' is not .* Pass two names, such as 'v1', 'pods'"),
        (("v1", PODS), "Did you mean 'v1', 'pods'"),
        ((WIDGETS, "widgets"), "not both: 'widgets'"),
        ((PODS, "shop"), "namespace='shop'"),
        (("pods", "v1"), "Did you mean 'v1', 'pods'"),
        (("apps/v1/deployments",), "Did you mean 'apps/v1', 'deployments'"),
        (("a/b/c", "x"), "invalid group of a resource: 'a/b'"),
    ],
    ids=[
        "custom",
        "kind",
        "group",
        "plural",
        "version",
        "resource",
        "both",
        "namespace",
        "swapped",
        "one",
        "slashes",
    ],
)
def test_unknown_resource_is_refused(
    factory: SharedInformerFactory, arguments: tuple[Any, ...], complaint: str
) -> None:
    with pytest.raises(OptionsError, match=complaint):
        factory.informer(*arguments)

    assert factory.informers == ()


@pytest.mark.parametrize("namespace", ["*", "shop,web", ["shop", "*"]], ids=str)
def test_namespace_pattern_is_refused(
    factory: SharedInformerFactory, namespace: Any
) -> None:
    with pytest.raises(OptionsError, match="None for all namespaces, and a list"):
        factory.informer("v1", "pods", namespace=namespace)


@pytest.mark.parametrize(
    ("arguments", "options", "advice"),
    [
        (
            ("apps", "v1", "deployments"),
            {},
            r"Write (informer|use)\('apps/v1', 'deployments'\)",
        ),
        (("v1", "pods"), {"selector": "app=web"}, "Write label_selector="),
        (("v1",), {"kind": "Pod"}, "Write resource="),
    ],
    ids=["three-names", "selector", "kind"],
)
def test_arguments_that_do_not_fit_get_advice(
    factory: SharedInformerFactory,
    arguments: tuple[Any, ...],
    options: dict[str, Any],
    advice: str,
) -> None:
    for call in (factory.informer, factory.use):
        with pytest.raises(TypeError, match=advice):
            call(*arguments, **options)


def test_misspelt_default_of_factory_gets_advice() -> None:
    options: Any = {"selector": "app=web"}

    with pytest.raises(TypeError, match="Write label_selector= instead of selector="):
        SharedInformerFactory(FakeClient(), **options)


@pytest.mark.parametrize(
    "options",
    [
        {"label_selector": "a in b"},
        {"field_selector": "nonsense"},
        {"page_size": 0},
        {"watch_seconds": 0},
        {"label_selector": {"app": "web"}},
        {"field_selector": {"spec.nodeName": "n"}},
        {"namespace": ["shop", None]},
    ],
    ids=str,
)
def test_invalid_options_are_refused(
    factory: SharedInformerFactory, options: dict[str, Any]
) -> None:
    with pytest.raises((OptionsError, SelectorSyntaxError)):
        factory.informer("v1", "pods", **options)

    assert factory.informers == ()


def test_repr_names_the_informers(factory: SharedInformerFactory) -> None:
    empty = repr(factory)
    factory.informer("v1", "pods")
    factory.informer("v1", "nodes")

    assert empty == "<SharedInformerFactory without informers>"
    assert repr(factory) == "<SharedInformerFactory pods, nodes>"


# ---------------------------------------------------------------- while it runs


async def test_factory_syncs_its_informers_from_a_server(api: API) -> None:
    factory = SharedInformerFactory(Client.from_url(api.url))
    pods = factory.informer("v1", "pods")
    nodes = factory.informer("v1", "nodes")

    async with factory:
        await factory.wait_for_cache_sync(timeout=10)
        names = [obj.name for obj in pods.lister.list()]

        assert nodes.has_synced

    assert names == ["a", "b"]


async def test_metadata_informer_drops_the_rest_of_whole_objects(
    api: API,
) -> None:
    factory = SharedInformerFactory(Client.from_url(api.url))
    pods = factory.informer("v1", "pods", metadata_only=True)

    async with factory:
        await factory.wait_for_cache_sync(timeout=10)
        found = pods.lister.list()

    assert [obj.name for obj in found] == ["a", "b"]
    assert {(obj.kind, obj.at("spec")) for obj in found} == {
        ("PartialObjectMetadata", None)
    }
    assert pods.status.degraded == 0


async def test_informer_added_to_a_running_factory_starts_at_once(api: API) -> None:
    async with SharedInformerFactory(Client.from_url(api.url)) as factory:
        pods = factory.informer("v1", "pods")
        recorder = Recorder()
        registration = pods.add_event_handler(on_event=recorder)
        await registration.wait_synced()

    assert recorder.record == ["a", "b"]


async def test_handler_failures_are_passed_to_on_error(api: API) -> None:
    failures: list[Exception] = []
    factory = SharedInformerFactory(Client.from_url(api.url), on_error=failures.append)
    pods = factory.informer("v1", "pods")

    @pods.on_add
    def fail(obj: object) -> None:
        raise ValueError(obj)

    async with factory:
        await factory.wait_for_cache_sync()

    assert len(failures) == 2


async def test_running_factory_refuses_another_loop() -> None:
    factory = SharedInformerFactory(FakeClient())

    async with factory:
        errors = [
            error_in_thread(lambda: factory.informer("v1", "pods")),
            error_in_thread(lambda: asyncio.run(factory.shutdown())),
            error_in_thread(lambda: asyncio.run(factory.start())),
            error_in_thread(lambda: asyncio.run(factory.failed())),
        ]
        assert factory.informers == ()

        factory.informer("v1", "pods")  # it still works

    assert [type(error) for error in errors] == [WrongLoop] * 4


async def test_factory_refuses_another_loop_from_start_to_shutdown() -> None:
    client = FakeClient()
    factory = SharedInformerFactory(client)

    def elsewhere() -> type[object]:
        return type(error_in_thread(lambda: asyncio.run(factory.shutdown())))

    starting = asyncio.create_task(factory.start())
    await asyncio.sleep(0)
    assert client.record == [], "it is starting"
    during_start = elsewhere()
    await starting
    stopping = asyncio.create_task(factory.shutdown())
    for _ in range(3):
        await asyncio.sleep(0)

    assert client.record == ["entered"], "it is stopping"
    during_end = elsewhere()
    await stopping

    assert (during_start, during_end) == (WrongLoop, WrongLoop)
    await asyncio.to_thread(lambda: asyncio.run(factory.shutdown()))  # it has ended


@pytest.mark.parametrize("client", ["http://127.0.0.1:1", None], ids=str)
def test_factory_requires_a_client(client: Any) -> None:
    with pytest.raises(OptionsError, match=r"needs a Client, from Client\.from_env"):
        SharedInformerFactory(client)


async def test_factory_creates_no_informer_after_shutdown(
    factory: SharedInformerFactory,
) -> None:
    pods = factory.informer("v1", "pods")
    async with factory:
        await settle()

    for resource in ("pods", "nodes"):
        with pytest.raises(InformerStopped, match="the factory has ended"):
            factory.informer("v1", resource)

    assert factory.informers == (pods,)


async def test_factory_creates_no_informer_during_shutdown(
    factory: SharedInformerFactory,
) -> None:
    refused: list[Exception] = []

    async with factory:
        stopping = asyncio.create_task(factory.shutdown())
        for number in range(20):
            try:
                factory.informer("v1", "pods", name=f"late {number}")
            except InformerStopped as exc:
                refused.append(exc)

            await asyncio.sleep(0)

        await stopping

    assert len(refused) >= 19
    assert all(it.status.phase == "stopped" for it in factory.informers)


# ---------------------------------------------------------------- waiting for all


def informer_of(answer: Page | Exception | Silence, name: str) -> SharedInformer:
    pods = pods_of(answer)
    pods.name = name
    return pods


async def test_wait_for_cache_sync_names_each_unsynced_informer(
    looptime: float,
) -> None:
    good = informer_of(Page(version=5), "good")
    slow = informer_of(Silence(), "slow")
    bad = informer_of(BUSY, "bad")

    async with running(good.run()), running(slow.run()), running(bad.run()):
        with pytest.raises(NotSynced) as raised:
            await wait_for_cache_sync(good, slow, bad, timeout=0.5)

    assert looptime == 0.5
    assert raised.value.results == {
        "good": "synced",
        "slow": "listing, no error so far",
        "bad": "backing off, 1 attempt failed: 503: busy",
    }
    assert str(raised.value) == (
        "not synced: slow: listing, no error so far; "
        "bad: backing off, 1 attempt failed: 503: busy"
    )


async def test_wait_for_all_names_a_shared_error_once() -> None:
    one, two = informer_of(BUSY, "one"), informer_of(BUSY, "two")

    async with running(one.run()), running(two.run()):
        with pytest.raises(NotSynced) as raised:
            await wait_for_cache_sync(one, two, timeout=0.5)

    assert str(raised.value) == (
        "not synced: one: backing off, 1 attempt failed: 503: busy; "
        "two: backing off, 1 attempt failed: same error as one"
    )


async def test_refused_informer_fails_the_wait_for_all(looptime: float) -> None:
    slow, refused = informer_of(Silence(), "slow"), informer_of(REFUSED, "refused")

    async with running(slow.run()), running(refused.run()):
        with pytest.raises(NotSynced, match="403: no") as raised:
            await wait_for_cache_sync(slow, refused)

        assert looptime < 3
        assert raised.value.__cause__ is REFUSED
        with pytest.raises(NotSynced):
            await wait_for_cache_sync(slow, refused, timeout=60, fail_fast=False)

    assert looptime > 60


async def test_informer_that_ends_fails_the_wait_for_all() -> None:
    slow, dead = informer_of(Silence(), "slow"), informer_of(InternalError("?"), "dead")

    async with running(slow.run()):
        waiter = asyncio.create_task(wait_for_cache_sync(slow, dead, timeout=60))
        await settle()
        with pytest.raises(InternalError, match=r"\?") as died:
            await dead.run()

        with pytest.raises(InformerStopped) as raised:
            await waiter

    assert raised.value.__cause__ is died.value


async def test_results_of_informers_with_equal_names_are_kept_apart() -> None:
    good, slow = pods_of(Page(version=5)), pods_of(Silence())

    async with running(good.run()), running(slow.run()):
        for pair in ((good, slow), (slow, good)):
            with pytest.raises(NotSynced, match="pods: listing"):
                await wait_for_cache_sync(*pair, timeout=1)


async def test_wait_without_informers_returns_at_once(
    factory: SharedInformerFactory,
) -> None:
    await factory.wait_for_cache_sync()


async def test_function_that_fails_does_not_follow() -> None:
    factory = SharedInformerFactory(Client.from_url("http://127.0.0.1:9"))
    factory.informer(PODS)

    def fail(_: SharedInformer) -> None:
        raise RuntimeError("no")

    with pytest.raises(RuntimeError):
        factory.follow(fail)

    followed: list[str] = []
    end = factory.follow(lambda it: followed.append(it.name))
    factory.informer(NODES)
    end()
    factory.informer(SECRETS)
    assert followed == ["pods", "nodes"]
