"""Event loop, signals, log and exit status of a command."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import sys
from typing import TYPE_CHECKING

from aioinformer._runnables import wait_until_cancelled
from aioinformer._tasks import unwrap_group
from aioinformer.cli import FAILED_CHECK, INTERRUPTED, TERMINATED, TROUBLE
from aioinformer.cli.error_messages import CommandError, message_of
from aioinformer.cli.output import SafeFormatter, print_error
from aioinformer.errors import AioInformerError, InformerStopped, InternalError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator
    from types import FrameType
    from typing import Any, NoReturn

    from aioinformer.informer import SharedInformerFactory

__all__ = [
    "FAILED_CHECK",
    "INTERRUPTED",
    "TERMINATED",
    "TROUBLE",
    "pause",
    "raise_informer_failure",
    "reason_of",
    "run",
]


def run(
    main: Callable[[], Coroutine[Any, Any, int]],
    *,
    verbose: int = 0,
    loggers: tuple[str, ...] = ("aioinformer",),
) -> int:
    """Run a command, and return its exit status.

    Ctrl-C and SIGTERM cancel it, and the status is 128 and the signal. Errors of the
    user, the cluster or the network become one line on stderr. Bugs of this package
    have a traceback, except for those that kill an informer, which are in the log.

    Args:
        main: Coroutine function of the command, which returns the exit status.
        verbose: Log level: 0 for none, 1 for INFO, 2 for DEBUG.
        loggers: Names of the loggers that the level applies to.
    """
    _set_up_log(verbose, loggers)
    terminated: list[int] = []
    try:
        with _signals_as_interrupts(terminated):
            return asyncio.run(_unwrapped(main))
    except KeyboardInterrupt:
        return TERMINATED if terminated else INTERRUPTED
    except BrokenPipeError:
        # The reader has ended: `aioinformer watch pods | head`. The interpreter flushes
        # stdout once more, which must not fail.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except InternalError:
        raise
    except (AioInformerError, CommandError) as exc:
        print_error(message_of(exc))
        return FAILED_CHECK if isinstance(exc, InformerStopped) else TROUBLE


async def pause(seconds: float | None) -> None:
    """Wait, forever if `seconds` is None.

    Cancellation:
        Safe.
    """
    if seconds is None:
        await wait_until_cancelled()
    else:
        await asyncio.sleep(seconds)


async def _unwrapped(main: Callable[[], Coroutine[Any, Any, int]]) -> int:
    try:
        return await main()
    except BaseExceptionGroup as group:
        reason = reason_of(group)
        raise reason from reason.__cause__ or group


def reason_of(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return the only error of a group, or the one that caused the others, or the group."""
    failure: BaseException | None = group.subgroup(InformerStopped)
    while isinstance(failure, BaseExceptionGroup):
        failure = failure.exceptions[0]

    return failure or unwrap_group(group)


def _set_up_log(verbose: int, loggers: tuple[str, ...]) -> None:
    if logging.lastResort is not None:
        # It prints warnings of others, such as asyncio, that have no handler.
        logging.lastResort.setFormatter(SafeFormatter())

    if not verbose:
        # Keeps `lastResort` from printing our warnings.
        logging.getLogger("aioinformer").addHandler(logging.NullHandler())
        return

    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        SafeFormatter("%(asctime)s %(levelname)s %(name)s: %(message)s")
    )
    logging.basicConfig(handlers=[handler])
    for name in loggers:
        level = logging.DEBUG if verbose > 1 else logging.INFO
        logging.getLogger(name).setLevel(level)


@contextlib.contextmanager
def _signals_as_interrupts(terminated: list[int]) -> Iterator[None]:
    """Cancel the command on Ctrl-C and SIGTERM, so that it can restore the terminal.

    Where Ctrl-C is ignored (background jobs of a script), SIGTERM keeps its default.

    Args:
        terminated: List that receives each SIGTERM.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        yield
        return

    def interrupt(number: int, frame: FrameType | None) -> None:
        terminated.append(number)
        signal.raise_signal(signal.SIGINT)

    # asyncio cancels the command for Ctrl-C only if this is the handler.
    interrupts = signal.signal(signal.SIGINT, signal.default_int_handler)
    terminations = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, terminations)
        signal.signal(signal.SIGINT, interrupts)


async def raise_informer_failure(factory: SharedInformerFactory) -> NoReturn:
    """Wait until an informer fails, and raise its failure to end a task group.

    Raises:
        InformerStopped: If an informer has failed. `__cause__` is its error.

    Cancellation:
        Safe.
    """
    failure = await factory.failed()
    raise InformerStopped("an informer failed") from failure
