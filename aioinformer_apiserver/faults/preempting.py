"""Preempting: what faults do before a request is answered, and instead of it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import TYPE_CHECKING

from aioinformer_apiserver.errors import statuses
from aioinformer_apiserver.faults.answers import Compact, Gone, Page, Refuse
from aioinformer_apiserver.faults.connections import Delay
from aioinformer_apiserver.serialization.answers import Answer, refusal

if TYPE_CHECKING:
    from aioinformer_apiserver.faults.base import Fault
    from aioinformer_apiserver.faults.script import Strike
    from aioinformer_apiserver.storage.storage import Storage
    from aioinformer_apiserver.storage.waker import Bell

__all__ = ["preempt"]


async def preempt(strike: Strike | None, storage: Storage, bell: Bell) -> Answer | None:
    """Let a fault do what comes before the answer.

    Args:
        strike: What strikes the request.
        storage: What may be compacted.
        bell: Ends a delay early when the server stops.

    Returns:
        What is answered instead; None if the request is to be answered after all.

    Cancellation:
        Safe: a delay ends.
    """
    if strike is None:
        return None

    match strike.fault:
        case Compact():
            storage.compact()
        case Delay(seconds=seconds):
            strike.land()
            await bell.pause(seconds)
        case fault:
            answer = _instead(fault, strike.occasion.verb)
            if answer is not None:
                strike.land()

            return answer

    return None


def _instead(fault: Fault, verb: str) -> Answer | None:
    match fault:
        case Gone() if verb != "watch" or not fault.after_events:
            return refusal(statuses.of_code(410))
        case Refuse():
            return _refused(fault)
        case Page():
            body = [fault.html().encode()]
            return Answer(status=fault.status, body=body, content_type="text/html")
        case _:
            return None


def _refused(fault: Refuse) -> Answer:
    error = statuses.of_code(
        fault.status,
        reason=fault.reason,
        message=fault.message,
        retry_after=fault.retry_after,
    )
    answer = refusal(error)
    if fault.retry_date:
        when = datetime.now(tz=UTC) + timedelta(seconds=fault.retry_after or 0)
        answer.headers["Retry-After"] = format_datetime(when, usegmt=True)

    return answer
