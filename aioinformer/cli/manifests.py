"""Manifests: YAML files of definitions and objects that a server begins with."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from aioinformer.cli.explain import CommandError
from aioinformer.errors import AioInformerError
from aioinformer.model import resources
from aioinformer.model.resource import Resource
from aioinformer.model.resources import CUSTOM_RESOURCE_DEFINITIONS as DEFINITIONS
from aioinformer.model.yaml_values import MOST_BYTES, YAMLError, decoded_yamls

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aioinformer.testing import APIServer

__all__ = ["create_all"]


def create_all(server: APIServer, path: str) -> int:
    """Create what a file holds, in its order; returns how much it was.

    Raises:
        CommandError: If it cannot be read, or something in it cannot be created.
    """
    try:
        decoded: list[Any] = decoded_yamls(_text(Path(path)))
        bodies = [it for it in decoded if it is not None]
        for body in bodies:
            known = {(it.api_version, it.kind): it for it in _resources(server)}
            server.create(known[body["apiVersion"], body["kind"]], body)
    except OSError as exc:
        raise CommandError(f"{path} cannot be read: {exc.strerror}.") from exc
    except YAMLError as exc:
        raise CommandError(f"{path} is no YAML: {' '.join(str(exc).split())}") from exc
    except (KeyError, TypeError) as exc:
        raise CommandError(
            f"{path} holds what no served kind is: {exc}. Each document names its "
            "apiVersion and kind; definitions stand before their objects."
        ) from exc
    except AioInformerError as exc:
        raise CommandError(f"{path}: {exc}") from exc

    return len(bodies)


def _text(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(MOST_BYTES + 1)


def _resources(server: APIServer) -> Iterator[Resource]:
    names = (name for name in resources.__all__ if name.isupper())
    yield from (getattr(resources, name) for name in names)
    for body in server.objects(DEFINITIONS):
        spec: dict[str, Any] = body["spec"]
        named, scoped = spec["names"], spec["scope"] == "Namespaced"
        for it in spec["versions"]:
            group, version = spec["group"], it["name"]
            yield Resource(group, version, named["plural"], named["kind"], scoped)
