"""Whether an app is alive and ready, by what its informers say of themselves.

The two questions of a kubelet have different answers. `/readyz`: may requests be sent
here? Not while a cache is incomplete, dead or, if a bound is given, too old. `/livez`:
does restarting help? Only if an informer is dead: it never comes back. An API server
that is away, slow or refuses is no reason; a restart would lose the cache, which still
answers.

The bodies name informers, their phases and what is wrong in a word: whoever reaches a
probe may read them. The texts of errors are shown if `reasons` asks for them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

import msgspec

from aioinformer.controller.manager import Manager
from aioinformer.errors import InformerStopped, NotSynced, OptionsError, Stale
from aioinformer.informer.shared_informer import SharedInformer
from aioinformer.informer.status import why_not_ready
from aioinformer.model.times import seconds_of
from aioinformer.web.responses import HTTPResponse

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from aioinformer.model.times import Duration
    from aioinformer.web.responses import Responder

__all__ = ["HasInformers", "health_responders", "livez", "readyz"]


class HasInformers(Protocol):
    """Who has informers: a factory, a `Manager`; asked again for each request.

    Of a manager it counts as well whether it has failed, or its work outlives its lease:
    then it is neither alive nor ready. One that waits to lead is both.
    """

    @property
    def informers(self) -> Sequence[SharedInformer]:
        """All of them; those that are used for a time as well."""

    @property
    def lasting(self) -> Sequence[SharedInformer]:
        """Those that are there for good: the app depends on these."""


def health_responders(
    *sources: HasInformers | SharedInformer,
    max_staleness: Duration | None = None,
    reasons: bool = False,
) -> dict[str, Responder]:
    """The routes `/livez` and `/readyz`, and what answers them.

    Args:
        *sources: Whose informers; or informers.
        max_staleness: See `readyz`.
        reasons: See `livez`.

    Raises:
        OptionsError: There is nobody to ask, or the time is not positive.
    """
    if not sources:
        raise OptionsError("whose health? give a factory, or informers")

    seconds = None if max_staleness is None else seconds_of(max_staleness)
    if seconds is not None and seconds <= 0:
        raise OptionsError(f"max_staleness must be positive, not {max_staleness}")

    async def is_alive(_: str) -> HTTPResponse:
        return livez(*sources, reasons=reasons)

    async def is_ready(_: str) -> HTTPResponse:
        return readyz(*sources, max_staleness=seconds, reasons=reasons)

    return {"/livez": is_alive, "/readyz": is_ready}


def livez(
    *sources: HasInformers | SharedInformer, reasons: bool = False
) -> HTTPResponse:
    """200 unless an informer that the app depends on is dead, which is for good.

    Those of a factory that was left are dead, too. Whatever else is wrong with them
    passes by itself, or does not pass by a restart.

    Args:
        *sources: Whose informers; or informers.
        reasons: Also show the texts of errors. They name servers, users and files, so
            that only those who operate the app should be able to read the answer.
    """
    return _answer(
        sources,
        lambda it: _why_not_ready(it) if it.status.phase == "stopped" else None,
        reasons=reasons,
    )


def readyz(
    *sources: HasInformers | SharedInformer,
    max_staleness: Duration | None = None,
    reasons: bool = False,
) -> HTTPResponse:
    """200 if each informer that the app depends on is alive, synced, and fresh enough.

    Those of `factory.use()` are shown, and count for nothing: who uses one waits for it,
    and the rest of the app does not.

    Args:
        *sources: Whose informers; or informers.
        max_staleness: How many seconds a cache may be behind the server, by
            `InformerStatus.age`; None for any number: then the app goes on answering
            through an outage of the API server from what it has. See `Lister` for what
            to choose; too low a number takes all replicas out of service at once, in an
            outage as well as in a quiet hour.
        reasons: See `livez`.
    """
    return _answer(sources, lambda it: _why_unready(it, max_staleness), reasons=reasons)


class _Trouble(NamedTuple):
    """Trouble of an informer or a manager."""

    word: str
    """One of a few: nothing of an error is in it."""

    reason: str
    """The whole story, with the text of errors."""


def _why_not_ready(informer: SharedInformer) -> _Trouble | None:
    why = why_not_ready(informer)
    stopped = informer.status.phase == "stopped"
    return _Trouble("stopped" if stopped else "not synced", why) if why else None


def _why_unready(informer: SharedInformer, most: Duration | None) -> _Trouble | None:
    trouble = _why_not_ready(informer)
    if trouble is not None or informer.status.phase == "stopping":
        return trouble or _Trouble("stopping", "stopping")

    try:
        # A read that says all the rest; of no object, and in no time.
        informer.lister.get("", max_staleness=most)
    except Stale as exc:
        return _Trouble("stale", str(exc))
    except NotSynced as exc:
        return _Trouble("not synced", str(exc))
    except InformerStopped as exc:
        return _Trouble("stopped", str(exc))

    return None


def _answer(
    sources: Sequence[HasInformers | SharedInformer],
    why: Callable[[SharedInformer], _Trouble | None],
    *,
    reasons: bool,
) -> HTTPResponse:
    reports = []
    dead = [it.why_dead() for it in sources if isinstance(it, Manager)]
    reason = "; ".join(filter(None, dead))
    trouble = _Trouble("manager failed", reason) if reason else None
    ok = trouble is None
    for informer, lasting in _informers_of(sources):
        theirs = why(informer)
        ok = ok and not (theirs and lasting)
        report = _report(informer, ok=theirs is None, lasting=lasting)
        reports.append(report | _told(theirs, reasons=reasons))

    status = "ok" if ok else "unavailable"
    body = {"status": status} | _told(trouble, reasons=reasons)
    return HTTPResponse(
        200 if ok else 503,
        msgspec.json.encode(body | {"informers": reports}),
        "application/json",
        {"Cache-Control": "no-store"},
    )


def _told(trouble: _Trouble | None, *, reasons: bool) -> dict[str, object]:
    word, reason = trouble or ("", "")
    if not reasons:
        return {"trouble": word}

    return {"trouble": word, "reason": reason}


def _informers_of(
    sources: Sequence[HasInformers | SharedInformer],
) -> Iterator[tuple[SharedInformer, bool]]:
    for source in sources:
        if isinstance(source, SharedInformer):
            yield source, True
        else:
            lasting = set(source.lasting)
            yield from ((it, it in lasting) for it in source.informers)


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
        "degraded": status.degraded,
    }
