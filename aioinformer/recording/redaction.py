"""`Redaction`: removes secrets from objects before they are recorded. Pure.

A value is replaced by a keyed hash of itself. So a recording shows that a value has
changed, or that two are equal, but not the value. The key is random, and stays in the
process.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from aioinformer import json_codec
from aioinformer.errors import DecodeError, OptionsError
from aioinformer.model.resources import SECRETS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from aioinformer.model.objects import KubeObject
    from aioinformer.model.resource import Resource

__all__ = ["Redaction"]

_LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"

# Fields of Secrets, and an annotation with a copy of them.
_OF_SECRETS: Final = (
    ("data", "*"),
    ("stringData", "*"),
    ("metadata", "annotations", _LAST_APPLIED),
)

# Fields that have names of objects, whatever they are fields of.
_NAME_FIELDS: Final = frozenset(
    {
        "name",
        "generateName",
        "namespace",
        "hostname",
        "subdomain",
        "host",
        "nodeName",
        "nominatedNodeName",
        "claimName",
        "volumeName",
        "serviceAccount",
        "reportingInstance",
        "holderIdentity",
        "preferredHolder",
        "address",
        "currentRevision",
        "updateRevision",
        "username",
        "providerID",
        "nodeID",
        "volumeHandle",
        "pool",
    }
)
_NAME_ENDINGS: Final = ("Name", ".name", "/name", ".namespace", "/namespace")

# Fields with lists of names.
_NAME_LISTS: Final = frozenset(
    {
        "values",
        "resourceNames",
        "namespaces",
        "hosts",
        "hostnames",
        "finalizers",
        "groups",
        "searches",
        "addresses",
        "volumesInUse",
        "authentication.kubernetes.io/pod-name",
        "authentication.kubernetes.io/node-name",
    }
)

# Fields whose keys are names, as in a PodDisruptionBudget.
_NAMED_KEYS: Final = frozenset({"disruptedPods"})

# Fields with labels, or what selects them.
_LABELS: Final = frozenset(
    {
        "labels",
        "annotations",
        "matchLabels",
        "selector",
        "nodeSelector",
        "deprecatedTopology",
    }
)

# Fields whose values are free text or have names as a part of them, such as the
# certificates of nodes.
_TEXTS: Final = frozenset(
    {"message", "note", "selfLink", "fieldPath", "url", "request", "certificate"}
)

# Keys of managed fields that have the values of a list's items.
_ITEM_KEYS: Final = ("k:", "v:")


class Redaction:
    """Rules about what is replaced in objects.

    Args:
        fields: Paths of fields in all objects, such as `"spec.containers.*.env.*.value"`,
            where `*` stands for all items, or tuples if keys have dots. A whole object
            or list may be named. kubectl's annotation with the last applied
            configuration and the items in managed fields are replaced, too, as they
            repeat fields.
        hide_secrets: True to replace the data of Secrets.
        hash_names: True to replace names, namespaces, labels' and annotations' values, and
            texts that may contain names.

    Raises:
        OptionsError: If a path is empty, or has brackets.
    """

    def __init__(
        self,
        fields: Iterable[str | tuple[str, ...]] = (),
        *,
        hide_secrets: bool = True,
        hash_names: bool = False,
    ) -> None:
        if isinstance(fields, str):
            raise OptionsError(f"redact must be a list of paths, not {fields!r}")

        self._paths: list[tuple[str, ...]] = []
        fields = list(fields)
        self.fields: list[str] = [
            it if isinstance(it, str) else ".".join(map(str, it)) for it in fields
        ]
        """Paths of the fields that are replaced, as they are in the header."""
        for field in fields:
            given: Any = field
            steps = tuple(given.split(".")) if isinstance(given, str) else given
            if not isinstance(steps, tuple) or not steps or not all(steps):
                raise OptionsError(f"redact has no path of a field: {field!r}")

            if isinstance(given, str) and "[" in given:
                raise OptionsError(
                    f"redact has no path of a field: {field!r}. Items are `.*.`, or a "
                    "number; a key with dots or brackets needs a tuple"
                )

            self._paths.append(steps)

        self._secrets = hide_secrets
        if hide_secrets:
            self.fields = ["data and stringData of Secrets", *self.fields]

        self.hash_names = hash_names
        key = secrets.token_bytes(32)

        @lru_cache(maxsize=4096)
        def mark(value: str) -> str:
            return hmac.new(key, value.encode(), hashlib.sha256).hexdigest()[:12]

        self._mark = mark

    def name(self, name: str) -> str:
        """Return a name as it is recorded."""
        return f"n{self._mark(name)}" if self.hash_names and name else name

    def function_for(self, resource: Resource | None) -> Callable[[KubeObject], bytes]:
        """Return a function that returns the JSON to record of an object.

        Args:
            resource: Resource of the objects; None if it is unknown.
        """
        paths = list(self._paths)
        if paths:
            paths.append(_OF_SECRETS[-1])

        unsure = resource is None
        is_secret = resource is not None and (resource.group, resource.plural) == (
            SECRETS.group,
            SECRETS.plural,
        )
        if self._secrets and (is_secret or unsure):
            paths = [*_OF_SECRETS, *paths]

        if not paths and not self.hash_names:
            return _raw

        def redacted(obj: KubeObject) -> bytes:
            try:
                body = json_codec.loads(obj.raw)
                if not isinstance(body, dict):
                    raise DecodeError("not an object")

                for path in paths:
                    self._replace(body, path, encoded=path is _OF_SECRETS[0])

                if self.hash_names:
                    self._hash_names(body)
                elif self._paths:
                    self._hide_items(body)

                return json_codec.dumps(body)
            except (ValueError, TypeError, RecursionError, DecodeError):
                # What cannot be read cannot be redacted. Nor can what nests so deeply
                # that it cannot be encoded again, which is a TypeError.
                return json_codec.dumps(self._identity(obj))

        return redacted

    def _identity(self, obj: KubeObject) -> dict[str, Any]:
        metadata = {
            "name": self.name(obj.name),
            "namespace": self.name(obj.namespace),
            "uid": obj.uid,
            "resourceVersion": obj.resource_version,
        }
        return {"metadata": {name: it for name, it in metadata.items() if it}}

    def _replace(self, value: Any, path: tuple[str, ...], *, encoded: bool) -> None:
        """Replace the values of a path below a value, which may be base64."""
        step, rest = path[0], path[1:]
        if isinstance(value, dict):
            keys: Iterable[Any] = list(value) if step == "*" else [step]
            keys = [key for key in keys if key in value]
        elif isinstance(value, list) and (step == "*" or step.isdecimal()):
            every = range(len(value))
            keys = every if step == "*" else [it for it in every if it == int(step)]
        else:
            return

        for key in keys:
            it = value[key]
            # What has no items is replaced in their place.
            if rest and (isinstance(it, dict | list) or rest != ("*",)):
                self._replace(it, rest, encoded=encoded)
            else:
                value[key] = self._hidden(it, encoded=encoded)

    def _hidden(self, value: Any, *, encoded: bool = False) -> Any:
        """Return a value of the same type that tells nothing but equality."""
        if isinstance(value, dict):
            return {key: self._hidden(it) for key, it in value.items()}

        if isinstance(value, list):
            return [*map(self._hidden, value)]

        if isinstance(value, str):
            text = f"redacted-{self._mark(value)}"
            # A server accepts nothing else as the data of a Secret.
            return base64.b64encode(text.encode()).decode() if encoded else text

        return None if value is None else type(value)()

    def _hash_names(self, value: Any) -> None:
        if isinstance(value, list):
            for it in value:
                self._hash_names(it)

            return

        if not isinstance(value, dict):
            return

        for key, it in value.items():
            if isinstance(it, str):
                if key in _NAME_FIELDS or key.endswith(_NAME_ENDINGS) or key in _LABELS:
                    value[key] = self.name(it)
                elif key in _TEXTS:
                    value[key] = self._hidden(it)
            elif key in _LABELS and isinstance(it, dict):
                for label, text in it.items():
                    if isinstance(text, str):
                        it[label] = self.name(text)
                    else:  # a selector has further fields
                        self._hash_names({label: text})

            elif key == "fieldsV1":
                value[key] = self._without_items(it)
            elif key in _NAMED_KEYS and isinstance(it, dict):
                value[key] = {self.name(name): each for name, each in it.items()}
            elif isinstance(it, list):
                self._hash_items(key, it)
            else:
                self._hash_names(it)

    def _hash_items(self, key: str, items: list[Any]) -> None:
        """Replace the names in a list, which is the value of a key."""
        are_names = key in _NAME_LISTS
        for place, it in enumerate(items):
            if not isinstance(it, str):
                self._hash_names(it)
            elif are_names and not (key == "addresses" and _is_ip(it)):
                items[place] = self.name(it)

    def _hide_items(self, body: dict[str, Any]) -> None:
        """Replace the items in managed fields, of which a path may have hidden some."""
        metadata = body.get("metadata")
        entries = metadata.get("managedFields") if isinstance(metadata, dict) else None
        for entry in entries if isinstance(entries, list) else ():
            if isinstance(entry, dict) and "fieldsV1" in entry:
                entry["fieldsV1"] = self._without_items(entry["fieldsV1"])

    def _without_items(self, fields: Any, parent: str = "") -> Any:
        """Return managed fields, below a parent, without the names and values of items."""
        if not isinstance(fields, dict):
            return fields

        return {
            self._field_key(key, parent): self._without_items(it, key)
            for key, it in fields.items()
        }

    def _field_key(self, key: str, parent: str) -> str:
        """Return a key of managed fields as it is recorded."""
        if key.startswith(_ITEM_KEYS):
            return f'v:"n{self._mark(key)}"'

        field = key.removeprefix("f:")
        named = field != key and parent.removeprefix("f:") in _NAMED_KEYS
        return f"f:{self.name(field)}" if named else key


def _is_ip(text: str) -> bool:
    # No name of a host has a colon, or only digits.
    return ":" in text or text.replace(".", "").isdecimal()


def _raw(obj: KubeObject) -> bytes:
    return obj.raw
