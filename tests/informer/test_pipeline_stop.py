"""`Pipeline`: what it leaves undone when it is stopped."""

from __future__ import annotations

from fake_source import thing
from informer_helpers import running
from pipeline_helpers import Rig, add

A1, B1 = thing("a", 1), thing("b", 1)


async def test_stop_drops_queued_changes() -> None:
    rig = Rig()
    async with running(rig.processor.run()):
        async with running(rig.pipeline.run()):
            await rig.relist(A1, version=5)
            await rig.applied()
            rig.take()
            await rig.change(add(B1), version=9)

        await rig.applied()

    assert (rig.holds, rig.indexer.resource_version) == (["a@1"], "5")
    assert rig.take() == []
    assert rig.pipeline.known(B1.key) == B1, "it was queued"
