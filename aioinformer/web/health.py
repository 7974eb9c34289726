"""Liveness and readiness of an app, by the status of its informers.

`/readyz` fails while a cache is incomplete, stopped or, with a limit, too old. `/livez`
fails only if an informer has failed, as only then a restart helps. An API server that
is unreachable, slow or refuses requests is no reason for a restart, which would lose a
cache that still answers.

Responses contain names and phases of informers, and their trouble in one word, as
anybody may reach a probe. Error messages are included with `reasons`. Own checks of the
app have paths of their own, too: `/readyz/database`.
"""

from __future__ import annotations

from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

import msgspec

from aioinformer.client.redaction import redacted
from aioinformer.errors import (
    ApiError,
    CacheError,
    InformerStopped,
    NotSynced,
    OptionsError,
    Stale,
    TransportError,
)
from aioinformer.informer.factory import why_not_ready
from aioinformer.informer.shared_informer import SharedInformer
from aioinformer.model.times import seconds_of
from aioinformer.web.checks import CHECK_SECONDS, Checks
from aioinformer.web.responses import HTTPResponse

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from aioinformer.model.times import Duration
    from aioinformer.web.checks import Check, CheckResult
    from aioinformer.web.responses import EndpointRequest, Responder

__all__ = [
    "CanFail",
    "HasInformers",
    "health_responders",
    "livez",
    "readyz",
    "report_of",
]


class HasInformers(Protocol):
    """Owner of informers, such as a factory or a `Manager`. Read for each request.

    A manager that has failed, or whose work outlives its lease, is neither alive nor
    ready. A manager that waits to lead is both, once it has reached the Lease.
    """

    @property
    def informers(self) -> Sequence[SharedInformer]:
        """All informers, including temporary ones."""

    @property
    def lasting(self) -> Sequence[SharedInformer]:
        """Permanent informers, which the app depends on."""


@runtime_checkable
class CanFail(Protocol):
    """Owner of informers that may fail as a whole, such as a `Manager`."""

    def why_dead(self) -> str:
        """Return the reason for a restart of the process, or an empty string."""

    def why_not_elected(self) -> str:
        """Return why it cannot take part in its election, or an empty string."""

    def why_not_sharing(self) -> str:
        """Return why it does not do its part in its shards, or an empty string."""


def health_responders(
    *sources: HasInformers | SharedInformer,
    max_staleness: Duration | None = None,
    reasons: bool = False,
    checks: Mapping[str, Check] | None = None,
    livez_checks: Mapping[str, Check] | None = None,
    check_timeout: Duration = CHECK_SECONDS,
) -> dict[str, Responder]:
    """Return the responders of `/livez`, `/readyz` and each check, by path.

    The first two run the own checks, too, except for those of `?exclude=NAME`. With
    `?verbose`, they return lines of text.

    Args:
        *sources: Factories, managers or informers.
        max_staleness: See `readyz`.
        reasons: See `livez`.
        checks: Own checks of `/readyz` by name; `/readyz/NAME` runs one alone.
        livez_checks: Own checks of `/livez` by name.
        check_timeout: Maximum duration of each check.

    Raises:
        OptionsError: If there are no sources, a time is not positive, or a check or its
            name is invalid.
    """
    if not sources:
        raise OptionsError(
            "health needs sources: pass a factory, a manager or informers"
        )

    seconds = None if max_staleness is None else seconds_of(max_staleness)
    if seconds is not None and seconds <= 0:
        raise OptionsError(f"max_staleness must be positive, not {max_staleness}")

    live = Checks("/livez", livez_checks or {}, check_timeout)
    ready = Checks("/readyz", checks or {}, check_timeout)

    async def is_alive(request: EndpointRequest) -> HTTPResponse:
        results = await live.run(request.values("exclude"))
        return _shown(livez(*sources, reasons=reasons, checks=results), request)

    async def is_ready(request: EndpointRequest) -> HTTPResponse:
        results = await ready.run(request.values("exclude"))
        answer = readyz(
            *sources, max_staleness=seconds, reasons=reasons, checks=results
        )
        return _shown(answer, request)

    responders: dict[str, Responder] = {"/livez": is_alive, "/readyz": is_ready}
    for own in (live, ready):
        for name in own.names:
            responders[f"{own.endpoint}/{name}"] = partial(
                _one, own, name, reasons=reasons
            )

    return responders


async def _one(
    own: Checks, name: str, request: EndpointRequest, *, reasons: bool
) -> HTTPResponse:
    """Run one check alone."""
    result = await own.run_one(name)
    body: dict[str, object] = {"status": "unavailable" if result.label else "ok"}
    body |= _report_of_check(result, reasons=reasons)
    answer = _response(body, ok=not result.label)
    return _shown(answer, request)


def livez(
    *sources: HasInformers | SharedInformer,
    reasons: bool = False,
    checks: Sequence[CheckResult] = (),
) -> HTTPResponse:
    """Return 200 unless an informer of the app has failed, or its factory ended.

    All other trouble ends by itself, or does not end by a restart.

    Args:
        *sources: Factories, managers or informers.
        reasons: True to include error messages. They name servers, users and files, so
            only operators of the app should be able to read them.
        checks: Results of own checks.
    """
    return _answer(
        sources,
        lambda it: _why_not_ready(it) if it.status.phase == "stopped" else None,
        _why_dead(sources),
        checks,
        reasons=reasons,
    )


def readyz(
    *sources: HasInformers | SharedInformer,
    max_staleness: Duration | None = None,
    reasons: bool = False,
    checks: Sequence[CheckResult] = (),
) -> HTTPResponse:
    """Return 200 if each informer that the app depends on is alive, synced and fresh.

    A manager is not ready if it cannot take part in its election, or does not work on
    ranges of its shards that it should own: see `Shards.why_not_ready`.

    An informer with a store on disk is not ready if the process that writes it has not
    done so for 10 s. An informer that continues in memory is.

    Informers of `factory.use()` are listed but do not count: their users wait for them.

    Args:
        *sources: Factories, managers or informers.
        max_staleness: Maximum age of a cache, by `InformerStatus.age`. None keeps the
            app ready during an outage of the API server. See `Lister` for a good value:
            one that is too low takes all replicas out of service at once, in an outage
            or a quiet hour.
        reasons: See `livez`.
        checks: Results of own checks.
    """
    owners = [it for it in sources if isinstance(it, CanFail)]
    trouble = (
        _why_dead(sources)
        or _joined("no election", (it.why_not_elected() for it in owners))
        or _joined("ranges not worked on", (it.why_not_sharing() for it in owners))
    )
    return _answer(
        sources,
        lambda it: _why_unready(it, max_staleness),
        trouble,
        checks,
        reasons=reasons,
    )


class _Trouble(NamedTuple):
    """Trouble of an informer or a manager."""

    label: str
    """Fixed text without details."""

    reason: str
    """Explanation with error messages."""


def _why_dead(sources: Sequence[HasInformers | SharedInformer]) -> _Trouble | None:
    return _joined(
        "manager failed", (it.why_dead() for it in sources if isinstance(it, CanFail))
    )


def _joined(label: str, reasons: Iterable[str]) -> _Trouble | None:
    # The failure of a manager may be any exception of the program.
    reason = redacted("; ".join(filter(None, reasons)))
    return _Trouble(label, reason) if reason else None


def _why_not_ready(informer: SharedInformer) -> _Trouble | None:
    why = why_not_ready(informer)
    stopped = informer.status.phase == "stopped"
    return _Trouble("stopped" if stopped else "not synced", why) if why else None


def _why_unready(informer: SharedInformer, most: Duration | None) -> _Trouble | None:
    trouble = _why_not_ready(informer)
    status = informer.status
    if trouble is not None or status.phase == "stopping":
        return trouble or _Trouble("stopping", "stopping")

    if isinstance(status.last_error, CacheError):
        return _Trouble("no cache writer", str(status.last_error))

    try:
        # A read that raises for every other reason.
        informer.lister.get("", max_staleness=most)
    except Stale as exc:
        return _Trouble("stale", str(exc))
    except NotSynced as exc:
        return _Trouble("not synced", str(exc))
    except InformerStopped as exc:
        return _Trouble("stopped", str(exc))

    return None


def _current_trouble(informer: SharedInformer) -> _Trouble | None:
    """Return the trouble of the last attempts, with which the cache is readable."""
    status = informer.status
    error = status.last_error
    match error:
        case None:
            memory = status.memory
            if memory is not None and memory.over:
                return _Trouble("over memory budget", str(memory))

            return None
        case TransportError(unreachable=True):
            return _Trouble("unreachable", str(error))
        case ApiError():
            return _Trouble("refused", str(error))
        case _:
            return _Trouble("failing", str(error))


def _answer(
    sources: Sequence[HasInformers | SharedInformer],
    why: Callable[[SharedInformer], _Trouble | None],
    trouble: _Trouble | None,
    checks: Sequence[CheckResult],
    *,
    reasons: bool,
) -> HTTPResponse:
    reports = []
    ok = trouble is None and not any(it.label for it in checks)
    for informer, lasting in _informers_of(sources):
        problem = why(informer)
        ok = ok and not (problem and lasting)
        report = _report(informer, ok=problem is None, lasting=lasting)
        trouble_now = problem or _current_trouble(informer)
        reports.append(report | _details(trouble_now, reasons=reasons))

    body: dict[str, object] = {"status": "ok" if ok else "unavailable"}
    body |= _details(trouble, reasons=reasons)
    if checks:
        body["checks"] = [_report_of_check(it, reasons=reasons) for it in checks]

    return _response(body | {"informers": reports}, ok=ok)


def _response(body: dict[str, object], *, ok: bool) -> HTTPResponse:
    return HTTPResponse(
        200 if ok else 503,
        msgspec.json.encode(body),
        "application/json",
        {"Cache-Control": "no-store"},
    )


def _shown(answer: HTTPResponse, request: EndpointRequest) -> HTTPResponse:
    """Return a response as JSON, or with `?verbose` as the text of a kube-apiserver."""
    if not request.values("verbose"):
        return answer

    body = msgspec.json.decode(answer.body)
    # One check alone is the only row of its own response.
    rows = [*body.get("checks", [body] if "name" in body else [])]
    rows += [it for it in body.get("informers", ()) if it["lasting"]]
    if body["trouble"] and "name" not in body:
        rows.insert(0, body | {"name": "manager", "ok": False})

    lines = [
        f"[+]{it['name']} ok"
        if it["ok"]
        else f"[-]{it['name']} failed: {it.get('reason') or it['trouble']}"
        for it in rows
    ]
    lines = [it.removesuffix(": failed") for it in lines]
    lines.append("check passed" if answer.status == HTTPStatus.OK else "check failed")
    text = "".join(f"{line}\n" for line in lines)
    headers = {**answer.headers, "X-Content-Type-Options": "nosniff"}
    return HTTPResponse(answer.status, text.encode(), headers=headers)


def _report_of_check(result: CheckResult, *, reasons: bool) -> dict[str, object]:
    trouble = _Trouble(result.label, redacted(result.reason)) if result.label else None
    named = {"name": result.name, "ok": not result.label}
    return named | _details(trouble, reasons=reasons)


def _details(trouble: _Trouble | None, *, reasons: bool) -> dict[str, object]:
    label, reason = trouble or ("", "")
    if not reasons:
        return {"trouble": label}

    return {"trouble": label, "reason": reason}


def _informers_of(
    sources: Sequence[HasInformers | SharedInformer],
) -> Iterator[tuple[SharedInformer, bool]]:
    for source in sources:
        if isinstance(source, SharedInformer):
            yield source, True
        else:
            lasting = set(source.lasting)
            yield from ((it, it in lasting) for it in source.informers)


def report_of(informer: SharedInformer, *, reasons: bool) -> dict[str, Any]:
    """Return the state of an informer, with the trouble of its last attempts.

    Args:
        informer: Informer to report.
        reasons: See `livez`.
    """
    report = _report(informer, ok=_why_not_ready(informer) is None, lasting=True)
    del report["lasting"]
    trouble = _why_not_ready(informer) or _current_trouble(informer)
    return report | _details(trouble, reasons=reasons)


def _report(informer: SharedInformer, *, ok: bool, lasting: bool) -> dict[str, object]:
    status = informer.status
    return {
        "name": informer.name,
        "ok": ok,
        "lasting": lasting,
        "phase": status.phase,
        "synced": status.synced,
        "age_seconds": None if status.age is None else round(status.age, 3),
        "objects": len(informer.store),
        "resource_version": status.resource_version,
        "restarts": status.restarts,
        "failures": status.failures,
        "history_resets": status.history_resets,
        "degraded": status.degraded,
    }
