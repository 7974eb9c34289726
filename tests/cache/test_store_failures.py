"""Failing index functions: the object is stored, and the error reported once."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from store_helpers import Thing, by_tag, by_version, contents_of

from aioinformer.cache import (
    Indexer,
    MutationDetector,
    Store,
    UndeltaStore,
    index_by_label,
)
from aioinformer.cache.index import by_namespace
from aioinformer.errors import OptionsError

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioinformer.errors import HandlerError


@pytest.fixture
def failures() -> list[HandlerError]:
    return []


@pytest.fixture
def indexer(failures: list[HandlerError]) -> Indexer[Thing]:
    return Indexer({"tag": by_tag, "version": by_version}, on_error=failures.append)


BAD = Thing("a", ("bad",), 2)


def late_index(indexer: Indexer[Thing]) -> None:
    indexer.add(BAD)
    indexer.add_indexers({"late": by_tag})


def index_added_before_a_swap(indexer: Indexer[Thing]) -> None:
    replacement = indexer.replacement()
    replacement.put("a", BAD)
    replacement.put("c", Thing("c", ("x",)))
    indexer.add_indexers({"late": by_tag})
    indexer.swap(replacement)


def kept_from_contents_without_the_index(indexer: Indexer[Thing]) -> None:
    source = Indexer[Thing]().contents
    replacement = indexer.replacement()
    for thing in (BAD, Thing("c", ("x",))):
        replacement.keep(thing.key, thing, source)

    indexer.swap(replacement)


@pytest.mark.parametrize(
    ("write", "name", "found"),
    [
        pytest.param(
            lambda it: (it.delete(Thing("a")), it.add(BAD)), "tag", {"b"}, id="add"
        ),
        pytest.param(lambda it: it.update(BAD), "tag", {"b"}, id="update"),
        pytest.param(
            lambda it: it.replace([Thing("c", ("x",)), BAD]), "tag", {"c"}, id="replace"
        ),
        pytest.param(
            kept_from_contents_without_the_index, "tag", {"c"}, id="kept-without-index"
        ),
    ],
)
def test_object_whose_index_function_fails_is_stored_without_index(
    indexer: Indexer[Thing],
    failures: list[HandlerError],
    write: Callable[[Indexer[Thing]], None],
    name: str,
    found: set[str],
) -> None:
    indexer.add(Thing("a", ("x", "y"), 1))
    indexer.add(Thing("b", ("x",), 1))

    write(indexer)

    assert indexer.get_by_key("a") is BAD
    assert contents_of(indexer, name) == {"x": found}
    assert indexer.by_index("version", "2") == [BAD]
    assert [(it.where, it.name, it.subject) for it in failures] == [
        ("index function", "tag", BAD)
    ]
    assert isinstance(failures[0].__cause__, ZeroDivisionError)


@pytest.mark.parametrize("write", [late_index, index_added_before_a_swap])
def test_index_added_later_leaves_out_objects_it_fails_for(
    failures: list[HandlerError], write: Callable[[Indexer[Thing]], None]
) -> None:
    indexer = Indexer[Thing](on_error=failures.append)
    indexer.add(Thing("c", ("x",)))

    write(indexer)

    assert indexer.list_keys() in (["a", "c"], ["c", "a"])
    assert contents_of(indexer, "late") == {"x": {"c"}}
    assert {(it.name, it.subject) for it in failures} == {("late", BAD)}


def test_kept_object_stays_absent_from_failed_index(
    indexer: Indexer[Thing], failures: list[HandlerError]
) -> None:
    indexer.add(BAD)
    replacement = indexer.replacement()

    replacement.keep("a", BAD, indexer.contents)
    indexer.swap(replacement)

    assert indexer.list() == [BAD]
    assert contents_of(indexer) == {}
    assert contents_of(indexer, "version") == {"2": {"a"}}
    assert len(failures) == 1


def test_updated_object_returns_to_index_that_failed_before(
    indexer: Indexer[Thing], failures: list[HandlerError]
) -> None:
    for tags in (("x",), ("bad",), ("bad",), ("y",)):
        indexer.update(Thing("a", tags))

    assert contents_of(indexer) == {"y": {"a"}}
    assert len(failures) == 2


def test_label_index_ignores_objects_without_labels(
    failures: list[HandlerError],
) -> None:
    indexer = Indexer[Any]({"app": index_by_label("app")}, on_error=failures.append)

    indexer.add(Thing("a", version=1))
    indexer.update(Thing("a", version=2))
    replacement = indexer.replacement()
    replacement.keep("a", Thing("a", version=2), indexer.contents)
    indexer.swap(replacement)
    indexer.delete(Thing("a"))

    assert len(indexer) == 0
    assert [it.subject for it in failures] == [
        Thing("a", version=1),
        Thing("a", version=2),
    ]


def test_namespace_index_reads_only_the_key(
    failures: list[HandlerError],
) -> None:
    """So it fails for no object, and finds each object that is removed."""
    indexer = Indexer[Any]({"namespace": by_namespace}, on_error=failures.append)
    indexer.add(Thing("shop/a"))
    indexer.add(Thing("a"))
    indexer.update(SimpleNamespace(key="shop/a", namespace="other"))
    indexer.add(SimpleNamespace(key="shop/b", namespace="shop"))

    assert indexer.index_keys("namespace", "shop") == ["shop/a", "shop/b"]
    assert indexer.index_keys("namespace", "") == ["a"]
    for key in ("shop/a", "shop/b", "a"):
        indexer.delete(key)

    assert failures == []
    assert indexer.list_index_func_values("namespace") == []


def test_store_reports_failures_of_a_replacement_after_the_swap() -> None:
    tagged: Indexer[Thing]
    seen: list[list[str]] = []

    def on_error(failure: HandlerError) -> None:
        seen.append(sorted(tagged.list_keys()))
        tagged.add(Thing("late", ("x",), 1))

    tagged = Indexer({"tag": by_tag}, on_error=on_error)
    tagged.add(Thing("old", ("x",), 1))
    tagged.replace([BAD, Thing("new", ("x",), 1)])

    assert seen == [["a", "new"]]
    assert sorted(tagged.list_keys()) == ["a", "late", "new"]


def test_failing_on_error_is_logged_and_dropped(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def on_error(failure: HandlerError) -> None:
        raise OSError("disk full")

    indexer = Indexer({"tag": by_tag, "version": by_version}, on_error=on_error)
    indexer.add(Thing("a", ("x",), 1))

    indexer.update(BAD)

    assert contents_of(indexer) == {}
    assert contents_of(indexer, "version") == {"2": {"a"}}
    assert [it.getMessage() for it in caplog.records] == ["on_error failed"]
    assert "disk full" in caplog.text


def test_index_failure_without_on_error_is_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    indexer = Indexer({"tag": by_tag})

    indexer.add(BAD)

    [record] = caplog.records
    assert record.levelno == logging.ERROR
    assert record.getMessage() == "index function tag failed"
    assert record.exc_info
    assert isinstance(record.exc_info[1], ZeroDivisionError)


async def wait(failure: object) -> None:
    raise AssertionError("must not be awaited")


waiting: Any = wait


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda: Store[Thing](on_error=waiting), id="on_error"),
        pytest.param(lambda: UndeltaStore[Thing](waiting), id="push"),
        pytest.param(
            lambda: MutationDetector[Thing](on_mutation=waiting), id="on_mutation"
        ),
    ],
)
def test_store_rejects_coroutine_functions(
    make: Callable[[], object],
) -> None:
    with pytest.raises(OptionsError, match="plain function"):
        make()
