"""A key whose reconciles write, and others who write as well: input of a breaker."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aioinformer.client.verbs import Request
from aioinformer.controller.pending_writes import OwnWrite
from aioinformer.controller.reconcile import Cause, ReconcileRequest
from aioinformer.informer.notifications import Added, Deleted, Updated
from aioinformer.json_codec import dumps
from aioinformer.model.objects import KubeObject

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aioinformer.controller.storm_breaker import Storm, StormBreaker

KEY = "default/a"
CHANGED = Cause("updated", "ConfigMap", KEY)


def state(version: int, data: dict[str, Any], name: str = "a") -> KubeObject:
    metadata = {
        "name": name,
        "namespace": "default",
        "uid": name,
        "resourceVersion": str(version),
    }
    return KubeObject.of({"kind": "ConfigMap", "metadata": metadata, "data": data})


class Simulation:
    """Reconciles of one key over time, with a config map that anybody changes."""

    informer: Any = object()

    def __init__(self, breaker: StormBreaker, name: str = "a") -> None:
        self.breaker = breaker
        self.request = ReconcileRequest("default", name)
        self.now = 0.0
        self.version = 0
        self.storms: list[tuple[float, Storm]] = []
        self._name = name
        self._obj = state(0, {}, name)

    def others_write(self, *fields: str) -> None:
        self._change(fields)

    def reconcile(
        self,
        *fields: str,
        causes: Iterable[Cause] = (CHANGED,),
        after: tuple[str, ...] = (),
    ) -> float:
        """Run a reconcile that writes fields, and return its pause.

        Args:
            fields: Fields that it writes.
            causes: Its causes.
            after: Fields that others write while it runs, before its own write.
        """
        storm = self.breaker.began(self.request, causes, self.now)
        if storm is not None:
            self.storms.append((self.now, storm))

        if after:
            self.others_write(*after)

        writes = [self._own(self._change(fields), fields, "PATCH")] if fields else []
        return self.breaker.ended(self.request, writes, self.now)

    def reconcile_idly(self, *fields: str) -> float:
        """Run a reconcile whose patch changes nothing."""
        self.breaker.began(self.request, (CHANGED,), self.now)
        writes = [self._own(self._obj, fields, "PATCH")]
        return self.breaker.ended(self.request, writes, self.now)

    def create(self, name: str) -> float:
        """Run a reconcile that creates an object."""
        storm = self.breaker.began(self.request, (CHANGED,), self.now)
        if storm is not None:
            self.storms.append((self.now, storm))

        self.version += 1
        obj = state(self.version, {}, name)
        self.breaker.observe([self.request], self.informer, "ConfigMap", Added(obj))
        write = self._own(obj, (), "POST")
        return self.breaker.ended(self.request, [write], self.now)

    def delete(self, name: str) -> float:
        """Run a reconcile that deletes an object. The response has no version."""
        storm = self.breaker.began(self.request, (CHANGED,), self.now)
        if storm is not None:
            self.storms.append((self.now, storm))

        self.version += 1
        obj = state(self.version, {}, name)
        self.breaker.observe([self.request], self.informer, "ConfigMap", Deleted(obj))
        path = f"/api/v1/namespaces/default/configmaps/{name}"
        write = OwnWrite(self.informer, obj.key, "", Request("DELETE", path))
        return self.breaker.ended(self.request, [write], self.now)

    def _own(self, obj: KubeObject, fields: Iterable[str], method: str) -> OwnWrite:
        path = f"/api/v1/namespaces/default/configmaps/{obj.name}"
        body = dumps({"data": dict.fromkeys(fields, "")})
        request = Request(method, path, {}, body)
        return OwnWrite(self.informer, obj.key, obj.resource_version, request)

    def _change(self, fields: Iterable[str]) -> KubeObject:
        self.version += 1
        data = {**self._obj["data"], **dict.fromkeys(fields, str(self.version))}
        old, self._obj = self._obj, state(self.version, data, self._name)
        event = Updated(old, self._obj)
        self.breaker.observe([self.request], self.informer, "ConfigMap", event)
        return self._obj
