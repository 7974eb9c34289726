"""Scopes: which objects of a resource a request means. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from aioinformer.model.selectors import FieldSelector, LabelSelector

if TYPE_CHECKING:
    from aioinformer_apiserver.storage.changes import Stored

__all__ = ["Scope"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """Which objects of a collection are meant."""

    namespace: str = ""
    labels: LabelSelector = field(default_factory=LabelSelector)
    fields: FieldSelector = field(default_factory=FieldSelector)

    @property
    def selects(self) -> bool:
        """True if there is a selector; the namespace is none."""
        return not (self.labels.empty and self.fields.empty)

    def matches(self, state: Stored | None) -> bool:
        """Say whether an object in this state is meant; None is not."""
        if state is None or self.namespace not in {"", state.namespace}:
            return False

        if not self.selects:
            return True

        return self.labels.matches(state.labels) and self.fields.matches(state.field)
