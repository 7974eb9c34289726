"""`Watchdog`: after how much silence a watch counts as dead; times are handed in.

Pure and synchronous: it has no timer. Whoever reads the watch keeps one, and ends the
watch when the deadline has passed without a sign of life.
"""

from __future__ import annotations

from collections import deque

__all__ = ["Watchdog"]

GAPS = 2.5
"""That many of the longest gap between bookmarks without a sign of life are death. Real
servers send one about every minute, which makes 150 s."""

SHORTEST_SECONDS = 90.0
"""The least silence that counts, however quickly bookmarks come."""

TOGETHER_SECONDS = 5.0
"""Bookmarks closer than that count as one: they tell no rhythm. Some servers send two at
the beginning of a watch, and then none."""

LONGEST_GAP_SECONDS = 120.0
"""What is longer tells no rhythm either, but a pause: of this process (a laptop asleep)
or of a server that has no rhythm. It would make 300 s or more of silence, which is when
the server ends a watch anyway."""

REMEMBERED_GAPS = 8
"""The longest of so many counts, so that one slow moment is forgotten in minutes."""

DEATHS_TO_DOUBT = 2
"""That many watches in a row ended by the watchdog, without a gap between bookmarks in
them, look as if the server had stopped to send any."""


class Watchdog:
    """Learns the rhythm of a server's bookmarks, and says when silence is death.

    It is armed once two bookmarks came in one watch: silence then counts as death after
    2.5 times the longest of the last gaps between bookmarks, but not before 90 s. Any
    event is a sign of life, not bookmarks alone. Some resources get no bookmarks at all;
    for them it never is armed.

    What was learnt in one watch holds in the next ones, as a connection may stall
    before its first bookmark. Only a watch that it had to end without a bookmark, or
    two in a row without two of them, disarms it until it has learnt anew: perhaps the
    server has stopped to send them, and there must be no loop of false alarms.

    One belongs to one list-watch. client-go has none; there a stalled connection is
    found by the probes of TCP and HTTP/2, which a proxy may answer.
    """

    # Invariants: no gap is outside of TOGETHER_SECONDS to LONGEST_GAP_SECONDS, so patience
    # is between 90 and 300 s. There are less than DEATHS_TO_DOUBT deaths. Between two
    # watches nothing is heard, if the watchdog ended the first.

    def __init__(self) -> None:
        self._gaps: deque[float] = deque(maxlen=REMEMBERED_GAPS)
        self._deaths = 0
        # Of the current watch: its last sign of life, its last bookmark.
        self._heard: float | None = None
        self._bookmark: float | None = None

    def __repr__(self) -> str:
        state = f"armed, {self._patience():g}s" if self.armed else "not armed"
        return f"<Watchdog {state}>"

    @property
    def armed(self) -> bool:
        """True if it knows how often bookmarks come, so that silence means something."""
        return bool(self._gaps)

    @property
    def longest_gap(self) -> float:
        """The longest of the last gaps between bookmarks in seconds; 0 if not armed."""
        return max(self._gaps, default=0.0)

    def begin(self, now: float) -> None:
        """The server has accepted a new watch.

        Args:
            now: In seconds of any clock that does not go back.
        """
        if self._heard is not None:
            self._deaths = 0  # the watch before ended in another way

        self._heard = now
        self._bookmark = None

    def heard(self, now: float) -> None:
        """Something came in the watch, whatever it was."""
        self._heard = now

    def bookmark(self, now: float) -> None:
        """A bookmark came in the watch; the same as `heard()`, and learns of it."""
        self._heard = now
        if self._bookmark is None:
            self._bookmark = now
            return

        gap = now - self._bookmark
        if gap < TOGETHER_SECONDS:
            return

        self._bookmark = now
        if gap <= LONGEST_GAP_SECONDS:
            self._gaps.append(gap)
            self._deaths = 0

    def deadline(self) -> float | None:
        """When the watch counts as dead if nothing comes; None if silence is normal.

        It moves with every sign of life, also towards the past of what it said before
        (a first gap was learnt, a long one forgotten): ask again when a timer fires, and
        after each bookmark.
        """
        if self._heard is None or not self._gaps:
            return None

        return self._heard + self._patience()

    def bitten(self) -> None:
        """The watch was ended because its deadline had passed."""
        self._deaths += 1
        if self._bookmark is None or self._deaths >= DEATHS_TO_DOUBT:
            self._gaps.clear()
            self._deaths = 0

        self._heard = None

    def _patience(self) -> float:
        return max(GAPS * self.longest_gap, SHORTEST_SECONDS)
