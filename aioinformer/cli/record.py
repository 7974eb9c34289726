"""`aioinformer record`: records informers of a cluster into a file."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

from aioinformer.cli.output import counted, one_line, print_text
from aioinformer.cli.resource_names import request_informers
from aioinformer.cli.running import pause, raise_informer_failure
from aioinformer.errors import RecordingError
from aioinformer.informer import SharedInformerFactory
from aioinformer.recording import record as recorder_of

if TYPE_CHECKING:
    from typing import NoReturn

    from aioinformer.cli.connection import ConnectionOptions
    from aioinformer.recording import Recorder

__all__ = ["RecordOptions", "record"]

# Time limit of the first lists.
_SECONDS = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordOptions:
    """Options of the command."""

    resources: tuple[str, ...]
    """Names of the resources, as for `find_resource()`."""

    file: str
    """Path of the recording."""

    namespaces: tuple[str, ...] = ()
    """Namespaces; empty for the default of the connection."""

    all_namespaces: bool = False
    """True for all namespaces."""

    labels: str = ""
    """Label selector; empty for all."""

    redact: tuple[str, ...] = ()
    """Paths of fields to replace."""

    secrets: bool = False
    """True to record the data of Secrets."""

    hash_names: bool = False
    """True to replace names by hashes."""

    rotate_bytes: int | None = None
    """Size from which a new file begins; None for no limit."""

    rotate_every: float | None = None
    """Seconds after which a new file begins; None for no limit."""

    keep: int | None = None
    """Number of full files to keep; None for all."""

    seconds: float | None = None
    """Seconds to record. None for no end."""


async def record(options: RecordOptions, target: ConnectionOptions) -> int:
    """Record until the time is over, or cancelled. Return 0.

    Raises:
        CommandError: If a resource is unknown, or the namespaces do not fit.
        AioInformerError: If an option is invalid, or the server refused twice.
        RecordingError: If the file cannot be written.

    Cancellation:
        Ends the recording, and prints a summary.
    """
    async with target.client() as client:
        factory = SharedInformerFactory(client)
        await request_informers(
            factory,
            client,
            target,
            options.resources,
            namespaces=options.namespaces,
            all_namespaces=options.all_namespaces,
            labels=options.labels,
        )
        return await _record(options, factory)


async def _record(options: RecordOptions, factory: SharedInformerFactory) -> int:
    recorder = recorder_of(
        factory,
        options.file,
        redact=options.redact,
        hide_secrets=not options.secrets,
        hash_names=options.hash_names,
        rotate_bytes=options.rotate_bytes,
        rotate_every=options.rotate_every,
        keep=options.keep,
    )
    loop = asyncio.get_running_loop()
    began = loop.time()
    try:
        async with recorder, factory:
            if recorder.continues:
                print_text(one_line(f"{options.file} exists, and is continued."))

            await factory.wait_for_cache_sync(_SECONDS)
            names = ", ".join(it.name for it in factory.informers)
            print_text(one_line(f"Recording {names} to {options.file}."))
            async with asyncio.TaskGroup() as group:
                failures = [
                    group.create_task(raise_informer_failure(factory)),
                    group.create_task(_raise_failure(recorder)),
                ]
                await pause(options.seconds)
                for failure in failures:
                    failure.cancel()
    finally:
        seconds = loop.time() - began
        changes = counted(recorder.changes, "change")
        print_text(f"Recorded {changes} in {seconds:.1f} s.")

    return 0


async def _raise_failure(recorder: Recorder) -> NoReturn:
    """Wait until the recording has failed, and raise that."""
    failure = await recorder.failed()
    raise RecordingError(f"cannot record to {recorder.path}: {failure}") from failure
