"""`Readers`: the processes that follow a store, their positions, and their wake-ups."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

__all__ = ["ReaderSlot", "Readers"]


class ReaderSlot:
    """Place of one follower in `readers/`: a datagram socket and a position.

    Args:
        directory: Directory `readers` of an environment.
    """

    name: str
    """Name such as `"4711-1"`: the process, and a number in it."""

    def __init__(self, directory: Path) -> None:
        raise NotImplementedError

    @property
    def position(self) -> int:
        """Number of the last entry of the journal that was told to handlers."""
        raise NotImplementedError

    @position.setter
    def position(self, number: int) -> None: ...

    def start(self, on_wake: Callable[[], None]) -> None:
        """Call `on_wake` in the running loop after each wake-up."""
        raise NotImplementedError

    def close(self) -> None:
        """Remove it. Idempotent."""
        raise NotImplementedError


class Readers:
    """All readers of an environment, for the writer and for `aioinformer cache`.

    Args:
        directory: Directory `readers` of an environment.
    """

    def __init__(self, directory: Path) -> None:
        raise NotImplementedError

    def wake(self) -> None:
        """Wake all readers; at most every 5 ms, the first time at once. In a loop."""
        raise NotImplementedError

    def positions(self) -> dict[str, int]:
        """Return the positions of live readers by name, and remove dead ones."""
        raise NotImplementedError

    def close(self) -> None:
        """Close the socket that it sends from. Idempotent."""
        raise NotImplementedError
