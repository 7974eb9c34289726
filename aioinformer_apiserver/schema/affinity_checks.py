"""Affinity checks: near what a Pod may run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aioinformer_apiserver.schema import field_checks as fields
from aioinformer_apiserver.schema import findings
from aioinformer_apiserver.schema.field_checks import listed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aioinformer_apiserver.errors.field_errors import Problem

__all__ = ["affinity_problems"]

Object = dict[str, Any]

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
_OPERATORS = frozenset({"In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"})


def affinity_problems(path: str, affinity: Object) -> Iterator[Problem]:
    """Find what is wrong with the affinity of a Pod."""
    yield from _node_problems(
        f"{path}.nodeAffinity", affinity.get("nodeAffinity") or {}
    )
    for field in ("podAffinity", "podAntiAffinity"):
        yield from _pod_problems(f"{path}.{field}", affinity.get(field) or {})


def _node_problems(path: str, affinity: Object) -> Iterator[Problem]:
    required = affinity.get(_REQUIRED)
    if required is not None:
        where = f"{path}.{_REQUIRED}.nodeSelectorTerms"
        terms = listed(required.get("nodeSelectorTerms"))
        if not terms:
            why = "must have at least one node selector term"
            yield findings.required(where, why)

        for index, term in enumerate(terms):
            yield from _term_problems(f"{where}[{index}]", term)

    for index, it in enumerate(listed(affinity.get(_PREFERRED))):
        where = f"{path}.{_PREFERRED}[{index}]"
        yield from _weight_problems(where, it)
        preference = it.get("preference") or {}
        yield from _term_problems(f"{where}.preference", preference)


def _term_problems(path: str, term: Object) -> Iterator[Problem]:
    for index, it in enumerate(listed(term.get("matchExpressions"))):
        where = f"{path}.matchExpressions[{index}]"
        operator, values = it.get("operator", ""), it.get("values")
        if operator not in _OPERATORS:
            why = "not a valid selector operator"
            yield findings.invalid(f"{where}.operator", operator, why)
        elif operator in {"In", "NotIn"} and not values:
            why = "must be specified when `operator` is 'In' or 'NotIn'"
            yield findings.required(f"{where}.values", why)
        elif operator in {"Exists", "DoesNotExist"} and values:
            why = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
            yield findings.forbidden(f"{where}.values", why)
        elif operator in {"Gt", "Lt"} and len(values or ()) != 1:
            why = "must be specified single value when `operator` is 'Lt' or 'Gt'"
            yield findings.required(f"{where}.values", why)

        yield from fields.qualified(f"{where}.key", it.get("key", ""))


def _pod_problems(path: str, affinity: Object) -> Iterator[Problem]:
    for index, it in enumerate(listed(affinity.get(_REQUIRED))):
        yield from _pod_term_problems(f"{path}.{_REQUIRED}[{index}]", it)

    for index, it in enumerate(listed(affinity.get(_PREFERRED))):
        where = f"{path}.{_PREFERRED}[{index}]"
        yield from _weight_problems(where, it)
        term = it.get("podAffinityTerm") or {}
        yield from _pod_term_problems(f"{where}.podAffinityTerm", term)


def _weight_problems(path: str, preference: Object) -> Iterator[Problem]:
    weight = preference.get("weight", 0)
    if not 1 <= weight <= 100:
        yield findings.invalid(f"{path}.weight", weight, "must be in the range 1-100")


def _pod_term_problems(path: str, term: Object) -> Iterator[Problem]:
    for field in ("labelSelector", "namespaceSelector"):
        yield from fields.selector(f"{path}.{field}", term.get(field))

    if not term.get("topologyKey"):
        yield findings.required(f"{path}.topologyKey", "can not be empty")

    yield from fields.qualified(f"{path}.topologyKey", term.get("topologyKey", ""))
