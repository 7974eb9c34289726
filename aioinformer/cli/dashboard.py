"""`aioinformer dashboard`: the dashboard for resources of a cluster."""

from __future__ import annotations

import asyncio
import webbrowser
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from aioinformer._tasks import in_thread
from aioinformer.cli.error_messages import CommandError
from aioinformer.cli.output import one_line, print_text
from aioinformer.cli.resource_names import request_informers
from aioinformer.cli.running import pause, raise_informer_failure
from aioinformer.informer import SharedInformerFactory
from aioinformer.web.aiohttp import dashboard as dashboard_app
from aioinformer.web.aiohttp import listening

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from aioinformer.cli.connection import ConnectionOptions
    from aioinformer.controller import Manager

__all__ = ["DEFAULT_RESOURCES", "DashboardOptions", "dashboard", "serving"]

DEFAULT_RESOURCES = ("pods", "deployments", "replicasets", "services", "events")
"""Resources that are shown if none is named."""

HOST = "127.0.0.1"


@dataclass(frozen=True, slots=True, kw_only=True)
class DashboardOptions:
    """Options of the command."""

    resources: tuple[str, ...] = ()
    """Names of the resources, as for `find_resource()`; empty for the usual ones."""

    namespaces: tuple[str, ...] = ()
    """Namespaces; empty for the default of the connection."""

    all_namespaces: bool = False
    """True for all namespaces."""

    labels: str = ""
    """Label selector; empty for all."""

    port: int = 8002
    """Port of 127.0.0.1; 0 for any free one."""

    browser: bool = False
    """True to open the page in a browser."""

    seconds: float | None = None
    """Seconds to serve. None for no end."""


async def dashboard(options: DashboardOptions, target: ConnectionOptions) -> int:
    """Serve the dashboard until the time is over, or cancelled. Return 0.

    Raises:
        CommandError: If a resource is unknown, the namespaces do not fit, or the port is in
            use.
        AioInformerError: If an option is invalid, or the server refused discovery.
        InformerStopped: If an informer failed because of a bug, perhaps in a group.

    Cancellation:
        Stops it.
    """
    async with target.client() as client:
        factory = SharedInformerFactory(client)
        await request_informers(
            factory,
            client,
            target,
            options.resources or DEFAULT_RESOURCES,
            namespaces=options.namespaces,
            all_namespaces=options.all_namespaces,
            labels=options.labels,
        )
        title = urlsplit(client.config.server).netloc
        async with serving(options.port, factory=factory, title=title) as url:
            if options.browser:
                await in_thread(lambda: webbrowser.open(url))

            async with factory, asyncio.TaskGroup() as group:
                failure = group.create_task(raise_informer_failure(factory))
                await pause(options.seconds)
                failure.cancel()

    return 0


@asynccontextmanager
async def serving(
    port: int,
    *,
    title: str,
    factory: SharedInformerFactory | None = None,
    manager: Manager | None = None,
) -> AsyncIterator[str]:
    """Serve a dashboard on 127.0.0.1 during the block, print and return its URL.

    Args:
        port: Port to listen on; 0 for any free one.
        title: Name on the page.
        factory: Factory to show.
        manager: Manager to show. Its requests may be requeued on the page.

    Raises:
        CommandError: If the port is in use.

    Cancellation:
        Deferred until all connections are closed, within 2 s.
    """
    app = dashboard_app(
        factory=factory,
        manager=manager,
        title=title,
        actions=manager is not None,
    )
    async with AsyncExitStack() as stack:
        try:
            opened = listening(app, port=port, host=HOST)
            port = await stack.enter_async_context(opened)
        except OSError as exc:
            raise CommandError(
                f"{exc.strerror or exc}. Use another --port, or 0 for any free one."
            ) from exc

        url = f"http://{HOST}:{port}/"
        print_text(one_line(f"Dashboard of {title}: {url}"))
        yield url
