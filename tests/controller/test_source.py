"""Sources: requests of an informer's changes."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from controller_helpers import informer_of, named, owned
from fake_source import thing

from aioinformer import Added, Deleted, KubeObject, ReconcileRequest, Resource, Updated
from aioinformer.controller import Predicate
from aioinformer.controller.source import (
    Source,
    enqueue_owner,
    enqueue_self,
)
from aioinformer.errors import OptionsError
from aioinformer.informer.handlers.error_reporter import ErrorReporter
from aioinformer.model.resources import DEPLOYMENTS, NODES, PODS
from aioinformer.testing import FakeListerWatcher
from aioinformer.workqueue import LOW_PRIORITY

if TYPE_CHECKING:
    from aioinformer.controller.source import Mapping
    from aioinformer.errors import HandlerError


class Bench:
    """Source of pods, with its reported failures."""

    def __init__(self, mapping: Mapping, *predicates: Predicate) -> None:
        self.failures: list[HandlerError] = []
        reporter = ErrorReporter("controller", self.failures.append)
        pods = informer_of(FakeListerWatcher())
        self.source = Source.of(pods, mapping, predicates, reporter)

    def keys(self, event: Added | Updated | Deleted) -> list[str]:
        found = self.source.requests(event)
        return [] if found is None else [it.key for it in found[0]]


def team_of(obj: KubeObject) -> list[str]:
    return [f"teams/{obj.labels['team']}"]


def of_team(team: str) -> KubeObject:
    return KubeObject.of(named("web", labels={"team": team}))


def test_update_maps_old_and_new_object() -> None:
    bench = Bench(team_of)

    assert bench.keys(Updated(of_team("a"), of_team("b"))) == ["teams/a", "teams/b"]


def test_request_of_both_states_is_returned_once() -> None:
    bench = Bench(team_of)

    assert bench.keys(Updated(of_team("a"), of_team("a"))) == ["teams/a"]


def test_failing_mapping_returns_no_requests_and_is_reported() -> None:
    bench = Bench(team_of)
    bare = thing("web")

    assert bench.keys(Added(bare)) == []
    assert [str(it) for it in bench.failures] == ["mapping of Pod failed"]
    assert bench.failures[0].subject is bare
    assert isinstance(bench.failures[0].__cause__, KeyError)


def test_mapping_that_fails_for_old_object_still_maps_new_one() -> None:
    bench = Bench(team_of)

    assert bench.keys(Updated(thing("web"), of_team("b"))) == ["teams/b"]
    assert len(bench.failures) == 1


def test_failing_generator_returns_no_requests() -> None:
    def some(obj: KubeObject) -> object:
        yield "a/b"
        raise ValueError("boom")

    bench = Bench(some)  # type: ignore[arg-type]

    assert bench.keys(Added(thing("web"))) == []
    assert len(bench.failures) == 1


def test_change_must_pass_all_predicates() -> None:
    yes, no = Predicate(lambda _: True), Predicate(lambda _: False)

    assert Bench(enqueue_self, yes, yes).keys(Added(thing("web")))
    assert not Bench(enqueue_self, yes, no).keys(Added(thing("web")))


@pytest.mark.parametrize("error", [ValueError("boom"), asyncio.CancelledError()])
def test_mapping_that_fails_for_both_states_returns_no_requests(
    error: BaseException,
) -> None:
    def fail(obj: KubeObject) -> list[str]:
        raise error

    bench = Bench(fail)

    assert bench.keys(Added(thing("web"))) == []
    assert [it.__cause__ for it in bench.failures] == [error]


@pytest.mark.parametrize("error", [ValueError("boom"), asyncio.CancelledError()])
def test_failing_predicate_lets_change_pass_and_is_reported(
    error: BaseException,
) -> None:
    def fail(event: object) -> bool:
        raise error

    bench = Bench(enqueue_self, Predicate(fail))

    assert bench.keys(Added(thing("web"))) == ["default/web"]
    assert [str(it) for it in bench.failures] == ["predicate of Pod failed"]


@pytest.mark.parametrize(
    ("event", "priority"),
    [
        pytest.param(Added(thing("a"), True), LOW_PRIORITY, id="initial"),
        pytest.param(Updated(thing("a"), thing("a"), True), LOW_PRIORITY, id="resync"),
        pytest.param(Added(thing("a")), 0, id="added"),
        pytest.param(Updated(thing("a"), thing("a", 2)), 0, id="updated"),
        pytest.param(Deleted(thing("a")), 0, id="deleted"),
    ],
)
def test_initial_and_resync_causes_have_low_priority(
    event: Added | Updated | Deleted, priority: int
) -> None:
    found = Bench(enqueue_self).source.requests(event)

    assert found is not None
    requests, _, of_cause = found
    assert list(requests) == [ReconcileRequest("default", "a")]
    assert of_cause == priority


def test_source_refuses_other_than_informer() -> None:
    with pytest.raises(OptionsError, match="watches informers"):
        Source.of(FakeListerWatcher(), enqueue_self, (), ErrorReporter("x"))  # type: ignore[arg-type]


def test_coroutine_function_as_mapping_is_refused() -> None:
    async def late(obj: KubeObject) -> list[str]:
        return []

    with pytest.raises(OptionsError, match="plain function"):
        Bench(late)  # type: ignore[arg-type]


def keys(requests: Any) -> list[str]:
    return [it.key for it in requests]


def test_enqueue_self_maps_to_object() -> None:
    assert keys(enqueue_self(KubeObject.of(named("web")))) == ["default/web"]


def test_enqueue_self_maps_cluster_scoped_object() -> None:
    node = KubeObject.of({"metadata": {"name": "node-1"}})

    assert enqueue_self(node) == [ReconcileRequest("", "node-1")]


@pytest.mark.parametrize(
    ("reference", "found"),
    [
        pytest.param({"controller": True}, ["default/app"], id="controller"),
        pytest.param({}, [], id="owner-alone"),
        pytest.param({"controller": True, "kind": "ReplicaSet"}, [], id="other-kind"),
        pytest.param(
            {"controller": True, "apiVersion": "apps/v1beta9"},
            ["default/app"],
            id="other-version",
        ),
        pytest.param({"controller": True, "apiVersion": "x/v1"}, [], id="other-group"),
    ],
)
def test_enqueue_owner_maps_to_controller_by_group_and_kind(
    reference: dict[str, Any], found: list[str]
) -> None:
    given = {"kind": "Deployment", "apiVersion": "apps/v1", **reference}
    obj = KubeObject.of(owned("web", "app", **given))

    assert keys(enqueue_owner(DEPLOYMENTS)(obj)) == found


def test_enqueue_owner_maps_to_all_owners_on_request() -> None:
    obj = KubeObject.of(owned("web", "app", kind="Pod"))

    assert keys(enqueue_owner(PODS, controller=False)(obj)) == ["default/app"]


def test_enqueue_owner_maps_to_cluster_scoped_owner() -> None:
    obj = KubeObject.of(owned("web", "node-1", kind="Node", controller=True))

    assert keys(enqueue_owner(NODES)(obj)) == ["node-1"]


def test_enqueue_owner_without_kind_is_refused() -> None:
    with pytest.raises(OptionsError, match="kind"):
        enqueue_owner(Resource("example.com", "v1", "widgets"))


def test_object_without_owners_has_no_requests() -> None:
    assert enqueue_owner(PODS)(KubeObject.of(named("web"))) == []


def test_mapping_may_return_keys_and_requests() -> None:
    bench = Bench(lambda _: ["a/b", ReconcileRequest("c", "d")])

    assert bench.keys(Added(thing("web"))) == ["a/b", "c/d"]


@pytest.mark.parametrize("answer", ["a/b", None, 7, [7], [None]], ids=repr)
def test_mapping_must_return_list_of_keys_or_requests(answer: Any) -> None:
    bench = Bench(lambda _: answer)

    assert bench.keys(Added(thing("web"))) == []
    assert isinstance(bench.failures[0].__cause__, TypeError)
