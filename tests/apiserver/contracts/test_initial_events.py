"""Initial events of watches, and bookmarks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from api_calls import (
    WIDGETS_GROUP,
    all_events,
    an_event,
    ask,
    make,
    named,
    newest,
    next_events,
    settle,
    types_and_names,
    version_of,
    versions,
    watching,
    widget,
)
from each_case import each_case

if TYPE_CHECKING:
    import aiohttp
    from contract_servers import ServerUnderTest

STREAMING = {
    "sendInitialEvents": "true",
    "resourceVersionMatch": "NotOlderThan",
    "allowWatchBookmarks": "true",
}
END = {"k8s.io/initial-events-end": "true"}


@pytest.mark.parametrize("version", ["", "0", "1"])
@pytest.mark.parametrize("plural", ["configmaps", "widgets", "events"])
async def test_initial_events_end_with_annotated_bookmark(
    target: ServerUnderTest, http: aiohttp.ClientSession, plural: str, version: str
) -> None:
    path = target.path(plural, WIDGETS_GROUP if plural == "widgets" else "api/v1")

    async def made(name: str) -> dict[str, Any]:
        bodies = {
            "configmaps": named(name),
            "widgets": widget(name),
            "events": an_event(name, target.namespace),
        }
        return await make(http, path, bodies[plural])

    last = [await made(name) for name in ("b", "a")][-1]
    await settle(http, path, last)
    async with watching(http, path, **STREAMING, resourceVersion=version) as watch:
        initial = await next_events(watch, 3)
        await made("c")
        later = await next_events(watch, 1)

    assert types_and_names(initial) == [
        ("ADDED", "a"),
        ("ADDED", "b"),
        ("BOOKMARK", ""),
    ]
    mark = initial[2]["object"]
    assert mark["metadata"]["annotations"] == END
    assert version_of(last) <= version_of(mark) < versions(later)[0]
    assert types_and_names(later) == [("ADDED", "c")]


async def test_initial_events_of_empty_collection_end_at_once(
    target: ServerUnderTest, http: aiohttp.ClientSession
) -> None:
    path = target.path("configmaps")

    async with watching(http, path, **STREAMING, labelSelector="none") as watch:
        (event,) = await next_events(watch, 1)

    assert event["object"]["metadata"]["annotations"] == END


async def test_initial_events_without_bookmarks_have_no_end_mark(
    target: ServerUnderTest, http: aiohttp.ClientSession
) -> None:
    path = target.path("configmaps")
    await make(http, path, named("a"))
    params = {**STREAMING, "allowWatchBookmarks": "false", "timeoutSeconds": "1"}

    async with watching(http, path, **params) as watch:
        assert types_and_names(await all_events(watch)) == [("ADDED", "a")]


@pytest.mark.parametrize("params", [{}, {"resourceVersion": "0"}], ids=str)
@pytest.mark.parametrize("plural", ["configmaps", "events"])
async def test_watch_without_version_ends_initial_events_with_bookmark(
    target: ServerUnderTest,
    http: aiohttp.ClientSession,
    plural: str,
    params: dict[str, str],
) -> None:
    """The server sends it although the client has not requested it."""
    path = target.path(plural)
    body = an_event("a", target.namespace) if plural == "events" else named("a")
    await settle(http, path, await make(http, path, body))

    async with watching(http, path, allowWatchBookmarks="yes", **params) as watch:
        events = await next_events(watch, 2)

    assert types_and_names(events) == [("ADDED", "a"), ("BOOKMARK", "")]
    assert events[1]["object"]["metadata"]["annotations"] == END


async def test_watch_from_version_has_no_initial_events_bookmark(
    target: ServerUnderTest, http: aiohttp.ClientSession
) -> None:
    path = target.path("configmaps")
    version = str(await newest(http, path))
    params = {"allowWatchBookmarks": "true", "timeoutSeconds": "1"}

    async with watching(http, path, resourceVersion=version, **params) as watch:
        marks = await all_events(watch)

    assert all(it["type"] == "BOOKMARK" for it in marks)
    assert not any("annotations" in it["object"]["metadata"] for it in marks)


@pytest.mark.parametrize("version", ["", "0"])
async def test_initial_events_can_be_disabled(
    target: ServerUnderTest, http: aiohttp.ClientSession, version: str
) -> None:
    path = target.path("configmaps")
    await make(http, path, named("a"))
    params = {**STREAMING, "sendInitialEvents": "false", "resourceVersion": version}

    async with watching(http, path, **params) as watch:
        await make(http, path, named("b"))
        assert types_and_names(await next_events(watch, 1)) == [("ADDED", "b")]


async def test_watch_without_initial_events_sends_history(
    target: ServerUnderTest, http: aiohttp.ClientSession
) -> None:
    path = target.path("configmaps")
    made = await make(http, path, named("a"))
    await make(http, path, named("b"))
    params = {**STREAMING, "sendInitialEvents": "false"}
    version = made["metadata"]["resourceVersion"]

    async with watching(http, path, **params, resourceVersion=version) as watch:
        assert types_and_names(await next_events(watch, 1)) == [("ADDED", "b")]


@pytest.mark.parametrize("plural", ["configmaps", "events"])
async def test_initial_events_at_future_version_are_error_event(
    target: ServerUnderTest, http: aiohttp.ClientSession, plural: str
) -> None:
    path = target.path(plural)

    async with watching(http, path, resourceVersion="1000000000", **STREAMING) as it:
        (event,) = await all_events(it)

    status = event["object"]
    assert (event["type"], status["code"]) == ("ERROR", 504)
    assert status["reason"] == "Timeout"
    assert status["message"].startswith(
        "Timeout: Too large resource version: 1000000000, current: "
    )
    # Without a watch cache a real server picks the number.
    assert 1 <= status["details"]["retryAfterSeconds"] <= 3


# -------------------------------------------------------------------- combinations

UNLESS_GIVEN = (
    "Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided"
)
WITH_CONTINUE = "Forbidden: resourceVersionMatch is forbidden when continue is provided"
FOR_LIST = "Forbidden: sendInitialEvents is forbidden for list"
FOR_WATCH = (
    "Forbidden: resourceVersionMatch is forbidden for watch unless sendInitialEvents "
    "is provided"
)
REQUIRES = (
    "Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"
)
MATCH, INITIAL = "resourceVersionMatch", "sendInitialEvents"


@each_case(
    "params, problems",
    [
        ({MATCH: "Exact"}, {UNLESS_GIVEN: MATCH}),
        ({MATCH: "NotOlderThan"}, {UNLESS_GIVEN: MATCH}),
        (
            {MATCH: "Exact", "continue": "x"},
            {UNLESS_GIVEN: MATCH, WITH_CONTINUE: MATCH},
        ),
        (
            {MATCH: "Newer", "resourceVersion": "1"},
            {
                'Unsupported value: "Newer": supported values: "Exact", '
                '"NotOlderThan", ""': MATCH
            },
        ),
        (
            {MATCH: "Exact", "resourceVersion": "0"},
            {
                'Forbidden: resourceVersionMatch "exact" is forbidden for '
                'resourceVersion "0"': MATCH
            },
        ),
        ({INITIAL: "true"}, {FOR_LIST: INITIAL}),
        ({INITIAL: ""}, {FOR_LIST: INITIAL}),
        (
            {INITIAL: "true", MATCH: "NotOlderThan"},
            {UNLESS_GIVEN: MATCH, FOR_LIST: INITIAL},
        ),
        ({"watch": "1", INITIAL: "true"}, {REQUIRES: MATCH}),
        ({"watch": "1", INITIAL: "false"}, {REQUIRES: MATCH}),
        (
            {"watch": "1", INITIAL: "true", MATCH: "Exact"},
            {
                REQUIRES: MATCH,
                'Unsupported value: "Exact": supported values: "NotOlderThan"': MATCH,
            },
        ),
        ({"watch": "1", MATCH: "NotOlderThan"}, {FOR_WATCH: MATCH}),
        (
            {"watch": "1", MATCH: "x", "resourceVersion": "1"},
            {
                FOR_WATCH: MATCH,
                'Unsupported value: "x": supported values: "NotOlderThan"': MATCH,
            },
        ),
        ({"watch": "1", "continue": "x"}, {WITH_CONTINUE: MATCH}),
        ({"watch": "1", "continue": "x", **STREAMING}, {WITH_CONTINUE: MATCH}),
    ],
)
async def test_contradictory_watch_options_are_422(
    target: ServerUnderTest,
    http: aiohttp.ClientSession,
    params: dict[str, str],
    problems: dict[str, str],
) -> None:
    code, status = await ask(http, "GET", target.path("configmaps"), **params)

    told_ = [f"{field}: {problem}" for problem, field in problems.items()]
    why = told_[0] if len(told_) == 1 else f"[{', '.join(told_)}]"
    assert (code, status["reason"]) == (422, "Invalid")
    assert status["message"] == f'ListOptions.meta.k8s.io "" is invalid: {why}'
    details: dict[str, Any] = status["details"]
    assert (details["group"], details["kind"]) == ("meta.k8s.io", "ListOptions")
    assert [(it["message"], it["field"]) for it in details["causes"]] == list(
        problems.items()
    )
    reasons = {it["reason"] for it in details["causes"]}
    assert reasons <= {"FieldValueForbidden", "FieldValueNotSupported"}


async def test_watch_from_version_ignores_continue_token(
    target: ServerUnderTest, http: aiohttp.ClientSession
) -> None:
    path = target.path("configmaps")
    version = str(await newest(http, path))

    async with watching(
        http, path, **{"resourceVersion": version, "continue": "x"}
    ) as watch:
        await make(http, path, named("a"))
        assert types_and_names(await next_events(watch, 1)) == [("ADDED", "a")]


# -------------------------------------------------------------------- bookmarks


async def test_bookmark_is_sent_before_watch_timeout(
    target: ServerUnderTest, http: aiohttp.ClientSession
) -> None:
    """Two seconds let the next watch start at a fresh version.

    A real server sends it only if the version has changed and the client has requested
    bookmarks. It sends none for events, which have no watch cache.
    """
    path, events = target.path("configmaps"), target.path("events")
    version = str(await newest(http, path))
    requested = {"resourceVersion": version, "allowWatchBookmarks": "true"}
    # All three at once, because a real server takes real seconds.
    async with (
        watching(http, path, **requested, timeoutSeconds="3") as marked,
        watching(http, path, resourceVersion=version, timeoutSeconds="3") as plain,
        watching(http, events, **requested, timeoutSeconds="3") as of_events,
    ):
        await make(http, events, an_event("a", target.namespace))
        last = await make(http, path, named("a"))
        told_ = [await all_events(it) for it in (marked, plain, of_events)]

    assert types_and_names(told_[0])[:2] == [("ADDED", "a"), ("BOOKMARK", "")]
    mark = told_[0][1]["object"]
    assert version_of(mark) >= version_of(last)
    assert list(mark["metadata"]) == ["resourceVersion"]
    assert types_and_names(told_[1]) == types_and_names(told_[2]) == [("ADDED", "a")]
