"""Conditions: what a status says about an object, one statement of each type. Pure.

They are entries of `status.conditions` as `metav1.Condition` has them. The functions are
those of Kubernetes' apimachinery (`pkg/api/meta/conditions.go`), but for that a list is
answered, and none changed (what an object of the cache holds cannot be), that a time which
is missing is filled in, and that what the server would refuse is refused at once.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar

from aioinformer.errors import OptionsError
from aioinformer.model.times import kube_time
from aioinformer.model.validation import qualified_name_problem

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = [
    "find_status_condition",
    "is_status_condition_true",
    "set_status_condition",
]

M = TypeVar("M", bound=Mapping[str, Any])

_STATUSES: Final = ("True", "False", "Unknown")
_TYPE_LENGTH: Final = 316
_REASON: Final = re.compile(r"[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?")
_REASON_LENGTH: Final = 1024
_MESSAGE_LENGTH: Final = 32_768


def set_status_condition(
    conditions: Iterable[Mapping[str, Any]] | None,
    type: str,  # noqa: A002 - the API's own word
    status: bool | Literal["True", "False", "Unknown"],
    *,
    reason: str,
    message: str = "",
    observed_generation: int | None = None,
    now: datetime | None = None,
) -> list[dict[str, Any]]:
    """The conditions, with this one in the place of the one of its type, or at the end.

    ::

        conditions = set_status_condition(
            site.at("status.conditions"),
            "Ready",
            ready == wanted,
            reason="Deployed" if ready == wanted else "Deploying",
            observed_generation=site.generation,
        )
        if conditions != site.at("status.conditions"):
            ...  # write it

    What did not change compares equal, so that a controller can tell whether there is
    anything to write. Where several write conditions of one object, send the version of
    the object with them (`metadata.resourceVersion`), or the writer loses the others'.

    Args:
        conditions: Those that are there: mappings, of which the order is kept; None for
            none. Of two of one type the first is replaced.
        type: Which one, such as `"Ready"` or `"example.com/Paid"`.
        status: Whether it holds; `"Unknown"` where nobody can say.
        reason: Why, in one word for machines, such as `"MinimumReplicasAvailable"`.
        message: The same for people.
        observed_generation: The `generation` of the object that was looked at; None to
            say nothing of it.
        now: The time of the change, with a zone; None for that of the clock. It is
            written, to the second, only where the status is another one than before.

    Returns:
        A fresh list of fresh dicts.

    Raises:
        OptionsError: If the server would refuse it: another status, a type that is no
            qualified name, a reason that is no word, a text that is too long, a
            generation below 0.
    """
    _check(type, status, reason, message, observed_generation)
    told = {"type": type, "status": str(status)}
    kept = [dict(it) for it in conditions or ()]
    old = find_status_condition(kept, type)
    if old is None:
        old = {}
        kept.append(old)

    if old.get("status") != told["status"] or not old.get("lastTransitionTime"):
        told["lastTransitionTime"] = kube_time(now or datetime.now(UTC))

    old.update(told, reason=reason, message=message)
    old.pop("observedGeneration", None)
    if observed_generation is not None:
        old["observedGeneration"] = observed_generation

    return kept


def find_status_condition(
    conditions: Iterable[M] | None,
    type: str,  # noqa: A002 - the API's own word
) -> M | None:
    """The first condition of this type; None if there is none.

    Example:
        >>> find_status_condition([{"type": "Ready", "status": "False"}], "Ready")
        {'type': 'Ready', 'status': 'False'}
    """
    return next((it for it in conditions or () if it.get("type") == type), None)


def is_status_condition_true(
    conditions: Iterable[Mapping[str, Any]] | None,
    type: str,  # noqa: A002 - the API's own word
) -> bool:
    """Whether there is a condition of this type, and it holds.

    Example:
        >>> is_status_condition_true([{"type": "Ready", "status": "False"}], "Ready")
        False
    """
    found = find_status_condition(conditions, type)
    return found is not None and found.get("status") == "True"


def _check(
    kind: str,
    status: object,
    reason: str,
    message: str,
    observed_generation: int | None,
) -> None:
    if problem := qualified_name_problem(kind, "the type of a condition"):
        raise OptionsError(problem)

    problem = (
        _text_problem("a type", kind, _TYPE_LENGTH)
        or _text_problem("a reason", reason, _REASON_LENGTH)
        or _text_problem("a message", message, _MESSAGE_LENGTH)
    )
    if problem:
        raise OptionsError(f"condition {kind!r}: {problem}")

    if not isinstance(status, bool) and status not in _STATUSES:
        raise OptionsError(
            f"condition {kind!r}: its status is a bool, 'True', 'False' or 'Unknown',"
            f" not {status!r}"
        )

    if not _REASON.fullmatch(reason):
        raise OptionsError(
            f"condition {kind!r}: a reason is one word of letters, digits, '_', ',' and"
            f" ':', not {reason!r}"
        )

    if observed_generation is not None and observed_generation < 0:
        raise OptionsError(
            f"condition {kind!r}: no generation is {observed_generation}"
        )


def _text_problem(what: str, given: object, most: int) -> str:
    if not isinstance(given, str):
        return f"{what} is a text, not {given!r}"

    if len(given) > most:
        return f"{what} of {len(given):,} characters is above {most:,}"

    return ""
