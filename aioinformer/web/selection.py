"""`StreamSelection`: the objects that a reader of an event stream gets."""

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
"""Maximum characters of the selectors in a query. Web servers accept 64 KiB, and
parsing 1 KiB takes a millisecond."""

MAX_REQUIREMENTS = 32
"""Maximum total requirements of the selectors in a query. Each is checked for each
change, once for all readers with equal selections."""

MAX_NAMESPACE_CHARACTERS = 4096
"""Maximum characters of the namespaces in a query."""


# Many readers have equal selectors.
_parsed = lru_cache(maxsize=256)(LabelSelector.parse)


@dataclass(frozen=True)
class StreamSelection:
    """Filter of objects by namespace and labels. Call it with an object."""

    namespaces: frozenset[str] | None = None
    """Namespaces to accept. None for all, and for cluster-scoped objects."""

    selectors: tuple[LabelSelector, ...] = ()
    """Selectors that must all match."""

    @staticmethod
    def of(
        namespace: str | Sequence[str] | None = None, label_selector: str = ""
    ) -> StreamSelection:
        """Make a selection from options.

        Args:
            namespace: One or several namespaces. None or an empty string for all.
            label_selector: Label selector, as for kubectl.

        Raises:
            OptionsError: If the list of namespaces is empty, or has an empty name.
            SelectorSyntaxError: If the selector cannot be parsed.
        """
        selector = _parsed(label_selector)
        selectors = () if selector.empty else (selector,)
        if namespace is None or namespace == "":
            return StreamSelection(None, selectors)

        names = [namespace] if isinstance(namespace, str) else list(namespace)
        if not names or not all(names):
            raise OptionsError(
                f"namespaces must be a list of names, without empty ones: {names}"
            )

        return StreamSelection(frozenset(names), selectors)

    def narrowed(self, query: Iterable[tuple[str, str]]) -> StreamSelection:
        """Return this selection, narrowed by the query of a URL.

        Args:
            query: Parameters `namespace`, which may be repeated, and `labelSelector`.
                Others are ignored.

        Raises:
            OptionsError: If this selection has none of the namespaces, or the
                namespaces or selectors exceed their limits.
            SelectorSyntaxError: If a selector cannot be parsed.
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

        requested = frozenset(value for name, value in pairs if name == "namespace")
        if sum(map(len, requested)) > MAX_NAMESPACE_CHARACTERS:
            raise OptionsError(
                f"namespace= is longer than {MAX_NAMESPACE_CHARACTERS} characters"
            )

        namespaces = self.namespaces
        if requested:
            namespaces = requested if namespaces is None else namespaces & requested
            if not namespaces:
                named = ", ".join(map(repr, sorted(requested)))
                raise OptionsError(f"namespace {named} is not available here")

        return StreamSelection(
            namespaces, (*self.selectors, *(it for it in selectors if not it.empty))
        )

    def __call__(self, obj: KubeObject) -> bool:
        """Return True if the object is selected."""
        names = self.namespaces
        if names is not None and obj.key.rpartition("/")[0] not in names:
            return False

        for it in self.selectors:  # noqa: SIM110 - called for each event and reader
            if not it.matches(obj.label_set):
                return False

        return True

    @cached_property
    def token(self) -> str:
        """Short hash of the selection, equal in every process."""
        names = None if self.namespaces is None else sorted(self.namespaces)
        text = repr((names, [str(it) for it in self.selectors]))
        return f"{crc32(text.encode()):08x}"
