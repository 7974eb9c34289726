"""`Defaults`: what a factory adds to every question it is asked."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

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
from aioinformer.model.resources import lookup
from aioinformer.model.selectors import FieldSelector, LabelSelector

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aioinformer.model.durations import Duration
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
        OptionsError: If a namespace or a period cannot be one.
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
        LabelSelector.parse(self.label_selector)
        FieldSelector.parse(self.field_selector)
        for period in (self.resync_period, *self.custom_resync.values()):
            resync_seconds(period)  # complains

    def question(
        self, api_version: str | Resource, plural: str, asked: InformerOptions
    ) -> Question:
        """What is asked for, with these defaults where it says nothing.

        Raises:
            OptionsError: If the resource is unknown, or an option cannot work.
            SelectorSyntaxError: If a selector cannot be parsed.
        """
        resource = self._resource(api_version, plural)
        namespace = asked.get("namespace")
        if namespace is None and resource.namespaced:
            namespace = self.namespace

        return Question(
            resource=resource,
            namespaces=namespaces_of(namespace),
            label_selector=_both(self.label_selector, asked.get("label_selector")),
            field_selector=_both(self.field_selector, asked.get("field_selector")),
            metadata_only=self.metadata_only or asked.get("metadata_only", False),
            name=asked.get("name"),
            options=ReflectorOptions(
                page_size=asked.get("page_size"),
                watch_seconds=asked.get("watch_seconds", WATCH_SECONDS),
                streaming_list=asked.get("streaming_list", False),
            ),
            transform=asked.get("transform") or self.transform,
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

    def _resource(self, api_version: str | Resource, plural: str) -> Resource:
        """The resource that is meant by a version and a plural name, or given as such.

        One that is built in is known better than by those who leave out its kind.
        """
        if isinstance(api_version, Resource):
            if plural:
                raise OptionsError(
                    f"give a Resource, or two names: not also {plural!r}"
                )

            given = api_version
            return given if given.kind else lookup(*_names(given)) or given

        known = lookup(api_version, plural)
        if known is None and self.any_resource:
            return Resource.of(api_version, plural)

        if known is None:
            raise OptionsError(
                f"{plural!r} of {api_version!r} is not a built-in resource; for a "
                f"custom one give a Resource: Resource.of({api_version!r}, "
                f"{plural!r}, Kind)"
            )

        return known


def _names(resource: Resource) -> tuple[str, str]:
    return resource.api_version, resource.plural


def _both(one: str, other: str | None) -> str:
    """The selector of what both select: a comma means "and"."""
    return ",".join(text for text in (one, other) if text)
