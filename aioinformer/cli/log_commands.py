"""Commands, options and help of `aioinformer log`; see `commands`."""

from __future__ import annotations

import click

from aioinformer.cli import running
from aioinformer.cli.output import print_text
from aioinformer.cli.parameters import end, speed_option

__all__ = ["log"]

_file = click.argument("file", metavar="FILE")
_informer = click.option(
    "-i",
    "--informer",
    default="",
    help="Informer of the recording, or its resource; all by default.",
)
_since = click.option(
    "--from",
    "since",
    default="",
    metavar="TIME",
    help="Time to begin at: 90s after the beginning, 14:05:10, or a date with a time, in "
    "UTC.",
)
_until = click.option(
    "--to", "until", default="", metavar="TIME", help="Time to end at."
)
_log_output = click.option(
    "-o",
    "--output",
    type=click.Choice(["json", "yaml", "html"]),
    default=None,
    help="Output format: JSON lines, whole states, or a page.",
)


@click.group(invoke_without_command=True)
@click.pass_context
def log(context: click.Context) -> None:
    """Look at recordings.

    \b
    Example:
      aioinformer log ls incident.alog
      aioinformer log show incident.alog shop/web-0 --from 14:05
      aioinformer log show incident.alog shop/web-0 -o html > web-0.html
      aioinformer log grep incident.alog ImagePullBackOff
      aioinformer log diff incident.alog --from 14:05 --to 14:10
      aioinformer log play incident.alog -i pods --speed 60
    """
    if context.invoked_subcommand is None:
        print_text(context.get_help())


@log.command("ls")
@click.argument("files", metavar="FILE...", nargs=-1, required=True)
def log_ls(files: tuple[str, ...]) -> None:
    """Print what is in a recording.

    Pass all files of one that was rotated, in their order.
    """
    from aioinformer.cli import log as it

    options = it.LogOptions(files=files)
    end(running.run(lambda: it.printed(it.ls(options))))


@log.command("show")
@_file
@click.argument("key", required=False, default="")
@_informer
@_since
@_until
@click.option(
    "--at", default="", metavar="TIME", help="Print the object as it was at a time."
)
@_log_output
def log_show(
    file: str,
    key: str,
    *,
    informer: str,
    since: str,
    until: str,
    at: str,
    output: str | None,
) -> None:
    """Print the changes of all objects, or of one: what has changed, and who wrote it.

    KEY is namespace/name, or the name of a cluster-scoped object.
    """
    from aioinformer.cli import log as it

    if at and not key:
        raise click.UsageError("--at needs the KEY of an object.")

    options = it.LogOptions(
        files=(file,), informer=informer, since=since, until=until, output=output or ""
    )
    end(running.run(lambda: it.printed(it.show(options, key, at))))


@log.command("grep")
@_file
@click.argument("pattern")
@_informer
@_since
@_until
@click.option(
    "-o",
    "--output",
    type=click.Choice(["json", "yaml"]),
    default=None,
    help="Output format: JSON lines, or whole states.",
)
def log_grep(
    file: str,
    pattern: str,
    *,
    informer: str,
    since: str,
    until: str,
    output: str | None,
) -> None:
    """Print the changes of objects whose JSON has a regular expression."""
    from aioinformer.cli import log as it

    options = it.LogOptions(
        files=(file,), informer=informer, since=since, until=until, output=output or ""
    )
    end(running.run(lambda: it.printed(it.grep(options, pattern))))


@log.command("diff")
@_file
@_informer
@_since
@_until
def log_diff(file: str, *, informer: str, since: str, until: str) -> None:
    """Print which objects differ between two times, and in what.

    Without --from, it compares with the objects that the recording begins with.
    """
    from aioinformer.cli import log as it

    options = it.LogOptions(files=(file,), informer=informer, since=since, until=until)
    end(running.run(lambda: it.printed(it.diff(options))))


@log.command("play")
@_file
@_informer
@speed_option("Factor of time.")
def log_play(file: str, *, informer: str, speed: float) -> None:
    """Show an informer of a recording as a live table, while it is played."""
    from aioinformer.cli import log as it

    options = it.LogOptions(files=(file,), informer=informer)
    end(running.run(lambda: it.play(options, speed)))
