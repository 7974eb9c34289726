"""`aioinformer watch`: what an informer has and is told, as a live table or as lines."""

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
from aioinformer.cli.terminal import Terminal, can_be_live, has_colours
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
"""As kubectl has them; `table` is what it has without `-o`."""

# Whoever mistyped an address should not wait longer. Failed attempts are noticed
# earlier: the second comes 0.8 to 1.6 s after the first.
PATIENCE_SECONDS = 5.0
ATTEMPTS = 2
CHECK_SECONDS = 0.25

# However short the time is that the command may run: answering takes a moment.
LEAST_PATIENCE_SECONDS = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchCommandOptions:
    """What to watch, and for how long."""

    resource: str
    """As `find_resource()` takes it."""

    namespace: str | None = None
    """None for the one that the target means."""

    all_namespaces: bool = False
    """Then there is no `namespace`."""

    labels: str = ""
    """A label selector; empty for all."""

    fields: str = ""
    """A field selector; empty for all."""

    output: Output = "table"
    """`table` and `wide` are live on a terminal; all others are lines."""

    plain: bool = False
    """LineFormat, also on a terminal."""

    seconds: float | None = None
    """For how long, from when the first list is there; None for ever.

    A server that says nothing at all is waited for no longer than this, either.
    """


async def watch(options: WatchCommandOptions, target: ConnectionOptions) -> int:
    """Show objects and changes on stdout, outages there or on stderr; returns 0.

    Raises:
        CommandError: The resource is not known, or the server does not answer.
        AioInformerError: The options cannot work, or the server refused twice.
        InformerStopped: The informer died of a bug; perhaps in a group.
        BrokenPipeError: Nobody reads stdout any more.

    Cancellation:
        The way to stop it, where it has no end.
    """
    if options.namespace is not None and options.all_namespaces:
        raise CommandError("-n and -A contradict each other: leave out one of them.")

    known = built_in(options.resource)
    if known is not None:
        known.path(options.namespace)  # complains before anything is asked

    async with target.client() as client:
        resource = await _found(options, client)
        resource.path(options.namespace)
        namespace = options.namespace
        if namespace is None and resource.namespaced and not options.all_namespaces:
            namespace = target.namespace(client.config)

        return await _watch(options, client, resource, namespace)


async def _found(options: WatchCommandOptions, client: Client) -> Resource:
    """What is meant; the server is asked if it is not built in."""
    patience = _patience(options.seconds)
    try:
        async with asyncio.timeout(patience):
            return await find_resource(options.resource, client)

    except TimeoutError as exc:
        raise CommandError(_silent(patience)) from exc
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
        # A third of a pod's memory, and kubectl does not show them, either.
        transform=strip_managed_fields,
    )
    columns = Columns(
        resource,
        wide=options.output == "wide",
        namespaces=resource.namespaced and namespace is None,
    )
    title = title_of(options, resource, namespace)
    if _is_live(options):
        terminal = Terminal(colours=has_colours(os.environ))
        view: LiveTable | LineStream = LiveTable(informer, columns, title, terminal)
    else:
        lines = _lines(options.output, resource, columns)
        view = LineStream(informer, lines, title)

    async with factory:
        await _first_list(informer, client, _patience(options.seconds))
        async with asyncio.TaskGroup() as group:
            showing = group.create_task(view.show(), name="view")
            vigil = group.create_task(raise_informer_failure(factory), name="vigil")
            await pause(options.seconds)
            showing.cancel()
            vigil.cancel()

    if isinstance(view, LineStream):
        await view.write_waiting()  # what came while the informer was being stopped

    return 0


def title_of(
    options: WatchCommandOptions, resource: Resource, namespace: str | None
) -> str:
    """Say in few words what is watched: `pods in shop with app=web`."""
    words = str(resource)
    if resource.namespaced:
        words += f" in {namespace}" if namespace else " in all namespaces"

    conditions = [it for it in (options.labels, options.fields) if it]
    if conditions:
        words += f" with {' and '.join(conditions)}"

    return one_line(words)


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


def _patience(seconds: float | None) -> float:
    """How long a server may say nothing, if the command is to run for so long."""
    if seconds is None:
        return PATIENCE_SECONDS

    return max(LEAST_PATIENCE_SECONDS, min(seconds, PATIENCE_SECONDS))


async def _first_list(
    informer: SharedInformer, client: Client, patience: float
) -> None:
    try:
        await _wait_synced(informer, patience)
    except NotSynced as exc:
        if isinstance(exc.__cause__, DecodeError):
            server = client.config.server
            raise CommandError(unreadable(exc.__cause__, server)) from exc

        raise


async def _wait_synced(informer: SharedInformer, patience: float) -> None:
    """Wait for the first list: as long as it takes, if only it is on its way."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + patience
    while not informer.has_synced:
        try:
            await informer.wait_synced(CHECK_SECONDS)
        except NotSynced as exc:
            status = informer.status
            impatient = loop.time() >= deadline and status.last_contact is None
            if status.failures >= ATTEMPTS or (status.failures and impatient):
                raise

            if impatient:
                raise CommandError(_silent(patience)) from exc


def _silent(patience: float) -> str:
    return (
        f"the server did not answer within {patience:g} s. Check its address, and the "
        "firewalls and proxies in between."
    )
