"""`MutationDetector`: finds out who changes objects that are in a cache.

What informers hold cannot be changed. A `Store` may hold anything, and whoever reads it
is given the stored objects themselves: one reader that changes a dict changes it for
all, and nobody notices. With a detector, somebody does.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

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

logger = guarded_logger(__name__)

MUTATION_DETECTOR_VARIABLE = "KUBE_CACHE_MUTATION_DETECTOR"
"""The environment variable that enables detectors; the same as client-go's."""

_TRUE = {"1", "t", "T", "true", "True", "TRUE"}


@dataclass(frozen=True, slots=True)
class Mutation(Generic[T]):
    """An object that was changed although it is in a cache.

    Attributes:
        obj: The object as it is now.
        paths: Where it differs from what it was, such as `"spec.replicas"`; `""` is the
            object as a whole. Without values, which may be secret.
    """

    obj: T
    paths: tuple[str, ...]


class MutationDetector(Generic[T]):
    """Keeps copies of objects, and compares them with the objects again and again.

    For tests and for the search for a bug: a copy takes far longer than storing, and as
    much memory again. What it finds is logged once and reported. (client-go ends the
    process.) Objects that cannot be changed are not copied.

    Args:
        name: What it is called in the log.
        enabled: If false it does nothing at all; if left out, whether the environment
            variable `KUBE_CACHE_MUTATION_DETECTOR` is true.
        period: Seconds, or a timedelta, between two comparisons of `run()`.
        retain: For so long an object is compared, at least, and for less than two times
            that.
        on_mutation: Told of each object once, too. What it raises is logged and dropped.

    Raises:
        OptionsError: If `period` or `retain` is not more than 0, or not finite, or
            `on_mutation` is no plain function.

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
        """False if it does nothing."""

        self._period = seconds_of(period)
        self._retain = seconds_of(retain)
        if self._period <= 0 or self._retain <= 0:
            raise OptionsError(
                f"period={period} and retain={retain} must be more than 0"
            )

        if on_mutation is not None:
            check_plain(on_mutation, "on_mutation")

        self._on_mutation = on_mutation
        # Two generations, so that each object is kept for at least one of them.
        # By the id of the object, which it keeps by being in there: it, and its copy.
        self._young: dict[int, tuple[T, T]] = {}
        self._old: dict[int, tuple[T, T]] = {}

    def __len__(self) -> int:
        """How many objects are compared."""
        return len(self._young) + len(self._old)

    def __repr__(self) -> str:
        state = f"{len(self)} objects" if self.enabled else "disabled"
        return f"<MutationDetector {self.name} {state}>"

    def add(self, obj: T) -> None:
        """From now on, compare this object with what it is at this moment.

        One that is compared already still is with what it was at first: who takes an
        object out of the cache, changes it and puts it back is found out too. One that
        cannot be copied is logged, and not compared.
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
            logger.exception("%s: a %s cannot be copied", self.name, type(obj).__name__)
            return

        if copied is not obj:
            self._young[id(obj)] = obj, copied

    def check(self) -> list[Mutation[T]]:
        """Compare everything at once; what was changed is reported and then let go."""
        return [mutation for mutation in self._compare() if mutation is not None]

    async def run(self) -> None:
        """Compare in every period, in slices of the loop's budget, until cancelled.

        Returns at once if it is not enabled.

        Cancellation:
            The way to stop it.
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
        """One step for each object: what has become of it, if anything has."""
        for number, (obj, was) in [*self._young.items(), *self._old.items()]:
            if number not in self._young and number not in self._old:
                continue  # it was let go meanwhile

            paths = tuple(_differences(was, obj, "", set()))
            mutation = Mutation(obj, paths) if paths else None
            if mutation is not None:
                self._young.pop(number, None)
                self._old.pop(number, None)
                self._tell(mutation)

            yield mutation

    def _tell(self, mutation: Mutation[T]) -> None:
        logger.error(
            "%s: a %s was changed in the cache: %s",
            self.name,
            type(mutation.obj).__name__,
            ", ".join(path or "all of it" for path in mutation.paths),
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
    """Where a copy and its original differ, by what they are made of.

    Not by `==`, which for many classes means the same object, or leaves fields out.
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
            continue  # its copy is another key

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
    """What a copy of an object is made of; None if it cannot be taken apart."""
    if isinstance(obj, msgspec.Struct):
        return {name: getattr(obj, name) for name in obj.__struct_fields__}

    try:
        made = obj.__reduce_ex__(4)
    except Exception:  # noqa: BLE001 - whatever the user's class says
        return None

    if isinstance(made, str):
        return None

    _, arguments, state, items, pairs = (*made, None, None, None)[:5]
    parts: dict[str, Any] = {"": [arguments, list(items or ()), list(pairs or ())]}
    for part in state if isinstance(state, tuple) else (state,):
        # Of a class with slots, the attributes come as two dicts.
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
            return deepcopy(now) is not now  # else it is another class, or function

        return bool(was == now)
    except Exception:  # noqa: BLE001 - the user's class cannot say
        return True


def _is_itself_only(obj: object) -> bool:
    """True if it equals nothing else, so that even its copy is another one."""
    return type(obj).__hash__ is object.__hash__


def _below(path: str, step: object) -> str:
    return f"{path}.{step}" if path and step != "" else path or str(step)
