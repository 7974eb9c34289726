"""Reading one path out of a JSON body without decoding the rest of it.

For each path a chain of `msgspec` types with one field each is generated once. Decoding
with it skips everything else: about 4 microseconds for a pod, where a full decode takes
20. Most of that is skipping, so the text before the path is left out where possible: 2
microseconds for a path in the status of a pod, which is searched for from the end, and
2.6 for one at the end of its spec.
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

# And this one last: searching from the end reads little.
_LAST_KEY: Final = "status"
_LAST_MARK: Final = b',"status":{'

# Kinds whose objects have these fields and no others: `apiVersion`, `kind`, `metadata`,
# `spec`, `status`. Tests compare them with the servers' schemas.
_SPEC_KEY: Final = "spec"
_SPEC_AND_STATUS: Final = {
    "v1": "Namespace Node PersistentVolume PersistentVolumeClaim Pod "
    "ReplicationController ResourceQuota Service",
    "apps/v1": "DaemonSet Deployment ReplicaSet StatefulSet",
    "autoscaling/v2": "HorizontalPodAutoscaler",
    "batch/v1": "CronJob Job",
    "networking.k8s.io/v1": "Ingress",
    "policy/v1": "PodDisruptionBudget",
}
_METADATA: Final = b'"metadata":{'
_FRONTS: Final = frozenset(
    front % (version.encode(), kind.encode())[::order]
    for version, kinds in _SPEC_AND_STATUS.items()
    for kind in kinds.split()
    for front, order in (
        (b'{"apiVersion":"%b","kind":"%b",', 1),
        (b'{"kind":"%b","apiVersion":"%b",', -1),
    )
)
_FIELDS_OF_METADATA: Final = frozenset(
    {
        "annotations",
        "creationTimestamp",
        "deletionGracePeriodSeconds",
        "deletionTimestamp",
        "finalizers",
        "generateName",
        "generation",
        "labels",
        "managedFields",
        "name",
        "namespace",
        "ownerReferences",
        "resourceVersion",
        "selfLink",
        "uid",
    }
)

# How far in front of the status a key of the spec is searched for. A key that is absent
# or far from there shall not cost much.
_END_OF_SPEC: Final = 2048

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
    in_end_of_spec = _spec_reader(steps)

    def read(raw: bytes) -> Any:
        if in_end_of_spec is not None:
            found = in_end_of_spec(raw)
            if found is not None:
                return value_in(found)

        start = raw.rfind(_LAST_MARK) if last else 0
        if start <= 0 and key is not None:
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


def _spec_reader(steps: tuple[str, ...]) -> Callable[[bytes], Any] | None:
    """Return a function that decodes only the end of a body, from a key of the spec.

    A key right after a comma or an opening brace is no text in a string. The rest of
    the body decodes with two opening braces only if it closes two: then the key is one
    of a field of the object. A status follows, so this field is not the status itself.
    For kinds with a known set of fields, it is the spec.

    The function returns None if it cannot tell. The result is None if this holds for
    all bodies.
    """
    if len(steps) == 1 or steps[0] != _SPEC_KEY or steps[1] in _FIELDS_OF_METADATA:
        return None

    mark = b"%b:" % json_codec.dumps(steps[1])
    decode = msgspec.json.Decoder(_type_for(steps, followed_by=_LAST_KEY)).decode

    def read(raw: bytes) -> Any:
        if raw[: raw.find(_METADATA)] not in _FRONTS:
            return None

        status = raw.rfind(_LAST_MARK)
        start = raw.rfind(mark, max(status - _END_OF_SPEC, 0), max(status, 0))
        if start <= 0 or raw[start - 1] not in b",{":
            return None

        try:
            return decode(b'{"spec":{' + raw[start:])
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return None  # not a key of the spec, or not written as expected

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


def _type_for(steps: tuple[str, ...], *, followed_by: str = "") -> Any:
    """Return a `msgspec` type that decodes only the value at the path.

    Args:
        steps: Path.
        followed_by: Field that the object must have as well; empty for none.
    """
    kept: Any = Any
    for depth, step in reversed([*enumerate(steps)]):
        inner: Any = kept | None if kept is not Any else Any
        # Required fields come first.
        required = [("after", msgspec.Raw)] if followed_by and not depth else []
        as_object = msgspec.defstruct(
            "Step",
            [*required, ("value", inner, None)],
            rename={"value": step, "after": followed_by},
            gc=False,
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
