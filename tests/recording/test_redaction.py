"""What a recording does not have: secrets, chosen fields, names."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from informer_helpers import running, settle
from json_helpers import nested

from aioinformer import KubeObject, SharedInformer
from aioinformer.errors import OptionsError
from aioinformer.model.resources import CONFIG_MAPS, PODS, SECRETS
from aioinformer.recording import record
from aioinformer.recording.log_file import read_lines
from aioinformer.recording.redaction import Redaction
from aioinformer.testing import FakeListerWatcher

if TYPE_CHECKING:
    from pathlib import Path

HIDDEN = "aGlkZGVu-sesame"
SECRET = {
    "apiVersion": "v1",
    "kind": "Secret",
    "metadata": {
        "name": "tls",
        "namespace": "shop",
        "annotations": {
            "kubectl.kubernetes.io/last-applied-configuration": f'{{"data":"{HIDDEN}"}}',
            "other": "kept",
        },
    },
    "data": {"key": HIDDEN, "same": HIDDEN, "other": "b3RoZXI="},
    "stringData": {"plain": HIDDEN},
}


def redacted(redaction: Redaction, body: dict[str, Any], resource: Any) -> Any:
    function = redaction.function_for(resource)
    return msgspec.json.decode(function(KubeObject.of(body)))


def test_data_of_secrets_are_hidden_and_still_tell_equality() -> None:
    found = redacted(Redaction(), SECRET, SECRETS)
    assert HIDDEN not in str(found)
    assert found["metadata"]["annotations"]["other"] == "kept"
    assert found["data"]["key"] == found["data"]["same"] != found["data"]["other"]
    assert base64.b64decode(found["data"]["key"]).startswith(b"redacted-")
    other = redacted(Redaction(), SECRET, SECRETS)
    assert other["data"]["key"] != found["data"]["key"]  # with a key of its own
    assert redacted(Redaction(hide_secrets=False), SECRET, SECRETS) == SECRET


def test_unknown_resources_may_be_secrets() -> None:
    assert HIDDEN not in str(redacted(Redaction(), SECRET, None))


def test_other_objects_are_recorded_as_they_are() -> None:
    obj = KubeObject.of({"metadata": {"name": "it"}, "data": {"a": "b"}})
    assert Redaction().function_for(CONFIG_MAPS)(obj) is obj.raw


def test_chosen_fields_are_replaced_by_values_of_their_types() -> None:
    body = {
        "metadata": {
            "name": "web",
            "annotations": {
                "example.com/a.b": HIDDEN,
                "kubectl.kubernetes.io/last-applied-configuration": HIDDEN,
            },
        },
        "spec": {
            "containers": [
                {"name": "a", "env": [{"name": "X", "value": HIDDEN}, {"name": "Y"}]},
                {"name": "b", "command": [HIDDEN, "x"], "ports": [{"port": 80}]},
            ]
        },
    }
    paths: list[str | tuple[str, ...]] = [
        "spec.containers.*.env.*.value",
        "spec.containers.1.command",
        "spec.containers.*.ports",
        "status.absent.*",
        ("metadata", "annotations", "example.com/a.b"),
        "metadata.name.deeper",
    ]
    found = redacted(Redaction(paths), body, PODS)
    first, second = found["spec"]["containers"]
    assert first["env"][0]["name"] == "X"
    assert first["env"][0]["value"] == second["command"][0]
    assert first["env"][0]["value"].startswith("redacted-")
    assert first["env"][1] == {"name": "Y"}
    assert second["ports"] == [{"port": 0}]
    assert HIDDEN not in str(found)
    assert found["metadata"]["name"] == "web"


def test_items_in_managed_fields_do_not_repeat_what_is_replaced() -> None:
    fields = {
        "f:tokens": {".": {}, f'v:"{HIDDEN}"': {}, 'v:"other"': {}},
        "f:users": {f'k:{{"id":"{HIDDEN}"}}': {"f:role": {}}},
    }
    body = {
        "metadata": {
            "managedFields": [
                {"manager": "kubectl", "fieldsV1": {"f:spec": fields}},
                {"manager": "other"},
                None,
            ]
        },
        "spec": {"tokens": [HIDDEN, "other"], "users": [{"id": HIDDEN, "role": "x"}]},
    }
    found = redacted(Redaction(["spec.tokens.*", "spec.users.*.id"]), body, PODS)
    assert HIDDEN not in str(found)
    shown = found["metadata"]["managedFields"][0]["fieldsV1"]["f:spec"]
    assert len(shown["f:tokens"]) == 3
    assert [*shown["f:users"].values()] == [{"f:role": {}}]
    assert redacted(Redaction(), body, PODS) == body
    for other in ({"managedFields": 1}, None):
        redacted(Redaction(["spec"]), {"metadata": other}, PODS)


def test_names_are_hashed_alike_wherever_they_are() -> None:
    body = {
        "metadata": {
            "name": "web-0",
            "namespace": "shop",
            "labels": {"app": "web"},
            "uid": "kept",
            "ownerReferences": [{"kind": "StatefulSet", "name": "web"}],
        },
        "spec": {
            "nodeName": "node-1",
            "serviceAccount": "robot",
            "selector": {"matchLabels": {"name": "web"}, "app": "web"},
            "terms": [{"key": "zone", "operator": "In", "values": ["node-1"]}],
            "volumes": [{"secret": {"secretName": "tls"}}],
        },
        "status": {"message": "web-0 failed", "phase": "Failed"},
    }
    redaction = Redaction(hash_names=True)
    found = redacted(redaction, body, PODS)
    text = str(found)
    for name in ("web-0", "shop", "node-1", "'web'", "tls", "robot"):
        assert name not in text

    assert found["metadata"]["name"] == redaction.name("web-0")
    assert found["metadata"]["ownerReferences"][0]["name"] == redaction.name("web")
    assert found["metadata"]["labels"] == {"app": redaction.name("web")}
    assert found["status"]["phase"] == "Failed"
    assert found["metadata"]["uid"] == "kept"


def test_names_are_hashed_in_fields_of_many_kinds() -> None:
    body = {
        "rules": [{"resourceNames": ["NAME"]}],
        "metadata": {
            "finalizers": ["NAME"],
            "managedFields": [
                {
                    "manager": "kubelet",
                    "fieldsV1": {
                        "f:spec": {
                            'k:{"name":"NAME"}': {"f:image": {}},
                            'v:"NAME"': {},
                        },
                        "f:status": {"f:disruptedPods": {".": {}, "f:NAME": {}}},
                    },
                }
            ],
        },
        "spec": {
            "holderIdentity": "NAME_1",
            "tls": [{"hosts": ["NAME"]}],
            "csi": {"volumeAttributes": {"csi.storage.k8s.io/pod.name": "NAME"}},
            "podAffinity": [{"namespaces": ["NAME", {"name": "NAME"}]}],
            "username": "system:serviceaccount:NAME:x",
            "groups": ["system:serviceaccounts:NAME"],
            "extra": {"authentication.kubernetes.io/pod-name": ["NAME"]},
            "request": "NAME",
            "providerID": "kind://NAME",
            "drivers": [{"nodeID": "NAME"}],
            "dnsConfig": {"searches": ["NAME.svc"]},
        },
        "endpoints": [
            {"addresses": ["NAME.internal", "10.0.0.1", "fd00::1"]},
            {"addresses": [{"address": "NAME"}], "deprecatedTopology": {"x": "NAME"}},
        ],
        "webhooks": [{"clientConfig": {"url": "https://NAME.svc/x"}}],
        "involvedObject": {"fieldPath": "spec.containers{NAME}"},
        "status": {
            "selector": "app=NAME",
            "currentRevision": "NAME-6d",
            "addresses": [{"type": "Hostname", "address": "NAME"}],
            "disruptedPods": {"NAME": "2026-01-01T00:00:00Z"},
            "volumesInUse": ["kubernetes.io/csi/driver^NAME"],
            "allocation": {"devices": {"results": [{"pool": "NAME"}]}},
        },
    }
    redaction = Redaction(hash_names=True)
    found = redacted(redaction, body, PODS)
    assert "NAME" not in str(found)
    hashed = redaction.name("NAME")
    assert found["spec"]["drivers"] == [{"nodeID": hashed}]
    assert [*found["status"]["disruptedPods"]] == [hashed]
    assert found["endpoints"][0]["addresses"][1:] == ["10.0.0.1", "fd00::1"]
    (managed,) = found["metadata"]["managedFields"]
    assert managed["manager"] == "kubelet"
    disrupted = managed["fieldsV1"]["f:status"]["f:disruptedPods"]
    assert [*disrupted] == [".", f"f:{hashed}"]
    fields = managed["fieldsV1"]["f:spec"]
    assert len(fields) == 2
    assert {"f:image": {}} in fields.values()


def test_brackets_in_paths_are_refused() -> None:
    with pytest.raises(OptionsError, match=r"Items are `\.\*\.`, or a number"):
        Redaction(["spec.c[*].value"])

    found = redacted(Redaction([("spec", "c[0]")]), {"spec": {"c[0]": HIDDEN}}, PODS)
    assert HIDDEN not in str(found)


def test_data_of_a_secret_that_is_no_mapping_is_hidden() -> None:
    for data in (HIDDEN, [HIDDEN], {"a": {"b": HIDDEN}}):
        found = redacted(Redaction(), {"data": data, "stringData": data}, SECRETS)
        assert HIDDEN not in str(found)


def test_secret_that_cannot_be_read_is_reduced_to_its_identity() -> None:
    nested = b'{"metadata":{"name":"s","namespace":"n"},"data":{"a":"%s"},"x":%s%s}' % (
        HIDDEN.encode(),
        b"[" * 5000,
        b"]" * 5000,
    )
    obj = msgspec.structs.replace(
        KubeObject.of({"metadata": {"name": "s", "namespace": "n"}}), body=nested
    )
    found = Redaction().function_for(SECRETS)(obj)
    assert msgspec.json.decode(found) == {"metadata": {"name": "s", "namespace": "n"}}


@pytest.mark.parametrize("rules", [{"fields": ["spec.x"]}, {"hash_names": True}])
def test_object_that_cannot_be_encoded_again_is_reduced_to_its_identity(
    rules: dict[str, Any],
) -> None:
    raw = b'{"metadata":{"name":"a","uid":"u"},"spec":%b}' % nested(400)
    redaction = Redaction(**rules)
    found = msgspec.json.decode(redaction.function_for(PODS)(KubeObject.of(raw)))
    assert found == {"metadata": {"name": redaction.name("a"), "uid": "u"}}


@pytest.mark.parametrize("last", [None, 60])
async def test_recording_has_no_secrets(last: int | None, tmp_path: Path) -> None:
    path = tmp_path / "it.alog"
    source = FakeListerWatcher(SECRET, resource=SECRETS)
    informer = SharedInformer(source, name="secrets")
    async with record(informer, path, last=last) as recorder, running(informer.run()):
        await informer.wait_synced(10)
        source.modify(SECRET | {"data": {"key": f"{HIDDEN}-2"}})
        await settle()
        source.delete(SECRET)
        await settle()
        path = await recorder.save()

    text = b"".join(line for lines in read_lines(path) for line in lines)
    assert text.count(b'"kind":"Secret"') >= 3
    assert HIDDEN.encode() not in text
