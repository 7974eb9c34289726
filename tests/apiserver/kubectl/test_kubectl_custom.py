"""kubectl with custom resources: definitions and their objects."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest
from kubectl_objects import CRD, widget

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kubectl_pair import Pair

pytest_plugins = ["kubectl_pair"]
pytestmark = pytest.mark.e2e


@dataclass(frozen=True)
class Custom:
    """Custom resource of one test module, in a namespace of one test."""

    kubectl: Pair
    word: str
    template: str = CRD

    @property
    def plural(self) -> str:
        return f"{self.word}s"

    @property
    def kind(self) -> str:
        return self.word.capitalize()

    @property
    def definition(self) -> str:
        names = {
            "PLURAL": self.plural,
            "SINGULAR": self.word,
            "KIND": self.kind,
            "SHORT": f"{self.word}x",
        }
        text = self.template
        for name, value in names.items():
            text = text.replace(name, value)

        return text

    def text(self, name: str = "a", *, size: str = "small", more: str = "") -> str:
        return widget(name, kind=self.kind, size=size, more=more)

    def establish(self) -> None:
        name = f"crd/{self.plural}.kubectl.example.com"
        self.kubectl("create", "-f", "-", stdin=self.definition)
        self.kubectl("wait", "--for=condition=Established", name, "--timeout=20s")


def a_word() -> str:
    return "w" + secrets.token_hex(4).translate(
        str.maketrans("0123456789", "ghijklmnop")
    )


@pytest.fixture(scope="module")
def defined(kubectl_servers: Pair) -> Iterator[Custom]:
    custom = Custom(kubectl_servers, a_word())
    custom.establish()
    yield custom
    kubectl_servers("delete", "crd", f"{custom.plural}.kubectl.example.com")


@pytest.fixture
def custom(defined: Custom, kubectl: Pair) -> Custom:
    return Custom(kubectl, defined.word)


def test_custom_kind_is_established(custom: Custom) -> None:
    name = f"{custom.plural}.kubectl.example.com"

    body = custom.kubectl.body("crd", name)
    assert body["status"]["acceptedNames"]["kind"] == custom.kind
    custom.kubectl("get", "crd", name)


def test_custom_kind_is_found_by_all_its_names(custom: Custom) -> None:
    kubectl = custom.kubectl
    kubectl("create", "-f", "-", stdin=custom.text())
    word = custom.word

    for name in (
        word,
        custom.plural,
        f"{word}x",
        f"{custom.plural}.kubectl.example.com",
    ):
        assert kubectl("get", name, "-o", "name").endswith(".example.com/a\n")


def test_custom_kind_is_found_by_its_category(custom: Custom) -> None:
    custom.kubectl("create", "-f", "-", stdin=custom.text())

    assert "/a" in custom.kubectl("get", "everything", "-o", "name")


def test_kubectl_prints_printer_columns_of_custom_kind(custom: Custom) -> None:
    kubectl = custom.kubectl
    more = "secret: hidden"
    kubectl("create", "-f", "-", stdin=custom.text(more=more))

    assert kubectl("get", custom.plural).split()[:4] == [
        "NAME",
        "SIZE",
        "REPLICAS",
        "AGE",
    ]
    assert "hidden" in kubectl("get", custom.plural, "-o", "wide")


def test_custom_kind_is_listed_as_a_resource(custom: Custom) -> None:
    arguments = ("api-resources", "--api-group=kubectl.example.com", "-o", "wide")
    ours, real = custom.kubectl.each(*arguments)

    rows = [
        [line.split() for line in it.out.splitlines() if line.startswith(custom.plural)]
        for it in (ours, real)
    ]
    assert len(rows[0]) == 1
    assert rows[0] == rows[1]


def test_custom_kind_is_explained(custom: Custom) -> None:
    assert "How large it is." in custom.kubectl("explain", f"{custom.word}.spec.size")
    # Our schemas have no descriptions of the common fields.
    ours, real = custom.kubectl.each("explain", custom.word, "--recursive")
    assert ours.out.partition("FIELDS:")[2] == real.out.partition("FIELDS:")[2]
    assert "parts\t<[]string>" in ours.out


def test_custom_kind_gets_defaults(custom: Custom) -> None:
    custom.kubectl("create", "-f", "-", stdin=custom.text())

    assert custom.kubectl.body(custom.word, "a")["spec"]["replicas"] == 1


@pytest.mark.parametrize(
    ("size", "more"),
    [
        pytest.param("huge", "", id="enum"),
        pytest.param("small", "replicas: -1", id="minimum"),
        pytest.param("small", "replicas: many", id="type"),
        pytest.param("small", "parts: [1]", id="item-type"),
        pytest.param("small", "colour: red", id="unknown-field"),
        pytest.param("null", "", id="required"),
    ],
)
def test_custom_kind_is_checked(custom: Custom, size: str, more: str) -> None:
    text = custom.text(size=size, more=more)

    printed = custom.kubectl.fails("create", "-f", "-", stdin=text)
    assert "spec" in printed
    # Without validation by kubectl, only the server validates.
    arguments = ("create", "--validate=ignore", "-f", "-")
    ours, real = custom.kubectl.each(*arguments, stdin=text)
    assert ours.all == real.all


def test_custom_kind_is_scaled(custom: Custom) -> None:
    kubectl = custom.kubectl
    kubectl("create", "-f", "-", stdin=custom.text())

    kubectl("scale", f"{custom.word}/a", "--replicas=4")
    assert kubectl.body(custom.word, "a")["spec"]["replicas"] == 4


def test_custom_kind_is_patched(custom: Custom) -> None:
    kubectl = custom.kubectl
    kubectl("create", "-f", "-", stdin=custom.text())
    name = f"{custom.word}/a"

    kubectl("patch", name, "--type=merge", "-p", '{"spec":{"size":"large"}}')
    kubectl.fails("patch", name, "--type=merge", "-p", '{"spec":{"size":"huge"}}')
    # Only built-in kinds support strategic merge patches.
    kubectl.fails("patch", name, "--type=strategic", "-p", '{"spec":{}}')
    status = '{"spec":{"size":"small"},"status":{"phase":"Up"}}'
    kubectl("patch", name, "--subresource=status", "--type=merge", "-p", status)

    body = kubectl.body(custom.word, "a")
    assert body["spec"]["size"] == "large"
    assert body["status"] == {"phase": "Up"}


def test_custom_kind_is_applied(custom: Custom) -> None:
    kubectl = custom.kubectl
    for expected, size in (
        ("created", "small"),
        ("unchanged", "small"),
        ("conf", "large"),
    ):
        printed = kubectl("apply", "-f", "-", stdin=custom.text(size=size))
        assert f" {expected}" in printed

    kubectl.body(custom.word, "a")


def test_custom_kind_is_applied_by_the_server(custom: Custom) -> None:
    kubectl = custom.kubectl
    apply = ("apply", "--server-side", "-f", "-")
    kubectl(*apply, stdin=custom.text(more="parts: [a, b]"))
    kubectl(*apply, stdin=custom.text(more="parts: [a]"))

    printed = kubectl.fails(
        *apply, "--field-manager=other", stdin=custom.text(size="large")
    )
    assert ".spec.size" in printed
    kubectl.body(custom.word, "a")


def test_custom_kind_is_watched(custom: Custom) -> None:
    kubectl = custom.kubectl
    kubectl("create", "-f", "-", stdin=custom.text())
    arguments = ("get", custom.plural, "-w", "--output-watch-events")
    with kubectl.watching(*arguments) as watches:
        assert watches.lines(2)[1].startswith("ADDED  a  small  1")

        kubectl("delete", custom.word, "a")
        assert watches.lines(1)[0].startswith("DELETED  a")


def test_custom_kind_is_described(custom: Custom) -> None:
    custom.kubectl("create", "-f", "-", stdin=custom.text())

    custom.kubectl("describe", custom.word, "a")


def test_custom_kind_ends_with_its_definition(kubectl: Pair) -> None:
    custom = Custom(kubectl, a_word())
    custom.establish()
    kubectl("create", "-f", "-", stdin=custom.text())

    kubectl("delete", "crd", f"{custom.plural}.kubectl.example.com")
    printed = kubectl.fails("get", custom.plural)
    assert (
        "could not find the requested resource" in printed or "resource type" in printed
    )


@pytest.mark.parametrize(
    ("old", "new"),
    [
        pytest.param("SINGULAR", "Wrong_Name", id="name"),
        pytest.param("name: PLURAL.", "name: other.", id="object-name"),
        pytest.param("scope: Namespaced", "scope: Universe", id="scope"),
        pytest.param("storage: true", "storage: false", id="no-storage"),
        pytest.param("type: object\n        required", "required", id="no-type"),
        pytest.param("enum: [small, large]", "default: 3", id="default"),
        pytest.param("kind: KIND", "kind: null", id="no-kind"),
    ],
)
def test_kubectl_create_rejects_invalid_definition(
    kubectl: Pair, old: str, new: str
) -> None:
    assert old in CRD
    custom = Custom(kubectl, a_word(), CRD.replace(old, new))

    kubectl.fails("create", "-f", "-", stdin=custom.definition)
