"""Predicates: filters of the changes that trigger a reconcile.

    Controller("web", reconcile, for_=sites, predicates=[generation_changed])
    predicates=[(generation_changed | annotations_changed) & matches_labels("tier=web")]

They do not affect the cache, which holds all objects. Use the informer's selectors to
cache fewer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioinformer.informer.notifications import Updated
from aioinformer.model.callables import check_plain
from aioinformer.model.selectors import LabelSelector

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioinformer.informer.notifications import Notification
    from aioinformer.model.objects import KubeObject

__all__ = [
    "Predicate",
    "annotations_changed",
    "generation_changed",
    "labels_changed",
    "matches_labels",
    "resource_version_changed",
]


class Predicate:
    """Filter of changes. Predicates can be combined by `&`, `|` and `~`.

    It is called with an `Added`, `Updated` or `Deleted`, and returns True to let it
    pass.

    Args:
        function: Plain function of a change. If it raises, the change passes, and the
            exception is reported.

    Raises:
        OptionsError: If the function is not a plain one.

    Example:
        >>> from aioinformer import Added, KubeObject
        >>> added = Predicate(lambda event: isinstance(event, Added)) & ~generation_changed
        >>> added(Added(KubeObject.of({"metadata": {"name": "web"}})))
        False
    """

    def __init__(self, function: Callable[[Notification], object]) -> None:
        check_plain(function, "a predicate")
        self._function = function

    def __call__(self, event: Notification) -> bool:
        """Return True if the change passes."""
        return bool(self._function(event))

    def __and__(self, other: Predicate) -> Predicate:
        return Predicate(lambda event: self(event) and other(event))

    def __or__(self, other: Predicate) -> Predicate:
        return Predicate(lambda event: self(event) or other(event))

    def __invert__(self) -> Predicate:
        return Predicate(lambda event: not self(event))


def _on_update(changed: Callable[[KubeObject, KubeObject], bool]) -> Predicate:
    """Return a predicate of updates that lets all other changes pass."""
    return Predicate(
        lambda event: not isinstance(event, Updated) or changed(event.old, event.new)
    )


def _generations_differ(old: KubeObject, new: KubeObject) -> bool:
    generation = new.generation
    return not generation or old.generation != generation


resource_version_changed: Predicate = _on_update(
    lambda old, new: old.resource_version != new.resource_version
)
"""Predicate for real updates, not resyncs. Additions and deletions pass."""

generation_changed: Predicate = _on_update(_generations_differ)
"""Predicate for updates of the spec, not of status or metadata only. Updates of objects
without a generation, such as ConfigMaps, pass, and so do additions and deletions."""

labels_changed: Predicate = _on_update(lambda old, new: old.labels != new.labels)
"""Predicate for updates that change labels. Additions and deletions pass."""

annotations_changed: Predicate = _on_update(
    lambda old, new: old.annotations != new.annotations
)
"""Predicate for updates that change annotations. Additions and deletions pass."""


def matches_labels(selector: str | LabelSelector) -> Predicate:
    """Return a predicate for objects with these labels, before or after an update.

    Args:
        selector: Label selector, such as `"app=web,tier in (a,b)"`.

    Raises:
        SelectorSyntaxError: If the selector cannot be parsed.
    """
    parsed = (
        selector
        if isinstance(selector, LabelSelector)
        else LabelSelector.parse(selector)
    )

    def matches(event: Notification) -> bool:
        if isinstance(event, Updated):
            return parsed.matches(event.new.labels) or parsed.matches(event.old.labels)

        return parsed.matches(event.obj.labels)

    return Predicate(matches)
