"""Validation of definitions. Pure.

All errors are reported at once, in the order of a real server. CEL rules of a schema
(`x-kubernetes-validations`) are not validated.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from aioinformer_apiserver.crds.status import APPROVAL, is_condition_true, is_protected
from aioinformer_apiserver.crds.structural_schemas import validate_structural_schema
from aioinformer_apiserver.errors.field_errors import (
    FieldError,
    duplicate,
    invalid,
    not_supported,
    required,
    too_many,
)
from aioinformer_apiserver.errors.names import validate_subdomain
from aioinformer_apiserver.storage.encoding import plain

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

__all__ = [
    "SHARED_FIELDS",
    "check_parts",
    "dns1035_label_error",
    "shared_parts",
    "validate_definition",
]

_IMMUTABLE = "field is immutable"
_MIXED_CASE = "may have mixed case, but should otherwise match: "
_APPROVAL_LINK = "see https://github.com/kubernetes/enhancements/pull/1111"


def validate_definition(
    body: Mapping[str, Any], old: Mapping[str, Any] | None = None
) -> list[FieldError]:
    """Validate a definition.

    Args:
        body: Definition with its defaults and status.
        old: Stored definition; None if the definition is new.
    """
    spec = body["spec"]
    found = list(_validate_name(body) if old is None else ())
    found += _validate_group(spec.get("group") or "")
    found += _validate_scope(spec.get("scope") or "")
    found += _validate_version(spec)
    found += _validate_names(spec.get("names") or {})
    found += check_parts("spec", shared_parts(spec.get("versions") or []))
    found += _validate_conversion(spec)
    found += _validate_stored_version(body)
    if old is not None:
        found += _validate_immutable(spec, old)

    return [*found, *_validate_approval(body, old)]


def _validate_name(body: Mapping[str, Any]) -> Iterator[FieldError]:
    spec, name = body["spec"], body["metadata"].get("name") or ""
    plural = (spec.get("names") or {}).get("plural") or ""
    if name != f"{plural}.{spec.get('group') or ''}":
        yield invalid("metadata.name", name, 'must be spec.names.plural+"."+spec.group')


def _validate_group(group: str) -> Iterator[FieldError]:
    found = validate_subdomain(group)
    if not group:
        yield required("spec.group")
    elif found:
        yield from (invalid("spec.group", group, why) for why in found)
    elif "." not in group:
        yield invalid("spec.group", group, "should be a domain with at least one dot")


def _validate_scope(scope: str) -> Iterator[FieldError]:
    if not scope:
        yield required("spec.scope")
    elif scope not in {"Cluster", "Namespaced"}:
        yield not_supported("spec.scope", scope, ("Cluster", "Namespaced"))


def _validate_version(spec: Mapping[str, Any]) -> Iterator[FieldError]:
    versions = spec.get("versions") or []
    shared = shared_parts(versions)
    for index, version in enumerate(versions):
        path = f"spec.versions[{index}]"
        name = version.get("name") or ""
        if problem := dns1035_label_error(name):
            yield invalid(f"{path}.name", name, problem)

        warning = version.get("deprecationWarning")
        if warning is not None and not version.get("deprecated"):
            why = "can only be set for deprecated versions"
            yield invalid(f"{path}.deprecationWarning", warning, why)

        if not (version.get("schema") or {}).get("openAPIV3Schema"):
            yield required(f"{path}.schema.openAPIV3Schema")

        own = {part: it for part, it in version.items() if part in SHARED_FIELDS}
        yield from check_parts(path, {k: v for k, v in own.items() if k not in shared})

    names = [version.get("name") for version in versions]
    given = spec.get("versions")
    listed = None if given is None else [_internal(it, shared) for it in versions]
    if len(set(names)) < len(names):
        yield _versions_error(listed, "must contain unique version names")

    if sum(bool(version.get("storage")) for version in versions) != 1:
        why = "must have exactly one version marked as storage version"
        yield _versions_error(listed, why)

    # A real server also keeps the first name in the deprecated field
    # `spec.version`.
    if names and names[0] and (problem := dns1035_label_error(names[0])):
        yield invalid("spec.version", names[0], problem)


def _versions_error(versions: list[dict[str, Any]] | None, why: str) -> FieldError:
    """Return an error that quotes all versions, with their fields in order."""
    return FieldError(
        "spec.versions", f"Invalid value: {plain(versions).decode()}: {why}"
    )


def _internal(version: Mapping[str, Any], shared: Mapping[str, Any]) -> dict[str, Any]:
    """Format a version like the internal type of a real server."""
    quoted = {
        "Name": version.get("name") or "",
        "Served": bool(version.get("served")),
        "Storage": bool(version.get("storage")),
        "Deprecated": bool(version.get("deprecated")),
        "DeprecationWarning": version.get("deprecationWarning"),
    }
    for field in SHARED_FIELDS:
        own = None if field in shared else version.get(field)
        quoted[field[0].upper() + field[1:]] = own

    return quoted


def _validate_names(names: Mapping[str, Any]) -> Iterator[FieldError]:
    for field in ("plural", "singular", "kind", "listKind"):
        path, name = f"spec.names.{field}", names.get(field) or ""
        mixed = field in {"kind", "listKind"}
        if not name:
            yield required(path)
        elif problem := dns1035_label_error(name.lower() if mixed else name):
            yield invalid(path, name, f"{_MIXED_CASE}{problem}" if mixed else problem)

    for field in ("shortNames", "categories"):
        for index, name in enumerate(names.get(field) or ()):
            if problem := dns1035_label_error(name):
                yield invalid(f"spec.names.{field}[{index}]", name, problem)

    kind = names.get("kind")
    if kind and kind == names.get("listKind"):
        why = "kind and listKind may not be the same"
        yield invalid("spec.names.listKind", kind, why)


def _validate_conversion(spec: Mapping[str, Any]) -> Iterator[FieldError]:
    if spec.get("preserveUnknownFields"):
        why = "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in "
        why += "spec.versions[*].schema instead"
        yield invalid("spec.preserveUnknownFields", True, why)

    conversion = spec.get("conversion") or {}
    strategy, path = conversion.get("strategy") or "", "spec.conversion"
    if not strategy:
        yield required(f"{path}.strategy")
    elif strategy not in {"None", "Webhook"}:
        yield not_supported(f"{path}.strategy", strategy, ("None", "Webhook"))
    elif strategy == "Webhook":
        webhook = conversion.get("webhook") or {}
        if not webhook.get("clientConfig"):
            why = "required when strategy is set to Webhook"
            yield required(f"{path}.webhookClientConfig", why)

        if not webhook.get("conversionReviewVersions"):
            yield required(f"{path}.conversionReviewVersions")


def _validate_stored_version(body: Mapping[str, Any]) -> Iterator[FieldError]:
    path = "status.storedVersions"
    stored = (body.get("status") or {}).get("storedVersions") or None
    versions = body["spec"].get("versions") or []
    if not stored:
        yield invalid(path, stored, "must have at least one stored version")
        return

    kept = [it.get("name") for it in versions if it.get("storage")]
    if kept and kept[-1] not in stored:
        yield invalid(path, stored, f"must have the storage version {kept[-1]}")

    names = {version.get("name") for version in versions}
    for index, name in enumerate(stored):
        if name not in names:
            why = (
                f"missing from spec.versions; {name} was previously a storage version, "
            )
            why += "and must remain in spec.versions until a storage migration ensures "
            why += f"no data remains persisted in {name} and removes {name} from "
            why += "status.storedVersions"
            yield invalid(f"{path}[{index}]", name, why)


def _validate_immutable(
    spec: Mapping[str, Any], old: Mapping[str, Any]
) -> Iterator[FieldError]:
    """Validate immutable fields; there are more once the definition is established."""
    before, names = old["spec"], spec.get("names") or {}
    established = is_condition_true(old, "Established")
    if established and spec.get("scope") != before["scope"]:
        yield invalid("spec.scope", spec.get("scope") or "", _IMMUTABLE)

    if established and names.get("kind") != before["names"]["kind"]:
        yield invalid("spec.names.kind", names.get("kind") or "", _IMMUTABLE)

    if spec.get("group") != before["group"]:
        yield invalid("spec.group", spec.get("group") or "", _IMMUTABLE)

    if names.get("plural") != before["names"]["plural"]:
        yield invalid("spec.names.plural", names.get("plural") or "", _IMMUTABLE)


def _validate_approval(
    body: Mapping[str, Any], old: Mapping[str, Any] | None
) -> Iterator[FieldError]:
    if not is_protected(body["spec"].get("group") or ""):
        return

    given = (body["metadata"].get("annotations") or {}).get(APPROVAL, "")
    before = (old or {}).get("metadata", {}).get("annotations") or {}
    if old is not None and before.get(APPROVAL, "") == given:
        return

    path = f"metadata.annotations[{APPROVAL}]"
    rule = f'protected groups must have approval annotation "{APPROVAL}"'
    if not given:
        yield required(path, f"{rule}, {_APPROVAL_LINK}")
    elif "://" not in given and not given.startswith("unapproved"):
        how = 'with either a URL or a reason starting with "unapproved"'
        yield invalid(path, given, f"{rule} {how}, {_APPROVAL_LINK}")


# ------------------------------------------------------------------ parts of versions


SHARED_FIELDS = (
    "schema",
    "subresources",
    "additionalPrinterColumns",
    "selectableFields",
)
_TYPES = ("boolean", "date", "integer", "number", "string")
_FORMATS = (
    "byte",
    "date",
    "date-time",
    "double",
    "float",
    "int32",
    "int64",
    "password",
)
_NO_SIMPLE_PATH = "must be a simple json path starting with ."
_SELECTABLE = frozenset({"string", "boolean", "integer"})
_SELECTABLE_COUNT = 8


def shared_parts(versions: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the parts that are equal in all versions.

    They count as given once, for the whole definition: errors in them have its path.
    """
    if not versions:
        return {}

    first = versions[0]
    return {
        field: first.get(field)
        for field in SHARED_FIELDS
        if all(version.get(field) == first.get(field) for version in versions)
    }


def check_parts(path: str, parts: Mapping[str, Any]) -> Iterator[FieldError]:
    """Validate the parts of one version, or the parts shared by all versions.

    Args:
        path: Path of the version or definition.
        parts: Parts by field; some may be missing.
    """
    for index, column in enumerate(parts.get("additionalPrinterColumns") or ()):
        yield from _validate_printer_column(
            f"{path}.additionalPrinterColumns[{index}]", column
        )

    text = (parts.get("schema") or {}).get("openAPIV3Schema") or {}
    shared = path == "spec"
    yield from _validate_selectable_fields(path, parts, text, shared=shared)
    if text:
        where = "spec.validation" if shared else f"{path}.schema"
        yield from validate_structural_schema(f"{where}.openAPIV3Schema", text)

    scale = (parts.get("subresources") or {}).get("scale")
    if scale is not None:
        yield from _validate_scale(f"{path}.subresources.scale", scale)


def _validate_printer_column(
    path: str, column: Mapping[str, Any]
) -> Iterator[FieldError]:
    if not column.get("name"):
        yield required(f"{path}.name")

    kind, form = column.get("type") or "", column.get("format") or ""
    if not kind:
        yield required(f"{path}.type", f"must be one of {','.join(_TYPES)}")
    elif kind not in _TYPES:
        yield invalid(f"{path}.type", kind, f"must be one of {','.join(_TYPES)}")

    if form and form not in _FORMATS:
        yield invalid(f"{path}.format", form, f"must be one of {','.join(_FORMATS)}")

    where = column.get("jsonPath") or ""
    if not where:
        yield required(f"{path}.JSONPath")
    elif not where.startswith("."):
        yield invalid(f"{path}.JSONPath", where, _NO_SIMPLE_PATH)


def _validate_scale(path: str, scale: Mapping[str, Any]) -> Iterator[FieldError]:
    for field, roots, needed in (
        ("specReplicasPath", (".spec",), True),
        ("statusReplicasPath", (".status",), True),
        ("labelSelectorPath", (".spec", ".status"), False),
    ):
        where = scale.get(field) or ""
        if not where:
            if needed:
                yield required(f"{path}.{field}")
        elif not where.startswith("."):
            yield invalid(f"{path}.{field}", where, _NO_SIMPLE_PATH)
        elif not any(where.startswith(f"{root}.") for root in roots):
            choices = " or ".join(roots)
            choices = f"either {choices}" if len(roots) > 1 else choices
            yield invalid(
                f"{path}.{field}", where, f"should be a json path under {choices}"
            )


def _validate_selectable_fields(
    path: str, parts: Mapping[str, Any], text: Mapping[str, Any], *, shared: bool
) -> Iterator[FieldError]:
    given = parts.get("selectableFields") or []
    path = f"{path}.selectableFields"
    if given and "schema" not in parts:
        # The versions differ in these fields, but not in their schemas.
        why = "may only be set when `version.schema.openAPIV3Schema` is not included"
        yield invalid(path, "", why)
        return

    if len(given) > _SELECTABLE_COUNT:
        yield too_many(path, len(given), _SELECTABLE_COUNT)

    seen: set[str] = set()
    for index, field in enumerate(given):
        where = field.get("jsonPath") or ""
        at = f"{path}[{index}].jsonPath"
        problem = _selectable_field_error(where, text)
        if not where:
            yield required(at)
        elif problem:
            yield invalid(at, where, problem)
        elif where in seen:
            yield duplicate(at, where)

        seen.add(where)


def _selectable_field_error(where: str, text: Mapping[str, Any]) -> str:
    """Return why a field is not selectable; empty if it is."""
    if not where.startswith("."):
        return f"is an invalid path: expected [ or . but got: {where}"

    if "[" in where:
        return "is an invalid path: array notation is not allowed"

    found: Any = text
    parts = where[1:].split(".")
    for part in parts:
        found = (found.get("properties") or {}).get(part)
        if found is None or parts[0] == "metadata":
            return "is an invalid path: does not refer to a valid field"

    if found.get("type") in _SELECTABLE:
        return ""

    return (
        "must point to a field of type string, boolean or integer. Enum string fields "
        "and strings with formats are allowed."
    )


# ------------------------------------------------------------------ names


_PATTERN = "[a-z]([-a-z0-9]*[a-z0-9])?"
_LENGTH = 63
_RULE = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start "
    "with an alphabetic character, and end with an alphanumeric character (e.g. "
    f"'my-name',  or 'abc-123', regex used for validation is '{_PATTERN}')"
)


def dns1035_label_error(text: str) -> str:
    """Return why a text is not an RFC 1035 DNS label; empty if it is."""
    if len(text) > _LENGTH:
        return f"must be no more than {_LENGTH} characters"

    return "" if re.fullmatch(_PATTERN, text) else _RULE
