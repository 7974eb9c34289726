"""When the dictionary of an informer's bodies has to be made anew: by counts alone."""

from __future__ import annotations

from typing import Final

from aioinformer.model.compression import LEAST_SAMPLES, SAMPLES

__all__ = ["WINDOW", "WORSE", "CompressionFit"]

WINDOW: Final = 250
"""So many bodies are judged together."""

WORSE: Final = 1.5
"""Bodies that take so many times the room they should are what it was not made for."""


class CompressionFit:
    """Says whether a dictionary still fits the bodies that come.

    It does not if a window of them is compressed to `WORSE` times of what those were
    that it was tried on when it was made. And it is outgrown if it was made of fewer
    than `SAMPLES`, or of none, and twice as many are there by now.

    However they come, there is no end of trainings to fear: the first one is asked for
    behind one window at the earliest, and each asks for twice as many bodies before the
    next one. So n bodies lead to no more than log2(n / WINDOW) + 1.
    """

    def __init__(self) -> None:
        self.bodies = 0
        """That came since the last training."""
        self.patience = WINDOW
        """So many have to come before the next one."""
        self._samples = 0
        self._share = 1.0
        self._trained = False
        # Of the window that is under way: how many, and their bytes before and after.
        self._count = self._before = self._after = 0
        self._worse = False

    def trained(self, samples: int, share: float) -> None:
        """There is another dictionary.

        Args:
            samples: Of how many objects it was made; 0 for none at all.
            share: How large bodies became, as a part of what they were.
        """
        if self._trained:
            self.patience *= 2

        self._trained = True
        self._samples, self._share = samples, share
        self.bodies = self._count = self._before = self._after = 0
        self._worse = False

    def note(self, before: int, after: int) -> bool:
        """Take note of one body; True if it was the last one of a window.

        Args:
            before: Its bytes.
            after: Its bytes as it is stored.
        """
        self.bodies += 1
        self._count += 1
        self._before += before
        self._after += after
        if self._count < WINDOW:
            return False

        self._worse = self._after > WORSE * self._share * self._before
        self._count = self._before = self._after = 0
        return True

    def asks_for_training(self, available: int) -> bool:
        """True if it is time for another dictionary; to be asked behind each window.

        Args:
            available: Of how many objects one could be made by now.
        """
        if self.bodies < self.patience:
            return False

        return self._worse or self._outgrown(available)

    def _outgrown(self, available: int) -> bool:
        if self._samples >= SAMPLES:
            return False

        return min(available, SAMPLES) >= max(2 * self._samples, LEAST_SAMPLES)
