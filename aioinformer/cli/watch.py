"""`aioinformer watch`: objects and changes of an informer, as a live table or lines."""

from __future__ import annotations

import asyncio
import os
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from aioinformer.cli.error_messages import CommandError, unreadable
from aioinformer.cli.line_output import (
    JSONLines,
    LineFormat,
    LineStream,
    NameLines,
    TableLines,
)
from aioinformer.cli.output import can_be_live, has_colors, one_line, terminal_size
from aioinformer.cli.resource_names import built_in, find_resource
from aioinformer.cli.running import raise_informer_failure
from aioinformer.errors import DecodeError, NotSynced
from aioinformer.informer import SharedInformerFactory
from aioinformer.model import strip_managed_fields
from aioinformer.tables.columns import Columns

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioinformer.cli.connection import ConnectionOptions
    from aioinformer.cli.live_table import LiveTable
    from aioinformer.client import Client
    from aioinformer.informer import SharedInformer
    from aioinformer.model import KubeObject
    from aioinformer.model.resource import Resource

__all__ = ["Output", "WatchCommandOptions", "title_of", "watch"]

Output = Literal["table", "wide", "json", "yaml", "name"]
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

    names: tuple[str, ...] = ()
    """Names of the objects; empty for all."""

    namespaces: tuple[str, ...] = ()
    """Namespaces; empty for the default of the connection."""

    all_namespaces: bool = False
    """True for all namespaces, without `namespaces`."""

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
    if options.namespaces and options.all_namespaces:
        raise CommandError("-n and -A cannot be combined: omit one of them.")

    known = built_in(options.resource)
    if known is not None:
        _check_namespaces(options, known)  # fails before any request

    async with target.client() as client:
        resource = await _found(options, client)
        _check_namespaces(options, resource)
        namespaces = options.namespaces
        if not namespaces and resource.namespaced and not options.all_namespaces:
            default = target.namespace(client.config)
            namespaces = (default,) if default else ()

        return await _watch(options, client, resource, namespaces)


def _check_namespaces(options: WatchCommandOptions, resource: Resource) -> None:
    if options.namespaces and not resource.namespaced:
        raise CommandError(
            f"{resource} is cluster-scoped and has no namespaces: omit -n."
        )

    for namespace in options.namespaces:
        resource.path(namespace)


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
    namespaces: tuple[str, ...],
) -> int:
    factory = SharedInformerFactory(client)
    informer = factory.informer(
        resource,
        namespace=namespaces or None,
        label_selector=options.labels,
        field_selector=_field_selector(options),
        # A third of a pod's memory, and hidden by kubectl, too.
        transform=strip_managed_fields,
    )
    columns = Columns(
        resource,
        wide=options.output == "wide",
        namespaces=resource.namespaced and len(namespaces) != 1,
    )
    title = title_of(options, resource, namespaces)
    # A server selects one name, and no alternatives.
    shown = _has_name(options.names) if len(options.names) > 1 else None
    view: LiveTable | LineStream
    if _is_live(options):
        view = _live_table(informer, columns, title, shown)
    else:
        lines = _lines(options.output, resource, columns)
        view = LineStream(informer, lines, title, shown)

    async with factory:
        await _first_list(informer, client, _timeout(options.seconds))
        async with asyncio.TaskGroup() as group:
            failure = group.create_task(raise_informer_failure(factory), name="failure")
            await _show(view, options.seconds)
            failure.cancel()

    if isinstance(view, LineStream):
        await view.write_waiting()  # events that arrived during the stop

    return 0


async def _show(view: LiveTable | LineStream, seconds: float | None) -> None:
    """Show until the user quits or the time is over."""
    limit = asyncio.timeout(seconds)
    try:
        async with limit:
            await view.show()
    except TimeoutError:
        if not limit.expired():
            raise


def _field_selector(options: WatchCommandOptions) -> str:
    name = f"metadata.name={options.names[0]}" if len(options.names) == 1 else ""
    return ",".join(it for it in (options.fields, name) if it)


def _has_name(names: tuple[str, ...]) -> Callable[[KubeObject], bool]:
    return lambda obj: obj.name in names


def title_of(
    options: WatchCommandOptions, resource: Resource, namespaces: tuple[str, ...]
) -> str:
    """Return a short description: `pods web-0 in shop with app=web`."""
    title = " ".join([str(resource), *options.names])
    if resource.namespaced:
        title += f" in {' and '.join(namespaces) or 'all namespaces'}"

    conditions = [it for it in (options.labels, options.fields) if it]
    if conditions:
        title += f" with {' and '.join(conditions)}"

    return one_line(title)


def _is_live(options: WatchCommandOptions) -> bool:
    tables = options.output in {"table", "wide"}
    return tables and not options.plain and can_be_live(os.environ)


def _live_table(
    informer: SharedInformer,
    columns: Columns,
    title: str,
    shown: Callable[[KubeObject], bool] | None,
) -> LiveTable:
    # Imports rich, which takes longer than all of a short `watch` in a pipe.
    from aioinformer.cli.live_table import LiveTable
    from aioinformer.cli.screen import Screen

    screen = Screen(colors=has_colors(os.environ))
    return LiveTable(informer, columns, title, screen, shown)


def _lines(output: Output, resource: Resource, columns: Columns) -> LineFormat:
    match output:
        case "yaml":
            from aioinformer.cli.yaml_output import YAMLDocuments

            return YAMLDocuments()
        case "json":
            return JSONLines()
        case "name":
            return NameLines(resource)
        case _:
            on_terminal = sys.stdout.isatty()
            width = terminal_size().columns if on_terminal else None
            return TableLines(columns, width)


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
