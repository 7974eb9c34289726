"""Reading one path out of a JSON body without decoding the rest of it.

For each path a chain of `msgspec` types with one field each is generated once. Decoding
with it skips everything else: about 4 microseconds for a pod, where a full decode takes
20. Most of that is skipping, so the text before the path's first key is left out where
possible: 1.5 microseconds for a path in the status of a pod, which is searched for from
the end.
"""

from __future__ import annotations

import re
from functools import lru_cache, partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

import msgspec

from aioinformer import json_codec
from aioinformer.errors import OptionsError
from aioinformer.model.views import decode_json

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Path", "path_reader", "steps_of"]

# Why a cut is exact: inside a JSON string a quote is written \", so a quote after a
# comma and before a letter can only open a key. And the text after the cut decodes with
# exactly one opening brace only if it closes one: then the key is one of the object
# itself.
_WORTH_A_CUT: Final = 512

# Servers write these first, so there is nothing to leave out.
_FIRST_KEYS: Final = frozenset({"apiVersion", "kind", "metadata"})

# And this one last, after an object: searching from the end reads little.
_LAST_KEY: Final = "status"
_LAST_MARK: Final = b'},"status":{'

Path = str | tuple[str, ...]
"""`"spec.containers.0.image"`, or a tuple of keys where a key contains a dot."""


@lru_cache(maxsize=1024)
def path_reader(path: Path) -> Callable[[bytes], Any]:
    """Compile a path to a function that returns the value there in a JSON body.

    A step of digits is an index into an array, or a key of an object, whichever the
    body has. The result is None for absent and null values, and for a path that leads
    into a string or number.

    Args:
        path: Steps separated by dots, or a tuple of steps.

    Returns:
        Reader. It raises `DecodeError` if the body is not JSON. The text before the
        path may remain unchecked.

    Raises:
        OptionsError: If the path is empty, or a step is empty or not a string.
    """
    steps = steps_of(path)

    key = _mark_of(steps[0])

    def read_whole(raw: bytes) -> Any:
        return _walk(decode_json(raw, f"reading {'.'.join(steps)}"), steps)

    try:
        decode = msgspec.json.Decoder(_type_for(steps)).decode
    except ValueError:
        return read_whole  # quotes, backslashes etc. cannot be field names

    last = steps[0] == _LAST_KEY
    value_in = _reader_of(steps)

    def read(raw: bytes) -> Any:
        start = raw.rfind(_LAST_MARK) + 1 if last else 0
        if not start and key is not None:
            start = raw.find(key)

        if start > _WORTH_A_CUT:
            try:
                return value_in(decode(b"{" + raw[start + 1 :]))
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                pass  # not a key of the object itself: decode the whole body

        try:
            return value_in(decode(raw))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            # A step meets a string or number where the path expects more (the generated
            # type cannot express that), or the body is malformed.
            return read_whole(raw)

    return read


def _mark_of(key: str) -> bytes | None:
    """Return the text that precedes the value of a key; None to decode all."""
    if key in _FIRST_KEYS or not (key.isascii() and key[0].isalpha()):
        return None

    return b",%b:" % json_codec.dumps(key)


def steps_of(path: Path) -> tuple[str, ...]:
    """Split a path into steps, the outermost first.

    Raises:
        OptionsError: If the path is empty, or a step is empty or not a string.
    """
    if not isinstance(path, str | tuple):
        raise OptionsError(
            f"not a path: {path!r}. Write 'spec.nodeName', or a tuple of keys: "
            "('metadata', 'labels', 'example.com/tier')"
        )

    steps = tuple(path.split(".")) if isinstance(path, str) else path
    foreign = isinstance(path, str) and (path[:1] in {"/", "$", "{"} or "[" in path)
    if foreign or not steps or not all(map(_is_key, steps)):
        write = _as_path(path) if isinstance(path, str) else ""
        raise OptionsError(f"not a path: {path!r}{write}")

    return steps


def _as_path(text: str) -> str:
    """Return advice for a JSON pointer, or a path of jq, kubectl or jsonpath."""
    if "'" in text or '"' in text:
        return ". Write a tuple of keys if some have dots"

    plain = text.replace("/", ".") if text.startswith("/") else text.strip("{}$")
    plain = re.sub(r"\[(\d+)\]", r".\1", plain).strip(".")
    if not re.fullmatch(r"[^.\[\]{}$*]+(\.[^.\[\]{}$*]+)*", plain):
        return ". Write keys and indexes with dots: 'spec.containers.0.image'"

    return f". Write {plain!r}"


def _is_key(step: object) -> bool:
    return isinstance(step, str) and step != ""


def _type_for(steps: tuple[str, ...]) -> Any:
    """Return a `msgspec` type that decodes only the value at the path."""
    kept: Any = Any
    for step in reversed(steps):
        inner: Any = kept | None if kept is not Any else Any
        as_object = msgspec.defstruct(
            "Step", [("value", inner, None)], rename={"value": step}, gc=False
        )
        kept = as_object | list[inner] if step.isdecimal() else as_object

    return kept


def _reader_of(steps: tuple[str, ...]) -> Callable[[Any], Any]:
    """Return a function that gets the value at the path from the generated type."""
    if any(map(str.isdecimal, steps)):
        return partial(_descend, steps=steps)

    get = attrgetter(".".join(["value"] * len(steps)))

    def read(found: Any) -> Any:
        try:
            return get(found)
        except AttributeError:
            return None  # a step before is null or absent

    return read


def _descend(value: Any, steps: tuple[str, ...]) -> Any:
    for step in steps:
        if value is None:
            return None

        if isinstance(value, list):
            index = int(step)
            value = value[index] if index < len(value) else None
        else:
            value = value.value

    return value


def _walk(value: Any, steps: tuple[str, ...]) -> Any:
    for step in steps:
        if isinstance(value, dict):
            value = value.get(step)
        elif isinstance(value, list) and step.isdecimal() and int(step) < len(value):
            value = value[int(step)]
        else:
            return None

    return value
