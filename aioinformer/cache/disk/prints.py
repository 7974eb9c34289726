"""`print_of`: prints of functions, equal in all processes that run the same code.

A store on disk has index values, and objects that a transform has reduced. Another
process may use them only if its functions are the same. Functions cannot be compared
across processes, so their prints are.
"""

from __future__ import annotations

import dataclasses
import dis
import functools
import hashlib
import logging
import os
import platform
import re
import secrets
import sys
import types
from importlib import metadata
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Final

from aioinformer._user_code import guarded_logger, user_errors

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

__all__ = ["print_of"]

logger: Final = guarded_logger(__name__)

# Distinguishes functions without a print from those of other processes.
_PROCESS: Final = secrets.token_hex(8)

_PLAIN: Final = frozenset(
    {bool, int, float, complex, str, bytes, type(None), types.EllipsisType}
)
_OWN: Final = "aioinformer"
_INSTALLED: Final = frozenset({"site-packages", "dist-packages"})
# What changes the result of code, except for its constants.
_CODE: Final = (
    *("code", "names", "freevars", "cellvars", "flags", "exceptiontable"),
    *("argcount", "posonlyargcount", "kwonlyargcount"),
)


def print_of(function: Callable[..., object] | None) -> str:
    """Return the print of an index function or a transform; empty for None.

    It covers the function's code, defaults and closure, and the globals that it refers
    to: plain values, functions of the program, and everything of installed packages,
    which count by their version. Functions of aioinformer have their arguments as
    print. Reads files the first time that a package is named.

    A function that refers to something else, such as a class of the program, a lock or
    the environment, gets a print that differs in each process. So nothing is shared with
    other processes. What functions of packages read, such as the host name or the clock,
    is not seen.
    """
    if function is None:
        return ""

    name = _name_of(function)
    try:
        text = _Printer().print(function)
    except user_errors() as exc:
        _report(name, str(exc))
        return f"{name} {_PROCESS}-{os.getpid()}-{id(function)}"

    if _top(type(function).__module__) == _OWN:
        name = repr(function)

    digest = hashlib.sha256(text.encode(errors="backslashreplace")).hexdigest()
    return f"{name} {digest[:32]}"


@functools.cache
def _report(name: str, why: str) -> None:
    """Warn once: a transform like this means a list and a watch for each process."""
    logger.warning("results of %s are not shared with other processes: %s", name, why)


class _NoPrint(Exception):
    """Value that has no form that is equal in all processes."""


class _Printer:
    """Printer of one function with everything that it refers to."""

    def __init__(self) -> None:
        # Top package of the first function, whose code is followed if it is installed.
        self._package: str | None = None
        # Number by the id of each value that was begun. The values stay alive.
        self._numbers: dict[int, int] = {}
        self._values: list[object] = []
        # Modules of the program by id, with the names in them that were followed.
        self._followed: set[tuple[int, str]] = set()

    def print(self, value: object) -> str:
        """Return the text of a value.

        Raises:
            _NoPrint: If it has none.
        """
        kind = type(value)
        if kind in _PLAIN:
            return f"{kind.__name__}:{value!r}"

        if _is_environment(value):
            raise _NoPrint("it reads the environment of the process")

        if isinstance(value, types.CodeType):
            parts = [getattr(value, f"co_{name}") for name in _CODE]
            return f"code:{parts}{self._all(value.co_consts)}"

        # Equal ones may be one object in some processes only.
        if isinstance(value, tuple) and kind is tuple:
            return f"tuple{self._all(value)}"

        if isinstance(value, frozenset) and kind is frozenset:
            return f"frozenset{sorted(map(self.print, value))}"

        if id(value) in self._numbers:
            return f"seen:{self._numbers[id(value)]}"

        self._numbers[id(value)] = len(self._numbers)
        self._values.append(value)
        return f"{kind.__name__}:{self._state(value)}"

    def _state(self, value: object) -> str:
        kind = type(value)
        match value:
            case set() if kind is set:
                return f"{sorted(map(self.print, value))}"
            case list() if kind is list:
                return self._all(value)
            case dict() if kind is dict:
                return self._all(value.items())
            case types.CellType():
                return self._all((value.cell_contents,))
            case types.FunctionType():
                return self._function(value)
            case types.ModuleType():
                return f"{value.__name__} {self._version(value.__name__)}"
            case functools.partial() if kind is functools.partial:
                return self._all((value.func, value.args, value.keywords))
            case types.BuiltinFunctionType() if not _is_of_module(value):
                return value.__name__ + self.print(value.__self__)
            case type() | types.BuiltinFunctionType():
                return self._named(value, value.__module__)
            case re.Pattern():
                return self._all((value.pattern, value.flags))
            case logging.Logger():
                return value.name
            case _ if _top(kind.__module__) == _OWN:
                return self._own(value)
            case _:
                raise _NoPrint(f"it refers to a {_name_of(kind)}")

    def _all(self, values: Iterable[object]) -> str:
        return f"({','.join(map(self.print, values))})"

    def _own(self, value: object) -> str:
        version = _version_of(_OWN)
        if dataclasses.is_dataclass(value):
            fields = [it.name for it in dataclasses.fields(value) if it.compare]
            return version + self._all(getattr(value, name) for name in fields)

        return f"{version} {value!r}"

    def _named(self, value: object, module: str | None) -> str:
        version = self._version(module)
        if not version:
            raise _NoPrint(f"it refers to {_name_of(value)}")

        return f"{_name_of(value)} {version}"

    def _version(self, module: str | None) -> str:
        """Return the version of an installed module; empty for one of the program."""
        top = _top(module)
        if top == _OWN or top in sys.stdlib_module_names:
            return _version_of(top)

        if self._package is None:
            self._package = top

        return (
            "" if top == self._package or not _is_installed(top) else _version_of(top)
        )

    def _function(self, function: types.FunctionType) -> str:
        code, version = function.__code__, self._version(function.__module__)
        text = self._all(
            (
                function.__defaults__,
                function.__kwdefaults__,
                function.__closure__,
                function.__dict__,
            )
        )
        if not version:
            referred = self._referred(code, function.__globals__)
            text += self._all((code, *referred))

        return f"{_name_of(function)} {version}{text}"

    def _referred(
        self, code: types.CodeType, namespace: Mapping[str, object]
    ) -> Iterator[object]:
        """Yield the globals that code refers to, also those of its inner functions."""
        instructions = [
            it for it in dis.get_instructions(code) if it.opname != "EXTENDED_ARG"
        ]
        for it, following in zip_longest(instructions, instructions[1:]):
            if it.opname == "IMPORT_NAME":
                raise _NoPrint(f"it imports {it.argval!r} when it is called")

            # Built-in functions are not in the namespace.
            if it.opname in {"LOAD_GLOBAL", "LOAD_NAME"} and it.argval in namespace:
                value = namespace[it.argval]
                if isinstance(value, types.ModuleType):
                    self._check_module(value, following)

                yield from self._reached(value, code.co_names)

        for const in code.co_consts:
            if isinstance(const, types.CodeType):
                yield from self._referred(const, namespace)

    def _reached(self, value: object, names: tuple[str, ...]) -> Iterator[object]:
        """Yield a global; of a module of the program, all that the code may refer to.

        Which names are those of the module, the code does not tell.
        """
        yield value
        if not isinstance(value, types.ModuleType):
            return

        inside = {} if self._version(value.__name__) else vars(value)
        if value is os:
            inside = {name: it for name, it in vars(os).items() if _is_environment(it)}

        for name in names:
            if name in inside and (id(value), name) not in self._followed:
                self._followed.add((id(value), name))
                yield from self._reached(inside[name], names)

    def _check_module(
        self, module: types.ModuleType, following: dis.Instruction | None
    ) -> None:
        """Check what code does with a module, by the instruction that follows."""
        read = following is not None and following.opname in {
            "LOAD_ATTR",
            "LOAD_METHOD",
        }
        if not read and (module is os or not self._version(module.__name__)):
            raise _NoPrint(f"it uses the module {module.__name__} as a value")


def _is_environment(value: object) -> bool:
    names = ("environ", "environb", "getenv", "getenvb")
    return any(value is getattr(os, name, None) for name in names if value is not None)


def _is_of_module(function: types.BuiltinFunctionType) -> bool:
    """Return False for a method of an object."""
    owner = function.__self__
    return owner is None or isinstance(owner, types.ModuleType)


def _top(module: str | None) -> str:
    return (module or "builtins").partition(".")[0]


def _is_installed(top: str) -> bool:
    """Return True if a top package is of a distribution, and not a part of the program."""
    module = sys.modules.get(top)
    paths = [getattr(module, "__file__", None), *getattr(module, "__path__", ())]
    return any(it and not _INSTALLED.isdisjoint(Path(it).parts) for it in paths)


@functools.cache
def _version_of(top: str) -> str:
    if top == _OWN:
        version: str = sys.modules[_OWN].__version__
        return version

    if top in sys.stdlib_module_names:
        return platform.python_version()

    try:
        return metadata.version(top)
    except metadata.PackageNotFoundError:  # `yaml` is of the distribution PyYAML
        names = sorted(set(metadata.packages_distributions().get(top, ())))
        if not names:
            raise _NoPrint(f"the version of {top} is unknown") from None

        return " ".join(f"{name} {metadata.version(name)}" for name in names)


def _name_of(value: object) -> str:
    """Return a name for a print and for the log, without state."""
    while isinstance(value, functools.partial):
        value = value.func

    named = value if hasattr(value, "__qualname__") else type(value)
    module = getattr(named, "__module__", None) or "builtins"
    # A program's own module has another name in a process that it has spawned.
    module = "__main__" if module == "__mp_main__" else module
    return f"{module}.{getattr(named, '__qualname__', '?')}"
