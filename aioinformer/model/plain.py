"""What `orjson` does not write by itself: objects, structs, and models of other packages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

__all__ = ["plain"]


def plain(value: object) -> Any:
    """Turn into dicts and lists what is inside of them: the `default` of `orjson`.

    Pydantic models are written by alias and without None, models of kubernetes_asyncio
    by the names of the API and without None.

    Raises:
        TypeError: If it is none of these.
    """
    match value:
        case Mapping():  # before structs: a `KubeObject` is both
            return dict(value)
        case msgspec.Struct():
            return msgspec.to_builtins(value)
        case _ if hasattr(value, "model_dump"):
            return value.model_dump(mode="json", by_alias=True, exclude_none=True)
        case _ if hasattr(value, "openapi_types"):
            return _api_names(value)
        case _:
            raise TypeError(f"not JSON: {type(value).__name__}")


def _api_names(model: Any) -> dict[str, Any]:
    """The fields of a kubernetes_asyncio model; its `to_dict()` has Python's names."""
    fields = {name: getattr(model, key) for key, name in model.attribute_map.items()}
    return {name: value for name, value in fields.items() if value is not None}
