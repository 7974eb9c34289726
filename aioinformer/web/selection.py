"""`StreamSelection`: which objects the reader of an event stream wants, and may have."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING
from zlib import crc32

from aioinformer.errors import OptionsError
from aioinformer.model.selectors import LabelSelector

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from aioinformer.model.objects import KubeObject

__all__ = [
    "MAX_NAMESPACE_CHARACTERS",
    "MAX_REQUIREMENTS",
    "MAX_SELECTOR_CHARACTERS",
    "StreamSelection",
]

MAX_SELECTOR_CHARACTERS = 1000
"""Characters that a query may use for selectors. A web server takes 64 KiB, and to parse
a kilobyte takes a millisecond."""

MAX_REQUIREMENTS = 32
"""Requirements that the selectors of a query may have in total. Each is checked for each
change, once for all readers that ask for the same."""

MAX_NAMESPACE_CHARACTERS = 4096
"""Characters that a query may use for namespaces."""


# Pages that show the same ask for the same.
_parsed = lru_cache(maxsize=256)(LabelSelector.parse)


@dataclass(frozen=True)
class StreamSelection:
    """Objects by namespace and labels; called with one it says whether that is meant."""

    namespaces: frozenset[str] | None = None
    """None for all, and for objects that have none."""

    selectors: tuple[LabelSelector, ...] = ()
    """All of them must match."""

    @staticmethod
    def of(
        namespace: str | Sequence[str] | None = None, label_selector: str = ""
    ) -> StreamSelection:
        """Make one of what a user says.

        Args:
            namespace: One, or several; None or an empty text for all.
            label_selector: As kubectl takes it.

        Raises:
            OptionsError: No namespaces are given, or one without a name.
            SelectorSyntaxError: The selector cannot be parsed.
        """
        selector = _parsed(label_selector)
        selectors = () if selector.empty else (selector,)
        if namespace is None or namespace == "":
            return StreamSelection(None, selectors)

        names = [namespace] if isinstance(namespace, str) else list(namespace)
        if not names or not all(names):
            raise OptionsError(f"namespaces without a name, or none: {names}")

        return StreamSelection(frozenset(names), selectors)

    def narrowed(self, query: Iterable[tuple[str, str]]) -> StreamSelection:
        """This one and what the query of a URL asks for: both must hold.

        Args:
            query: `namespace`, which may be repeated, and `labelSelector`. Others are
                left to others.

        Raises:
            OptionsError: The selection names namespaces of which this one has none, the
                selectors are too long or have too many requirements, or the namespaces
                are too long.
            SelectorSyntaxError: A selector cannot be parsed.
        """
        pairs = [(name, value) for name, value in query if value]
        texts = [value for name, value in pairs if name == "labelSelector"]
        if sum(map(len, texts)) > MAX_SELECTOR_CHARACTERS:
            raise OptionsError(
                f"labelSelector= is longer than {MAX_SELECTOR_CHARACTERS} characters"
            )

        selectors = [_parsed(text) for text in texts]
        count = sum(len(it.requirements) for it in selectors)
        if count > MAX_REQUIREMENTS:
            raise OptionsError(
                f"labelSelector= has {count} requirements, more than {MAX_REQUIREMENTS}"
            )

        wanted = frozenset(value for name, value in pairs if name == "namespace")
        if sum(map(len, wanted)) > MAX_NAMESPACE_CHARACTERS:
            raise OptionsError(
                f"namespace= is longer than {MAX_NAMESPACE_CHARACTERS} characters"
            )

        namespaces = self.namespaces
        if wanted:
            namespaces = wanted if namespaces is None else namespaces & wanted
            if not namespaces:
                named = ", ".join(map(repr, sorted(wanted)))
                raise OptionsError(f"there is nothing of namespace {named} here")

        return StreamSelection(
            namespaces, (*self.selectors, *(it for it in selectors if not it.empty))
        )

    def __call__(self, obj: KubeObject) -> bool:
        """Whether it is meant."""
        names = self.namespaces
        if names is not None and obj.key.rpartition("/")[0] not in names:
            return False

        for it in self.selectors:  # noqa: SIM110 - asked for each event and reader
            if not it.matches(obj.label_set):
                return False

        return True

    @cached_property
    def token(self) -> str:
        """A short text that is the same for the same selection, in every process."""
        names = None if self.namespaces is None else sorted(self.namespaces)
        said = repr((names, [str(it) for it in self.selectors]))
        return f"{crc32(said.encode()):08x}"
