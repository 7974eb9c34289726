"""`MutationDetector`: finds code that changes objects in a cache.

Objects of informers cannot be changed. A `Store` may hold any object, and returns the
stored objects themselves. A reader that changes a dict changes it for all readers, and
nothing reports that. A detector does.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

import msgspec

from aioinformer._user_code import guarded_logger, user_errors
from aioinformer.budget import LoopBudget
from aioinformer.errors import OptionsError
from aioinformer.model.callables import check_plain
from aioinformer.model.times import Duration, seconds_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["MUTATION_DETECTOR_VARIABLE", "Mutation", "MutationDetector"]

T = TypeVar("T")

logger: Final = guarded_logger(__name__)

MUTATION_DETECTOR_VARIABLE = "KUBE_CACHE_MUTATION_DETECTOR"
"""Environment variable that enables detectors; the same as client-go's."""

_TRUE = {"1", "t", "T", "true", "True", "TRUE"}


@dataclass(frozen=True, slots=True)
class Mutation(Generic[T]):
    """Object that was changed while it was in a cache.

    Attributes:
        obj: Object in its changed state.
        paths: Paths that differ, such as `"spec.replicas"`; `""` is the whole object.
            Without values, which may be secret.
    """

    obj: T
    paths: tuple[str, ...]


class MutationDetector(Generic[T]):
    """Copies of objects, compared with the objects periodically.

    For tests, and to find a bug: copying takes far longer than storing, and doubles the
    memory. Each changed object is logged and reported once. (client-go ends the
    process.) Immutable objects are not copied.

    Args:
        name: Name in the log.
        enabled: False to do nothing. By default the value of the environment variable
            `KUBE_CACHE_MUTATION_DETECTOR`.
        period: Time between two comparisons of `run()`, in seconds or as a timedelta.
        retain: Shortest time for which an object is compared; the longest is twice
            that.
        on_mutation: Function called with each changed object. Its errors are logged and
            dropped.

    Raises:
        OptionsError: If `period` or `retain` is not above 0 or not finite, or
            `on_mutation` is not a plain function.

    Example::

        detector = MutationDetector[Machine]("machines", enabled=True)
        detector.add(machine)
        store.add(machine)
    """

    def __init__(
        self,
        name: str = "store",
        *,
        enabled: bool | None = None,
        period: Duration = 1.0,
        retain: Duration = 120.0,
        on_mutation: Callable[[Mutation[T]], None] | None = None,
    ) -> None:
        if enabled is None:
            enabled = os.environ.get(MUTATION_DETECTOR_VARIABLE, "") in _TRUE

        self.name = name
        self.enabled = enabled
        """True if it detects mutations."""

        self._period = seconds_of(period)
        self._retain = seconds_of(retain)
        if self._period <= 0 or self._retain <= 0:
            raise OptionsError(
                f"period and retain must be positive, not {period} and {retain}"
            )

        if on_mutation is not None:
            check_plain(on_mutation, "on_mutation")

        self._on_mutation = on_mutation
        # Two generations: each object is kept for at least one of them. Objects and
        # their copies by the id of the object, which stays valid while it is in here.
        self._young: dict[int, tuple[T, T]] = {}
        self._old: dict[int, tuple[T, T]] = {}

    def __len__(self) -> int:
        """Return the number of compared objects."""
        return len(self._young) + len(self._old)

    def __repr__(self) -> str:
        state = f"{len(self)} objects" if self.enabled else "disabled"
        return f"<MutationDetector {self.name} {state}>"

    def add(self, obj: T) -> None:
        """Compare an object with its present state from now on.

        An object that is compared already keeps its first state for comparison. So code
        that takes an object out of the cache, changes it and puts it back is found,
        too. An object that cannot be copied is logged and not compared.
        """
        if not self.enabled or id(obj) in self._young:
            return

        known = self._old.pop(id(obj), None)
        if known is not None:
            self._young[id(obj)] = known
            return

        try:
            copied = deepcopy(obj)
        except Exception:
            logger.exception(
                "%s: cannot copy a %s, leaving it out", self.name, type(obj).__name__
            )
            return

        if copied is not obj:
            self._young[id(obj)] = obj, copied

    def check(self) -> list[Mutation[T]]:
        """Compare all objects now; changed ones are reported and dropped."""
        return [mutation for mutation in self._compare() if mutation is not None]

    async def run(self) -> None:
        """Compare in every period, in slices of the loop's budget, until cancelled.

        Returns at once if the detector is not enabled.

        Cancellation:
            Ends it.
        """
        loop = asyncio.get_running_loop()
        budget = LoopBudget.current()
        turn = loop.time() + self._retain
        while self.enabled:
            await asyncio.sleep(self._period)
            await budget.start()
            for _ in self._compare():
                if budget.over():
                    await budget.start()

            budget.end()
            if loop.time() >= turn:
                turn = loop.time() + self._retain
                self._old, self._young = self._young, {}

    def _compare(self) -> Iterator[Mutation[T] | None]:
        """Compare one object in each step; yield its mutation, or None."""
        for number, (obj, was) in [*self._young.items(), *self._old.items()]:
            if number not in self._young and number not in self._old:
                continue  # dropped meanwhile

            paths = tuple(_differences(was, obj, "", set()))
            mutation = Mutation(obj, paths) if paths else None
            if mutation is not None:
                self._young.pop(number, None)
                self._old.pop(number, None)
                self._report(mutation)

            yield mutation

    def _report(self, mutation: Mutation[T]) -> None:
        logger.error(
            "%s: %s was changed in the cache (paths=%s)",
            self.name,
            type(mutation.obj).__name__,
            ", ".join(path or "whole object" for path in mutation.paths),
        )
        if self._on_mutation is not None:
            try:
                self._on_mutation(mutation)
            except user_errors():  # logged and dropped
                logger.exception("on_mutation failed")


# ---------------------------------------------------------------- comparing

# Compared as a whole.
_ATOMS = (str, bytes, int, float, complex, set, frozenset)


def _differences(
    was: object, now: object, path: str, seen: set[tuple[int, int]]
) -> Iterator[str]:
    """Yield the paths at which a copy and its original differ.

    It compares their parts, not by `==`: for many classes that compares identities, or
    leaves out fields.
    """
    pair = (id(was), id(now))
    if was is now or pair in seen:
        return

    seen.add(pair)
    if type(was) is not type(now):
        yield path
    elif isinstance(was, Mapping) and isinstance(now, Mapping):
        yield from _of_mappings(was, now, path, seen)
    elif isinstance(was, list | tuple) and isinstance(now, list | tuple):
        if len(was) != len(now):
            yield path
        else:
            for number, (one, other) in enumerate(zip(was, now, strict=True)):
                yield from _differences(one, other, _below(path, number), seen)
    else:
        yield from _of_objects(was, now, path, seen)


def _of_mappings(
    was: Mapping[Any, Any],
    now: Mapping[Any, Any],
    path: str,
    seen: set[tuple[int, int]],
) -> Iterator[str]:
    for key in (*was, *(key for key in now if key not in was)):
        if _is_itself_only(key):
            continue  # its copy is a different key

        if key in was and key in now:
            yield from _differences(was[key], now[key], _below(path, key), seen)
        else:
            yield _below(path, key)


def _of_objects(
    was: object, now: object, path: str, seen: set[tuple[int, int]]
) -> Iterator[str]:
    parts = None if isinstance(was, _ATOMS) else _parts_of(was)
    if parts is not None:
        yield from _differences(parts, _parts_of(now), path, seen)
    elif not _equal(was, now):
        yield path


def _parts_of(obj: object) -> dict[str, Any] | None:
    """Return the parts that a copy of an object has; None if it has none."""
    if isinstance(obj, msgspec.Struct):
        return {name: getattr(obj, name) for name in obj.__struct_fields__}

    try:
        made = obj.__reduce_ex__(4)
    except Exception:  # noqa: BLE001 - the user's class
        return None

    if isinstance(made, str):
        return None

    _, arguments, state, items, pairs = (*made, None, None, None)[:5]
    parts: dict[str, Any] = {"": [arguments, list(items or ()), list(pairs or ())]}
    for part in state if isinstance(state, tuple) else (state,):
        # A class with slots gives its attributes as two dicts.
        if isinstance(part, dict):
            parts |= part
        elif part is not None:
            parts[""].append(part)

    return parts


def _equal(was: object, now: object) -> bool:
    if isinstance(was, set | frozenset) and isinstance(now, set | frozenset):
        alike = {it for it in now if not _is_itself_only(it)}
        return len(was) == len(now) and alike <= was

    try:
        if type(now).__eq__ is object.__eq__:
            return deepcopy(now) is not now  # else another class or function

        return bool(was == now)
    except Exception:  # noqa: BLE001 - the user's class
        return True


def _is_itself_only(obj: object) -> bool:
    """Return True if an object equals no other one, not even its copy."""
    return type(obj).__hash__ is object.__hash__


def _below(path: str, step: object) -> str:
    return f"{path}.{step}" if path and step != "" else path or str(step)
