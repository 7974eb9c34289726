"""Keys of objects in caches and queues.

A key is `"namespace/name"`, or only `"name"` without a namespace. Both parts are DNS
names without a slash, so that a key can be split again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from aioinformer.errors import NoKey, OptionsError

__all__ = ["key_of", "meta_namespace_key", "split_key"]


T = TypeVar("T")


_ABSENT = object()


def meta_namespace_key(obj: object) -> str:
    """Return the key of `obj`: `"namespace/name"`, or `"name"` without a namespace.

    Args:
        obj: One of these, tried in this order: a string, which is a key already; an
            object with a `key`, such as `KubeObject` and `DeletedFinalStateUnknown`;
            one with `name` and `namespace`; a mapping with `metadata`, such as decoded
            JSON; one with a `metadata` attribute, such as models of other clients. A
            null namespace counts as none.

    Raises:
        NoKey: If it is none of these, or has no name.

    Example:
        >>> meta_namespace_key({"metadata": {"namespace": "shop", "name": "web"}})
        'shop/web'
    """
    if isinstance(obj, str):
        return obj

    key = getattr(obj, "key", None)
    if isinstance(key, str):
        namespace, name = "", key if key[-1:] != "/" else ""
    else:
        namespace, name = _names_of(obj)

    if not name or not isinstance(name, str):
        raise NoKey(obj, "it has no name")

    return f"{namespace}/{name}" if namespace else name


def key_of(obj: T, key_func: Callable[[T], str]) -> str:
    """Return the result of a key function for `obj`.

    Raises:
        NoKey: If it raises, or does not return a string.
    """
    try:
        key = key_func(obj)
    except NoKey:
        raise
    except Exception as exc:
        raise NoKey(obj, f"its key function raised {type(exc).__name__}") from exc

    if not isinstance(key, str):
        raise NoKey(obj, f"its key function returned {type(key).__name__}")

    return key


def split_key(key: str) -> tuple[str, str]:
    """Split a key into `(namespace, name)`; the namespace is `""` if there is none.

    Raises:
        OptionsError: If the key has more than two parts.
    """
    namespace, slash, name = key.partition("/")
    if not slash:
        return "", key

    if "/" in name:
        raise OptionsError(f"invalid key {key!r}: more than two parts")

    return namespace, name


def _names_of(obj: object) -> tuple[Any, Any]:
    name = getattr(obj, "name", _ABSENT)
    if name is not _ABSENT:
        return getattr(obj, "namespace", None), name

    if isinstance(obj, Mapping):
        metadata = obj.get("metadata")
    else:
        metadata = getattr(obj, "metadata", None)

    if isinstance(metadata, Mapping):
        return metadata.get("namespace"), metadata.get("name")

    if metadata is None:
        raise NoKey(obj, "it has no metadata")

    return getattr(metadata, "namespace", None), getattr(metadata, "name", None)
