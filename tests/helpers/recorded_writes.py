"""Recorded responses of a real server to many writes, and their comparison.

Each entry of the files in `contracts/recorded` is one write and its answer, written by
`e2e/recordings.py`. The contract tests repeat the writes on either server.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aioinformer.model.resource import Resource
from aioinformer.model.resources import lookup

FOLDER = Path(__file__).parents[1] / "apiserver" / "contracts" / "recorded"

# The custom resources of the recordings.
THINGS = Resource("things.example.com", "v1", "things", "Thing")

_NAMESPACE = "<namespace>"
_OWN = ("creationTimestamp", "managedFields", "namespace", "resourceVersion", "uid")
_ADDRESSES = ("clusterIP", "clusterIPs")
_WARNING = re.compile(r'299 - ("(?:[^"\\]|\\.)*")')
_TIMES = ("lastPhaseTransitionTime", "lastTransitionTime")
_PORTS = ("nodePort", "healthCheckNodePort")


@dataclass(frozen=True, kw_only=True)
class Write:
    """Write with its response.

    Attributes:
        resource: Resource of the object.
        body: Object to create.
        update: Later update of the object as a merge patch, or None.
        answer: Response in the form of `normalised`.
    """

    resource: Resource
    body: dict[str, Any]
    answer: dict[str, Any]
    update: dict[str, Any] | None = None

    @property
    def name(self) -> str:
        return str((self.body.get("metadata") or {}).get("name", ""))


def load(file: str) -> list[Write]:
    """Read one file of recordings."""
    lines = json.loads((FOLDER / f"{file}.json").read_text(encoding="utf-8"))
    return [
        Write(
            resource=_resource(line["resource"]),
            body=line["body"],
            update=line.get("update"),
            answer=line["answer"],
        )
        for line in lines
    ]


def save(file: str, writes: list[Write]) -> None:
    """Write one file of recordings, one write per line."""
    lines = [
        json.dumps(
            {
                "resource": f"{it.resource.api_version}/{it.resource.plural}",
                "body": it.body,
                **({} if it.update is None else {"update": it.update}),
                "answer": it.answer,
            },
            separators=(",", ":"),
        )
        for it in writes
    ]
    text = "[\n" + ",\n".join(lines) + "\n]\n"
    (FOLDER / f"{file}.json").write_text(text, encoding="utf-8")


def definition_of_things() -> dict[str, Any]:
    """Return the CustomResourceDefinition of the recorded custom resources."""
    schema = json.loads((FOLDER / "things_schema.json").read_text(encoding="utf-8"))
    version = {
        "name": THINGS.version,
        "served": True,
        "storage": True,
        "subresources": {"status": {}},
        "schema": {"openAPIV3Schema": schema},
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": str(THINGS)},
        "spec": {
            "group": THINGS.group,
            "scope": "Namespaced",
            "names": {"plural": THINGS.plural, "kind": THINGS.kind},
            "versions": [version],
        },
    }


def collection_of(resource: Resource, namespace: str) -> str:
    """Return the path of a collection."""
    root = f"/apis/{resource.api_version}" if resource.group else "/api/v1"
    inside = f"/namespaces/{namespace}" if resource.namespaced else ""
    return f"{root}{inside}/{resource.plural}"


def merged(old: Any, change: Any) -> Any:
    """Apply a merge patch to an answered object."""
    if not isinstance(old, dict) or not isinstance(change, dict):
        return change

    found = {**old, **{k: merged(old.get(k), v) for k, v in change.items()}}
    return {k: v for k, v in found.items() if k not in change or change[k] is not None}


def parsed_warnings(headers: list[str]) -> list[str]:
    """Parse warnings about fields from the `Warning` headers of an answer.

    A server may send a header for each warning, or one for all of them.
    """
    quoted = [it for header in headers for it in _WARNING.findall(header)]
    texts = [json.loads(it) for it in quoted]
    return [it for it in texts if "unknown field" in it]


def placed(value: Any, namespace: str) -> Any:
    """Replace the placeholder of the namespace in a body."""
    return json.loads(json.dumps(value).replace(_NAMESPACE, namespace))


def normalised(
    status: int, answer: dict[str, Any], warnings: list[str], namespace: str
) -> dict[str, Any]:
    """Reduce an answer to the parts that are equal in all runs and on all servers."""
    text = json.dumps(answer).replace(namespace, _NAMESPACE)
    # A uid is in the labels of a Job.
    text = re.sub(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "<uid>", text)
    answer = json.loads(text)
    extra = {"warnings": warnings} if warnings else {}
    if status < 300:
        return {"status": status, "stored": _without_own(answer), **extra}

    causes = (answer.get("details") or {}).get("causes")
    if status != 422 or not causes:
        return {"status": status, "message": answer.get("message", "")}

    found = {
        (it["field"], it["reason"], _plain_message(it["message"])) for it in causes
    }
    return {"status": status, "causes": [list(it) for it in sorted(found)], **extra}


def _plain_message(message: str) -> str:
    """Remove diffs of Go structs, and addresses, from a message."""
    return re.sub(r"\b10(\.\d+){3}", "<address>", message.partition("\n@@")[0])


def _without_own(body: dict[str, Any]) -> dict[str, Any]:
    metadata = {k: v for k, v in body["metadata"].items() if k not in _OWN}
    found: dict[str, Any] = _without_chance({**body, "metadata": metadata})
    return found


def _without_chance(value: Any) -> Any:
    if isinstance(value, list):
        return [_without_chance(it) for it in value]

    if not isinstance(value, dict):
        return value

    found = {key: _without_chance(it) for key, it in value.items()}
    for field in _ADDRESSES:
        if field in found and "None" not in found[field]:
            found[field] = "<address>"

    for field in _PORTS:
        if field in found:
            found[field] = "<port>"

    for field in _TIMES:
        if found.get(field):
            found[field] = "<time>"

    return found


def _resource(text: str) -> Resource:
    api_version, _, plural = text.rpartition("/")
    found = lookup(api_version, plural)
    return found if found is not None else THINGS
