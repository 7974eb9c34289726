"""Goals, and the figures that they are compared with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from bench.contestant import PEERS
from bench.figures import OURS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.figures import Figure

__all__ = [
    "BEST_CLIENT_GO",
    "BEST_KUBE_RS",
    "BEST_PYTHON",
    "FAMILIES",
    "GOALS",
    "Goal",
    "against",
    "unjudged",
]

BEST_CLIENT_GO = "best of client-go"
BEST_KUBE_RS = "best of kube-rs"
BEST_PYTHON = "best in Python"
FAMILIES = {
    BEST_CLIENT_GO: lambda name: name.startswith("client-go"),
    BEST_KUBE_RS: lambda name: name.startswith("kube-rs"),
    BEST_PYTHON: frozenset(
        it.name for it in PEERS if it.language == "Python"
    ).__contains__,
}
"""Peers with their settings, of which the best figure counts, by the name of the family."""

PLAIN = "client-go typed JSON, plain list"
JSON_STREAM = "client-go typed JSON"


@dataclass(frozen=True, kw_only=True)
class Goal:
    """A bound of one of our figures.

    Attributes:
        benchmark, case, contestant: Key of the figure.
        at: Direction of the bound: at least, or at most.
        bound: Bound of the ratio to the peer's figure, or of our own figure.
        peer: Name of the peer; a name of `FAMILIES` for the best of these; None for none.
        why: Reason why it may be missed, in sentences for the page.
    """

    benchmark: str
    case: str
    at: Literal["least", "most"]
    bound: float
    contestant: str = OURS
    peer: str | None = None
    why: str = ""

    def reached(self, value: float) -> bool:
        """Return True if a ratio or figure meets the goal."""
        return value >= self.bound if self.at == "least" else value <= self.bound

    def __str__(self) -> str:
        sign = "≥" if self.at == "least" else "≤"
        return f"{sign} {self.bound:,g}" + ("" if self.peer is None else "x")


def against(goal: Goal, figures: Sequence[Figure]) -> Figure | None:
    """Return the figure that a goal compares with; None if it was not measured."""
    of_peers = [
        it
        for it in figures
        if (it.benchmark, it.case) == (goal.benchmark, goal.case)
        and it.value is not None
    ]
    if goal.peer in FAMILIES:
        candidates = [it for it in of_peers if FAMILIES[goal.peer](it.contestant)]
        best = max if goal.at == "least" else min
        return best(candidates, key=lambda it: it.value or 0.0, default=None)

    return next((it for it in of_peers if it.contestant == goal.peer), None)


def unjudged(goals: Sequence[Goal], figures: Sequence[Figure]) -> list[Goal]:
    """Return the goals for which we have no figure."""
    there = {(it.benchmark, it.case, it.contestant) for it in figures}
    return [it for it in goals if (it.benchmark, it.case, it.contestant) not in there]


PROTOBUF = (
    "client-go receives protobuf, which takes two thirds of the bytes. Custom resources have no "
    "protobuf."
)
PARTS = (
    "Of 20 us for a pod, receiving takes 4, finding its end 4, keeping its bytes in new memory "
    "8 (half of it page faults of this virtual machine), store and handlers 4. A compiled splitter "
    "would save 3."
)
BODIES = "Finding the end of a pod and keeping its bytes takes longer than reading two of its fields."
STREAMED = "kube-rs takes half the time for a streamed list, which is not its default."


def _list() -> tuple[Goal, ...]:
    plain = "10,000 pods, body not read"
    looked_at = "10,000 pods, index on nodeName, handler reads phase"
    return tuple(
        Goal(
            benchmark="list_sync",
            case=case,
            at="least",
            bound=bound,
            peer=peer,
            why=why,
        )
        for case, peer, bound, why in (
            (plain, PLAIN, 12, PARTS),
            (plain, BEST_CLIENT_GO, 1, PROTOBUF),
            (plain, BEST_KUBE_RS, 8, STREAMED),
            (plain, BEST_PYTHON, 8, ""),
            (looked_at, PLAIN, 8, BODIES),
            (looked_at, BEST_CLIENT_GO, 1, PROTOBUF),
            (looked_at, BEST_KUBE_RS, 5, STREAMED),
            (looked_at, None, 35_000, BODIES),
            (plain.replace("10,", "100,"), PLAIN, 12, PARTS),
            (looked_at.replace("10,", "100,"), None, 35_000, ""),
        )
    )


def _watch() -> tuple[Goal, ...]:
    plain = "16 per chunk, body not read"
    looked_at = "16 per chunk, handler reads phase"
    rows: tuple[tuple[str, str | None, Literal["least", "most"], float, str], ...] = (
        (plain, JSON_STREAM, "least", 15, ""),
        (plain, BEST_CLIENT_GO, "least", 1, PROTOBUF),
        (
            plain,
            BEST_KUBE_RS,
            "least",
            8,
            "Receiving takes a third of the time of an event.",
        ),
        (plain, BEST_PYTHON, "least", 4, ""),
        (looked_at, JSON_STREAM, "least", 12, ""),
        (looked_at, BEST_CLIENT_GO, "least", 1, PROTOBUF),
        ("1,000/s, 1 per chunk: p99", None, "most", 1, ""),
    )
    return tuple(
        Goal(
            benchmark="watch_throughput",
            case=case,
            at=at,
            bound=bound,
            peer=peer,
            why=why,
        )
        for case, peer, at, bound, why in rows
    )


WHOLE = (
    "An uncompressed object keeps its JSON, whose bytes alone are about half of the objects of "
    "client-go."
)


def _memory() -> tuple[Goal, ...]:
    few, many = "10,000 pods stored", "100,000 pods stored"
    return (
        *(
            Goal(
                benchmark="memory",
                case=case,
                contestant=contestant,
                at="most",
                bound=bound,
                peer=BEST_CLIENT_GO,
                why=why,
            )
            for case, contestant, bound, why in (
                (few, OURS, 0.5, WHOLE),
                (few, f"{OURS}, without managed fields", 0.33, ""),
                (few, f"{OURS}, compressed", 0.1, ""),
                (many, f"{OURS}, compressed", 0.09, ""),
            )
        ),
        *(
            Goal(
                benchmark="memory",
                case=f"peak of a relist, {share} changed",
                at="most",
                bound=bound,
            )
            for share, bound in (("10%", 1.5), ("100%", 2.1))
        ),
    )


def _web_latency() -> tuple[Goal, ...]:
    listing = (
        Goal(
            benchmark="web_latency",
            case=f"{server}, 100,000 pods synced, {informers}: {name}",
            at="most",
            bound=bound,
        )
        for server in ("aiohttp", "uvicorn")
        for informers in ("1 informer", "10 informers")
        for name, bound in (("p99", 10), ("worst", 20))
    )
    shown = Goal(
        benchmark="web_latency",
        case="aiohttp, 1,000 events/s, 1 informer, 5 pages open: p99",
        contestant=f"{OURS}, with its dashboard",
        at="most",
        bound=10,
    )
    return (*listing, shown)


AWAITED = "Creating and ending a coroutine takes most of it."
SPREAD = (
    "Objects that are spread over 100,000 others are not in the cache of the processor. Read again, "
    "they take as long as among 1,000."
)
COMPRESSED = (
    "Half of it is the first list of 1,000 pods, which was counted, too. A change that comes alone takes "
    "the informers some 50 us. The recorder takes 25, most of it in its thread: it copies, compresses "
    "and writes 8 KB."
)


def _alone() -> tuple[Goal, ...]:
    """Return the rows of figures without a peer."""
    return tuple(
        Goal(benchmark=benchmark, case=case, at="most", bound=bound, why=why)
        for benchmark, case, bound, why in (
            ("fanout", "one more async handler", 0.5, AWAITED),
            ("fanout", "one more plain handler", 0.5, ""),
            (
                "indexer",
                "100 objects by index, among 100,000 compared with 1,000",
                1.2,
                SPREAD,
            ),
            (
                "indexer",
                "the same 100 objects, repeatedly, among 100,000 compared with 1,000",
                1.2,
                "",
            ),
            ("indexer", "selector of one label, over 100,000", 20, ""),
            ("scale", "150,000 objects compared with 10,000", 1.25, ""),
            ("steady", "50 informers, nothing changes: CPU", 0.5, ""),
            ("recording", "20 changes/s: CPU of a recording", 3, COMPRESSED),
            ("recording", "an hour of 20 changes/s: replay", 5, ""),
        )
    )


def _startup() -> tuple[Goal, ...]:
    """Return the goals for imports: of the package alone, and of the names of a factory."""
    return tuple(
        Goal(
            benchmark="startup",
            case=f"import: total {what}",
            contestant=contestant,
            at="most",
            bound=bound,
            why=(
                "asyncio and msgspec take a third of the time, and two thirds of the "
                "memory."
            ),
        )
        for contestant in (OURS, f"{OURS}, a factory's names")
        for what, bound in (("time", 120), ("memory", 30))
    )


def _queue() -> tuple[Goal, ...]:
    return tuple(
        Goal(
            benchmark="workqueue",
            case="500,000 keys",
            contestant=f"{OURS}, {kind}",
            at="least",
            bound=bound,
            peer="asyncio.Queue",
        )
        for kind, bound in (("WorkQueue", 1.0), ("WorkQueue, measured", 0.5))
    )


def _real_server() -> tuple[Goal, ...]:
    case = "10,000 pods of a kube-apiserver"
    return tuple(
        Goal(
            benchmark="real_server",
            case=case,
            at="least",
            bound=bound,
            peer=peer,
            why="The server, on the same two cores, encodes no faster.",
        )
        for peer, bound in ((JSON_STREAM, 4), (BEST_CLIENT_GO, 0.8))
    )


def _million() -> tuple[Goal, ...]:
    def goal(case: str, bound: float, at: Literal["least", "most"] = "most") -> Goal:
        return Goal(
            benchmark="million",
            case=f"1,000,000 pods: {case}",
            contestant=f"{OURS}, compressed",
            at=at,
            bound=bound,
        )

    return (
        goal("all synced", 60),
        goal("memory of an object", 1.2),
        goal("resident", 1.5),
        goal("peak of a relist, compared with resident", 1.6),
        goal("changes followed", 7_900, "least"),
        goal("delay of a change: p99", 50),
        *(
            goal(f"web, {phase}: {name}", bound)
            for phase in ("list", "changes", "relist", "rest")
            for name, bound in (("p99", 10), ("worst", 30))
        ),
    )


OF_MANY = "Each of the many objects that match is read from the file and decoded."


def _shared_cache() -> tuple[Goal, ...]:
    def goal(
        case: str, at: Literal["least", "most"], bound: float, why: str = ""
    ) -> Goal:
        case = f"8 workers, 100,000 pods: {case}"
        return Goal(benchmark="shared_cache", case=case, at=at, bound=bound, why=why)

    memory = "compared with memory"
    return (
        goal("private memory of a worker, largest", "most", 40),
        goal("watches at the server", "most", 1),
        goal("all ready, compared with one alone", "most", 1.5),
        goal("get: p99", "most", 100),
        goal("100 by index: p50", "most", 2),
        goal(f"selector of a label of few: p50, {memory}", "most", 2),
        goal(f"selector of a label of many: p50, {memory}", "most", 2, OF_MANY),
        goal("1,000 changes/s: p99", "most", 50),
        goal(f"list rate, {memory}", "least", 0.5),
        goal("restart: readable, unconfirmed", "most", 0.5),
        goal("restart: synced", "most", 1),
        goal("restart: lists", "most", 0),
        goal("takeover after kill -9", "most", 2),
        goal("takeover after kill -9: lists", "most", 0),
    )


QUARTER = "A replica has a quarter of the objects, and needs some memory without any."


def _shards() -> tuple[Goal, ...]:
    def goal(case: str, bound: float, why: str = "") -> Goal:
        return Goal(benchmark="shards", case=case, at="most", bound=bound, why=why)

    def share(case: str) -> Goal:
        case = f"4 replicas, 10,000 pods, server {case} of a replica, largest"
        return goal(f"{case}, compared with one not sharded", 0.3, QUARTER)

    return (
        share("filters: bytes"),
        share("filters: memory"),
        share("sends everything: memory"),
        goal("4 replicas: all owned after kill -9", 24),
        goal("20 replicas, 64 ranges, nothing moves", 8),
    )


GOALS: tuple[Goal, ...] = (
    *_list(),
    *_watch(),
    *_memory(),
    *_web_latency(),
    *_queue(),
    *_alone(),
    *_startup(),
    *_real_server(),
    *_million(),
    *_shared_cache(),
    *_shards(),
)
