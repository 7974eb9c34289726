"""`Objects`: the objects of a `DiskContents`, by key."""

from __future__ import annotations

from collections.abc import ItemsView, Mapping, ValuesView
from typing import TYPE_CHECKING, Final

from aioinformer.cache.disk.records import state_of
from aioinformer.model.objects import KubeObject

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aioinformer.cache.disk.contents import DiskContents

__all__ = ["SLICE", "Objects"]

SLICE: Final = 256
"""Objects that an iteration reads in one transaction."""

_BETWEEN_CHECKS: Final = 16


class Objects(Mapping[str, KubeObject]):
    """Objects of a `DiskContents` by key, read from disk at each access.

    Each access returns a new `KubeObject`. An iteration is a sequence of transactions,
    so it may see a change that was made after it began; within `reading()` it is one
    snapshot. It sees each key at most once, in the order of the keys.

    Args:
        contents: Contents that they belong to.
    """

    def __init__(self, contents: DiskContents) -> None:
        self.contents = contents

    def __repr__(self) -> str:
        return f"<Objects of {self.contents!r}>"

    def __getitem__(self, key: str) -> KubeObject:
        found = self.contents.get(key)
        if found is None:
            raise KeyError(key)

        return found

    def get(  # type: ignore[override]  # of any default
        self, key: str, default: KubeObject | None = None
    ) -> KubeObject | None:
        """Return the object under a key, or `default`."""
        found = self.contents.get(key)
        return default if found is None else found

    def __contains__(self, key: object) -> bool:
        return isinstance(key, str) and self.contents.has(key)

    def __len__(self) -> int:
        return self.contents.count()

    def __iter__(self) -> Iterator[str]:
        return self.contents.keys()

    def values(self) -> ValuesView[KubeObject]:
        """Return a view of the objects."""
        return _Values(self)

    def items(self) -> ItemsView[str, KubeObject]:
        """Return a view of keys and objects."""
        return _Items(self)

    def differences(
        self, other: Mapping[str, KubeObject]
    ) -> Iterator[tuple[str, KubeObject | None, KubeObject | None] | None]:
        """Yield key, object here and object there for each key that differs.

        The objects need not differ: their stored forms do. None is yielded now and then
        in between, to check the loop's budget. No transaction is open between two
        results, so neither side may change meanwhile.
        """
        assert isinstance(other, Objects), "a list for a store on disk is staged there"
        return _merged(self.contents, other.contents)


class _Values(ValuesView[KubeObject]):
    _mapping: Objects

    def __iter__(self) -> Iterator[KubeObject]:
        return (obj for _, obj in self._mapping.contents.pairs())


class _Items(ItemsView[str, KubeObject]):
    _mapping: Objects

    def __iter__(self) -> Iterator[tuple[str, KubeObject]]:
        return self._mapping.contents.pairs()


def _merged(
    here: DiskContents, there: DiskContents
) -> Iterator[tuple[str, KubeObject | None, KubeObject | None] | None]:
    """Merge the records of two generations, which are sorted by name."""
    ours, theirs = _records(here), _records(there)
    one, two = next(ours, None), next(theirs, None)
    until_check = _BETWEEN_CHECKS
    while one is not None or two is not None:
        if two is None or (one is not None and one[0] < two[0]):
            assert one is not None
            key, obj = here.decode(*one)
            one = next(ours, None)
            yield key, obj, None
        elif one is None or two[0] < one[0]:
            key, obj = there.decode(*two)
            two = next(theirs, None)
            yield key, None, obj
        else:
            if state_of(one[1]) != state_of(two[1]):
                key, obj = here.decode(*one)
                yield key, obj, there.decode(*two)[1]

            one, two = next(ours, None), next(theirs, None)

        until_check -= 1
        if not until_check:
            until_check = _BETWEEN_CHECKS
            yield None


def _records(contents: DiskContents) -> Iterator[tuple[bytes, bytes]]:
    after: bytes | None = None
    while found := contents.slice(after, 4 * _BETWEEN_CHECKS):
        yield from found
        after = found[-1][0]
