"""Changes: what is stored of an object, and the chain of what happened to a collection.

Changes are linked, each to the next one. Whoever reads keeps a cursor (the last change
that it has seen), so a slow reader loses nothing when the history forgets: what only a
reader still needs lives exactly as long as that reader.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec
import orjson

from aioinformer_apiserver.storage.encoding import encode, event_line

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioinformer_apiserver.storage.kinds import Kind

__all__ = ["Change", "Stored"]


class Stored(msgspec.Struct, frozen=True, eq=False, gc=False):
    """One state of one object. Immutable: the next state is another `Stored`.

    There may be tens of thousands, which hold nothing but texts: the garbage collector
    need not look at any of them.

    Attributes:
        key: `"namespace/name"`, or `"name"`; also the order of lists.
        namespace: Empty for cluster-scoped kinds.
        name: The name.
        uid: The identity.
        version: The resource version, as a number.
        raw: The whole object, encoded.
        labels: For selectors.
        fields: The values of the kind's selectable fields.
    """

    key: str
    namespace: str
    name: str
    uid: str
    version: int
    raw: bytes
    labels: dict[str, str]
    fields: dict[str, str]

    @classmethod
    def of(cls, kind: Kind, body: dict[str, Any], version: int) -> Stored:
        """Encode a complete body, stamping it with `version` (0: without one).

        The body is not changed, nor kept.
        """
        metadata = {**body["metadata"], "resourceVersion": str(version or "")}
        namespace, name = metadata.get("namespace") or "", metadata["name"]
        return cls(
            key=f"{namespace}/{name}" if namespace else name,
            namespace=namespace,
            name=name,
            uid=metadata.get("uid") or "",
            version=version,
            raw=encode(kind, {**body, "metadata": metadata}),
            labels=dict(metadata.get("labels") or {}),
            fields=kind.field_values(body),
        )

    def body(self) -> dict[str, Any]:
        """Decode the object: a fresh dictionary, which the caller may change."""
        decoded: dict[str, Any] = orjson.loads(self.raw)
        return decoded

    def field(self, path: str) -> str:
        """Return a selectable field; `""` if it is missing."""
        if path == "metadata.name":
            return self.name

        if path == "metadata.namespace":
            return self.namespace

        return self.fields.get(path, "")


@dataclass(slots=True, eq=False)
class Change:
    """One write: from `old` (None: created) to `new` (None: deleted), at `version`."""

    kind: Kind
    version: int
    old: Stored | None = None
    new: Stored | None = None
    next: Change | None = None
    _shown: dict[tuple[str, str], bytes] = field(default_factory=dict)

    def line(self, event: str) -> bytes:
        """Return the watch line of this change, encoded once for all watchers.

        Args:
            event: `"ADDED"`, `"MODIFIED"` or `"DELETED"`.
        """
        return self.shown(event, "line", lambda state: event_line(event, state.raw))

    def shown(self, event: str, form: str, show: Callable[[Stored], bytes]) -> bytes:
        """Return what `show` makes of this change; made once for all who ask.

        Args:
            event: Decides which state; see `state()`.
            form: Names what `show` makes: equal names, equal bytes.
            show: Called for the first who asks for this form.
        """
        made = self._shown.get((event, form))
        if made is None:
            made = self._shown[event, form] = show(self.state(event))

        return made

    def state(self, event: str) -> Stored:
        """Return the state that an event is about.

        Args:
            event: `"ADDED"` or `"MODIFIED"` are about the new state; `"DELETED"` about
                the old one at the version of this change, also where the object lives
                on and only stopped matching a selector.
        """
        state = self.old if event == "DELETED" else self.new
        assert state is not None
        if event != "DELETED":
            return state

        return Stored.of(self.kind, state.body(), self.version)
