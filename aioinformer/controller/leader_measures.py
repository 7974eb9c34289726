"""What one elector tells its metrics sink and the log."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from aioinformer._user_code import guarded_logger
from aioinformer.informer.log_limit import LogLimit
from aioinformer.informer.reporting import Reporter
from aioinformer.metrics import GuardedSink

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioinformer.errors import HandlerError
    from aioinformer.metrics import MetricsSink

__all__ = ["LeaderMeasures"]

logger = guarded_logger(__name__)


class LeaderMeasures:
    """What one elector tells; neither a sink nor a callback that fails ends it.

    Names and meanings are those of client-go, with the label `name`:

    * `leader_election_master_status`: 1 while it leads, else 0;
    * `leader_election_slowpath_total`: renewals for which the Lease had to be read.

    Ours is `aioinformer_leader_overruns_total`: how often work was still not over when
    others could lead already.

    Args:
        name: The elector's.
        identity: Under which it leads.
        sink: Where measurements go.
        on_error: Told of failures in the user's code.
    """

    def __init__(
        self,
        name: str,
        identity: str,
        sink: MetricsSink,
        on_error: Callable[[HandlerError], None] | None = None,
    ) -> None:
        self._name = name
        self._identity = identity
        self._sink = GuardedSink(sink, name, name=name)
        self._reporter = Reporter(name, on_error, sink)
        # By the class of the failure.
        self._limits: defaultdict[str, LogLimit] = defaultdict(LogLimit)
        self._status(0)

    def began(self) -> None:
        """It leads from now on."""
        self._status(1)
        logger.info("%s: this replica, %s, leads", self._name, self._identity)

    def ended(self) -> None:
        """It leads no more, because the work is over."""
        self._status(0)
        logger.info("%s: this replica, %s, stops leading", self._name, self._identity)

    def lost(self, why: str) -> None:
        """It leads no more, though the work is not over."""
        self._status(0)
        logger.warning(
            "%s: this replica, %s, has lost the lease: %s",
            self._name,
            self._identity,
            why,
        )

    def slow_path(self) -> None:
        """It leads, and has to read its Lease before it can renew it."""
        self._sink.count("leader_election_slowpath_total", 1.0)

    def overran(self) -> None:
        """Others may lead by now, and the leader's work has not ended."""
        self._sink.count("aioinformer_leader_overruns_total", 1.0)
        logger.error(
            "%s: the leader's work was asked to stop and has not ended; the lease has "
            "run out, so that another replica may lead beside it",
            self._name,
        )

    def failed(self, what: str, failure: Exception, now: float) -> None:
        """A request has failed, and is tried again; `now` in seconds of any clock."""
        kind = type(failure).__name__
        limit = self._limits[kind].note(now)
        if limit.each:
            text = str(failure) or "no answer in time"  # `asyncio.timeout()` says none
            logger.warning("%s: cannot %s: %s: %s", self._name, what, kind, text)

        for number in limit.sums:
            logger.warning(
                "%s: %d failures of %s within a minute", self._name, number, kind
            )

    def callback_failed(self, leader: str, failure: BaseException) -> None:
        """The user's code, told of this leader, has failed."""
        self._reporter.failed("on_new_leader", self._name, leader, failure)

    def _status(self, value: float) -> None:
        self._sink.gauge("leader_election_master_status", value)
