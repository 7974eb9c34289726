"""Predicates: which changes are worth a reconcile.

    Controller("web", reconcile, for_=sites, predicates=[generation_changed])
    predicates=[(generation_changed | annotations_changed) & matches_labels("tier=web")]

They look at a change, and not at what is cached: the informer keeps all of it. To keep
less, give it selectors.
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
    """A question about a change, which can be combined with others: `&`, `|`, `~`.

    Called with an `Added`, `Updated` or `Deleted`, it says whether that passes.

    Args:
        function: Asked about each change; a plain function, which does not wait. Where
            it raises, the change passes, and the exception is reported.

    Raises:
        OptionsError: If it is no plain function.

    Example:
        >>> from aioinformer import Added, KubeObject
        >>> ours = Predicate(lambda event: isinstance(event, Added)) & ~generation_changed
        >>> ours(Added(KubeObject.of({"metadata": {"name": "web"}})))
        False
    """

    def __init__(self, function: Callable[[Notification], object]) -> None:
        check_plain(function, "a predicate")
        self._function = function

    def __call__(self, event: Notification) -> bool:
        """Whether the change passes."""
        return bool(self._function(event))

    def __and__(self, other: Predicate) -> Predicate:
        return Predicate(lambda event: self(event) and other(event))

    def __or__(self, other: Predicate) -> Predicate:
        return Predicate(lambda event: self(event) or other(event))

    def __invert__(self) -> Predicate:
        return Predicate(lambda event: not self(event))


def _on_update(changed: Callable[[KubeObject, KubeObject], bool]) -> Predicate:
    """A predicate of updates; whatever comes or goes passes."""
    return Predicate(
        lambda event: not isinstance(event, Updated) or changed(event.old, event.new)
    )


def _generations_differ(old: KubeObject, new: KubeObject) -> bool:
    generation = new.generation
    return not generation or old.generation != generation


resource_version_changed = _on_update(
    lambda old, new: old.resource_version != new.resource_version
)
"""Passes what changed at all: no resyncs. What comes and goes passes."""

generation_changed = _on_update(_generations_differ)
"""Passes updates of the spec, and not those of status or metadata alone: where the server
counts generations. Updates of objects that have none, such as ConfigMaps, pass. What
comes and goes passes."""

labels_changed = _on_update(lambda old, new: old.labels != new.labels)
"""Passes updates that change labels. What comes and goes passes."""

annotations_changed = _on_update(lambda old, new: old.annotations != new.annotations)
"""Passes updates that change annotations. What comes and goes passes."""


def matches_labels(selector: str | LabelSelector) -> Predicate:
    """Passes changes of objects with these labels; of an update, before or after it.

    Args:
        selector: As kubectl accepts it, such as `"app=web,tier in (a,b)"`.

    Raises:
        SelectorSyntaxError: If it cannot be parsed.
    """
    wanted = (
        selector
        if isinstance(selector, LabelSelector)
        else LabelSelector.parse(selector)
    )

    def matches(event: Notification) -> bool:
        if isinstance(event, Updated):
            return wanted.matches(event.new.labels) or wanted.matches(event.old.labels)

        return wanted.matches(event.obj.labels)

    return Predicate(matches)
