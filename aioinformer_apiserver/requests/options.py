"""Options of writes and deletions, and their results. Pure."""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from aioinformer_apiserver.errors import statuses
from aioinformer_apiserver.errors.go_format import VERSION_STRUCT, json_type
from aioinformer_apiserver.errors.statuses import StatusCause
from aioinformer_apiserver.patches.managed_fields import manager_of
from aioinformer_apiserver.requests.queries import flag
from aioinformer_apiserver.schema.go_types import GoDecodeError, struct_decoder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from aioinformer_apiserver.patches.patch_types import PatchType
    from aioinformer_apiserver.requests.admission import Admission
    from aioinformer_apiserver.requests.request import APIRequest
    from aioinformer_apiserver.storage.kinds import Kind
    from aioinformer_apiserver.storage.storage import StoredObject

__all__ = [
    "DeleteOptions",
    "DeleteResult",
    "FieldValidation",
    "Part",
    "Propagation",
    "WriteOptions",
    "WriteResult",
    "convert_delete_options",
    "delete_options_of",
    "patch_type_of",
    "write_options_of",
]

_PATCH_TYPES: dict[str, PatchType] = {
    "application/json-patch+json": "json",
    "application/merge-patch+json": "merge",
    "application/strategic-merge-patch+json": "strategic",
    "application/apply-patch+yaml": "apply",
}

# Kinds of the options in error messages, by method.
_OPTIONS = {"POST": "CreateOptions", "PUT": "UpdateOptions", "PATCH": "PatchOptions"}
_META = "meta.k8s.io/v1"
_MANAGER_BYTES = 128
_DELETE_OPTIONS = "io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions"
# No number with more digits fits into 64 bits.
_INTEGER = re.compile("[+-]?[0-9]{1,40}")
_INT64_BOUND = 2**63


# Part of an object that a write changes. "main" does not change the status if there is
# a status subresource, and "status" changes nothing else. "finalize" also changes the
# finalizers in the spec of a namespace. "all" is for objects that tests arrange: they
# get defaults, but are not validated by the schema.
Part = Literal["main", "status", "finalize", "all"]
# Treatment of unknown fields: an error, dropped with a warning, dropped.
FieldValidation = Literal["Strict", "Warn", "Ignore"]
# Treatment of dependent objects; empty for the default of the kind.
Propagation = Literal["", "Background", "Foreground", "Orphan"]


def _ignore_warning(warning: str) -> None:
    """Ignore a warning."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions:
    """Options of a create, update or patch."""

    part: Part = "main"
    """Part of the object that may change."""

    dry_run: bool = False
    """True to validate the object and set defaults, but store nothing."""

    manager: str = ""
    """Field manager of the changed fields in `metadata.managedFields`."""

    field_validation: FieldValidation = "Warn"
    """Treatment of unknown and duplicate fields."""

    force: bool = False
    """True to let a server-side apply take fields of other managers."""

    duplicate_fields: tuple[str, ...] = ()
    """Paths of duplicate fields in the JSON, which decoding has dropped."""

    warn: Callable[[str], object] = field(default=_ignore_warning, compare=False)
    """Receiver of warnings for the user, even if the write fails later."""

    admission: Admission | None = field(default=None, compare=False)
    """Admission by webhooks; None without any."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteOptions:
    """Options of a deletion."""

    dry_run: bool = False
    """True to validate the request, but delete nothing."""

    uid: str = ""
    """Precondition on the uid; empty for none."""

    version: str = ""
    """Precondition on the resource version; empty for none."""

    grace_seconds: int | None = None
    """Grace period of a pod; None for the one in its spec."""

    propagation: Propagation = ""
    """Treatment of dependent objects."""

    immediate: bool = False
    """True to delete a pod in one step, without marking it first. Not available over HTTP."""

    warn: Callable[[str], object] = field(default=_ignore_warning, compare=False)
    """Receiver of warnings for the user, even if the deletion fails later."""

    admission: Admission | None = field(default=None, compare=False)
    """Admission by webhooks; None without any."""


@dataclass(frozen=True, slots=True)
class WriteResult:
    """Result of a write.

    Attributes:
        stored: Object after the write; in a dry run, as it would be.
        created: True if the object did not exist before.
    """

    stored: StoredObject
    created: bool = False


@dataclass(frozen=True, slots=True)
class DeleteResult:
    """Result of a deletion.

    Attributes:
        stored: Object that is marked for deletion, or the last state of a deleted one.
        returned: True if the response is the object, False if it is a Status.
        removed: True if the object is removed, or would be without the dry run.
    """

    stored: StoredObject
    returned: bool
    removed: bool = False


def write_options_of(
    request: APIRequest, part: Part, *, patch_type: PatchType | None = None
) -> WriteOptions:
    """Parse the options of a create, update or patch.

    Args:
        request: The request.
        part: Part of the object that the write may change.
        patch_type: Type of a patch; None for other writes.

    Raises:
        ApiError: 422 for invalid options.
    """
    query = request.query
    validation = query.get("fieldValidation") or "Warn"
    manager = query.get("fieldManager", "")
    causes = [
        *_validate_dry_run(_dry_run(request, {})),
        *_validate_manager(manager, required=patch_type == "apply"),
    ]
    if "force" in query and patch_type not in {None, "apply"}:
        why = "Forbidden: may not be specified for non-apply patch"
        causes.append(StatusCause("force", "FieldValueForbidden", why))

    checked: FieldValidation = "Warn"
    match validation:
        case "Strict" | "Warn" | "Ignore":
            checked = validation
        case _:
            choices = ("", "Ignore", "Strict", "Warn")
            causes.append(_unsupported("fieldValidation", validation, choices))

    if causes:
        raise statuses.invalid_options(causes, _OPTIONS[request.method])

    return WriteOptions(
        part=part,
        dry_run=bool(_dry_run(request, {})),
        manager=manager_of(request.headers.get("User-Agent", ""), manager),
        field_validation=checked,
        force=patch_type == "apply" and flag(query, "force"),
        duplicate_fields=() if checked == "Ignore" else _find_duplicate_fields(request),
        warn=request.warnings.append,
        admission=request.admission,
    )


def patch_type_of(request: APIRequest, kind: Kind) -> PatchType:
    """Return the type of a patch.

    Raises:
        ApiError: 415, if the kind does not support such patches.
    """
    accepted = [it for it in _PATCH_TYPES if kind.typed or "strategic" not in it]
    if request.content_type not in accepted:
        if kind.typed:
            raise statuses.unsupported_by_route()

        raise statuses.unsupported_media_type(*accepted)

    return _PATCH_TYPES[request.content_type]


def delete_options_of(request: APIRequest) -> DeleteOptions:
    """Parse the options of a deletion from its body, or from the URL without a body.

    Raises:
        ApiError: 400 or 422 for invalid options.
    """
    options = _delete_body(request) if request.body else _options_in_url(request.query)
    return convert_delete_options(options, request)


def convert_delete_options(
    options: Mapping[str, Any], request: APIRequest
) -> DeleteOptions:
    """Parse decoded DeleteOptions.

    Args:
        options: Decoded object of kind DeleteOptions.
        request: The request, whose URL may also request a dry run.

    Raises:
        ApiError: 422 for invalid options.
    """
    propagation, causes = _propagation(options)
    dry_run = _dry_run(request, options)
    causes += _validate_dry_run(dry_run)
    if causes:
        raise statuses.invalid_options(causes, "DeleteOptions")

    preconditions = options.get("preconditions") or {}
    return DeleteOptions(
        dry_run=bool(dry_run),
        uid=preconditions.get("uid") or "",
        version=preconditions.get("resourceVersion") or "",
        grace_seconds=options.get("gracePeriodSeconds"),
        propagation=propagation,
        warn=request.warnings.append,
        admission=request.admission,
    )


def _delete_body(request: APIRequest) -> Mapping[str, Any]:
    options = request.document()
    if not isinstance(options, dict):
        message = "couldn't get version/kind; json parse error: json: cannot unmarshal "
        message += f"{json_type(options)} into Go value of type {VERSION_STRUCT}"
        raise statuses.bad_request(message)

    kind, version = options.get("kind"), options.get("apiVersion")
    if kind not in (None, "", "DeleteOptions"):
        message = f'no kind "{kind}" is registered for version "{version or _META}"'
        raise statuses.bad_request(message)

    try:
        return struct_decoder(_DELETE_OPTIONS)(options, None, [])
    except GoDecodeError as exc:
        raise statuses.bad_request(str(exc)) from exc


def _options_in_url(query: Mapping[str, str]) -> dict[str, Any]:
    options: dict[str, Any] = {}
    if query.get("propagationPolicy"):
        options["propagationPolicy"] = query["propagationPolicy"]

    if query.get("orphanDependents"):
        options["orphanDependents"] = flag(query, "orphanDependents")

    grace = query.get("gracePeriodSeconds")
    if grace:
        options["gracePeriodSeconds"] = _int64(grace)

    return options


def _int64(text: str) -> int:
    why = ""
    if not _INTEGER.fullmatch(text):
        why = "invalid syntax"
    elif not -_INT64_BOUND <= int(text) < _INT64_BOUND:
        why = "value out of range"

    if why:
        raise statuses.bad_request(f'strconv.ParseInt: parsing "{text}": {why}')

    return int(text)


def _propagation(options: Mapping[str, Any]) -> tuple[Propagation, list[StatusCause]]:
    orphan, policy = options.get("orphanDependents"), options.get("propagationPolicy")
    if orphan is not None and policy is not None:
        problem = f'Invalid value: "{policy}": orphanDependents and '
        problem += "deletionPropagation cannot be both set"
        return "", [StatusCause("propagationPolicy", "FieldValueInvalid", problem)]

    match policy:
        case "Background" | "Foreground" | "Orphan":
            return policy, []
        case None | "":
            return "" if orphan is None else "Orphan" if orphan else "Background", []
        case _:
            choices = ("Foreground", "Background", "Orphan", "nil")
            return "", [_unsupported("propagationPolicy", policy, choices)]


def _dry_run(request: APIRequest, options: Mapping[str, Any]) -> list[str]:
    dry_run = [request.query.get("dryRun"), *(options.get("dryRun") or ())]
    return [str(it) for it in dry_run if it]


def _validate_dry_run(dry_run: list[str]) -> list[StatusCause]:
    if set(dry_run) <= {"All"}:
        return []

    problem = f'Unsupported value: {_to_json(dry_run)}: supported values: "All"'
    return [StatusCause("dryRun", "FieldValueNotSupported", problem)]


def _validate_manager(name: str, *, required: bool) -> Iterator[StatusCause]:
    """Yield the errors of a field manager's name."""
    field = "fieldManager"
    if required and not name:
        problem = "Required value: is required for apply patch"
        yield StatusCause(field, "FieldValueRequired", problem)

    if len(name.encode()) > _MANAGER_BYTES:
        problem = f"Too long: may not be more than {_MANAGER_BYTES} bytes"
        yield StatusCause(field, "FieldValueTooLong", problem)

    for place, letter in enumerate(name):
        if not letter.isprintable():
            problem = f"Invalid value: {_to_json(name)}: invalid character "
            problem += f"U+{ord(letter):04X} (at position {place})"
            yield StatusCause(field, "FieldValueInvalid", problem)


def _to_json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _find_duplicate_fields(request: APIRequest) -> tuple[str, ...]:
    """Return the paths of duplicate fields in a JSON body."""
    if not request.content_type.lower().endswith("json"):
        return ()

    found: list[_ObjectWithDuplicates] = []

    def note_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        made = dict(pairs)
        if len(made) == len(pairs):
            return made

        found.append(_ObjectWithDuplicates(pairs))
        return found[-1]

    try:
        whole = json.loads(request.body, object_pairs_hook=note_duplicates)
    except ValueError:
        return ()  # The decoder reports the error later.

    return tuple(_paths_of(whole, "")) if found else ()


class _ObjectWithDuplicates(dict[str, Any]):
    """JSON object with a duplicate field."""

    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        super().__init__(pairs)
        counts = Counter(name for name, _ in pairs)
        self.duplicate_fields = sorted(
            name for name, count in counts.items() if count > 1
        )


def _paths_of(value: object, path: str) -> list[str]:
    if isinstance(value, list):
        return [
            it for i, item in enumerate(value) for it in _paths_of(item, f"{path}[{i}]")
        ]

    if not isinstance(value, dict):
        return []

    start = f"{path}." if path else ""
    found = [f"{start}{name}" for name in getattr(value, "duplicate_fields", ())]
    for name, child in value.items():
        found += _paths_of(child, f"{start}{name}")

    return found


def _unsupported(field: str, value: object, choices: tuple[str, ...]) -> StatusCause:
    problem = f"Unsupported value: {_to_json(value)}: supported values: "
    problem += ", ".join(_to_json(it) for it in choices)
    return StatusCause(field, "FieldValueNotSupported", problem)
