"""Arguments are validated at once: the error names the argument and valid values."""

from __future__ import annotations

import datetime
import math
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import pytest
from each_case import each_case

from aioinformer.errors import ApiError, Invalid, OptionsError, TransportError
from aioinformer.model import KubeObject
from aioinformer.model.resource import Resource
from aioinformer.model.resources import NODES, PODS
from aioinformer.testing import APIServer, FakeListerWatcher, User

if TYPE_CHECKING:
    from collections.abc import Callable

WIDGETS = Resource("example.com", "v1", "widgets", "Widget")
WEB: dict[str, Any] = {"metadata": {"name": "web"}}
NAN = math.nan
CYCLE: dict[str, Any] = {}
CYCLE["again"] = CYCLE


@pytest.fixture
def server() -> APIServer:
    made = APIServer()
    made.create(PODS, WEB)
    return made


def refusal_of(call: Callable[[], object]) -> str:
    with pytest.raises(OptionsError) as raised:
        call()

    text = str(raised.value)
    assert "\n" not in text
    return text


# ---------------------------------------------------------------- options


@each_case(
    "options, message",
    [
        (
            {"resources": WIDGETS},
            "resources must be a list of Resources, not Resource(",
        ),
        ({"resources": "pods"}, "resources must be a list of Resources, not 'pods'"),
        ({"resources": None}, "resources must be a list of Resources, not None"),
        (
            {"resources": ["pods"]},
            "each item of resources must be a Resource, such as ",
        ),
        ({"root": 3}, "root must be a folder or None, not 3"),
        ({"history": "10"}, "history must be a whole number of at least 0, not '10'"),
        ({"history": 1.5}, "history must be a whole number of at least 0, not 1.5"),
        ({"history": True}, "history must be a whole number of at least 0, not True"),
        ({"history": -1}, "history must be a whole number of at least 0, not -1"),
        ({"users": ["a"]}, "users must map tokens to users, such as "),
        ({"users": {"a": 5}}, "each user that is not a User must be a non"),
        ({"users": {"a": ""}}, "each user that is not a User must be a non"),
        (
            {"users": {"": "x"}},
            "a token of users must be a non-empty string of printable ASCII",
        ),
        (
            {"users": {"a": "x"}, "token": "a"},
            "token is also the token of one of users",
        ),
        (
            {"users": {"a": "x"}},
            "users need the token of an administrator, too, such as token='admin'",
        ),
        ({"token": ""}, "token must be a non-empty string of printable ASCII"),
        ({"token": 5}, "token must be a non-empty string of printable ASCII"),
        ({"token": "a\nb"}, "token must be a non-empty string of printable ASCII"),
        ({"token": "a b"}, "token must be a non-empty string of printable ASCII"),
        (
            {"feature_gates": {"Unheard": True}},
            "feature_gates must map feature gates to True or False, not {'Unheard': ",
        ),
        (
            {"feature_gates": {"ShardedListAndWatch": "true"}},
            "feature_gates must map feature gates to True or False, not {'Shard",
        ),
        (
            {"feature_gates": ["ShardedListAndWatch"]},
            "feature_gates must map feature gates to True or False, not ['Shard",
        ),
        ({"port": -1}, "port must be a whole number from 0 to 65535, not -1"),
        ({"port": 70000}, "port must be a whole number from 0 to 65535, not 70000"),
        ({"port": "8"}, "port must be a whole number from 0 to 65535, not '8'"),
        (
            {"bookmark_seconds": 0},
            "bookmark_seconds must be a number of seconds, more than",
        ),
        (
            {"bookmark_seconds": NAN},
            "bookmark_seconds must be a number of seconds, more",
        ),
        (
            {"watch_seconds": NAN},
            "watch_seconds must be a number of seconds, more than 0",
        ),
        (
            {"watch_seconds": "5"},
            "watch_seconds must be a number of seconds, more than 0",
        ),
        (
            {"fresh_seconds": NAN},
            "fresh_seconds must be a number of seconds, 0 or more",
        ),
        ({"fresh_seconds": -1}, "fresh_seconds must be a number of seconds, 0 or more"),
        (
            {"auto_namespaces": "yes"},
            "auto_namespaces must be True or False, not 'yes'",
        ),
    ],
)
def test_apiserver_option_error_names_option(
    options: dict[str, Any], message: str
) -> None:
    assert refusal_of(lambda: APIServer(**options)).startswith(message)


def test_apiserver_accepts_bounds_of_options() -> None:
    server = APIServer(
        resources=iter([WIDGETS]),
        history=0,
        users={"a": "alice"},
        token="!~",
        port=65535,
        fresh_seconds=0,
        bookmark_seconds=1,
    )

    assert server.objects(WIDGETS) == []


@pytest.mark.parametrize(
    ("resource", "message"),
    [
        (Resource("example.com", "v1", "widgets"), "widgets.example.com has no kind"),
        (Resource("example", "v1", "widgets", "Widget"), "is a domain such as 'exam"),
        (Resource("", "v1", "widgets", "Widget"), "is a domain such as 'example.com'"),
    ],
)
def test_apiserver_rejects_resource_without_valid_definition(
    resource: Resource, message: str
) -> None:
    text = refusal_of(lambda: APIServer(resources=[resource]))

    assert message in text
    assert "CustomResourceDefinition" not in text


def test_apiserver_accepts_built_in_kind_as_resource() -> None:
    APIServer(resources=[PODS, NODES])


@pytest.mark.parametrize("token", ["", "a b", "user"])
def test_apiserver_rejects_invalid_token_later(token: str) -> None:
    server = APIServer(token="first", users={"user": "alice"})

    refusal_of(lambda: setattr(server, "token", token))
    assert server.token == "first"


@each_case("groups", ["support", ("",), (5,), None, {"support"}])
def test_user_rejects_invalid_groups(groups: Any) -> None:
    text = refusal_of(lambda: User("bob", groups))

    assert text.startswith(
        "the groups of a User must be a tuple or list such as ['support'], not"
    )


def test_user_accepts_list_of_groups() -> None:
    given: Any = ["support"]

    assert User("bob", given) == User("bob", ("support",))


def test_user_rejects_name_that_is_not_a_string() -> None:
    name: Any = 5

    assert "the name of a User must be a string, not 5" in refusal_of(
        lambda: User(name)
    )


# ---------------------------------------------------------------- arranging


@each_case(
    "body, message",
    [
        ("x", "must be a dictionary, not 'x'"),
        (None, "must be a dictionary, not None"),
        ([], "must be a dictionary, not []"),
        (
            {**WEB, "spec": {"at": [datetime.date(2026, 1, 2)]}},
            "spec.at[0] is datetime",
        ),
        ({**WEB, "spec": {"x": NAN}}, "spec.x is nan"),
        ({**WEB, "spec": {"x": {1, 2}}}, "spec.x is {1, 2}"),
        ({**WEB, "spec": {"x": 2**70}}, "spec.x is 1180591620717411303424"),
        ({"spec": {5: 1}}, "the key 5 in spec is not a string"),
        ({5: 1}, "the key 5 is not a string"),
        ({**WEB, "spec": "\ud800"}, "spec is '\\ud800'"),
        ({**WEB, "spec": CYCLE}, "is nested too deeply"),
    ],
)
def test_create_rejects_body_that_json_cannot_represent(
    server: APIServer, body: Any, message: str
) -> None:
    source = FakeListerWatcher()
    before = server.resource_version

    for call in (
        lambda: server.create(PODS, body),
        lambda: server.update(PODS, body),
        lambda: server.patch(PODS, "web", body),
        lambda: source.add(body),
        lambda: source.modify(body),
        lambda: source.delete(body),
    ):
        assert message in refusal_of(call)

    assert server.resource_version == before


def test_create_suggests_text_for_datetime(server: APIServer) -> None:
    body = {"spec": {"at": datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC)}}

    assert "write times as strings" in refusal_of(
        lambda: server.patch(PODS, "web", body)
    )


class Phase(StrEnum):
    RUNNING = "Running"


def test_create_accepts_any_mappings_and_sequences(server: APIServer) -> None:
    seen = KubeObject.of(server.get(PODS, "web"))
    spec = {"nodeName": None, "priority": 5, "x": (1.5, True), "of": seen["metadata"]}

    server.update(PODS, seen)
    got = server.patch(PODS, "web", {"spec": spec, "status": {"phase": Phase.RUNNING}})

    given = {"priority": 5, "x": [1.5, True], "of": seen["metadata"]}
    assert {name: got["spec"].get(name) for name in spec} == {"nodeName": None, **given}
    assert got["status"] == {"phase": "Running"}


@pytest.mark.parametrize(
    ("metadata", "field"),
    [
        ("x", "metadata"),
        ({"name": 1}, "name"),
        ({"name": "web", "labels": 1}, "labels"),
    ],
)
def test_create_rejects_metadata_with_client_error(
    server: APIServer, metadata: Any, field: str
) -> None:
    body = {"metadata": metadata}
    calls: tuple[Callable[[], object], ...] = (
        lambda: server.create(PODS, body),
        lambda: server.update(PODS, body),
        lambda: server.patch(PODS, "web", body),
    )
    for call in calls:
        with pytest.raises(Invalid, match=f"400 .*cannot unmarshal .*{field} of type"):
            call()


def test_update_requires_name(server: APIServer) -> None:
    assert "needs metadata.name" in refusal_of(
        lambda: server.update(PODS, {"spec": {}})
    )


def test_methods_reject_resource_that_is_a_string(server: APIServer) -> None:
    pods: Any = "pods"

    for call in (
        lambda: server.create(pods, WEB),
        lambda: server.update(pods, WEB),
        lambda: server.patch(pods, "web", {}),
        lambda: server.delete(pods, "web"),
        lambda: server.get(pods, "web"),
        lambda: server.objects(pods),
        lambda: server.register(pods),
        lambda: server.unregister(pods),
        lambda: FakeListerWatcher(resource=pods),
    ):
        text = refusal_of(call)
        assert (
            "must be a Resource, such as aioinformer.model.resources.PODS, not" in text
        )


@pytest.mark.parametrize("name", [1, None, ""])
def test_methods_reject_name_that_is_not_a_string(server: APIServer, name: Any) -> None:
    for call in (
        lambda: server.get(PODS, name),
        lambda: server.delete(PODS, name),
        lambda: server.patch(PODS, name, {}),
    ):
        assert "the name of an object of pods must be a non-empty string" in refusal_of(
            call
        )


@pytest.mark.parametrize(
    ("resource", "namespace", "message"),
    [
        (NODES, "shop", "nodes is cluster-scoped and has no namespaces"),
        (PODS, None, "a namespace must be a string, not None"),
        (PODS, 5, "a namespace must be a string, not 5"),
    ],
)
def test_methods_reject_invalid_namespace(
    server: APIServer, resource: Resource, namespace: Any, message: str
) -> None:
    for call in (
        lambda: server.create(resource, WEB, namespace=namespace),
        lambda: server.get(resource, "web", namespace=namespace),
        lambda: server.patch(resource, "web", {}, namespace=namespace),
        lambda: server.delete(resource, "web", namespace=namespace),
        lambda: server.objects(resource, namespace=namespace),
    ):
        assert refusal_of(call) == message


def test_create_keeps_creation_timestamp(server: APIServer) -> None:
    time = "2020-01-02T03:04:05Z"
    made = server.create(PODS, {"metadata": {"name": "a", "creationTimestamp": time}})

    assert made["metadata"]["creationTimestamp"] == time


async def test_restart_rejects_invalid_options(server: APIServer) -> None:
    for name, options in {
        "snapshot": {"snapshot": "x"},
        "new_history": {"new_history": "x"},
    }.items():
        given: Any = options
        with pytest.raises(OptionsError, match=f"^{name} must be .*, not 'x'"):
            await server.restart(**given)

    assert "stopped" in repr(server)


# ---------------------------------------------------------------- FakeListerWatcher


@each_case(
    "call, message",
    [
        (
            lambda it: it.refuse("x"),
            "error must be an ApiError or a TransportError, not 'x'",
        ),
        (lambda it: it.refuse(ValueError()), "not ValueError()"),
        (
            lambda it: it.refuse(ApiError),
            "error must be an ApiError or a TransportError, not",
        ),
        (
            lambda it: it.refuse(ApiError("no"), times=0),
            "times must be a whole number of at least 1",
        ),
        (
            lambda it: it.refuse(TransportError("no"), times="2"),
            "times must be a whole ",
        ),
        (
            lambda it: it.error(ValueError()),
            "error must be an ApiError, not ValueError()",
        ),
        (
            lambda it: it.add({"metadata": "x"}),
            "metadata must be a dictionary, not 'x'",
        ),
        (
            lambda it: it.add({"metadata": {"name": 1}}),
            "metadata.name must be a non-empty string",
        ),
        (lambda it: it.add({}), "metadata.name must be a non-empty string, not None"),
        (
            lambda it: it.add({"metadata": {"name": "a", "namespace": 1}}),
            "metadata.namespace must be a non-empty string",
        ),
    ],
)
def test_fake_lister_watcher_rejects_invalid_arguments(
    call: Callable[[FakeListerWatcher], object], message: str
) -> None:
    assert message in refusal_of(lambda: call(FakeListerWatcher()))
