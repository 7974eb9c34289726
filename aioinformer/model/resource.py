"""A `Resource`: what kind of object, and under which path the server keeps it."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import quote

from aioinformer.errors import OptionsError

__all__ = ["Resource", "check_resource"]


@dataclass(frozen=True, slots=True)
class Resource:
    """One collection of the Kubernetes API, such as pods or deployments.

    Attributes:
        group: The API group; empty for the core group.
        version: The version within the group, such as `"v1"`.
        plural: The name in paths, such as `"pods"`.
        kind: The kind of its objects, such as `"Pod"`; empty if it is not known.
        namespaced: False for cluster-scoped kinds such as nodes.

    Example:
        >>> Resource("apps", "v1", "deployments", "Deployment").path("shop", "web")
        '/apis/apps/v1/namespaces/shop/deployments/web'
    """

    group: str
    version: str
    plural: str
    kind: str = ""
    namespaced: bool = True

    def __post_init__(self) -> None:
        for part, value in (("version", self.version), ("plural", self.plural)):
            if not value or "/" in value:
                raise OptionsError(f"a resource's {part} cannot be {value!r}")

    @classmethod
    def of(
        cls, api_version: str, plural: str, kind: str = "", *, namespaced: bool = True
    ) -> Resource:
        """Make a resource from an `apiVersion` such as `"v1"` or `"apps/v1"`.

        Raises:
            OptionsError: The parts cannot be those of a resource.
        """
        group, _, version = api_version.rpartition("/")
        return cls(group, version, plural, kind, namespaced)

    @property
    def api_version(self) -> str:
        """The `apiVersion` of its objects: `"v1"`, `"apps/v1"`."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(
        self, namespace: str | None = None, name: str = "", subresource: str = ""
    ) -> str:
        """The path on the server, starting with `/`.

        Args:
            namespace: Restricts a list or watch; required to name a namespaced object.
            name: The object; empty for the collection.
            subresource: Such as `"status"`; only together with a name.

        Raises:
            OptionsError: A namespace for a cluster-scoped kind, or a name without one;
                something that cannot be a part of a path, as in client-go: `.`, `..`,
                or with a slash or a percent sign.
        """
        for part in (namespace or "", name, subresource):
            if part in {".", ".."} or "/" in part or "%" in part:
                raise OptionsError(f"{part!r} cannot name anything in {self}")

        if namespace and not self.namespaced:
            raise OptionsError(f"{self} is cluster-scoped and has no namespaces")

        if name and self.namespaced and not namespace:
            raise OptionsError(f"{self} is namespaced: {name!r} needs a namespace")

        parts = ["apis", self.group] if self.group else ["api"]
        parts.append(self.version)

        if namespace:
            parts += ["namespaces", namespace]

        parts.append(self.plural)
        parts += [part for part in (name, subresource if name else "") if part]
        return "/" + "/".join(quote(part, safe="") for part in parts)

    def __str__(self) -> str:
        return f"{self.plural}.{self.group}" if self.group else self.plural


def check_resource(given: object) -> None:
    """Refuse what is no `Resource`, such as a name.

    Raises:
        OptionsError: If it is none.
    """
    if not isinstance(given, Resource):
        raise OptionsError(
            f"not a Resource: {given!r}; take one of aioinformer.model.resources, such "
            'as PODS, or make one: Resource("apps", "v1", "deployments", "Deployment")'
        )
