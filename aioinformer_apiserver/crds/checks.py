"""Checks: whether a definition will do. Pure.

All that is wrong is told at once, in the order of a real server. The rules of CEL in a
schema (`x-kubernetes-validations`) are not looked at.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aioinformer_apiserver.crds.conditions import APPROVAL, holds, is_protected
from aioinformer_apiserver.crds.labels import label_problem
from aioinformer_apiserver.crds.version_checks import (
    SHARED_FIELDS,
    check_parts,
    shared_parts,
)
from aioinformer_apiserver.errors.field_errors import Problem
from aioinformer_apiserver.errors.names import subdomain_problems
from aioinformer_apiserver.schema.findings import invalid, not_supported, required
from aioinformer_apiserver.storage.encoding import plain

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ["problems_of"]

_IMMUTABLE = "field is immutable"
_MIXED_CASE = "may have mixed case, but should otherwise match: "
_APPROVAL_SEE = "see https://github.com/kubernetes/enhancements/pull/1111"


def problems_of(
    body: Mapping[str, Any], old: Mapping[str, Any] | None = None
) -> list[Problem]:
    """Return what is wrong with a definition that is about to be stored.

    Args:
        body: The definition, completed with its defaults and status.
        old: What it replaces; None if it is new.
    """
    spec = body["spec"]
    found = list(_new(body) if old is None else ())
    found += _group(spec.get("group") or "")
    found += _scope(spec.get("scope") or "")
    found += _versions(spec)
    found += _names(spec.get("names") or {})
    found += check_parts("spec", shared_parts(spec.get("versions") or []))
    found += _conversion(spec)
    found += _stored_versions(body)
    if old is not None:
        found += _kept(spec, old)

    return [*found, *_approval(body, old)]


def _new(body: Mapping[str, Any]) -> Iterator[Problem]:
    spec, name = body["spec"], body["metadata"].get("name") or ""
    plural = (spec.get("names") or {}).get("plural") or ""
    if name != f"{plural}.{spec.get('group') or ''}":
        yield invalid("metadata.name", name, 'must be spec.names.plural+"."+spec.group')


def _group(group: str) -> Iterator[Problem]:
    found = subdomain_problems(group)
    if not group:
        yield required("spec.group")
    elif found:
        yield from (invalid("spec.group", group, why) for why in found)
    elif "." not in group:
        yield invalid("spec.group", group, "should be a domain with at least one dot")


def _scope(scope: str) -> Iterator[Problem]:
    if not scope:
        yield required("spec.scope")
    elif scope not in {"Cluster", "Namespaced"}:
        yield not_supported("spec.scope", scope, ("Cluster", "Namespaced"))


def _versions(spec: Mapping[str, Any]) -> Iterator[Problem]:
    versions = spec.get("versions") or []
    shared = shared_parts(versions)
    for index, version in enumerate(versions):
        path = f"spec.versions[{index}]"
        name = version.get("name") or ""
        if problem := label_problem(name):
            yield invalid(f"{path}.name", name, problem)

        told = version.get("deprecationWarning")
        if told is not None and not version.get("deprecated"):
            why = "can only be set for deprecated versions"
            yield invalid(f"{path}.deprecationWarning", told, why)

        if not (version.get("schema") or {}).get("openAPIV3Schema"):
            yield required(f"{path}.schema.openAPIV3Schema")

        own = {part: it for part, it in version.items() if part in SHARED_FIELDS}
        yield from check_parts(path, {k: v for k, v in own.items() if k not in shared})

    names = [version.get("name") for version in versions]
    given = spec.get("versions")
    listed = None if given is None else [_internal(it, shared) for it in versions]
    if len(set(names)) < len(names):
        yield _quoting(listed, "must contain unique version names")

    if sum(bool(version.get("storage")) for version in versions) != 1:
        why = "must have exactly one version marked as storage version"
        yield _quoting(listed, why)

    # A real server still keeps the first name in a place of its own, too.
    if names and names[0] and (problem := label_problem(names[0])):
        yield invalid("spec.version", names[0], problem)


def _quoting(versions: list[dict[str, Any]] | None, why: str) -> Problem:
    """Quote all versions, with their fields in order."""
    return Problem("spec.versions", f"Invalid value: {plain(versions).decode()}: {why}")


def _internal(version: Mapping[str, Any], shared: Mapping[str, Any]) -> dict[str, Any]:
    """Write a version as a real server does when it quotes one."""
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


def _names(names: Mapping[str, Any]) -> Iterator[Problem]:
    for field in ("plural", "singular", "kind", "listKind"):
        path, name = f"spec.names.{field}", names.get(field) or ""
        mixed = field in {"kind", "listKind"}
        if not name:
            yield required(path)
        elif problem := label_problem(name.lower() if mixed else name):
            yield invalid(path, name, f"{_MIXED_CASE}{problem}" if mixed else problem)

    for field in ("shortNames", "categories"):
        for index, name in enumerate(names.get(field) or ()):
            if problem := label_problem(name):
                yield invalid(f"spec.names.{field}[{index}]", name, problem)

    kind = names.get("kind")
    if kind and kind == names.get("listKind"):
        why = "kind and listKind may not be the same"
        yield invalid("spec.names.listKind", kind, why)


def _conversion(spec: Mapping[str, Any]) -> Iterator[Problem]:
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


def _stored_versions(body: Mapping[str, Any]) -> Iterator[Problem]:
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


def _kept(spec: Mapping[str, Any], old: Mapping[str, Any]) -> Iterator[Problem]:
    """Check what an update may not change: the more, once objects may exist."""
    before, names = old["spec"], spec.get("names") or {}
    established = holds(old, "Established")
    if established and spec.get("scope") != before["scope"]:
        yield invalid("spec.scope", spec.get("scope") or "", _IMMUTABLE)

    if established and names.get("kind") != before["names"]["kind"]:
        yield invalid("spec.names.kind", names.get("kind") or "", _IMMUTABLE)

    if spec.get("group") != before["group"]:
        yield invalid("spec.group", spec.get("group") or "", _IMMUTABLE)

    if names.get("plural") != before["names"]["plural"]:
        yield invalid("spec.names.plural", names.get("plural") or "", _IMMUTABLE)


def _approval(
    body: Mapping[str, Any], old: Mapping[str, Any] | None
) -> Iterator[Problem]:
    if not is_protected(body["spec"].get("group") or ""):
        return

    given = (body["metadata"].get("annotations") or {}).get(APPROVAL, "")
    before = (old or {}).get("metadata", {}).get("annotations") or {}
    if old is not None and before.get(APPROVAL, "") == given:
        return

    path = f"metadata.annotations[{APPROVAL}]"
    rule = f'protected groups must have approval annotation "{APPROVAL}"'
    if not given:
        yield required(path, f"{rule}, {_APPROVAL_SEE}")
    elif "://" not in given and not given.startswith("unapproved"):
        how = 'with either a URL or a reason starting with "unapproved"'
        yield invalid(path, given, f"{rule} {how}, {_APPROVAL_SEE}")
