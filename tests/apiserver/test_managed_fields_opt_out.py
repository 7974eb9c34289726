"""The gate `ManagedFieldsOptOut`: responses without managed fields, on request.

The expectations are those of Kubernetes 1.38. The other contracts show that servers
without the gate ignore the parameter.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from api_calls import (
    MAPS_PATH,
    a_server,
    a_session,
    make,
    named,
    next_events,
    widget,
)
from each_case import each_case

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    import aiohttp

GATE = "ManagedFieldsOptOut"
JSON = "application/json"
DROP = ";drop=metadata.managedFields"
AS = f"{JSON};g=meta.k8s.io;v=v1;as="
MERGE = {"Content-Type": "application/merge-patch+json"}
WIDGETS_PATH = "/apis/example.com/v1/namespaces/default/widgets"


@pytest.fixture
async def http() -> AsyncIterator[aiohttp.ClientSession]:
    """Yield a session of a server with the gate and two objects."""
    async with (
        a_server(feature_gates={GATE: True}) as server,
        a_session(server) as session,
    ):
        await make(session, MAPS_PATH, named("web", data={"a": "<é>"}))
        await make(session, WIDGETS_PATH, widget("one", spec={"a": 1}))
        yield session


async def text_of(
    http: aiohttp.ClientSession,
    accept: str,
    path: str = f"{MAPS_PATH}/web",
    method: str = "GET",
    body: Any = None,
    headers: Mapping[str, str] | None = None,
    /,
    **query: str,
) -> str:
    headers = {"Accept": accept, "User-Agent": "test", **(headers or {})}
    async with http.request(
        method, path, json=body, headers=headers, params=query
    ) as answer:
        assert answer.status in {200, 201}, await answer.text()
        return await answer.text()


def without_managed_fields(body: Any) -> Any:
    """Return a decoded body without any managed fields, and check that it had them."""
    found = 0

    def copied(value: Any) -> Any:
        nonlocal found
        if isinstance(value, list):
            return [copied(it) for it in value]

        if not isinstance(value, dict):
            return value

        found += "managedFields" in value
        return {key: copied(it) for key, it in value.items() if key != "managedFields"}

    result = copied(body)
    assert found
    return result


@each_case(
    "accept, path, query",
    [
        (JSON, f"{MAPS_PATH}/web", {}),
        (JSON, MAPS_PATH, {}),
        (JSON, f"{WIDGETS_PATH}/one", {}),
        (JSON, WIDGETS_PATH, {}),
        (f"{AS}PartialObjectMetadata", f"{MAPS_PATH}/web", {}),
        (f"{AS}PartialObjectMetadataList", MAPS_PATH, {}),
        (f"{AS}PartialObjectMetadataList", WIDGETS_PATH, {}),
        (f"{AS}Table", MAPS_PATH, {}),
        (f"{AS}Table", MAPS_PATH, {"includeObject": "Object"}),
        (f"{AS}Table", WIDGETS_PATH, {"includeObject": "Object"}),
    ],
)
async def test_reads_have_everything_but_managed_fields(
    http: aiohttp.ClientSession, accept: str, path: str, query: dict[str, str]
) -> None:
    full = json.loads(await text_of(http, accept, path, **query))
    found = await text_of(http, accept + DROP, path, **query)
    assert json.loads(found) == without_managed_fields(full)

    found = await text_of(
        http, f"{accept}{DROP}".replace("json", "yaml"), path, **query
    )
    assert yaml.safe_load(found) == without_managed_fields(full)


@pytest.mark.parametrize("path", [MAPS_PATH, WIDGETS_PATH])
async def test_writes_return_no_managed_fields_and_keep_the_stored_ones(
    http: aiohttp.ClientSession, path: str
) -> None:
    accept, one = JSON + DROP, f"{path}/b"
    body = (
        widget("b", spec={"a": 1})
        if path == WIDGETS_PATH
        else named("b", data={"a": "1"})
    )
    texts = [await text_of(http, accept, path, "POST", body)]
    read = json.loads(await text_of(http, accept, one))
    read["metadata"]["labels"] = {"changed": "true"}
    texts.append(await text_of(http, accept, one, "PUT", read))
    patch = {"metadata": {"labels": {"patched": "true"}}}
    texts.append(await text_of(http, accept, one, "PATCH", patch, MERGE))

    stored = json.loads(await text_of(http, JSON, one))["metadata"]["managedFields"]
    assert len(stored) >= 1
    texts.append(await text_of(http, accept, path, "DELETE"))
    assert [json.loads(it)["kind"] for it in texts]
    assert not [it for it in texts if "managedFields" in it]


@pytest.mark.parametrize("as_", ["", ";g=meta.k8s.io;v=v1;as=PartialObjectMetadata"])
async def test_watches_with_and_without_drop_get_the_same_events(
    http: aiohttp.ClientSession, as_: str
) -> None:
    async def watch(accept: str) -> aiohttp.ClientResponse:
        return await http.get(
            MAPS_PATH, params={"watch": "true"}, headers={"Accept": accept}
        )

    async with await watch(JSON + as_) as full, await watch(JSON + as_ + DROP) as less:
        await make(http, MAPS_PATH, named("b", data={"a": "1"}))
        patch = {"data": {"a": "2"}}
        await text_of(http, JSON, f"{MAPS_PATH}/b", "PATCH", patch, MERGE)
        await text_of(http, JSON, f"{MAPS_PATH}/b", "DELETE")
        events = await next_events(full, 4)
        assert [it["type"] for it in events] == [
            "ADDED",
            "ADDED",
            "MODIFIED",
            "DELETED",
        ]
        assert all(it["object"]["metadata"]["managedFields"] for it in events)
        assert await next_events(less, 4) == without_managed_fields(events)


async def test_other_values_of_drop_make_the_next_type_count(
    http: aiohttp.ClientSession,
) -> None:
    full = await text_of(http, JSON)

    for other in ("spec", "metadata.managedFields+spec", "metadata"):
        assert await text_of(http, f"{JSON};drop={other},{JSON}") == full
        async with http.get(
            f"{MAPS_PATH}/web", headers={"Accept": f"{JSON};drop={other}"}
        ) as answer:
            assert answer.status == 406

    assert await text_of(http, f"{JSON};drop=,{JSON}{DROP}") == full


async def test_gate_is_switched_by_a_restart() -> None:
    async with a_server() as server, a_session(server) as http:
        await make(http, MAPS_PATH, named("web", data={"a": "1"}))
        for on in (False, True, False):
            server.feature_gates = {GATE: on}
            await server.restart()
            assert ("managedFields" in await text_of(http, JSON + DROP)) != on
