"""`KubeObject`: one Kubernetes object, stored as JSON bytes and decoded on access."""

from __future__ import annotations

import abc
import re
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from functools import cache, lru_cache
from importlib import import_module
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, TypeVar, cast

import msgspec

from aioinformer import json_codec
from aioinformer.errors import DecodeError
from aioinformer.model.object_meta import LabelTable, read_object_meta
from aioinformer.model.paths import Path, path_reader, steps_of
from aioinformer.model.resources import kind_of_model
from aioinformer.model.views import (
    DifferenceContext,
    ObjectContext,
    ReadOnlyDict,
    Refusal,
    decode_json,
    read_only,
    refuse,
)

__all__ = ["METADATA_KIND", "KubeObject", "json_default"]

T = TypeVar("T")

METADATA_KIND = "PartialObjectMetadata"
"""Kind of objects that have only the metadata of other objects."""


class _StructMapping(msgspec.StructMeta, abc.ABCMeta):
    """Metaclass that allows a `msgspec.Struct` to be a `Mapping`."""


def _not_an_attribute(key: str) -> property:
    """Return a property that says how to read a field of the JSON."""

    def refuse_attribute(self: KubeObject) -> NoReturn:
        raise AttributeError(
            f"a KubeObject has no attribute {key!r}: read its JSON by obj[{key!r}], or "
            f"by a path, such as obj.at('{key}.x')",
            name=key,
            obj=self,
        )

    return property(refuse_attribute, doc=f"No attribute: read `obj[{key!r}]`.")


class KubeObject(
    msgspec.Struct,
    Mapping[str, Any],
    metaclass=_StructMapping,
    gc=False,
    eq=False,
    frozen=True,
):
    """One Kubernetes object: its JSON bytes, and the few fields that are always needed.

    A read-only `Mapping` of its JSON, and so is every object inside:
    `obj["spec"]["nodeName"]` works, assignments raise `TypeError`. The body is decoded
    on first access. A small cache of each informer keeps the last 128 decoded bodies,
    up to 2 MiB of JSON. Bodies above 128 KiB are decoded each time. `at()` reads one
    path for a fifth of that cost. All properties and `at()` treat `null` as absent.

    Equality compares the JSON values, also with a dict. Objects are not hashable: use
    `key` or `uid`. The garbage collector does not track them: 100,000 of them do not
    slow down a collection. As they are immutable, a copy is the object itself. They can
    be pickled.

    Attributes:
        body: Stored form of the JSON, perhaps compressed; read `raw` instead.
        key: `"namespace/name"`, or the name alone for cluster-scoped objects. The name
            is empty if the server has yet to generate it (`generateName`).
        uid: `metadata.uid`; empty if absent.
        resource_version: `metadata.resourceVersion`; empty if absent.
        label_set: Dict behind `labels`, shared by many objects: never change it.
        context: State shared by the objects of one informer.
    """

    body: bytes
    key: str
    uid: str
    resource_version: str
    label_set: dict[str, str]
    context: ObjectContext | DifferenceContext

    @classmethod
    def of(cls, source: Mapping[str, Any] | bytes) -> KubeObject:
        """Create an object from a mapping or from JSON bytes (which are copied).

        Bytes are checked without creating their values. A number above the range of a
        float, such as `1e999`, fails when it is read: by `to_dict()`, for example.

        Raises:
            DecodeError: If it is not JSON, or its metadata has the wrong shape.
            TypeError: If the mapping has values that are not JSON.
        """
        if isinstance(source, KubeObject):
            return source

        if isinstance(source, Mapping):
            body = json_codec.dumps(source, default=json_default)
        else:
            body = bytes(source)
            _check(body)

        head = read_object_meta(body)
        name = head.name or ""
        return cls(
            body,
            f"{head.namespace}/{name}" if head.namespace else name,
            head.uid or "",
            head.resource_version or "",
            _LABELS.get(head.labels),
            ObjectContext(),
        )

    # ------------------------------------------------------------ parsed fields

    @property
    def raw(self) -> bytes:
        """JSON of the whole object.

        Objects from a server have `apiVersion` and `kind`, whether listed or watched.
        With compression, each access decompresses the body: 10 microseconds for a pod
        of 7 KB.

        Raises:
            InternalError: If the compressed body is damaged.
        """
        if self.context.codec is None:
            return self.body

        return self.context.raw(self.body, self.key)

    @property
    def name(self) -> str:
        """`metadata.name`."""
        return self.key[self.key.find("/") + 1 :]

    @property
    def namespace(self) -> str:
        """`metadata.namespace`; empty for cluster-scoped objects."""
        namespace, slash, _ = self.key.partition("/")
        return namespace if slash else ""

    @property
    def labels(self) -> Mapping[str, str]:
        """`metadata.labels`; empty if absent."""
        return ReadOnlyDict(self.label_set)

    # ------------------------------------------------------------ partial decodes

    def at(self, path: Path, default: Any = None) -> Any:
        """Read one path without decoding the rest.

        Args:
            path: `"spec.containers.0.image"`, or a tuple if keys have dots:
                `("metadata", "annotations", "example.com/owner")`.
            default: Value for absent and null.

        Returns:
            Value; objects and arrays as read-only views.

        Raises:
            DecodeError: If the body is not JSON.
            OptionsError: If the path is empty, or a step is empty or not a string.
        """
        try:
            read = path_reader(path)
        except TypeError:
            steps_of(path)  # a list, which says what is wrong
            raise

        value = read(self.raw)
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
    def type_meta(self) -> dict[str, str]:
        """`apiVersion` and `kind` for references, such as owner references.

        These differ from the body in an informer with `metadata_only=True`: its objects
        are of the kind `PartialObjectMetadata`. Then they are those of the informer's
        `Resource`, if it has a kind.
        """
        kind, resource = self.kind, self.context.resource
        if resource is None or not resource.kind or kind != METADATA_KIND:
            return {"apiVersion": self.api_version, "kind": kind}

        return {"apiVersion": resource.api_version, "kind": resource.kind}

    @property
    def annotations(self) -> Mapping[str, str]:
        """`metadata.annotations`; empty if absent."""
        return cast("Mapping[str, str]", self.at("metadata.annotations", _NOTHING))

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
        """`metadata.creationTimestamp`, aware, in UTC; None if absent.

        Raises:
            DecodeError: If it is not a time.
        """
        return self._timestamp("metadata.creationTimestamp")

    @property
    def deletion_timestamp(self) -> datetime | None:
        """`metadata.deletionTimestamp`, aware, in UTC; None if it is not being deleted.

        Raises:
            DecodeError: If it is not a time.
        """
        return self._timestamp("metadata.deletionTimestamp")

    def _timestamp(self, path: str) -> datetime | None:
        text = self.at(path)
        if text is None:
            return None

        try:
            time = datetime.fromisoformat(text)
        except (TypeError, ValueError) as exc:
            raise DecodeError(
                f"object {self.key!r}: {path} is not a timestamp"
            ) from exc

        return time.astimezone(UTC) if time.tzinfo else time.replace(tzinfo=UTC)

    # ------------------------------------------------------------ whole decodes

    def to_dict(self) -> dict[str, Any]:
        """Return a new dict of the whole object, which may be changed.

        Raises:
            DecodeError: If the body is not JSON.
        """
        return cast("dict[str, Any]", decode_json(self.raw, f"object {self.key!r}"))

    def into(self, kind: type[T]) -> T:
        """Return a new, typed copy of the whole object.

        Args:
            kind: A `msgspec.Struct`, dataclass, TypedDict or any other type that
                `msgspec` decodes; a Pydantic model; or a model of kubernetes_asyncio.

        Raises:
            DecodeError: If the object does not fit the type; the text says where. A
                model of kubernetes_asyncio must be of the object's kind.
        """
        self._check_kind(kind)
        decode = _reader(kind)
        try:
            return cast("T", decode(self.raw))
        except (ValueError, RecursionError) as exc:
            name = getattr(kind, "__name__", kind)
            reason = _reason(exc)
            raise DecodeError(
                f"object {self.key!r} does not fit {name}: {reason}"
            ) from (exc if reason == str(exc) else None)

    def _check_kind(self, model: type[Any]) -> None:
        """Refuse the model of another kind: its fields would all be None."""
        if "kind" not in getattr(model, "openapi_types", ()):
            return

        try:
            mine = self.type_meta["kind"]
        except DecodeError:
            return  # decoding will say so

        its = kind_of_model(model.__name__)
        if mine and its and mine != its:
            raise DecodeError(
                f"object {self.key!r} does not fit {model.__name__}: its kind is {mine!r}"
            )

    def _decoded(self) -> dict[str, Any]:
        return self.context.decoded(self.body, self.key)

    # ------------------------------------------------------------ the mapping

    def __getitem__(self, key: str) -> Any:
        return read_only(self._decoded()[key])

    def __iter__(self) -> Iterator[str]:
        return iter(self._decoded())

    def __len__(self) -> int:
        return len(self._decoded())

    def __bool__(self) -> bool:
        # Used in conditions (`if obj:`). An object of a cluster is never empty, and its
        # length would decode all of it. (So short a body is never compressed.)
        return self.body != b"{}"

    def __eq__(self, other: object) -> bool:
        if isinstance(other, KubeObject):
            return self.raw == other.raw or self._has_equal_json(other)

        if isinstance(other, Mapping):
            return self._decoded() == dict(other)

        return NotImplemented

    def _has_equal_json(self, other: KubeObject) -> bool:
        try:
            return self._decoded() == other._decoded()
        except (DecodeError, RecursionError):
            return False  # one is malformed or too deep, and their bytes differ

    # Those of a struct would compare identities instead of JSON.
    __ne__: ClassVar[Callable[[object, object], bool]] = object.__ne__
    __hash__ = None  # type: ignore[assignment]

    __setitem__: ClassVar[Refusal] = refuse
    __delitem__: ClassVar[Refusal] = refuse
    __ior__: ClassVar[Refusal] = refuse
    clear: ClassVar[Refusal] = refuse
    pop: ClassVar[Refusal] = refuse
    popitem: ClassVar[Refusal] = refuse
    setdefault: ClassVar[Refusal] = refuse
    update: ClassVar[Refusal] = refuse

    if not TYPE_CHECKING:
        # No `__getattr__`: it would slow down all other attributes.
        data = _not_an_attribute("data")
        metadata = _not_an_attribute("metadata")
        spec = _not_an_attribute("spec")
        status = _not_an_attribute("status")

    # ------------------------------------------------------------ copying, printing

    def __copy__(self) -> KubeObject:
        return self

    def __deepcopy__(self, memo: object) -> KubeObject:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        # As JSON: the dictionary of its compression belongs to this process.
        return KubeObject, (
            self.raw,
            self.key,
            self.uid,
            self.resource_version,
            self.label_set,
            self.context.plain,
        )

    def __repr__(self) -> str:
        return f"<KubeObject {self.key!r} rv={self.resource_version!r}>"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        # That of a struct would show all fields, including the data of a Secret.
        return [("key", self.key), ("rv", self.resource_version)]


_LABELS = LabelTable()

_prove = msgspec.json.Decoder(msgspec.Raw).decode


def _check(body: bytes) -> None:
    """Check that a body is JSON, without creating its values.

    Numbers may be above the range of a float: a search for them takes longer than decoding.

    Raises:
        DecodeError: If it is not JSON, or nested too deeply for the decoder.
    """
    try:
        _prove(body)
        body.decode()  # not checked in strings
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        decode_json(body, "a new object")  # says better what is wrong, and where


_NOTHING = ReadOnlyDict({})

# As msgspec reports a value that an enum, a Literal or a union of types does not have.
_QUOTED_VALUE = re.compile(
    r"^(Invalid (?:enum )?value) .*?( - at (?:`key` in )?`[^`]*`)?$", re.DOTALL
)


def _reader(kind: Any) -> Callable[[bytes], Any]:
    """Return the decoder from JSON to `kind`."""
    try:
        return _cached_reader(kind)
    except TypeError:
        # An annotated type may not be hashable. For another reason, this fails again.
        return _new_reader(kind)


def _new_reader(kind: Any) -> Callable[[bytes], Any]:
    if hasattr(kind, "model_validate_json"):
        return cast("Callable[[bytes], Any]", kind.model_validate_json)

    if hasattr(kind, "openapi_types"):
        return _client_model_reader(kind)

    return msgspec.json.Decoder(kind).decode


# Creating one takes ten times as long as decoding a pod. Programs use few types, but
# may create them dynamically, so the cache is bounded.
_cached_reader = lru_cache(maxsize=64)(_new_reader)


def _reason(error: Exception) -> str:
    """Describe a decoding error, without the values that it quotes: maybe secrets."""
    list_errors = getattr(error, "errors", None)
    if list_errors is None:
        return _QUOTED_VALUE.sub(r"\1\2", str(error))

    found = list_errors(include_input=False, include_context=False, include_url=False)
    return "; ".join(f"{'.'.join(map(str, it['loc']))}: {it['msg']}" for it in found)


def _client_model_reader(kind: type[Any]) -> Callable[[bytes], Any]:
    """Return the decoder of a model of kubernetes_asyncio or the official client."""
    # In `kubernetes_asyncio.client.models.v1_pod`; `kind` may be a subclass of it.
    model = next((it for it in kind.__mro__ if "openapi_types" in vars(it)), kind)
    package = model.__module__.partition(".models")[0]
    deserialize, foreign_error = _client_deserializer(package)

    def read(raw: bytes) -> Any:
        try:
            return deserialize(SimpleNamespace(data=raw), kind)
        except (AttributeError, TypeError, foreign_error) as exc:
            raise ValueError(str(exc)) from exc

    return read


@cache
def _client_deserializer(package: str) -> tuple[Callable[..., Any], type[Exception]]:
    """Return the deserializer of the package of models, and the base of its errors."""
    api_client: Any = import_module(package).ApiClient
    foreign_error: Any = import_module(f"{package}.exceptions").OpenApiException

    class Deserializer(api_client):  # type: ignore[misc]
        def __init__(self) -> None:
            """Leave out the HTTP session, which needs a running loop."""

    return Deserializer().deserialize, foreign_error


def json_default(value: object) -> Any:
    """Convert a value of a type that is not JSON: the `default` function of `dumps`.

    Pydantic models are written by alias and without None, models of kubernetes_asyncio
    by the names of the API and without None.

    Raises:
        TypeError: If the type is not supported.
    """
    match value:
        case Mapping():  # first: a `KubeObject` is also a struct
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
    """Return the fields of a kubernetes_asyncio model by their names in the API."""
    fields = {name: getattr(model, key) for key, name in model.attribute_map.items()}
    return {name: value for name, value in fields.items() if value is not None}
