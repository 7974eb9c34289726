"""`Chaos`: faults drawn by a seed."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from aioinformer.errors import OptionsError
from aioinformer_apiserver.faults.base import check_number, check_verb
from aioinformer_apiserver.faults.connections import Cut, End, Slow, Stall
from aioinformer_apiserver.faults.events import (
    BlankBookmarks,
    Drop,
    Duplicate,
    ErrorEvent,
    EventFault,
    Foreign,
    Garble,
    NoBookmarks,
    StepBack,
    UnknownType,
    Unreadable,
)
from aioinformer_apiserver.faults.responses import Compact, Delay, Gone, Page, Refuse

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from aioinformer_apiserver.faults.base import Fault, Occasion, Verb

__all__ = ["Chaos"]

# Clients must survive these; other codes may be permanent errors.
_STATUSES = (401, 403, 404, 409, 410, 429, 500, 503, 504)
_PAGES = (200, 502, 503)
# Most strikes are near the beginning, some beyond the first read.
_BYTES = 20_000
_EVENTS = 10
_SECONDS = 40


class Chaos:
    """Random source of faults of every kind, reproducible by its seed.

    The fault of the n-th matching request depends only on the seed, n and its verb.

    Args:
        seed: Any whole number. A failing test should name it.
        rate: Fraction of requests to strike, above 0 and at most 1.
        verbs: Verb or verbs of the requests to strike.
        limit: Maximum number of strikes; None for no limit.
        lies: True to draw also faults that clients cannot detect before they relist:
            omitted or unreadable events, and objects of another kind.

    Raises:
        OptionsError: If it could never strike, or `rate` or `limit` is out of range.

    Attributes:
        drawn: Drawn faults, oldest first.
    """

    def __init__(
        self,
        *,
        seed: int,
        rate: float = 0.1,
        verbs: Verb | Collection[Verb] = ("list", "watch"),
        limit: int | None = None,
        lies: bool = False,
    ) -> None:
        if not 0 < rate <= 1:  # False for NaN.
            raise OptionsError(f"Chaos: rate must be above 0 and at most 1, not {rate}")

        if limit is not None:
            check_number("Chaos", "limit", limit, least=1)

        self.drawn: list[Fault] = []
        self._seed = seed
        self._rate = rate
        self._verbs = _check_verbs(verbs)
        self._limit = limit
        self._lies = lies
        self._requests = 0

    def __repr__(self) -> str:
        drawn = ", ".join(map(repr, self.drawn)) or "nothing"
        return f"<Chaos seed={self._seed} requests={self._requests} drew {drawn}>"

    def take(self, occasion: Occasion) -> Fault | None:
        """Draw the fault of one request; None to let it pass."""
        verb = next((it for it in self._verbs if it == occasion.verb), None)
        if verb is None or len(self.drawn) == self._limit:
            return None

        rng = Random(f"{self._seed}/{self._requests}")
        self._requests += 1
        if rng.random() >= self._rate:
            return None

        makers = _makers_for(verb, lies=self._lies)
        fault = rng.choice(makers)(verb, rng)
        self.drawn.append(fault)
        return fault


def _check_verbs(verbs: Verb | Collection[Verb]) -> frozenset[Verb]:
    found: list[Verb] = [verbs] if isinstance(verbs, str) else [*verbs]
    if not found:
        raise OptionsError(
            "Chaos: verbs must contain at least one verb, such as 'list'"
        )

    for verb in found:
        check_verb("Chaos", verb)

    return frozenset(found)


def _makers_for(verb: Verb, *, lies: bool) -> list[Callable[[Verb, Random], Fault]]:
    makers = [*_ALWAYS]
    if verb == "watch":
        makers += _WATCHES
    elif verb == "list":
        makers += _LISTS

    return [*makers, *_LIES] if lies and verb in {"list", "watch"} else makers


def _refuse(verb: Verb, rng: Random) -> Fault:
    wait = rng.choice([None, 1, 5])
    return Refuse(
        verb=verb,
        status=rng.choice(_STATUSES),
        retry_after=wait,
        retry_date=wait is not None and rng.random() < 0.5,
    )


def _cut(verb: Verb, rng: Random) -> Fault:
    # Half of them early: many responses are short.
    size = rng.randrange(rng.choice([500, _BYTES]))
    head, reset = rng.random() < 0.8, rng.random() < 0.3
    return Cut(verb=verb, after_bytes=size, head=head, reset=reset)


def _stall(verb: Verb, rng: Random) -> Fault:
    size, head = rng.randrange(_BYTES), rng.random() < 0.5
    seconds = rng.randrange(1, _SECONDS)
    return Stall(verb=verb, after_bytes=size, head=head, seconds=seconds)


def _end(verb: Verb, rng: Random) -> Fault:
    if verb == "watch" and rng.random() < 0.5:
        return End(verb=verb, after_events=rng.randrange(_EVENTS))

    return End(verb=verb, after_bytes=rng.randrange(_BYTES))


def _slow(verb: Verb, rng: Random) -> Fault:
    return Slow(verb=verb, bytes_per_second=rng.choice([1_000, 50_000]))


def _error_event(verb: Verb, rng: Random) -> Fault:
    events = rng.randrange(_EVENTS)
    return ErrorEvent(verb=verb, after_events=events, status=rng.choice(_STATUSES))


def _after_some_events(
    kind: type[EventFault | Gone],
) -> Callable[[Verb, Random], Fault]:
    return lambda verb, rng: kind(verb=verb, after_events=rng.randrange(_EVENTS))


_ALWAYS: list[Callable[[Verb, Random], Fault]] = [
    _refuse,
    _cut,
    _stall,
    _end,
    _slow,
    lambda verb, rng: Page(verb=verb, status=rng.choice(_PAGES)),
    lambda verb, rng: Delay(verb=verb, seconds=rng.randrange(1, _SECONDS)),
]

_LISTS = [
    lambda verb, _rng: Gone(verb=verb),
    lambda verb, _rng: Compact(verb=verb),
    _after_some_events(Garble),
    _after_some_events(Duplicate),
    _after_some_events(StepBack),
]

_WATCHES = [
    lambda verb, _rng: Compact(verb=verb),
    _error_event,
    _after_some_events(Gone),
    _after_some_events(Garble),
    _after_some_events(Duplicate),
    _after_some_events(StepBack),
    _after_some_events(UnknownType),
    _after_some_events(BlankBookmarks),
    _after_some_events(NoBookmarks),
]

_LIES = [
    _after_some_events(Drop),
    _after_some_events(Foreign),
    _after_some_events(Unreadable),
]
