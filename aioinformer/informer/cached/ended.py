"""`ended_contents`: contents in place of those of a closed store."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NoReturn, cast

from aioinformer.cache.memory import MemoryContents
from aioinformer.errors import InformerStopped

if TYPE_CHECKING:
    from aioinformer.errors import HandlerError
    from aioinformer.model.objects import KubeObject

__all__ = ["ended_contents"]


class _Ended(Mapping[str, Any]):
    """Objects or indexes of a store that was closed: only their number is known."""

    def __init__(self, name: str, count: int) -> None:
        self._name = name
        self._count = count

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, key: str) -> NoReturn:
        raise self._error()

    def __iter__(self) -> NoReturn:
        raise self._error()

    def __contains__(self, key: object) -> NoReturn:
        raise self._error()

    def get(self, key: str, default: object = None) -> NoReturn:
        raise self._error()

    def _error(self) -> InformerStopped:
        return InformerStopped(
            f"{self._name} has ended, and its store on disk is closed"
        )


def ended_contents(name: str, count: int) -> MemoryContents[KubeObject]:
    """Return contents in place of those of a closed store, whose reads raise.

    Args:
        name: Name of the informer.
        count: Number of objects at the end.
    """
    contents: MemoryContents[KubeObject] = MemoryContents({}, _ignore)
    contents.objects = cast("dict[str, KubeObject]", _Ended(name, count))
    contents.indexes = cast("dict[str, Any]", _Ended(name, 0))
    return contents


def _ignore(_: HandlerError) -> None:
    """Do nothing: there are no index functions."""
