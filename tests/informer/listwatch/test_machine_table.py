"""The list-watch machine: the next phase after every error in every phase.

Errors of one kind have the same effect. The tables contain the kind of each error, and
the next phase for each kind in each case. The tests check every combination.
"""

from __future__ import annotations

from dataclasses import MISSING, dataclass, fields, replace
from itertools import product
from typing import TYPE_CHECKING, Any, get_args

import pytest
from list_watch_errors import (
    ERRORS,
    INTERNAL,
    INVALID,
    KINDS,
    NEVER,
    PATIENCE,
    RESET,
    STUCK,
    UNSUPPORTED,
    VERSION,
)

from aioinformer import errors
from aioinformer.errors import AioInformerError, InternalError, TransportError
from aioinformer.informer.listwatch.machine import (
    Action,
    Clear,
    Discard,
    Input,
    ListFailed,
    Listing,
    PageListed,
    Phase,
    Report,
    Reselected,
    ShardsListed,
    StreamListed,
    Unverified,
    WatchEnded,
    Watching,
    advance,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

# ---------------------------------------------------------------- cases


@dataclass(frozen=True)
class Case:
    """A phase, flags of the failure, and the next phase for each kind of error.

    `then` is the next phase for all kinds that are not in `unless`.
    """

    phase: Phase
    flags: dict[str, bool]
    then: Phase
    unless: Mapping[str, Phase]

    def failed(self, error: Exception) -> Input:
        if isinstance(self.phase, Listing):
            return ListFailed(error, **self.flags)

        if self.flags is UNVERIFIED:
            return Unverified(error)

        return WatchEnded("8", error, **self.flags)


REFUSED: dict[str, bool] = {}
ESTABLISHED = {"established": True}
UNVERIFIED: dict[str, bool] = {}
NEW = Listing("0")
PAGES = Listing("5", known="5")
NEWEST = Listing("", known="5")
AFTER_RESET = Listing("", known="5", after_reset=True)
DETOUR = Listing("5", known="5", detour=True)


def stream(version: str, broken: int = 0, **more: Any) -> Listing:
    return Listing(version, known="5", streaming=True, broken=broken, **more)


LISTS = {
    "first": Case(
        NEW,
        REFUSED,
        then=NEW,
        unless={
            VERSION: Listing(""),
            INVALID: Listing(""),
            RESET: Listing("", after_reset=True),
        },
    ),
    "pages": Case(
        PAGES,
        REFUSED,
        then=PAGES,
        unless={VERSION: NEWEST, INVALID: NEWEST, RESET: AFTER_RESET},
    ),
    "further-page": Case(
        Listing("5", "t", "6", known="5"),
        REFUSED,
        then=PAGES,
        unless=(
            dict.fromkeys([STUCK, UNSUPPORTED], replace(PAGES, whole=True))
            | dict.fromkeys([VERSION, INVALID], replace(NEWEST, whole=True))
            | {RESET: replace(AFTER_RESET, whole=True)}
        ),
    ),
    "whole": Case(
        replace(NEWEST, whole=True), REFUSED, then=NEWEST, unless={RESET: AFTER_RESET}
    ),
    "newest": Case(NEWEST, REFUSED, then=NEWEST, unless={RESET: AFTER_RESET}),
    "after-reset": Case(AFTER_RESET, REFUSED, then=AFTER_RESET, unless={}),
    "detour": Case(
        DETOUR,
        REFUSED,
        then=stream("5"),
        unless={
            VERSION: stream(""),
            INVALID: stream(""),
            RESET: stream("", after_reset=True),
        },
    ),
    "further-page-of-a-detour": Case(
        Listing("5", "t", "6", known="5", detour=True),
        REFUSED,
        then=DETOUR,
        unless=(
            dict.fromkeys([STUCK, UNSUPPORTED], replace(DETOUR, whole=True))
            | dict.fromkeys(
                [VERSION, INVALID],
                Listing("", known="5", detour=True, whole=True),
            )
            | {RESET: Listing("", known="5", after_reset=True, detour=True, whole=True)}
        ),
    ),
}

STREAMS = {
    "first-stream": Case(
        Listing("0", streaming=True),
        REFUSED,
        then=Listing("0", streaming=True, broken=1),
        unless={
            PATIENCE: Listing("0", streaming=True),
            UNSUPPORTED: NEW,
            INVALID: NEW,
            VERSION: Listing("", streaming=True),
            RESET: Listing("", after_reset=True, streaming=True),
        },
    ),
    "stream": Case(
        stream("5"),
        REFUSED,
        then=stream("5", 1),
        unless={
            PATIENCE: stream("5"),
            UNSUPPORTED: PAGES,
            INVALID: stream(""),
            VERSION: stream(""),
            RESET: stream("", after_reset=True),
        },
    ),
    "newest-stream": Case(
        stream("", 1),
        ESTABLISHED,
        then=stream("", 2),
        unless={
            PATIENCE: stream("", 1),
            UNSUPPORTED: NEWEST,
            INVALID: NEWEST,
            VERSION: stream("", 1),
            RESET: stream("", 1, after_reset=True),
        },
    ),
    "stream-after-reset": Case(
        stream("", after_reset=True),
        ESTABLISHED,
        then=stream("", 1, after_reset=True),
        unless={
            PATIENCE: stream("", after_reset=True),
            UNSUPPORTED: AFTER_RESET,
            INVALID: AFTER_RESET,
            VERSION: stream("", after_reset=True),
            RESET: stream("", after_reset=True),
        },
    ),
    "third-stream-refused": Case(
        stream("5", 2),
        REFUSED,
        then=DETOUR,
        unless={
            PATIENCE: stream("5", 2),
            UNSUPPORTED: PAGES,
            INVALID: stream("", 2),
            VERSION: stream("", 2),
            RESET: stream("", 2, after_reset=True),
        },
    ),
    "third-stream-broken": Case(
        stream("5", 2),
        ESTABLISHED,
        then=PAGES,
        unless={
            PATIENCE: stream("5", 2),
            UNSUPPORTED: PAGES,
            INVALID: stream("", 2),
            VERSION: stream("", 2),
            RESET: stream("", 2, after_reset=True),
        },
    ),
    "endless-stream": Case(
        stream("5", 1), ESTABLISHED | {"endless": True}, then=PAGES, unless={}
    ),
    "stream-that-never-begins": Case(
        stream("5", 1), {"endless": True}, then=PAGES, unless={}
    ),
}

ABSENT = {
    "absent": Case(PAGES, {"absent": True}, then=NEW, unless={}),
    "absent-behind-a-page": Case(
        Listing("5", "t", "6", known="5"), {"absent": True}, then=NEW, unless={}
    ),
    "absent-after-reset": Case(AFTER_RESET, {"absent": True}, then=NEW, unless={}),
    "absent-stream": Case(
        stream("5", 2), {"absent": True}, then=Listing("0", streaming=True), unless={}
    ),
    "absent-broken-stream": Case(
        stream("5", 2),
        ESTABLISHED | {"absent": True},
        then=Listing("0", streaming=True),
        unless={},
    ),
    "absent-endless-stream": Case(
        stream("5"),
        ESTABLISHED | {"endless": True, "absent": True},
        then=Listing("0", streaming=True),
        unless={},
    ),
    "absent-stream-that-never-begins": Case(
        stream("5"),
        {"endless": True, "absent": True},
        then=Listing("0", streaming=True),
        unless={},
    ),
    "absent-detour": Case(
        DETOUR, {"absent": True}, then=Listing("0", streaming=True), unless={}
    ),
}

# If nothing is known, an absent resource changes nothing.
LISTS["absent-first"] = Case(
    NEW, {"absent": True}, then=NEW, unless=LISTS["first"].unless
)
STREAMS["absent-first-stream"] = Case(
    Listing("0", streaming=True),
    {"absent": True},
    then=STREAMS["first-stream"].then,
    unless=STREAMS["first-stream"].unless,
)


def relists(streaming: bool, kinds: dict[str, str]) -> dict[str, Phase]:
    """Return the lists that follow a watch that ended at version 8."""
    return {
        kind: Listing(
            how.strip("!"),
            known="8",
            after_reset=how.endswith("!"),
            streaming=streaming,
        )
        for kind, how in kinds.items()
    }


# "8" is a list not older than 8, "" one of the newest state, "!" one after a reset.
AFTER_WATCH = {STUCK: "8", UNSUPPORTED: "8", VERSION: "", INVALID: "", RESET: "!"}

WATCHES = {
    f"watch-{'established' if established else 'refused'}"
    f"{'-for-long' if persistent else ''}{'-streaming' if streaming else ''}": Case(
        Watching("5", streaming),
        {"established": established, "persistent": persistent},
        then=Watching("8", streaming),
        unless=relists(
            streaming, AFTER_WATCH | ({INTERNAL: "8"} if persistent else {})
        ),
    )
    for established, persistent, streaming in product([True, False], repeat=3)
}

# The store has some shards at version 9: a list must not be older.
BEHIND = {
    "watch-behind-some-shards": Case(
        Watching("5", ahead=9),
        {"established": True},
        then=Watching("8", ahead=9),
        unless={
            STUCK: Listing("9", known="9"),
            UNSUPPORTED: Listing("9", known="9"),
            VERSION: Listing("", known="9"),
            INVALID: Listing("", known="9"),
            RESET: Listing("", known="9", after_reset=True),
        },
    )
}

# A list that compares everything follows, unless the failure is temporary.
STORED_LISTS = {
    f"stored-list{'-streaming' if streaming else ''}": Case(
        Watching("5", streaming),
        UNVERIFIED,
        then=Watching("5", streaming),
        unless=dict.fromkeys(
            [STUCK, UNSUPPORTED, VERSION, INVALID, RESET],
            replace(AFTER_RESET, streaming=streaming),
        ),
    )
    for streaming in (False, True)
}

ALL = LISTS | STREAMS | ABSENT | WATCHES | BEHIND | STORED_LISTS


def wrong_rows(cases: dict[str, Case], *actions: Action) -> list[str]:
    """Put every error into every case; return the rows that differ from the table.

    Args:
        cases: Part of the table.
        actions: Expected actions before the report of the error.
    """
    wrong = []
    for (name, case), (named, (error, kind)) in product(cases.items(), ERRORS.items()):
        got = advance(case.phase, case.failed(error))
        wanted = (case.unless.get(kind, case.then), [*actions, Report(error)])
        if got != wanted:
            wrong.append(f"{name}, {named}: {got}, not {wanted}")

    return wrong


# ---------------------------------------------------------------- every combination


def test_failed_list_leads_to_the_phase_in_the_table() -> None:
    assert wrong_rows(LISTS | STREAMS, Discard()) == []


def test_failed_list_of_absent_resource_leads_to_the_phase_in_the_table() -> None:
    assert wrong_rows(ABSENT, Discard(), Clear()) == []


def test_failed_watch_leads_to_the_phase_in_the_table() -> None:
    assert wrong_rows(WATCHES | BEHIND) == []


def test_stored_list_that_is_not_verified_leads_to_the_phase_in_the_table() -> None:
    assert wrong_rows(STORED_LISTS) == []


def test_watch_without_a_version_is_followed_by_a_list() -> None:
    rows = product(ERRORS.values(), ["", "0"], [False, True])
    for (error, kind), version, streaming in rows:
        got = advance(Watching("", streaming), WatchEnded(version, error))

        after_reset = kind == RESET
        then = Listing("", known=version, after_reset=after_reset, streaming=streaming)
        assert got == (then, [Report(error)])


# ---------------------------------------------------------------- impossible input

A_PAGE, A_STREAM, A_WATCH = Listing("5", "t", "6"), stream("5"), Watching("5")
BROKEN = TransportError("broken")

IMPOSSIBLE = {
    "page-of-a-stream": (A_STREAM, PageListed("6")),
    "stream-of-a-page": (A_PAGE, StreamListed("6")),
    "stream-of-a-detour": (DETOUR, StreamListed("6")),
    "established-page": (A_PAGE, ListFailed(BROKEN, established=True)),
    "endless-page": (A_PAGE, ListFailed(BROKEN, endless=True)),
    "established-detour": (DETOUR, ListFailed(BROKEN, established=True)),
    "watch-ended-while-listing": (NEW, WatchEnded("6")),
    "watch-failed-while-paging": (A_PAGE, WatchEnded("6", BROKEN)),
    "watch-failed-while-streaming": (A_STREAM, WatchEnded("6", BROKEN)),
    "page-while-watching": (A_WATCH, PageListed("6")),
    "token-while-watching": (A_WATCH, PageListed("6", "t")),
    "stream-while-watching": (Watching("5", streaming=True), StreamListed("6")),
    "list-failed-while-watching": (A_WATCH, ListFailed(BROKEN)),
    "absent-while-watching": (A_WATCH, ListFailed(BROKEN, absent=True)),
    "unverified-while-paging": (A_PAGE, Unverified(BROKEN)),
    "reselected-while-paging": (A_PAGE, Reselected()),
    "shards-listed-while-paging": (A_PAGE, ShardsListed("6")),
}


@pytest.mark.parametrize(
    ("phase", "happened"),
    [pytest.param(*case, id=name) for name, case in IMPOSSIBLE.items()],
)
def test_impossible_input_raises_internal_error(phase: Phase, happened: Input) -> None:
    with pytest.raises(InternalError, match=r"unexpected .* in phase"):
        advance(phase, happened)


# ---------------------------------------------------------------- completeness


def test_every_error_class_is_in_the_table_or_excluded() -> None:
    every_class = {
        value
        for value in vars(errors).values()
        if isinstance(value, type) and issubclass(value, AioInformerError)
    }
    met = {type(error) for error, _ in ERRORS.values()}

    assert met | NEVER == every_class
    assert not met & NEVER


def test_every_kind_of_error_is_in_the_table() -> None:
    assert {kind for _, kind in ERRORS.values()} == KINDS
    assert all(set(case.unless) <= KINDS for case in ALL.values())


def test_every_phase_is_tested_with_every_input() -> None:
    """A new phase or input must be added to the tables."""
    successes = {
        (Listing, PageListed),
        (Listing, StreamListed),
        (Watching, Reselected),
        (Watching, ShardsListed),
    }
    possible = {(type(it.phase), type(it.failed(BROKEN))) for it in ALL.values()}
    refused = {(type(phase), type(it)) for phase, it in IMPOSSIBLE.values()}

    everything = set(product(get_args(Phase), get_args(Input)))
    assert successes | possible | refused == everything


def test_every_field_of_a_phase_has_several_values_in_the_table() -> None:
    """A new field must be added to the tables."""
    for kind in get_args(Phase):
        phases = [it.phase for it in ALL.values() if isinstance(it.phase, kind)]
        for field in fields(kind):
            values = {getattr(phase, field.name) for phase in phases}
            assert len(values) > 1 or field.name == "version", (kind, field.name)


def test_every_combination_of_flags_is_in_the_table() -> None:
    """Combine all flags of failures with streams and with watches."""

    def flags_of(kind: type) -> list[str]:
        return [it.name for it in fields(kind) if it.type == "bool"]

    list_flags, watch_flags = flags_of(ListFailed), flags_of(WatchEnded)
    assert {*list_flags, "error"} == {it.name for it in fields(ListFailed)}
    assert {*watch_flags, "version", "error"} == {it.name for it in fields(WatchEnded)}

    def said(flags: list[str], case: Case) -> tuple[bool, ...]:
        failure = case.failed(BROKEN)
        return tuple(getattr(failure, name) for name in flags)

    streams = {
        said(list_flags, it)
        for it in ALL.values()
        if isinstance(it.phase, Listing) and it.phase.streaming
    }
    watches = {said(watch_flags, it) for it in WATCHES.values()}
    assert streams == set(product([False, True], repeat=len(list_flags)))
    assert watches == set(product([False, True], repeat=len(watch_flags)))


def test_flags_are_false_by_default_except_established() -> None:
    defaults = {
        (kind, field.name): field.default
        for kind in (ListFailed, WatchEnded)
        for field in fields(kind)
        if field.default is not MISSING and field.type == "bool"
    }

    on = {name for name, default in defaults.items() if default}
    assert on == {(WatchEnded, "established")}
