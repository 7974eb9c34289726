"""Checks of the built site in Chromium: search, narrow screens, other hosts."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import http.server
import json
import os
import re
import shutil
import signal
import tempfile
import threading
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import aiohttp

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

__all__ = ["BROWSERS", "Browser", "browser_problems", "find_chromium", "started"]

_NARROW, _WIDE = 390, 1280
_OPTIONS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--remote-debugging-port=0",
)
_SECONDS = 60

# Words that readers search for, and an anchor or a path among the first results.
_FIRST = 6
_SEARCHES = {
    "SharedInformer": "aioinformer.informer.SharedInformer",
    "wait_for_version": "aioinformer.informer.SharedInformer.wait_for_version",
    "index_by_owner": "aioinformer.cache.index_by_owner",
    "memory": "memory",
    "requeue": "requeue-an-object-in-ten-minutes",
    "too old resource version": "must-i-restart-watches-or-handle-410-gone-too-old-resource-version",
    "owner reference": "aioinformer.controller.set_owner_reference",
    "webhook": "/webhooks/",
    "rbac": "print-the-rbac-rules-of-a-program",
    "mock": "how-do-i-mock-the-kubernetes-api",
}
_SEARCH_BUTTON = "document.querySelector('.md-search__button')"
_SEARCH_DIALOG = "[...document.body.children].find(it => it.shadowRoot)?.shadowRoot"

# Elements that are wider than the screen, without scrolling inside.
_TOO_WIDE = """
  [...document.querySelectorAll('article pre, article table, article img')]
    .filter(it => it.getBoundingClientRect().right > innerWidth + 1)
    .filter(it => { for (let up = it; up.tagName !== 'ARTICLE'; up = up.parentElement)
                      if (getComputedStyle(up).overflowX === 'auto') return false;
                    return true; })
    .map(it => it.tagName + ' ' + it.textContent.slice(0, 40)).join('; ')
"""


BROWSERS = (
    "chromium",
    "chromium-browser",
    "chromium-headless-shell",
    "chrome-headless-shell",
    "google-chrome",
)


def find_chromium() -> str | None:
    """Return the path of an installed Chromium or Chrome."""
    return next(filter(None, map(shutil.which, BROWSERS)), None)


class Browser:
    """One page of a browser that speaks the Chrome DevTools Protocol."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._last = 0
        self.requested: list[str] = []
        self.errors: list[str] = []
        """Exceptions of scripts, and what the browser has refused or failed to load."""

    async def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Call a method of the protocol and return its result."""
        self._last += 1
        call = {"id": self._last, "method": method, "params": parameters}
        await self._socket.send_json(call)
        while True:
            message = await self._socket.receive_json()
            self._note(message.get("method"), message.get("params"))

            if message.get("id") == self._last:
                if "error" in message:
                    raise RuntimeError(f"{method}: {message['error']}")

                result: dict[str, Any] = message["result"]
                return result

    def _note(self, event: str | None, parameters: Any) -> None:
        match event:
            case "Network.requestWillBeSent":
                self.requested.append(parameters["request"]["url"])
            case "Runtime.exceptionThrown":
                details = parameters["exceptionDetails"]
                thrown = details.get("exception", {}).get("description", "")
                self.errors.append(f"{details['text']} {thrown}")
            case "Log.entryAdded" if parameters["entry"]["level"] == "error":
                self.errors.append(parameters["entry"]["text"])

    async def run(self, script: str) -> Any:
        """Evaluate an expression in the page; wait for it if it is a promise."""
        result = await self.call(
            "Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True
        )
        if "exceptionDetails" in result:
            raise RuntimeError(f"{script}: {result['exceptionDetails']}")

        return result["result"].get("value")

    async def until(self, script: str) -> Any:
        """Wait until an expression is true, and return its value."""
        async with asyncio.timeout(_SECONDS):
            while not (value := await self.run(script)):
                await asyncio.sleep(0.05)

        return value

    async def open(self, url: str, *, width: int = _WIDE, height: int = 800) -> None:
        """Open a page in a window of a size, and wait until it is loaded."""
        await self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width == _NARROW,
        )
        await self.call("Page.navigate", url=url)
        address = json.dumps(url)
        await self.until(
            f"location.href === {address} && document.readyState === 'complete'"
        )


@contextlib.asynccontextmanager
async def started(chromium: str) -> AsyncIterator[Browser]:
    """Start a browser with a profile of its own."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        process = await asyncio.create_subprocess_exec(
            chromium,
            *_OPTIONS,
            f"--user-data-dir={profile}",
            "about:blank",
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,  # it has child processes, which are to end with it
        )
        try:
            async with asyncio.timeout(_SECONDS):
                host = await _debugging_host(process)

            async with (
                aiohttp.ClientSession() as http,
                http.put(f"http://{host}/json/new?about:blank") as response,
                http.ws_connect(
                    (await response.json())["webSocketDebuggerUrl"], max_msg_size=0
                ) as socket,
            ):
                browser = Browser(socket)
                for domain in ("Log", "Network", "Page", "Runtime"):
                    await browser.call(f"{domain}.enable")

                yield browser
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            await process.communicate()


async def _debugging_host(process: asyncio.subprocess.Process) -> str:
    assert process.stderr is not None
    while line := await process.stderr.readline():
        if found := re.search(rb"ws://([^/]+)/", line):
            return found[1].decode()

    raise RuntimeError("Chromium ended before it listened")


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - its name
        """Print nothing."""


@contextlib.contextmanager
def _served(folder: Path) -> Iterator[str]:
    handler = functools.partial(_Quiet, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/"
        finally:
            server.shutdown()
            thread.join()


async def browser_problems(site: Path, chromium: str) -> list[str]:
    """Return what does not work in a browser."""
    found = []
    with _served(site) as url:
        async with started(chromium) as browser:
            for page in _pages(site):
                address = url if page == "." else f"{url}{page}/"
                await browser.open(address, width=_NARROW)
                width = await browser.run("document.documentElement.scrollWidth")
                if width > _NARROW:
                    found.append(
                        f"{page}: {width} pixels wide on a screen of {_NARROW}"
                    )

                if wide := await browser.run(_TOO_WIDE):
                    found.append(f"{page}: cut off on a screen of {_NARROW}: {wide}")

            found += await _search_problems(browser, url)
            found += [
                f"loads {it}"
                for it in browser.requested
                if not it.startswith((url, "data:", "blob:", "about:"))
            ]

    return found


def _pages(site: Path) -> list[str]:
    return sorted(
        path.parent.relative_to(site).as_posix() for path in site.rglob("index.html")
    )


async def _search_problems(browser: Browser, url: str) -> list[str]:
    found = []
    for words, target in _SEARCHES.items():
        await browser.open(url)
        await browser.until(f"{_SEARCH_BUTTON} && ({_SEARCH_BUTTON}.click(), true)")
        # The theme shows the results in a shadow tree of its own.
        await browser.until(f"{_SEARCH_DIALOG}?.activeElement?.tagName === 'INPUT'")
        await browser.call("Input.insertText", text=words)
        results = f"[...{_SEARCH_DIALOG}.querySelectorAll('a')].map(it => it.href)"
        try:
            await browser.until(f"{results}[0]")
        except TimeoutError:
            found.append(f"a search for {words!r} finds nothing")
            continue

        first = (await browser.run(results))[:_FIRST]
        links = [urlsplit(it) for it in first]
        if not any(target in {it.path, it.fragment} for it in links):
            found.append(f"a search for {words!r} finds {first}, not {target}")

    return found
