"""The dashboard in a real browser: all views, outages, hostile texts, many rows."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote

import pytest
from aiohttp import web
from dashboard_pictures import PICTURES, VIEWS, dressed, take
from dashboard_shop import CRASHING, shop
from informers import plain
from leader_helpers import forever
from processes import in_real_time
from site_browser import BROWSERS, find_chromium, started
from web_hosts import by_aiohttp

from aioinformer import LeaderElector, Manager, Resource, SharedInformerFactory
from aioinformer.controller import LeaseLock
from aioinformer.model.resources import EVENTS, PODS
from aioinformer.testing import APIServer
from aioinformer.web.aiohttp import dashboard

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from site_browser import Browser

WIDGETS = Resource("example.com", "v1", "widgets", "Widget")

BROWSER = find_chromium() or ""

pytestmark = [
    *in_real_time,
    pytest.mark.skipif(not BROWSER, reason=f"no browser here: none of {BROWSERS}"),
]

SHOWN = {
    "overview": ["pods", "probes", "1 request fails: Conflict of shop/"],
    "objects": [CRASHING, "CrashLoopBackOff", "RESTARTS"],
    "object": ["BackOff", "Reconciled by", "restartCount", "mailer-5d8c"],
    "controller": ["Conflict", CRASHING, "Recent reconciles"],
}
"""What each view shows at last."""

TEXT = "(document.body?.innerText ?? '')"

# Elements that are cut off at the right, without a box around them that scrolls.
TOO_WIDE = """
  [...document.querySelectorAll('main *')]
    .filter(it => it.getBoundingClientRect().right > innerWidth + 1)
    .filter(it => { for (let up = it; up && up.tagName !== 'MAIN'; up = up.parentElement)
                      if (getComputedStyle(up).overflowX !== 'visible') return false;
                    return true; })
    .map(it => it.tagName + '.' + it.className).join(' ')
"""

# Figures of the manager with a warning.
MARKED = """
  ([...document.querySelectorAll('.tile.small')]
    .filter(it => it.querySelector('h3').textContent === 'Manager')
    .flatMap(it => [...it.querySelectorAll('dd.warning')].map(dd => dd.textContent))
    .join(' '))
"""

# Controls without a name, and pictures without a text.
NAMELESS = """
  [...document.querySelectorAll('button, a[href], input, select, [role=img], img')]
    .filter(it => it.checkVisibility())
    .filter(it => !(it.textContent.trim() || it.ariaLabel || it.title || it.labels?.length
                    || it.getAttribute('aria-labelledby') || it.alt))
    .map(it => it.outerHTML.slice(0, 100)).join(' ')
"""


async def shows(tab: Browser, *texts: str) -> None:
    """Wait until the page shows texts."""
    for text in texts:
        try:
            async with asyncio.timeout(20):
                await tab.until(f"{TEXT}.includes({json.dumps(text)})")
        except TimeoutError:
            shown = await tab.run(f"{TEXT}.slice(0, 2000)")
            pytest.fail(f"{text!r} is not shown, but: {shown} {tab.errors}")


@asynccontextmanager
async def app_of(factory: SharedInformerFactory) -> AsyncIterator[str]:
    """Serve the dashboard of a factory, and return its address."""
    app = web.Application()
    app.add_subapp("/debug", dashboard(factory=factory))
    async with by_aiohttp(app) as url:
        yield f"{url}/debug/"


@pytest.mark.parametrize("theme", ["light", "dark"])
async def test_every_view_fits_narrow_and_wide_screens(theme: str) -> None:
    found: list[str] = []
    async with shop(actions=True) as shown, started(BROWSER) as tab:
        shown.crash()
        await dressed(tab, theme)
        places = VIEWS | {"objects": f"{VIEWS['objects']}?filter=mailer"}
        for view, place in places.items():
            for width in (390, 1440, 2560):
                await tab.open(f"{shown.url}{place}", width=width)
                await shows(tab, *SHOWN[view])
                wrong = await tab.run(f"[{TOO_WIDE}, {NAMELESS}].join('')")
                room = await tab.run("document.documentElement.scrollWidth")
                if wrong or room > width:
                    found.append(f"{view} {width}: {room} pixels wide, {wrong}")

        loaded = {it.partition("?")[0] for it in tab.requested}

    assert found == []
    assert tab.errors == []
    assert all(it.startswith((shown.url, "data:", "about:")) for it in loaded)


async def test_outages_are_shown_within_two_seconds() -> None:
    """Of the API server on the page, and of the program itself."""
    loop = asyncio.get_running_loop()
    taken = []
    async with APIServer() as server, server.client() as client:
        server.create(PODS, plain("a"))
        factory = SharedInformerFactory(client)
        factory.informer(PODS)
        async with factory, started(BROWSER) as tab:
            await factory.wait_for_cache_sync(timeout=30)
            async with app_of(factory) as url:
                await tab.open(url)
                await shows(tab, "All fine")
                for _ in range(3):
                    await server.stop()
                    began = loop.time()
                    await shows(tab, "informer pods")
                    taken.append(loop.time() - began)
                    await server.start()
                    await shows(tab, "All fine")

            await shows(tab, "No connection to the program")
            # The page keeps what it knows.
            await shows(tab, "pods")

    assert min(taken) < 2.0, "of three tries on a machine that may be busy"


async def test_expired_lease_is_marked() -> None:
    async with APIServer() as server:
        client = server.client()
        lock = LeaseLock(client, "copier", identity="a")
        elector = LeaderElector(
            lock, lease_duration=3, renew_deadline=2, retry_period=0.5
        )
        manager = Manager(client, elector=elector)
        manager.add(forever, name="work")
        app = web.Application()
        app.add_subapp("/debug", dashboard(manager=manager))
        async with manager, by_aiohttp(app) as url, started(BROWSER) as tab:
            await tab.open(f"{url}/debug/")
            await shows(tab, "leads", "default/copier", " of 3 s")
            assert await tab.run(MARKED) == ""
            await server.stop()
            await shows(tab, "follows")
            async with asyncio.timeout(20):
                await tab.until(f"{MARKED}.endsWith(' of 3 s')")

            assert tab.errors == []


def hostile_widget(number: int) -> dict[str, Any]:
    script = "<script>window.hacked = 1</script><img src=x onerror='window.hacked = 1'>"
    odd = "\x00\x1b[31m\u202egnp.exe\u2066\r\n\t"
    return {
        "metadata": {
            "name": f"{script}{odd}{number}",
            "namespace": "\"'><svg onload=window.hacked=1>",
            "uid": f"{number}",
            "labels": {"__proto__": script, "constructor": odd, "a": "x" * 1_000_000},
            "annotations": {script: odd, "javascript:window.hacked=1": "${1+1}{{1+1}}"},
        },
        "spec": {
            "__proto__": {"polluted": True},
            script: [script] * 300,
            "n": None,
            "large": 9007199254740993,  # no number of JavaScript
        },
        "status": {"phase": script, "reason": odd * 1000},
    }


async def test_hostile_texts_run_nothing_and_break_nothing() -> None:
    async with APIServer() as server, server.client() as client:
        server.register(WIDGETS)
        for number in range(3):
            server.put(WIDGETS, hostile_widget(number))

        body = hostile_widget(0)["metadata"]
        event = {
            "metadata": {"name": "e", "namespace": "default", "uid": "e"},
            "involvedObject": {"uid": "0", "kind": "Widget"},
            "reason": body["name"],
            "message": f"{body['name']}{'y' * 1_000_000}",
            "type": "<b>Warning",
            "count": "many",
        }
        server.put(EVENTS, event)
        factory = SharedInformerFactory(client)
        for resource in (WIDGETS, EVENTS):
            factory.informer(resource)

        async with factory, app_of(factory) as url, started(BROWSER) as tab:
            await factory.wait_for_cache_sync(timeout=30)
            key = f"{body['namespace']}/{body['name']}"
            for place, text in (
                ("#/", "widgets"),
                ("#/objects/widgets.example.com", "<script>"),
                ("#/objects/widgets.example.com?filter=<img&sort=AGE", "<script>"),
                (
                    f"#/objects/widgets.example.com/{quote(key, safe='')}",
                    "window.hacked",
                ),
                ("#/objects/<script>window.hacked=1</script>", "<script>"),
                ("#/controllers/__proto__", "__proto__"),
            ):
                await tab.open("about:blank")
                await tab.call("Page.navigate", url=f"{url}{place}")
                await shows(tab, text)
                if key.partition("/")[0] in unquote(place):
                    await shows(tab, "9007199254740993")

                server.put(WIDGETS, hostile_widget(1))
                await asyncio.sleep(1)
                assert await tab.run("String(window.hacked ?? ({}).polluted)") == (
                    "undefined"
                )
                width = "document.documentElement.scrollWidth - innerWidth"
                assert await tab.run(width) <= 0, place

    refused = [it for it in tab.errors if "404" not in it]
    assert refused == []


async def test_table_has_only_rows_in_view_of_many_objects() -> None:
    async with APIServer() as server, server.client() as client:
        for number in range(5000):
            server.put(PODS, plain(f"pod-{number:04}"))

        factory = SharedInformerFactory(client)
        factory.informer(PODS)
        async with factory, app_of(factory) as url, started(BROWSER) as tab:
            await factory.wait_for_cache_sync(timeout=30)
            await tab.open(f"{url}#/objects/pods")
            await shows(tab, "pod-0000", "5,000 objects")
            rows = "document.querySelectorAll('[role=row][aria-rowindex], tr').length"
            few = await tab.run(rows)
            await tab.call(
                "Input.dispatchKeyEvent",
                type="keyDown",
                key="/",
                text="/",
                code="Slash",
            )
            await tab.call("Input.insertText", text="pod-49")
            await shows(tab, "pod-4900", "pod-4910")
            address = await tab.run("location.hash")
            server.delete(PODS, "pod-4910", namespace="default")
            await tab.until(f"!{TEXT}.includes('pod-4910')")

    assert few < 200
    assert "pod-49" in address


async def test_buttons_requeue_and_forget() -> None:
    press = (
        "[...document.querySelectorAll('button')]"
        ".find(it => it.innerText === {!r})?.click() ?? 'pressed'"
    )
    async with shop(actions=True) as shown, started(BROWSER) as tab:
        await tab.open(f"{shown.url}{VIEWS['controller']}")
        await shows(tab, *SHOWN["controller"])
        await tab.run(press.format("Requeue"))
        await shows(tab, "Requeued by hand")
        await tab.run(press.format("Forget"))
        await shows(tab, "Nothing fails")

    async with shop() as shown, started(BROWSER) as tab:
        await tab.open(f"{shown.url}{VIEWS['controller']}")
        await shows(tab, *SHOWN["controller"])
        assert not await tab.run(f"{TEXT}.includes('Requeue')")


async def test_pictures_of_the_documentation_can_be_taken_again() -> None:
    pictures = await take(BROWSER, seconds=1)

    assert set(pictures) == {f"{it}.png" for it in PICTURES}
    for name, picture in pictures.items():
        assert picture.startswith(b"\x89PNG"), name
        assert len(picture) > 20_000, name
