"""`ReconcileRequest`: which object a reconcile is about."""

from __future__ import annotations

import msgspec

from aioinformer.model.keys import split_key

__all__ = ["ReconcileRequest"]


class ReconcileRequest(msgspec.Struct, gc=False, frozen=True):
    """Which object to bring to its desired state: its name, and not its content.

    What changed is not part of it: however often an object changes while it waits, it is
    worked on once, with the newest state. `Context.causes` says what it was.

    Attributes:
        namespace: Empty for what is in none.
        name: Of the object.
        cluster: For programs that work on several clusters; empty where there is one.

    Example:
        >>> ReconcileRequest("shop", "web").key
        'shop/web'
    """

    namespace: str
    name: str
    cluster: str = ""

    @classmethod
    def of(cls, key: str) -> ReconcileRequest:
        """Make one from the key of an object: `"namespace/name"`, or a bare name.

        Raises:
            OptionsError: If that is no key.
        """
        return cls(*split_key(key))

    @property
    def key(self) -> str:
        """What caches know the object by: `"namespace/name"`, or the bare name."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.name
