"""Lists: shape, order, compression, and pages."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any

import pytest
from api_calls import (
    WIDGETS_GROUP,
    an_event,
    ask,
    change,
    make,
    named,
    names,
    newest,
    raw,
    remove,
    version_of,
    widget,
)
from each_case import each_case

if TYPE_CHECKING:
    import aiohttp
    from contract_servers import ServerUnderTest


async def fill(http: aiohttp.ClientSession, path: str, count: int) -> None:
    for number in range(count):
        await make(http, path, named(f"map-{number}", labels={"app": "web"}))


def content_of(token: str) -> dict[str, Any]:
    padded = token + "=" * (-len(token) % 4)
    content: dict[str, Any] = json.loads(base64.urlsafe_b64decode(padded))
    return content


def token_of(content: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(content).encode()).decode().rstrip("=")


# -------------------------------------------------------------------- shapes


async def test_items_of_builtin_kinds_have_no_type(
    target: ServerUnderTest, http: aiohttp.ClientSession
) -> None:
    path = target.path("configmaps")
    made = await make(http, path, named("a", data={"x": "y"}))

    _, found = await ask(http, "GET", path)

    assert list(found) == ["kind", "apiVersion", "metadata", "items"]
    assert (found["kind"], found["apiVersion"]) == ("ConfigMapList", "v1")
    assert list(found["metadata"]) == ["resourceVersion"]
    assert version_of(found) >= version_of(made)
    del made["kind"], made["apiVersion"]
    assert found["items"] == [made]


async def test_items_of_custom_kinds_have_type(
    target: ServerUnderTest, http: aiohttp.ClientSession
) -> None:
    path = target.path("widgets", WIDGETS_GROUP)
    made = await make(http, path, widget("a", spec={"z": 1, "a": 2}))

    _, found = await ask(http, "GET", path)

    assert list(found) == ["apiVersion", "items", "kind", "metadata"]
    assert (found["kind"], found["apiVersion"]) == ("WidgetList", "example.com/v1")
    assert found["items"] == [made]
    assert list(found["metadata"]) == ["continue", "resourceVersion"]
    assert found["metadata"]["continue"] == ""


@pytest.mark.parametrize("custom", [False, True], ids=["typed", "custom"])
async def test_empty_list_has_items_and_newest_version(
    target: ServerUnderTest, http: aiohttp.ClientSession, custom: bool
) -> None:
    made = await make(http, target.path("configmaps"), named("elsewhere"))
    path = target.path("widgets", WIDGETS_GROUP) if custom else target.path("secrets")

    _, found = await ask(http, "GET", path)

    assert found["items"] == []
    assert version_of(found) >= version_of(made)


async def test_list_of_missing_namespace_is_empty(
    target: ServerUnderTest, http: aiohttp.ClientSession
) -> None:
    path = f"/api/v1/namespaces/no-{target.namespace}/configmaps"

    code, found = await ask(http, "GET", path)

    assert (code, found["items"]) == (200, [])


async def test_list_is_sorted_by_key(
    target: ServerUnderTest, http: aiohttp.ClientSession
) -> None:
    """The key is "namespace/name", and a dash sorts before the slash."""
    other = f"{target.namespace}-b"
    await make(http, "/api/v1/namespaces", named(other))
    for namespace in (target.namespace, other):
        for name in ("z", "b"):
            path = f"/api/v1/namespaces/{namespace}/configmaps"
            await make(http, path, named(name))

    _, found = await ask(http, "GET", "/api/v1/configmaps")

    keys = [
        (it["metadata"]["namespace"], it["metadata"]["name"]) for it in found["items"]
    ]
    ours = [key for key in keys if key[0].startswith(target.namespace)]
    assert ours == [
        (other, "b"),
        (other, "z"),
        (target.namespace, "b"),
        (target.namespace, "z"),
    ]
    await remove(http, f"/api/v1/namespaces/{other}")


async def test_large_list_is_gzipped_on_request(
    target: ServerUnderTest, http: aiohttp.ClientSession
) -> None:
    path = target.path("configmaps")
    for number in range(4):
        await make(http, path, named(f"map-{number}", data={"x": "y" * 40_000}))

    async with http.get(path, headers={"Accept-Encoding": "gzip"}) as answer:
        zipped = await answer.json()
        assert answer.headers["Content-Encoding"] == "gzip"

    async with http.get(path, headers={"Accept-Encoding": "identity"}) as answer:
        plain = await answer.json()
        assert "Content-Encoding" not in answer.headers

    assert zipped["items"] == plain["items"]
    assert len(plain["items"]) == 4


async def test_small_list_is_not_gzipped(
    target: ServerUnderTest, http: aiohttp.ClientSession
) -> None:
    path = target.path("configmaps")
    await make(http, path, named("a", data={"x": "y" * 40_000}))

    async with http.get(path, headers={"Accept-Encoding": "gzip"}) as answer:
        assert "Content-Encoding" not in answer.headers
        assert names(await answer.json()) == ["a"]


async def test_responses_forbid_caching(
    target: ServerUnderTest, http: aiohttp.ClientSession
) -> None:
    path = target.path("configmaps")
    for params in ({}, {"watch": "1", "timeoutSeconds": "1", "resourceVersion": "x"}):
        async with http.get(path, params=params) as answer:
            assert answer.headers["Content-Type"] == "application/json"
            assert answer.headers["Cache-Control"] == "no-cache, private"


# -------------------------------------------------------------------- pages


async def test_pages_add_up_to_whole_list(
    target: ServerUnderTest, http: aiohttp.ClientSession
) -> None:
    path = target.path("configmaps")
    await fill(http, path, 5)
    _, page = await ask(http, "GET", path, limit="2")
    pages = [page]
    while token := page["metadata"].get("continue"):
        _, page = await ask(http, "GET", path, **{"limit": "2", "continue": token})
        pages.append(page)

    assert [names(page) for page in pages] == [
        ["map-0", "map-1"],
        ["map-2", "map-3"],
        ["map-4"],
    ]
    assert [it["metadata"].get("remainingItemCount") for it in pages] == [3, 1, None]
    assert len({version_of(page) for page in pages}) == 1


async def test_last_page_has_no_continue_token(
    target: ServerUnderTest, http: aiohttp.ClientSession
) -> None:
    path = target.path("configmaps")
    await fill(http, path, 2)

    _, found = await ask(http, "GET", path, limit="2")

    assert list(found["metadata"]) == ["resourceVersion"]


async def test_pages_of_custom_kinds_have_sorted_keys(
    target: ServerUnderTest, http: aiohttp.ClientSession
) -> None:
    path = target.path("widgets", WIDGETS_GROUP)
    for name in ("a", "b"):
        await make(http, path, widget(name))

    _, found = await ask(http, "GET", path, limit="1")

    assert list(found["metadata"]) == [
        "continue",
        "remainingItemCount",
        "resourceVersion",
    ]


async def test_later_pages_show_state_of_first_page(
    target: ServerUnderTest, http: aiohttp.ClientSession
) -> None:
    path = target.path("configmaps")
    await fill(http, path, 4)
    _, first = await ask(http, "GET", path, limit="1")
    await remove(http, f"{path}/map-1")
    await change(http, f"{path}/map-2", {"data": {"new": "1"}})
    await make(http, path, named("map-9"))

    token = first["metadata"]["continue"]
    _, rest = await ask(http, "GET", path, **{"continue": token})
    _, now = await ask(http, "GET", path)

    assert names(rest) == ["map-1", "map-2", "map-3"]
    assert "data" not in rest["items"][1]
    assert version_of(rest) == version_of(first)
    assert names(now) == ["map-0", "map-2", "map-3", "map-9"]


async def test_continue_token_works_with_version_zero_and_other_selectors(
    target: ServerUnderTest, http: aiohttp.ClientSession
) -> None:
    path = target.path("configmaps")
    await fill(http, path, 3)
    _, first = await ask(http, "GET", path, limit="1")
    more = {"continue": first["metadata"]["continue"]}

    _, zero = await ask(http, "GET", path, resourceVersion="0", **more)
    _, none = await ask(http, "GET", path, labelSelector="app=other", **more)
    _, secrets = await ask(http, "GET", target.path("secrets"), **more)

    assert (names(zero), names(none), names(secrets)) == (["map-1", "map-2"], [], [])
    assert version_of(secrets) == version_of(first)


async def test_selector_hides_remaining_item_count(
    target: ServerUnderTest, http: aiohttp.ClientSession
) -> None:
    path = target.path("configmaps")
    await fill(http, path, 3)

    _, found = await ask(http, "GET", path, limit="1", labelSelector="app=web")

    assert names(found) == ["map-0"]
    assert list(found["metadata"]) == ["resourceVersion", "continue"]


async def test_last_page_with_selector_may_be_empty(
    target: ServerUnderTest, http: aiohttp.ClientSession
) -> None:
    """Only the next request finds out whether more items match."""
    path = target.path("configmaps")
    await fill(http, path, 2)
    await make(http, path, named("other"))

    _, full = await ask(http, "GET", path, limit="2", labelSelector="app=web")
    more = {"continue": full["metadata"]["continue"], "labelSelector": "app=web"}
    _, last = await ask(http, "GET", path, limit="2", **more)

    assert names(full) == ["map-0", "map-1"]
    assert (names(last), "continue" in last["metadata"]) == ([], False)


async def test_list_by_name_has_one_page(
    target: ServerUnderTest, http: aiohttp.ClientSession
) -> None:
    path = target.path("configmaps")
    await fill(http, path, 2)

    _, found = await ask(
        http, "GET", path, limit="1", fieldSelector="metadata.name=map-0"
    )

    assert names(found) == ["map-0"]
    assert "continue" not in found["metadata"]


# -------------------------------------------------------------------- tokens


async def test_continue_token_contains_version_and_start_key(
    target: ServerUnderTest, http: aiohttp.ClientSession
) -> None:
    """Clients print tokens, and old tokens are sent to new servers."""
    path, events = target.path("configmaps"), target.path("events")
    await fill(http, path, 2)
    for name in ("a", "b"):
        await make(http, events, an_event(name, target.namespace))

    _, cached = await ask(http, "GET", path, limit="1")
    _, uncached = await ask(http, "GET", events, limit="1")

    assert content_of(cached["metadata"]["continue"]) == {
        "v": "meta.k8s.io/v1",
        "rv": version_of(cached),
        "start": "/map-0\0",
    }
    assert content_of(uncached["metadata"]["continue"])["start"] == "a\0"


async def test_continue_token_without_version_lists_current_state(
    target: ServerUnderTest, http: aiohttp.ClientSession
) -> None:
    path = target.path("configmaps")
    await fill(http, path, 3)
    token = token_of({"v": "meta.k8s.io/v1", "rv": -1, "start": "map-0\0"})

    code, found = await ask(http, "GET", path, limit="1", **{"continue": token})

    assert (code, names(found)) == (200, ["map-1"])
    # From here on the pages are consistent again.
    following = content_of(found["metadata"]["continue"])
    assert following["rv"] == version_of(found)


@pytest.mark.alone
async def test_expired_continue_token_is_410_with_new_token(
    target: ServerUnderTest, http: aiohttp.ClientSession
) -> None:
    # Events, because a real server keeps past states of other kinds in its watch
    # cache.
    path = target.path("events")
    for name in ("a", "b", "c"):
        await make(http, path, an_event(name, target.namespace))

    _, first = await ask(http, "GET", path, limit="1")
    await make(http, path, an_event("d", target.namespace))
    await target.compact()
    more = {"continue": first["metadata"]["continue"]}
    code, status = await ask(http, "GET", path, limit="1", **more)

    assert (code, status["code"], status["reason"]) == (410, 410, "Expired")
    assert status["message"].startswith(
        "The provided continue parameter is too old to display a consistent list "
        "result. You can start a new list without the continue parameter, or use the "
        "continue token in this response to retrieve the remainder of the results."
    )
    assert list(status["metadata"]) == ["continue"]
    offered = status["metadata"]["continue"]
    assert content_of(offered)["rv"] == -1
    _, rest = await ask(http, "GET", path, **{"continue": offered})
    assert names(rest) == ["b", "c", "d"]
    assert version_of(rest) > version_of(first)


@each_case(
    "token, why",
    [
        ("!", "illegal base64 data at input byte 0"),
        ("x", "illegal base64 data at input byte 0"),
        ("abcd=", "illegal base64 data at input byte 4"),
        ("a+/b", "illegal base64 data at input byte 1"),
        ("nonsense", ""),
        (token_of("text"), ""),
        (token_of([]), ""),
        (token_of({"v": "meta.k8s.io/v1", "rv": "5", "start": "x"}), ""),
        (token_of({"v": "meta.k8s.io/v1", "rv": 5.5, "start": "x"}), ""),
        (token_of({}), "server does not recognize this encoded version "),
        (
            token_of({"v": "meta.k8s.io/v2", "rv": 5, "start": "x"}),
            "server does not recognize this encoded version meta.k8s.io/v2",
        ),
        (
            token_of({"v": "meta.k8s.io/v1", "start": "x"}),
            "incorrect encoded start resourceVersion (version meta.k8s.io/v1)",
        ),
        (
            token_of({"v": "meta.k8s.io/v1", "rv": 5}),
            "encoded start key empty (version meta.k8s.io/v1)",
        ),
        (token_of({"v": "meta.k8s.io/v1", "rv": 5, "start": "/../x"}), "/../x"),
    ],
)
async def test_malformed_continue_token_is_400(
    target: ServerUnderTest, http: aiohttp.ClientSession, token: str, why: str
) -> None:
    path = target.path("configmaps")

    code, status = await ask(http, "GET", path, **{"continue": token})

    assert (code, status["reason"]) == (400, "BadRequest")
    beginning = "invalid continue token: continue key is not valid: "
    assert status["message"].startswith(beginning)
    if why:
        assert status["message"] == beginning + why


async def test_continue_token_with_other_version_is_400(
    target: ServerUnderTest, http: aiohttp.ClientSession
) -> None:
    path = target.path("configmaps")
    version = await newest(http, path)
    token = token_of({"v": "meta.k8s.io/v1", "rv": version, "start": "x"})

    for requested in ("5", "abc"):
        params = {"continue": token, "resourceVersion": requested}
        code, status = await ask(http, "GET", path, **params)

        assert code == 400
        assert status["message"] == (
            "specifying resource version is not allowed when using continue"
        )


async def test_list_accepts_items_that_contain_text_of_lists(
    target: ServerUnderTest, http: aiohttp.ClientSession
) -> None:
    """The parts of a list are not confused with the content of its items."""
    path = target.path("widgets", WIDGETS_GROUP)
    tricky = {"items": [], "text": '"items":[', "kind": "WidgetList"}
    await make(http, path, widget("a", spec=tricky))

    found = json.loads(await raw(http, path))

    assert found["items"][0]["spec"] == tricky
    assert names(found) == ["a"]
