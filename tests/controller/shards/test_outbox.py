"""`Outbox`: pauses after writes that failed."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from aioinformer.controller.shards.commands import Outcome, Write
from aioinformer.controller.shards.lease import (
    Role,
    ShardLease,
    blank_lease,
    fence_name,
    member_name,
)
from aioinformer.controller.shards.outbox import Outbox
from aioinformer.controller.shards.timing import ShardTiming

BLANK = blank_lease("sites", 16, "uid")
OWN = replace(BLANK, name=member_name("sites", "a"), holder="a", version="1")
FENCE = replace(BLANK, role=Role.FENCE, name=fence_name("sites", 3), index=3)


def attempts(
    lease: ShardLease,
    *,
    until: float,
    retry_after: float = 0.0,
    takes: float = 0.0,
) -> list[float]:
    """Return the times of writes that all fail, the first one at 0 s."""
    outbox, now, found = Outbox("a", ShardTiming()), 0.0, []
    while now < until:
        found.append(now)
        write = Write("update", lease, now)
        outbox.writes[lease.name] = write
        now += takes
        outbox.answered(write, Outcome.NO_ANSWER, now, retry_after)
        now = max(now, outbox.may_write_at(lease.name, lease))

    return found


@pytest.mark.parametrize("retry_after", [1.0, 5.0, 120.0])
@pytest.mark.parametrize("takes", [0.0, 3.0])
def test_refused_renewal_is_tried_twice_before_the_deadline(
    retry_after: float, takes: float
) -> None:
    timing = ShardTiming()
    # The first attempt is due `retry_period` after the last success.
    left = timing.renew_deadline - timing.retry_period
    found = attempts(OWN, until=left, retry_after=retry_after, takes=takes)
    assert 2 <= len(found) <= 4


def test_unanswered_renewal_is_tried_each_second_before_the_deadline() -> None:
    assert len(attempts(OWN, until=8.0)) >= 7


def test_pauses_of_refused_renewals_grow_after_the_deadline() -> None:
    found = attempts(OWN, until=60.0, retry_after=1.0)
    late = [it for it in found if it > 15.0]
    assert len(late) <= 45 / (0.75 * 4.5) + 1


def test_refused_fence_waits_for_as_long_as_the_server_asks() -> None:
    first, second = attempts(FENCE, until=9.0, retry_after=8.0)
    assert second - first >= 8.0


def test_pauses_of_a_fence_double_up_to_10_s() -> None:
    found = attempts(FENCE, until=100.0)
    pauses = [two - one for one, two in itertools.pairwise(found)]
    assert pauses[0] <= 1.25
    assert max(pauses) <= 12.5
    assert len(found) < 16
