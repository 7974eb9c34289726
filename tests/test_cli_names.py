"""Which resource a word means."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from aioinformer.cli.explain import CommandError
from aioinformer.cli.names import find_resource
from aioinformer.model.resources import DEPLOYMENTS, ENDPOINTS, NETWORK_POLICIES, PODS

if TYPE_CHECKING:
    from aioinformer.model.resource import Resource


@pytest.mark.parametrize(
    ("word", "resource"),
    [
        pytest.param("pods", PODS, id="plural"),
        pytest.param("pod", PODS, id="singular"),
        pytest.param("Pod", PODS, id="kind"),
        pytest.param("pods.v1", PODS, id="core-with-version"),
        pytest.param("endpoints", ENDPOINTS, id="plural-is-singular"),
        pytest.param("networkpolicy", NETWORK_POLICIES, id="irregular-plural"),
        pytest.param("deployments.apps", DEPLOYMENTS, id="group"),
        pytest.param("deployment.apps", DEPLOYMENTS, id="singular-with-group"),
        pytest.param("deployments.v1.apps", DEPLOYMENTS, id="version-and-group"),
    ],
)
def test_finds_built_in_resources(word: str, resource: Resource) -> None:
    assert find_resource(word) is resource


@pytest.mark.parametrize(
    ("word", "path"),
    [
        pytest.param("a.v1.b.c", "/apis/b.c/v1/a", id="custom"),
        pytest.param("a.v1beta2.b", "/apis/b/v1beta2/a", id="beta"),
        pytest.param("deployments.v2.apps", "/apis/apps/v2/deployments", id="newer"),
        pytest.param("nuggets.v1", "/api/v1/nuggets", id="unknown-core"),
    ],
)
def test_makes_custom_resources(word: str, path: str) -> None:
    assert find_resource(word).path() == path


@pytest.mark.parametrize(
    ("word", "hint"),
    [
        pytest.param("podz", "Did you mean 'pods'?", id="typing-error"),
        pytest.param(
            "xyzzy", "xyzzy.v1.example.com, for example", id="nothing-like-it"
        ),
        pytest.param("a.b.c", "the version must be given too: a.v1.b.c", id="version"),
        pytest.param("a.v0.b", "the version must be given too", id="no-version"),
        pytest.param("", "widgets.v1.example.com", id="empty"),
        pytest.param(".v1.b", "not a built-in resource", id="no-name"),
    ],
)
def test_helps_with_words_that_mean_nothing(word: str, hint: str) -> None:
    with pytest.raises(CommandError) as caught:
        find_resource(word)

    assert hint in str(caught.value)
