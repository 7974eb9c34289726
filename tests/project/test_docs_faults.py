"""docs/faults.md is true: its tables are complete, and its faults can be observed."""

from __future__ import annotations

import asyncio
import inspect
import re
from dataclasses import MISSING, Field, fields
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest
from doc_blocks import blocks_of
from processes import ROOT

from aioinformer.model.resources import CONFIG_MAPS, PODS
from aioinformer.testing import faults
from aioinformer_apiserver.faults.base import VERBS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from aioinformer.testing import APIServer
    from aioinformer_apiserver.faults import Fault

TEXT = (ROOT / "docs" / "faults.md").read_text(encoding="utf-8")
INTRODUCTION = (ROOT / "docs" / "testing.md").read_text(encoding="utf-8")


def rows(heading: str) -> list[list[str]]:
    """Return the cells of the table whose first column has this heading."""
    table = re.search(
        rf"^\| {heading} \|.*\n\|[-|]+\|\n((?:\|.*\n)+)", TEXT, re.MULTILINE
    )
    assert table is not None, heading
    lines = table[1].splitlines()
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines]


def code(cell: str) -> str:
    return cell.strip("`")


FAULTS = {code(row[0]): row[1:] for row in rows("fault")}
COMMON = {it.name for it in fields(faults.Fault)}


def kind_of(name: str) -> type[Fault]:
    kind: type[Fault] = getattr(faults, name)
    return kind


def a_fault(name: str) -> Fault:
    made: Fault = eval(code(FAULTS[name][-1]), {name: kind_of(name)})
    assert type(made) is kind_of(name)
    return made


def shown_default(option: Field[Any]) -> str:
    if option.default is MISSING:
        return ""

    return repr(option.default).replace("'", '"')


# -------------------------------------------------------------------- its tables


def test_table_of_faults_is_complete() -> None:
    classes = [getattr(faults, name) for name in faults.__all__]
    kinds = {it.__name__ for it in classes if issubclass(it, faults.Fault)}

    assert set(FAULTS) == kinds - {"Fault", "EventFault"}


def test_tables_of_fault_options_are_complete() -> None:
    shown = {
        code(name): code(default.partition(":")[0])
        for name, _, default in rows("option")
    }
    options = {it.name: it for it in fields(faults.Fault)}

    assert list(shown) == list(options)
    assert {name: shown_default(it) for name, it in options.items()} == {
        **shown,
        "verb": '""',
    }
    verbs = rows("option")[0][1].partition(";")[0]
    assert verbs.replace(" or ", ", ") == ", ".join(VERBS)


@pytest.mark.parametrize("name", FAULTS)
def test_documented_verbs_of_a_fault_match(name: str) -> None:
    default, has_effect, *_ = FAULTS[name]
    (option,) = [it for it in fields(kind_of(name)) if it.name == "verb"]

    assert default == (option.default or "any")
    assert has_effect == (", ".join(kind_of(name).acts_on) or "any")


@pytest.mark.parametrize("name", FAULTS)
def test_documented_options_of_a_fault_match(name: str) -> None:
    shown = {
        code(option): code(default)
        for of, option, default, _ in rows("option of")
        if code(of) == name
    }

    options = [it for it in fields(kind_of(name)) if it.name not in COMMON]
    assert shown == {it.name: shown_default(it) for it in options}


def test_documented_options_of_chaos_match() -> None:
    shown = {code(name): code(default) for name, _, default in rows("chaos")}

    parameters = inspect.signature(faults.Chaos).parameters
    assert {
        name: "" if it.default is it.empty else repr(it.default).replace("'", '"')
        for name, it in parameters.items()
    } == shown


def test_introduction_is_short() -> None:
    section = INTRODUCTION.partition("\n## Faults\n")[2].partition("\n## ")[0]

    assert "(faults.md)" in section
    assert len(section.splitlines()) < 60
    assert len(blocks_of(section, "python")) == 1


# -------------------------------------------------------------------- its faults


@pytest.fixture
async def http(apiserver: APIServer) -> AsyncIterator[aiohttp.ClientSession]:
    for number in range(4):
        apiserver.create(CONFIG_MAPS, {"metadata": {"name": f"map-{number}"}})

    timeout = aiohttp.ClientTimeout(total=200)
    async with aiohttp.ClientSession(apiserver.url, timeout=timeout) as session:
        yield session


async def met(server: APIServer, http: aiohttp.ClientSession) -> list[object]:
    """Return all that a client observes in a list of two pages and a short watch."""
    backup = server.snapshot()
    path, watch = "/api/v1/configmaps", "&sendInitialEvents=true&timeoutSeconds=5"
    watch += "&watch=1&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan"
    first = await answer(http, f"{path}?limit=2")
    token = re.search(rb'"continue":"([^"]+)"', first[0])
    page = f"{path}?limit=2&continue={token[1].decode()}" if token else path
    # A token expires only if there is something newer.
    server.create(PODS, {"metadata": {"name": "newer"}})
    second, third = await answer(http, page), await answer(http, f"{path}?{watch}")
    await server.restart(snapshot=backup)
    return [*first, *second, *third]


async def answer(http: aiohttp.ClientSession, path: str) -> tuple[bytes, str, int]:
    """Return the received body, the status or the error, and the seconds."""
    loop = asyncio.get_running_loop()
    body, how, begun = b"", "", loop.time()
    try:
        async with http.get(path) as reply:
            how = f"{reply.status} {reply.content_type} "
            async for some in reply.content.iter_any():
                body += some
    except (aiohttp.ClientError, TimeoutError) as exc:
        how += type(exc).__name__

    return body, how, round(loop.time() - begun)


async def test_client_without_faults_sees_the_same_responses(
    apiserver: APIServer, http: aiohttp.ClientSession
) -> None:
    assert await met(apiserver, http) == await met(apiserver, http)


@pytest.mark.parametrize("name", FAULTS)
async def test_client_observes_the_fault(
    apiserver: APIServer, http: aiohttp.ClientSession, name: str
) -> None:
    usual = await met(apiserver, http)
    apiserver.faults.add(a_fault(name))

    assert await met(apiserver, http) != usual
    assert [it.fault for it in apiserver.faults.struck] == [a_fault(name)]
    apiserver.faults.check()
