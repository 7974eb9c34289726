"""What can be typed: commands, options, help. What they do is elsewhere.

A command imports what it needs before it runs: until then Ctrl-C ends the process at
once, and nothing has to be cleaned up. Importing in the event loop would hold it up.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

import click
from click.shell_completion import get_completion_class

from aioinformer.cli import running
from aioinformer.cli.output import say
from aioinformer.cli.parameters import (
    complete_resource,
    duration,
    finite,
    given,
)

if TYPE_CHECKING:
    from aioinformer.cli.doctor import Report
    from aioinformer.cli.watch import Output

__all__ = ["aioinformer"]

_EXIT_STATUS = """
\b
Exit status: 0 if all went well, 1 if a check failed or an informer died of a bug, 2 if
something is wrong with the input, the cluster or the way to it, 130 after Ctrl-C.
"""


_for = click.option(
    "--for",
    "seconds",
    callback=duration,
    metavar="DURATION",
    help="End after it (30, 30s, 5m); without it, Ctrl-C ends it.",
)
_verbose = click.option(
    "-v", "--verbose", count=True, help="Show the log on stderr; twice, all of it."
)
_namespace = click.option(
    "-n", "--namespace", callback=given, help="Of this namespace."
)
_all_namespaces = click.option(
    "-A", "--all-namespaces", is_flag=True, help="Of all namespaces."
)
_server = click.option(
    "--server", metavar="URL", callback=given, help="Instead of a kubeconfig."
)
_token = click.option(
    "--token", callback=given, help="A bearer token, instead of the kubeconfig's user."
)
_kubeconfig = click.option(
    "--kubeconfig", metavar="PATH", callback=given, help="Instead of KUBECONFIG."
)
_context = click.option(
    "--context", callback=given, help="Of the kubeconfig, instead of the current one."
)


@click.group(
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=_EXIT_STATUS,
)
@click.version_option(package_name="aioinformer", message="%(prog)s %(version)s")
@click.pass_context
def aioinformer(context: click.Context) -> None:
    """Kubernetes informers for asyncio, at the command line.

    \b
    Example:
      aioinformer demo --for 10           no cluster needed
      aioinformer watch pods -n shop
      aioinformer doctor pods -n shop     what informers lack there
      aioinformer apiserver --pods 300    something for kubectl to look at
    """
    if context.invoked_subcommand is None:
        say(context.get_help())


@aioinformer.command()
@_for
@click.option(
    "--objects",
    type=click.IntRange(10, 20_000),
    default=300,
    show_default=True,
    help="Objects on the server to begin with.",
)
@click.option(
    "--churn",
    type=click.FloatRange(0, 5_000),
    callback=finite,
    default=50.0,
    show_default=True,
    metavar="CHANGES",
    help="Changes in a second.",
)
@click.option("--plain", is_flag=True, help="Plain lines, also on a terminal.")
@_verbose
def demo(
    seconds: float | None, *, objects: int, churn: float, plain: bool, verbose: int
) -> None:
    """Show informers at work on an API server of their own.

    It starts an API server in this process, fills it with pods and config maps, and
    keeps changing them. Two informers follow over HTTP, and two workers keep a count
    of the running pods in each config map. With --for it ends by comparing the caches
    with the server: status 1 if they differ.

    \b
    Example:
      aioinformer demo
      aioinformer demo --for 10 --objects 5000 --churn 500 --plain
    """

    from aioinformer.cli import demo as it

    async def life() -> int:
        options = it.DemoOptions(
            seconds=seconds,
            objects=objects,
            changes_per_second=churn,
            # A log in the middle of a live table makes both unreadable.
            plain=plain or verbose > 0,
        )
        return await it.demo(options)

    _end(running.run(life, verbose=verbose))


@aioinformer.command()
@click.argument("resource", shell_complete=complete_resource)
@_namespace
@_all_namespaces
@click.option(
    "-l", "--selector", default="", help="A label selector: app=web,tier in (a,b)."
)
@click.option("--field-selector", default="", help="Such as status.phase=Running.")
@click.option(
    "-o",
    "--output",
    type=click.Choice(["wide", "json", "name"]),
    help="More columns; the events as JSON, one a line; names alone.",
)
@click.option("--plain", is_flag=True, help="Lines, also on a terminal.")
@_server
@_token
@_kubeconfig
@_context
@_for
@_verbose
def watch(
    resource: str,
    *,
    namespace: str | None,
    all_namespaces: bool,
    selector: str,
    field_selector: str,
    output: Output | None,
    plain: bool,
    server: str | None,
    token: str | None,
    kubeconfig: str | None,
    context: str | None,
    seconds: float | None,
    verbose: int,
) -> None:
    """Show what is there, and each change, from an informer.

    RESOURCE is any name of a resource that the cluster has, as kubectl takes it: pods,
    po, Deployment, widgets.example.com, widgets.v1.example.com. With neither -n nor -A
    it is the namespace of the kubeconfig's context, or "default"; with --server, all of
    them.

    On a terminal it is a live table, with the columns of kubectl; changes are marked by
    a sign (+ added, ~ modified, - deleted) and a colour, unless NO_COLOR is set. Into
    a pipe or file it prints lines: what happened (ADDED, MODIFIED, DELETED), then the
    same columns.

    \b
    Example:
      aioinformer watch pods -n shop -l app=web
      aioinformer watch deploy -A -o wide
      aioinformer watch events -A -o json | jq .object.message
      aioinformer watch nodes --server http://127.0.0.1:8001 --for 60s
    """

    from aioinformer.cli import connection
    from aioinformer.cli import watch as it

    import_module("aioinformer.client.transport")  # else a client does, when entered

    async def life() -> int:
        options = it.WatchCommandOptions(
            resource=resource,
            namespace=namespace,
            all_namespaces=all_namespaces,
            labels=selector,
            fields=field_selector,
            output=output or "table",
            # A log in the middle of a live table makes both unreadable.
            plain=plain or verbose > 0,
            seconds=seconds,
        )
        place = connection.ConnectionOptions(
            server=server, token=token, kubeconfig=kubeconfig, context=context
        )
        return await it.watch(options, place)

    _end(running.run(life, verbose=verbose))


@aioinformer.command()
@click.argument("resources", nargs=-1, shell_complete=complete_resource)
@_namespace
@_all_namespaces
@click.option(
    "-o",
    "--output",
    type=click.Choice(["json", "rules"]),
    help="The findings as JSON; the missing RBAC rules alone, as YAML.",
)
@click.option(
    "--group",
    callback=given,
    help="Bind the rules to this group of yours, instead of to you alone.",
)
@click.option(
    "--timeout",
    "seconds",
    callback=duration,
    default="10s",
    show_default=True,
    metavar="DURATION",
    help="How long each step may take.",
)
@_server
@_token
@_kubeconfig
@_context
@_verbose
def doctor(
    resources: tuple[str, ...],
    *,
    namespace: str | None,
    all_namespaces: bool,
    output: Report | None,
    group: str | None,
    seconds: float,
    server: str | None,
    token: str | None,
    kubeconfig: str | None,
    context: str | None,
    verbose: int,
) -> None:
    """Check whether a cluster gives informers what they need.

    Step by step: configuration, connection, TLS, version, who you are, discovery; then
    of each of RESOURCES (pods unless told; named as for watch) the permissions, a list,
    a watch with bookmarks, a list as a stream. Nothing is changed. Last come the RBAC
    rules that are missing, ready for an administrator to apply. Tokens and keys are
    never shown. Status 0 if informers will work, 1 if something failed.

    \b
    Example:
      aioinformer doctor
      aioinformer doctor pods deploy -n shop
      aioinformer doctor nodes -o rules | kubectl apply -f - --context admin
    """

    from aioinformer.cli import connection
    from aioinformer.cli import doctor as it

    import_module("aioinformer.client.transport")  # else a client does, when entered

    async def life() -> int:
        options = it.DoctorOptions(
            resources=resources or it.DoctorOptions().resources,
            namespace=namespace,
            all_namespaces=all_namespaces,
            group=group or "",
            report=output or "lines",
            seconds=seconds,
        )
        place = connection.ConnectionOptions(
            server=server, token=token, kubeconfig=kubeconfig, context=context
        )
        return await it.doctor(options, place)

    _end(running.run(life, verbose=verbose))


@aioinformer.command()
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=8001,
    show_default=True,
    help="Where on 127.0.0.1 to listen; 0 for any free port.",
)
@click.option(
    "--pods",
    type=click.IntRange(0, 20_000),
    default=0,
    show_default=True,
    help="Pods to begin with, of apps in four namespaces; a node for every ten.",
)
@click.option(
    "--churn",
    type=click.FloatRange(0, 5_000),
    callback=finite,
    default=0.0,
    show_default=True,
    metavar="CHANGES",
    help="Changes of these pods and their config maps in a second.",
)
@click.option(
    "--kubeconfig",
    metavar="PATH",
    callback=given,
    help="Write a kubeconfig there; never over another cluster's.",
)
@click.option(
    "--token",
    callback=given,
    help="What requests must bear. kubectl sends no token over plain HTTP.",
)
@click.option(
    "--crd",
    "manifests",
    multiple=True,
    metavar="FILE",
    help="YAML of definitions, and objects, to begin with; may be repeated.",
)
@_for
@_verbose
def apiserver(
    *,
    port: int,
    pods: int,
    churn: float,
    kubeconfig: str | None,
    token: str | None,
    manifests: tuple[str, ...],
    seconds: float | None,
    verbose: int,
) -> None:
    """Run a Kubernetes API server for tests, for kubectl and other clients.

    It speaks plain HTTP on the loopback interface, and keeps its objects in memory until
    it ends. There are no controllers: a deployment gets no pods.

    \b
    Example:
      aioinformer apiserver --pods 300 --churn 20
      aioinformer apiserver --port 0 --kubeconfig /tmp/kubeconfig
    """

    from aioinformer.cli import apiserver as it

    async def life() -> int:
        options = it.APIServerOptions(
            port=port,
            pods=pods,
            changes_per_second=churn,
            token=token,
            manifests=manifests,
            kubeconfig=kubeconfig,
            seconds=seconds,
        )
        return await it.serve(options)

    _end(running.run(life, verbose=verbose))


@aioinformer.command()
@click.argument("shell", type=click.Choice(["bash", "fish", "zsh"]))
def completion(shell: str) -> None:
    """Print a script that completes commands, options and resources in a shell.

    \b
    Example:
      source <(aioinformer completion bash)    in ~/.bashrc
      source <(aioinformer completion zsh)     in ~/.zshrc
      aioinformer completion fish > ~/.config/fish/completions/aioinformer.fish
    """
    kind = get_completion_class(shell)
    assert kind is not None
    script = kind(aioinformer, {}, "aioinformer", "_AIOINFORMER_COMPLETE")
    say(script.source_template % script.source_vars())


def _end(status: int) -> None:
    click.get_current_context().exit(status)
