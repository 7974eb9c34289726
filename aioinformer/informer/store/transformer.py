"""Calls of a user's transform: checks of its results, reports of its failures."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from aioinformer._user_code import user_errors
from aioinformer.cache.deltas import Delta, DeltaType
from aioinformer.informer.handlers.error_reporter import ErrorReporter
from aioinformer.informer.listwatch.watch_events import same_state
from aioinformer.model.callables import check_plain
from aioinformer.model.objects import KubeObject

if TYPE_CHECKING:
    from aioinformer.model.transforms import Transform

__all__ = ["Transformer", "identity_of", "is_left_out"]


class Transformer:
    """Transform of one informer, if it has one.

    Args:
        reporter: Reporter of failures.
    """

    def __init__(self, reporter: ErrorReporter | None = None) -> None:
        self._reporter = reporter or ErrorReporter("informer")
        self._function: Transform | None = None
        self.enabled: bool = False
        """True if there is a transform."""
        self.failures: int = 0
        """Number of failed calls; their objects are stored unchanged."""

    def __repr__(self) -> str:
        return f"<Transformer {self.name or 'nothing'}>"

    @property
    def function(self) -> Transform | None:
        """Transform, or None.

        Raises:
            OptionsError: If it is set to anything but a plain function, as objects are
                stored in order, without waiting.
        """
        return self._function

    @function.setter
    def function(self, function: Transform | None) -> None:
        if function is not None:
            check_plain(function, "a transform")

        self._function = function
        self.enabled = function is not None

    @property
    def name(self) -> str:
        """Name of the transform; empty if there is none."""
        if self._function is None:
            return ""

        return getattr(self._function, "__qualname__", None) or repr(self._function)

    def __call__(self, obj: KubeObject) -> KubeObject | None:
        """Return the transformed object, or None to leave it out.

        The result has the identity, version and context of `obj`. If the transform
        fails, the result is `obj`.
        """
        function = self._function
        if function is None:
            return obj

        try:
            result = function(obj)
            return result if result is None or result is obj else _kept(obj, result)
        except user_errors() as exc:
            self.failures += 1
            self._reporter.failed("transform", self.name, obj, exc)
            return obj


def _kept(obj: KubeObject, result: object) -> KubeObject:
    """Return the result of a transform with the identity and context of `obj`.

    Raises:
        TypeError: If the result is not a `KubeObject`.
        ValueError: If the result is another object, or has another version.
    """
    if not isinstance(result, KubeObject):
        if inspect.iscoroutine(result):
            result.close()

        raise TypeError(
            "a transform must return a KubeObject or None, not a "
            f"{type(result).__name__} (use transform_dict for functions of dicts)"
        )

    missing: dict[str, str] = {}
    for field, was, now in _identities(obj, result):
        if was != now:
            if now:
                raise ValueError(f"a transform changed {field} from {was!r} to {now!r}")

            missing[field] = was

    labels = result.label_set
    return KubeObject(
        _with_metadata(result, missing) if missing else result.raw,
        obj.key,
        obj.uid,
        obj.resource_version,
        obj.label_set if labels == obj.label_set else labels,
        obj.context.plain,
    )


def _identities(one: KubeObject, other: KubeObject) -> tuple[tuple[str, str, str], ...]:
    return (
        ("name", one.name, other.name),
        ("namespace", one.namespace, other.namespace),
        ("uid", one.uid, other.uid),
        ("resourceVersion", one.resource_version, other.resource_version),
    )


def _with_metadata(obj: KubeObject, fields: dict[str, str]) -> bytes:
    content: dict[str, Any] = obj.to_dict()
    content["metadata"] = {**(content.get("metadata") or {}), **fields}
    return KubeObject.of(content).body


# ---------------------------------------------------------------- left out objects


def identity_of(obj: KubeObject) -> KubeObject:
    """Return the identity and version of an object that was left out, in 0.3 KB.

    They are needed to detect duplicates, and to leave the object out of a relist
    without calling the transform again.
    """
    context = obj.context.plain
    return KubeObject(b"", obj.key, obj.uid, obj.resource_version, _NO_LABELS, context)


def is_left_out(obj: KubeObject) -> bool:
    """Return True for a result of `identity_of`."""
    return not obj.body


_NO_LABELS: dict[str, str] = {}


def transform_state(
    transformer: Transformer, delta: Delta[KubeObject], before: KubeObject | None
) -> tuple[KubeObject, Delta[KubeObject] | None]:
    """Return the new known state, and the change to queue, if there is one."""
    obj = delta.object
    taken = transformer(obj)
    if taken is not None:
        return taken, Delta(delta.type, taken)

    identity = identity_of(obj)
    if before is None or is_left_out(before):
        return identity, None

    # As if it no longer matched a selector: a deletion with the last known state. If
    # the known state has another uid, its deletion was missed, and this uid shows that.
    last = before if before.uid == obj.uid else identity
    return identity, Delta(DeltaType.DELETED, last)


def transform_deletion(
    transformer: Transformer, delta: Delta[KubeObject], before: KubeObject | None
) -> Delta[KubeObject] | None:
    """Return the deletion; None for an object that was left out.

    The final state is transformed, too. If the transform leaves it out, the last known
    state is used.
    """
    obj = delta.object
    if before is None or is_left_out(before):
        return None

    if before.uid != obj.uid:
        return delta  # the deletion of the known object was missed; handlers get that

    if same_state(before, obj):
        return Delta(DeltaType.DELETED, before)

    return Delta(DeltaType.DELETED, transformer(obj) or before)
