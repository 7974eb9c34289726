"""RBAC: parts that contract tests do not cover."""

from __future__ import annotations

from typing import Any

from aioinformer.model.resources import CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES
from aioinformer.testing import APIServer, User
from aioinformer_apiserver.auth.rbac import RBACAuthorizer
from aioinformer_apiserver.requests.routes import RequestInfo

ALICE = User("alice")
GROUP = "rbac.authorization.k8s.io"


def role(verb: str) -> dict[str, Any]:
    rule = {"apiGroups": [""], "resources": ["pods"], "verbs": [verb]}
    return {"metadata": {"name": "some"}, "rules": [rule]}


def test_rbac_rereads_rules_after_restore() -> None:
    server = APIServer()
    reference = {"apiGroup": GROUP, "kind": "ClusterRole", "name": "some"}
    subject = {"apiGroup": GROUP, "kind": "User", "name": "alice"}
    binding = {"metadata": {"name": "some"}, "subjects": [subject]}
    server.create(CLUSTER_ROLE_BINDINGS, {**binding, "roleRef": reference})
    storage = server._storage
    state, authorizer = storage.save(), RBACAuthorizer(storage)

    allowed = []
    for verb in ("get", "list"):
        # Each role has the same resource version.
        storage.restore(state)
        server.create(CLUSTER_ROLES, role(verb))
        requested = RequestInfo(verb="list", version="v1", plural="pods")
        allowed.append(authorizer.denial(ALICE, requested) is None)

    assert allowed == [False, True]
