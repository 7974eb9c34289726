"""`Resource`: group, version, name and scope of a collection of the API."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import quote

from aioinformer.errors import OptionsError
from aioinformer.model.validation import shown

__all__ = ["Resource"]


@dataclass(frozen=True, slots=True)
class Resource:
    """One collection of the Kubernetes API, such as pods or deployments.

    Attributes:
        group: API group; empty for the core group.
        version: Version of the group, such as `"v1"`.
        plural: Name in paths, such as `"pods"`.
        kind: Kind of its objects, such as `"Pod"`; empty if unknown.
        namespaced: False for cluster-scoped resources such as nodes.

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
        if "/" in self.group:
            raise OptionsError(
                f"invalid group of a resource: {self.group!r}. An API version and a "
                'plural make a resource, too: Resource.of("apps/v1", "deployments")'
            )

        for part, value in (("version", self.version), ("plural", self.plural)):
            if not value or "/" in value:
                raise OptionsError(f"invalid {part} of a resource: {shown(value)}")

        # Discovery may name others with capitals: aggregated servers choose the names.
        if self.plural[:1].isupper():
            raise OptionsError(
                f"invalid plural of a resource: {self.plural!r}. It is the name in "
                'paths, such as "deployments"; the kind is "Deployment"'
            )

    @classmethod
    def of(
        cls, api_version: str, plural: str, kind: str = "", *, namespaced: bool = True
    ) -> Resource:
        """Create a resource from an `apiVersion` such as `"v1"` or `"apps/v1"`.

        Raises:
            OptionsError: If a part is not valid in a resource.
        """
        group, _, version = api_version.rpartition("/")
        return cls(group, version, plural, kind, namespaced)

    @property
    def api_version(self) -> str:
        """`apiVersion` of its objects: `"v1"`, `"apps/v1"`."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(
        self, namespace: str | None = None, name: str = "", subresource: str = ""
    ) -> str:
        """Return the path on the server, starting with `/`.

        Args:
            namespace: Namespace of a list or watch; required with the name of a
                namespaced object.
            name: Name of the object; empty for the collection.
            subresource: Subresource, such as `"status"`; requires a name.

        Raises:
            OptionsError: If a cluster-scoped resource has a namespace, or a name lacks
                its namespace; or if a part cannot be in a path, as in client-go: `.`,
                `..`, or with a slash or a percent sign.
        """
        given: object = namespace
        if not isinstance(given, str | None):
            raise OptionsError(
                f"a namespace must be a string, not {shown(given)}: requests are for one "
                "namespace, or without it for all"
            )

        for part in (namespace or "", name, subresource):
            if not isinstance(part, str):
                raise OptionsError(
                    f"names for {self} must be strings, not {shown(part)}"
                )

            if part in {".", ".."} or "/" in part or "%" in part:
                raise OptionsError(
                    f"invalid path segment {part!r} for {self}: it must not be '.' or "
                    "'..', nor contain '/' or '%'"
                )

        if namespace == "*":
            raise OptionsError("invalid namespace '*': omit it to select all")

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
