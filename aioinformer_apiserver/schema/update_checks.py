"""Update checks: what a real server lets nobody change."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aioinformer_apiserver.schema import findings
from aioinformer_apiserver.schema.field_checks import listed
from aioinformer_apiserver.schema.findings import GoStruct, shown

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aioinformer_apiserver.errors.field_errors import Problem

__all__ = [
    "binding_changes",
    "claim_changes",
    "data_changes",
    "immutable_fields",
    "job_changes",
    "node_changes",
    "pod_changes",
    "priority_class_changes",
    "selector_changes",
    "service_changes",
    "stateful_set_changes",
    "volume_changes",
]

Object = dict[str, Any]

_POD_FIELDS = (
    "`spec.containers[*].image`,`spec.initContainers[*].image`,"
    "`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing "
    "tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it "
    "was previously negative)"
)
_SET_FIELDS = (
    "replicas",
    "ordinals",
    "template",
    "updateStrategy",
    "revisionHistoryLimit",
    "persistentVolumeClaimRetentionPolicy",
    "minReadySeconds",
)


def _differ(old: Any, new: Any) -> bool:
    return shown(old) != shown(new)


def _specs(old: Object, new: Object) -> tuple[Object, Object]:
    return old.get("spec") or {}, new.get("spec") or {}


def immutable_fields(old: Object, new: Object, *fields: str) -> Iterator[Problem]:
    """Refuse another value of some fields, which are paths with dots."""
    for path in fields:
        before, after = _at(old, path), _at(new, path)
        if _differ(before, after):
            yield findings.immutable(path, after)


def _at(body: Object, path: str) -> Any:
    value: Any = body
    for name in path.split("."):
        value = value.get(name) if isinstance(value, dict) else None

    return value


# ---------------------------------------------------------------- pods


def pod_changes(old: Object, new: Object) -> Iterator[Problem]:
    """Refuse what would make it another Pod."""
    before, after = _specs(old, new)
    for field in ("containers", "initContainers"):
        if len(listed(before.get(field))) != len(listed(after.get(field))):
            why = "pod updates may not add or remove containers"
            yield findings.forbidden(f"spec.{field}", why)
            return

    for field in ("containers", "initContainers"):
        for index, it in enumerate(listed(after.get(field))):
            if not it.get("image"):
                yield findings.required(f"spec.{field}[{index}].image")

    late = _deadline_problem(before, after)
    if late is not None:
        yield late
        if after.get("activeDeadlineSeconds") is not None:
            return

    yield from _toleration_changes(before, after)
    yield from _gate_changes(before, after)
    if _differ(before, _with_allowed_changes(before, after)):
        why = f"pod updates may not change fields other than {_POD_FIELDS}"
        yield findings.forbidden("spec", why)


def _deadline_problem(before: Object, after: Object) -> Problem | None:
    path = "spec.activeDeadlineSeconds"
    old, new = before.get("activeDeadlineSeconds"), after.get("activeDeadlineSeconds")
    if new is None:
        why = "must not update from a positive integer to nil value"
        return findings.invalid(path, None, why) if old is not None else None

    if old is not None and old < new:
        why = "must be less than or equal to previous value"
        return findings.invalid(path, new, why)

    return None


def _toleration_changes(before: Object, after: Object) -> Iterator[Problem]:
    """Accept further tolerations, and other times to tolerate."""
    kept = {shown(_timeless(it)) for it in listed(after.get("tolerations"))}
    if any(
        shown(_timeless(it)) not in kept for it in listed(before.get("tolerations"))
    ):
        why = "existing toleration can not be modified except its tolerationSeconds"
        yield findings.forbidden("spec.tolerations", why)


def _timeless(toleration: Object) -> Object:
    return {k: it for k, it in toleration.items() if k != "tolerationSeconds"}


def _gate_changes(before: Object, after: Object) -> Iterator[Problem]:
    known = {it.get("name") for it in listed(before.get("schedulingGates"))}
    for index, it in enumerate(listed(after.get("schedulingGates"))):
        if it.get("name") not in known:
            why = "only deletion is allowed, but found new scheduling gate "
            path = f"spec.schedulingGates[{index}].name"
            yield findings.forbidden(path, f"{why}'{it.get('name')}'")


def _with_allowed_changes(before: Object, after: Object) -> Object:
    """Undo what may be changed, so that what remains may not."""
    found = dict(after)
    for field in ("containers", "initContainers"):
        pairs = zip(listed(after.get(field)), listed(before.get(field)), strict=True)
        if field in after:
            found[field] = [_with_image(new, old.get("image")) for new, old in pairs]

    undone = ["activeDeadlineSeconds", "schedulingGates", "tolerations"]
    if before.get("schedulingGates"):
        # Nobody has looked for a node yet, so that the choice may be narrowed.
        undone += ["nodeSelector", "affinity"]

    if before.get("terminationGracePeriodSeconds", 0) < 0:
        undone.append("terminationGracePeriodSeconds")

    for field in undone:
        found.pop(field, None)
        if field in before:
            found[field] = before[field]

    return found


def _with_image(container: Object, image: str | None) -> Object:
    return {**container, "image": image}


# ---------------------------------------------------------------- workloads


def selector_changes(old: Object, new: Object) -> Iterator[Problem]:
    """Refuse another selector: the pods found so far would be lost."""
    yield from immutable_fields(old, new, "spec.selector")


def stateful_set_changes(old: Object, new: Object) -> Iterator[Problem]:
    """Refuse what cannot be done to the pods and volumes that are there."""
    kept = [
        {k: it for k, it in s.items() if k not in _SET_FIELDS} for s in _specs(old, new)
    ]
    if _differ(*kept):
        *others, last = (f"'{it}'" for it in _SET_FIELDS)
        why = "updates to statefulset spec for fields other than "
        why += f"{', '.join(others)} and {last} are forbidden"
        yield findings.forbidden("spec", why)


def job_changes(old: Object, new: Object) -> Iterator[Problem]:
    """Refuse what would make it another Job."""
    before, after = _specs(old, new)
    elastic = (
        after.get("completionMode") == "Indexed"
        and after.get("completions") == after.get("parallelism")
        and before.get("completions") is not None
    )
    if not elastic:
        yield from immutable_fields(old, new, "spec.completions")

    yield from immutable_fields(old, new, "spec.selector")
    suspended = before.get("suspend") and not (old.get("status") or {}).get("startTime")
    if not suspended:
        yield from immutable_fields(old, new, "spec.template")

    yield from immutable_fields(
        old,
        new,
        "spec.completionMode",
        "spec.podFailurePolicy",
        "spec.backoffLimitPerIndex",
    )


# ---------------------------------------------------------------- the others


def service_changes(old: Object, new: Object) -> Iterator[Problem]:
    """Refuse another address: whoever knows the first one would not find it."""
    before, after = _specs(old, new)
    if "ExternalName" in {before.get("type"), after.get("type")}:
        return

    had, has = listed(before.get("clusterIPs")), listed(after.get("clusterIPs"))
    if had and has and had[0] != has[0]:
        yield findings.invalid("spec.clusterIPs[0]", has, "may not change once set")


def data_changes(old: Object, new: Object) -> Iterator[Problem]:
    """Refuse other data in what has been declared immutable."""
    if not old.get("immutable"):
        return

    why = "field is immutable when `immutable` is set"
    if not new.get("immutable"):
        yield findings.forbidden("immutable", why)

    for field in ("data", "binaryData"):
        if _differ(old.get(field) or {}, new.get(field) or {}):
            yield findings.forbidden(field, why)


def claim_changes(old: Object, new: Object) -> Iterator[Problem]:
    """Refuse what would make a claim ask for another volume."""
    before, after = _specs(old, new)
    after = dict(after)
    if not before.get("volumeName"):
        after.pop("volumeName", None)

    if not before.get("storageClassName") and not before.get("volumeName"):
        # A default class may have appeared since then.
        after.pop("storageClassName", None)

    bound = (old.get("status") or {}).get("phase") == "Bound"
    if bound:
        for field in ("resources", "volumeAttributesClassName"):
            after.pop(field, None)
            if field in before:
                after[field] = before[field]

    if _differ(before, after):
        why = "spec is immutable after creation except resources.requests and "
        why += "volumeAttributesClassName for bound claims"
        yield findings.forbidden("spec", why)

    if before.get("volumeMode") != after.get("volumeMode"):
        yield findings.immutable("volumeMode", after.get("volumeMode"))


def volume_changes(old: Object, new: Object) -> Iterator[Problem]:
    """Refuse another place of a volume's data."""
    before, after = _specs(old, new)
    if _differ(
        *({k: s.get(k) for k in _sources(before, after)} for s in (before, after))
    ):
        where = "spec.persistentvolumesource"
        yield findings.forbidden(where, f"{where} is immutable after creation")

    if before.get("volumeMode") != after.get("volumeMode"):
        yield findings.immutable("volumeMode", after.get("volumeMode"))


# What of a PersistentVolume's spec is not about where its data are.
_NO_SOURCES = {
    "accessModes",
    "capacity",
    "claimRef",
    "mountOptions",
    "nodeAffinity",
    "persistentVolumeReclaimPolicy",
    "storageClassName",
    "volumeAttributesClassName",
    "volumeMode",
}


def _sources(before: Object, after: Object) -> list[str]:
    return sorted((before.keys() | after.keys()) - _NO_SOURCES)


def priority_class_changes(old: Object, new: Object) -> Iterator[Problem]:
    """Refuse another priority of pods that were promised theirs."""
    if old.get("value", 0) != new.get("value", 0):
        yield findings.forbidden("value", "may not be changed in an update.")

    yield from immutable_fields(old, new, "preemptionPolicy")


def binding_changes(old: Object, new: Object) -> Iterator[Problem]:
    """Refuse another role."""
    role = new.get("roleRef") or {}
    if _differ(old.get("roleRef"), new.get("roleRef")):
        names = (("APIGroup", "apiGroup"), ("Kind", "kind"), ("Name", "name"))
        told = GoStruct({title: role.get(field, "") for title, field in names})
        yield findings.invalid("roleRef", told, "cannot change roleRef")


def node_changes(old: Object, new: Object) -> Iterator[Problem]:
    """Refuse another network or provider, once there is one."""
    before, after = _specs(old, new)
    for field, name in (("podCIDRs", "podCIDR"), ("providerID", "providerID")):
        if before.get(field) and before[field] != after.get(field):
            why = f'node updates may not change {name} except from "" to valid'
            yield findings.forbidden(f"spec.{field}", why)
