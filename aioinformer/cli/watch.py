"""`aioinformer watch`: what an informer is told, as lines."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, assert_never

from aioinformer.cli.explain import CommandError, explain, unreadable
from aioinformer.cli.names import find_resource
from aioinformer.cli.running import pause
from aioinformer.cli.vigil import keep_vigil
from aioinformer.errors import DecodeError, NotSynced
from aioinformer.informer import (
    Added,
    Deleted,
    InformerStatus,
    SharedInformer,
    SharedInformerFactory,
    Updated,
)

if TYPE_CHECKING:
    from aioinformer.cli.target import Target
    from aioinformer.client import Client
    from aioinformer.informer.notifications import Notification

__all__ = ["WatchOptions", "line_of", "outage_line", "watch"]

# Whoever mistyped an address should not wait longer. Failed attempts are noticed
# earlier: the second comes 0.8 to 1.6 s after the first.
PATIENCE_SECONDS = 5.0
ATTEMPTS = 2
CHECK_SECONDS = 0.25

# However short the time is that the command may run: answering takes a moment.
LEAST_PATIENCE_SECONDS = 1.0

OUTAGE_CHECK_SECONDS = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchOptions:
    """What to watch, and for how long."""

    resource: str
    """As `find_resource()` takes it."""

    namespace: str | None = None
    """None for all."""

    labels: str = ""
    """A label selector; empty for all."""

    fields: str = ""
    """A field selector; empty for all."""

    seconds: float | None = None
    """For how long, from when the first list is there; None for ever.

    A server that says nothing at all is waited for no longer than this, either.
    """


async def watch(options: WatchOptions, target: Target) -> int:
    """Print objects and changes to stdout, outages to stderr; returns 0.

    Raises:
        CommandError: The resource is not known, or the server does not answer.
        AioInformerError: The options cannot work, or the server refused twice.
        InformerStopped: The informer died of a bug; perhaps in a group.
        BrokenPipeError: Nobody reads stdout any more.

    Cancellation:
        The way to stop it, where it has no end.
    """
    client = target.client()
    factory = SharedInformerFactory(client)
    informer = factory.informer(
        find_resource(options.resource),
        namespace=options.namespace,
        label_selector=options.labels,
        field_selector=options.fields,
    )
    lines: asyncio.Queue[str] = asyncio.Queue()
    informer.add_event_handler(
        on_event=lambda event: lines.put_nowait(line_of(event)), name="print"
    )

    async with factory:
        await _first_list(informer, client, _patience(options.seconds))
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(_print_lines(lines), name="printer"),
                group.create_task(_tell_outages(informer), name="outages"),
                group.create_task(keep_vigil(factory), name="vigil"),
            ]
            await pause(options.seconds)
            for task in tasks:
                task.cancel()

    _write(_waiting(lines))  # what came while the informer was being stopped
    return 0


def line_of(event: Notification) -> str:
    """The line for one notification, in the words of the Kubernetes API."""
    match event:
        case Added(obj=obj):
            return f"ADDED {obj.key} {obj.resource_version}"
        case Updated(new=obj):
            return f"MODIFIED {obj.key} {obj.resource_version}"
        case Deleted(obj=obj):
            return f"DELETED {obj.key} {obj.resource_version}"
        case _:
            assert_never(event)


def outage_line(status: InformerStatus, *, was_out: bool) -> str:
    """What to tell of an outage that began or ended; empty if neither did."""
    out = status.failures > 0 and status.last_error is not None
    if out == was_out:
        return ""

    if status.last_error is not None and out:
        return f"out of contact, trying again: {explain(status.last_error)}"

    return "in contact again"


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
                raise CommandError(
                    f"the server did not answer within {patience:g} s. Check its "
                    "address, and the firewalls and proxies in between."
                ) from exc


async def _print_lines(lines: asyncio.Queue[str]) -> None:
    while True:
        first = await lines.get()
        _write([first, *_waiting(lines)])


def _waiting(lines: asyncio.Queue[str]) -> list[str]:
    return [lines.get_nowait() for _ in range(lines.qsize())]


def _write(lines: list[str]) -> None:
    # May block if stdout is a pipe that is read slowly: there is nobody else here.
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    sys.stdout.flush()


async def _tell_outages(informer: SharedInformer) -> None:
    out = False
    while True:
        await asyncio.sleep(OUTAGE_CHECK_SECONDS)
        line = outage_line(informer.status, was_out=out)
        if line:
            out = not out
            print(f"aioinformer: {line}", file=sys.stderr, flush=True)
