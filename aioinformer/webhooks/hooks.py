"""`validating` and `mutating`: functions that check or change objects before a write."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar

from aioinformer import json_codec
from aioinformer.errors import (
    AioInformerError,
    DecodeError,
    OptionsError,
    SelectorSyntaxError,
)
from aioinformer.model.objects import KubeObject, json_default
from aioinformer.model.resource import Resource
from aioinformer.model.selectors import LabelSelector
from aioinformer.model.times import Duration, seconds_of
from aioinformer.model.validation import is_subdomain
from aioinformer.webhooks.calls import Calls, check_function
from aioinformer.webhooks.json_diff import json_patch, merge_changes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from typing import TypeAlias

    Operation: TypeAlias = Literal["CREATE", "UPDATE", "DELETE", "CONNECT"]
    FailurePolicy: TypeAlias = Literal["Fail", "Ignore"]
    MatchPolicy: TypeAlias = Literal["Equivalent", "Exact"]
    SideEffects: TypeAlias = Literal["None", "NoneOnDryRun"]

__all__ = [
    "AdmissionHook",
    "AdmissionRequest",
    "AdmissionResponse",
    "Denied",
    "mutating",
    "plain",
    "validating",
]

T = TypeVar("T")

OPERATIONS: Final = ("CREATE", "UPDATE", "DELETE", "CONNECT")

TIMEOUT_SECONDS = 10.0
"""Default timeout of an admission, as in Kubernetes."""

MAX_TIMEOUT_SECONDS = 30.0


class Denied(AioInformerError):
    """Refusal of a request by a webhook. The client gets the message.

    ::

        raise Denied("spec.replicas must not shrink", field="spec.replicas")

    Args:
        message: Explanation for the client, which names what to change.
        field: Path of the field at fault, if it is a single one.
        causes: Explanations by path of a field, if there are several.
        code: HTTP status, 400 to 499. None for 422 with a field, else 403.

    Raises:
        OptionsError: If the message is empty or no text, or the code is not between 400
            and 499.
    """

    def __init__(
        self,
        message: str,
        *,
        field: str = "",
        causes: Mapping[str, str] | None = None,
        code: int | None = None,
    ) -> None:
        if not message:
            raise OptionsError("Denied needs a message for the client")

        texts: list[object] = [message, *(causes or {}), *(causes or {}).values()]
        wrong = next((it for it in texts if not isinstance(it, str)), None)
        if wrong is not None:
            raise OptionsError(
                f"Denied takes texts, not {type(wrong).__name__}: pass str() of it"
            )

        super().__init__(message)
        self.message = message
        """Explanation for the client."""
        self.causes: dict[str, str] = dict(causes or {})
        """Explanations by path of a field."""
        if field:
            self.causes.setdefault(field, message)

        self.code: int = code or (422 if self.causes else 403)
        """HTTP status."""
        if not 400 <= self.code <= 499:
            raise OptionsError(f"the code of Denied must be 400 to 499, not {code}")


_REASONS = {
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    409: "Conflict",
    413: "RequestEntityTooLarge",
    422: "Invalid",
    429: "TooManyRequests",
}


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class AdmissionRequest:
    """Write that the API server asks a webhook about.

    Attributes:
        operation: `"CREATE"`, `"UPDATE"`, `"DELETE"` or `"CONNECT"`.
        resource: Resource of the object, in the version of the webhook.
        subresource: Subresource, such as `"status"`, or empty.
        name: Name of the object. Empty if the server has yet to generate it.
        namespace: Namespace of the object; empty for cluster-scoped objects.
        object: Object after the write, or None for a deletion.
        old_object: Object before an update or a deletion, or None.
        user: Name of the user.
        groups: Groups of the user.
        dry_run: True if the write is not stored, so there must be no side effects.
        options: Options of the request, such as `CreateOptions`.
        uid: Unique id of this call.
        warnings: Texts for the client, which kubectl shows. Append to it.
    """

    operation: str
    resource: Resource
    subresource: str = ""
    name: str = ""
    namespace: str = ""
    object: KubeObject | None = None
    old_object: KubeObject | None = None
    user: str = ""
    groups: tuple[str, ...] = ()
    dry_run: bool = False
    options: Mapping[str, Any] = field(default_factory=dict)
    uid: str = ""
    warnings: list[str] = field(default_factory=list)

    @property
    def subject(self) -> KubeObject:
        """Object after the write; for a deletion, the object that is deleted."""
        found = self.object or self.old_object
        return KubeObject.of({}) if found is None else found

    def __repr__(self) -> str:
        key = f"{self.namespace}/{self.name}" if self.namespace else self.name
        return f"<AdmissionRequest {self.operation} {self.resource} {key!r}>"


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class AdmissionResponse:
    """Answer of a webhook.

    Attributes:
        allowed: True if the write may go on.
        message: Explanation of a refusal, or empty.
        code: HTTP status of a refusal, or 200.
        causes: Explanations of a refusal by path of a field.
        warnings: Texts for the client.
        object: Object after the write, with the changes of a mutating webhook. None for
            a deletion.
        patch: JSON patch of the changes.
    """

    allowed: bool
    message: str = ""
    code: int = 200
    causes: Mapping[str, str] = field(default_factory=dict)
    warnings: Sequence[str] = ()
    object: KubeObject | None = None
    patch: Sequence[Mapping[str, Any]] = ()

    def status(self) -> dict[str, Any]:
        """Return the `Status` of a refusal."""
        status: dict[str, Any] = {
            "status": "Failure",
            "message": self.message,
            "reason": _REASONS.get(self.code, "BadRequest"),
            "code": self.code,
        }
        if self.causes:
            status["details"] = {
                "causes": [
                    {"reason": "FieldValueInvalid", "field": name, "message": text}
                    for name, text in self.causes.items()
                ]
            }

        return status

    def __repr__(self) -> str:
        outcome = "allowed" if self.allowed else f"denied {self.message!r}"
        return f"<AdmissionResponse {outcome} patch={len(self.patch)}>"


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class AdmissionHook:
    """Function that is called before a write. Made by `validating` and `mutating`.

    Attributes:
        function: Decorated function.
        mutates: True if it changes objects, False if it only checks them.
        name: Name in the cluster, in logs and in metrics.
        resource: Resource of the objects.
        operations: Operations that it is called for.
        subresource: Subresource, or empty for the objects themselves.
        into: Type of the first argument, or None.
        failure_policy: See `validating`, also for all further attributes.
        side_effects: See `validating`.
        timeout_seconds: See `validating`.
        match_policy: See `validating`.
        namespace_selector: See `validating`.
        object_selector: See `validating`.
        match_conditions: See `validating`.
        reinvoke: See `mutating`.
    """

    function: Callable[..., Any]
    mutates: bool
    name: str
    resource: Resource
    operations: tuple[str, ...]
    subresource: str
    into: type[Any] | None
    failure_policy: str
    side_effects: str
    timeout_seconds: float
    match_policy: str
    namespace_selector: Mapping[str, Any] | None
    object_selector: Mapping[str, Any] | None
    match_conditions: Mapping[str, str]
    reinvoke: bool = False

    def __repr__(self) -> str:
        kind = "mutating" if self.mutates else "validating"
        return f"<AdmissionHook {kind} {self.name}>"

    @property
    def path(self) -> str:
        """Path of its endpoint."""
        return f"/{'mutate' if self.mutates else 'validate'}/{self.name}"

    async def review(
        self,
        obj: Mapping[str, Any] | bytes | None = None,
        old: Mapping[str, Any] | bytes | None = None,
        *,
        operation: Operation | None = None,
        user: str = "",
        groups: Sequence[str] = (),
        dry_run: bool = False,
    ) -> AdmissionResponse:
        """Call the function as for a write, without a server. For tests.

        As API servers do, it adds the namespace `default` to objects without one.

        ::

            answer = await check_image.review({"metadata": ..., "spec": ...})
            assert not answer.allowed

        Args:
            obj: Object after the write; None for a deletion.
            old: Object before an update or a deletion.
            operation: Operation. None for the one that the objects suggest.
            user: Name of the user.
            groups: Groups of the user.
            dry_run: True for a write that is not stored.

        Raises:
            OptionsError: If there is no object, or the function is not called for the
                operation.
            Exception: Error of the function, except for `Denied`. A server logs it, and
                answers with an HTTP status of 500.

        Cancellation:
            Safe.
        """
        new = None if obj is None else self._in_cluster(obj)
        before = None if old is None else self._in_cluster(old)
        subject = new or before
        if subject is None:
            raise OptionsError("review() needs an object: pass obj, old, or both")

        if operation is None:
            operation = "DELETE" if new is None else "UPDATE" if before else "CREATE"

        if operation not in self.operations:
            raise OptionsError(
                f"webhook {self.name} is called for {', '.join(self.operations)}, not "
                f"for {operation}: see operations="
            )

        request = AdmissionRequest(
            operation=operation,
            resource=self.resource,
            subresource=self.subresource,
            name=subject.name,
            namespace=subject.namespace,
            object=new,
            old_object=before,
            user=user,
            groups=tuple(groups),
            dry_run=dry_run,
        )
        return await self.answer(request, Calls())

    def _in_cluster(self, obj: Mapping[str, Any] | bytes) -> KubeObject:
        """Return an object as an API server sends it: with a namespace, if it can have one."""
        given = KubeObject.of(obj)
        if given.namespace or not self.resource.namespaced:
            return given

        metadata = {**(given.get("metadata") or {}), "namespace": "default"}
        return KubeObject.of({**given, "metadata": metadata})

    async def answer(
        self, request: AdmissionRequest, calls: Calls
    ) -> AdmissionResponse:
        """Call the function, and return its answer.

        Raises:
            Exception: Error of the function, except for `Denied`.

        Cancellation:
            Safe; see `Calls.call`.
        """
        try:
            changed = await self._called(request, calls)
        except Denied as denied:
            return AdmissionResponse(
                allowed=False,
                message=denied.message,
                code=denied.code,
                causes=denied.causes,
                warnings=self._warnings(request),
                object=request.object,
            )

        given = request.object
        if changed is None or given is None:
            return AdmissionResponse(
                allowed=True, warnings=self._warnings(request), object=given
            )

        patch = await calls.compute(
            lambda: json_patch(given.to_dict(), changed.to_dict()), len(given.raw)
        )
        return AdmissionResponse(
            allowed=True,
            warnings=self._warnings(request),
            object=changed,
            patch=patch,
        )

    async def _called(
        self, request: AdmissionRequest, calls: Calls
    ) -> KubeObject | None:
        """Call the function, and return the object that it has changed, or None."""
        subject = request.subject
        given, before = await self._argument(subject, calls)
        taken = check_function(self.function, ("object", "request"), "a webhook")
        result = await calls.call(self.function, *(given, request)[:taken])
        if not self.mutates:
            request.warnings.extend(_warnings_of(result, self.name))
            return None

        changed = given if result is None else result
        return await self._computed(
            lambda: self._merged(subject, before, changed), subject, calls
        )

    async def _argument(self, subject: KubeObject, calls: Calls) -> tuple[Any, Any]:
        """Return the function's argument, and its JSON if it is a model to change."""
        if not self.mutates and (self.into is None or self.into is KubeObject):
            return subject, None

        return await self._computed(lambda: self._decoded(subject), subject, calls)

    async def _computed(
        self, function: Callable[[], T], subject: KubeObject, calls: Calls
    ) -> T:
        """Call a function that decodes or encodes an object.

        Raises:
            Denied: If the object is nested too deeply to be encoded.
        """
        try:
            return await calls.compute(function, len(subject.raw))
        except TypeError as exc:
            if not self.mutates or _can_be_encoded(subject):
                raise

            # An error would let the object pass by the failure policy Ignore.
            text = "the object is nested too deeply to be changed"
            raise Denied(text, code=400) from exc

    def _decoded(self, subject: KubeObject) -> tuple[Any, Any]:
        """Decode an object for the function: see `_argument`."""
        if self.into is None:
            return subject.to_dict(), None

        model = subject if self.into is KubeObject else _model(subject, self.into)
        return model, plain(model) if self.mutates else None

    def _merged(self, subject: KubeObject, before: Any, changed: Any) -> KubeObject:
        """Return an object with the changes of the function.

        Args:
            subject: Object before the changes.
            before: JSON of the model before the changes, or None without a model.
            changed: Object or model that the function has changed, or returned.
        """
        after = plain(changed)
        if not isinstance(after, dict):
            raise TypeError(
                f"webhook {self.name} returned {type(changed).__name__}, not the object"
            )

        if before is not None:
            after = merge_changes(subject.to_dict(), before, after)

        return KubeObject.of(after)

    def _warnings(self, request: AdmissionRequest) -> tuple[str, ...]:
        for it in request.warnings:
            if not isinstance(it, str):
                raise TypeError(
                    f"webhook {self.name} appended {type(it).__name__} to "
                    "request.warnings, not a text"
                )

        return tuple(request.warnings)


def validating(
    resource: Resource,
    *,
    operations: Iterable[Operation] = ("CREATE", "UPDATE"),
    into: type[Any] | None = None,
    subresource: str = "",
    name: str = "",
    failure_policy: FailurePolicy = "Fail",
    side_effects: SideEffects = "None",
    timeout: Duration = TIMEOUT_SECONDS,
    match_policy: MatchPolicy = "Equivalent",
    namespace_selector: Mapping[str, Any] | None = None,
    object_selector: Mapping[str, Any] | None = None,
    match_conditions: Mapping[str, str] | None = None,
) -> Callable[[Callable[..., Any]], AdmissionHook]:
    """Decorate a function that checks objects before they are written.

    ::

        @validating(SITES, into=Site)
        async def check_image(site: Site, request: AdmissionRequest) -> str | None:
            if ":" not in site.spec.image:
                raise Denied("the image needs a tag", field="spec.image")

            return "the tag latest is mutable" if "latest" in site.spec.image else None

    The function takes the object, and the request if it has a second parameter. For a
    deletion, it takes the object that is deleted. It may be a coroutine function, or a
    plain one, which is called in a thread. It raises `Denied` to refuse the write, and
    returns a warning, a list of warnings, or None.

    Args:
        resource: Resource of the objects, in the version that the function expects.
        operations: Operations to check, of CREATE, UPDATE, DELETE and CONNECT.
        into: Type of the first argument, as for `KubeObject.into`. None for a
            `KubeObject`. Objects that do not fit are refused.
        subresource: Subresource to check, such as `"status"` or `"scale"`.
        name: Name in the cluster. Empty for one made of the function and the resource.
        failure_policy: `"Fail"` to refuse writes while the webhook fails, is down or
            times out, `"Ignore"` to let them pass unchecked.
        side_effects: `"NoneOnDryRun"` if it changes anything outside of the object,
            unless `request.dry_run` is true.
        timeout: Maximum time that a write waits, of 1 to 30 seconds.
        match_policy: `"Exact"` to ignore writes in other versions of the resource.
        namespace_selector: Label selector for namespaces. None for all namespaces; for
            resources of Kubernetes itself, for all but `kube-system`.
        object_selector: Label selector for objects. Clients can change labels, so it is
            no protection.
        match_conditions: CEL expressions by name, which must all be true.

    Raises:
        OptionsError: If an option is invalid, or the function cannot be called so.
    """
    _check_resource(resource)

    def adapt(function: Callable[..., Any]) -> AdmissionHook:
        return _hook(
            function,
            resource,
            mutates=False,
            operations=operations,
            into=into,
            subresource=subresource,
            name=name,
            failure_policy=failure_policy,
            side_effects=side_effects,
            timeout=timeout,
            match_policy=match_policy,
            namespace_selector=namespace_selector,
            object_selector=object_selector,
            match_conditions=match_conditions,
        )

    return adapt


def mutating(
    resource: Resource,
    *,
    operations: Iterable[Operation] = ("CREATE", "UPDATE"),
    into: type[Any] | None = None,
    subresource: str = "",
    name: str = "",
    failure_policy: FailurePolicy = "Fail",
    side_effects: SideEffects = "None",
    timeout: Duration = TIMEOUT_SECONDS,
    match_policy: MatchPolicy = "Equivalent",
    namespace_selector: Mapping[str, Any] | None = None,
    object_selector: Mapping[str, Any] | None = None,
    match_conditions: Mapping[str, str] | None = None,
    reinvoke: bool = False,
) -> Callable[[Callable[..., Any]], AdmissionHook]:
    """Decorate a function that changes objects before they are written.

    ::

        @mutating(SITES)
        def set_defaults(site: dict[str, Any]) -> None:
            site["spec"].setdefault("replicas", 1)

    The function changes its argument in place, or returns another object. The API server
    gets the difference as a JSON patch. It may run several times for one write, so a
    second call with its own result must change nothing. It may raise `Denied`, and add
    to `request.warnings`.

    Args:
        resource: See `validating`, also for all further arguments.
        operations: Operations, of CREATE, UPDATE and CONNECT.
        into: Type of the first argument, as for `KubeObject.into`. None for a dict.
            Fields that a model does not have stay unchanged, and its defaults are not
            written, unless the function changes them.
        subresource: See `validating`.
        name: See `validating`.
        failure_policy: See `validating`.
        side_effects: See `validating`.
        timeout: See `validating`.
        match_policy: See `validating`.
        namespace_selector: See `validating`.
        object_selector: See `validating`.
        match_conditions: See `validating`.
        reinvoke: True to call it again if a later webhook has changed the object.

    Raises:
        OptionsError: See `validating`; or if there is an operation DELETE, which has no
            object to change.
    """
    _check_resource(resource)

    def adapt(function: Callable[..., Any]) -> AdmissionHook:
        return _hook(
            function,
            resource,
            mutates=True,
            operations=operations,
            into=into,
            subresource=subresource,
            name=name,
            failure_policy=failure_policy,
            side_effects=side_effects,
            timeout=timeout,
            match_policy=match_policy,
            namespace_selector=namespace_selector,
            object_selector=object_selector,
            match_conditions=match_conditions,
            reinvoke=reinvoke,
        )

    return adapt


# ------------------------------------------------------------ options


def _check_resource(resource: object) -> None:
    if not isinstance(resource, Resource):
        raise OptionsError(
            f"a webhook needs the Resource of its objects, such as @validating(SITES), "
            f"not {resource!r}"
        )


def _hook(
    function: Callable[..., Any],
    resource: Resource,
    *,
    operations: Iterable[str],
    name: str,
    timeout: Duration,
    namespace_selector: Mapping[str, Any] | None,
    match_conditions: Mapping[str, str] | None,
    **options: Any,
) -> AdmissionHook:
    check_function(function, ("object", "request"), "a webhook")
    wanted = (operations,) if isinstance(operations, str) else tuple(operations)
    unknown = [it for it in wanted if it not in OPERATIONS]
    if unknown or not wanted:
        raise OptionsError(
            f"operations must be of {', '.join(OPERATIONS)}, not {operations!r}"
        )

    if options["mutates"] and "DELETE" in wanted:
        raise OptionsError("a mutating webhook cannot change an object that is deleted")

    for option, allowed in _CHOICES.items():
        if options[option] not in allowed:
            raise OptionsError(
                f"{option} must be {' or '.join(allowed)}, not {options[option]!r}"
            )

    for option in ("namespace_selector", "object_selector"):
        _check_selector(
            option, {**options, "namespace_selector": namespace_selector}[option]
        )

    if match_conditions is not None and not (
        isinstance(match_conditions, dict)
        and all(isinstance(it, str) for pair in match_conditions.items() for it in pair)
    ):
        raise OptionsError(
            "match_conditions must be CEL expressions by name, such as "
            f'{{"not-a-lease": "..."}}, not {match_conditions!r}'
        )

    seconds = seconds_of(timeout)
    if not 1 <= seconds <= MAX_TIMEOUT_SECONDS or seconds != int(seconds):
        raise OptionsError(
            f"timeout must be 1 to {MAX_TIMEOUT_SECONDS:g} whole seconds, not {timeout}"
        )

    if namespace_selector is None and _is_built_in(resource):
        namespace_selector = _NOT_KUBE_SYSTEM

    return AdmissionHook(
        function=function,
        name=_name_of(function, name, resource),
        resource=resource,
        operations=wanted,
        timeout_seconds=seconds,
        namespace_selector=namespace_selector,
        match_conditions=dict(match_conditions or {}),
        **options,
    )


def _check_selector(option: str, selector: object) -> None:
    if selector is None:
        return

    reason = "a selector is a dict, such as {'matchLabels': {...}}"
    if isinstance(selector, dict):
        try:
            LabelSelector.of(selector)
        except (OptionsError, SelectorSyntaxError, AttributeError, TypeError) as exc:
            reason = str(exc)
        else:
            return

    raise OptionsError(f"invalid {option} {selector!r}: {reason}")


_CHOICES = {
    "failure_policy": ("Fail", "Ignore"),
    "match_policy": ("Equivalent", "Exact"),
    "side_effects": ("None", "NoneOnDryRun"),
}

# A webhook that is down would otherwise stop what could start it again.
_NOT_KUBE_SYSTEM: Mapping[str, Any] = {
    "matchExpressions": [
        {
            "key": "kubernetes.io/metadata.name",
            "operator": "NotIn",
            "values": ["kube-system"],
        }
    ]
}


def _is_built_in(resource: Resource) -> bool:
    return "." not in resource.group or resource.group.endswith(".k8s.io")


def _name_of(function: Callable[..., Any], name: str, resource: Resource) -> str:
    """Return the name in the cluster, which needs three parts with dots."""
    given = name or getattr(function, "__name__", "")
    full = name
    if "." not in name:
        word = given.strip("_").lower().replace("_", "-")
        full = f"{word}.{resource.plural}.{resource.group or 'core'}"

    if not is_subdomain(full) or full.count(".") < 2:
        raise OptionsError(
            f"invalid name of a webhook: {given!r}. Pass name=, in lowercase letters, "
            "digits and '-'"
        )

    return full


# ------------------------------------------------------------ values


def plain(value: Any) -> Any:
    """Return a new JSON value of an object or a model."""
    return json_codec.loads(json_codec.dumps(value, default=json_default))


def _model(obj: KubeObject, kind: type[T]) -> T:
    try:
        return obj.into(kind)
    except DecodeError as exc:
        # What is wrong is in the object of the client.
        raise Denied(str(exc), code=422) from exc


def _can_be_encoded(obj: KubeObject) -> bool:
    """Return whether an object can be encoded: with fewer levels than can be decoded."""
    try:
        json_codec.dumps(obj.to_dict())
    except TypeError:
        return False

    return True


def _warnings_of(result: object, name: str) -> list[str]:
    match result:
        case None:
            return []
        case str():
            return [result] if result else []
        case list() | tuple() if all(isinstance(it, str) for it in result):
            return list(result)
        case _:
            raise TypeError(
                f"webhook {name} returned {type(result).__name__}: return a warning, a "
                "list of warnings or None, and raise Denied to refuse a write"
            )
