"""`EventStream`: initial objects, changes, resume and queries."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from informer_helpers import settle
from informers import plain, pods_of, settled
from web_helpers import Page, handlers_of

from aioinformer import Client, KubeObject, SharedInformerFactory
from aioinformer.errors import HandlerError, OptionsError, SelectorSyntaxError
from aioinformer.model.resources import PODS, SECRETS
from aioinformer.model.transforms import transform_dict
from aioinformer.testing import APIServer
from aioinformer.web.connections import CHUNK
from aioinformer.web.streams import RENDERED, RENDERED_BYTES, EventStream

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


@pytest.fixture
async def server() -> AsyncIterator[APIServer]:
    async with APIServer(auto_namespaces=True) as server:
        server.create(PODS, plain("a", app="web"))
        server.create(PODS, plain("b", app="db"))
        yield server


def in_shop(name: str, **labels: str) -> dict[str, Any]:
    body = plain(name, **labels)
    body["metadata"]["namespace"] = "shop"
    return body


# ---------------------------------------------------------------- what is sent


async def test_stream_sends_objects_and_changes(server: APIServer) -> None:
    async with pods_of(server) as (_, pods):
        page = Page(EventStream(pods))
        async with page.reading():
            assert sorted(page.take()) == ["added a", "added b", "reset", "synced"]
            server.create(PODS, plain("c"))
            await settled(server, pods)
            label = {"metadata": {"labels": {"x": "y"}}}
            server.patch(PODS, "a", label, namespace="default")
            await settled(server, pods)
            server.delete(PODS, "b", namespace="default")
            await settled(server, pods)
            assert page.take() == ["added c", "updated a", "deleted b"]


async def test_stream_sends_stored_bytes(server: APIServer) -> None:
    async with pods_of(server) as (_, pods):
        page = Page(EventStream(pods))
        chunks: list[bytes] = []

        async def write(chunk: bytes) -> None:
            chunks.append(chunk)

        page.write = write  # type: ignore[method-assign]
        async with page.reading():
            sent = b"".join(chunks)

        for obj in pods.lister.list():
            assert b"data: " + obj.raw + b"\n\n" in sent


async def test_resumed_stream_sends_missed_changes(server: APIServer) -> None:
    async with pods_of(server) as (_, pods):
        page = Page(EventStream(pods))
        async with page.reading():
            page.take()

        server.delete(PODS, "b", namespace="default")
        server.create(PODS, plain("c"))
        await settled(server, pods)
        async with page.reading():
            assert sorted(page.take()) == ["added c", "deleted b", "synced"]

        async with page.reading():
            assert page.take() == ["synced"]


@pytest.mark.parametrize(
    "last_id", ["7", "a-1-b", "abcdefgh-0-00000000", "--", "a-\u0661-b", "-" * 99]
)
async def test_invalid_or_foreign_event_id_is_reset(
    server: APIServer, last_id: str
) -> None:
    async with pods_of(server) as (_, pods):
        page = Page(EventStream(pods))
        page.last_id = last_id
        async with page.reading():
            assert page.take()[0] == "reset"


async def test_event_id_of_other_selection_is_reset(server: APIServer) -> None:
    async with pods_of(server) as (_, pods):
        page = Page(EventStream(pods))
        async with page.reading():
            page.take()

        page.query = {"labelSelector": "app=web"}
        async with page.reading():
            assert page.take() == ["reset", "added a", "synced"]


async def test_event_id_can_be_query_parameter(server: APIServer) -> None:
    async with pods_of(server) as (_, pods):
        stream = EventStream(pods)
        page = Page(stream)
        async with page.reading():
            pass

        again = Page(stream, lastEventId=page.last_id)
        async with again.reading():
            assert again.take() == ["synced"]


async def test_slow_reader_gets_current_states(server: APIServer) -> None:
    async with pods_of(server) as (_, pods):
        page = Page(EventStream(pods))
        async with page.reading():
            page.take()
            page.open.clear()
            for number in range(100):
                label = {"metadata": {"labels": {"x": str(number)}}}
                for name in ("a", "b"):
                    server.patch(PODS, name, label, namespace="default")

                server.create(PODS, plain(f"brief-{number}"))
                server.delete(PODS, f"brief-{number}", namespace="default")
                await asyncio.sleep(0.1)

            await settled(server, pods)
            page.open.set()
            await settle()
            assert len(page.events) <= 4, "one chunk was on its way"
            assert page.events[-1].data["metadata"]["labels"]["x"] == "99"


async def test_slow_reader_does_not_delay_others(server: APIServer) -> None:
    async with pods_of(server) as (_, pods):
        stream = EventStream(pods)
        slow, quick = Page(stream), Page(stream)
        slow.open.clear()
        async with slow.reading(), quick.reading():
            assert len(quick.take()) == 4
            assert slow.take() == []
            assert handlers_of(pods) == 1, "they share one"


async def test_at_most_one_chunk_is_encoded_ahead(server: APIServer) -> None:
    for number in range(300):
        server.create(PODS, plain(f"more-{number}", text="x" * 60))

    async with pods_of(server) as (_, pods):
        page = Page(EventStream(pods))
        async with page.reading():
            assert len(page.events) == 304

        assert page.largest < CHUNK + 4000


async def test_heartbeats_keep_silent_stream_open(server: APIServer) -> None:
    async with pods_of(server) as (_, pods):
        page = Page(EventStream(pods, heartbeat=10, label_selector="app=web"))
        async with page.reading():
            before, first = page.comments, page.last_id
            server.create(PODS, plain("c", app="db"))
            await asyncio.sleep(60)
            assert page.comments - before in {5, 6}
            assert page.last_id != first, "what is not for it passes, too"


async def test_stream_waits_for_sync() -> None:
    async with APIServer() as server:
        client = server.client()
        await server.stop()
        factory = SharedInformerFactory(client)
        pods = factory.informer("v1", "pods")
        async with factory:
            page = Page(EventStream(pods, heartbeat=5))
            async with page.reading():
                await asyncio.sleep(20)
                assert page.comments >= 4
                await server.start()
                await pods.wait_synced(timeout=300)
                await asyncio.sleep(1)
                assert page.take() == ["reset", "synced"]


# ---------------------------------------------------------------- projections


def summary(pod: KubeObject) -> dict[str, Any]:
    return {"key": pod.key, "app": pod.labels.get("app")}


async def test_stream_renders_initial_objects_and_changes(server: APIServer) -> None:
    async with pods_of(server) as (_, pods):
        page = Page(EventStream(pods, render=summary))
        async with page.reading():
            listed = [it.data for it in page.events if it.name == "added"]
            page.take()
            label = {"metadata": {"labels": {"app": "api"}}}
            server.patch(PODS, "a", label, namespace="default")
            await settled(server, pods)
            server.delete(PODS, "b", namespace="default")
            await settled(server, pods)

        changed = [(it.name, it.data) for it in page.events]

    assert sorted(listed, key=str) == [
        {"key": "default/a", "app": "web"},
        {"key": "default/b", "app": "db"},
    ]
    assert changed == [
        ("updated", {"key": "default/a", "app": "api"}),
        ("deleted", {"key": "default/b", "app": "db"}),
    ]


async def test_stream_sends_rendered_bytes_as_they_are(server: APIServer) -> None:
    def row(pod: KubeObject) -> bytes:
        return b"<tr>\n  <td>%s</td>\r\n</tr>" % pod.name.encode()

    async with pods_of(server) as (_, pods):
        page = Page(EventStream(pods, label_selector="app=web", render=row))
        chunks: list[bytes] = []

        async def write(chunk: bytes) -> None:
            chunks.append(chunk)

        page.write = write  # type: ignore[method-assign]
        async with page.reading():
            pass

    lines = b"data: <tr>\ndata:   <td>a</td>\ndata: </tr>\n\n"
    assert lines in b"".join(chunks)


async def test_change_is_rendered_once_for_all_readers(server: APIServer) -> None:
    rendered: list[str] = []

    def name(pod: KubeObject) -> dict[str, str]:
        rendered.append(pod.name)
        return {"name": pod.name}

    async with pods_of(server) as (_, pods):
        stream = EventStream(pods, render=name)
        async with Page(stream).reading(), Page(stream).reading():
            server.create(PODS, plain("c"))
            await settled(server, pods)

    assert sorted(rendered) == ["a", "b", "c"]


async def test_recent_projections_are_bounded(
    server: APIServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    rendered: list[str] = []

    def name(pod: KubeObject) -> dict[str, str]:
        rendered.append(pod.name)
        return {"name": pod.name + ("x" * RENDERED_BYTES if pod.name == "b" else "")}

    for number in range(RENDERED):
        server.create(PODS, plain(f"more-{number:03}"))

    async with pods_of(server) as (_, pods):
        stream = EventStream(pods, render=name)
        async with Page(stream).reading():
            pass

        recent = stream._data._recent
        assert len(recent) == RENDERED
        assert all(obj.name != "b" for obj, _ in recent.values()), "it is too large"


@pytest.mark.parametrize(
    ("result", "reason"),
    [
        (ValueError("unknown phase"), "unknown phase"),
        (None, "render returned None"),
        ({"since": object()}, "not JSON serializable: object"),
        (asyncio.sleep, "render returned a coroutine"),
    ],
    ids=["raises", "none", "not-json", "coroutine"],
)
async def test_failure_of_render_leaves_out_only_its_event(
    server: APIServer, caplog: pytest.LogCaptureFixture, result: Any, reason: str
) -> None:
    def render(pod: KubeObject) -> Any:
        if pod.name != "a":
            return {"metadata": {"name": pod.name}}

        if isinstance(result, Exception):
            raise result

        return result(1) if callable(result) else result

    failures: list[HandlerError] = []
    async with server.client() as client:
        factory = SharedInformerFactory(client, on_error=failures.append)
        pods = factory.informer("v1", "pods")
        async with factory:
            stream = EventStream(pods, render=render)
            page, other = Page(stream), Page(stream)
            async with page.reading(), other.reading():
                assert page.take() == ["reset", "added b", "synced"]
                assert other.take() == ["reset", "added b", "synced"]
                server.create(PODS, plain("c"))
                await settled(server, pods)
                assert page.take() == ["added c"]

    (failure,) = failures
    assert failure.where == "render function"
    assert isinstance(failure.subject, KubeObject)
    assert failure.subject.name == "a"
    assert reason in str(failure.__cause__)
    (record,) = caplog.records
    assert "render function" in record.getMessage()
    assert "default/a" in record.getMessage()


@pytest.mark.parametrize("shown", [False, True])
async def test_render_gets_secret_data_only_on_request(
    server: APIServer, shown: bool
) -> None:
    secret = {"metadata": {"name": "key"}, "data": {"password": "c2VzYW0="}}
    server.create(SECRETS, secret)
    async with server.client() as client:
        factory = SharedInformerFactory(client)
        secrets = factory.informer("v1", "secrets")
        async with factory:
            page = Page(EventStream(secrets, secret_data=shown, render=lambda obj: obj))
            async with page.reading():
                (found,) = [it.data for it in page.events if it.name == "added"]

    assert found["metadata"]["name"] == "key"
    assert ("data" in found) is shown


# ---------------------------------------------------------------- who may see what


async def test_stream_sends_its_selection_only(server: APIServer) -> None:
    server.create(PODS, in_shop("c", app="web"))
    server.create(PODS, in_shop("d", app="db"))
    async with pods_of(server) as (_, pods):
        shop = Page(EventStream(pods, namespace="shop"))
        web = Page(EventStream(pods, label_selector="app=web"), namespace="shop")
        async with shop.reading(), web.reading():
            assert sorted(shop.take()) == ["added c", "added d", "reset", "synced"]
            assert web.take() == ["reset", "added c", "synced"]


async def test_query_narrows_stream_and_never_widens_it(server: APIServer) -> None:
    server.create(PODS, in_shop("c", app="web"))
    async with pods_of(server) as (_, pods):
        stream = EventStream(pods, namespace=["default"], label_selector="app=web")
        with pytest.raises(OptionsError, match="namespace 'shop' is not available"):
            stream.check([("namespace", "shop")])

        page = Page(stream, labelSelector="app in (web,db)", cache="no")
        async with page.reading():
            assert page.take() == ["reset", "added a", "synced"]


async def test_stream_can_refuse_queries(server: APIServer) -> None:
    async with pods_of(server) as (_, pods):
        with pytest.raises(SelectorSyntaxError):
            EventStream(pods).check([("labelSelector", "app in")])

        stream = EventStream(pods, query=False)
        stream.check([("other", "x")])
        with pytest.raises(
            OptionsError, match="does not accept namespace= or labelSelector="
        ):
            stream.check([("labelSelector", "app=web")])


@pytest.mark.parametrize(
    "options",
    [
        {"namespace": []},
        {"namespace": ["a", ""]},
        {"heartbeat": 0},
        {"resume_seconds": -1},
        {"render": "spec"},
        {"render": asyncio.sleep},
        {"render": isinstance},
    ],
    ids=["no-namespace", "empty-name", "heartbeat", "resume", "text", "async", "more"],
)
def test_invalid_stream_options_are_refused(options: dict[str, Any]) -> None:
    factory = SharedInformerFactory(Client.from_url("http://127.0.0.1:1"))

    with pytest.raises(OptionsError):
        EventStream(factory.informer("v1", "pods"), **options)


@pytest.mark.parametrize("shown", [False, True])
async def test_secret_data_is_sent_only_on_request(
    server: APIServer, shown: bool
) -> None:
    annotation = "kubectl.kubernetes.io/last-applied-configuration"
    metadata = {"name": "key", "annotations": {annotation: "c2VzYW0=", "mine": "x"}}
    server.create(SECRETS, {"metadata": metadata, "data": {"password": "c2VzYW0="}})
    async with server.client() as client:
        factory = SharedInformerFactory(client)
        secrets = factory.informer("v1", "secrets")
        async with factory:
            page = Page(EventStream(secrets, secret_data=shown))
            async with page.reading():
                (found,) = [it.data for it in page.events if it.name == "added"]

    assert ("c2VzYW0=" in str(found)) is shown
    assert found["metadata"]["annotations"]["mine"] == "x"
    assert found["kind"] == "Secret"


async def test_data_of_secrets_without_kind_is_hidden(server: APIServer) -> None:
    server.create(SECRETS, {"metadata": {"name": "key"}, "data": {"p": "c2VzYW0="}})

    def without_kind(body: dict[str, Any]) -> dict[str, Any]:
        del body["kind"]
        return body

    async with server.client() as client:
        factory = SharedInformerFactory(client)
        secrets = factory.informer(
            "v1", "secrets", transform=transform_dict(without_kind)
        )
        async with factory:
            page = Page(EventStream(secrets))
            async with page.reading():
                (found,) = [it.data for it in page.events if it.name == "added"]

    assert "data" not in found
    assert found["metadata"]["name"] == "key"
