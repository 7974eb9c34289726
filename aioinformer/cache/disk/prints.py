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
import os
import secrets
import sys
import types
from copyreg import dispatch_table
from typing import TYPE_CHECKING, Any, Final

import msgspec

from aioinformer._user_code import guarded_logger, user_errors

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

__all__ = ["print_of"]

logger: Final = guarded_logger(__name__)

# Distinguishes functions without a print from those of other processes.
_PROCESS: Final = secrets.token_hex(8)

_PLAIN: Final = (bool, int, float, complex, str, bytes, types.EllipsisType)
_BUILT_IN: Final = (
    types.BuiltinFunctionType,
    types.MethodDescriptorType,
    types.WrapperDescriptorType,
    types.ClassMethodDescriptorType,
)
_DECODERS: Final = (msgspec.json.Decoder, msgspec.msgpack.Decoder)

_METHODS: Final = (types.FunctionType, staticmethod, classmethod, property)
# Instructions that read a global; the second one in the body of a class.
_LOADS: Final = frozenset({"LOAD_GLOBAL", "LOAD_NAME"})
# What is printed by value: another process may have several equal ones for one.
_BY_VALUE: Final = (tuple, types.CodeType, types.GenericAlias, types.UnionType)


def print_of(function: Callable[..., object] | None) -> str:
    """Return the print of an index function or a transform; empty for None.

    It covers the function's code, defaults and closure, and what it refers to: globals
    with plain values, and functions and classes of the same package. Code of other
    packages counts by name. Functions of aioinformer have their arguments as print.

    A function whose state has no plain form (a lock, an open file) gets a print that
    differs in each process. So nothing is shared with other processes.
    """
    if function is None:
        return ""

    name = _name_of(function)
    try:
        text = _Printer().print(function)
    except user_errors() as exc:  # of `__reduce__`, and of values without a print
        logger.debug("%s has no print, so its results are not shared: %r", name, exc)
        return f"{name} {_PROCESS}-{os.getpid()}-{id(function)}"

    if _is_own(type(function).__module__):
        name = repr(function)

    return f"{name} {hashlib.sha256(text.encode(errors='backslashreplace')).hexdigest()[:32]}"


class _NoPrint(Exception):
    """Value that has no form that is equal in all processes."""


class _Printer:
    """Printer of one function with everything that it refers to."""

    def __init__(self) -> None:
        # Top package of the first function or class; its code is followed.
        self._package: str | None = None
        # Objects that contain the current one, or were printed: by number.
        self._numbers: dict[int, int] = {}
        # Keeps temporary objects alive, so that no id is used twice.
        self._seen: list[object] = []

    def print(self, value: object) -> str:
        """Return the text of a value.

        Raises:
            _NoPrint: If it has none.
        """
        if value is None or isinstance(value, _PLAIN):
            return f"{type(value).__qualname__}:{value!r}"

        if isinstance(value, set | frozenset):
            return f"set({sorted(map(self.print, value))})"

        if not isinstance(value, _BY_VALUE):
            if id(value) in self._numbers:
                return f"seen:{self._numbers[id(value)]}"

            self._numbers[id(value)] = len(self._numbers)
            self._seen.append(value)

        return self._print_new(value)

    def _print_new(self, value: object) -> str:
        match value:
            case tuple() | list():
                return f"{type(value).__qualname__}{self._all(value)}"
            case dict() | types.MappingProxyType():
                return f"dict{self._all(value.items())}"
            case types.CodeType():
                return self._code(value)
            case types.FunctionType():
                return self._function(value)
            case types.MethodType():
                return f"method{self._all((value.__self__, value.__func__))}"
            case types.ModuleType():
                return f"module:{value.__name__}"
            case functools.partial():
                parts = value.func, value.args, value.keywords
                return f"partial{self._all(parts)}"
            case staticmethod() | classmethod():
                return f"{type(value).__qualname__}{self._all((value.__func__,))}"
            case property():
                return f"property{self._all((value.fget, value.fset, value.fdel))}"
            case types.CellType():
                return self._cell(value)
            case type():
                return self._class(value)
            case _ if isinstance(value, _BUILT_IN):
                return self._built_in(value)
            case types.GenericAlias():
                return f"generic{self._all((value.__origin__, value.__args__))}"
            case types.UnionType():
                return f"union{self._all(value.__args__)}"
            case _ if isinstance(value, _DECODERS):
                return f"decoder{self._all((type(value), value.type, value.strict))}"
            case _:
                return self._object(value)

    def _all(self, values: Iterable[object]) -> str:
        return f"({','.join(map(self.print, values))})"

    def _follows(self, module: str | None) -> bool:
        """Return True if the code of a module is followed, not just named."""
        top = (module or "").partition(".")[0]
        if _is_own(module) or top in sys.stdlib_module_names:
            return False

        if self._package is None:
            self._package = top

        return top == self._package

    # ------------------------------------------------------------ code

    def _function(self, function: types.FunctionType) -> str:
        name = _name_of(function)
        if not self._follows(function.__module__):
            # A closure is state, not code.
            return f"function:{name}{self._all(function.__closure__ or ())}"

        parts = (
            function.__code__,
            function.__defaults__,
            function.__kwdefaults__,
            function.__closure__,
            *self._referred(function.__code__, function.__globals__),
        )
        return f"function:{name}{self._all(parts)}"

    def _referred(
        self, code: types.CodeType, namespace: Mapping[str, object]
    ) -> Iterable[object]:
        """Yield the globals that code refers to, also those of its inner functions."""
        loads = (it for it in dis.get_instructions(code) if it.opname in _LOADS)
        for name in dict.fromkeys(it.argval for it in loads):
            if name not in namespace:
                continue  # a built-in function

            value = namespace[name]
            yield value
            if isinstance(value, types.ModuleType) and self._follows(value.__name__):
                # Which of the names belong to the module, the code does not tell.
                inside = vars(value)
                yield from (inside[it] for it in code.co_names if it in inside)

        for const in code.co_consts:
            if isinstance(const, types.CodeType):
                yield from self._referred(const, namespace)

    def _code(self, code: types.CodeType) -> str:
        parts = (
            code.co_code,
            code.co_names,
            code.co_freevars,
            code.co_cellvars,
            code.co_argcount,
            code.co_posonlyargcount,
            code.co_kwonlyargcount,
            code.co_varnames[: code.co_argcount + code.co_kwonlyargcount],
            code.co_flags,
            getattr(code, "co_exceptiontable", b""),
        )
        return f"code:{parts!r}{self._all(code.co_consts)}"

    def _cell(self, cell: types.CellType) -> str:
        try:
            contents = cell.cell_contents
        except ValueError:
            return "empty"

        return f"cell{self._all((contents,))}"

    def _class(self, cls: type) -> str:
        name = _name_of(cls)
        if not self._follows(cls.__module__):
            return f"class:{name}"

        members = [
            f"{each}={self._member(value)}"
            for each, value in sorted(vars(cls).items())
            if not _is_machinery(each, value)
        ]
        return f"class:{name}{self.print(cls.__bases__)}{members}"

    def _member(self, value: object) -> str:
        """Print an attribute of a class; by its type, if it has no print."""
        try:
            return self.print(value)
        except user_errors():
            return f"other:{_name_of(type(value))}"

    def _built_in(self, value: Any) -> str:
        owner = getattr(value, "__self__", None)
        if owner is None or isinstance(owner, types.ModuleType):
            return self._compiled(value)

        return f"built-in:{value.__name__}{self._all((owner,))}"

    def _compiled(self, value: object) -> str:
        """Print a function without Python code by its name.

        Raises:
            _NoPrint: If it is of the followed package, whose code may have changed.
        """
        name = _name_of(value)
        if self._follows(getattr(value, "__module__", None)):
            raise _NoPrint(f"{name} is compiled")

        return f"compiled:{name}"

    # ------------------------------------------------------------ state

    def _object(self, value: object) -> str:
        """Print an object by its class and state."""
        cls = type(value)
        if _is_own(cls.__module__):
            return f"own:{_name_of(cls)}{self._own_state(value)}"

        wrapped = getattr(value, "__wrapped__", None)
        if callable(wrapped):  # by a decorator written in C, such as `lru_cache`
            return f"wrapped{self._all((cls, wrapped))}"

        reduce = dispatch_table.get(cls)
        parts = value.__reduce_ex__(4) if reduce is None else reduce(value)
        if isinstance(parts, str):
            return self._compiled(value)

        # The items of lists and dicts come as iterators, at the end.
        state = [*parts[:3], *(list(it) if it else None for it in parts[3:5])]
        return f"object{self._all((cls, *state))}"

    def _own_state(self, value: object) -> str:
        if dataclasses.is_dataclass(value):
            fields = [it.name for it in dataclasses.fields(value) if it.compare]
            return self._all(getattr(value, name) for name in fields)

        text = repr(value)
        if " at 0x" in text:
            raise _NoPrint(f"{text} has no arguments")

        return text


def _is_machinery(name: str, value: object) -> bool:
    """Return True for what Python and base classes put into every class."""
    special = name.startswith("__") and name.endswith("__")
    return special and name != "__annotations__" and not isinstance(value, _METHODS)


def _is_own(module: str | None) -> bool:
    return (module or "").partition(".")[0] == "aioinformer"


def _name_of(value: object) -> str:
    """Return a name for a print and for the log, without state."""
    while isinstance(value, functools.partial):
        value = value.func

    named = value if hasattr(value, "__qualname__") else type(value)
    module = getattr(named, "__module__", None) or "builtins"
    # A program's own module has another name in a process that it has spawned.
    module = "__main__" if module == "__mp_main__" else module
    return f"{module}.{getattr(named, '__qualname__', '?')}"
