"""Preempting: what faults do before a request is answered, and instead of it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from http import HTTPStatus
from typing import TYPE_CHECKING

from aioinformer.testing import statuses
from aioinformer.testing.encoding import plain, status_of
from aioinformer.testing.faults.answers import Compact, Gone, Page, Refuse
from aioinformer.testing.faults.connections import Delay
from aioinformer.testing.outlet import Answer

if TYPE_CHECKING:
    from aioinformer.errors import ApiError
    from aioinformer.testing.bell import Bell
    from aioinformer.testing.faults.base import Fault
    from aioinformer.testing.storage import Storage

__all__ = ["preempt"]

_PHRASES = {int(it): it.phrase for it in HTTPStatus}


async def preempt(
    fault: Fault | None, verb: str, storage: Storage, bell: Bell
) -> Answer | None:
    """Let a fault do what comes before the answer.

    Args:
        fault: The one that strikes the request.
        verb: Of the request.
        storage: What may be compacted.
        bell: Ends a delay early when the server stops.

    Returns:
        What is answered instead; None if the request is to be answered after all.

    Cancellation:
        Safe: a delay ends.
    """
    match fault:
        case Compact():
            storage.compact()
        case Delay():
            await bell.pause(fault.seconds)
        case Gone() if verb != "watch" or not fault.after_events:
            return _refusal(statuses.of_code(410))
        case Refuse():
            return _refused(fault)
        case Page():
            page = fault.html(_PHRASES.get(fault.status, ""))
            return Answer(
                status=fault.status, body=[page.encode()], content_type="text/html"
            )
        case _:
            pass

    return None


def _refused(fault: Refuse) -> Answer:
    error = statuses.of_code(
        fault.status,
        reason=fault.reason,
        message=fault.message,
        retry_after=fault.retry_after,
    )
    if fault.retry_after is None:
        return _refusal(error)

    wait = str(fault.retry_after)
    if fault.retry_date:
        when = datetime.now(tz=UTC) + timedelta(seconds=fault.retry_after)
        wait = format_datetime(when, usegmt=True)

    return _refusal(error, {"Retry-After": wait})


def _refusal(error: ApiError, headers: dict[str, str] | None = None) -> Answer:
    body = plain(status_of(error)) + b"\n"
    return Answer(status=error.status, body=[body], headers=headers or {})
