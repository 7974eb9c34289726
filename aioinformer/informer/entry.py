"""`Entry`: an informer of a factory, and who needs it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aioinformer._runnables import Runnable
    from aioinformer.informer.asking import Question
    from aioinformer.informer.shared_informer import SharedInformer

__all__ = ["Entry"]


@dataclass(slots=True, eq=False)
class Entry:
    """An informer of a factory, and who needs it.

    Attributes:
        asked: What it was asked for with.
        informer: The one that was made for that.
        runnable: What runs it.
        lasting: It was asked for without an end.
        users: How many blocks use it for a time.
    """

    asked: Question
    informer: SharedInformer
    runnable: Runnable
    lasting: bool = False
    users: int = 0
