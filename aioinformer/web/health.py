"""Whether an app is alive and ready, by what its informers say of themselves.

The two questions of a kubelet have different answers. `/readyz`: may requests be sent
here? Not while a cache is incomplete, dead or, if a bound is given, too old. `/livez`:
does restarting help? Only if an informer is dead: it never comes back. An API server
that is away, slow or refuses is no reason; a restart would lose the cache, which still
answers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import msgspec

from aioinformer.controller.manager import Manager
from aioinformer.errors import InformerStopped, NotSynced, OptionsError, Stale
from aioinformer.informer.cache_sync import why_not_ready
from aioinformer.informer.shared_informer import SharedInformer
from aioinformer.model.durations import seconds_of
from aioinformer.web.answers import Answer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from aioinformer.model.durations import Duration
    from aioinformer.web.answers import Responder

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
    *sources: HasInformers | SharedInformer, max_staleness: Duration | None = None
) -> dict[str, Responder]:
    """The routes `/livez` and `/readyz`, and what answers them.

    Args:
        *sources: Whose informers; or informers.
        max_staleness: See `readyz`.

    Raises:
        OptionsError: There is nobody to ask, or the time is not positive.
    """
    if not sources:
        raise OptionsError("whose health? give a factory, or informers")

    seconds = None if max_staleness is None else seconds_of(max_staleness)
    if seconds is not None and seconds <= 0:
        raise OptionsError(f"max_staleness must be positive, not {max_staleness}")

    async def is_alive(_: str) -> Answer:
        return livez(*sources)

    async def is_ready(_: str) -> Answer:
        return readyz(*sources, max_staleness=seconds)

    return {"/livez": is_alive, "/readyz": is_ready}


def livez(*sources: HasInformers | SharedInformer) -> Answer:
    """200 unless an informer that the app depends on is dead, which is for good.

    Those of a factory that was left are dead, too. Whatever else is wrong with them
    passes by itself, or does not pass by a restart.
    """
    return _answer(
        sources,
        lambda it: why_not_ready(it) if it.status.phase == "stopped" else "",
    )


def readyz(
    *sources: HasInformers | SharedInformer, max_staleness: Duration | None = None
) -> Answer:
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
    """
    return _answer(sources, lambda it: _why_unready(it, max_staleness))


def _why_unready(informer: SharedInformer, most: Duration | None) -> str:
    why = why_not_ready(informer)
    if why or informer.status.phase == "stopping":
        return why or "stopping"

    try:
        # A read that says all the rest; of no object, and in no time.
        informer.lister.get("", max_staleness=most)
    except (Stale, NotSynced, InformerStopped) as exc:
        return str(exc)

    return ""


def _answer(
    sources: Sequence[HasInformers | SharedInformer],
    why: Callable[[SharedInformer], str],
) -> Answer:
    reports = []
    dead = [it.why_dead() for it in sources if isinstance(it, Manager)]
    trouble = "; ".join(filter(None, dead))
    ok = not trouble
    for informer, lasting in _informers_of(sources):
        reason = why(informer)
        ok = ok and not (reason and lasting)
        reports.append(_report(informer, reason, lasting=lasting))

    status = "ok" if ok else "unavailable"
    body = {"status": status, "trouble": trouble, "informers": reports}
    return Answer(
        200 if ok else 503,
        msgspec.json.encode(body),
        "application/json",
        {"Cache-Control": "no-store"},
    )


def _informers_of(
    sources: Sequence[HasInformers | SharedInformer],
) -> Iterator[tuple[SharedInformer, bool]]:
    for source in sources:
        if isinstance(source, SharedInformer):
            yield source, True
        else:
            lasting = set(source.lasting)
            yield from ((it, it in lasting) for it in source.informers)


def _report(
    informer: SharedInformer, trouble: str, *, lasting: bool
) -> dict[str, object]:
    status = informer.status
    return {
        "name": informer.name,
        "ok": not trouble,
        "trouble": trouble,
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
