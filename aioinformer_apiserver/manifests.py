"""Manifests: YAML files of objects, as `kubectl apply -f` takes them."""

from __future__ import annotations

import glob
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from aioinformer import json_codec
from aioinformer.errors import OptionsError
from aioinformer.model.yaml_values import MOST_BYTES, YAMLError, decoded_yamls

__all__ = ["Manifest", "manifests_in", "patterns_of", "unknown_kind"]

_SUFFIXES = (".yaml", ".yml", ".json")
# The first are created first, because others need them.
_FIRST_KINDS = ("CustomResourceDefinition", "Namespace")
# Every test may load the same files, and YAML is slow to decode.
_CACHED_FILES = 64
# Fields that a server has written, so that a copy of its objects can be loaded.
_SERVER_FIELDS = (
    "deletionGracePeriodSeconds",
    "deletionTimestamp",
    "managedFields",
    "resourceVersion",
    "selfLink",
    "uid",
)


@dataclass(frozen=True, slots=True)
class Manifest:
    """One object of a file."""

    place: str
    """File and document, for messages."""

    body: dict[str, Any]

    @property
    def type(self) -> tuple[str, str]:
        """`apiVersion` and `kind`."""
        return self.body["apiVersion"], self.body["kind"]

    @property
    def order(self) -> int:
        """Rank among the objects to create: CRDs, namespaces, others."""
        kind = self.body["kind"]
        ranks = {it: rank for rank, it in enumerate(_FIRST_KINDS)}
        return ranks.get(kind, len(ranks))

    def __str__(self) -> str:
        metadata = self.body.get("metadata")
        name = metadata.get("name") if isinstance(metadata, dict) else None
        named = f" {name}" if name else ""
        return f"{self.place} ({self.body['kind']}{named})"


def patterns_of(option: str, value: object) -> list[str]:
    """Check paths and patterns; one need not be in a list.

    Raises:
        OptionsError: If one is neither a string nor a path, or empty, or YAML.
    """
    values = [value] if isinstance(value, str | Path) else value
    found = list(values) if isinstance(values, Iterable) else [None]
    if any("\n" in str(it) for it in found):
        raise OptionsError(
            f"{option} must be paths of files, not YAML text: write the text to a "
            "file, such as tmp_path / 'objects.yaml'"
        )

    if all(isinstance(it, str | Path) and str(it) for it in found):
        return [str(it) for it in found]

    raise OptionsError(
        f"{option} must be paths or patterns, such as 'crds/*.yaml', not {value!r}"
    )


def manifests_in(patterns: Iterable[str], root: Path) -> list[Manifest]:
    """Read the objects of all matching files, in the order of patterns and names.

    A folder stands for its YAML and JSON files. Blocks.

    Args:
        patterns: Paths, or patterns as of `glob`.
        root: Folder of relative ones.

    Raises:
        OptionsError: If nothing matches, or a file cannot be read, has no objects or
            something else.
    """
    files: list[Path] = []
    for pattern in patterns:
        try:
            files += _files(pattern, root)
        except OSError as exc:
            raise OptionsError(f"cannot read {pattern}: {exc.strerror}") from exc

    return [it for file in dict.fromkeys(files) for it in _manifests(file, root)]


def unknown_kind(wanted: tuple[str, str], served: Iterable[tuple[str, str]]) -> str:
    """Return the message for a kind that the server does not have.

    Args:
        wanted: `apiVersion` and `kind`.
        served: Pairs that the server has.
    """
    version, kind = wanted
    others = sorted(it for it, name in served if name == kind)
    if others:
        advice = f"It has one in {', '.join(others)}."
    elif "." in version.partition("/")[0]:
        advice = "Load its CRD, too."
    else:
        advice = "Check apiVersion and kind."

    return f"the server has no kind {kind} in {version}. {advice}"


def _files(pattern: str, root: Path) -> list[Path]:
    path = root / pattern
    if path.is_dir():
        files = (it for it in path.iterdir() if not it.is_dir())
        found = sorted(it for it in files if it.suffix in _SUFFIXES)
    elif path.exists():
        found = [path]
    else:
        matches = glob.glob(pattern, root_dir=root, recursive=True)
        found = sorted(it for it in map(root.joinpath, matches) if it.is_file())

    if not found:
        where = f"in {root.absolute()}, where relative paths start"
        if path.is_dir():
            raise OptionsError(f"the folder {pattern} has no YAML or JSON files")

        if glob.has_magic(pattern):
            raise OptionsError(f"no file matches {pattern} {where}")

        raise OptionsError(f"{pattern} does not exist {where}")

    return found


def _manifests(file: Path, root: Path) -> list[Manifest]:
    shown = str(file.relative_to(root) if file.is_relative_to(root) else file)
    try:
        with file.open("rb") as opened:
            raw = opened.read(MOST_BYTES + 1)

        documents = _documents(raw)
    except OSError as exc:
        raise OptionsError(f"cannot read {shown}: {exc.strerror}") from exc
    except YAMLError as exc:
        reason = " ".join(str(exc).replace('in "<byte string>", ', "at ").split())
        raise OptionsError(f"{shown} is not YAML: {reason}{_template(raw)}") from exc

    found = []
    for number, document in enumerate(documents, start=1):
        place = shown if len(documents) == 1 else f"{shown}, document {number}"
        found += _objects(json_codec.loads(document), place)

    if not found:
        raise OptionsError(f"{shown} contains no objects")

    return found


def _template(raw: bytes) -> str:
    """Return advice if a file that is not YAML looks like a template of Helm."""
    before, braces, _ = raw.partition(b"{{")
    if not braces:
        return ""

    line = before.count(b"\n") + 1
    return f". Line {line} has '{{{{': render templates first, with `helm template`"


@lru_cache(maxsize=_CACHED_FILES)
def _documents(raw: bytes) -> tuple[bytes, ...]:
    """Return the documents of a file as JSON, which is fast to decode."""
    return tuple(json_codec.dumps(it) for it in decoded_yamls(raw))


def _objects(document: object, place: str) -> list[Manifest]:
    """Return the objects of a document: none if it is empty, all of a list."""
    if document is None:
        return []

    if not isinstance(document, dict):
        raise OptionsError(
            f"{place}: expected an object with apiVersion and kind, not "
            f"{document!r:.60}"
        )

    for field in ("apiVersion", "kind"):
        if not isinstance(document.get(field), str) or not document[field]:
            raise OptionsError(
                f"{place}: {field} is missing. A manifest starts with apiVersion and "
                "kind, such as v1 and ConfigMap"
            )

    kind: str = document["kind"]
    items = document.get("items")
    if not kind.endswith("List") or not isinstance(items, list):
        return [Manifest(place, _without_server_fields(document))]

    # The objects of a typed list, such as a PodList, may lack both.
    given = {"apiVersion": document["apiVersion"], "kind": kind.removesuffix("List")}
    defaults = given if given["kind"] else {}
    found = []
    for number, item in enumerate(items):
        whole = {**defaults, **item} if isinstance(item, dict) else item
        found += _objects(whole, f"{place}, items[{number}]")

    return found


def _without_server_fields(body: dict[str, Any]) -> dict[str, Any]:
    metadata = body.get("metadata")
    if not isinstance(metadata, dict):
        return body

    kept = {key: it for key, it in metadata.items() if key not in _SERVER_FIELDS}
    return {**body, "metadata": kept}
