"""Record the responses of a real API server to the recorded writes again.

    python tests/e2e/recordings.py https://127.0.0.1:6443 --token T --ca ca.crt

Run it by hand when the imitated version of Kubernetes changes, or after you added a body to
a file in `tests/apiserver/contracts/recorded`, with `"answer":{}`. It writes all
responses again, and `git diff` shows the changes. It creates a namespace and a CRD, and
removes both.
"""

from __future__ import annotations

import argparse
import json
import secrets
import ssl
import sys
import time
import urllib.error
import urllib.request
from dataclasses import replace
from pathlib import Path
from typing import Any

# As a script, it lacks the test helpers on its path.
sys.path.insert(0, str(Path(__file__).parents[1] / "helpers"))

from recorded_writes import (
    THINGS,
    Write,
    collection_of,
    definition_of_things,
    load,
    merged,
    normalised,
    parsed_warnings,
    placed,
    save,
)

_DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"

Answer = tuple[int, dict[str, Any], list[str]]


class Server:
    """A real API server, with one request at a time."""

    def __init__(self, url: str, token: str, ca: str) -> None:
        self._url = url
        self._token = token
        self._tls = ssl.create_default_context(cafile=ca)

    def ask(self, method: str, path: str, body: object = None) -> Answer:
        """Send a request and return status, body and warnings."""
        kind = "application/merge-patch+json" if method == "PATCH" else _JSON
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": kind}
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            f"{self._url}{path}", data=data, method=method, headers=headers
        )
        try:
            with urllib.request.urlopen(request, context=self._tls) as answer:
                warnings = answer.headers.get_all("Warning") or []
                return answer.status, json.load(answer), parsed_warnings(warnings)
        except urllib.error.HTTPError as exc:
            warnings = exc.headers.get_all("Warning") or []
            text = exc.read()
            # The server responds in plain text to a path that it does not serve yet.
            told = json.loads(text) if text.startswith(b"{") else {}
            return exc.code, told, parsed_warnings(warnings)


_JSON = "application/json"


def created(server: Server, write: Write, namespace: str) -> Write:
    """Record the response to a dry-run creation."""
    path = f"{collection_of(write.resource, namespace)}?dryRun=All"
    answer = server.ask("POST", path, placed(write.body, namespace))
    return replace(write, answer=normalised(*answer, namespace))


def updated(server: Server, write: Write, namespace: str) -> Write:
    """Record the response to a dry-run update of an existing object."""
    collection = collection_of(write.resource, namespace)
    body = placed(write.body, namespace)
    status, old, _ = server.ask("POST", collection, body)
    assert status == 201, old
    path = f"{collection}/{write.name}"
    new = merged(old, placed(write.update, namespace))
    answer = server.ask("PUT", f"{path}?dryRun=All", new)
    remove(server, path)
    return replace(write, answer=normalised(*answer, namespace))


def remove(server: Server, path: str) -> None:
    """Delete an object, with all preparations."""
    server.ask("DELETE", f"{path}?propagationPolicy=Background&gracePeriodSeconds=0")
    server.ask("PATCH", path, {"metadata": {"finalizers": None}})
    status, left, _ = server.ask("GET", path)
    if status == 200 and left["kind"] == "Namespace":
        left["spec"]["finalizers"] = []
        server.ask("PUT", f"{path}/finalize", left)


def define_things(server: Server, namespace: str) -> str:
    """Create the CRDs, wait until they are served, and return the path."""
    definition = definition_of_things()
    path = f"{_DEFINITIONS}/{definition['metadata']['name']}"
    server.ask("POST", _DEFINITIONS, definition)
    while server.ask("GET", collection_of(THINGS, namespace))[0] != 200:
        time.sleep(0.1)

    return path


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "url", help="URL of the API server, such as https://127.0.0.1:6443"
    )
    parser.add_argument(
        "--token", required=True, help="token of a cluster administrator"
    )
    parser.add_argument("--ca", required=True, help="file with the server's CA")
    options = parser.parse_args()

    server = Server(options.url, options.token, options.ca)
    namespace = f"recording-{secrets.token_hex(4)}"
    server.ask("POST", "/api/v1/namespaces", {"metadata": {"name": namespace}})
    definition = define_things(server, namespace)
    for file, record in (
        ("creations", created),
        ("updates", updated),
        ("things", created),
    ):
        writes = [record(server, it, namespace) for it in load(file)]
        save(file, writes)
        print(f"{file}: {len(writes)} writes")

    remove(server, definition)
    remove(server, f"/api/v1/namespaces/{namespace}")


if __name__ == "__main__":
    main()
