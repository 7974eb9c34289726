"""`KindCheck`: whether an object is of the requested kind and API version.

A server sends objects of the requested kind. An intermediary may send something else: a
response meant for `kubectl get` (a Table), another version out of a cache, or a mixed
up response. Its versions and names are not those of the watched objects.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import msgspec

from aioinformer.errors import DecodeError
from aioinformer.model.deep_json import truncate_nesting

if TYPE_CHECKING:
    from aioinformer.model.resource import Resource

__all__ = ["KindCheck", "has_sure_borders", "type_of"]


class _TypeMeta(msgspec.Struct, gc=False, rename="camel"):
    kind: str | None = None
    api_version: str | None = None


_decode: Final = msgspec.json.Decoder(_TypeMeta).decode
_decode_text: Final = msgspec.json.Decoder(str).decode

# Both first, in either order, followed by a field or the end of the object.
_TEXT: Final = rb'("[^"\\]*")'
_FRONT: Final = re.compile(
    rb'\s*\{\s*(?:"kind"\s*:\s*%(text)s\s*,\s*"apiVersion"\s*:\s*%(text)s'
    rb'|"apiVersion"\s*:\s*%(text)s\s*,\s*"kind"\s*:\s*%(text)s)\s*[,}]'
    % {b"text": _TEXT}
)


def type_of(body: bytes) -> tuple[str, str]:
    """Read kind and `apiVersion` of an object; an absent or null one is empty.

    Args:
        body: JSON of a whole object. If the two come first, as they nearly always do,
            nothing else is read.

    Raises:
        DecodeError: If they come later in an unreadable body, or are not strings.
    """
    try:
        front = _FRONT.match(body)
        if front is None:
            found = _decode_type(body)
            return found.kind or "", found.api_version or ""

        kind, api_version = front[1] or front[4], front[2] or front[3]
        return _decode_text(kind), _decode_text(api_version)
    except (msgspec.DecodeError, UnicodeDecodeError) as exc:
        raise DecodeError(f"cannot read the kind of an object: {exc}") from exc


def _decode_type(body: bytes) -> _TypeMeta:
    try:
        return _decode(body)
    except RecursionError:
        return _decode(truncate_nesting(body))


# Kinds whose lists can be split without reading every byte. None of them has an array
# of objects with metadata (as a StatefulSet has in its claims). Users cannot write
# arbitrary JSON into them, as into a custom object or a ControllerRevision: managed
# fields are free by their type, but servers rewrite them. (Webhooks could, but their
# owners can do more.) Tests compare this with the servers' schemas.
_SURE_BORDERS: Final = frozenset(
    (api_version, kind)
    for api_version, kinds in (
        (
            "admissionregistration.k8s.io/v1",
            "MutatingWebhookConfiguration ValidatingWebhookConfiguration",
        ),
        ("v1", "ConfigMap Endpoints Event LimitRange Namespace Node PersistentVolume"),
        ("v1", "PersistentVolumeClaim Pod PodTemplate ReplicationController"),
        ("v1", "ResourceQuota Secret Service ServiceAccount"),
        ("apps/v1", "DaemonSet Deployment ReplicaSet"),
        ("autoscaling/v1", "HorizontalPodAutoscaler"),
        ("autoscaling/v2", "HorizontalPodAutoscaler"),
        ("batch/v1", "CronJob Job"),
        ("coordination.k8s.io/v1", "Lease"),
        ("discovery.k8s.io/v1", "EndpointSlice"),
        ("events.k8s.io/v1", "Event"),
        ("networking.k8s.io/v1", "Ingress IngressClass NetworkPolicy"),
        ("policy/v1", "PodDisruptionBudget"),
        ("rbac.authorization.k8s.io/v1", "ClusterRole ClusterRoleBinding"),
        ("rbac.authorization.k8s.io/v1", "Role RoleBinding"),
        ("scheduling.k8s.io/v1", "PriorityClass"),
        ("storage.k8s.io/v1", "StorageClass"),
    )
    for kind in kinds.split()
)


def has_sure_borders(api_version: str, kind: str) -> bool:
    """Return whether `},{"metadata":{` is always a border of items in lists of a kind.

    True for built-in kinds that cannot contain an object which looks like an item. The
    author of another object could make its JSON look like two.
    """
    return (api_version, kind) in _SURE_BORDERS


class KindCheck:
    """Comparison of objects with the kind and API version of a resource.

    A missing kind or version matches: in lists of built-in kinds no object has them,
    and on some test servers none ever does. A Table never matches, even if the resource
    has no kind.

    Args:
        resource: Requested resource; without a kind, every kind matches.
    """

    __slots__ = ("_api_version", "_kind", "beginnings")

    def __init__(self, resource: Resource) -> None:
        self._kind = resource.kind
        self._api_version = resource.api_version
        names = msgspec.json.encode(self._kind), msgspec.json.encode(self._api_version)
        self.beginnings: tuple[bytes, ...] = ()
        """First bytes of matching objects, for built-in kinds and custom ones.

        Empty if the kind is not known.
        """
        if self._kind:
            self.beginnings = (
                b'{"kind":%s,"apiVersion":%s,' % names,
                b'{"apiVersion":%s,"kind":%s,' % names[::-1],
            )

    def passes(self, body: bytes) -> bool:
        """Return True if the type of an object matches, as far as it has one.

        Raises:
            DecodeError: If its type cannot be read.
        """
        return body.startswith(self.beginnings) or self.allows(*type_of(body))

    def allows(self, kind: str, api_version: str) -> bool:
        """Return True if this is the right type; either may be empty."""
        if not self._kind:
            return not (kind == "Table" and api_version.startswith("meta.k8s.io/"))

        return kind in {"", self._kind} and api_version in {"", self._api_version}
