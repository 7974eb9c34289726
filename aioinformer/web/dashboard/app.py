"""`Dashboard`: paths, headers, the guard and the readers of a dashboard."""

from __future__ import annotations

import inspect
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypedDict
from urllib.parse import quote

from aioinformer import __version__
from aioinformer._tasks import in_thread
from aioinformer._user_code import guarded_logger, user_errors
from aioinformer.errors import (
    CacheError,
    InformerStopped,
    OptionsError,
    SelectorSyntaxError,
)
from aioinformer.informer.factory import SharedInformerFactory
from aioinformer.model.callables import check_takes
from aioinformer.model.validation import shown
from aioinformer.web.connections import WRITE_SECONDS, Connections, TooManyReaders
from aioinformer.web.dashboard.object_page import ObjectPages
from aioinformer.web.dashboard.overview import Overview
from aioinformer.web.dashboard.reconciles import ACTIONS, ReconcileHistory, act
from aioinformer.web.dashboard.rows import LiveTables, TooManyTables
from aioinformer.web.dashboard.sources import NotShown, Sources, find_informer
from aioinformer.web.dashboard.states import MAX_BYTES, StateHistory
from aioinformer.web.responses import HTTPResponse, refusal

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from aioinformer.controller.controller import Controller
    from aioinformer.controller.manager import Manager
    from aioinformer.informer.shared_informer import SharedInformer
    from aioinformer.model.times import Duration
    from aioinformer.web.connections import Connection

__all__ = ["MAX_PAGES", "Dashboard", "DashboardOptions", "Feed", "Guard", "PageRequest"]

logger: Final = guarded_logger(__name__)

MAX_PAGES = 100
"""Default maximum number of concurrent streams. An open page has one or two."""

ACTION_HEADER = "x-aioinformer"
"""Header that actions require: other sites cannot send it from a browser."""

HEADERS: Final = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; "
        "img-src 'self' data:; connect-src 'self'; base-uri 'none'; "
        "form-action 'none'; frame-ancestors 'none'"
    ),
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
"""Headers of all responses."""

_STATIC = Path(__file__).with_name("static")
_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}


@dataclass(frozen=True, slots=True)
class PageRequest:
    """Request of a browser.

    Attributes:
        method: HTTP method.
        path: Path below the mount: empty, `/`, or such as `/api/rows`.
        query: Parameters of the query, in their order.
        headers: Headers by their names in lower case.
        url_path: Whole path, with the mount.
    """

    method: str
    path: str
    query: tuple[tuple[str, str], ...] = ()
    headers: Mapping[str, str] = field(default_factory=dict)
    url_path: str = ""

    def value(self, name: str) -> str:
        """Return the last value of a parameter, or an empty string."""
        return dict(self.query).get(name, "")


Guard: TypeAlias = "Callable[[PageRequest], bool | Awaitable[bool]]"
"""Plain or coroutine function that returns True for requests to answer."""

Feed: TypeAlias = "Callable[[Connection], Awaitable[None]]"
"""Coroutine function that sends server-sent events until it is cancelled."""


class DashboardOptions(TypedDict, total=False):
    """Options of a dashboard besides what it shows; see `Dashboard`."""

    title: str
    actions: bool
    guard: Guard | None
    reasons: bool
    history_bytes: int
    max_readers: int | None
    write_timeout: Duration | None


class Dashboard:
    """Page that shows what informers and controllers do, for any web framework.

    It is read-only, unless `actions=True`. Everybody who can open it sees all objects of
    the informers, without the data of Secrets, so pass a guard.

    While no page is open, it costs one to three microseconds for each change: it keeps
    the states of changed objects, up to `history_bytes`. An open page costs a few
    milliseconds per second. All pages with the same table share it.

    It belongs to the event loop of the informers. Informers and controllers that are
    added later are shown, too.

    Args:
        factory: Factory whose informers are shown, or None for that of the manager.
        manager: Manager whose controllers are shown, or None.
        title: Name of the program on the page.
        actions: True to let the page requeue and forget requests of controllers.
        guard: Function called for each request, plain or async. It returns True for a
            request to answer. Others get 403, also if it fails. None answers all.
        reasons: False to leave out error messages, which name servers, users and files.
            Parts that look like secrets are always left out.
        history_bytes: Maximum bytes of the states of objects that are kept.
        max_readers: Maximum number of concurrent streams; an open page has one or two.
            Further ones get 503.
        write_timeout: Seconds, or a timedelta, that a reader may take for 64 KiB; None
            for no limit. It is disconnected then.
        host_stops: Function that returns True if the web server should stop. It is
            called five times a second while a page is open.

    Raises:
        OptionsError: If there is neither a factory nor a manager, a limit is invalid,
            or the guard is not a function of one argument.
    """

    def __init__(
        self,
        *,
        factory: SharedInformerFactory | None = None,
        manager: Manager | None = None,
        title: str = "aioinformer",
        actions: bool = False,
        guard: Guard | None = None,
        reasons: bool = True,
        history_bytes: int = MAX_BYTES,
        max_readers: int | None = MAX_PAGES,
        write_timeout: Duration | None = WRITE_SECONDS,
        host_stops: Callable[[], bool] = lambda: False,
    ) -> None:
        _check_sources(factory, manager)
        if guard is not None:
            check_takes(guard, "guard", "guard(request)")

        if history_bytes < 0:
            raise OptionsError(f"history_bytes must not be negative: {history_bytes}")

        self._actions = actions
        self._guard = guard
        self._files: dict[str, tuple[bytes, str]] | None = None
        self._connections = Connections(
            "dashboard",
            max_readers=max_readers,
            write_timeout=write_timeout,
            has_ended=host_stops,
        )
        self._states = StateHistory(history_bytes)
        self._reconciles = ReconcileHistory(reasons=reasons)
        self._sources = Sources(
            factory,
            manager,
            added=self._states.follow,
            removed=self._states.forget,
            follow_controllers=self._reconciles.follow,
        )
        self._tables = LiveTables()
        self._objects = ObjectPages(
            self._states,
            self._sources.informers,
            self._sources.client,
            self._reconciles_of,
            reasons=reasons,
        )
        self._overview = Overview(
            self._sources,
            self._states,
            self._reconciles,
            title=title,
            version=__version__,
            actions=actions,
            reasons=reasons,
        )

    def __repr__(self) -> str:
        return f"<Dashboard readers={len(self._connections)}>"

    async def respond(self, request: PageRequest) -> HTTPResponse | Feed:
        """Return the response to a request, or a feed to `send`.

        Cancellation:
            Safe.
        """
        response = await self._respond(request)
        if isinstance(response, HTTPResponse):
            response.headers.update(HEADERS)

        return response

    async def send(
        self,
        feed: Feed,
        write: Callable[[bytes], Awaitable[object]],
        *,
        disconnected: Callable[[], bool] = lambda: False,
    ) -> bool:
        """Send the events of a feed to a reader; see `Connections.serve`."""
        return await self._connections.serve(feed, write, disconnected=disconnected)

    def close(self) -> None:
        """End all pages, and follow informers and controllers no more. Idempotent."""
        self._connections.close()
        self._sources.close()
        self._states.close()

    async def _respond(self, request: PageRequest) -> HTTPResponse | Feed:
        if not await self._allows(request):
            return refusal(403, "refused by the guard of this dashboard")

        if request.method == "POST":
            return self._act(request)

        if request.method not in {"GET", "HEAD"}:
            return refusal(405, "method not allowed", Allow="GET, HEAD, POST")

        if not request.path:
            # Relative, as a proxy may have removed a prefix from the path.
            last = request.url_path.rpartition("/")[2]
            location = f"{quote(last, safe='')}/"
            return refusal(307, "the page is below this path", Location=location)

        if not request.path.startswith("/api/"):
            return await self._file(request.path)

        try:
            return self._read(request)
        except NotShown as exc:
            return refusal(404, str(exc))
        except (OptionsError, SelectorSyntaxError) as exc:
            return refusal(400, str(exc))
        except (CacheError, InformerStopped, TooManyReaders, TooManyTables) as exc:
            return refusal(503, str(exc), Retry_After="5")

    async def _file(self, path: str) -> HTTPResponse:
        if self._files is None:
            self._files = await in_thread(_read_files)

        file = self._files.get(path)
        if file is None:
            return refusal(404, "not found")

        return HTTPResponse(200, *file)

    async def _allows(self, request: PageRequest) -> bool:
        if self._guard is None:
            return True

        try:
            allowed = self._guard(request)
            if inspect.isawaitable(allowed):
                allowed = await allowed
        except user_errors():  # refused
            logger.exception("dashboard: the guard failed")
            return False

        return allowed is True

    def _read(self, request: PageRequest) -> HTTPResponse | Feed:
        """Return the response of the API to a request."""
        value = request.value
        match request.path:
            case "/api/overview":
                return self._feed(self._overview.feed)
            case "/api/rows":
                informers = self._sources.informers()
                informer = find_informer(informers, value("informer"))
                table = self._tables.feed(informer, request.query)
                return self._feed(table.run)
            case "/api/object":
                page = self._objects.feed(value("informer"), value("key"))
                return self._feed(page.run)
            case "/api/controller":
                controller = self._controller(value("name"))
                place = self._sources.id_of(controller.informers[0])
                return self._feed(partial(self._reconciles.feed, controller, place))
            case "/api/state":
                number = value("number")
                if not (number.isascii() and number.isdigit() and len(number) < 20):
                    raise OptionsError("number= must be the number of a state")

                state = self._objects.state(
                    value("informer"), value("key"), int(number)
                )
                return HTTPResponse(200, state, "application/json")
            case _:
                return refusal(404, "not found")

    def _feed(
        self, run: Callable[[Callable[[bytes], Awaitable[None]]], Awaitable[Any]]
    ) -> Feed:
        self._connections.check_room()

        async def feed(connection: Connection) -> None:
            # Without any event, the response is a refusal.
            with suppress(CacheError, InformerStopped, TooManyTables):
                await run(connection.send)

        return feed

    def _act(self, request: PageRequest) -> HTTPResponse:
        action = request.path.removeprefix("/api/")
        if action not in ACTIONS:
            return refusal(404, "not found")

        if not self._actions:
            return refusal(403, "this dashboard is read-only: pass actions=True")

        if not request.headers.get(ACTION_HEADER):
            return refusal(403, f"the header {ACTION_HEADER} is missing")

        try:
            controller = self._controller(request.value("controller"))
        except NotShown as exc:
            return refusal(404, str(exc))

        return act(action, controller, request.value("key"))

    def _reconciles_of(
        self, informer: SharedInformer, key: str
    ) -> list[dict[str, Any]]:
        now = datetime.now(tz=UTC).timestamp()
        return self._reconciles.reconciles_of(informer, key, now)

    def _controller(self, name: str) -> Controller:
        controller = self._sources.controllers().get(name)
        if controller is None:
            raise NotShown(f"there is no controller {shown(name)}")

        return controller


def _check_sources(factory: object, manager: object) -> None:
    if factory is None and manager is None:
        raise OptionsError("a dashboard needs a factory or a manager")

    if factory is not None and not isinstance(factory, SharedInformerFactory):
        raise OptionsError(f"factory must be a SharedInformerFactory, not {factory!r}")

    if manager is not None and not hasattr(manager, "controllers"):
        raise OptionsError(f"manager must be a Manager, not {manager!r}")


def _read_files() -> dict[str, tuple[bytes, str]]:
    """Return the files of the page by their paths, with their types."""
    found = {
        f"/static/{it.name}": (it.read_bytes(), _TYPES[it.suffix])
        for it in _STATIC.iterdir()
        if it.suffix in _TYPES
    }
    index = found.pop("/static/index.html")
    return {"/": index, **found}
