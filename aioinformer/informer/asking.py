"""What somebody asks a factory for: which informer it is, and with which options."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias, TypedDict

from aioinformer.errors import OptionsError
from aioinformer.model.compression import check_compression
from aioinformer.model.selectors import FieldSelector, LabelSelector

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from aioinformer.cache.index import IndexFunction
    from aioinformer.informer.reflector_options import ReflectorOptions
    from aioinformer.model.compression import Compression
    from aioinformer.model.objects import KubeObject
    from aioinformer.model.resource import Resource
    from aioinformer.model.times import Duration
    from aioinformer.model.transforms import Transform

__all__ = [
    "InformerOptions",
    "Namespaces",
    "Question",
    "calling_place",
    "namespaces_of",
]

_PACKAGE = __name__.partition(".")[0]

Namespaces: TypeAlias = str | Sequence[str] | None
"""One namespace, several, or all of them: None, or an empty text."""


class InformerOptions(TypedDict, total=False):
    """The options of `SharedInformerFactory.informer`; see there."""

    namespace: Namespaces
    label_selector: str
    field_selector: str
    indexers: Mapping[str, IndexFunction[KubeObject]] | None
    transform: Transform | None
    compression: Compression | None
    resync_period: Duration | None
    page_size: int | None
    streaming_list: bool
    watch_seconds: Duration
    metadata_only: bool
    name: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What somebody asked a factory for, with the factory's defaults filled in.

    Attributes:
        resource: What to list and watch, or what is known of it.
        namespaces: Restricts it to these, sorted; empty for all.
        label_selector: As kubectl takes it.
        field_selector: As kubectl takes it.
        metadata_only: Ask for nothing of the objects but their metadata.
        name: The name that was given to have an informer of its own, or None.
        options: How to list and watch.
        transform: What objects pass before they are kept.
        compression: How they are kept; None for as they are.
        resync_period: After how many seconds handlers are told everything again; 0 for
            never.
        place: Where in the user's code it was asked.
        by_name: The server is to say which resource it is: the kind, or the plural if
            there is none, is a name that it may have.

    Raises:
        SelectorSyntaxError: If a selector cannot be parsed.
        OptionsError: If there is no such compression, or it is not installed.
    """

    resource: Resource
    namespaces: tuple[str, ...]
    label_selector: str
    field_selector: str
    metadata_only: bool
    name: str | None
    options: ReflectorOptions
    transform: Transform | None
    resync_period: float
    place: str
    by_name: bool = False
    compression: Compression | None = None

    def __post_init__(self) -> None:
        check_compression(self.compression)
        LabelSelector.parse(self.label_selector)
        FieldSelector.parse(self.field_selector)

    @property
    def identity(self) -> tuple[object, ...]:
        """What two questions must have in common to mean the same informer.

        Selectors count by what they mean, not by how they are written. The kind does
        not count: not everybody who names a resource knows it.
        """
        return (
            self.resource.api_version,
            self.resource.plural,
            self.namespaces,
            LabelSelector.parse(self.label_selector),
            FieldSelector.parse(self.field_selector),
            self.metadata_only,
            self.name,
        )

    def describe(self) -> str:
        """`pods`, or `pods in shop where app=web`: short, and different where they are."""
        if self.name:
            return self.name

        kind = self.resource
        plural = (
            kind.plural if kind.version == "v1" else f"{kind.plural}.{kind.version}"
        )
        return (
            ("metadata of " if self.metadata_only else "")
            + plural
            + (f".{kind.group}" if kind.group else "")
            + (f" in {','.join(self.namespaces)}" if self.namespaces else "")
            + (f" where {self.label_selector}" if self.label_selector else "")
            + (f" having {self.field_selector}" if self.field_selector else "")
        )

    def check_same(self, again: Question, transform: Transform | None) -> None:
        """Raise unless a later question asks for the same options.

        Args:
            again: The later question, of the same identity.
            transform: The one that the informer has by now.

        Raises:
            OptionsError: It does not; the text names both places.
        """
        here, there = self._wishes(transform), again._wishes(again.transform)
        differ = [name for name in here if here[name] != there[name]]
        if "" in {here["kind"], there["kind"]}:
            # Not everybody knows it, nor then whether it has namespaces.
            differ = [name for name in differ if name not in {"kind", "namespaced"}]

        if differ:
            raise OptionsError(
                f"there is an informer {self.describe()!r}, asked for at {self.place} "
                f"with {_told(here, differ)}; asked for again at {again.place} with "
                f"{_told(there, differ)}: give name= for a second one"
            )

    def _wishes(self, transform: Transform | None) -> dict[str, Any]:
        """What must be the same for all who share the informer."""
        return {
            "kind": self.resource.kind,
            "namespaced": self.resource.namespaced,
            "options": self.options,
            "resync_period": self.resync_period,
            "transform": transform,
            "compression": self.compression,
        }


def _told(wishes: dict[str, Any], names: Iterable[str]) -> str:
    """Some of the wishes, for a person; functions by their names."""
    values = ((name, wishes[name]) for name in names)
    return " and ".join(
        f"{name}={getattr(it, '__qualname__', None) or repr(it)}" for name, it in values
    )


def namespaces_of(given: Namespaces) -> tuple[str, ...]:
    """Several namespaces in one order, each once; empty for all.

    Raises:
        OptionsError: If they are none at all, or one of them is no name.
    """
    if given is None or given == "":
        return ()

    if isinstance(given, str):
        return (given,)

    names = set(given)
    if not names or not all(names):
        raise OptionsError(
            f"name the namespaces, or give None for all of them, not {given!r}"
        )

    return tuple(sorted(names))


def calling_place() -> str:
    """`"file.py:12"`: the innermost line of code outside of this package."""
    frame = sys._getframe()  # noqa: SLF001 - as the standard library's `warnings` does
    while frame.f_back is not None and _is_ours(frame.f_globals.get("__name__", "")):
        frame = frame.f_back

    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


def _is_ours(module: str) -> bool:
    return module == _PACKAGE or module.startswith(f"{_PACKAGE}.")
