"""`aioinformer watch`: objects and changes of an informer, as a live table or lines."""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from aioinformer.cli.columns import Columns
from aioinformer.cli.error_messages import CommandError, unreadable
from aioinformer.cli.line_output import (
    JSONLines,
    LineFormat,
    LineStream,
    NameLines,
    TableLines,
)
from aioinformer.cli.live_table import LiveTable
from aioinformer.cli.output import one_line
from aioinformer.cli.resource_names import built_in, find_resource
from aioinformer.cli.running import pause, raise_informer_failure
from aioinformer.cli.terminal import Terminal, can_be_live, has_colors
from aioinformer.errors import DecodeError, NotSynced
from aioinformer.informer import SharedInformerFactory
from aioinformer.model import strip_managed_fields

if TYPE_CHECKING:
    from aioinformer.cli.connection import ConnectionOptions
    from aioinformer.client import Client
    from aioinformer.informer import SharedInformer
    from aioinformer.model.resource import Resource

__all__ = ["Output", "WatchCommandOptions", "title_of", "watch"]

Output = Literal["table", "wide", "json", "name"]
"""Output formats, as in kubectl. `table` is the default."""

# Timeout for a mistyped address. Failed attempts end earlier: the second one follows
# the first after 0.8 to 1.6 s.
TIMEOUT_SECONDS = 5.0
ATTEMPTS = 2
CHECK_SECONDS = 0.25

# Minimum timeout for commands with a short --for.
LEAST_TIMEOUT_SECONDS = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchCommandOptions:
    """Options of the command."""

    resource: str
    """Name of the resource, as for `find_resource()`."""

    namespace: str | None = None
    """Namespace. None for the default of the connection."""

    all_namespaces: bool = False
    """True for all namespaces, without a `namespace`."""

    labels: str = ""
    """Label selector, empty for all."""

    fields: str = ""
    """Field selector, empty for all."""

    output: Output = "table"
    """Output format. `table` and `wide` are live on a terminal."""

    plain: bool = False
    """True for lines even on a terminal."""

    seconds: float | None = None
    """Seconds after the first list. None for no end.

    It also limits the wait for a server that does not respond.
    """


async def watch(options: WatchCommandOptions, target: ConnectionOptions) -> int:
    """Show objects and changes on stdout, and outages there or on stderr. Return 0.

    Raises:
        CommandError: If the resource is unknown, or the server does not respond.
        AioInformerError: If an option is invalid, or the server refused twice.
        InformerStopped: If the informer failed because of a bug, perhaps in a group.
        BrokenPipeError: If the reader of stdout has ended.

    Cancellation:
        Stops it.
    """
    if options.namespace is not None and options.all_namespaces:
        raise CommandError("-n and -A cannot be combined: omit one of them.")

    known = built_in(options.resource)
    if known is not None:
        known.path(options.namespace)  # fails before any request

    async with target.client() as client:
        resource = await _found(options, client)
        resource.path(options.namespace)
        namespace = options.namespace
        if namespace is None and resource.namespaced and not options.all_namespaces:
            namespace = target.namespace(client.config)

        return await _watch(options, client, resource, namespace)


async def _found(options: WatchCommandOptions, client: Client) -> Resource:
    """Find the resource, on the server unless it is built in."""
    timeout = _timeout(options.seconds)
    try:
        async with asyncio.timeout(timeout):
            return await find_resource(options.resource, client)

    except TimeoutError as exc:
        raise CommandError(_no_response(timeout)) from exc
    except DecodeError as exc:
        raise CommandError(unreadable(exc, client.config.server)) from exc


async def _watch(
    options: WatchCommandOptions,
    client: Client,
    resource: Resource,
    namespace: str | None,
) -> int:
    factory = SharedInformerFactory(client)
    informer = factory.informer(
        resource,
        namespace=namespace,
        label_selector=options.labels,
        field_selector=options.fields,
        # A third of a pod's memory, and hidden by kubectl, too.
        transform=strip_managed_fields,
    )
    columns = Columns(
        resource,
        wide=options.output == "wide",
        namespaces=resource.namespaced and namespace is None,
    )
    title = title_of(options, resource, namespace)
    if _is_live(options):
        terminal = Terminal(colors=has_colors(os.environ))
        view: LiveTable | LineStream = LiveTable(informer, columns, title, terminal)
    else:
        lines = _lines(options.output, resource, columns)
        view = LineStream(informer, lines, title)

    async with factory:
        await _first_list(informer, client, _timeout(options.seconds))
        async with asyncio.TaskGroup() as group:
            showing = group.create_task(view.show(), name="view")
            failure = group.create_task(raise_informer_failure(factory), name="failure")
            await pause(options.seconds)
            showing.cancel()
            failure.cancel()

    if isinstance(view, LineStream):
        await view.write_waiting()  # events that arrived during the stop

    return 0


def title_of(
    options: WatchCommandOptions, resource: Resource, namespace: str | None
) -> str:
    """Return a short description: `pods in shop with app=web`."""
    title = str(resource)
    if resource.namespaced:
        title += f" in {namespace}" if namespace else " in all namespaces"

    conditions = [it for it in (options.labels, options.fields) if it]
    if conditions:
        title += f" with {' and '.join(conditions)}"

    return one_line(title)


def _is_live(options: WatchCommandOptions) -> bool:
    tables = options.output in {"table", "wide"}
    return tables and not options.plain and can_be_live(os.environ)


def _lines(output: Output, resource: Resource, columns: Columns) -> LineFormat:
    match output:
        case "json":
            return JSONLines()
        case "name":
            return NameLines(resource)
        case _:
            return TableLines(columns)


def _timeout(seconds: float | None) -> float:
    """Return the timeout of a silent server for a command of this duration."""
    if seconds is None:
        return TIMEOUT_SECONDS

    return max(LEAST_TIMEOUT_SECONDS, min(seconds, TIMEOUT_SECONDS))


async def _first_list(informer: SharedInformer, client: Client, timeout: float) -> None:
    try:
        await _wait_synced(informer, timeout)
    except NotSynced as exc:
        if isinstance(exc.__cause__, DecodeError):
            server = client.config.server
            raise CommandError(unreadable(exc.__cause__, server)) from exc

        raise


async def _wait_synced(informer: SharedInformer, timeout: float) -> None:
    """Wait for the first list. A list in progress has no timeout."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout
    while not informer.has_synced:
        try:
            await informer.wait_synced(CHECK_SECONDS)
        except NotSynced as exc:
            status = informer.status
            late = loop.time() >= deadline and status.last_contact is None
            if status.failures >= ATTEMPTS or (status.failures and late):
                raise

            if late:
                raise CommandError(_no_response(timeout)) from exc


def _no_response(timeout: float) -> str:
    return (
        f"the server did not respond within {timeout:g} s. Check its address, "
        "firewalls and proxies."
    )
