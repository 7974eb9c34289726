"""A user's transform at work: its results are checked, its failures are reported."""

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
    """Calls the transform of one informer, if it has any.

    Args:
        reporter: Told of each failure.
    """

    def __init__(self, reporter: ErrorReporter | None = None) -> None:
        self._reporter = reporter or ErrorReporter("informer")
        self._function: Transform | None = None
        self.failures = 0
        """Calls that failed; what they were called with is kept as it came."""

    def __repr__(self) -> str:
        return f"<Transformer {self.name or 'nothing'}>"

    @property
    def function(self) -> Transform | None:
        """The transform; None for none.

        Raises:
            OptionsError: If one is set that cannot be called, or is a coroutine
                function: objects are kept in the order they come, without waiting.
        """
        return self._function

    @function.setter
    def function(self, function: Transform | None) -> None:
        if function is not None:
            check_plain(function, "a transform")

        self._function = function

    @property
    def name(self) -> str:
        """What to call the transform; empty if there is none."""
        if self._function is None:
            return ""

        return getattr(self._function, "__qualname__", None) or repr(self._function)

    def __call__(self, obj: KubeObject) -> KubeObject | None:
        """What to keep of an object: the transform's result, or None for nothing.

        The result has the identity and version of `obj`, and its share in what the
        objects of an informer have together. If the transform fails, it is `obj`.
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
    """The result as an object of the informer that `obj` came from.

    Raises:
        TypeError: It is no object.
        ValueError: It is another object, or of another version.
    """
    if not isinstance(result, KubeObject):
        if inspect.iscoroutine(result):
            result.close()

        raise TypeError(
            f"a transform returns the object, changed or not, or None; not a "
            f"{type(result).__name__} (for functions of dicts there is transform_dict)"
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


# ---------------------------------------------------------------- what is left out


def identity_of(obj: KubeObject) -> KubeObject:
    """What is remembered of an object that was left out: who it was, at which version.

    Only so can a later event be told from a repetition, and a relist do without asking
    the transform again. 0.3 KB.
    """
    context = obj.context.plain
    return KubeObject(b"", obj.key, obj.uid, obj.resource_version, _NO_LABELS, context)


def is_left_out(obj: KubeObject) -> bool:
    """True for what `identity_of` returned."""
    return not obj.body


_NO_LABELS: dict[str, str] = {}


def transform_state(
    transformer: Transformer, delta: Delta[KubeObject], before: KubeObject | None
) -> tuple[KubeObject, Delta[KubeObject] | None]:
    """What is known then, and the change, if it is one."""
    obj = delta.object
    taken = transformer(obj)
    if taken is not None:
        return taken, Delta(delta.type, taken)

    identity = identity_of(obj)
    if before is None or is_left_out(before):
        return identity, None

    # As if it matched a selector no more: it goes, in the state known last. If it
    # was another object, that one's end was not seen, which the other uid tells.
    gone = before if before.uid == obj.uid else identity
    return identity, Delta(DeltaType.DELETED, gone)


def transform_deletion(
    transformer: Transformer, delta: Delta[KubeObject], before: KubeObject | None
) -> Delta[KubeObject] | None:
    """The deletion; None of an object that nobody was told of.

    Its final state passes the transform, too. Left out, the one known last stands
    in for it: the object is gone, whatever is wanted of its last state.
    """
    obj = delta.object
    if before is None or is_left_out(before):
        return None

    if before.uid != obj.uid:
        return delta  # the one known ended unseen; this state is told to nobody

    if same_state(before, obj):
        return Delta(DeltaType.DELETED, before)

    return Delta(DeltaType.DELETED, transformer(obj) or before)
