"""Feature gates, switched while clients are connected. Shards show whether one is on."""

from __future__ import annotations

from typing import Any

import pytest
from api_calls import (
    MAPS_PATH,
    a_server,
    a_session,
    all_events,
    ask,
    make,
    named,
    names,
    next_events,
    types_and_names,
    watching,
)

from aioinformer.errors import OptionsError
from aioinformer.model.shards import HASHES
from aioinformer.testing import APIServer

GATE = "ShardedListAndWatch"
NONE = "shardRange(object.metadata.uid, '0x0000000000000000', '0x0000000000000001')"
ALL = f"shardRange(object.metadata.uid, '0x0000000000000000', '{HASHES:#x}')"


async def test_shard_selector_is_ignored_by_default() -> None:
    async with a_server() as server, a_session(server) as http:
        await make(http, MAPS_PATH, named("a"))

        for selector in (NONE, "malformed ("):
            code, found = await ask(http, "GET", MAPS_PATH, shardSelector=selector)
            assert (code, names(found)) == (200, ["a"])
            assert "shardInfo" not in found["metadata"]
            async with watching(http, MAPS_PATH, shardSelector=selector) as watch:
                assert types_and_names(await next_events(watch, 1)) == [("ADDED", "a")]

        code, deleted = await ask(http, "DELETE", MAPS_PATH, shardSelector=NONE)
        assert (code, names(deleted)) == (200, ["a"])


async def test_gate_is_switched_by_a_restart() -> None:
    async with a_server() as server, a_session(server) as http:
        made = await make(http, MAPS_PATH, named("a"))
        version = made["metadata"]["resourceVersion"]
        for on in (True, False, True):
            server.feature_gates = {GATE: on}
            await server.restart()

            _, found = await ask(http, "GET", MAPS_PATH, shardSelector=NONE)
            assert (names(found) == []) == on
            assert ("shardInfo" in found["metadata"]) == on
            async with watching(
                http,
                MAPS_PATH,
                resourceVersion=version,
                shardSelector=NONE,
                timeoutSeconds="1",
            ) as watch:
                name = f"b-{found['metadata']['resourceVersion']}"
                made = await make(http, MAPS_PATH, named(name))
                version = made["metadata"]["resourceVersion"]
                events = await all_events(watch)

            assert types_and_names(events) == ([] if on else [("ADDED", name)])


async def test_open_watch_keeps_its_gate() -> None:
    async with (
        a_server(feature_gates={GATE: True}) as server,
        a_session(server) as http,
        watching(http, MAPS_PATH, shardSelector=NONE) as watch,
        watching(http, MAPS_PATH, shardSelector=ALL) as other,
    ):
        server.feature_gates = {}
        await make(http, MAPS_PATH, named("a"))
        assert types_and_names(await next_events(other, 1)) == [("ADDED", "a")]
        await server.stop()

        assert await all_events(watch) == []


def test_gates_are_shown_with_their_defaults() -> None:
    server = APIServer()
    assert server.feature_gates == {"ManagedFieldsOptOut": False, GATE: False}

    server.feature_gates = {GATE: True}
    assert server.feature_gates == {"ManagedFieldsOptOut": False, GATE: True}

    server.feature_gates = {}
    assert server.feature_gates == {"ManagedFieldsOptOut": False, GATE: False}


def test_unknown_gate_is_refused_and_changes_nothing() -> None:
    server, wrong = APIServer(feature_gates={GATE: True}), {"Unheard": True}
    with pytest.raises(OptionsError, match="this server has ManagedFieldsOptOut, Sh"):
        server.feature_gates = wrong

    gates: Any = server.feature_gates
    with pytest.raises(TypeError):
        gates["Unheard"] = True

    assert server.feature_gates[GATE]
