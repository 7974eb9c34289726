"""Writes: how a write to the registry is asked for, and what comes of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioinformer_apiserver.storage.changes import Stored

__all__ = [
    "DeleteOptions",
    "Deleted",
    "FieldValidation",
    "Part",
    "Propagation",
    "WriteOptions",
    "Written",
]

# What a write may change: a plain one leaves the status alone (where there is a status
# subresource), and one of that leaves the spec alone. "finalize" is a plain one of a
# namespace, that also writes the finalizers in its spec. "all" is for arranging: it is
# completed, but not checked against the schema.
Part = Literal["main", "status", "finalize", "all"]

# What happens to fields that the schema does not know: refused, dropped with a warning,
# dropped.
FieldValidation = Literal["Strict", "Warn", "Ignore"]

# What becomes of an object's dependents. Empty where the kind decides.
Propagation = Literal["", "Background", "Foreground", "Orphan"]


def _unheard(warning: str) -> None:
    """Take a warning that nobody wants to read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions:
    """How something is created, updated or patched."""

    part: Part = "main"
    """What may change."""

    dry_run: bool = False
    """Check and complete it, but store nothing."""

    manager: str = ""
    """Who owns the fields that change, in `metadata.managedFields`."""

    field_validation: FieldValidation = "Warn"
    """What happens to unknown and repeated fields."""

    force: bool = False
    """A server-side apply takes what others own. No effect on other writes."""

    repeated: tuple[str, ...] = ()
    """The fields that stood twice in the JSON, as paths; decoding it has lost them."""

    warn: Callable[[str], object] = field(default=_unheard, compare=False)
    """Is told what the user should read, also if the write is then refused."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteOptions:
    """How something is deleted."""

    dry_run: bool = False
    """Check, but delete nothing."""

    uid: str = ""
    """Only if this is its uid. Empty: whatever it is."""

    version: str = ""
    """Only if this is its version. Empty: whatever it is."""

    grace_seconds: int | None = None
    """How long a pod may take to end. None: what the pod itself says."""

    propagation: Propagation = ""
    """What becomes of its dependents."""

    at_once: bool = False
    """A pod that ends goes without being marked first, as nobody asks for over HTTP."""

    warn: Callable[[str], object] = field(default=_unheard, compare=False)
    """Is told what the user should read, also if the deletion is then refused."""


@dataclass(frozen=True, slots=True)
class Written:
    """What came of a write.

    Attributes:
        stored: The object as it is now; in a dry run, as it would be.
        created: It did not exist before.
    """

    stored: Stored
    created: bool = False


@dataclass(frozen=True, slots=True)
class Deleted:
    """What came of a deletion.

    Attributes:
        stored: The object as it waits to go, or as it was when it went.
        shown: The object itself is the answer; otherwise a Status about it is.
        gone: It exists no longer (or would not, but for the dry run).
    """

    stored: Stored
    shown: bool
    gone: bool = False
