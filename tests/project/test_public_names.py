"""Public names in the hands of their users: `help()`, signatures, `dir()` and types."""

from __future__ import annotations

import importlib
import inspect
import os
import pkgutil
import pydoc
import re
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import aioinformer
import aioinformer_apiserver

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType


ROOT = Path(__file__).parents[2]


def modules_of(package: ModuleType) -> Iterator[ModuleType]:
    yield package
    for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        if not found.name.endswith("__main__"):  # it would run the command
            yield importlib.import_module(found.name)


MODULES = [*modules_of(aioinformer), *modules_of(aioinformer_apiserver)]
PUBLIC: dict[str, Any] = {
    f"{module.__name__}.{name}": getattr(module, name)
    for module in MODULES
    for name in getattr(module, "__all__", ())
}


@contextmanager
def naming(name: str) -> Iterator[None]:
    """Say which name an error is about."""
    try:
        yield
    except Exception as exc:
        exc.add_note(name)
        raise


def test_help_shows_all_modules_and_public_names() -> None:
    for name, value in {**{it.__name__: it for it in MODULES}, **PUBLIC}.items():
        # For a text, help() looks for a topic of this name.
        if not isinstance(value, str | bytes):
            with naming(name):
                assert pydoc.render_doc(value)


def has_constructor(value: type) -> bool:
    """Return whether a class has a constructor of its own, unlike a `TypedDict`."""
    return not issubclass(value, dict | str) or "__init__" in vars(value)


def test_all_public_classes_and_functions_have_signatures() -> None:
    for name, value in PUBLIC.items():
        constructs = inspect.isclass(value) and has_constructor(value)
        if constructs or inspect.isroutine(value):
            with naming(name):
                inspect.signature(value)


def test_errors_show_their_parameter() -> None:
    shown = str(inspect.signature(aioinformer.Stale))

    assert shown == "(message: 'str' = '') -> 'None'"


@pytest.mark.parametrize("package", ["aioinformer", "aioinformer.testing"])
def test_dir_lists_public_names_and_dunders(package: str) -> None:
    module = importlib.import_module(package)
    names = dir(module)

    public = [it for it in names if not it.startswith("__")]
    assert public == sorted(module.__all__)
    assert {"__doc__", "__path__", "__spec__"} < set(names)


# Only the two packages with lazy names: all modules would take ten seconds.
LAZY_PACKAGES_ONLY = """
[mypy]
[mypy-aioinformer.*]
follow_imports = skip
[mypy-aioinformer_apiserver.*]
follow_imports = skip
[mypy-aioinformer]
follow_imports = normal
[mypy-aioinformer.testing]
follow_imports = normal
"""

MISSPELT = """\
from aioinformer import Client, Clent
from aioinformer.testing import APIServer, APIServr
import aioinformer
aioinformer.Maneger
"""


def test_type_checker_finds_misspelt_names(tmp_path: Path) -> None:
    config, program = tmp_path / "mypy.ini", tmp_path / "program.py"
    config.write_text(LAZY_PACKAGES_ONLY)
    program.write_text(MISSPELT)
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--config-file", config, program],
        cwd=tmp_path,
        env={**os.environ, "MYPYPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    found = re.findall(
        r'program.py:(\d): error: Module.* has no attribute "(\w+)"', done.stdout
    )
    assert found == [("1", "Clent"), ("2", "APIServr"), ("4", "Maneger")], done.stdout
    assert "Found 3 errors" in done.stdout
