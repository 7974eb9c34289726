"""Problems in words, from the JSON of an overview. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, NamedTuple
from urllib.parse import quote

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ["LAG_SECONDS", "Trouble", "trouble_in"]

LAG_SECONDS = 0.1
"""Delay of the event loop that counts as trouble."""

_DOCS = "https://aioinformer.github.io/aioinformer/"


# Characters that the page does not encode in its addresses either.
_SAFE = "!'()*"


class Trouble(NamedTuple):
    """Problem of a part of the program.

    Attributes:
        level: `"error"` if something does not work, else `"warning"`.
        what: Part that is affected, such as `"informer pods"`.
        text: Description of the problem.
        link: Place on the dashboard.
        page: Page of the documentation about it.
    """

    level: Literal["error", "warning"]
    what: str
    text: str
    link: str
    page: str


def trouble_in(overview: Mapping[str, Any]) -> list[Trouble]:
    """Return the problems, errors first.

    Args:
        overview: JSON of `Overview.snapshot`, still without its `trouble`.
    """
    found = [
        *(each for it in overview["informers"] for each in _of_informer(it)),
        *(each for it in overview["controllers"] for each in _of_controller(it)),
        *_of_program(overview),
    ]
    return sorted(found, key=lambda it: it.level != "error")


def _of_informer(row: Mapping[str, Any]) -> Iterator[Trouble]:
    what = f"informer {row['name']}"
    link = f"#/objects/{quote(row['id'], safe=_SAFE)}"
    help_page = f"{_DOCS}troubleshooting/"
    if row["error"]:
        works = row["phase"] != "stopped" and row["synced"] and not row["failures"]
        level: Literal["error", "warning"] = "warning" if works else "error"
        yield Trouble(level, what, row["error"], link, help_page)
    elif row["phase"] == "backing off":
        text = "its watch was interrupted, it connects again"
        yield Trouble("warning", what, text, link, help_page)

    if row["degraded"]:
        text = f"{row['degraded']:,} objects or events could not be read"
        yield Trouble("warning", what, text, link, f"{help_page}#symptoms")

    if row["store"] is not None and row["store"]["role"] == "memory":
        text = "its store on disk cannot be used, so its objects are in memory"
        yield Trouble("warning", what, text, link, f"{_DOCS}shared-cache/")


def _of_controller(row: Mapping[str, Any]) -> Iterator[Trouble]:
    what = f"controller {row['name']}"
    link = f"#/controllers/{quote(row['name'], safe=_SAFE)}"
    if row["failing"]:
        number = row["failing"]
        fail = "1 request fails" if number == 1 else f"{number:,} requests fail"
        page = f"{_DOCS}troubleshooting/#the-reason-for-a-delay"
        yield Trouble("error", what, f"{fail}: {row['last_failure']}", link, page)

    if row["storms"]:
        text = (
            f"{row['storms']:,} of its keys are slowed down, as their reconciles "
            "trigger each other"
        )
        yield Trouble("warning", what, text, link, f"{_DOCS}operator/")


def _of_program(overview: Mapping[str, Any]) -> Iterator[Trouble]:
    """Yield trouble that has no place of its own on the dashboard."""
    manager = overview["manager"]
    if manager is not None and manager["trouble"]:
        page = f"{_DOCS}production/"
        yield Trouble("warning", "manager", manager["trouble"], "#/", page)

    for it in overview["shards"]:
        if it["trouble"]:
            what, page = f"shards {it['group']}", f"{_DOCS}shards/"
            yield Trouble("error", what, it["trouble"], "#/", page)

    for it in overview["recorders"]:
        if it["dropped"]:
            what, page = f"events of {it['name']}", f"{_DOCS}operator/"
            text = f"{it['dropped']:,} events were not written"
            yield Trouble("warning", what, text, "#/", page)

    budget = overview["memory"]["budget"]
    if budget is not None and budget["over"]:
        text = f"over the memory budget: {budget['text']}"
        yield Trouble("warning", "memory", text, "#/", f"{_DOCS}production/")

    lag = overview["loop"]["lag"]
    if lag > LAG_SECONDS:
        text = f"other tasks have to wait {lag * 1000:.0f} ms"
        yield Trouble("warning", "event loop", text, "#/", f"{_DOCS}production/")
