"""Validation of webhook configurations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from aioinformer_apiserver.errors import field_errors, names
from aioinformer_apiserver.schema import field_validation as fields
from aioinformer_apiserver.schema.field_validation import as_list

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aioinformer_apiserver.errors.field_errors import FieldError

__all__ = ["validate_mutating_webhooks", "validate_validating_webhooks"]

Object = dict[str, Any]

_OPERATIONS = ("*", "CONNECT", "CREATE", "DELETE", "UPDATE")
_SCOPES = ("*", "Cluster", "Namespaced")
_SIDE_EFFECTS = ("None", "NoneOnDryRun")
_REVIEW_VERSIONS = ("v1", "v1beta1")
_FORM = "; desired format: https://host[/path]"
_LEAST_SECONDS, _MOST_SECONDS = 1, 30
_LEAST_SEGMENTS = 3


def validate_validating_webhooks(body: Object) -> Iterator[FieldError]:
    """Validate a ValidatingWebhookConfiguration."""
    return _validate(body, mutating=False)


def validate_mutating_webhooks(body: Object) -> Iterator[FieldError]:
    """Validate a MutatingWebhookConfiguration."""
    return _validate(body, mutating=True)


def _validate(body: Object, *, mutating: bool) -> Iterator[FieldError]:
    seen: set[str] = set()
    for index, hook in enumerate(as_list(body.get("webhooks"))):
        path = f"webhooks[{index}]"
        yield from _validate_webhook(path, hook, mutating=mutating)
        given = hook.get("admissionReviewVersions")
        yield from _validate_review_versions(f"{path}.admissionReviewVersions", given)
        name = hook.get("name")
        if name and name in seen:
            yield field_errors.duplicate(f"{path}.name", name)

        seen.add(name)


def _validate_webhook(
    path: str, hook: Object, *, mutating: bool
) -> Iterator[FieldError]:
    yield from _validate_name(f"{path}.name", hook.get("name") or "")
    for index, rule in enumerate(as_list(hook.get("rules"))):
        yield from _validate_rule(f"{path}.rules[{index}]", rule)

    yield from _choice(path, hook, "failurePolicy", ("Fail", "Ignore"))
    yield from _choice(path, hook, "matchPolicy", ("Equivalent", "Exact"))
    if hook.get("sideEffects") is None:
        why = f"must specify one of {', '.join(_SIDE_EFFECTS)}"
        yield field_errors.required(f"{path}.sideEffects", why)
    else:
        yield from _choice(path, hook, "sideEffects", _SIDE_EFFECTS)

    seconds = hook.get("timeoutSeconds")
    if seconds is not None and not _LEAST_SECONDS <= seconds <= _MOST_SECONDS:
        why = "the timeout value must be between 1 and 30 seconds"
        yield field_errors.invalid(f"{path}.timeoutSeconds", seconds, why)

    for field in ("namespaceSelector", "objectSelector"):
        yield from fields.selector(f"{path}.{field}", hook.get(field))

    if mutating:
        yield from _choice(path, hook, "reinvocationPolicy", ("IfNeeded", "Never"))

    yield from _validate_client(f"{path}.clientConfig", hook.get("clientConfig") or {})


def _choice(
    path: str, hook: Object, field: str, choices: tuple[str, ...]
) -> Iterator[FieldError]:
    if hook.get(field) is not None:
        yield from fields.one_of(f"{path}.{field}", hook[field], choices)


def _validate_name(path: str, name: str) -> Iterator[FieldError]:
    """Validate a name, which is a domain with at least three segments."""
    problems = names.validate_subdomain(name)
    if not name:
        yield field_errors.required(path)
    elif problems:
        yield field_errors.invalid(path, name, ",".join(problems))
    elif len(name.split(".")) < _LEAST_SEGMENTS:
        why = "should be a domain with at least three segments separated by dots"
        yield field_errors.invalid(path, name, why)


def _validate_rule(path: str, rule: Object) -> Iterator[FieldError]:
    operations = as_list(rule.get("operations"))
    yield from _validate_wildcards(f"{path}.operations", operations, "operations")
    for index, it in enumerate(operations):
        yield from fields.one_of(f"{path}.operations[{index}]", it, _OPERATIONS)

    groups = as_list(rule.get("apiGroups"))
    yield from _validate_wildcards(f"{path}.apiGroups", groups, "API groups")
    versions = as_list(rule.get("apiVersions"))
    yield from _validate_wildcards(f"{path}.apiVersions", versions, "API versions")
    for index, it in enumerate(versions):
        if not it:
            yield field_errors.required(f"{path}.apiVersions[{index}]")

    yield from _validate_resources(f"{path}.resources", as_list(rule.get("resources")))
    if rule.get("scope") is not None:
        yield from fields.one_of(f"{path}.scope", rule["scope"], _SCOPES)


def _validate_wildcards(
    path: str, items: list[str], called: str
) -> Iterator[FieldError]:
    if not items:
        yield field_errors.required(path)
    elif len(items) > 1 and "*" in items:
        why = f"if '*' is present, must not specify other {called}"
        yield field_errors.invalid(path, items, why)


def _validate_resources(path: str, resources: list[str]) -> Iterator[FieldError]:
    if not resources:
        yield field_errors.required(path)

    whole: set[str] = set()
    everywhere: set[str] = set()
    plain = False
    for index, it in enumerate(resources):
        if not it:
            yield field_errors.required(f"{path}[{index}]")
            continue

        name, slash, part = it.partition("/")
        if not slash:
            plain = it != "*"
            continue

        if name in whole:
            why = f"if '{name}/*' is present, must not specify {it}"
            yield field_errors.invalid(f"{path}[{index}]", it, why)

        if part in everywhere:
            why = f"if '*/{part}' is present, must not specify {it}"
            yield field_errors.invalid(f"{path}[{index}]", it, why)

        if part == "*":
            whole.add(name)

        if name == "*":
            everywhere.add(part)

    if len(resources) > 1 and "*/*" in resources:
        why = "if '*/*' is present, must not specify other resources"
        yield field_errors.invalid(path, resources, why)

    if "*" in resources and plain:
        why = "if '*' is present, must not specify other resources without subresources"
        yield field_errors.invalid(path, resources, why)


def _validate_client(path: str, config: Object) -> Iterator[FieldError]:
    url, service = config.get("url"), config.get("service")
    if (url is None) == (service is None):
        why = "exactly one of url or service is required"
        yield field_errors.required(path, why)
    elif url is not None:
        yield from _validate_url(f"{path}.url", url)
    else:
        yield from _validate_service(f"{path}.service", service or {})


def _validate_url(path: str, url: str) -> Iterator[FieldError]:
    parts = urlsplit(url)
    if parts.scheme != "https":
        why = f"'https' is the only allowed URL scheme{_FORM}"
        yield field_errors.invalid(path, parts.scheme, why)

    user, at, host = parts.netloc.rpartition("@")
    if not host:
        yield field_errors.invalid(path, "", f"host must be specified{_FORM}")

    if at:
        why = "user information is not permitted in the URL"
        yield field_errors.invalid(path, user, why)

    if parts.fragment:
        why = "fragments are not permitted in the URL"
        yield field_errors.invalid(path, parts.fragment, why)

    if parts.query:
        why = "query parameters are not permitted in the URL"
        yield field_errors.invalid(path, parts.query, why)


def _validate_service(path: str, service: Object) -> Iterator[FieldError]:
    # A real server reports a missing name as a missing namespace, and vice versa.
    if not service.get("namespace"):
        yield field_errors.required(f"{path}.name")

    if not service.get("name"):
        yield field_errors.required(f"{path}.namespace")

    for error in fields.port_number(f"{path}.port", service.get("port", 443)):
        why = (
            f"port is not valid: {error.message.partition(': ')[2].partition(': ')[2]}"
        )
        yield field_errors.invalid(f"{path}.port", service["port"], why)

    given = service.get("path")
    if given not in (None, "", "/"):
        yield from _validate_path(f"{path}.path", given)


def _validate_path(path: str, given: str) -> Iterator[FieldError]:
    if given == "//":
        yield field_errors.invalid(path, given, "segment[0] may not be empty")
        return

    if not given.startswith("/"):
        yield field_errors.invalid(path, given, "must start with a '/'")

    for index, segment in enumerate(given[1:].removesuffix("/").split("/")):
        if not segment:
            why = f"segment[{index}] may not be empty"
            yield field_errors.invalid(path, given, why)
            continue

        for problem in names.validate_subdomain(segment):
            yield field_errors.invalid(path, given, f"segment[{index}]: {problem}")


def _validate_review_versions(path: str, versions: Any) -> Iterator[FieldError]:
    given, seen = as_list(versions), set()
    known = ", ".join(_REVIEW_VERSIONS)
    if not given:
        yield field_errors.required(path, f"must specify one of {known}")
        return

    for index, it in enumerate(given):
        if it in seen:
            yield field_errors.invalid(f"{path}[{index}]", it, "duplicate version")

        seen.add(it)

    if not seen & set(_REVIEW_VERSIONS):
        why = f"must include at least one of {known}"
        yield field_errors.invalid(path, given, why)
