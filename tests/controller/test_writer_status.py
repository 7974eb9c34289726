"""`Context.set_status` and `set_condition`: one write at the end of a reconcile."""

from __future__ import annotations

from typing import TYPE_CHECKING

from widget_helpers import bench

from aioinformer.errors import TerminalError

if TYPE_CHECKING:
    from aioinformer.controller import Context
    from aioinformer.model.objects import KubeObject


async def test_status_is_written_once_at_the_end() -> None:
    results: list[bool] = []

    async def act(obj: KubeObject, ctx: Context) -> None:
        results.append(ctx.set_status(ready=1))
        results.append(ctx.set_status({"ready": 2, "url": "http://web"}))
        results.append(ctx.set_condition("Ready", True, reason="Deployed"))

    async with bench(act) as it:
        assert it.writes("widgets") == ["patch"]
        status = it.widget()["status"]
        assert it.reconciles == 2, "the write of the status is an update, too"

    (condition,) = status.pop("conditions")
    assert status == {"ready": 2, "url": "http://web"}
    assert condition.pop("lastTransitionTime")
    assert condition == {
        "type": "Ready",
        "status": "True",
        "reason": "Deployed",
        "message": "",
        "observedGeneration": 1,
    }
    assert results == [True, True, True, True, True, False]


async def test_status_is_written_after_failure() -> None:
    async def act(obj: KubeObject, ctx: Context) -> None:
        ctx.set_condition("Ready", False, reason="Failed", message="no")
        raise TerminalError("no")

    async with bench(act) as it:
        assert it.widget()["status"]["conditions"][0]["message"] == "no"
        assert [str(exc) for exc in it.failures] == ["no", "no"]
