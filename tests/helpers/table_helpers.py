"""Functions that make the objects of the tests of tables: see `table_rows_*`."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from unittest.mock import ANY

if TYPE_CHECKING:
    from aioinformer.model.resource import Resource

AGE = ANY
NOW = datetime.now(tz=UTC)


def ago(**units: float) -> str:
    """Return a past time as Kubernetes writes it."""
    return (NOW - timedelta(**units)).strftime("%Y-%m-%dT%H:%M:%SZ")


# Shown as "3d1h", also if the test takes a few minutes.
DAYS_AGO = ago(days=3, hours=1, minutes=5)


@dataclass(frozen=True)
class Row:
    """An object, and its row in a table.

    Attributes:
        resource: Resource of the object.
        name: Name within the test.
        cells: Cells after the name, which is the first one.
        body: Body without the name.
        status: Status, written through the subresource.
        metadata: Metadata besides the name.
        deleted: True if it was deleted and waits for a finalizer.
        conditions: Conditions of the row.
    """

    resource: Resource
    name: str
    cells: list[Any]
    body: dict[str, Any] = field(default_factory=dict)
    status: dict[str, Any] | None = None
    metadata: dict[str, Any] = field(default_factory=dict)
    deleted: bool = False
    conditions: list[str] = field(default_factory=list)

    @property
    def key(self) -> str:
        return f"{self.resource.plural}-{self.name}"

    def stored(self) -> dict[str, Any]:
        """Return the object as it would be stored."""
        metadata = {"name": self.name, "creationTimestamp": ago(hours=9)}
        if self.deleted:
            metadata["deletionTimestamp"] = ago(hours=1)

        body = {**self.body, "metadata": {**self.metadata, **metadata}}
        return body if self.status is None else {**body, "status": self.status}


FINALIZERS = {"finalizers": ["example.com/hold"]}


def container(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "image": f"img-{name}:1", **more}


def template(*names: str, **spec: Any) -> dict[str, Any]:
    """Make a template of pods that are labelled `app=x`."""
    containers = [container(name) for name in names]
    return {
        "metadata": {"labels": {"app": "x"}},
        "spec": {"containers": containers, **spec},
    }


SELECTOR = {"matchLabels": {"app": "x"}}


def condition(kind: str, status: str = "True", **more: Any) -> dict[str, Any]:
    return {"type": kind, "status": status, **more}


# ---------------------------------------------------------------- states of containers


def now(
    name: str,
    state: dict[str, Any],
    *,
    ready: bool = False,
    restarts: int = 0,
    last: bool = False,
    started: bool | None = None,
) -> dict[str, Any]:
    """Make the status of a container; `last` ended 3 days and 1 hour ago."""
    status: dict[str, Any] = {
        "name": name,
        "image": f"img-{name}:1",
        "imageID": "",
        "ready": ready,
        "restartCount": restarts,
        "state": state,
    }
    if last:
        ended = {"exitCode": 1, "finishedAt": DAYS_AGO}
        status["lastState"] = {"terminated": ended}

    return status if started is None else {**status, "started": started}


RUNNING: dict[str, Any] = {"running": {}}


def waiting(reason: str = "") -> dict[str, Any]:
    return {"waiting": {"reason": reason} if reason else {}}


def ended(code: int = 0, reason: str = "", **more: Any) -> dict[str, Any]:
    state = {"exitCode": code, **more}
    return {"terminated": {**state, "reason": reason} if reason else state}
