"""Options: how a write or deletion is asked for, read from its request. Pure."""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from aioinformer_apiserver.errors import statuses
from aioinformer_apiserver.errors.go_format import VERSION_STRUCT, json_type
from aioinformer_apiserver.errors.statuses import Cause
from aioinformer_apiserver.patches.managed_fields import manager_of
from aioinformer_apiserver.requests.queries import flag
from aioinformer_apiserver.schema.go_types import DecodeError, struct_decoder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from aioinformer_apiserver.patches.patch_types import PatchType
    from aioinformer_apiserver.requests.request import Request
    from aioinformer_apiserver.storage.kinds import Kind
    from aioinformer_apiserver.storage.storage import Stored

__all__ = [
    "DeleteOptions",
    "Deleted",
    "FieldValidation",
    "Part",
    "Propagation",
    "WriteOptions",
    "Written",
    "delete_options_from",
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

# How the options of each method are named in refusals.
_OPTIONS = {"POST": "CreateOptions", "PUT": "UpdateOptions", "PATCH": "PatchOptions"}
_META = "meta.k8s.io/v1"
_MANAGER_BYTES = 128
_DELETE_OPTIONS = "io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions"
# More digits than any number has that fits.
_INTEGER = re.compile("[+-]?[0-9]{1,40}")
_INT64_BOUND = 2**63


# What a write may change: a plain one leaves the status alone (where there is a status
# subresource), and one of that leaves the spec alone. "finalize" is a plain one of a
# namespace, that also writes the finalizers in its spec. "all" is for arranging: it is
# completed, but not checked against the schema.
Part = Literal["main", "status", "finalize", "all"]
# What happens to fields that the schema does not know: refused, dropped with a warning,
# dropped.
FieldValidation = Literal["Strict", "Warn", "Ignore"]
# What becomes of an object's dependents. Empty where the kind decides.
Propagation = Literal["", "Background", "Foreground", "Orphan"]


def _unheard(warning: str) -> None:
    """Take a warning that nobody wants to read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions:
    """How something is created, updated or patched."""

    part: Part = "main"
    """What may change."""

    dry_run: bool = False
    """Check and complete it, but store nothing."""

    manager: str = ""
    """Who owns the fields that change, in `metadata.managedFields`."""

    field_validation: FieldValidation = "Warn"
    """What happens to unknown and repeated fields."""

    force: bool = False
    """A server-side apply takes what others own. No effect on other writes."""

    repeated: tuple[str, ...] = ()
    """The fields that stood twice in the JSON, as paths; decoding it has lost them."""

    warn: Callable[[str], object] = field(default=_unheard, compare=False)
    """Is told what the user should read, also if the write is then refused."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteOptions:
    """How something is deleted."""

    dry_run: bool = False
    """Check, but delete nothing."""

    uid: str = ""
    """Only if this is its uid. Empty: whatever it is."""

    version: str = ""
    """Only if this is its version. Empty: whatever it is."""

    grace_seconds: int | None = None
    """How long a pod may take to end. None: what the pod itself says."""

    propagation: Propagation = ""
    """What becomes of its dependents."""

    at_once: bool = False
    """A pod that ends goes without being marked first, as nobody asks for over HTTP."""

    warn: Callable[[str], object] = field(default=_unheard, compare=False)
    """Is told what the user should read, also if the deletion is then refused."""


@dataclass(frozen=True, slots=True)
class Written:
    """What came of a write.

    Attributes:
        stored: The object as it is now; in a dry run, as it would be.
        created: It did not exist before.
    """

    stored: Stored
    created: bool = False


@dataclass(frozen=True, slots=True)
class Deleted:
    """What came of a deletion.

    Attributes:
        stored: The object as it waits to go, or as it was when it went.
        shown: The object itself is the answer; otherwise a Status about it is.
        gone: It exists no longer (or would not, but for the dry run).
    """

    stored: Stored
    shown: bool
    gone: bool = False


def write_options_of(
    request: Request, part: Part, *, patch_type: PatchType | None = None
) -> WriteOptions:
    """Read how something is created, updated or patched.

    Args:
        call: The request.
        part: What it may change.
        patch_type: Of which type a patch is; None for other writes.

    Raises:
        ApiError: 422, if options have values that they cannot have.
    """
    query = request.query
    validation = query.get("fieldValidation") or "Warn"
    manager = query.get("fieldManager", "")
    causes = [
        *_wrong_dry_run(_dry_run(request, {})),
        *_wrong_manager(manager, required=patch_type == "apply"),
    ]
    if "force" in query and patch_type not in {None, "apply"}:
        why = "Forbidden: may not be specified for non-apply patch"
        causes.append(Cause("force", "FieldValueForbidden", why))

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
        repeated=() if checked == "Ignore" else _repeated(request),
        warn=request.warnings.append,
    )


def patch_type_of(request: Request, kind: Kind) -> PatchType:
    """Read of which type a patch is.

    Raises:
        ApiError: 415, if the kind takes no such patches.
    """
    accepted = [it for it in _PATCH_TYPES if kind.typed or "strategic" not in it]
    if request.content_type not in accepted:
        if kind.typed:
            raise statuses.unsupported_by_route()

        raise statuses.unsupported_media_type(*accepted)

    return _PATCH_TYPES[request.content_type]


def delete_options_of(request: Request) -> DeleteOptions:
    """Read how something is deleted: from the body if there is one, else from the URL.

    Raises:
        ApiError: 400 or 422, if options have values that they cannot have.
    """
    options = _delete_body(request) if request.body else _options_in_url(request.query)
    return delete_options_from(options, request)


def delete_options_from(options: Mapping[str, Any], request: Request) -> DeleteOptions:
    """Read how something is deleted from a body that says so.

    Args:
        options: Decoded, of kind DeleteOptions.
        call: The request, which may ask for a dry run itself.

    Raises:
        ApiError: 422, if options have values that they cannot have.
    """
    propagation, causes = _propagation(options)
    dry_run = _dry_run(request, options)
    causes += _wrong_dry_run(dry_run)
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
    )


def _delete_body(request: Request) -> Mapping[str, Any]:
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
    except DecodeError as exc:
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


def _propagation(options: Mapping[str, Any]) -> tuple[Propagation, list[Cause]]:
    orphan, policy = options.get("orphanDependents"), options.get("propagationPolicy")
    if orphan is not None and policy is not None:
        problem = f'Invalid value: "{policy}": orphanDependents and '
        problem += "deletionPropagation cannot be both set"
        return "", [Cause("propagationPolicy", "FieldValueInvalid", problem)]

    match policy:
        case "Background" | "Foreground" | "Orphan":
            return policy, []
        case None | "":
            return "" if orphan is None else "Orphan" if orphan else "Background", []
        case _:
            choices = ("Foreground", "Background", "Orphan", "nil")
            return "", [_unsupported("propagationPolicy", policy, choices)]


def _dry_run(request: Request, options: Mapping[str, Any]) -> list[str]:
    asked = [request.query.get("dryRun"), *(options.get("dryRun") or ())]
    return [str(it) for it in asked if it]


def _wrong_dry_run(asked: list[str]) -> list[Cause]:
    if set(asked) <= {"All"}:
        return []

    problem = f'Unsupported value: {_quoted(asked)}: supported values: "All"'
    return [Cause("dryRun", "FieldValueNotSupported", problem)]


def _wrong_manager(name: str, *, required: bool) -> Iterator[Cause]:
    """Yield what keeps somebody of this name from owning fields."""
    field = "fieldManager"
    if required and not name:
        problem = "Required value: is required for apply patch"
        yield Cause(field, "FieldValueRequired", problem)

    if len(name.encode()) > _MANAGER_BYTES:
        problem = f"Too long: may not be more than {_MANAGER_BYTES} bytes"
        yield Cause(field, "FieldValueTooLong", problem)

    for place, letter in enumerate(name):
        if not letter.isprintable():
            problem = f"Invalid value: {_quoted(name)}: invalid character "
            problem += f"U+{ord(letter):04X} (at position {place})"
            yield Cause(field, "FieldValueInvalid", problem)


def _quoted(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _repeated(request: Request) -> tuple[str, ...]:
    """Return the paths of fields that stand more than once in a body of JSON."""
    if not request.content_type.lower().endswith("json"):
        return ()

    found: list[_Repeating] = []

    def noticed(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        made = dict(pairs)
        if len(made) == len(pairs):
            return made

        found.append(_Repeating(pairs))
        return found[-1]

    try:
        whole = json.loads(request.body, object_pairs_hook=noticed)
    except ValueError:
        return ()  # It is refused where it is decoded.

    return tuple(_paths_of(whole, "")) if found else ()


class _Repeating(dict[str, Any]):
    """An object in which a name stands more than once."""

    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        super().__init__(pairs)
        counts = Counter(name for name, _ in pairs)
        self.repeated = sorted(name for name, count in counts.items() if count > 1)


def _paths_of(value: object, path: str) -> list[str]:
    if isinstance(value, list):
        return [
            it for i, item in enumerate(value) for it in _paths_of(item, f"{path}[{i}]")
        ]

    if not isinstance(value, dict):
        return []

    start = f"{path}." if path else ""
    found = [f"{start}{name}" for name in getattr(value, "repeated", ())]
    for name, child in value.items():
        found += _paths_of(child, f"{start}{name}")

    return found


def _unsupported(field: str, value: object, choices: tuple[str, ...]) -> Cause:
    problem = f"Unsupported value: {_quoted(value)}: supported values: "
    problem += ", ".join(_quoted(it) for it in choices)
    return Cause(field, "FieldValueNotSupported", problem)
