"""What can be typed: commands, options, help. What they do is elsewhere.

It is imported inside of `run()`, where Ctrl-C is dealt with: importing takes a while.
"""

from __future__ import annotations

import math

import click

from aioinformer.cli import running

__all__ = ["aioinformer"]

_EMPTY = {
    "namespace": "an empty namespace; leave -n out for all",
    "server": "an empty URL; leave --server out to use a kubeconfig",
    "token": "an empty token; leave --token out to be the kubeconfig's user",
    "kubeconfig": "an empty path; leave --kubeconfig out to use the default",
    "context": "an empty name; leave --context out for the current one",
    "apiserver token": "an empty token; leave --token out to ask for none",
    "apiserver kubeconfig": "an empty path; leave --kubeconfig out to write none",
}

_EXIT_STATUS = """
\b
Exit status: 0 if all went well, 1 if a check failed or an informer died of a bug, 2 if
something is wrong with the input, the cluster or the way to it, 130 after Ctrl-C.
"""


def _finite(
    context: click.Context, parameter: click.Parameter, value: float | None
) -> float | None:
    if value is not None and not math.isfinite(value):
        raise click.BadParameter(f"{value} is not a finite number")

    return value


def _given(
    context: click.Context, parameter: click.Parameter, value: str | None
) -> str | None:
    """Refuse what is empty: a shell variable that was not set, most often."""
    if value is not None and not value.strip():
        name = parameter.name or ""
        special = _EMPTY.get(f"{context.info_name} {name}")
        raise click.BadParameter(special or _EMPTY[name])

    return value


_for = click.option(
    "--for",
    "seconds",
    type=click.FloatRange(min=0, min_open=True),
    callback=_finite,
    metavar="SECONDS",
    help="End after so many seconds; without it, Ctrl-C ends it.",
)
_verbose = click.option(
    "-v", "--verbose", count=True, help="Show the log on stderr; twice, all of it."
)


@click.group(
    context_settings={"help_option_names": ["-h", "--help"]}, epilog=_EXIT_STATUS
)
@click.version_option(package_name="aioinformer", message="%(prog)s %(version)s")
def aioinformer() -> None:
    """Kubernetes informers for asyncio, at the command line.

    \b
    Example:
      aioinformer demo --for 10           no cluster needed
      aioinformer watch pods -n shop
      aioinformer apiserver --pods 300    something for kubectl to look at
    """


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
    callback=_finite,
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

    async def life() -> int:
        from aioinformer.cli import demo as it

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
@click.argument("resource")
@click.option(
    "-n", "--namespace", callback=_given, help="Only this namespace; without it, all."
)
@click.option(
    "-l", "--selector", default="", help="A label selector: app=web,tier in (a,b)."
)
@click.option("--field-selector", default="", help="Such as status.phase=Running.")
@click.option(
    "--server", metavar="URL", callback=_given, help="Instead of a kubeconfig."
)
@click.option(
    "--token", callback=_given, help="A bearer token, instead of the kubeconfig's user."
)
@click.option(
    "--kubeconfig", metavar="PATH", callback=_given, help="Instead of KUBECONFIG."
)
@click.option(
    "--context", callback=_given, help="Of the kubeconfig, instead of the current one."
)
@_for
@_verbose
def watch(
    resource: str,
    *,
    namespace: str | None,
    selector: str,
    field_selector: str,
    server: str | None,
    token: str | None,
    kubeconfig: str | None,
    context: str | None,
    seconds: float | None,
    verbose: int,
) -> None:
    """Print what is there, then each change, from an informer.

    RESOURCE is the name of a built-in resource (pods, deployments), or for any other
    NAME.VERSION.GROUP, such as widgets.v1.example.com. Each line is a word (ADDED,
    MODIFIED or DELETED), the object's namespace and name, and its version.

    \b
    Example:
      aioinformer watch pods -n shop -l app=web
      aioinformer watch nodes --server http://127.0.0.1:8001 --for 60
    """

    async def life() -> int:
        from aioinformer.cli import target
        from aioinformer.cli import watch as it

        options = it.WatchOptions(
            resource=resource,
            namespace=namespace,
            labels=selector,
            fields=field_selector,
            seconds=seconds,
        )
        place = target.Target(
            server=server, token=token, kubeconfig=kubeconfig, context=context
        )
        return await it.watch(options, place)

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
    callback=_finite,
    default=0.0,
    show_default=True,
    metavar="CHANGES",
    help="Changes of these pods and their config maps in a second.",
)
@click.option(
    "--kubeconfig",
    metavar="PATH",
    callback=_given,
    help="Write a kubeconfig there; never over another cluster's.",
)
@click.option(
    "--token",
    callback=_given,
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

    async def life() -> int:
        from aioinformer.cli import apiserver as it

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


def _end(status: int) -> None:
    click.get_current_context().exit(status)
