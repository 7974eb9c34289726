"""Findings of checks, and their summary. Pure."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Finding", "StepResult", "StepStatus", "has_failed", "summary"]


StepStatus = Literal["ok", "warning", "failed", "skipped"]
"""Status of a step."""


# Aligns the texts.
_MARK_WIDTH = max(map(len, get_args(StepStatus)))


# In the order of the summary, with plurals.
_WORDS: dict[StepStatus, tuple[str, str]] = {
    "failed": ("failed", "failed"),
    "warning": ("warning", "warnings"),
    "ok": ("ok", "ok"),
    "skipped": ("skipped", "skipped"),
}


class StepResult(NamedTuple):
    """Result of a step."""

    mark: StepStatus
    text: str
    """One or two sentences in one line, without secrets."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Step, with its result and duration."""

    step: str
    mark: StepStatus
    text: str
    resource: str = ""
    """Resource as given by the user, or empty for the server."""

    namespace: str = ""
    """Namespace, if several were given."""

    seconds: float = 0.0

    def line(self, width: int = 0) -> str:
        """Return a line of status, step and text.

        Args:
            width: Minimum width of the step.
        """
        where = f" in {self.namespace}" if self.namespace else ""
        name = f"{self.resource}{where}: {self.step}" if self.resource else self.step
        return f"{self.mark:<{_MARK_WIDTH}}  {name:<{width}}  {self.text}"

    def document(self) -> dict[str, Any]:
        """Return the finding for JSON output."""
        return {
            "step": self.step,
            "resource": self.resource or None,
            "namespace": self.namespace or None,
            "mark": self.mark,
            "text": self.text,
            "seconds": round(self.seconds, 3),
        }


def has_failed(findings: Sequence[Finding]) -> bool:
    """Return True if a step failed. Warnings do not count."""
    return any(it.mark == "failed" for it in findings)


def summary(findings: Sequence[Finding]) -> str:
    """Return the summary in one line.

    Example:
        >>> summary([Finding(step="version", mark="ok", text="v1.36.0")])
        'Informers will work: 1 ok.'
    """
    numbers = Counter(it.mark for it in findings)
    counted = ", ".join(
        f"{numbers[mark]} {_WORDS[mark][numbers[mark] != 1]}"
        for mark in _WORDS
        if numbers[mark]
    )
    if numbers["failed"]:
        return f"Informers will not work: {counted}."

    if numbers["warning"]:
        return f"Informers will work, with warnings: {counted}."

    return f"Informers will work: {counted}."
