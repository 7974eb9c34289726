"""`KubeObject`: one Kubernetes object, kept as JSON bytes and decoded when touched."""

from __future__ import annotations

import abc
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from types import MappingProxyType
from typing import Any, TypeVar, cast

import msgspec
import orjson

from aioinformer.errors import DecodeError
from aioinformer.model.head import LabelTable, read_head
from aioinformer.model.paths import Path, path_reader
from aioinformer.model.views import READ_ONLY, ObjectContext, decode_json, read_only

__all__ = ["KubeObject"]

T = TypeVar("T")


class _StructMapping(msgspec.StructMeta, abc.ABCMeta):
    """Lets a `msgspec.Struct` be a `Mapping`."""


class KubeObject(
    msgspec.Struct,
    Mapping[str, Any],
    metaclass=_StructMapping,
    gc=False,
    eq=False,
    frozen=True,
):
    """One Kubernetes object: its JSON bytes, and the few fields everybody needs.

    A read-only `Mapping` of what the JSON says, and so is everything below it:
    `obj["spec"]["nodeName"]` works, assigning raises `TypeError`. The body is decoded
    when it is first looked into, and a small cache for each informer keeps the last
    128 decodes; `at()` reads one path for a fifth of that cost. `null` reads as absent
    in all properties and in `at()`.

    Equality compares what the JSON says (also with a dict). Objects are not hashable:
    use `key` or `uid`. They are not tracked by the garbage collector: 100,000 of them
    cost no collection any time.

    Attributes:
        body: The stored form of the JSON; read `raw` instead.
        key: `"namespace/name"`, or the name alone for cluster-scoped objects.
        uid: `metadata.uid`; empty if absent.
        resource_version: `metadata.resourceVersion`; empty if absent.
        label_set: The dict behind `labels`, shared by many objects: never change it.
        context: Shared by the objects of one informer.
    """

    body: bytes
    key: str
    uid: str
    resource_version: str
    label_set: dict[str, str]
    context: ObjectContext

    @classmethod
    def of(cls, source: Mapping[str, Any] | bytes) -> KubeObject:
        """Make an object from a mapping or from JSON bytes (which are copied).

        Raises:
            DecodeError: Not JSON, or its metadata has the wrong shape.
        """
        if isinstance(source, KubeObject):
            return source

        if isinstance(source, Mapping):
            body = orjson.dumps(source, default=_plain)
        else:
            body = bytes(source)
            decode_json(body, "a new object")

        head = read_head(body)
        return cls(
            body,
            f"{head.namespace}/{head.name}" if head.namespace else head.name or "",
            head.uid or "",
            head.resource_version or "",
            _LABELS.get(head.labels),
            ObjectContext(),
        )

    # ------------------------------------------------------------ what was parsed

    @property
    def raw(self) -> bytes:
        """The complete object as JSON, always with `apiVersion` and `kind`."""
        return self.body

    @property
    def name(self) -> str:
        """`metadata.name`."""
        return self.key[self.key.find("/") + 1 :]

    @property
    def namespace(self) -> str:
        """`metadata.namespace`; empty for cluster-scoped objects."""
        return self.key[: max(self.key.find("/"), 0)]

    @property
    def labels(self) -> Mapping[str, str]:
        """`metadata.labels`; empty if absent."""
        return MappingProxyType(self.label_set)

    # ------------------------------------------------------------ partial decodes

    def at(self, path: Path, default: Any = None) -> Any:
        """Read one path without decoding the rest.

        Args:
            path: `"spec.containers.0.image"`, or a tuple of keys where a key has dots:
                `("metadata", "annotations", "example.com/owner")`.
            default: What absent and null give.

        Returns:
            The value; objects and arrays as read-only views.

        Raises:
            DecodeError: The body is not JSON.
        """
        value = path_reader(path)(self.raw)
        return default if value is None else read_only(value)

    @property
    def api_version(self) -> str:
        """`apiVersion`, such as `"apps/v1"`."""
        return str(self.at("apiVersion", ""))

    @property
    def kind(self) -> str:
        """`kind`, such as `"Pod"`."""
        return str(self.at("kind", ""))

    @property
    def annotations(self) -> Mapping[str, str]:
        """`metadata.annotations`; empty if absent."""
        return cast("Mapping[str, str]", self.at("metadata.annotations", {}))

    @property
    def owner_references(self) -> list[Mapping[str, Any]]:
        """`metadata.ownerReferences`; empty if absent."""
        return list(self.at("metadata.ownerReferences", ()))

    @property
    def finalizers(self) -> list[str]:
        """`metadata.finalizers`; empty if absent."""
        return list(self.at("metadata.finalizers", ()))

    @property
    def generation(self) -> int:
        """`metadata.generation`; 0 if absent."""
        return int(self.at("metadata.generation", 0))

    @property
    def creation_timestamp(self) -> datetime | None:
        """`metadata.creationTimestamp`, aware, in UTC; None if absent."""
        return _timestamp(self.at("metadata.creationTimestamp"))

    @property
    def deletion_timestamp(self) -> datetime | None:
        """`metadata.deletionTimestamp`, aware, in UTC; None if it is not being deleted."""
        return _timestamp(self.at("metadata.deletionTimestamp"))

    # ------------------------------------------------------------ whole decodes

    def to_dict(self) -> dict[str, Any]:
        """A fresh dict of the whole object, which may be changed.

        Raises:
            DecodeError: The body is not JSON.
        """
        return cast("dict[str, Any]", decode_json(self.raw, f"object {self.key!r}"))

    def into(self, kind: type[T]) -> T:
        """A fresh, typed copy of the whole object.

        Args:
            kind: A `msgspec.Struct`, dataclass, TypedDict or anything else that
                `msgspec` decodes; a Pydantic model; or a model of kubernetes_asyncio.

        Raises:
            DecodeError: The object does not fit the type; `__cause__` says where.
        """
        decode: Callable[[bytes], Any]
        if (validate := getattr(kind, "model_validate_json", None)) is not None:
            decode = validate
        elif hasattr(kind, "openapi_types"):
            return cast("T", _into_client_model(self.to_dict(), kind))
        else:
            decode = msgspec.json.Decoder(kind).decode

        try:
            return cast("T", decode(self.raw))
        except ValueError as exc:
            message = f"object {self.key!r} is no {kind.__name__}: {exc}"
            raise DecodeError(message) from exc

    def _decoded(self) -> dict[str, Any]:
        return self.context.decoded(self.raw, f"object {self.key!r}")

    # ------------------------------------------------------------ the mapping

    def __getitem__(self, key: str) -> Any:
        return read_only(self._decoded()[key])

    def __iter__(self) -> Iterator[str]:
        return iter(self._decoded())

    def __len__(self) -> int:
        return len(self._decoded())

    def __eq__(self, other: object) -> bool:
        if isinstance(other, KubeObject):
            return self.body == other.body or self._decoded() == other._decoded()

        if isinstance(other, Mapping):
            return self._decoded() == dict(other)

        return NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def __setitem__(self, key: str, value: object) -> None:
        raise TypeError(READ_ONLY)

    def __delitem__(self, key: str) -> None:
        raise TypeError(READ_ONLY)

    def __repr__(self) -> str:
        return f"<KubeObject {self.key!r} rv={self.resource_version!r}>"


_LABELS = LabelTable()


def _plain(value: object) -> Any:
    """Teach `orjson` the read-only views."""
    for copy in ("to_dict", "to_list"):
        if hasattr(value, copy):
            return getattr(value, copy)()

    if isinstance(value, Mapping):
        return dict(value)

    raise TypeError(f"not JSON: {type(value).__name__}")


def _timestamp(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)


def _into_client_model(data: dict[str, Any], kind: type[Any]) -> Any:
    """Build a kubernetes_asyncio model with that package's own deserializer."""
    from kubernetes_asyncio.client import ApiClient

    class Deserializer(ApiClient):  # type: ignore[misc]
        def __init__(self) -> None:
            """Leave out the HTTP session, which needs a running loop."""

    class Response:
        data = b""

    response = Response()
    response.data = orjson.dumps(data)
    return Deserializer().deserialize(response, kind.__name__)
