"""Commands, options and help of `aioinformer`.

A command imports its implementation before it runs. Until then Ctrl-C ends the process
at once, without a clean-up. Imports within the event loop would block it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

import click
from click.shell_completion import get_completion_class

from aioinformer import __version__
from aioinformer.cli import running
from aioinformer.cli.log_commands import log
from aioinformer.cli.output import print_text
from aioinformer.cli.parameters import (
    complete_resource,
    duration,
    end,
    finite,
    gates_by_name,
    given,
    namespace_name,
    speed_option,
    users_by_token,
)

if TYPE_CHECKING:
    from aioinformer.cli.doctor import Report
    from aioinformer.cli.watch import Output

__all__ = ["aioinformer"]

_EXIT_STATUS = """
\b
Exit status: 0 on success, 1 if a check failed or after a bug of aioinformer, 2 on errors
of the input, the cluster or the connection, 130 after Ctrl-C, 143 after SIGTERM.
"""


_for = click.option(
    "--for",
    "seconds",
    callback=duration,
    metavar="DURATION",
    help="Stop after this time (30, 30s, 5m) instead of running until Ctrl-C.",
)
_verbose = click.option(
    "-v", "--verbose", count=True, help="Log to stderr. Repeat for debug messages."
)
_namespaces = click.option(
    "-n",
    "--namespace",
    "namespaces",
    multiple=True,
    callback=namespace_name,
    help="Namespace to use. Repeatable.",
)
_all_namespaces = click.option(
    "-A", "--all-namespaces", is_flag=True, help="Use all namespaces."
)
_server = click.option(
    "--server",
    metavar="URL",
    callback=given,
    help="URL of the API server, instead of a kubeconfig.",
)
_token = click.option(
    "--token", callback=given, help="Bearer token, instead of the kubeconfig's user."
)
_kubeconfig = click.option(
    "--kubeconfig",
    metavar="PATH",
    callback=given,
    help="Path of the kubeconfig, instead of KUBECONFIG.",
)
_context = click.option(
    "--context",
    callback=given,
    help="Context of the kubeconfig, instead of the current one.",
)


@click.group(
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=_EXIT_STATUS,
)
@click.version_option(__version__, message="%(prog)s %(version)s")
@click.pass_context
def aioinformer(context: click.Context) -> None:
    """Kubernetes informers for asyncio.

    \b
    Example:
      aioinformer demo --for 10           needs no cluster
      aioinformer watch pods -n shop
      aioinformer dashboard pods -n shop  the same, in the browser
      aioinformer doctor pods -n shop     find missing permissions
      aioinformer apiserver --pods 300    test server for kubectl
      aioinformer cache stats DIR         a cache on disk
      aioinformer shards status           who owns what
      aioinformer record pods -o it.alog  record changes, for aioinformer log
    """
    _print_help_alone(context)


def _print_help_alone(context: click.Context) -> None:
    """Print the help of a group of commands that is called without one."""
    if context.invoked_subcommand is None:
        print_text(context.get_help())


@aioinformer.command()
@_for
@click.option(
    "--objects",
    type=click.IntRange(10, 20_000),
    default=300,
    show_default=True,
    help="Initial objects on the server.",
)
@click.option(
    "--churn",
    type=click.FloatRange(0, 5_000),
    callback=finite,
    default=50.0,
    show_default=True,
    metavar="CHANGES",
    help="Changes per second.",
)
@click.option("--plain", is_flag=True, help="Print lines even on a terminal.")
@click.option("--dashboard", is_flag=True, help="Serve the dashboard, too.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=8002,
    show_default=True,
    help="--dashboard: port of 127.0.0.1; 0 for any free port.",
)
@_verbose
def demo(
    seconds: float | None,
    *,
    objects: int,
    churn: float,
    plain: bool,
    dashboard: bool,
    port: int,
    verbose: int,
) -> None:
    """Run informers and a controller against a built-in API server.

    It starts an API server in this process, creates pods and config maps, and keeps
    changing them. Two informers watch them over HTTP, and a controller writes the
    number of running pods to each config map. With --for, it finally compares the
    caches with the server, and exits with 1 if they differ.

    \b
    Example:
      aioinformer demo
      aioinformer demo --dashboard
      aioinformer demo --for 10 --objects 5000 --churn 500 --plain
    """

    from aioinformer.cli import demo as it

    async def main() -> int:
        options = it.DemoOptions(
            seconds=seconds,
            objects=objects,
            changes_per_second=churn,
            # Log lines would destroy a live table.
            plain=plain or verbose > 0,
            port=port if dashboard else None,
        )
        return await it.demo(options)

    end(running.run(main, verbose=verbose))


@aioinformer.command()
@click.argument("resource", shell_complete=complete_resource)
@click.argument("names", nargs=-1)
@_namespaces
@_all_namespaces
@click.option(
    "-l",
    "--selector",
    default="",
    help="Label selector, such as app=web,tier in (a,b).",
)
@click.option(
    "--field-selector", default="", help="Field selector, such as status.phase=Running."
)
@click.option(
    "-o",
    "--output",
    type=click.Choice(["wide", "json", "yaml", "name"]),
    help="Output format: more columns, events as JSON lines, states as YAML documents, "
    "or names only.",
)
@click.option("--plain", is_flag=True, help="Print lines even on a terminal.")
@_server
@_token
@_kubeconfig
@_context
@_for
@_verbose
def watch(
    resource: str,
    names: tuple[str, ...],
    *,
    namespaces: tuple[str, ...],
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
    """Show the objects of a resource and their changes.

    RESOURCE is any resource of the cluster, named as for kubectl: pods, po, Deployment,
    widgets.example.com, widgets.v1.example.com. NAMES select objects: pods web-0 web-1,
    or pods/web-0 pods/web-1. Without -n and -A, it uses the namespace of the
    kubeconfig's context, or "default". With --server, it uses all namespaces.

    On a terminal it shows a live table with the columns of kubectl. Changes are marked
    by a sign (+ added, ~ modified, - deleted) and, unless NO_COLOR is set, a color. In
    a pipe or file it prints lines: the event (ADDED, MODIFIED, DELETED) and the
    columns.

    \b
    Keys of the live table:
      ?                                   show all keys
      up, down, PgUp, PgDn, Home, End     scroll (also k, j, Space, g, G)
      left, right                         scroll the columns
      s, S, 1 to 9                        sort by another visible column
      r                                   reverse the order
      / and words, Enter                  show only rows with all the words
      Esc                                 show all rows
      q                                   quit

    -o yaml, -o json and -o name print everything, on a terminal, too. To page, pipe
    them to less.

    \b
    Example:
      aioinformer watch pods -n shop -l app=web
      aioinformer watch pods/db-0 -n shop -o yaml
      aioinformer watch deploy -A -o wide
      aioinformer watch events -A -o json | jq .object.message
      aioinformer watch nodes --server http://127.0.0.1:8001 --for 60s
    """

    from aioinformer.cli import connection
    from aioinformer.cli import watch as it
    from aioinformer.cli.resource_names import selected

    import_module("aioinformer.client.transport")  # would block the loop on entering

    async def main() -> int:
        kind, chosen = selected(resource, names)
        options = it.WatchCommandOptions(
            resource=kind,
            names=chosen,
            namespaces=namespaces,
            all_namespaces=all_namespaces,
            labels=selector,
            fields=field_selector,
            output=output or "table",
            # Log lines would destroy a live table.
            plain=plain or verbose > 0,
            seconds=seconds,
        )
        target = connection.ConnectionOptions(
            server=server, token=token, kubeconfig=kubeconfig, context=context
        )
        return await it.watch(options, target)

    end(running.run(main, verbose=verbose))


@aioinformer.command()
@click.argument("resources", nargs=-1, shell_complete=complete_resource)
@_namespaces
@_all_namespaces
@click.option(
    "-o",
    "--output",
    type=click.Choice(["json", "rules"]),
    help="Output format: findings as JSON, or only the missing RBAC rules as YAML.",
)
@click.option(
    "--group",
    callback=given,
    help="Bind the rules to this group instead of your user. You must be a member.",
)
@click.option(
    "--timeout",
    "seconds",
    callback=duration,
    default="10s",
    show_default=True,
    metavar="DURATION",
    help="Timeout of each step.",
)
@click.option(
    "--rbac",
    is_flag=True,
    help="Check nothing; print the RBAC rules of a program, described by the options "
    "below. RESOURCES are those of its informers.",
)
@click.option(
    "--service-account",
    callback=given,
    metavar="[NAMESPACE/]NAME",
    help="--rbac: service account of the program.",
)
@click.option(
    "--leader-election",
    callback=given,
    metavar="LEASE",
    help="--rbac: it uses LeaderElector with this Lease.",
)
@click.option(
    "--shards",
    is_flag=True,
    help="Check the permissions of Shards, too. --rbac: it uses Shards.",
)
@click.option("--events", is_flag=True, help="--rbac: it uses EventRecorder.")
@click.option(
    "--finalizers",
    multiple=True,
    metavar="RESOURCE",
    help="--rbac: it uses @finalizer for this resource. Repeatable.",
)
@click.option(
    "--status",
    "statuses",
    multiple=True,
    metavar="RESOURCE",
    help="--rbac: it patches the status of this resource. Repeatable.",
)
@click.option(
    "--allow",
    "allowed",
    multiple=True,
    metavar="RESOURCE=VERBS",
    help="--rbac: its other requests, such as deployments.apps=create,patch. Repeatable.",
)
@_server
@_token
@_kubeconfig
@_context
@_verbose
def doctor(
    resources: tuple[str, ...],
    *,
    namespaces: tuple[str, ...],
    all_namespaces: bool,
    output: Report | None,
    group: str | None,
    seconds: float,
    rbac: bool,
    service_account: str | None,
    leader_election: str | None,
    shards: bool,
    events: bool,
    finalizers: tuple[str, ...],
    statuses: tuple[str, ...],
    allowed: tuple[str, ...],
    server: str | None,
    token: str | None,
    kubeconfig: str | None,
    context: str | None,
    verbose: int,
) -> None:
    """Check that informers work with a cluster.

    It checks configuration, connection, TLS, version, identity and discovery. For each
    of RESOURCES (default: pods, named as for watch) it checks permissions, a list, a
    watch with bookmarks, and a streaming list. It changes nothing. Finally it prints
    missing RBAC rules, ready for an administrator to apply. Tokens and keys are never
    shown. The exit status is 0 if informers will work, and 1 if a check failed.

    With --rbac, it prints the service account, roles and bindings for everything that
    a program does.

    \b
    Example:
      aioinformer doctor
      aioinformer doctor pods deploy -n shop
      aioinformer doctor pods -n shop -n media
      aioinformer doctor nodes -o rules | kubectl apply -f - --context admin
      aioinformer doctor pods --rbac --service-account shop/app --events -n shop
    """

    from aioinformer.cli import connection
    from aioinformer.cli import doctor as it
    from aioinformer.cli import rbac as rules

    import_module("aioinformer.client.transport")  # would block the loop on entering
    target = connection.ConnectionOptions(
        server=server, token=token, kubeconfig=kubeconfig, context=context
    )
    program = rules.ProgramOptions(
        account=service_account or "",
        namespaces=namespaces,
        all_namespaces=all_namespaces,
        informers=resources,
        finalizers=finalizers,
        statuses=statuses,
        allowed=allowed,
        lease=leader_election,
        shards=shards,
        events=events,
        seconds=seconds,
    )
    if rbac and (output or group):
        raise click.UsageError("--rbac cannot be combined with -o or --group.")

    if not rbac and program.only_for_rbac:
        raise click.UsageError(f"{program.only_for_rbac} requires --rbac.")

    async def main() -> int:
        if rbac:
            return await rules.print_rbac(program, target)

        options = it.DoctorOptions(
            resources=resources or it.DoctorOptions().resources,
            namespaces=namespaces,
            all_namespaces=all_namespaces,
            group=group or "",
            shards=shards,
            report=output or "lines",
            seconds=seconds,
        )
        return await it.doctor(options, target)

    end(running.run(main, verbose=verbose))


@aioinformer.command()
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=8001,
    show_default=True,
    help="Port of 127.0.0.1 to listen on; 0 for any free port.",
)
@click.option(
    "--pods",
    type=click.IntRange(0, 100_000),
    default=0,
    show_default=True,
    help="Initial pods, in four namespaces, with a node for every ten. 100,000 take 15 s "
    "and 700 MB.",
)
@click.option(
    "--churn",
    type=click.FloatRange(0, 5_000),
    callback=finite,
    default=0.0,
    show_default=True,
    metavar="CHANGES",
    help="Changes of pods and config maps per second.",
)
@click.option(
    "--kubeconfig",
    metavar="PATH",
    callback=given,
    help="Write a kubeconfig to this path, unless it belongs to another cluster.",
)
@click.option(
    "--token",
    callback=given,
    help="Bearer token of the administrator, which clients must send. kubectl sends none "
    "over plain HTTP.",
)
@click.option(
    "--user",
    "users",
    multiple=True,
    callback=users_by_token,
    metavar="TOKEN=NAME[,GROUP...]",
    help="Another user, with the permissions that roles grant: none at first. Requires "
    "--token. Repeatable.",
)
@click.option(
    "--load",
    "--crd",
    "manifests",
    multiple=True,
    metavar="PATH",
    help="YAML file, folder or pattern of CRDs and objects to create. Repeatable.",
)
@click.option(
    "--garbage-collector",
    "garbage_collector",
    is_flag=True,
    help="Delete objects whose owners are gone, as a cluster does.",
)
@click.option(
    "--replay",
    "recording",
    multiple=True,
    metavar="FILE",
    help="Play a recording: its objects and changes. Repeat for the files of one that "
    "was rotated.",
)
@speed_option("Factor of time for --replay.")
@click.option(
    "--until-idle",
    "until_idle",
    is_flag=True,
    help="Play without waiting, from the first watch on, and end after the last change.",
)
@click.option(
    "--feature-gates",
    multiple=True,
    callback=gates_by_name,
    metavar="NAME=true[,...]",
    help="Feature gates to switch, as of a kube-apiserver. Repeatable.",
)
@_for
@click.option(
    "-v",
    "--verbose",
    count=True,
    help="Log each request to stderr. Repeat for debug messages.",
)
def apiserver(
    *,
    port: int,
    pods: int,
    churn: float,
    kubeconfig: str | None,
    token: str | None,
    users: tuple[tuple[str, tuple[str, ...]], ...],
    manifests: tuple[str, ...],
    garbage_collector: bool,
    feature_gates: dict[str, bool],
    recording: tuple[str, ...],
    speed: float,
    until_idle: bool,
    seconds: float | None,
    verbose: int,
) -> None:
    """Run a Kubernetes API server for tests.

    It serves plain HTTP on the loopback interface to kubectl and other clients, and
    keeps objects in memory. It runs no controllers: a deployment gets no pods.

    \b
    Example:
      aioinformer apiserver --pods 300 --churn 20
      aioinformer apiserver --port 0 --kubeconfig /tmp/kubeconfig
      aioinformer apiserver --load 'crds/*.yaml' --load objects.yaml -v
      aioinformer apiserver --token admin --user bobs-token=bob,devs
      aioinformer apiserver --replay incident.alog --speed 60
    """

    if until_idle and not recording:
        raise click.UsageError("--until-idle needs --replay.")

    from aioinformer.cli import apiserver as it
    from aioinformer.testing import User

    async def main() -> int:
        named = [(key, User(it[0], it[1:])) for key, it in users]
        options = it.APIServerOptions(
            port=port,
            pods=pods,
            changes_per_second=churn,
            token=token,
            users=tuple(named),
            manifests=manifests,
            garbage_collector=garbage_collector,
            feature_gates=feature_gates,
            kubeconfig=kubeconfig,
            replay=recording,
            speed=speed,
            until_idle=until_idle,
            seconds=seconds,
        )
        return await it.serve(options)

    loggers = ("aioinformer", "aioinformer_apiserver")
    end(running.run(main, verbose=verbose, loggers=loggers))


@aioinformer.command()
@click.argument("hooks", metavar="MODULE:NAME")
@click.option("--service", callback=given, help="Service of the webhook server.")
@click.option("-n", "--namespace", callback=given, help="Namespace of the service.")
@click.option(
    "--url",
    callback=given,
    help="URL of the server, instead of a service: for a test server.",
)
@click.option(
    "--port",
    type=click.IntRange(1, 65535),
    help="Port of the service, 443 by default.",
)
@click.option(
    "--ca-file",
    metavar="PATH",
    callback=given,
    help="PEM file of the CA that signed the server's certificate.",
)
@click.option(
    "--cert-manager",
    is_flag=True,
    help="Let cert-manager create the certificate in the Secret SERVICE-tls, and add "
    "the CA.",
)
@_verbose
def webhooks(
    hooks: str,
    *,
    service: str | None,
    namespace: str | None,
    url: str | None,
    port: int | None,
    ca_file: str | None,
    cert_manager: bool,
    verbose: int,
) -> None:
    """Print the manifests of a program's webhooks.

    NAME is a WebhookServer of the module, or a list of functions that are decorated by
    validating, mutating or conversion. The module is imported from the current folder
    or an installed package. The manifests are a ValidatingWebhookConfiguration, a
    MutatingWebhookConfiguration, and spec.conversion of CRDs, which must exist. They
    are named as the service, or with --url as the module. Without --ca-file and
    --cert-manager, something else must add the caBundle. Never pass them to kubectl
    delete, which would delete the CRDs, too.

    \b
    Example:
      aioinformer webhooks site_webhooks:HOOKS --service sites -n prod --cert-manager \\
        | kubectl apply --server-side --field-manager=webhooks -f -
    """

    from aioinformer.cli import webhooks as it

    options = it.WebhooksOptions(
        hooks=hooks,
        service=service or "",
        namespace=namespace or "",
        url=url or "",
        port=port,
        ca_file=ca_file,
        cert_manager=cert_manager,
    )
    end(running.run(lambda: it.print_manifests(options), verbose=verbose))


@aioinformer.group(invoke_without_command=True)
@click.pass_context
def cache(context: click.Context) -> None:
    """Look at the caches on disk of running programs.

    DIR is the directory that a program passes as cache_dir, with a directory for each
    informer, or one of those. The commands change nothing, and programs do not notice
    them. Run them as the user of the program, on its machine, in its container.

    \b
    Example:
      aioinformer cache ls /var/cache/app
      aioinformer cache ls /var/cache/app/pods-4f2a6c0d9b1e
      aioinformer cache show shop/web-0 /var/cache/app
      aioinformer cache stats /var/cache/app
      aioinformer cache verify /var/cache/app
    """
    _print_help_alone(context)


@cache.command("ls")
@click.argument("directory", metavar="DIR")
def cache_ls(directory: str) -> None:
    """List the informers of a cache, or the keys of one informer."""
    from aioinformer.cli import cache as it

    end(running.run(lambda: it.ls(directory)))


@cache.command("show")
@click.argument("key")
@click.argument("directory", metavar="DIR")
@click.option("--secrets", is_flag=True, help="Print the data of Secrets, too.")
def cache_show(key: str, directory: str, *, secrets: bool) -> None:
    """Print a stored object as YAML.

    KEY is namespace/name, or the name of a cluster-scoped object. The data of a Secret is
    hidden.
    """
    from aioinformer.cli import cache as it

    end(running.run(lambda: it.show(key, directory, secrets=secrets)))


@cache.command("stats")
@click.argument("directory", metavar="DIR")
def cache_stats(directory: str) -> None:
    """Print the writer, the readers and their lag, and sizes."""
    from aioinformer.cli import cache as it

    end(running.run(lambda: it.stats(directory)))


@cache.command("verify")
@click.argument("directory", metavar="DIR")
@click.option("--here", is_flag=True, hidden=True)
def cache_verify(directory: str, *, here: bool) -> None:
    """Read everything that is stored, and check that it agrees.

    It checks the header, each object, indexes, label columns and the journal, for each
    informer in a process of its own. Exits with 1 if something is wrong.
    """
    from aioinformer.cli import cache as it

    end(running.run(lambda: (it.verify_here if here else it.verify)(directory)))


@aioinformer.group(invoke_without_command=True)
@click.pass_context
def shards(context: click.Context) -> None:
    """Look at groups of replicas that share the work on objects.

    \b
    Example:
      aioinformer shards status
      aioinformer shards status sites -n ops -o json
    """
    _print_help_alone(context)


@shards.command("status")
@click.argument("group", required=False, default="")
@click.option(
    "-n",
    "--namespace",
    default="",
    help="Namespace of the Leases, instead of that of the kubeconfig's context.",
)
@click.option(
    "-o", "--output", type=click.Choice(["json"]), help="Output format: a document."
)
@_server
@_token
@_kubeconfig
@_context
@_verbose
def shards_status(
    group: str,
    *,
    namespace: str,
    output: str | None,
    server: str | None,
    token: str | None,
    kubeconfig: str | None,
    context: str | None,
    verbose: int,
) -> None:
    """Print which replica owns which range.

    GROUP is the name that a program passes to Shards; without it, all groups of the
    namespace are shown. The command reads the Leases until it has seen a renewal of each
    owner, which takes 3 s by default, and 20 s if one is dead. It needs the permission to
    list leases. Exits with 1 if a range has no owner.
    """
    from aioinformer.cli import connection
    from aioinformer.cli import shards as it

    import_module("aioinformer.client.transport")  # would block the loop on entering
    target = connection.ConnectionOptions(
        server=server, token=token, kubeconfig=kubeconfig, context=context
    )
    options = it.ShardsOptions(
        group=group, namespace=namespace, as_json=output == "json"
    )
    end(running.run(lambda: it.status(options, target), verbose=verbose))


@aioinformer.command()
@click.argument(
    "resources",
    metavar="RESOURCE...",
    nargs=-1,
    required=True,
    shell_complete=complete_resource,
)
@click.option(
    "-o", "--output", "file", required=True, callback=given, help="File to write."
)
@_namespaces
@_all_namespaces
@click.option("-l", "--selector", default="", help="Label selector for all resources.")
@click.option(
    "--redact",
    multiple=True,
    metavar="PATH",
    help="Field whose values are replaced by hashes, such as "
    "spec.containers.*.env.*.value. Repeatable.",
)
@click.option("--secrets", is_flag=True, help="Record the data of Secrets, too.")
@click.option("--hash-names", is_flag=True, help="Replace names by hashes.")
@click.option(
    "--rotate-bytes",
    type=click.IntRange(1),
    help="Begin a new file at this size, and rename the full one.",
)
@click.option(
    "--rotate-every",
    callback=duration,
    metavar="DURATION",
    help="Begin a new file after this time.",
)
@click.option("--keep", type=click.IntRange(1), help="Number of full files to keep.")
@_server
@_token
@_kubeconfig
@_context
@_for
@_verbose
def record(
    resources: tuple[str, ...],
    *,
    file: str,
    namespaces: tuple[str, ...],
    all_namespaces: bool,
    selector: str,
    redact: tuple[str, ...],
    secrets: bool,
    hash_names: bool,
    rotate_bytes: int | None,
    rotate_every: float | None,
    keep: int | None,
    server: str | None,
    token: str | None,
    kubeconfig: str | None,
    context: str | None,
    seconds: float | None,
    verbose: int,
) -> None:
    """Record the objects of resources, and their changes, into a file.

    The file has the objects, every change with its time, and the failures of watches.
    The data of Secrets are replaced by hashes. An existing recording is continued.
    `aioinformer log` shows what is in it.

    \b
    Example:
      aioinformer record pods deployments.apps -n shop -o incident.alog --for 1h
      aioinformer record pods -A -o pods.alog --rotate-every 1h --keep 24
    """
    from aioinformer.cli import connection
    from aioinformer.cli import record as it

    import_module("aioinformer.client.transport")  # would block the loop on entering
    target = connection.ConnectionOptions(
        server=server, token=token, kubeconfig=kubeconfig, context=context
    )
    options = it.RecordOptions(
        resources=resources,
        file=file,
        namespaces=namespaces,
        all_namespaces=all_namespaces,
        labels=selector,
        redact=redact,
        secrets=secrets,
        hash_names=hash_names,
        rotate_bytes=rotate_bytes,
        rotate_every=rotate_every,
        keep=keep,
        seconds=seconds,
    )
    end(running.run(lambda: it.record(options, target), verbose=verbose))


aioinformer.add_command(log)


@aioinformer.command()
@click.argument("resources", nargs=-1, shell_complete=complete_resource)
@_namespaces
@_all_namespaces
@click.option("-l", "--selector", default="", help="Label selector for all resources.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=8002,
    show_default=True,
    help="Port of 127.0.0.1 to listen on; 0 for any free port.",
)
@click.option(
    "--open", "browser", is_flag=True, help="Open the page in the default browser."
)
@_server
@_token
@_kubeconfig
@_context
@_for
@_verbose
def dashboard(
    resources: tuple[str, ...],
    *,
    namespaces: tuple[str, ...],
    all_namespaces: bool,
    selector: str,
    port: int,
    browser: bool,
    server: str | None,
    token: str | None,
    kubeconfig: str | None,
    context: str | None,
    seconds: float | None,
    verbose: int,
) -> None:
    """Show resources of a cluster and their changes on a page in the browser.

    RESOURCES are named as for watch; default: pods, deployments, replicasets, services
    and events. The page shows the state of each informer, live tables of the objects,
    and for each object the states that it has had since the start. It changes nothing,
    and does not show the data of Secrets. Only this machine can reach it.

    \b
    Example:
      aioinformer dashboard -n shop --open
      aioinformer dashboard pods nodes widgets.example.com -A
      aioinformer demo --dashboard        needs no cluster
    """
    from aioinformer.cli import connection
    from aioinformer.cli import dashboard as it

    import_module("aioinformer.client.transport")  # would block the loop on entering

    async def main() -> int:
        options = it.DashboardOptions(
            resources=resources,
            namespaces=namespaces,
            all_namespaces=all_namespaces,
            labels=selector,
            port=port,
            browser=browser,
            seconds=seconds,
        )
        target = connection.ConnectionOptions(
            server=server, token=token, kubeconfig=kubeconfig, context=context
        )
        return await it.dashboard(options, target)

    end(running.run(main, verbose=verbose))


@aioinformer.command()
@click.argument("shell", type=click.Choice(["bash", "fish", "zsh"]))
def completion(shell: str) -> None:
    """Print a shell completion script.

    It completes commands, options and resources.

    \b
    Example:
      source <(aioinformer completion bash)    in ~/.bashrc
      source <(aioinformer completion zsh)     in ~/.zshrc
      aioinformer completion fish > ~/.config/fish/completions/aioinformer.fish
    """
    kind = get_completion_class(shell)
    assert kind is not None
    script = kind(aioinformer, {}, "aioinformer", "_AIOINFORMER_COMPLETE")
    print_text(script.source_template % script.source_vars())
