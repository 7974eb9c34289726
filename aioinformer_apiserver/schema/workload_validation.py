"""Validation of workloads: Deployments, Jobs, and other owners of pods."""

from __future__ import annotations

import re
import zoneinfo
from typing import TYPE_CHECKING, Any

from aioinformer_apiserver.errors import field_errors
from aioinformer_apiserver.errors.field_errors import GoStruct
from aioinformer_apiserver.schema import field_validation as fields
from aioinformer_apiserver.schema.field_validation import as_list
from aioinformer_apiserver.schema.pod_validation import validate_pod_template

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from aioinformer_apiserver.errors.field_errors import FieldError

__all__ = [
    "validate_autoscaler",
    "validate_cron_job",
    "validate_daemon_set",
    "validate_deployment",
    "validate_disruption_budget",
    "validate_job",
    "validate_pod_template_object",
    "validate_replica_set",
    "validate_replication_controller",
    "validate_stateful_set",
]

Object = dict[str, Any]

_MISMATCH = "`selector` does not match template `labels`"
_UPDATE_TYPES = ("RollingUpdate", "OnDelete")


def validate_deployment(body: Object) -> Iterator[FieldError]:
    """Validate a Deployment."""
    spec = body.get("spec") or {}
    yield from fields.at_least("spec.replicas", spec.get("replicas"))
    if spec.get("selector") is None:
        yield field_errors.required("spec.selector")
    else:
        yield from _validate_selector(spec["selector"], "deployment")

    yield from _validate_template_and_selector(spec)
    yield from _validate_strategy(spec.get("strategy") or {})
    for field in ("minReadySeconds", "revisionHistoryLimit"):
        yield from fields.at_least(f"spec.{field}", spec.get(field))

    deadline, ready = (
        spec.get("progressDeadlineSeconds"),
        spec.get("minReadySeconds", 0),
    )
    if deadline is not None and deadline <= ready:
        why = "must be greater than minReadySeconds"
        yield field_errors.invalid("spec.progressDeadlineSeconds", deadline, why)


def validate_replica_set(body: Object) -> Iterator[FieldError]:
    """Validate a ReplicaSet."""
    spec = body.get("spec") or {}
    yield from fields.at_least("spec.replicas", spec.get("replicas"))
    yield from fields.at_least("spec.minReadySeconds", spec.get("minReadySeconds"))
    if spec.get("selector") is None:
        yield field_errors.required("spec.selector")
    else:
        yield from _validate_selector(spec["selector"], "deployment")

    yield from _validate_template_and_selector(spec)


def validate_stateful_set(body: Object) -> Iterator[FieldError]:
    """Validate a StatefulSet."""
    spec = body.get("spec") or {}
    policy = spec.get("podManagementPolicy")
    if policy not in {"OrderedReady", "Parallel"}:
        why = "must be 'OrderedReady' or 'Parallel'"
        yield field_errors.invalid("spec.podManagementPolicy", policy, why)

    strategy = spec.get("updateStrategy") or {}
    rolling = strategy.get("rollingUpdate")
    if strategy.get("type") not in _UPDATE_TYPES:
        shown = GoStruct({"Type": strategy.get("type", ""), "RollingUpdate": rolling})
        why = "must be 'RollingUpdate' or 'OnDelete'"
        yield field_errors.invalid("spec.updateStrategy", shown, why)
    elif rolling is not None:
        where = "spec.updateStrategy.rollingUpdate.partition"
        yield from fields.at_least(where, rolling.get("partition"))

    for field in ("replicas", "minReadySeconds"):
        yield from fields.at_least(f"spec.{field}", spec.get(field))

    if spec.get("selector") is None:
        yield field_errors.required("spec.selector")
    else:
        yield from _validate_selector(spec["selector"], "statefulset")

    yield from _validate_template_and_selector(spec)
    if spec.get("serviceName"):
        yield from fields.dns_label("spec.serviceName", spec["serviceName"])


def validate_daemon_set(body: Object) -> Iterator[FieldError]:
    """Validate a DaemonSet."""
    spec = body.get("spec") or {}
    if spec.get("selector") is not None:
        yield from _validate_selector(spec["selector"], "daemonset")

    yield from _validate_template_and_selector(spec)
    for field in ("minReadySeconds", "revisionHistoryLimit"):
        yield from fields.at_least(f"spec.{field}", spec.get(field))

    strategy = spec.get("updateStrategy") or {}
    rolling = strategy.get("rollingUpdate") or {}
    if strategy.get("type") not in _UPDATE_TYPES:
        shown = GoStruct({"Type": strategy.get("type", ""), "RollingUpdate": None})
        yield field_errors.not_supported("spec.updateStrategy", shown, _UPDATE_TYPES)
    elif strategy["type"] == "RollingUpdate":
        where = "spec.updateStrategy.rollingUpdate"
        for field in ("maxUnavailable", "maxSurge"):
            yield from fields.percent_or_count(
                f"{where}.{field}", rolling.get(field, 0)
            )

        if _is_nothing(rolling.get("maxUnavailable")) and _is_nothing(
            rolling.get("maxSurge")
        ):
            why = "cannot be 0 when maxSurge is 0"
            yield field_errors.required(f"{where}.maxUnavailable", why)


def validate_replication_controller(body: Object) -> Iterator[FieldError]:
    """Validate a ReplicationController."""
    spec = body.get("spec") or {}
    for field in ("minReadySeconds", "replicas"):
        yield from fields.at_least(f"spec.{field}", spec.get(field))

    selector, template = spec.get("selector") or {}, spec.get("template")
    if not selector:
        yield field_errors.required("spec.selector")

    if template is None:
        yield field_errors.required("spec.template")
        return

    labels = (template.get("metadata") or {}).get("labels")
    if not selector.items() <= (labels or {}).items():
        yield field_errors.invalid("spec.template.metadata.labels", labels, _MISMATCH)

    yield from validate_pod_template("spec.template", template)
    yield from _validate_restart_policy(template, ("Always",))


def validate_pod_template_object(body: Object) -> Iterator[FieldError]:
    """Validate a PodTemplate."""
    yield from validate_pod_template("template", body.get("template") or {})


def _validate_selector(selector: Object, kind: str) -> Iterator[FieldError]:
    found = list(fields.selector("spec.selector", selector))
    yield from found
    if not selector:
        why = f"empty selector is invalid for {kind}"
        yield field_errors.invalid("spec.selector", {}, why)
    elif found and kind == "deployment":
        yield field_errors.invalid("spec.selector", selector, "invalid label selector")


def _validate_template_and_selector(spec: Object) -> Iterator[FieldError]:
    """Validate the template, and that the selector matches its labels."""
    template = spec.get("template") or {}
    labels = (template.get("metadata") or {}).get("labels")
    selector = spec.get("selector")
    empty = selector is not None and not selector
    broken = bool(list(fields.selector("", selector)))
    if not empty and not broken and not fields.matches_selector(selector, labels or {}):
        yield field_errors.invalid("spec.template.metadata.labels", labels, _MISMATCH)

    yield from validate_pod_template("spec.template", template)
    yield from _validate_restart_policy(template, ("Always",))
    if (template.get("spec") or {}).get("activeDeadlineSeconds") is not None:
        why = "activeDeadlineSeconds in ReplicaSet is not Supported"
        yield field_errors.forbidden("spec.template.spec.activeDeadlineSeconds", why)


def _validate_restart_policy(
    template: Object, choices: Collection[str]
) -> Iterator[FieldError]:
    policy = (template.get("spec") or {}).get("restartPolicy")
    yield from fields.one_of("spec.template.spec.restartPolicy", policy, choices)


def _validate_strategy(strategy: Object) -> Iterator[FieldError]:
    kind, rolling = strategy.get("type"), strategy.get("rollingUpdate")
    where = "spec.strategy.rollingUpdate"
    if kind == "Recreate":
        if rolling is not None:
            why = "may not be specified when strategy `type` is 'Recreate'"
            yield field_errors.forbidden(where, why)
    elif kind == "RollingUpdate":
        rolling = rolling or {}
        fewer, more = rolling.get("maxUnavailable", 0), rolling.get("maxSurge", 0)
        yield from fields.percent_or_count(f"{where}.maxUnavailable", fewer)
        yield from fields.percent_or_count(f"{where}.maxSurge", more)
        if _is_nothing(fewer) and _is_nothing(more):
            why = "may not be 0 when `maxSurge` is 0"
            yield field_errors.invalid(f"{where}.maxUnavailable", fewer, why)

        if _percent(fewer) > 100:
            why = "must not be greater than 100%"
            yield field_errors.invalid(f"{where}.maxUnavailable", fewer, why)
    else:
        shown = GoStruct({"Type": kind or "", "RollingUpdate": rolling})
        choices = ("Recreate", "RollingUpdate")
        yield field_errors.not_supported("spec.strategy", shown, choices)


def _is_nothing(value: Any) -> bool:
    return value in {None, 0, "0%"}


def _percent(value: Any) -> int:
    is_percent = isinstance(value, str) and re.fullmatch("[0-9]+%", value)
    return int(value[:-1]) if is_percent else 0


# ---------------------------------------------------------------- jobs


def validate_job(body: Object) -> Iterator[FieldError]:
    """Validate a Job with its selector."""
    spec = body.get("spec") or {}
    yield from _validate_job_spec("spec", spec)
    selector = spec.get("selector")
    if selector is None:
        yield field_errors.required("spec.selector")
    else:
        yield from fields.selector("spec.selector", selector)
        if not spec.get("manualSelector"):
            uid = (body.get("metadata") or {}).get("uid")
            own = {"matchLabels": {"batch.kubernetes.io/controller-uid": uid}}
            if selector != own:
                why = "`selector` not auto-generated"
                yield field_errors.invalid("spec.selector", selector, why)

    labels = ((spec.get("template") or {}).get("metadata") or {}).get("labels")
    if not fields.matches_selector(selector, labels or {}):
        yield field_errors.invalid("spec.template.metadata.labels", labels, _MISMATCH)


def validate_cron_job(body: Object) -> Iterator[FieldError]:
    """Validate a CronJob."""
    spec = body.get("spec") or {}
    schedule = spec.get("schedule", "")
    if not schedule:
        yield field_errors.required("spec.schedule")
    else:
        yield from _validate_schedule(schedule)

    where = "spec.startingDeadlineSeconds"
    yield from fields.at_least(where, spec.get("startingDeadlineSeconds"))
    zone = spec.get("timeZone")
    if zone is not None and not _is_zone(zone):
        yield field_errors.invalid("spec.timeZone", zone, f"unknown time zone {zone}")

    policy, policies = spec.get("concurrencyPolicy"), ("Allow", "Forbid", "Replace")
    yield from fields.one_of("spec.concurrencyPolicy", policy, policies)
    job = (spec.get("jobTemplate") or {}).get("spec") or {}
    yield from _validate_job_spec("spec.jobTemplate.spec", job)
    for field in ("successfulJobsHistoryLimit", "failedJobsHistoryLimit"):
        yield from fields.at_least(f"spec.{field}", spec.get(field))


def _is_zone(name: str) -> bool:
    try:
        zoneinfo.ZoneInfo(name)
    except (ValueError, OSError, zoneinfo.ZoneInfoNotFoundError):
        return False

    return True


def _validate_schedule(schedule: str) -> Iterator[FieldError]:
    if "TZ" in schedule:
        why = "cannot use TZ or CRON_TZ in schedule, use timeZone field instead"
        yield field_errors.invalid("spec.schedule", schedule, why)
    elif not schedule.startswith("@"):
        parts = schedule.split()
        if len(parts) != 5:
            given = f"[{' '.join(parts)}]"
            why = f"expected exactly 5 fields, found {len(parts)}: {given}"
            yield field_errors.invalid("spec.schedule", schedule, why)


def _validate_job_spec(path: str, spec: Object) -> Iterator[FieldError]:
    for field in _JOB_NUMBERS:
        yield from fields.at_least(f"{path}.{field}", spec.get(field))

    mode, modes = spec.get("completionMode"), ("NonIndexed", "Indexed")
    if mode is not None:
        yield from fields.one_of(f"{path}.completionMode", mode, modes)

    if mode == "Indexed" and "completions" not in spec:
        why = "when completion mode is Indexed"
        yield field_errors.required(f"{path}.completions", why)

    if "backoffLimitPerIndex" in spec and mode != "Indexed":
        limit, why = spec["backoffLimitPerIndex"], "requires indexed completion mode"
        yield field_errors.invalid(f"{path}.backoffLimitPerIndex", limit, why)

    policy = spec.get("podReplacementPolicy")
    if policy is not None:
        where, policies = f"{path}.podReplacementPolicy", ("Failed", _TERMINATING)
        yield from fields.one_of(where, policy, policies)

    template = spec.get("template") or {}
    yield from validate_pod_template(f"{path}.template", template)
    restart = (template.get("spec") or {}).get("restartPolicy")
    if restart not in {"OnFailure", "Never"}:
        where = f"{path}.template.spec.restartPolicy"
        yield field_errors.required(where, 'valid values: "OnFailure", "Never"')


_TERMINATING = "TerminatingOrFailed"
_JOB_NUMBERS = (
    "parallelism",
    "completions",
    "activeDeadlineSeconds",
    "backoffLimit",
    "ttlSecondsAfterFinished",
)


# ---------------------------------------------------------------- disruption budgets
# and autoscalers


def validate_disruption_budget(body: Object) -> Iterator[FieldError]:
    """Validate a PodDisruptionBudget."""
    spec = body.get("spec") or {}
    fewest, most = spec.get("minAvailable"), spec.get("maxUnavailable")
    if fewest is not None and most is not None:
        shown = GoStruct(
            {
                "MinAvailable": fewest,
                "Selector": spec.get("selector"),
                "MaxUnavailable": most,
                "UnhealthyPodEvictionPolicy": spec.get("unhealthyPodEvictionPolicy"),
            }
        )
        why = "minAvailable and maxUnavailable cannot be both set"
        yield field_errors.invalid("spec", shown, why)

    for field, value in (("minAvailable", fewest), ("maxUnavailable", most)):
        if value is not None:
            yield from fields.percent_or_count(f"spec.{field}", value)
            if _percent(value) > 100:
                why = "must not be greater than 100%"
                yield field_errors.invalid(f"spec.{field}", value, why)

    policy = spec.get("unhealthyPodEvictionPolicy")
    if policy is not None:
        choices = ("AlwaysAllow", "IfHealthyBudget")
        yield from fields.one_of("spec.unhealthyPodEvictionPolicy", policy, choices)

    yield from fields.selector("spec.selector", spec.get("selector"))


def validate_autoscaler(body: Object) -> Iterator[FieldError]:
    """Validate a HorizontalPodAutoscaler."""
    spec = body.get("spec") or {}
    fewest, most = spec.get("minReplicas"), spec.get("maxReplicas", 0)
    yield from fields.at_least("spec.minReplicas", fewest, 1)
    if most < 1:
        why = "must be set and greater than 0"
        yield field_errors.required("spec.maxReplicas", why)

    if fewest is not None and most < fewest:
        why = "must be greater than or equal to `minReplicas`"
        yield field_errors.invalid("spec.maxReplicas", most, why)

    target = spec.get("scaleTargetRef") or {}
    for field in ("kind", "name"):
        if not target.get(field):
            yield field_errors.required(f"spec.scaleTargetRef.{field}")

    version = target.get("apiVersion", "")
    if not version:
        why = "apiVersion must specify API group"
        yield field_errors.invalid("spec.scaleTargetRef.apiVersion", version, why)

    kinds = ("ContainerResource", "External", "Object", "Pods", "Resource")
    metrics = as_list(spec.get("metrics"))
    if fewest == 0 and not {"Object", "External"} & {it.get("type") for it in metrics}:
        why = "must specify at least one Object or External metric to support scaling "
        yield field_errors.forbidden("spec.metrics", f"{why}to zero replicas")

    for index, it in enumerate(metrics):
        where = f"spec.metrics[{index}].type"
        yield from fields.one_of(where, it.get("type", ""), kinds)
