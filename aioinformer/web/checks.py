"""Own checks of a program, for its health endpoints."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping
from inspect import isawaitable
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from aioinformer._user_code import guarded_logger, text_of, user_errors
from aioinformer.client.redaction import redacted
from aioinformer.errors import OptionsError
from aioinformer.model.callables import check_runs, check_takes
from aioinformer.model.times import seconds_of

if TYPE_CHECKING:
    from collections.abc import Collection

    from aioinformer.model.times import Duration

__all__ = ["CHECK_SECONDS", "Check", "CheckResult", "Checks"]

logger: Final = guarded_logger(__name__)

CHECK_SECONDS = 0.8
"""Default timeout of a check. A kubelet gives a probe 1 s by default."""

_NAME = re.compile(r"[\w.-]+", re.ASCII)

Check: TypeAlias = Callable[[], object]
"""Function without arguments, plain or async, that returns None or an empty string if
all is well. It returns a text, or raises, if not. A plain function is called in the
event loop and must not block."""


class CheckResult(NamedTuple):
    """Result of one check."""

    name: str
    """Name of the check."""

    label: str
    """`"failed"`, `"timed out"`, or an empty string if the check passed."""

    reason: str
    """Text of the check, or its exception. It may contain anything."""


class Checks:
    """Named checks of one endpoint, which run concurrently.

    The log has a line when a check starts to fail, and one when it passes again.

    Args:
        endpoint: Path of the endpoint, for the log.
        checks: Checks by name.
        timeout: Maximum duration of each check.

    Raises:
        OptionsError: If a name does not fit into a path, a check is not a function
            without arguments, or the timeout is not positive.
    """

    def __init__(
        self, endpoint: str, checks: Mapping[str, Check], timeout: Duration
    ) -> None:
        self.endpoint = endpoint
        """Path of the endpoint."""
        if not isinstance(checks, Mapping):
            raise OptionsError(
                f"checks of {endpoint} are a dict of functions by name, not {checks!r}"
            )

        self._checks = dict(checks)
        self._seconds = seconds_of(timeout)
        if self._seconds <= 0:
            raise OptionsError(f"check_timeout must be positive, not {timeout!r}")

        for name, check in checks.items():
            if not _NAME.fullmatch(name):
                raise OptionsError(
                    f"the check {name!r} needs a name of letters, digits, '-', '_' and "
                    "'.', as it is part of a path"
                )

            if not callable(check):
                raise OptionsError(f"the check {name!r} is not a function: {check!r}")

            check_runs(check, f"the check {name!r}")
            check_takes(check, f"the check {name!r}", f"{name}()")

        self._failing: set[str] = set()

    def __repr__(self) -> str:
        return f"<Checks {self.endpoint} {' '.join(self._checks)}>"

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the checks."""
        return tuple(self._checks)

    async def run(self, without: Collection[str] = ()) -> list[CheckResult]:
        """Run the checks, and return their results in the same order.

        Args:
            without: Names of checks to leave out.

        Cancellation:
            Cancels the checks.
        """
        async with asyncio.TaskGroup() as group:
            running = [
                group.create_task(self.run_one(name))
                for name in self._checks
                if name not in without
            ]

        return [task.result() for task in running]

    async def run_one(self, name: str) -> CheckResult:
        """Run one check. Cancellation: cancels it."""
        label = reason = ""
        limit = asyncio.timeout(self._seconds)
        try:
            async with limit:
                answer = self._checks[name]()
                if isawaitable(answer):
                    answer = await answer

            if answer is not None and answer != "" and answer is not True:
                label, reason = "failed", _text_of(answer)
        except asyncio.CancelledError as exc:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise

            label, reason = "failed", repr(exc)  # raised by the check itself
        except user_errors() as exc:
            if limit.expired():
                label, reason = "timed out", f"no result within {self._seconds:g} s"
            else:
                label, reason = "failed", f"{type(exc).__name__}: {text_of(exc)}"

        self._log(name, label, reason)
        return CheckResult(name, label, reason)

    def _log(self, name: str, label: str, reason: str) -> None:
        if label and name not in self._failing:
            self._failing.add(name)
            logger.warning(
                "%s: check %s %s: %s", self.endpoint, name, label, redacted(reason)
            )
        elif not label and name in self._failing:
            self._failing.remove(name)
            logger.warning("%s: check %s passes again", self.endpoint, name)


def _text_of(answer: object) -> str:
    if isinstance(answer, str):
        return answer

    # Its type only: the value may be a secret, or large.
    kind = "False" if answer is False else type(answer).__name__
    return f"the check returned {kind}, not a text or None"
