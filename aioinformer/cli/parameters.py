"""Parsing of options and arguments, and errors of one line."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING

import click

from aioinformer.cli import INTERRUPTED, TROUBLE
from aioinformer.cli.output import print_error

if TYPE_CHECKING:
    from collections.abc import Callable

    from click.shell_completion import CompletionItem

__all__ = [
    "complete_resource",
    "duration",
    "end",
    "finite",
    "gates_by_name",
    "given",
    "namespace_name",
    "run_typed",
    "seconds_in",
    "speed_option",
    "users_by_token",
]

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_PART = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h|d)")

_EMPTY = {
    "namespace": "must not be empty, use -A for all namespaces",
    "server": "must not be empty, omit --server to use a kubeconfig",
    "token": "must not be empty, omit --token to use the kubeconfig's user",
    "kubeconfig": "must not be empty, omit --kubeconfig to use the default",
    "group": "must not be empty, omit --group to get rules for your user",
    "service_account": "must not be empty, pass the account of the program",
    "leader_election": "must not be empty, omit it if the program elects no leader",
    "context": "must not be empty, omit --context to use the current one",
    "apiserver token": "must not be empty, omit --token to require none",
    "apiserver kubeconfig": "must not be empty, omit --kubeconfig to write none",
}


def run_typed(command: click.Command) -> int:
    """Run the command of this process, and return its exit status.

    A usage error is one line, without the usage that click prints by default.
    """
    try:
        status = command.main(prog_name="aioinformer", standalone_mode=False)
    except click.ClickException as exc:
        print_error(_line_of(exc))
        return TROUBLE
    except click.Abort:
        return INTERRUPTED

    return int(status or 0)


def end(status: int) -> None:
    """End the command of this process with a status."""
    click.get_current_context().exit(status)


def speed_option(text: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return the option `--speed` of what plays a recording, with its help."""
    return click.option(
        "--speed",
        type=click.FloatRange(0, min_open=True),
        callback=finite,
        default=1.0,
        show_default=True,
        help=text,
    )


def duration(
    context: click.Context, parameter: click.Parameter, value: str | None
) -> float | None:
    """Parse a positive duration in seconds: `90`, `90s`, `1.5m`, `1h30m`."""
    if value is None:
        return None

    seconds = seconds_in(value)
    if seconds == 0 and "--for" in parameter.opts:
        raise click.BadParameter(
            f"{value!r} is no time at all: omit --for to run until Ctrl-C"
        )

    if seconds is None or not seconds > 0 or math.isinf(seconds):
        raise click.BadParameter(f"{value!r} is not a duration such as 30s or 1h30m")

    return seconds


def seconds_in(text: str) -> float | None:
    """Parse a number of seconds, or numbers with units. Return None if it is invalid.

    Example:
        >>> seconds_in("1h30m"), seconds_in("250ms"), seconds_in("10")
        (5400.0, 0.25, 10.0)
    """
    parts = _PART.findall(text)
    if parts and "".join(f"{number}{unit}" for number, unit in parts) == text:
        return float(sum(float(number) * _UNITS[unit] for number, unit in parts))

    try:
        return float(text)
    except ValueError:
        return None


def gates_by_name(
    context: click.Context, parameter: click.Parameter, value: tuple[str, ...]
) -> dict[str, bool]:
    """Parse feature gates as Kubernetes does: `One=true,Another=false`."""
    found: dict[str, bool] = {}
    for pair in ",".join(value).split(","):
        name, equals, text = pair.strip().partition("=")
        if equals and text.lower() in {"true", "false"}:
            found[name] = text.lower() == "true"
        elif pair.strip():
            raise click.BadParameter(f"{pair!r} is not a gate such as Name=true")

    return found


def finite(context: click.Context, parameter: click.Parameter, value: float) -> float:
    """Check that an option is a finite number."""
    if not math.isfinite(value):
        raise click.BadParameter(f"{value} is not a finite number")

    return value


def given(
    context: click.Context, parameter: click.Parameter, value: str | None
) -> str | None:
    """Check that an option is not empty, which usually is an unset shell variable."""
    if value is not None and not value.strip():
        name = parameter.name or ""
        special = _EMPTY.get(f"{context.info_name} {name}")
        raise click.BadParameter(special or _EMPTY.get(name, "must not be empty"))

    return value


def namespace_name(
    context: click.Context,
    parameter: click.Parameter,
    value: tuple[str, ...],
) -> tuple[str, ...]:
    """Check that each value of an option can be a namespace, and return them once."""
    for name in value:
        if not name.strip():
            raise click.BadParameter(_EMPTY["namespace"])

        several = re.split(r"[,\s]+", name.strip(", "))
        if len(several) > 1:
            repeated = " ".join(f"-n {it}" for it in several)
            raise click.BadParameter(
                f"{name!r} is not one namespace: write {repeated}, or use -A for all "
                "namespaces"
            )

    return tuple(dict.fromkeys(value))


def users_by_token(
    context: click.Context, parameter: click.Parameter, value: tuple[str, ...]
) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Parse users such as `bobs-token=bob,devs`: the token, the name and the groups."""
    found = []
    for text in value:
        token, _, names = text.partition("=")
        name, *groups = names.split(",")
        if not token or not name or not all(groups):
            # Without the text, which may be a token.
            raise click.BadParameter(
                "not a user: write TOKEN=NAME[,GROUP...], such as bobs-token=bob,devs"
            )

        found.append((token, (name, *groups)))

    return tuple(found)


def complete_resource(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem | str]:
    """Return the built-in resources with a prefix, for shell completion."""
    from aioinformer.cli.resource_names import known_names

    return [it for it in known_names() if it.startswith(incomplete.lower())]


def _line_of(error: click.ClickException) -> str:
    text = " ".join(error.format_message().split())
    if not isinstance(error, click.UsageError) or error.ctx is None:
        return text

    # A parenthesis at the end is that of an advice, which is a sentence, or of a list.
    ended = text if text.endswith((".", "?", "!", ".)", "?)")) else f"{text}."
    return f"{ended} Try '{error.ctx.command_path} --help'."
