"""Members of a shard group side by side, driven by hand, on clocks of different rates."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shard_driver import Driver
from shard_server import LeaseServer

from aioinformer.controller.shards.lease import member_name
from aioinformer.controller.shards.member import Outcome

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioinformer.controller.shards.timing import ShardTiming

__all__ = ["World"]

TURN_SECONDS = 0.05


class World:
    """Members of one group, which never own a range at the same time.

    Attributes:
        server: Server of all members.
        time: Real time in seconds.
        drivers: Members by their names.
        cut: Names of members whose requests do not arrive.
    """

    def __init__(self) -> None:
        self.server = LeaseServer()
        self.time = 0.0
        self.drivers: dict[str, Driver] = {}
        self.cut: set[str] = set()
        self._rates: dict[str, float] = {}

    def add(
        self,
        name: str,
        rate: float = 1.0,
        timing: ShardTiming | None = None,
        identity: str = "",
    ) -> Driver:
        """Start a member whose clock has this rate; its identity is its name, or given."""
        driver = Driver(self.server, identity or name, timing=timing)
        self.drivers[name] = driver
        self._rates[name] = rate
        return driver

    def run(self, seconds: float, until: Callable[[], bool] = lambda: False) -> None:
        """Let time pass, and check that each range has one owner at a time."""
        for _ in range(round(seconds / TURN_SECONDS)):
            self.time += TURN_SECONDS
            for name, driver in self.drivers.items():
                driver.now += TURN_SECONDS * self._rates[name]
                if name in self.cut:
                    driver.step()
                    driver.answer(Outcome.NO_ANSWER)
                    driver.step()
                else:
                    driver.turn()

            for index in (0, 1):
                owners = self.owners(index)
                assert len(owners) <= 1, f"range {index} at {owners}, {self.time:.2f} s"

            if until():
                return

    def run_until(self, reached: Callable[[], bool], seconds: float = 60.0) -> None:
        self.run(seconds, reached)
        assert reached()

    def owners(self, index: int) -> list[str]:
        drivers = self.drivers.items()
        return [name for name, it in drivers if it.member.owns(index, it.now)]

    def range_of(self, name: str) -> int:
        """Return the range that a member owns."""
        (index,) = (it for it in (0, 1) if self.owners(it) == [name])
        return index

    def after_a_renewal(self, name: str) -> None:
        """Run until the watch has just shown a renewal."""
        member = self.drivers[name].member
        before = member.deadline
        self.run_until(lambda: member.deadline != before, 20)

    def lease_of(self, name: str) -> str:
        """Return the name of a member's Lease."""
        return member_name("sites", name)
