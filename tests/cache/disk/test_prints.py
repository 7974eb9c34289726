"""`print_of`: equal for the same code in all processes, different for edited code."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from aioinformer import index_by, strip_managed_fields
from aioinformer.cache import index_by_label, index_by_owner
from aioinformer.cache.disk.prints import print_of
from aioinformer.model.transforms import drop, transform_dict

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

PROGRAM = '''
"""A module with index functions."""
import functools
import logging
import operator
import re
import sys
from dataclasses import dataclass, field
from enum import Enum

import msgspec

from aioinformer import index_by
from aioinformer.cache.disk.prints import print_of
from aioinformer.model.transforms import drop, transform_dict

logger = logging.getLogger("program")
LABELS = {"app", "tier", "zone", "team", "owner", "stage"}
PATTERN = re.compile("a+")


class Size(Enum):
    SMALL = 1


class Front(msgspec.Struct):
    a: int = 0


decode = msgspec.json.Decoder(Front).decode


@dataclass(frozen=True)
class Images:
    names: frozenset[str] = frozenset({"a", "b", "c"})
    more: dict = field(default_factory=dict)

    def __call__(self, obj):
        return [it for it in self.names if it in {"x", "y", "z"}]

    def method(self, obj):
        return ()


class Bare:
    def __init__(self):
        self.front = Front(a=1)

    def __call__(self, obj):
        return ()


def outer(words):
    def inner(obj):
        logger.debug("%s", LABELS)
        return [PATTERN.sub("", it) for it in words if it in {"p", "q"}]

    return inner


@functools.lru_cache
def cached(obj):
    return (Size.SMALL.name,)


def front(obj):
    return decode(b"{}").a


EVERY = {
    "lambda": lambda obj: {"a", "b", "c"},
    "closure": outer(("u", "v")),
    "object": Images(),
    "bound method": Images().method,
    "object without slots": Bare(),
    "partial": functools.partial(front, words={"k": 1}),
    "cached": cached,
    "bound built-in": {"a": 1}.get,
    "getter": operator.attrgetter("key"),
    "decoder": front,
    "dict transform": transform_dict(front),
    "path": index_by("spec.nodeName"),
    "drop": drop("status.images"),
}
if __name__ == "__main__":
    for name, function in EVERY.items():
        print(name, "=", print_of(function))
'''


@pytest.mark.realtime
def test_prints_are_equal_in_processes_with_other_hashes(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)

    def prints(seed: str) -> list[str]:
        environment = os.environ | {"PYTHONHASHSEED": seed}
        done = subprocess.run(
            [sys.executable, str(program)],
            env=environment,
            capture_output=True,
            text=True,
            check=True,
            timeout=30,
        )
        return done.stdout.splitlines()

    one, other = prints("1"), prints("2")

    assert len(one) == 13
    assert len({line.partition("=")[2] for line in one}) == 13
    assert one == other


def made(source: str, name: str = "f") -> Callable[..., object]:
    """Execute the source of a module and return a function of it."""
    module: dict[str, Any] = {"__name__": "app.indexes"}
    exec(source, module)
    function: Callable[..., object] = module[name]
    return function


SOURCE = """
LABEL = "app"
TABLE = {"a": [1, 2]}
class Reader:
    limit = 3
    def read(self, obj):
        return obj.name[:self.limit]
def helper(obj, *, end="x"):
    return obj.name + end
def f(obj, length=5):
    '''Return the values.'''
    inner = [helper(obj) for _ in range(2)]
    return [LABEL, TABLE, Reader().read(obj), length, *inner]
"""


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param("range(2)", "range(3)", id="constant"),
        pytest.param("for _ in", "for obj in", id="comprehension"),
        pytest.param("length=5", "length=6", id="default"),
        pytest.param("length=5", "*, length=5", id="kind-of-parameter"),
        pytest.param('LABEL = "app"', 'LABEL = "tier"', id="global"),
        pytest.param("[1, 2]", "[1, 3]", id="global-container"),
        pytest.param("obj.name + end", "obj.uid + end", id="called-function"),
        pytest.param('end="x"', 'end="y"', id="default-of-called-function"),
        pytest.param("limit = 3", "limit = 4", id="class-attribute"),
        pytest.param("obj.name[:", "obj.uid[:", id="method-of-used-class"),
        pytest.param("class Reader:", "class Reader(dict):", id="base-class"),
    ],
)
def test_edited_function_has_another_print(before: str, after: str) -> None:
    assert before in SOURCE

    assert print_of(made(SOURCE)) != print_of(made(SOURCE.replace(before, after)))


def test_function_that_is_loaded_again_has_the_same_print() -> None:
    assert print_of(made(SOURCE)) == print_of(made("\n\n" + SOURCE))


def test_renamed_function_has_another_print() -> None:
    renamed = SOURCE.replace("def f(", "def g(")

    assert print_of(made(SOURCE)) != print_of(made(renamed, "g"))


def test_print_begins_with_the_name_of_the_function() -> None:
    assert print_of(made(SOURCE)).startswith("app.indexes.f ")
    assert print_of(partial(made(SOURCE), length=1)).startswith("app.indexes.f ")
    assert print_of(index_by("spec.x")).startswith("index_by('spec.x') ")


def test_recursive_function_has_a_print() -> None:
    source = "def f(n): return g(n)\ndef g(n): return f(n - 1)"

    assert print_of(made(source)) == print_of(made(source))


def test_none_has_an_empty_print() -> None:
    assert print_of(None) == ""


def closing_over(value: object) -> Callable[..., object]:
    return lambda _: value


def images(body: dict[str, Any]) -> dict[str, Any]:
    return {"images": body}


def nodes(body: dict[str, Any]) -> dict[str, Any]:
    return {"nodes": body}


class Stateful:
    def __init__(self, state: object) -> None:
        self.state = state

    def __call__(self, _: object) -> tuple[str, ...]:
        return ()

    def method(self, _: object) -> tuple[str, ...]:
        return ()


@pytest.mark.parametrize(
    ("one", "other"),
    [
        pytest.param(index_by("spec.a"), index_by("spec.b"), id="index_by"),
        pytest.param(index_by_label("a"), index_by_label("b"), id="index_by_label"),
        pytest.param(
            index_by_owner(), index_by_owner(controller=True), id="index_by_owner"
        ),
        pytest.param(drop("a.b"), drop("a.c"), id="drop"),
        pytest.param(drop("a.b"), strip_managed_fields, id="strip"),
        pytest.param(
            transform_dict(images), transform_dict(nodes), id="transform_dict"
        ),
        pytest.param(closing_over(1), closing_over(2), id="closure"),
        pytest.param(closing_over(1), closing_over(True), id="equal-values"),
        pytest.param(closing_over(images), closing_over(nodes), id="inner-function"),
        pytest.param(Stateful([1]), Stateful([2]), id="state"),
        pytest.param(Stateful(1).method, Stateful(2).method, id="bound-method"),
        pytest.param(Stateful(1), Stateful(1).method, id="methods"),
        pytest.param(partial(images, {}), partial(images, {"a": 1}), id="partial"),
        pytest.param("a".join, "b".join, id="built-in"),
    ],
)
def test_other_arguments_or_state_have_another_print(
    one: Callable[..., object], other: Callable[..., object]
) -> None:
    assert print_of(one) == print_of(one)
    assert print_of(one) != print_of(other)


def test_equal_arguments_have_the_same_print() -> None:
    assert print_of(drop("a.b")) == print_of(drop("a.b"))
    assert print_of(index_by("a.b")) == print_of(index_by("a.b"))
    assert print_of(Stateful({1, 2})) == print_of(Stateful({2, 1}))
    assert print_of(transform_dict(images)) == print_of(transform_dict(images))


def test_function_with_state_of_this_process_has_a_print_of_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lock = threading.Lock()
    function = closing_over(lock)
    here = print_of(function)

    assert here == print_of(function)
    assert here != print_of(closing_over(lock))
    # As after a fork, when both processes have the same memory.
    monkeypatch.setattr(os, "getpid", lambda: -1)
    assert here != print_of(function)


def test_function_whose_state_cannot_be_read_has_a_print_of_its_own() -> None:
    class Broken:
        def __call__(self, _: object) -> tuple[str, ...]:
            return ()

        def __reduce_ex__(self, _: object) -> str:
            raise RuntimeError("a bug of the user")

    assert print_of(Broken()) != print_of(Broken())


def test_edited_struct_of_a_decoder_changes_the_print() -> None:
    source = """
import msgspec
class Front(msgspec.Struct):
    a: int = 0
decode = msgspec.json.Decoder(list[Front] | None).decode
def f(obj):
    return decode(obj.raw)
"""
    edited = source.replace("a: int", "a: str")

    assert print_of(made(source)) == print_of(made(source))
    assert print_of(made(source)) != print_of(made(edited))


def test_compiled_function_of_the_same_package_has_a_print_of_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its code cannot be read, and may change with the package."""

    class Compiled:
        __qualname__ = "helper"
        __module__ = "app.compiled"

        def __reduce_ex__(self, _: object) -> str:
            return "helper"

    function = made("def f(obj): return helper(obj)")
    function.__globals__["helper"] = Compiled()
    here = print_of(function)

    monkeypatch.setattr(os, "getpid", lambda: -1)
    assert here != print_of(function)
