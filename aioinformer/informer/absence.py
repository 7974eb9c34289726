"""`Absence`: whether the server has a resource at all; times are handed in."""

from __future__ import annotations

__all__ = ["ABSENT_SECONDS", "Absence"]

ABSENT_SECONDS = 60.0
"""For so long the server must not have named a resource before it counts as absent. A
definition that is replaced, or a server that starts, misses some for a few seconds."""


class Absence:
    """Follows whether the server has a resource; pure and synchronous.

    A list that ends in 404 means little: the next server behind the balancer may know
    the resource. Only when in addition the server has not named it among those it
    serves, each time it was asked, for a minute, it is absent.

    The minute is one without anything else between: a list that fails otherwise, as it
    does while a server is away, begins it anew, because a server that starts does not
    know all its kinds yet. A question without an answer neither counts nor begins it
    anew.

    Attributes:
        confirmed: It is absent; until the server names it, or a list succeeds.
    """

    def __init__(self) -> None:
        self.confirmed = False
        self._since: float | None = None

    def __repr__(self) -> str:
        return f"<Absence since={self._since} confirmed={self.confirmed}>"

    def answered(self, served: bool | None, now: float) -> bool:
        """A list ended in 404, and the server was asked whether it has the resource.

        Args:
            served: What it said; None if that could not be learnt.
            now: In seconds of any clock that does not go back.

        Returns:
            True if it said no, and has done so for long.
        """
        if served is None:
            return False

        if served:
            self.ended()
            return False

        if self._since is None:
            self._since = now

        lasted = now - self._since >= ABSENT_SECONDS
        self.confirmed = self.confirmed or lasted
        return lasted

    def interrupted(self) -> None:
        """A list failed otherwise: what was said before does not count any more."""
        self._since = None

    def ended(self) -> None:
        """The resource is there."""
        self._since = None
        self.confirmed = False
