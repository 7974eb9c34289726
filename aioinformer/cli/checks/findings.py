"""Findings: what a check-up has found, step by step, and what it adds up to. Pure."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Finding", "StepResult", "StepStatus", "has_failed", "summary"]


StepStatus = Literal["ok", "warning", "failed", "not asked"]


"""How a step ended; `not asked` if there was no sense in it, or no way to."""


# So that texts stand below each other.
_MARK_WIDTH = max(map(len, get_args(StepStatus)))


_WORDS: dict[StepStatus, tuple[str, str]] = {
    "failed": ("failed", "failed"),
    "warning": ("warning", "warnings"),
    "ok": ("ok", "ok"),
    "not asked": ("not asked", "not asked"),
}


class StepResult(NamedTuple):
    """What one step has found."""

    mark: StepStatus
    text: str
    """A sentence or two, in one line, without secrets."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What one step has found, which step it was, and how long it took."""

    step: str
    mark: StepStatus
    text: str
    resource: str = ""
    """What it is about, as it was typed; empty for the server as a whole."""

    seconds: float = 0.0

    def line(self, width: int = 0) -> str:
        """Say it in a line: the mark, the step, the text.

        Args:
            width: Characters that the step has at the least.
        """
        name = f"{self.resource}: {self.step}" if self.resource else self.step
        return f"{self.mark:<{_MARK_WIDTH}}  {name:<{width}}  {self.text}"

    def document(self) -> dict[str, Any]:
        """Say it as JSON does; `resource` is null for the server as a whole."""
        return {
            "step": self.step,
            "resource": self.resource or None,
            "mark": self.mark,
            "text": self.text,
            "seconds": round(self.seconds, 3),
        }


def has_failed(findings: Sequence[Finding]) -> bool:
    """Say whether anything is wrong; warnings are not."""
    return any(it.mark == "failed" for it in findings)


def summary(findings: Sequence[Finding]) -> str:
    """Say in a line how it ended.

    Example:
        >>> summary([Finding(step="version", mark="ok", text="v1.36.0")])
        'All is well: 1 ok.'
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
        return f"Informers will work, with care: {counted}."

    return f"All is well: {counted}."
