"""`aioinformer doctor`: whether a cluster gives informers what they need, step by step."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import orjson

from aioinformer.cli.checkup.checkup import Checkup
from aioinformer.cli.checkup.examination import Examination
from aioinformer.cli.checkup.findings import has_failed, summary
from aioinformer.cli.checkup.rules import as_yaml, manifests
from aioinformer.cli.explain import CommandError
from aioinformer.cli.output import Control, complain, write
from aioinformer.cli.statuses import FAILED_CHECK
from aioinformer.cli.terminal import has_colours
from aioinformer.model.resources import PODS

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from aioinformer.cli.checkup.findings import Finding, Mark
    from aioinformer.cli.target import Target

__all__ = ["DoctorOptions", "Report", "doctor"]

Report = Literal["lines", "json", "rules"]
"""What is printed; `lines` is what it is without `-o`."""

# SGR parameters of ECMA-48: green, yellow, red, bright black.
_COLOURS: dict[Mark, Control] = {
    "ok": Control("\x1b[32m"),
    "warning": Control("\x1b[33m"),
    "failed": Control("\x1b[31m"),
    "not asked": Control("\x1b[90m"),
}
_NO_COLOUR = Control("\x1b[0m")


@dataclass(frozen=True, slots=True, kw_only=True)
class DoctorOptions:
    """What to check, and how."""

    resources: tuple[str, ...] = ("pods",)
    """As `Discovery` takes them."""

    namespace: str | None = None
    """None for the one that the target means."""

    all_namespaces: bool = False
    """Then there is no `namespace`."""

    group: str = ""
    """Whom rules are for; empty for the user alone."""

    report: Report = "lines"

    seconds: float = 10.0
    """How long each step may take."""


async def doctor(options: DoctorOptions, target: Target) -> int:
    """Check a cluster, and print what was found on stdout; returns the exit status.

    Returns:
        0 if informers will work, else 1.

    Raises:
        CommandError: The options contradict each other, or we are not in the group.
        OptionsError: The URL, the token or the namespace cannot be one.

    Cancellation:
        Ends the step; connections are closed, and an exec plugin is killed.
    """
    if options.namespace is not None and options.all_namespaces:
        raise CommandError("-n and -A contradict each other: leave out one of them.")

    # These complain of what was typed, before anything is read.
    PODS.path(options.namespace)
    target.client()

    examination = Examination(options.seconds, _teller(options))
    checkup = Checkup(
        target,
        examination,
        words=tuple(dict.fromkeys(options.resources)),
        namespace=options.namespace,
        all_namespaces=options.all_namespaces,
        group=options.group,
    )
    await checkup.run()
    await _conclude(options.report, examination.findings, checkup)
    return FAILED_CHECK if has_failed(examination.findings) else 0


async def _conclude(report: Report, findings: list[Finding], checkup: Checkup) -> None:
    subject = checkup.subject
    rules = manifests(checkup.needs, subject) if subject is not None else []
    nobody = bool(checkup.needs) and subject is None
    match report:
        case "json":
            await write(_document(findings, rules))
        case "rules":
            await write(as_yaml(rules))
            if not rules:
                complain(_NOBODY if nobody else "no rules are known to be missing.")
        case "lines":
            await write(f"\n{summary(findings)}\n")
            if rules:
                await write(f"\n{_APPLY}\n{as_yaml(rules)}")
            elif nobody:
                await write(f"{_NOBODY}\n")


_APPLY = "# For an administrator: `-o rules` prints this alone, for kubectl apply -f -"
_NOBODY = (
    "There are no rules to apply, as the server was not told who you are: log in first."
)


def _document(findings: list[Finding], rules: list[dict[str, Any]]) -> bytes:
    document = {
        "ok": not has_failed(findings),
        "summary": summary(findings),
        "findings": [it.document() for it in findings],
        "rules": rules,
    }
    return orjson.dumps(document, option=orjson.OPT_INDENT_2) + b"\n"


class _Lines:
    """Prints findings as they come, in colours where they are wanted."""

    def __init__(self, words: tuple[str, ...]) -> None:
        longest = max(map(len, words), default=0) + len(": permissions")
        self._width = max(longest, len("client certificate"))
        self._coloured = sys.stdout.isatty() and has_colours(os.environ)

    async def tell(self, finding: Finding) -> None:
        line = finding.line(self._width)
        if self._coloured:
            mark = finding.mark
            text = line.removeprefix(mark)
            await write(_COLOURS[mark], mark, _NO_COLOUR, f"{text}\n")
        else:
            await write(f"{line}\n")


def _teller(options: DoctorOptions) -> Callable[[Finding], Awaitable[None]]:
    match options.report:
        case "lines":
            return _Lines(options.resources).tell
        case "rules":
            return _tell_failure
        case "json":
            return _tell_nothing


async def _tell_failure(finding: Finding) -> None:
    """Say on stderr what is wrong, where stdout is for what is done about it."""
    if finding.mark == "failed":
        complain(finding.line())


async def _tell_nothing(finding: Finding) -> None:
    pass
