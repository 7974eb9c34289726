"""Runs a command's coroutine, and turns how it ends into an exit status."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import sys
from typing import TYPE_CHECKING

from aioinformer._tasks import unwrap_group
from aioinformer.cli import FAILED_CHECK, INTERRUPTED, TROUBLE
from aioinformer.cli.error_messages import CommandError, message_of
from aioinformer.cli.output import SafeFormatter, complain
from aioinformer.errors import AioInformerError, InformerStopped, InternalError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator
    from types import FrameType
    from typing import Any, NoReturn

    from aioinformer.informer import SharedInformerFactory

__all__ = [
    "FAILED_CHECK",
    "INTERRUPTED",
    "TROUBLE",
    "pause",
    "raise_informer_failure",
    "reason_of",
    "run",
]


def run(life: Callable[[], Coroutine[Any, Any, int]], *, verbose: int = 0) -> int:
    """Run a command to its end; returns the exit status.

    Ctrl-C and SIGTERM cancel it. An error of the user's, the cluster's or the network's
    becomes one line on stderr. A bug of ours keeps its traceback, but for one that an
    informer died of: the log has that.

    Args:
        life: Makes the coroutine; it returns the exit status.
        verbose: 0 keeps the log silent, 1 shows what happens, 2 everything.
    """
    _set_up_log(verbose)
    try:
        with _signals_as_interrupts():
            return asyncio.run(_unwrapped(life))
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # Whoever read us has seen enough: `aioinformer watch pods | head`. The
        # interpreter flushes stdout once more, and would complain.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except InternalError:
        raise
    except (AioInformerError, CommandError) as exc:
        complain(message_of(exc))
        return FAILED_CHECK if isinstance(exc, InformerStopped) else TROUBLE


async def pause(seconds: float | None) -> None:
    """Wait, for ever if `seconds` is None.

    Cancellation:
        Safe.
    """
    if seconds is None:
        await asyncio.Event().wait()
    else:
        await asyncio.sleep(seconds)


async def _unwrapped(life: Callable[[], Coroutine[Any, Any, int]]) -> int:
    try:
        return await life()
    except BaseExceptionGroup as group:
        reason = reason_of(group)
        raise reason from reason.__cause__ or group


def reason_of(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """The only error of a group, or the one that the others follow from, or the group."""
    died: BaseException | None = group.subgroup(InformerStopped)
    while isinstance(died, BaseExceptionGroup):
        died = died.exceptions[0]

    return died or unwrap_group(group)


def _set_up_log(verbose: int) -> None:
    if logging.lastResort is not None:
        # What prints the warnings of others, such as asyncio's, for want of a handler.
        logging.lastResort.setFormatter(SafeFormatter())

    log = logging.getLogger("aioinformer")
    if not verbose:
        # Keeps Python from printing warnings for want of any other handler.
        log.addHandler(logging.NullHandler())
        return

    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        SafeFormatter("%(asctime)s %(levelname)s %(name)s: %(message)s")
    )
    logging.basicConfig(handlers=[handler])
    log.setLevel(logging.DEBUG if verbose > 1 else logging.INFO)


@contextlib.contextmanager
def _signals_as_interrupts() -> Iterator[None]:
    """Let Ctrl-C and SIGTERM clean up: it may be a live table that is on screen.

    Not where Ctrl-C is ignored (a background job of a script): there SIGTERM is all
    that is left.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        yield
        return

    # asyncio cancels the command for Ctrl-C only if this is the handler.
    interrupts = signal.signal(signal.SIGINT, signal.default_int_handler)
    terminations = signal.signal(signal.SIGTERM, _interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, terminations)
        signal.signal(signal.SIGINT, interrupts)


def _interrupt(number: int, frame: FrameType | None) -> None:
    signal.raise_signal(signal.SIGINT)


async def raise_informer_failure(factory: SharedInformerFactory) -> NoReturn:
    """Wait for an informer to die; a task that is meant to take its group along.

    Raises:
        InformerStopped: If one has died; `__cause__` is what it died of.

    Cancellation:
        The way to end it, as long as all of them live.
    """
    failure = await factory.failed()
    raise InformerStopped("an informer died") from failure
