"""Protection from errors in user code, and from log handlers that raise.

Informers, queues and controllers call user code: handlers, transforms, index functions,
metrics sinks, log handlers. Its failure must not end anything else.
"""

from __future__ import annotations

import logging
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    _Adapter = logging.LoggerAdapter[logging.Logger]
else:
    _Adapter = logging.LoggerAdapter

__all__ = ["GuardedLogger", "guarded_logger", "text_of", "user_errors"]

_PROGRAM_ENDS = (GeneratorExit, KeyboardInterrupt, SystemExit)


def user_errors() -> tuple[type[BaseException], ...]:
    """Return the exceptions to catch around a call of user code.

    For `except user_errors():`, which Python evaluates while handling the exception. It
    catches all but `SystemExit`, `KeyboardInterrupt` and `GeneratorExit`, which end the
    program or a coroutine on purpose. A fixed list would miss classes that derive from
    `BaseException`, such as that of `pytest.fail()`, which would end the calling task.

    It also catches `CancelledError`: a real cancellation arrives only at an `await`, so
    a plain function has raised it itself, as the result of a cancelled future does.
    Around an `await`, handle the cancellation first.
    """
    return () if isinstance(sys.exception(), _PROGRAM_ENDS) else (BaseException,)


def text_of(failure: BaseException, shown: Callable[[BaseException], str] = str) -> str:
    """Return the text of a user's exception, or its class if it has no readable text.

    Args:
        failure: Exception of any class. Its own methods may raise.
        shown: Function that returns the text, `str` or `repr`.
    """
    try:
        return shown(failure)
    except user_errors():
        return type(failure).__name__


class GuardedLogger(_Adapter):
    """Logger whose handlers and filters may raise.

    `logging` itself propagates errors of a `Filter`, or of a `Handler` without
    `handleError`. Here they are printed to stderr, as `logging` does for its own
    handlers, and dropped: the caller is usually recording a failure, and has to
    continue.
    """

    def log(self, level: int, msg: object, *args: object, **kwargs: Any) -> None:
        """Log a message. All other methods call this one."""
        # One more frame between the caller and the record, which names the caller.
        kwargs["stacklevel"] = kwargs.get("stacklevel", 1) + 1
        try:
            super().log(level, msg, *args, **kwargs)
        except user_errors():  # printed and dropped
            _PRINTER.handleError(_record_of(self.logger.name, level, msg, args))


def guarded_logger(name: str) -> GuardedLogger:
    """Return the logger of a module: `logger = guarded_logger(__name__)`."""
    return GuardedLogger(logging.getLogger(name))


# Prints what another handler has raised, if `logging.raiseExceptions` says so.
_PRINTER = logging.Handler()


def _record_of(
    name: str, level: int, msg: object, args: tuple[object, ...]
) -> logging.LogRecord:
    values: Mapping[str, object] = {
        "name": name,
        "levelno": level,
        "levelname": logging.getLevelName(level),
        "msg": msg,
        "args": args,
    }
    return logging.makeLogRecord(values)
