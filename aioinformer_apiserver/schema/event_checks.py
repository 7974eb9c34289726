"""Checks of events of the newer version, which are stricter than those of the older one.

What is checked is in the older version's words, as a real server tells it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from aioinformer_apiserver.errors import names
from aioinformer_apiserver.schema import findings, other_checks
from aioinformer_apiserver.schema.update_checks import immutable_fields

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aioinformer_apiserver.errors.field_errors import Problem

__all__ = ["event_problems"]

Object = dict[str, Any]

_UNSET = ("firstTimestamp", "lastTimestamp", "count")
_IMMUTABLE = (
    "involvedObject",
    "reason",
    "message",
    "source",
    "firstTimestamp",
    "lastTimestamp",
    "count",
    "type",
    "eventTime",
    "action",
    "related",
    "reportingController",
    "reportingInstance",
)
_FEWEST = 2


def event_problems(new: Object, old: Object | None) -> Iterator[Problem]:
    """Find what is wrong with an event that is written in the version of events.k8s.io.

    Args:
        new: As it is to be, in the version of the core group.
        old: As it is stored, in the same version; None if it is new.
    """
    if old is not None:
        if new.get("series") != old.get("series"):
            yield from _series_problems(new.get("series"))

        yield from immutable_fields(_renamed(old), _renamed(new), *_IMMUTABLE)
        return

    for it in other_checks.event_problems(new):
        named = it.field.replace("reportingComponent", "reportingController")
        yield replace(it, field=named)

    name = new["metadata"]["name"]
    for why in names.subdomain_problems(name):
        yield findings.invalid("metadata.name", name, why)

    yield from _series_problems(new.get("series"))
    if not new.get("eventTime"):
        yield findings.required("eventTime")

    given = new.get("type", "")
    if given not in {"Normal", "Warning"}:
        yield findings.invalid("type", "", f"has invalid value: {given}")

    for field in _UNSET:
        if new.get(field):
            yield findings.invalid(field, "", "needs to be unset")

    if any((new.get("source") or {}).values()):
        yield findings.invalid("source", "", "needs to be unset")


def _series_problems(series: Object | None) -> Iterator[Problem]:
    if series is None:
        return

    if series.get("count", 0) < _FEWEST:
        yield findings.invalid("series.count", "", f"should be at least {_FEWEST}")

    if not series.get("lastObservedTime"):
        yield findings.required("series.lastObservedTime")


def _renamed(body: Object) -> Object:
    return {**body, "reportingController": body.get("reportingComponent", "")}
