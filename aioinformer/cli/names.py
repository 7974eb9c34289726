"""Finds the resource that a word means. Pure: it asks no server."""

from __future__ import annotations

import difflib
import re

from aioinformer.cli.explain import CommandError
from aioinformer.model import resources
from aioinformer.model.resource import Resource

__all__ = ["find_resource"]

_BUILT_IN = tuple(
    value
    for value in (getattr(resources, name) for name in resources.__all__)
    if isinstance(value, Resource)
)

_VERSION = re.compile(r"v[1-9][0-9]*((alpha|beta)[1-9][0-9]*)?")


def find_resource(word: str) -> Resource:
    """Find a built-in resource by name, or make a custom one.

    Args:
        word: The plural, singular or kind of a built-in one (`pods`, `pod`, `Pod`),
            perhaps with its group (`deployments.apps`); or plural, version and group
            (`widgets.v1.example.com`) of any.

    Raises:
        CommandError: It is neither; the text says what is similar.

    Example:
        >>> find_resource("Deployment").path()
        '/apis/apps/v1/deployments'
        >>> find_resource("widgets.v1.example.com").path()
        '/apis/example.com/v1/widgets'
    """
    lower = word.lower()
    for resource in _BUILT_IN:
        if lower in _names(resource):
            return resource

    plural, _, rest = lower.partition(".")
    version, _, group = rest.partition(".")
    if plural and _VERSION.fullmatch(version):
        return Resource(group, version, plural)

    raise CommandError(_unknown(word, plural, rest))


def _names(resource: Resource) -> set[str]:
    names = {resource.plural, resource.kind.lower()}
    full = {f"{name}.{resource.group}" for name in names if resource.group}
    versioned = {f"{name}.{resource.version}" for name in names}
    return names | full | {f"{it}.{resource.group}".rstrip(".") for it in versioned}


def _unknown(word: str, plural: str, rest: str) -> str:
    if plural and rest:
        return (
            f"{word!r} is not a built-in resource. Of others the version must be "
            f"given too: {plural}.v1.{rest}, for example."
        )

    known = [resource.plural for resource in _BUILT_IN]
    similar = difflib.get_close_matches(plural, known, n=1)
    hint = f"Did you mean {similar[0]!r}? " if similar else ""
    return (
        f"{word!r} is not a built-in resource. {hint}Write others as "
        f"NAME.VERSION.GROUP: {plural or 'widgets'}.v1.example.com, for example."
    )
