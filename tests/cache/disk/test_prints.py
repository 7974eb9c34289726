"""`print_of`: equal for the same code in all processes, different for edited code."""

from __future__ import annotations

import importlib
import logging
import os
import re
import shutil
import subprocess
import sys
from functools import lru_cache, partial
from threading import Lock
from typing import TYPE_CHECKING, Any

import informer_helpers
import pytest

from aioinformer import index_by, strip_managed_fields
from aioinformer.cache import index_by_label, index_by_owner
from aioinformer.cache.disk.prints import _version_of, print_of
from aioinformer.model.transforms import drop, transform_dict

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

PROGRAM = '''
"""A module with index functions."""
import functools
import json
import logging
import operator
import re
import sys

from aioinformer import index_by
from aioinformer.cache.disk.prints import print_of
from aioinformer.model.transforms import drop, transform_dict

logger = logging.getLogger("program")
LABELS = {"app", "tier", "zone", "team", "owner", "stage"}
PATTERN = re.compile("a+")


def outer(words):
    def inner(obj):
        logger.debug("%s", LABELS)
        return [PATTERN.sub("", it) for it in words if it in {"p", "q"}]

    return inner


def front(obj, words=None):
    return json.loads(b"{}") if "x" in {"x", "y"} else operator.add(1, 2)


EVERY = {
    "lambda": lambda obj: {"a", "b", "c"},
    "closure": outer(("u", "v")),
    "partial": functools.partial(front, words={"k": 1}),
    "bound built-in": {"a": 1}.get,
    "function": front,
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

    assert len(one) == 8
    assert len({line.partition("=")[2] for line in one}) == 8
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
def helper(obj, *, end="x"):
    return obj.name + end
def f(obj, length=5):
    '''Return the values.'''
    inner = [helper(obj) for _ in range(2)]
    return [LABEL, TABLE, length, *inner]
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


def having(**attributes: object) -> Callable[..., object]:
    """Return a function with attributes."""

    def function(_: object) -> object:
        return vars(function)

    vars(function).update(attributes)
    return function


def images(body: dict[str, Any]) -> dict[str, Any]:
    return {"images": body}


def nodes(body: dict[str, Any]) -> dict[str, Any]:
    return {"nodes": body}


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
        pytest.param(partial(images, {}), partial(images, {"a": 1}), id="partial"),
        pytest.param("a".join, "b".join, id="built-in"),
        pytest.param(
            closing_over(re.compile("a")), closing_over(re.compile("b")), id="pattern"
        ),
        pytest.param(
            closing_over(frozenset("a")), closing_over(frozenset("b")), id="frozenset"
        ),
        pytest.param(closing_over(os.getpid), closing_over(os.getppid), id="library"),
        pytest.param(having(field="a"), having(field="b"), id="attribute"),
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
    assert print_of(closing_over({1, 2})) == print_of(closing_over({2, 1}))
    logs = logging.getLogger("app")
    assert print_of(closing_over(logs)) == print_of(closing_over(logs))
    assert print_of(transform_dict(images)) == print_of(transform_dict(images))


class Program:
    """Class of a program, whose code and state are not compared."""

    def __call__(self, _: object) -> tuple[str, ...]:
        return ()

    def method(self, _: object) -> tuple[str, ...]:
        return ()


def imports(_: object) -> object:
    import json

    return json


def passes_module(_: object) -> object:
    return vars(informer_helpers)


def environment(_: object) -> object:
    return os.environ["TEAM"]


system = os


def renamed(_: object) -> object:
    return system.getenv("TEAM")


@pytest.mark.parametrize(
    ("function", "why"),
    [
        pytest.param(Program(), "a test_prints.Program", id="object"),
        pytest.param(Program().method, "a builtins.method", id="bound-method"),
        pytest.param(closing_over(Program), "test_prints.Program", id="class"),
        pytest.param(closing_over(Lock()), "a _thread.lock", id="lock"),
        pytest.param(closing_over(lru_cache(len)), "functools._lru", id="memoized"),
        pytest.param(imports, "imports 'json'", id="import"),
        pytest.param(passes_module, "the module informer_helpers as", id="module"),
        pytest.param(environment, "reads the environment", id="environment"),
        pytest.param(renamed, "reads the environment", id="renamed-module"),
        pytest.param(closing_over(os.getenv), "reads the environment", id="getenv"),
    ],
)
def test_function_with_other_state_is_not_shared(
    function: Callable[..., object],
    why: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    here = print_of(function)

    assert here == print_of(function)
    (warning,) = [it.message for it in caplog.records]
    assert why in warning.replace("tests.cache.disk.", "")
    # As after a fork, when both processes have the same memory.
    monkeypatch.setattr(os, "getpid", lambda: -1)
    assert here != print_of(function)


# ---------------------------------------------------------------- packages


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return a directory of installed packages; they are forgotten afterwards."""
    path = tmp_path / "site-packages"
    path.mkdir()
    monkeypatch.syspath_prepend(path)
    before = set(sys.modules)
    yield path
    for name in set(sys.modules) - before:
        del sys.modules[name]

    _version_of.cache_clear()


def install(packages: Path, version: str, *, distribution: str = "acme") -> None:
    """Install a package `acme` of a distribution."""
    (packages / "acme.py").write_text("def team_of(obj): return 1\n")
    for old in packages.glob("*.dist-info"):
        shutil.rmtree(old)

    info = packages / f"{distribution.replace('-', '_')}-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Name: {distribution}\nVersion: {version}\n")
    (info / "top_level.txt").write_text("acme\n")
    importlib.invalidate_caches()
    _version_of.cache_clear()


@pytest.mark.parametrize("distribution", ["acme", "acme-common"])
@pytest.mark.parametrize(
    "source",
    [
        "from acme import team_of\ndef f(obj): return team_of(obj)",
        "import acme\ndef f(obj): return acme.team_of(obj)",
    ],
)
def test_upgraded_package_changes_the_print(
    packages: Path, source: str, distribution: str
) -> None:
    install(packages, "1.0", distribution=distribution)
    functions = [made(source) for _ in range(3)]
    before = print_of(functions[0])
    assert print_of(functions[1]) == before

    install(packages, "1.1", distribution=distribution)
    assert print_of(functions[2]) != before


def test_package_of_unknown_version_is_not_shared(packages: Path) -> None:
    install(packages, "1.0")
    shutil.rmtree(packages / "acme-1.0.dist-info")
    source = "from acme import team_of\ndef f(obj): return team_of(obj)"

    one, other = made(source), made(source)
    assert print_of(one) != print_of(other)


@pytest.mark.parametrize(
    "source",
    [
        "from acme import team_of\ndef f(obj): return team_of(obj)",
        "import acme\ndef f(obj): return acme.team_of(obj)",
        "from acme import team_of as f",
        (
            "import acme\n"
            "def helper(obj): return acme.team_of(obj)\n"
            "def f(obj): return acme.KEPT, helper(obj)"
        ),
    ],
)
def test_edited_module_of_the_program_changes_the_print(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    prints: list[str] = []
    functions: list[Callable[..., object]] = []
    for number in (1, 2):
        source_of = f"KEPT = 1\ndef team_of(obj): return {number}\n"
        (tmp_path / "acme.py").write_text(source_of)
        importlib.invalidate_caches()
        functions += [made(source), made(source)]  # else they may have one id
        prints += map(print_of, functions[-2:])
        del sys.modules["acme"]

    assert prints[0] == prints[1] != prints[2] == prints[3]
