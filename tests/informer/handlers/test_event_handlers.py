"""`EventHandlers`: called functions, their arguments, and invalid ones."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import pytest
from fake_source import thing
from informer_helpers import pods_of

from aioinformer.errors import OptionsError
from aioinformer.informer import Added, Deleted, Updated
from aioinformer.informer.handlers.event_handlers import EventHandlers

if TYPE_CHECKING:
    import inspect
    from collections.abc import AsyncIterator, Generator

    from aioinformer.model import KubeObject

OLD, NEW = thing("a", 1), thing("a", 2)
EVENTS = [Added(NEW), Updated(OLD, NEW), Deleted(NEW)]


def ignore(*_: object) -> None:
    """Do nothing."""


# ---------------------------------------------------------------- types


def test_decorators_have_the_types_of_their_handlers() -> None:
    """mypy reports an unused `type: ignore`, so it must find each of these mistakes."""
    pods = pods_of()

    def of_number(obj: int) -> None: ...

    def of_one(obj: KubeObject) -> None: ...

    async def of_two(old: KubeObject, new: KubeObject) -> None: ...

    pods.on_add(of_number)  # type: ignore[type-var]
    pods.on_add(coalesce=True)(of_number)  # type: ignore[type-var]
    pods.on_event(of_number)  # type: ignore[type-var]
    pods.add_event_handler(of_number)  # type: ignore[arg-type]
    with pytest.raises(OptionsError, match=r"on_update\(old, new\)"):
        pods.on_update(of_one)  # type: ignore[type-var]
    with pytest.raises(OptionsError, match=r"on_delete\(obj\)"):
        pods.on_delete(of_two)  # type: ignore[type-var]

    assert pods.on_add(of_one) is of_one
    assert pods.on_update(filter=bool)(of_two) is of_two


# ---------------------------------------------------------------- calls


def test_each_handler_gets_its_arguments() -> None:
    record: list[tuple[str, tuple[KubeObject, ...]]] = []
    calls = EventHandlers(
        on_add=lambda obj: record.append(("add", (obj,))),
        on_update=lambda old, new: record.append(("update", (old, new))),
        on_delete=lambda obj: record.append(("delete", (obj,))),
    ).calls()

    for event in EVENTS:
        calls[type(event)](event)

    assert record == [("add", (NEW,)), ("update", (OLD, NEW)), ("delete", (NEW,))]


def test_on_event_gets_every_event() -> None:
    record: list[object] = []
    calls = EventHandlers(on_event=record.append).calls()

    for event in EVENTS:
        calls[type(event)](event)

    assert record == EVENTS


@pytest.mark.parametrize(
    ("handlers", "kind"),
    [
        (EventHandlers(on_add=ignore), Added),
        (EventHandlers(on_update=ignore), Updated),
        (EventHandlers(on_delete=ignore), Deleted),
    ],
    ids=["add", "update", "delete"],
)
def test_events_without_a_handler_cause_no_call(
    handlers: EventHandlers, kind: type
) -> None:
    assert list(handlers.calls()) == [kind]


async def stream(_: object) -> AsyncIterator[None]:
    yield


def generator(_: object) -> Generator[None]:
    yield


class Generating:
    def __call__(self, _: object) -> Generator[None]:
        yield


@pytest.mark.parametrize(
    ("handlers", "complaint"),
    [
        pytest.param({}, "pass either", id="none"),
        pytest.param(
            {"on_event": ignore, "on_delete": ignore}, "pass either", id="both"
        ),
        pytest.param(
            {"on_add": "greet"}, "must be callable, not 'greet'", id="a-string"
        ),
        pytest.param({"on_event": 3}, "must be callable, not 3", id="a-number"),
        pytest.param({"on_add": stream}, "is a generator", id="async-generator"),
        pytest.param({"on_event": generator}, "is a generator", id="generator"),
        pytest.param({"on_event": Generating()}, "is a generator", id="generating"),
    ],
)
def test_invalid_handlers_are_refused(handlers: dict[str, Any], complaint: str) -> None:
    with pytest.raises(OptionsError, match=complaint):
        EventHandlers(**handlers)


def two(_old: object, _new: object) -> None:
    """Accept the arguments of `on_update`."""


@pytest.mark.parametrize(
    ("handlers", "complaint"),
    [
        ({"on_add": lambda: 1}, r"callable as on_add\(obj\): .* too many positional"),
        (
            {"on_add": two},
            r"callable as on_add\(obj\): .* missing a required .* '_new'",
        ),
        ({"on_update": lambda new: 1}, r"callable as on_update\(old, new\): "),
        ({"on_delete": two}, r"callable as on_delete\(obj\): "),
        ({"on_event": two}, r"callable as on_event\(event\): "),
    ],
)
def test_handlers_with_other_parameters_are_refused(
    handlers: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(OptionsError, match=complaint):
        EventHandlers(**handlers)


def test_handler_without_a_signature_is_accepted() -> None:
    class Unknown:
        """A handler whose signature cannot be read, like some C functions."""

        def __call__(self, _: object) -> None:
            """Handle an event."""

        @property
        def __signature__(self) -> inspect.Signature:
            raise ValueError("no signature found")

    assert list(EventHandlers(on_add=Unknown()).calls()) == [Added]
    record: list[object] = []
    assert list(EventHandlers(on_event=record.append).calls()) == [
        Added,
        Updated,
        Deleted,
    ]


class Greeter:
    def greet(self, *_: object) -> None:
        """Handle an object."""

    def __call__(self, *_: object) -> None:
        """Handle an object."""


@pytest.mark.parametrize(
    ("handlers", "name"),
    [
        (EventHandlers(on_add=ignore), "ignore"),
        (
            EventHandlers(on_add=ignore, on_update=Greeter().greet),
            "ignore+Greeter.greet",
        ),
        (EventHandlers(on_add=ignore, on_delete=ignore), "ignore"),
        (EventHandlers(on_event=Greeter()), "Greeter"),
        (EventHandlers(on_event=functools.partial(ignore, 1)), "partial"),
    ],
    ids=["function", "two", "twice-the-same", "object", "partial"],
)
def test_repr_names_the_functions(handlers: EventHandlers, name: str) -> None:
    assert handlers.describe() == name
