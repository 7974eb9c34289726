"""Write the schemas of the built-in kinds of a real API server.

    python tests/e2e/schemas.py https://127.0.0.1:6443 --token T --ca ca.crt \\
        --modules tests/e2e/modules/kube-apiserver \\
        > aioinformer_apiserver/schema/kubernetes.json

Run it by hand when the imitated version of Kubernetes changes. It reads two sources:

- `/openapi/v3` of the server: the definitions of the kinds that the API server of
  `aioinformer.testing` serves, and those they refer to, without descriptions.
- The Go types of the server (`--modules` is a folder whose go.mod requires them). OpenAPI
  has neither the name of a type in error messages, nor whether an empty value vanishes
  when an object is stored.

The output has three parts: `definitions`; `kinds`, with the definition of
`"apps/v1/Deployment"`; and `fields`, the Go type of each definition's fields. There, a
leading `*` is a pointer, which keeps an empty value. A trailing `!` means that a missing
value is written. The name before a `/` is the struct of the field, if the definition
includes another one. The fields are in the order of the struct and of its JSON. All else
is sorted, one definition per line, so that a new version gives a small diff.
"""

from __future__ import annotations

import argparse
import json
import re
import ssl
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

from aioinformer.model import resources

# Types that the server sends about, or instead of, its kinds; and their versions.
EXTRAS = [
    "authentication.k8s.io/v1/SelfSubjectReview",
    "authentication.k8s.io/v1/TokenRequest",
    "authentication.k8s.io/v1/TokenReview",
    "authorization.k8s.io/v1/LocalSubjectAccessReview",
    "authorization.k8s.io/v1/SelfSubjectAccessReview",
    "authorization.k8s.io/v1/SelfSubjectRulesReview",
    "authorization.k8s.io/v1/SubjectAccessReview",
    "autoscaling/v1/HorizontalPodAutoscaler",
    "autoscaling/v1/HorizontalPodAutoscalerList",
    "autoscaling/v1/Scale",
    "events.k8s.io/v1/Event",
    "events.k8s.io/v1/EventList",
    "meta.k8s.io/v1/DeleteOptions",
    "meta.k8s.io/v1/Status",
    "policy/v1/Eviction",
    "v1/Binding",
    "v1/Status",
]
# Groups whose documents describe those types that no served kind refers to.
EXTRA_VERSIONS = [
    "authentication.k8s.io/v1",
    "authorization.k8s.io/v1",
    "autoscaling/v1",
    "events.k8s.io/v1",
    "policy/v1",
]

# The Go modules of the types, by the prefix of a definition.
MODULES = {
    "io.k8s.api.": "k8s.io/api",
    "io.k8s.apimachinery.": "k8s.io/apimachinery",
    "io.k8s.apiextensions-apiserver.": "k8s.io/apiextensions-apiserver",
}

REFERENCE = re.compile(r'"#/components/schemas/([^"]+)"')
STRUCT = re.compile(r"^type (\w+) struct \{\n(.*?)^\}", re.DOTALL | re.MULTILINE)
FIELD = re.compile(r'^\t(?:(\w+)\s+)?([\w.*\[\]]+)\s+`.*?json:"([^"]*)"', re.MULTILINE)
IMPORT = re.compile(r'^\s*(?:import )?(?:(\w+) )?"([\w./-]+)"$', re.MULTILINE)


class Server:
    """The OpenAPI documents of one API server."""

    def __init__(self, url: str, token: str, ca: str) -> None:
        self._url = url
        self._headers = {"Authorization": f"Bearer {token}"}
        self._tls = ssl.create_default_context(cafile=ca)

    def definitions_of(self, api_version: str) -> dict[str, Any]:
        """Read all definitions in the document of a group and version."""
        path = "apis" if "/" in api_version else "api"
        request = urllib.request.Request(
            f"{self._url}/openapi/v3/{path}/{api_version}", headers=self._headers
        )
        with urllib.request.urlopen(request, context=self._tls) as answer:
            return dict(json.load(answer)["components"]["schemas"])


def kinds_in(definitions: dict[str, Any]) -> dict[str, str]:
    """Map `"apps/v1/Deployment"` to the name of its definition."""
    kinds = {}
    for name, text in definitions.items():
        for it in text.get("x-kubernetes-group-version-kind") or ():
            group = f"{it['group']}/" if it["group"] else ""
            kinds[f"{group}{it['version']}/{it['kind']}"] = name

    return kinds


def reachable(definitions: dict[str, Any], roots: list[str]) -> dict[str, Any]:
    """Keep `roots` and the definitions they refer to, directly or indirectly."""
    found: dict[str, Any] = {}
    waiting = list(roots)
    while waiting:
        name = waiting.pop()
        if name not in found:
            found[name] = without_prose(definitions[name])
            waiting += REFERENCE.findall(json.dumps(found[name]))

    return found


def without_prose(value: Any) -> Any:
    """Drop descriptions, but keep properties of that name."""
    if isinstance(value, list):
        return [without_prose(it) for it in value]

    if not isinstance(value, dict):
        return value

    return {
        key: without_prose(it)
        for key, it in value.items()
        if key != "description" or isinstance(it, dict)
    }


# ---------------------------------------------------------------- Go types


class Package:
    """The structs of one Go package, parsed from the layout of its source."""

    def __init__(self, folder: Path) -> None:
        self._name = folder.name
        self._fields: dict[str, list[tuple[str, str, str]]] = {}
        for file in sorted(folder.glob("*types*.go")):
            text = file.read_text(encoding="utf-8")
            imports = {a or p.split("/")[-1]: p for a, p in IMPORT.findall(text)}
            self._aliases = {a: p.split("/")[-1] for a, p in imports.items()}
            for name, body in STRUCT.findall(text):
                self._fields[name] = [
                    (self._qualified(it), json_name, options)
                    for _, it, tag in FIELD.findall(body)
                    for json_name, _, options in [tag.partition(",")]
                ]

    def fields_of(self, struct: str) -> dict[str, str]:
        """Describe the fields of a struct, including those of inlined structs."""
        found: dict[str, str] = {}
        for type_, name, options in self._fields.get(struct, []):
            if name:
                found[name] = f"{type_}{written(options)}"
            else:
                inlined = type_.removeprefix(f"{self._name}.")
                found |= {
                    field: f"{inlined}/{it}"
                    for field, it in self.fields_of(inlined).items()
                }

        return found

    def _qualified(self, type_: str) -> str:
        """Write a type as Go's reflection prints it: `[]Container` → `[]v1.Container`."""
        *_, last = re.split(r"[\]*]", type_)
        around = type_.removesuffix(last)
        around = re.sub(r"\[(\w+)\]", lambda it: f"[{self._qualified(it[1])}]", around)
        package, _, local = last.rpartition(".")
        if package:
            return f"{around}{self._aliases[package]}.{local}"

        exported = last[:1].isupper()
        last = {"byte": "uint8"}.get(last, last)
        return f"{around}{self._name}.{last}" if exported else around + last


def written(options: str) -> str:
    """Return when Go writes a field: `!` always, `+` unless an empty non-struct."""
    given = set(options.split(","))
    if "omitzero" in given:
        return ""

    return "+" if "omitempty" in given else "!"


def settled(type_: str, text: dict[str, Any]) -> str:
    """Resolve a `+`: only structs, to which OpenAPI refers, are written when empty."""
    if not type_.endswith("+"):
        return type_

    struct = "$ref" in text or "allOf" in text
    pointer = "*" in type_.partition("[")[0]
    return type_[:-1] + ("!" if struct and not pointer else "")


def go_fields(definitions: dict[str, Any], modules: str) -> dict[str, dict[str, str]]:
    """Describe the fields of all definitions that are Go structs."""
    packages: dict[Path, Package] = {}
    found = {}
    for name in definitions:
        prefix = next(it for it in MODULES if name.startswith(it))
        *path, struct = name.removeprefix(prefix).split(".")
        folder = module_folder(MODULES[prefix], modules).joinpath(*path)
        if folder not in packages:
            packages[folder] = Package(folder)

        texts = definitions[name].get("properties", {})
        found[name] = {
            field: settled(type_, texts[field])
            for field, type_ in packages[folder].fields_of(struct).items()
            if field in texts
        }

    return found


FOLDERS: dict[str, Path] = {}


def module_folder(module: str, modules: str) -> Path:
    """Return the source folder of a module, from Go."""
    if module not in FOLDERS:
        command = ["go", "list", "-m", "-f", "{{.Dir}}", module]
        done = subprocess.run(
            command, cwd=modules, check=True, capture_output=True, text=True
        )
        FOLDERS[module] = Path(done.stdout.strip())

    return FOLDERS[module]


# ---------------------------------------------------------------- writing


def lines_of(parts: dict[str, dict[str, Any]]) -> str:
    """Write JSON with one line per member of a part, sorted.

    The fields of a struct keep their order, in which the server writes them.
    """
    texts = []
    for part, members in parts.items():
        write = json.JSONEncoder(
            sort_keys=part != "fields", separators=(",", ":")
        ).encode
        rows = [f"{write(name)}:{write(it)}" for name, it in sorted(members.items())]
        texts.append(f'"{part}":{{\n' + ",\n".join(rows) + "\n}")

    return "{" + ",\n".join(texts) + "}\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "url", help="URL of the API server, such as https://127.0.0.1:6443"
    )
    parser.add_argument(
        "--token", required=True, help="token that may read the OpenAPI document"
    )
    parser.add_argument("--ca", required=True, help="file with the server's CA")
    parser.add_argument("--modules", required=True, help="folder of a go.mod")
    options = parser.parse_args()

    served = [
        f"{it.api_version}/{it.kind}"
        for it in (getattr(resources, name) for name in resources.__all__)
        if not callable(it)
    ]
    server = Server(options.url, options.token, options.ca)
    found: dict[str, Any] = {}
    versions = {it.rpartition("/")[0] for it in served}
    for api_version in sorted(versions.union(EXTRA_VERSIONS)):
        found |= server.definitions_of(api_version)

    known = kinds_in(found)
    wanted = [*served, *(f"{it}List" for it in served), *EXTRAS]
    kinds = {it: known[it] for it in wanted if it in known}
    definitions = reachable(found, list(kinds.values()))
    fields = go_fields(definitions, options.modules)
    parts = {"definitions": definitions, "kinds": kinds, "fields": fields}
    sys.stdout.write(lines_of(parts))


if __name__ == "__main__":
    main()
