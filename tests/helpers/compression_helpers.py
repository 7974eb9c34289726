"""Bodies to compress, and objects whose bodies are compressed."""

from __future__ import annotations

import asyncio
import hashlib
import logging
from contextlib import asynccontextmanager, contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any

from conftest import pod
from informer_helpers import running, settle
from json_helpers import written
from pipeline_helpers import Rig

from aioinformer.informer.store.compressor import BodyCompressor
from aioinformer.model import KubeObject
from aioinformer.model.compression import Compressor, train
from aioinformer.model.views import DifferenceContext, ObjectContext

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator


def digest(text: str, length: int = 16) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:length]


def spec_of(name: str, kind: str = "web") -> dict[str, Any]:
    """Return a spec with fields common to a kind, and some of its own."""
    letters = digest(kind, 40)
    names = [f"{kind}-{letters[start : start + 5]}" for start in range(0, 40, 5)]
    return {
        "containers": [
            {
                "name": it,
                "image": f"registry.example/{kind}/{it}:{digest(it, 12)}",
                "env": [
                    {"name": f"{it}-{key}", "value": digest(it + key)} for key in it
                ],
            }
            for it in names
        ],
        "own": [digest(f"{name}/{number}", 64) for number in range(12)],
    }


def web(name: str, version: int = 1, kind: str = "web", **metadata: Any) -> KubeObject:
    """Make a pod of 5 KB, most of it common to all pods of its kind."""
    metadata["resourceVersion"] = str(version)
    return KubeObject.of(pod(name, metadata=metadata, spec=spec_of(name, kind)))


@cache
def bodies(kind: str = "web", count: int = 200) -> list[bytes]:
    return [web(f"{kind}-{number}", kind=kind).raw for number in range(count)]


@cache
def compressor_of(kind: str = "web") -> Compressor:
    return train(bodies(kind))


def compressed(obj: KubeObject, compressor: Compressor | None = None) -> KubeObject:
    """Return the object as an informer with compression stores it."""
    compressor = compressor or compressor_of()
    body = compressor.pack(obj.raw)
    assert body is not None
    return KubeObject(
        body,
        obj.key,
        obj.uid,
        obj.resource_version,
        obj.label_set,
        ObjectContext(compressor.codec, obj.context.plain),
    )


def differing(new: KubeObject, old: KubeObject) -> KubeObject:
    """Return an object as a list stores it that differs little from a stored one."""
    compressor = BodyCompressor("zstd")
    compressor.differs = True
    made = compressor.pack_listed(new, old)
    assert isinstance(made.context, DifferenceContext)
    return made


def is_compressed(obj: KubeObject) -> bool:
    return obj.context.codec is not None


def sample() -> KubeObject:
    """Make an object with a value for every property."""
    metadata = {
        "annotations": {"example.com/note": "ä€😀"},
        "finalizers": ["example.com/hold"],
        "generation": 3,
        "ownerReferences": [{"uid": "o", "controller": True}],
        "managedFields": [{"manager": "kubectl", "fieldsV1": {"f:spec": {}}}],
    }
    body = pod(
        "web-0", "shop", {"app": "web"}, metadata=metadata, spec=spec_of("web-0")
    )
    return KubeObject.of(written(body))


def webs(
    count: int, version: int = 1, kind: str = "web", start: int = 0
) -> list[KubeObject]:
    return [
        web(f"web-{number:04}", version, kind) for number in range(start, start + count)
    ]


def damaged(obj: KubeObject) -> KubeObject:
    good = compressed(obj)
    return KubeObject(
        good.body[:-1],
        good.key,
        good.uid,
        good.resource_version,
        good.label_set,
        good.context,
    )


class Counted:
    """A compressor that counts what it packs."""

    def __init__(self, compressor: Compressor) -> None:
        self.codec = compressor.codec
        self._compressor = compressor
        self.count = 0

    def pack(self, body: bytes) -> bytes | None:
        self.count += 1
        return self._compressor.pack(body)


def counted(rig: Rig) -> Counted:
    compressor = rig.compressing._compressor
    assert compressor is not None
    made = Counted(compressor)
    rig.compressing._compressor = made  # type: ignore[assignment]
    return made


@contextmanager
def noted_trainings() -> Iterator[list[str]]:
    """Collect the log messages about trainings."""
    found: list[str] = []

    class Noting(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            found.append(record.getMessage())

    logger = logging.getLogger("aioinformer.informer.store.compressor")
    level, handler = logger.level, Noting()
    logger.setLevel(logging.INFO)
    logger.addHandler(handler)
    try:
        yield found
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)


async def applied(rig: Rig) -> None:
    """Wait until all changes are stored and delivered."""
    pipeline = rig.pipeline
    while pipeline.waiting or pipeline.version != pipeline._version:
        await asyncio.sleep(0)

    await settle()
    await rig.processor.drained()


@asynccontextmanager
async def a_rig(*objects: KubeObject, version: int = 5) -> AsyncIterator[Rig]:
    """Run a pipeline that has applied a first list of these objects."""
    rig = Rig(compression="zstd")
    async with running(rig.run()):
        await rig.relist(*objects, version=version)
        await applied(rig)
        yield rig


def stored_bytes(rig: Rig) -> int:
    return sum(len(obj.body) for obj in rig.indexer.list())


def raw_bytes(rig: Rig) -> int:
    return sum(len(obj.raw) for obj in rig.indexer.list())
