"""Lookup of resources by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioinformer.cli.error_messages import CommandError
from aioinformer.errors import NotFound
from aioinformer.model.resources import built_in_resources, short_names

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aioinformer.cli.connection import ConnectionOptions
    from aioinformer.client import Client
    from aioinformer.informer import SharedInformerFactory
    from aioinformer.model.resource import Resource

__all__ = [
    "built_in",
    "find_resource",
    "known_names",
    "refuse_category",
    "request_informers",
    "selected",
]


def selected(resource: str, names: tuple[str, ...]) -> tuple[str, tuple[str, ...]]:
    """Return the resource and the names of objects in arguments, as for kubectl.

    Args:
        resource: First argument: a resource, or `resource/name`.
        names: Other arguments: names, or all of them `resource/name`.

    Raises:
        CommandError: If the arguments are not of one resource.

    Example:
        >>> selected("pods", ("web-0", "web-1"))
        ('pods', ('web-0', 'web-1'))
        >>> selected("pods/web-0", ("pods/web-1",))
        ('pods', ('web-0', 'web-1'))
    """
    if "," in resource:
        raise CommandError(
            f"{resource!r} is not one resource: watch one resource at a time."
        )

    kind, slash, first = resource.partition("/")
    pairs = [it.partition("/") for it in names]
    if not slash and not any(it[1] for it in pairs):
        return kind, tuple(dict.fromkeys(names))

    chosen = [first, *(name for _, _, name in pairs)]
    if any(it[0] != kind or not it[1] for it in pairs) or not all(chosen):
        given = " ".join([resource, *names])
        raise CommandError(
            f"cannot tell the names in {given!r}: write 'pods web-0 web-1' or "
            "'pods/web-0 pods/web-1', all of one resource."
        )

    return kind, tuple(dict.fromkeys(chosen))


def built_in(name: str) -> Resource | None:
    """Find a built-in resource by name, without a server. Return None if it is unknown.

    Args:
        name: Plural, singular, kind or short name (`pods`, `pod`, `Pod`, `po`) in any
            case, optionally with the group (`deployments.apps`) or the version and
            group (`deployments.v1.apps`).

    Example:
        >>> built_in("Deployment").path()
        '/apis/apps/v1/deployments'
    """
    lower = name.lower()
    return next((it for it in built_in_resources() if lower in _names(it)), None)


async def find_resource(name: str, client: Client) -> Resource:
    """Find a resource by name, among the built-in ones or on the server.

    Args:
        name: Name, as for `built_in()`.
        client: Entered client.

    Raises:
        CommandError: If there is none, or several. The text suggests similar names.
        ApiError: If the server refused discovery.
        TransportError: If the network failed.
        DecodeError: If the response cannot be decoded.

    Cancellation:
        Safe.
    """
    refuse_category(name)
    known = built_in(name)
    if known is not None:
        return known

    try:
        return await client.discovery.resource(name)
    except NotFound as exc:
        raise CommandError(exc.message) from exc


async def request_informers(
    factory: SharedInformerFactory,
    client: Client,
    target: ConnectionOptions,
    names: Iterable[str],
    *,
    namespaces: tuple[str, ...],
    all_namespaces: bool,
    labels: str,
) -> None:
    """Request an informer for each resource.

    Args:
        factory: Factory that has not started.
        client: Entered client.
        target: Connection, with the default namespace.
        names: Names of resources, as for `find_resource()`.
        namespaces: Namespaces, also of cluster-scoped resources, which ignore them;
            empty for the default of the connection.
        all_namespaces: True for all namespaces.
        labels: Label selector; empty for all.

    Raises:
        CommandError: If a resource is unknown, or the namespaces do not fit.
        SelectorSyntaxError: If the selector cannot be parsed.
        AioInformerError: If the server refused discovery, or cannot be reached.

    Cancellation:
        Safe.
    """
    if namespaces and all_namespaces:
        raise CommandError("-n and -A cannot be combined: omit one of them.")

    for name in names:
        resource = await find_resource(name, client)
        chosen: tuple[str, ...] = ()
        if resource.namespaced and not all_namespaces:
            default = target.namespace(client.config)
            chosen = namespaces or ((default,) if default else ())

        factory.informer(resource, namespace=chosen or None, label_selector=labels)


def refuse_category(name: str) -> None:
    """Raise for a name of several resources.

    Raises:
        CommandError: If it is `all`, which kubectl has.
    """
    if name.lower() == "all":
        raise CommandError(
            "categories such as 'all' are not supported: name one resource, such as pods."
        )


def known_names() -> list[str]:
    """Return the plural and short names of the built-in resources, sorted."""
    known = built_in_resources()
    return sorted({name for it in known for name in (it.plural, *short_names(it))})


def _names(resource: Resource) -> set[str]:
    names = {resource.plural, resource.kind.lower(), *short_names(resource)}
    full = {f"{name}.{resource.group}" for name in names if resource.group}
    versioned = {f"{name}.{resource.version}" for name in names}
    return names | full | {f"{it}.{resource.group}".rstrip(".") for it in versioned}
