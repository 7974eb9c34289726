"""Each fault alone, at each place where it can strike an informer.

In the end the store equals the server, the handlers' events are consistent, and the
informer sends no needless or early requests.
"""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING

import pytest
from fault_rows import ROWS, Row, parameters
from fault_runs import Run, attempts_of, running_pods
from ledger import Ledger

from aioinformer.testing import APIServer, faults
from aioinformer_apiserver.faults import Fault

if TYPE_CHECKING:
    from pathlib import Path

WRITES = 16
"""Four writes a second: before, during and after each fault."""


@pytest.mark.parametrize(("row", "on_disk"), parameters())
async def test_informer_recovers_from_any_fault_at_any_request(
    row: Row, on_disk: bool, tmp_path: Path
) -> None:
    async with APIServer(bookmark_seconds=2, fresh_seconds=0.5) as server:
        ledger = Ledger(server, random.Random(repr(row)))
        ledger.plan(*row.writes)
        server.faults.add(*row.script())
        async with running_pods(
            server,
            ledger,
            lied_to=row.lied_to,
            page_size=2,
            watch_seconds=60,
            streaming_list=row.place == "stream",
            cache=tmp_path if on_disk else None,
        ) as run:
            await _write_through(run)
            then = _next_attempt(run, row)
            skipped = run.informer.status.degraded
            if row.lied_to:
                await run.list_again()

            await run.settled()
            server.faults.check()

    assert run.verdict() == []
    assert then == row.then
    assert skipped == row.skipped
    assert run.informer.status.history_resets == row.reset


async def _write_through(run: Run) -> None:
    """Write until the faults have struck and the next attempt has started."""
    await run.ledger.keep_writing(WRITES)
    async with asyncio.timeout(600):
        while len(run.server.faults):
            await run.ledger.keep_writing(1)

    await run.informer.wait_for_version(run.server.resource_version, timeout=600)
    await run.ledger.keep_writing(WRITES // 4)
    run.witness()


def _next_attempt(run: Run, row: Row) -> str:
    """Return the requests after the struck one; empty if it is still followed."""
    struck = run.server.faults.struck[-1].occasion
    after = attempts_of(run.server, behind=dict(struck.query))
    return after[0].kind if after else ""


def test_matrix_covers_all_faults() -> None:
    every = {
        kind
        for name in faults.__all__
        if isinstance(kind := getattr(faults, name), type) and issubclass(kind, Fault)
    }
    abstract = {faults.EventFault, Fault}

    assert {type(row.fault) for row in ROWS} == every - abstract
