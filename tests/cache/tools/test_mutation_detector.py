"""`MutationDetector`: detection of changed objects."""

from __future__ import annotations

import enum
import logging
import threading
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from conftest import pod
from each_case import each_case

from aioinformer.cache import Mutation, MutationDetector
from aioinformer.errors import OptionsError
from aioinformer.model import KubeObject

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass
class Machine:
    name: str
    disks: list[str] = field(default_factory=list)
    notes: dict[str, Any] = field(default_factory=dict, compare=False)


@dataclass(slots=True)
class Slotted:
    size: int = 1
    tags: list[str] = field(default_factory=list)


class Bare:
    """Object that equals only itself."""

    def __init__(self, **attributes: Any) -> None:
        self.__dict__.update(attributes)


class Struct(msgspec.Struct):
    size: int = 1


class Sized(list[int]):
    """List with an attribute."""

    limit = 1


class Unequal:
    """Object that cannot be compared."""

    def __reduce_ex__(self, protocol: object) -> str:
        raise TypeError

    def __deepcopy__(self, memo: object) -> Unequal:
        return Unequal()

    def __eq__(self, other: object) -> bool:
        raise TypeError

    __hash__ = object.__hash__


class Stated:
    """Object copied by a custom state."""

    def __init__(self) -> None:
        self.size = 1

    def __getstate__(self) -> list[int]:
        return [self.size]

    def __setstate__(self, state: list[int]) -> None:
        [self.size] = state


class Global:
    """Object copied by name, so that its copy is itself."""

    def __reduce__(self) -> str:
        return "Global"


class Color(enum.Enum):
    RED = "red"


def setting(name: str, value: object) -> Callable[[Any], None]:
    return lambda obj: setattr(obj, name, value)


def putting(key: object, value: object) -> Callable[[Any], None]:
    return lambda obj: obj.__setitem__(key, value)


def found_in(obj: Any, change: Callable[[Any], object]) -> list[tuple[str, ...]]:
    detector = MutationDetector[Any](enabled=True)
    detector.add(obj)
    change(obj)
    return [mutation.paths for mutation in detector.check()]


# ---------------------------------------------------------------- what is found


@each_case(
    "obj, change, path",
    [
        pytest.param({"a": 1}, putting("a", 2), "a", id="value"),
        pytest.param({"a": 1}, putting("b", 2), "b", id="key-added"),
        pytest.param({"a": 1}, lambda it: it.clear(), "a", id="key-removed"),
        pytest.param(
            {"spec": {"ports": [{"port": 80}, {"port": 81}]}},
            lambda it: it["spec"]["ports"][1].update(port=82),
            "spec.ports.1.port",
            id="deep",
        ),
        pytest.param({"a": [1]}, lambda it: it["a"].append(2), "a", id="length"),
        pytest.param({"a": 1}, putting("a", "1"), "a", id="type"),
        pytest.param({"a": 1}, putting("a", 1.0), "a", id="equal-of-another-type"),
        pytest.param({"a": {1, 2}}, lambda it: it["a"].add(3), "a", id="set"),
        pytest.param(
            {"a": {1, 2}},
            lambda it: it["a"].symmetric_difference_update({2, 3}),
            "a",
            id="set-of-the-same-size",
        ),
        pytest.param([[1], [2]], lambda it: it[1].append(3), "1", id="list-as-a-whole"),
        pytest.param([1], lambda it: it.append(2), "", id="the-object-itself"),
        pytest.param(
            {"a": bytearray(b"x")}, lambda it: it["a"].extend(b"y"), "a", id="bytearray"
        ),
        pytest.param(Machine("m"), setting("name", "n"), "name", id="attribute"),
        pytest.param(
            Machine("m", ["sda"]),
            lambda it: it.disks.append("sdb"),
            "disks",
            id="list-of-an-attribute",
        ),
        pytest.param(
            Machine("m", notes={"a": 1}),
            lambda it: it.notes.clear(),
            "notes.a",
            id="field-that-equality-leaves-out",
        ),
        pytest.param(Slotted(), setting("size", 2), "size", id="slots"),
        pytest.param(
            Slotted(), lambda it: it.tags.append("x"), "tags", id="list-in-a-slot"
        ),
        pytest.param(
            Bare(a=Bare(b=1)), lambda it: setattr(it.a, "b", 2), "a.b", id="no-equality"
        ),
        pytest.param(Bare(), setting("a", 1), "a", id="attribute-added"),
        pytest.param(
            {"a": threading.local},
            putting("a", threading.Thread),
            "a",
            id="another-class",
        ),
        pytest.param({"a": Global()}, putting("a", Global()), "a", id="another-global"),
        pytest.param(Stated(), setting("size", 2), "", id="state-of-its-own"),
        pytest.param(Struct(), setting("size", 2), "size", id="struct"),
        pytest.param(
            {"at": datetime(2025, 1, 1, tzinfo=UTC)},
            putting("at", datetime(2026, 1, 1, tzinfo=UTC)),
            "at",
            id="time",
        ),
    ],
)
def test_mutation_detector_reports_path_of_change(
    obj: Any, change: Callable[[Any], object], path: str
) -> None:
    [paths] = found_in(obj, change)

    assert {it[: len(path)] for it in paths} == {path}


@each_case(
    "obj",
    [
        pytest.param({"a": [1, "b", None, 1.5, True, b"c"]}, id="json"),
        pytest.param({"a": float("nan")}, id="nan"),
        pytest.param({"a": {1, 2}, "b": frozenset("xy"), "c": ("d",)}, id="sets"),
        pytest.param(Machine("m", ["sda"], {"a": 1}), id="dataclass"),
        pytest.param(Slotted(), id="slots"),
        pytest.param(Bare(a=1, b=Bare()), id="no-equality"),
        pytest.param({Bare(): 1, "b": {Bare()}}, id="keys-that-equal-only-themselves"),
        pytest.param({"a": Unequal()}, id="cannot-be-compared"),
        pytest.param({Color.RED: Color.RED}, id="enum"),
        pytest.param({"a": datetime(2025, 1, 1, tzinfo=UTC)}, id="time"),
        pytest.param({"a": print, "b": dict, "c": lambda: 1}, id="functions"),
        pytest.param(Sized([1, 2]), id="subclass-of-list"),
        pytest.param(Struct(), id="struct"),
        pytest.param(Stated(), id="state-of-its-own"),
        pytest.param({"a": Global()}, id="global"),
        pytest.param({"a": bytearray(b"x")}, id="bytearray"),
    ],
)
def test_unchanged_objects_are_not_reported(obj: Any) -> None:
    def touch(obj: Any) -> None:
        repr(obj)

    assert found_in(obj, touch) == []


def test_objects_that_contain_themselves_are_compared() -> None:
    ring: dict[str, Any] = {"a": 1}
    ring["ring"] = ring

    assert found_in(ring, lambda it: None) == []
    assert found_in(ring, putting("a", 2)) == [("a",)]


def test_objects_of_informers_are_not_copied() -> None:
    detector = MutationDetector[Any](enabled=True)

    detector.add(KubeObject.of(pod("web")))
    detector.add("text")

    assert len(detector) == 0


# ---------------------------------------------------------------- reports


def test_mutation_is_logged_without_values(caplog: pytest.LogCaptureFixture) -> None:
    reported: list[Mutation[Machine]] = []
    detector = MutationDetector[Machine](
        "machines", enabled=True, on_mutation=reported.append
    )
    machine = Machine("m", notes={"token": "secret"})
    detector.add(machine)
    machine.notes["token"] = "hidden"
    machine.name = "n"

    found = detector.check()
    again = detector.check()

    assert found == reported
    assert [(it.obj, set(it.paths)) for it in reported] == [
        (machine, {"name", "notes.token"})
    ]
    assert again == []
    [record] = caplog.records
    assert record.levelno == logging.ERROR
    assert record.getMessage().startswith("machines: Machine was changed in the cache")
    assert "secret" not in caplog.text
    assert "hidden" not in caplog.text


def test_failing_on_mutation_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    def fail(mutation: Mutation[list[int]]) -> None:
        raise OSError("disk full")

    detector = MutationDetector[list[int]](enabled=True, on_mutation=fail)
    lists: list[list[int]] = [[], []]
    for it in lists:
        detector.add(it)
        it.append(1)

    assert len(detector.check()) == 2
    assert "disk full" in caplog.text
    assert "whole object" in caplog.text


def test_object_that_cannot_be_copied_is_logged_and_not_compared(
    caplog: pytest.LogCaptureFixture,
) -> None:
    detector = MutationDetector[Any]("locks", enabled=True)

    detector.add({"lock": threading.Lock()})

    assert len(detector) == 0
    assert [it.getMessage() for it in caplog.records] == [
        "locks: cannot copy a dict, leaving it out"
    ]


# ---------------------------------------------------------------- enabling


@pytest.mark.parametrize(
    ("value", "enabled"),
    [
        ("1", True),
        ("true", True),
        ("T", True),
        ("0", False),
        ("false", False),
        ("", False),
        ("yes", False),
        (None, False),
    ],
)
async def test_environment_variable_enables_the_detector(
    monkeypatch: pytest.MonkeyPatch, value: str | None, enabled: bool
) -> None:
    monkeypatch.delenv("KUBE_CACHE_MUTATION_DETECTOR", raising=False)
    if value is not None:
        monkeypatch.setenv("KUBE_CACHE_MUTATION_DETECTOR", value)

    detector = MutationDetector[dict[str, int]]("pods")
    detector.add({"a": 1})

    assert detector.enabled is enabled
    assert len(detector) == int(enabled)
    expected = "1 objects" if enabled else "disabled"
    assert repr(detector) == f"<MutationDetector pods {expected}>"


async def test_disabled_detector_does_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBE_CACHE_MUTATION_DETECTOR", "1")
    detector = MutationDetector[dict[str, int]](enabled=False)
    detector.add({"a": 1})

    await detector.run()

    assert len(detector) == 0


@pytest.mark.parametrize(
    "options", [{"period": 0}, {"retain": -1}, {"period": float("inf")}]
)
def test_mutation_detector_rejects_invalid_options(options: dict[str, float]) -> None:
    with pytest.raises(OptionsError):
        MutationDetector[Any](**options)  # type: ignore[arg-type]
