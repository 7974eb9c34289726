"""`Defaults`: what a factory adds to every question it is asked."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from aioinformer.errors import OptionsError
from aioinformer.informer.asking import (
    InformerOptions,
    Namespaces,
    Question,
    calling_place,
    namespaces_of,
)
from aioinformer.informer.reflector_options import WATCH_SECONDS, ReflectorOptions
from aioinformer.informer.resync import resync_seconds
from aioinformer.model.resource import Resource
from aioinformer.model.resources import lookup, similar
from aioinformer.model.selectors import FieldSelector, LabelSelector

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aioinformer.model.times import Duration
    from aioinformer.model.transforms import Transform

__all__ = ["Defaults"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Defaults:
    """What a factory adds to every question it is asked.

    Attributes:
        namespace: Of informers that name none; not of cluster-scoped resources.
        label_selector: Holds for all informers, beside their own.
        field_selector: Holds for all informers, beside their own.
        transform: Of informers that give none.
        resync_period: Of informers that give none.
        custom_resync: Of some resources, before the one for all.
        metadata_only: Ask for nothing but metadata, whatever the question says.
        any_resource: Two names are enough for a resource that is not built in.

    Raises:
        OptionsError: If a namespace or a period cannot be one, or a selector is no
            text.
        SelectorSyntaxError: If a selector cannot be parsed.
    """

    namespace: Namespaces = None
    label_selector: str = ""
    field_selector: str = ""
    transform: Transform | None = None
    resync_period: Duration | None = None
    custom_resync: Mapping[Resource, Duration] = field(default_factory=dict)
    metadata_only: bool = False
    any_resource: bool = False

    def __post_init__(self) -> None:
        namespaces_of(self.namespace)
        LabelSelector.parse(_both(self.label_selector, ""))
        FieldSelector.parse(_both(self.field_selector, ""))
        for period in (self.resync_period, *self.custom_resync.values()):
            resync_seconds(period)  # complains

        for known in self.custom_resync:
            if not isinstance(known, Resource):
                raise OptionsError(
                    f"custom_resync is by Resource, such as resources.PODS: {known!r}"
                )

    def question(
        self, api_version: str | Resource, plural: str, asked: InformerOptions
    ) -> Question:
        """What is asked for, with these defaults where it says nothing.

        Raises:
            OptionsError: If the resource is unknown, or an option cannot work.
            SelectorSyntaxError: If a selector cannot be parsed.
        """
        resource, by_name = self._resource(api_version, plural)
        namespace, transform = asked.get("namespace"), asked.get("transform")
        if namespace is None and resource.namespaced:
            namespace = self.namespace

        return Question(
            resource=resource,
            by_name=by_name,
            namespaces=namespaces_of(namespace),
            label_selector=_both(self.label_selector, asked.get("label_selector")),
            field_selector=_both(self.field_selector, asked.get("field_selector")),
            metadata_only=self.metadata_only or asked.get("metadata_only", False),
            name=asked.get("name") or None,
            options=ReflectorOptions(
                page_size=asked.get("page_size"),
                watch_seconds=asked.get("watch_seconds", WATCH_SECONDS),
                streaming_list=asked.get("streaming_list", False),
            ),
            transform=self.transform if transform is None else transform,
            compression=asked.get("compression"),
            resync_period=self._resync_period(resource, asked.get("resync_period")),
            place=calling_place(),
        )

    def _resync_period(self, resource: Resource, asked: Duration | None) -> float:
        if asked is not None:
            return resync_seconds(asked)

        for known, period in self.custom_resync.items():
            if _names(known) == _names(resource):
                return resync_seconds(period)

        return resync_seconds(self.resync_period)

    def _resource(
        self, api_version: str | Resource, name: Any
    ) -> tuple[Resource, bool]:
        """The resource that is meant, and whether the server has to say which it is.

        One that is built in is known better than by those who leave out its kind. The
        name should be a text; whoever gives a `Resource` there is told so.
        """
        if isinstance(api_version, Resource):
            if name:
                raise OptionsError(f"give a Resource, or two names: not also {name!r}")

            given = api_version
            return given if given.kind else lookup(*_names(given)) or given, False

        known = lookup(api_version, name)
        if known is not None:
            return known, False

        meant = similar(name or api_version)
        if not name or not isinstance(name, str):
            raise OptionsError(_unknown(api_version, name, meant))

        if meant is not None and meant.api_version == api_version:
            return meant, False

        if self.any_resource and name == name.lower():
            return Resource.of(api_version, name), False

        if not _may_be_served(api_version, meant):
            raise OptionsError(_unknown(api_version, name, meant))

        kind = name if name != name.lower() else ""
        return Resource.of(api_version, name.lower(), kind), True


def _names(resource: Resource) -> tuple[str, str]:
    return resource.api_version, resource.plural


def _may_be_served(api_version: str, meant: Resource | None) -> bool:
    """Whether a server may have what is not built in under this name.

    The core group has nothing else. Groups without a dot belong to Kubernetes, too: a
    name that is built in elsewhere is a mistake there.
    """
    group = api_version.rpartition("/")[0]
    return bool(group) and ("." in group or meant is None)


def _unknown(api_version: str, name: object, meant: Resource | None) -> str:
    """That two names are those of no built-in resource, and what may be meant."""
    text = f"{name!r} of {api_version!r} is not a built-in resource; "
    if meant is not None:
        return f"{text}did you mean {meant.api_version!r}, {meant.plural!r}?"

    if not name:
        return f"{text}give two names, such as 'v1', 'pods', or a Resource"

    return f"{text}custom ones have a group, as in 'example.com/v1'"


def _both(one: str, other: str | None) -> str:
    """The selector of what both select: a comma means "and"."""
    given = [it for it in (one, other) if it]
    for text in given:
        if not isinstance(text, str):
            raise OptionsError(f"a selector is a text such as 'app=web', not {text!r}")

    return ",".join(given)
