"""`Lister`: reads from memory, and refusals to read an untrusted cache."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
import orjson
import pytest
from fake_source import thing
from json_helpers import calls_of, nested
from queue_helpers import error_in_thread

from aioinformer.cache import Indexer, index_by, index_by_label
from aioinformer.cache.index import NAMESPACE_INDEX, by_namespace
from aioinformer.errors import NotSynced, OptionsError, SelectorSyntaxError, Stale
from aioinformer.informer import Lister
from aioinformer.informer.lister import BodyJoiner
from aioinformer.model import KubeObject, LabelSelector
from aioinformer.model.times import seconds_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from aioinformer.model.times import Duration

T = TypeVar("T", bound=KubeObject)

WEB = {"app": "web", "tier": "a"}
OBJECTS = [
    thing("web-0", namespace="shop", labels=WEB),
    thing("web-1", namespace="shop", labels=WEB, spec={"nodeName": "node-2"}),
    thing("db-0", namespace="shop", labels={"app": "db"}),
    thing("web-0", namespace="test", labels=WEB, spec={"nodeName": "node-2"}),
]
NODE = KubeObject.of({"kind": "Node", "metadata": {"name": "node-1"}})


class Trust:
    """A trust check that raises a given error."""

    error: Exception | None = None
    confirmed = True
    age = 0.0

    def __call__(self, namespace: str | None, *, unconfirmed: bool = False) -> None:
        if self.error is not None:
            raise self.error

        if not (self.confirmed or unconfirmed):
            raise NotSynced("not confirmed")

    def check_age(self, most: Duration, namespace: str | None) -> None:
        if self.age > seconds_of(most):
            raise Stale(f"{self.age} s old")


@pytest.fixture
def trust() -> Trust:
    return Trust()


@pytest.fixture
def lister(trust: Trust) -> Lister:
    return lister_of(*OBJECTS, trust=trust)


def lister_of(
    *objects: KubeObject,
    trust: Trust | None = None,
    bodies: BodyJoiner | None = None,
) -> Lister:
    indexer: Indexer[KubeObject] = Indexer(
        {NAMESPACE_INDEX: by_namespace, "node": index_by("spec.nodeName")}
    )
    indexer.replace(objects, "17")
    trust = trust or Trust()
    return Lister(indexer, trust, trust.check_age, bodies=bodies)


def keys(objects: list[KubeObject]) -> list[str]:
    return [obj.key for obj in objects]


# ---------------------------------------------------------------- get


@pytest.mark.parametrize(
    ("namespace", "key", "found"),
    [
        pytest.param(None, "shop/web-0", "shop/web-0", id="full-key"),
        pytest.param(None, "web-0", None, id="bare-name-of-a-namespaced-object"),
        pytest.param(None, "shop/none", None, id="unknown"),
        pytest.param("shop", "web-0", "shop/web-0", id="bare-name-in-a-namespace"),
        pytest.param("test", "web-0", "test/web-0", id="in-another-namespace"),
        pytest.param("shop", "shop/web-0", "shop/web-0", id="full-key-in-a-namespace"),
        pytest.param("shop", "test/web-0", None, id="full-key-of-another-namespace"),
        pytest.param("none", "web-0", None, id="unknown-namespace"),
        pytest.param("", "shop/web-0", None, id="no-namespace"),
    ],
)
def test_get(
    lister: Lister, namespace: str | None, key: str, found: str | None
) -> None:
    narrowed = lister if namespace is None else lister.namespace(namespace)

    obj = narrowed.get(key)

    assert (obj.key if obj is not None else None) == found


def test_cluster_scoped_objects_have_a_bare_name_and_no_namespace() -> None:
    lister = lister_of(NODE)

    assert lister.get("node-1") is NODE
    assert lister.namespace("").get("node-1") is NODE
    assert lister.namespace("").list() == [NODE]
    assert lister.namespace("shop").get("node-1") is None


# ---------------------------------------------------------------- list


@pytest.mark.parametrize(
    ("namespace", "options", "found"),
    [
        pytest.param(
            None, {}, ["shop/web-0", "shop/web-1", "shop/db-0", "test/web-0"], id="all"
        ),
        pytest.param(
            "shop", {}, ["shop/web-0", "shop/web-1", "shop/db-0"], id="namespace"
        ),
        pytest.param("none", {}, [], id="unknown-namespace"),
        pytest.param(
            None,
            {"selector": "app=web,tier in (a,b)"},
            ["shop/web-0", "shop/web-1", "test/web-0"],
            id="selector",
        ),
        pytest.param(
            "shop",
            {"selector": LabelSelector.parse("app!=web")},
            ["shop/db-0"],
            id="parsed-selector",
        ),
        pytest.param(None, {"limit": 0}, [], id="limit-0"),
        pytest.param(
            None,
            {"limit": 2, "selector": "app=web"},
            ["shop/web-0", "shop/web-1"],
            id="limit-counts-what-matches",
        ),
        pytest.param("test", {"limit": 9}, ["test/web-0"], id="limit-not-reached"),
    ],
)
def test_list(
    lister: Lister, namespace: str | None, options: dict[str, Any], found: list[str]
) -> None:
    narrowed = lister if namespace is None else lister.namespace(namespace)

    assert sorted(keys(narrowed.list(**options))) == sorted(found)
    body = orjson.loads(narrowed.json(**options))
    assert sorted(
        f"{it['metadata']['namespace']}/{it['metadata']['name']}"
        for it in body["items"]
    ) == sorted(found)


def test_returned_list_is_a_copy(lister: Lister) -> None:
    lister.list().clear()

    assert len(lister.list()) == 4


@pytest.mark.parametrize("read", [Lister.list, Lister.json], ids=["list", "json"])
def test_negative_limit_raises_options_error(
    lister: Lister, read: Callable[..., object]
) -> None:
    with pytest.raises(OptionsError, match="limit must not be negative: -1"):
        read(lister, limit=-1)


@pytest.mark.parametrize("read", [Lister.list, Lister.json], ids=["list", "json"])
def test_selector_of_another_type_raises_options_error(
    lister: Lister, read: Callable[..., object]
) -> None:
    with pytest.raises(
        OptionsError, match=r"such as 'app=web', not .* Write 'app=web'"
    ):
        read(lister, {"app": "web"})


def test_invalid_selector_raises_selector_syntax_error(
    lister: Lister, trust: Trust
) -> None:
    trust.error = NotSynced("not yet")

    with pytest.raises(SelectorSyntaxError):
        lister.list("app in web")


# ---------------------------------------------------------------- by_index, json


@pytest.mark.parametrize(
    ("namespace", "found"),
    [
        (None, ["shop/web-1", "test/web-0"]),
        ("shop", ["shop/web-1"]),
        ("none", []),
    ],
)
def test_by_index(lister: Lister, namespace: str | None, found: list[str]) -> None:
    narrowed = lister if namespace is None else lister.namespace(namespace)

    assert keys(narrowed.by_index("node", "node-2")) == found


def test_unknown_index_raises_options_error(lister: Lister) -> None:
    with pytest.raises(OptionsError, match="owner"):
        lister.by_index("owner", "x")


def test_json_is_a_list_of_the_stored_bodies(lister: Lister) -> None:
    text = lister.namespace("test").json()

    assert json.loads(text) == {
        "apiVersion": "v1",
        "kind": "List",
        "metadata": {"resourceVersion": "17"},
        "items": [OBJECTS[3].to_dict()],
    }
    assert OBJECTS[3].raw in text


def test_json_of_an_empty_store_is_an_empty_list() -> None:
    assert json.loads(lister_of().json())["items"] == []


def test_json_of_any_version_is_valid() -> None:
    indexer: Indexer[KubeObject] = Indexer({NAMESPACE_INDEX: by_namespace})
    indexer.replace([], 'a"b\\')

    body = json.loads(Lister(indexer, Trust(), Trust().check_age).json())

    assert body["metadata"]["resourceVersion"] == 'a"b\\'


# ---------------------------------------------------------------- bodies


def with_body(obj: KubeObject, body: bytes) -> KubeObject:
    return msgspec.structs.replace(obj, body=body)


NO_JSON = {
    "nonsense": b'{"metadata":{"name":"x"},"spec":nonsense}',
    "cut-off": b'{"metadata":{"name":"x"},"spec":{}',
    "more-behind": b'{"metadata":{"name":"x"}},{"spec":{}}',
    "not-utf8": b'{"metadata":{"name":"x"},"spec":"\xff"}',
    "too-deep": b'{"a":%b]' % nested(),
}


@pytest.mark.parametrize("body", NO_JSON.values(), ids=NO_JSON)
def test_json_leaves_out_an_invalid_body(
    body: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    bodies = BodyJoiner("pods")
    lister = lister_of(*OBJECTS[1:], with_body(OBJECTS[0], body), bodies=bodies)

    for _ in range(3):
        items = json.loads(lister.json())["items"]
        assert items == [obj.to_dict() for obj in OBJECTS[1:]]

    assert bodies.failures == 1
    assert caplog.text.count("body is not JSON") == 1
    assert OBJECTS[0].key in caplog.text


def test_json_includes_objects_nested_too_deeply() -> None:
    body = OBJECTS[0].raw[:-1] + b',"deep":%b}' % nested()

    assert body in lister_of(with_body(OBJECTS[0], body)).json()


def test_json_checks_each_body_once() -> None:
    lister = lister_of(*OBJECTS)
    first = calls_of(lister.json)

    assert calls_of(lister.json) < first - len(OBJECTS)
    assert calls_of(lister.namespace("shop").json) < first


def test_body_check_remembers_at_most_twice_the_store() -> None:
    bodies = BodyJoiner()
    stored = len(OBJECTS)
    bad = with_body(OBJECTS[0], b"{")

    for number in range(5000):
        changed = with_body(OBJECTS[1], b'{"n":%d}' % number)
        broken = with_body(OBJECTS[2], b'{"n":%d' % number)
        assert bodies.joined([changed, broken, bad], stored) == changed.raw
        assert len(bodies) <= 2 * stored + 1024 + 6

    assert bodies.failures == 5001


# ---------------------------------------------------------------- trust

READS: dict[str, Callable[..., object]] = {
    "get": lambda lister, **options: lister.get("shop/web-0", **options),
    "list": lambda lister, **options: lister.list(**options),
    "by_index": lambda lister, **options: lister.by_index("node", "node-2", **options),
    "json": lambda lister, **options: lister.json(**options),
}


@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_every_read_refuses_an_untrusted_cache(
    lister: Lister, trust: Trust, read: Callable[..., object]
) -> None:
    trust.error = NotSynced("not yet")

    for narrowed in (lister, lister.namespace("shop")):
        with pytest.raises(NotSynced, match="not yet"):
            read(narrowed)

        assert read(narrowed, allow_unsynced=True)


@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_every_read_refuses_a_cache_older_than_accepted(
    lister: Lister, trust: Trust, read: Callable[..., object]
) -> None:
    trust.age = 61.0

    for narrowed in (lister, lister.namespace("shop")):
        for most in (60, timedelta(minutes=1)):
            with pytest.raises(Stale, match="61"):
                read(narrowed, max_staleness=most)

            with pytest.raises(Stale):
                read(narrowed, max_staleness=most, allow_unsynced=True)

        assert read(narrowed, max_staleness=timedelta(minutes=2))
        assert read(narrowed)


@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_dead_cache_is_refused_before_a_stale_one(
    lister: Lister, trust: Trust, read: Callable[..., object]
) -> None:
    trust.age, trust.error = 61.0, NotSynced("not yet")

    with pytest.raises(NotSynced):
        read(lister, max_staleness=60)


@pytest.mark.parametrize(
    "read",
    [
        *READS.values(),
        lambda lister, **options: lister.into(dict).get("shop/web-0", **options),
        lambda lister, **options: lister.into(dict).list(**options),
        lambda lister, **options: lister.into(dict).by_index(
            "node", "node-2", **options
        ),
    ],
    ids=[*READS, "typed-get", "typed-list", "typed-by-index"],
)
def test_every_read_refuses_an_unconfirmed_cache_unless_allowed(
    lister: Lister, trust: Trust, read: Callable[..., object]
) -> None:
    trust.confirmed = False

    for narrowed in (lister, lister.namespace("shop")):
        with pytest.raises(NotSynced, match="not confirmed"):
            read(narrowed)

        assert read(narrowed, allow_unconfirmed=True)
        assert read(narrowed, max_staleness=60)
        with pytest.raises(Stale):
            read(narrowed, allow_unconfirmed=True, max_staleness=-1)


@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_reads_work_in_any_thread(lister: Lister, read: Callable[..., object]) -> None:
    assert error_in_thread(lambda: read(lister)) is None


def test_repr_names_the_namespace(lister: Lister) -> None:
    assert repr(lister) == "<Lister of all namespaces>"
    assert repr(lister.namespace("shop")) == "<Lister of shop>"


# ---------------------------------------------------------------- cost of reads


class Counting(LabelSelector):
    """An index function that counts its calls."""

    def __init__(self, text: str) -> None:
        super().__init__(LabelSelector.parse(text).requirements)
        self.called = 0

    def select(self, objects: Iterable[T]) -> list[T]:
        called = list(objects)
        self.called += len(called)
        return super().select(called)


def crowd() -> Lister:
    """Store 1000 pods in 10 namespaces with 100 apps; `tier` has no index."""
    indexer: Indexer[KubeObject] = Indexer(
        {
            NAMESPACE_INDEX: by_namespace,
            "app": index_by_label("app"),
            "node": index_by("spec.nodeName"),
        }
    )
    indexer.replace(
        [
            thing(
                f"p{number}",
                namespace=f"ns-{number % 10}",
                labels={"app": f"a{number // 10}", "tier": "x"},
                spec={"nodeName": f"node-{number % 4}"},
            )
            for number in range(1000)
        ],
        "17",
    )
    return Lister(indexer, Trust(), Trust().check_age)


@pytest.mark.parametrize(
    ("namespace", "selector", "called", "found"),
    [
        pytest.param(None, "app=a7", 10, 10, id="label-with-an-index"),
        pytest.param(None, "app in (a7,a8,none)", 20, 20, id="several-values"),
        pytest.param("ns-3", "app=a7", 1, 1, id="label-in-a-namespace"),
        pytest.param("ns-3", "tier=x", 100, 100, id="namespace"),
        pytest.param(None, "tier=x,app=a7", 10, 10, id="one-of-two-labels"),
        pytest.param(None, "app=none", 0, 0, id="no-such-value"),
        pytest.param(None, "app!=a7", 1000, 990, id="index-is-no-help"),
        pytest.param(None, "tier=x", 1000, 1000, id="no-index"),
    ],
)
def test_selector_checks_only_the_objects_of_an_index(
    namespace: str | None, selector: str, called: int, found: int
) -> None:
    lister = crowd() if namespace is None else crowd().namespace(namespace)
    counting = Counting(selector)

    assert len(lister.list(counting)) == found
    assert counting.called == called
    assert keys(lister.list(selector)) == keys(
        [
            obj
            for obj in lister.list()
            if LabelSelector.parse(selector).matches(obj.labels)
        ]
    )


@pytest.mark.parametrize("nodes", [4, 1000], ids=["large-buckets", "small-buckets"])
def test_index_within_a_namespace_finds_objects_in_both(nodes: int) -> None:
    indexer: Indexer[KubeObject] = Indexer(
        {NAMESPACE_INDEX: by_namespace, "node": index_by("spec.nodeName")}
    )
    for number in range(100):
        node = {"nodeName": f"node-{number % nodes}"}
        indexer.add(thing(f"p{number}", namespace=f"ns-{number % 10}", spec=node))

    lister = Lister(indexer, Trust(), Trust().check_age).namespace("ns-3")

    assert sorted(keys(lister.by_index("node", "node-3"))) == sorted(
        f"ns-3/p{number}" for number in range(3, 100, 10) if number % nodes == 3
    )
    assert lister.by_index("node", "node-none") == []
    with pytest.raises(OptionsError):
        lister.by_index("none", "x")


def test_json_decodes_nothing() -> None:
    """The bytes are those of the server, in any style."""
    odd = with_body(
        thing("web-9", namespace="shop", labels={"app": "web"}),
        b'{ "a" :1e2, "a":"\\u0041" }',
    )

    text = lister_of(*OBJECTS, odd).namespace("shop").json("app=web")

    assert text.endswith(b"," + odd.raw + b"]}")
    assert text.count(b'"kind":"Pod"') == 2
    assert len(odd.context.decoded_bodies) == 0
