"""`aioinformer doctor --rbac`: all permissions of a program, as RBAC rules."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

from aioinformer.cli.checks.rbac_rules import (
    ALL_VERBS,
    SHARDS_VERBS,
    VERBS,
    Grant,
    Subject,
    as_yaml,
    manifests_of_program,
)
from aioinformer.cli.error_messages import CommandError
from aioinformer.cli.output import write
from aioinformer.cli.resource_names import find_resource
from aioinformer.controller.event_recorder import EVENTS
from aioinformer.model.resources import LEASES
from aioinformer.model.validation import is_subdomain

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aioinformer.cli.connection import ConnectionOptions
    from aioinformer.client import Client

__all__ = ["ProgramOptions", "print_rbac"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramOptions:
    """Everything that a program does with the API."""

    account: str = ""
    """Service account, `NAME` or `NAMESPACE/NAME`."""

    namespaces: tuple[str, ...] = ()
    """Namespaces of the objects. Empty for the default of the connection."""

    all_namespaces: bool = False
    """True for all namespaces, without `namespaces`."""

    informers: tuple[str, ...] = ()
    """Resources with an informer, as for `find_resource()`."""

    finalizers: tuple[str, ...] = ()
    """Resources with the decorator `finalizer`."""

    statuses: tuple[str, ...] = ()
    """Resources whose status is patched."""

    allowed: tuple[str, ...] = ()
    """Further permissions, such as `deployments.apps=create,patch`."""

    lease: str | None = None
    """Lease of the leader election, or None."""

    shards: bool = False
    """True if it uses `Shards`."""

    events: bool = False
    """True if it records events."""

    seconds: float = 10.0
    """Timeout for the names of resources."""

    @property
    def only_for_rbac(self) -> str:
        """First given option that has no meaning without `--rbac`, or empty."""
        given = {
            "--service-account": self.account,
            "--leader-election": self.lease,
            "--events": self.events,
            "--finalizers": self.finalizers,
            "--status": self.statuses,
            "--allow": self.allowed,
        }
        return next((option for option, value in given.items() if value), "")


async def print_rbac(options: ProgramOptions, target: ConnectionOptions) -> int:
    """Print the service account, roles and bindings of a program, and return 0.

    It needs the cluster only for the names of resources.

    Raises:
        CommandError: If options are invalid or incomplete, a resource is unknown, or the
            server does not respond.
        AioInformerError: If the configuration is invalid, or the server refuses the
            discovery.

    Cancellation:
        Safe.
    """
    if options.namespaces and options.all_namespaces:
        raise CommandError("-n and -A cannot be combined: omit one of them.")

    wanted = list(_permissions(options))
    program = options.lease is not None or options.shards or options.events
    if not wanted and not program:
        raise CommandError(
            "--rbac needs to know what the program does: name the resources of its "
            "informers, or pass --allow, --finalizers, --status, --events, --shards or "
            "--leader-election."
        )

    for name in options.namespaces:
        _check_name("-n", name)

    if options.lease is not None:
        if "/" in options.lease:
            raise CommandError(
                f"--leader-election {options.lease}: pass only the name of the Lease. Its "
                "namespace is that of --service-account."
            )

        _check_name("--leader-election", options.lease)

    async with target.client() as client:
        default = target.namespace(client.config)
        namespaces = options.namespaces or ((default,) if default else ())
        # With several, the account must name its own.
        account = _account_of(
            options.account, namespaces[0] if len(namespaces) == 1 else None
        )
        scopes = ("",) if options.all_namespaces else namespaces or ("",)
        try:
            async with asyncio.timeout(options.seconds):
                found = [await _grants(it, scopes, client) for it in wanted]
        except TimeoutError as exc:
            raise CommandError(
                f"timed out after {options.seconds:g} s (--timeout). Check the server, "
                "firewalls and proxies."
            ) from exc

    grants = [grant for each in found for grant in each]
    grants += _grants_of_library(options, grants, account, scopes)
    await write(as_yaml(manifests_of_program(grants, account)))
    return 0


def _account_of(text: str, namespace: str | None) -> Subject:
    """Return the subject for `NAME` or `NAMESPACE/NAME`."""
    place, _, name = text.rpartition("/")
    place = place or namespace or ""
    if not name or not place:
        raise CommandError(
            "--rbac needs the service account of the program: pass --service-account "
            f"{place or 'NAMESPACE'}/{name or 'NAME'}."
        )

    _check_name("--service-account", place)
    _check_name("--service-account", name)
    return Subject("ServiceAccount", name, place)


def _check_name(option: str, name: str) -> None:
    """Refuse what no object can be named: an empty name would stand for all objects."""
    if not is_subdomain(name):
        raise CommandError(
            f"{option}: {name!r} is no name. Names are lowercase letters, digits, '-' "
            "and '.', first and last a letter or digit."
        )


@dataclass(frozen=True, slots=True)
class _Permission:
    """Verbs on a resource that is known by name only."""

    word: str
    verbs: tuple[str, ...]
    subresource: str = ""


def _permissions(options: ProgramOptions) -> Iterator[_Permission]:
    for name in options.informers:
        yield _Permission(name, VERBS)

    for name in options.finalizers:
        # After a conflict, the decorator reads the object again.
        yield _Permission(name, ("get", "patch"))

    for name in options.statuses:
        yield _Permission(name, ("patch",), "status")

    for text in options.allowed:
        yield _allowed(text)


def _allowed(text: str) -> _Permission:
    """Parse a permission such as `deployments.apps=create,patch`."""
    named, _, listed = text.partition("=")
    word, slash, subresource = named.partition("/")
    verbs = tuple(it.strip() for it in listed.split(","))
    unknown = [it for it in verbs if it not in ALL_VERBS]
    if not word or unknown or (slash and not is_subdomain(subresource)):
        raise CommandError(
            f"--allow {text}: expected a resource and verbs, such as "
            f"deployments.apps=create,patch. Verbs are {', '.join(ALL_VERBS)}."
        )

    return _Permission(word, verbs, subresource)


async def _grants(
    wanted: _Permission, scopes: tuple[str, ...], client: Client
) -> list[Grant]:
    """Return the permission in each scope: a namespace, or empty for all."""
    found = await find_resource(wanted.word, client)
    name = "/".join(filter(None, (found.plural, wanted.subresource)))
    places = scopes if found.namespaced else ("",)
    return [Grant(found.group, name, wanted.verbs, it) for it in places]


def _grants_of_library(
    options: ProgramOptions,
    grants: list[Grant],
    account: Subject,
    scopes: tuple[str, ...],
) -> Iterator[Grant]:
    """Yield the permissions of electors, shards and recorders."""
    if options.lease is not None:
        # In the namespace of the pod, the default of `LeaseLock`. Permission to create
        # cannot be limited to a name.
        names, place = (LEASES.group, LEASES.plural), account.namespace
        purpose = "leader-election"
        yield Grant(*names, ("create",), place, purpose=purpose)
        yield Grant(*names, ("get", "update"), place, options.lease, purpose)

    if options.shards:
        # In the namespace of the pod, the default of `Shards`, with Events about moves.
        # Names of Leases of members have a random part, so rules cannot name them.
        place = account.namespace
        purpose = "shards"
        for needed, verbs in SHARDS_VERBS.items():
            yield Grant(needed.group, needed.plural, verbs, place, purpose=purpose)

    if options.events:
        verbs = ("create", "patch")
        for scope in scopes:
            yield Grant(EVENTS.group, EVENTS.plural, verbs, scope)

        known = {"", "default"} & set(scopes)
        if not known and any(not it.namespace for it in grants):
            # Events about cluster-scoped objects.
            yield Grant(EVENTS.group, EVENTS.plural, verbs, "default", purpose="events")
