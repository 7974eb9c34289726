"""`StatusWriter`: collects changes of a status, and writes them at once."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, Literal

from aioinformer.client import verbs
from aioinformer.client.conflicts import (
    is_absent,
    merge_difference,
    retry_on_conflict,
)
from aioinformer.controller.client import required_client
from aioinformer.errors import NotFound, OptionsError
from aioinformer.model.conditions import find_status_condition, set_status_condition
from aioinformer.model.object_meta import version_number
from aioinformer.model.objects import METADATA_KIND
from aioinformer.model.transforms import strip_managed_fields

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aioinformer.client.verbs import Body
    from aioinformer.controller.client import ReconcileClient
    from aioinformer.informer.shared_informer import SharedInformer
    from aioinformer.model.objects import KubeObject
    from aioinformer.model.resource import Resource

__all__ = ["StatusChanges", "StatusWriter"]

# Parts of a condition that a reader notices.
_NOTICED: Final = ("status", "reason", "message")


@dataclass(slots=True)
class StatusChanges:
    """Changes of a status, which can be applied to any version of it. Pure.

    Attributes:
        fields: Values of fields; None removes one.
        conditions: Arguments of `set_status_condition` by type.
    """

    fields: dict[str, Any] = field(default_factory=dict)
    conditions: dict[str, dict[str, Any]] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.fields or self.conditions)

    def applied(self, status: Mapping[str, Any]) -> dict[str, Any]:
        """Return a status with the changes."""
        changed = {**status, **self.fields}
        conditions = changed.get("conditions")
        for kind, values in self.conditions.items():
            conditions = set_status_condition(conditions, kind, **values)

        if self.conditions:
            changed["conditions"] = conditions

        return {key: value for key, value in changed.items() if value is not None}

    def before(self, later: StatusChanges) -> StatusChanges:
        """Return these changes followed by later ones."""
        return StatusChanges(
            self.fields | later.fields, self.conditions | later.conditions
        )


class StatusWriter:
    """Writer of the status of the object of one reconcile.

    Changes are for the object that the reconcile acts on, see `begin()`. Another object
    of that name gets none of them.

    Args:
        informer: Informer of the object.
        key: Key of the object.
        field_manager: Name under which the server records the fields set.
        client: Client of the reconcile, or None.
        stale: True if the informer may not show earlier writes.
        daemon: True for a daemon, which sees many generations of its object.
    """

    def __init__(
        self,
        informer: SharedInformer,
        key: str,
        field_manager: str,
        client: ReconcileClient | None,
        *,
        stale: bool,
        daemon: bool,
    ) -> None:
        self._informer = informer
        self._key = key
        self._obj: KubeObject | None = None
        self._field_manager = field_manager
        self._client = client
        self._stale = stale
        self._daemon = daemon
        self._changes = StatusChanges()
        self._written: KubeObject | None = None
        self._ended = False

    def begin(self, obj: KubeObject | None) -> None:
        """Note the object that the reconcile begins to act on; None without one.

        Changes that were collected for another one are dropped.
        """
        if self._obj is not None and (obj is None or obj.uid != self._obj.uid):
            self._changes = StatusChanges()

        self._obj = obj

    @property
    def pending(self) -> bool:
        """True if changes are collected that were not written yet."""
        return bool(self._changes)

    def end(self) -> None:
        """Refuse further changes, which nothing would write."""
        self._ended = True

    def set_fields(self, status: Body, fields: Mapping[str, Any]) -> bool:
        """Collect fields: see `Context.set_status`."""
        given = {} if status is None else verbs.plain(status)
        given |= verbs.plain(dict(fields))
        before = self._current()
        if before is None:
            return False

        self._changes.fields |= given
        # A whole list of conditions replaces single ones that were set before.
        if "conditions" in given:
            self._changes.conditions.clear()

        changed = {key: before.get(key) for key in given}
        return bool(merge_difference(changed, given))

    def set_condition(
        self,
        kind: str,
        status: bool | Literal["True", "False", "Unknown"],
        *,
        reason: str,
        message: str,
    ) -> bool:
        """Collect a condition: see `Context.set_condition`."""
        before = self._current()
        values: dict[str, Any] = {
            "status": status,
            "reason": reason,
            "message": message,
            "observed_generation": self._generation(),
            "now": datetime.now(UTC),
        }
        # Also checks it for a missing object.
        changed = set_status_condition((before or {}).get("conditions"), kind, **values)
        if before is None:
            return False

        self._changes.conditions[kind] = values
        old = find_status_condition(before.get("conditions"), kind) or {}
        new = find_status_condition(changed, kind) or {}
        return any(old.get(part, "") != new.get(part, "") for part in _NOTICED)

    async def write(self) -> KubeObject | None:
        """Write the collected changes: see `Context.write_status`."""
        changes, self._changes = self._changes, StatusChanges()
        base = self._base() if changes else None
        if base is None:
            return None

        try:
            written = await self._write(changes, base)
        except BaseException:
            self._changes = changes.before(self._changes)
            raise

        self._written = written or self._written
        return written

    async def _write(
        self, changes: StatusChanges, base: KubeObject
    ) -> KubeObject | None:
        client, resource = self._target()
        name, namespace = base.name, base.namespace or None
        # What the server has may differ from what the informer shows.
        known = None if self._stale or not self._is_complete(base) else base

        async def attempt() -> KubeObject | None:
            nonlocal known
            if known is None:
                known = await client.get(resource, name, namespace=namespace)

            now, known = known, None
            if now.uid != base.uid:
                return None

            old = _status_of(now)
            difference = merge_difference(old, changes.applied(old))
            if not difference:
                return None

            body = {
                "metadata": {"resourceVersion": now.resource_version},
                "status": difference,
            }
            return await client.patch_status(
                resource,
                name,
                body,
                namespace=namespace,
                field_manager=self._field_manager,
            )

        try:
            return await retry_on_conflict(attempt)
        except NotFound as exc:
            if is_absent(exc, name):
                return None

            raise

    def _target(self) -> tuple[ReconcileClient, Resource]:
        resource = self._informer.resource
        client = required_client(self._client)
        if resource is None:
            raise OptionsError(
                f"the resource of informer {self._informer.name} is unknown: use "
                "ctx.client.patch_status()"
            )

        return client, resource

    def _base(self) -> KubeObject | None:
        """Return the newest known version of the object, or None if it is deleted."""
        cached, written = self._informer.lister.get(self._key), self._written
        if self._obj is None or cached is None or cached.uid != self._obj.uid:
            return None

        if written is None:
            return cached

        newer = version_number(written.resource_version) > version_number(
            cached.resource_version
        )
        return written if newer else cached

    def _current(self) -> dict[str, Any] | None:
        """Return the status with the collected changes; None without an object."""
        _, resource = self._target()
        if self._ended:
            raise OptionsError(
                f"cannot set the status of {resource} {self._key}: its reconcile has "
                "ended. Await your tasks, or use patch_status() of a client"
            )

        base = self._base()
        return None if base is None else self._changes.applied(_status_of(base))

    def _generation(self) -> int | None:
        # A reconcile has acted on the spec that it began with, not on later changes.
        seen = self._base() if self._daemon else self._obj
        return (seen.generation or None) if seen is not None else None

    def _is_complete(self, obj: KubeObject) -> bool:
        """Return False if the informer may not store the whole status."""
        whole = self._informer.transform in {None, strip_managed_fields}
        return obj is self._written or (whole and obj.kind != METADATA_KIND)


def _status_of(obj: KubeObject) -> dict[str, Any]:
    status = obj.to_dict().get("status")
    return status if isinstance(status, dict) else {}
