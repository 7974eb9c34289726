"""Simulations find planted bugs, repeat them by their seeds, and pass repaired programs."""

from __future__ import annotations

import asyncio
import gc
import os
import random
import re
import secrets
import signal
import subprocess
import sys
import time
import uuid
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from simulated_operators import OPERATORS, Operator
from simulation_helpers import failure, get, passed, run, sleeping, write

from aioinformer import Controller, Manager
from aioinformer.errors import (
    ApiError,
    LeadershipLost,
    NotFound,
    OptionsError,
    TransportError,
)
from aioinformer.model.resources import CONFIG_MAPS
from aioinformer.testing.simulation import (
    STRATEGIES,
    Cluster,
    Simulation,
    SimulationFailed,
)
from aioinformer.testing.simulation import explore as explore_module
from aioinformer.testing.simulation import loop as loop_module
from aioinformer.testing.simulation.run import Scenario, simulate
from aioinformer.testing.simulation.schedule import KINDS, OPTIONAL_STRATEGIES

if TYPE_CHECKING:
    from aioinformer import Client, ReconcileRequest
    from aioinformer.controller import Context

# By hand, for example: SIMULATION_SEEDS=1000 pytest tests/testing/test_simulation.py
SEEDS = int(os.environ.get("SIMULATION_SEEDS", "12"))
every_operator = pytest.mark.parametrize("operator", OPERATORS, ids=lambda it: it.name)


@every_operator
def test_planted_bug_is_found_and_repeated_by_its_seed(operator: Operator) -> None:
    simulation = Simulation()
    with pytest.raises(SimulationFailed) as found:
        operator.run(simulation, fixed=False)

    outcome = found.value.outcome
    assert len(outcome.faults) <= 8
    again = simulate(
        operator.scenario(fixed=False),
        outcome.seed,
        only=frozenset(it.place for it in outcome.faults),
    )
    assert again.history == outcome.history
    assert again.violation == outcome.violation


@every_operator
def test_repaired_operator_passes(operator: Operator) -> None:
    report = operator.run(Simulation(seconds=1e9), fixed=True, seeds=SEEDS)
    assert report.runs == SEEDS
    assert sum(report.kinds.values()) > SEEDS


# ------------------------------------------------------------ small programs


def test_killed_program_runs_no_finally_and_starts_again() -> None:
    starts: list[int] = []
    begun: list[int] = []
    cleaned: list[int] = []

    async def main(client: Client) -> None:
        starts.append(1)
        async with client:
            while True:
                begun.append(1)
                try:
                    await write(client, "it", starts=str(len(starts)))
                finally:
                    cleaned.append(1)

                await asyncio.sleep(1)

    async def some_time(cluster: Cluster) -> None:
        await cluster.sleep(60.5)
        assert len(starts) > 2
        assert len(begun) - len(cleaned) == len(starts) - 1  # for each kill

    run(main, workload=some_time, strategies=["intermediate states"], seeds=1)


def test_program_that_ends_by_itself_starts_again_as_a_pod_does() -> None:
    starts: list[float] = []

    async def main(client: Client) -> None:
        starts.append(passed())
        await asyncio.sleep(2)
        if len(starts) == 2:
            raise SystemExit(3)

        if len(starts) == 3:
            raise LeadershipLost("another leads")

        if len(starts) == 4:
            raise asyncio.CancelledError

        if len(starts) > 4:
            await asyncio.sleep(1e6)

    run(main, workload=lambda it: it.sleep(10), strategies=["unobserved states"])
    assert starts == [0.0, 3.0, 6.0, 9.0, 12.0]


def test_request_may_be_done_after_its_error() -> None:
    clusters: list[Cluster] = []
    errors: list[str] = []

    async def main(client: Client) -> None:
        async with client:
            for number in range(90):
                name = f"it{number}"
                try:
                    body = {
                        "metadata": {"name": name, "namespace": "default"},
                        "data": {},
                    }
                    await client.create(CONFIG_MAPS, body)
                except TransportError:
                    assert not get(clusters[0], name)
                    errors.append(name)

                await asyncio.sleep(1)

            await asyncio.sleep(1e6)

    (late_writes,) = OPTIONAL_STRATEGIES
    scenario = Scenario(
        program=main,
        setup=clusters.append,
        workload=lambda it: it.sleep(80),
        eventually=lambda it: len(it.objects(CONFIG_MAPS)) == 90,
    )
    outcome = simulate(scenario, 4, strategy=late_writes)
    assert outcome.violation == ""
    assert len(errors) > 5


def test_requests_that_are_refused_count_as_sent() -> None:
    def at_most_two_a_second(cluster: Cluster) -> None:
        assert cluster.requests_within(10) <= 20

    async def main(client: Client) -> None:
        async with client:
            while True:
                with suppress(ApiError, TransportError):
                    await client.get(CONFIG_MAPS, "missing", namespace="default")

                await asyncio.sleep(0.01)

    with pytest.raises(SimulationFailed, match="at_most_two_a_second"):
        Simulation().run(
            main,
            workload=lambda it: it.sleep(20),
            invariants=[at_most_two_a_second],
            strategies=["errors"],
        )


def test_program_gets_the_status_of_the_reported_refusal() -> None:
    statuses: list[int] = []

    async def main(client: Client) -> None:
        async with client:
            while True:
                try:
                    await client.get(CONFIG_MAPS, "missing", namespace="default")
                except NotFound:
                    pass
                except ApiError as exc:
                    statuses.append(exc.status)
                except TransportError:
                    pass

                await asyncio.sleep(1)

    (errors,) = [it for it in STRATEGIES if it.name == "errors"]
    scenario = Scenario(program=main, workload=lambda it: it.sleep(600))
    outcome = simulate(scenario, 1, strategy=errors)

    refusals = [it.status for it in outcome.faults if it.kind == "refuse"]
    assert len(refusals) > 20
    assert statuses == refusals
    assert 409 not in refusals, "a read does not conflict"


def test_fewest_faults_fail_in_the_same_way() -> None:
    async def main(client: Client) -> None:
        async with client:
            failed = 0
            for number in range(1000):
                try:
                    await write(client, "it", failed=str(failed))
                except (ApiError, TransportError):
                    failed += 1

                if number == 50 and not failed:
                    raise RuntimeError("another failure")

                await asyncio.sleep(1)

    def fewer_than_three(cluster: Cluster) -> None:
        assert int(get(cluster, "it").get("failed", 0)) < 3, "too many"

    with pytest.raises(SimulationFailed) as found:
        Simulation().run(
            main,
            workload=lambda it: it.sleep(60),
            invariants=[fewer_than_three],
            strategies=["errors"],
        )

    assert "too many" in found.value.outcome.violation
    assert len(found.value.outcome.faults) == 3


def test_message_says_why_a_simulation_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop_module, "MOST_TURNS", 2000)

    async def fails(client: Client) -> None:
        raise ValueError("it")

    async def hangs(client: Client) -> None:
        while True:
            await asyncio.sleep(0)

    def wrong(cluster: Cluster) -> None:
        assert cluster.time < 1, "late"

    def broken(client: Client) -> None:
        raise TypeError("no such argument")

    assert "program ended with ValueError('it')" in failure(fails)
    assert "a task goes on without waiting" in failure(hangs)
    assert "program ended with TypeError('no such argument')" in failure(broken)  # type: ignore[arg-type]
    quiet = ["unobserved states"]
    text = failure(sleeping, check=lambda _: False, strategies=quiet)
    assert "not true within 100 s without faults: <lambda> is False" in text
    assert "fewest faults that still fail: 0 of 0" in text

    async def changes(cluster: Cluster) -> None:
        await cluster.sleep(2)
        cluster.create(CONFIG_MAPS, {"metadata": {"name": "it"}})

    assert "wrong: late" in failure(sleeping, workload=changes, invariants=[wrong])


def test_error_names_the_line_of_the_program_and_is_chained() -> None:
    async def main(client: Client) -> None:
        async with client:
            with suppress(ApiError):
                await client.get(CONFIG_MAPS, "missing", namespace="default")

            raise ValueError("it")

    def broken(cluster: Cluster) -> None:
        raise KeyError("spec")

    with pytest.raises(SimulationFailed) as found:
        run(main, strategies=["stale states"])

    assert "ended with ValueError('it') at test_simulation.py:" in str(found.value)
    assert isinstance(found.value.__cause__, ValueError)
    with pytest.raises(SimulationFailed) as found:
        run(sleeping, check=broken)

    assert isinstance(found.value.__cause__, KeyError)


def test_log_names_the_line_of_the_error() -> None:
    async def reconcile(request: ReconcileRequest, ctx: Context) -> None:
        raise KeyError("spec")

    def manager(client: Client) -> Manager:
        it = Manager(client)
        it.add(Controller("maps", reconcile, for_=it.informer(CONFIG_MAPS)))
        return it

    def one_map(cluster: Cluster) -> None:
        cluster.create(CONFIG_MAPS, {"metadata": {"name": "it"}})

    text = failure(manager, check=lambda _: False, setup=one_map)
    assert re.search(
        r"LOG KeyError\('spec'\) at test_simulation.py:\d+ reconcile", text
    )


def test_history_has_the_failures_of_tasks_that_nobody_awaits() -> None:
    forgotten: list[asyncio.Task[None]] = []

    async def poll() -> None:
        await asyncio.sleep(3)
        raise ValueError("it")

    async def main(client: Client) -> None:
        forgotten.append(asyncio.create_task(poll()))
        with suppress(ValueError):
            await asyncio.create_task(poll())

        await asyncio.sleep(1e6)

    text = failure(main, check=lambda _: False, strategies=["unobserved states"])
    failed = [it for it in text.splitlines() if "FAILED task" in it]
    (line,) = failed
    assert re.search(
        r"3\.000  program-1  FAILED task test_\w+.*\.poll: ValueError", line
    )
    assert re.search(r"at test_simulation.py:\d+ poll$", line)


def test_error_of_the_workload_tells_seed_and_history() -> None:
    async def main(client: Client) -> None:
        async with client:
            while True:
                with suppress(ApiError, TransportError):
                    await write(client, "it", a="b")

                await asyncio.sleep(1)

    async def wrong(cluster: Cluster) -> None:
        await cluster.sleep(20)
        raise LookupError("mine")

    with pytest.raises(LookupError, match="mine") as found:
        Simulation(command="repeat", seed=9).run(
            main, eventually=lambda _: True, workload=wrong, strategies=["errors"]
        )

    (note,) = found.value.__notes__
    assert note.startswith("seed 9 (errors): error of the workload\nfaults:\n  program")
    assert (
        "cluster  FAILED workload: LookupError('mine') at test_simulation.py:" in note
    )
    assert note.endswith("\nrepeat it: repeat 9")
    with pytest.raises(asyncio.CancelledError):
        run(sleeping, workload=cancelled)


async def cancelled(cluster: Cluster) -> None:
    raise asyncio.CancelledError


def test_repeated_seed_shows_its_whole_history() -> None:
    async def main(client: Client) -> None:
        async with client:
            for _ in range(100):
                await write(client, "it", a="b")

            await asyncio.sleep(1e6)

    with pytest.raises(SimulationFailed) as found:
        run(main, lambda _: False, strategies=["unobserved states"])

    assert str(found.value).count("\n") < 70
    assert "last 60 of 10" in str(found.value)
    with pytest.raises(SimulationFailed) as found:
        Simulation(seed=0).run(
            main,
            eventually=lambda _: False,
            settle_seconds=100,
            strategies=["unobserved states"],
        )

    assert all(it in str(found.value) for it in found.value.outcome.history)


def test_incomplete_search_for_fewest_faults_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(explore_module, "_SEARCH_SECONDS", -1.0)
    (operator, *_) = OPERATORS
    with pytest.raises(SimulationFailed, match=r"\(the search ended after -1 s\)"):
        operator.run(Simulation(), fixed=False)


def test_report_tells_how_many_seeds_did_not_begin() -> None:
    report = Simulation(seconds=-1).run(sleeping, eventually=lambda _: True, seeds=5)
    assert (report.runs, report.left) == (1, 4)
    assert "not tried: 4 seeds, as the time was over" in str(report)


def test_order_of_sets_of_tasks_and_futures_is_that_of_the_seed() -> None:
    orders: list[list[int]] = []

    async def main(client: Client) -> None:
        loop = asyncio.get_running_loop()
        numbers: dict[asyncio.Future[None], int] = {}
        for number in range(50):
            future = loop.create_future()
            task = asyncio.create_task(asyncio.sleep(1), name=str(number))
            numbers[future] = numbers[task] = number
            loop.call_later(1, future.set_result, None)

        done, _ = await asyncio.wait(numbers)
        orders.append([numbers[it] for it in done])
        await asyncio.sleep(1e6)

    held = []
    for _ in range(3):
        run(main, strategies=["unobserved states"])
        held.append([object() for _ in range(777)])  # other addresses

    assert orders[0] == orders[1] == orders[2]


def test_workload_that_waits_for_ever_fails() -> None:
    async def never(cluster: Cluster) -> None:
        while True:
            await cluster.sleep(600)

    with pytest.raises(SimulationFailed, match="not ended within 7 virtual days"):
        run(sleeping, workload=never)

    async def stuck(cluster: Cluster) -> None:
        await asyncio.Event().wait()

    async def ready(client: Client) -> None:
        await asyncio.Event().wait()

    with pytest.raises(SimulationFailed, match="nothing can happen any more"):
        run(ready, workload=stuck)


def test_outcomes_of_pytest_are_failures() -> None:
    def two(cluster: Cluster) -> None:
        if len(cluster.objects(CONFIG_MAPS)) == 2:
            pytest.fail("two objects")

    async def main(client: Client) -> None:
        async with client:
            for number in range(5):
                await write(client, str(number))

            await asyncio.sleep(1e6)

    with pytest.raises(SimulationFailed, match="two: two objects"):
        run(main, invariants=[two], strategies=["unobserved states"])

    async def ends(client: Client) -> None:
        pytest.fail("in the program")

    with pytest.raises(
        SimulationFailed, match=r"in the program at test_simulation.py:\d+"
    ):
        run(ends)


def test_error_is_told_with_its_cause() -> None:
    async def fails(client: Client) -> None:
        try:
            raise KeyError("spec")
        except KeyError as exc:
            raise ExceptionGroup("all", [ValueError("a\nb")]) from exc

    with pytest.raises(SimulationFailed) as found:
        run(fails)

    async def cycle(client: Client) -> None:
        error = ValueError("it")
        raise error from error

    assert "program ended with ValueError('it') at" in failure(cycle)
    text = (
        r"ExceptionGroup\('all', .* from ValueError\('a\\nb'\) at test_simulation.py:"
    )
    assert re.search(text, str(found.value))


def test_events_that_arrive_together_may_be_seen_apart() -> None:
    seen: set[tuple[str, str]] = set()
    clusters: list[Cluster] = []

    async def reconcile(request: ReconcileRequest, ctx: Context) -> None:
        await asyncio.sleep(1)
        cached = ctx.lister.get(request.key)
        assert cached is not None
        seen.add((cached.at("data.n"), get(clusters[-1], "it")["n"]))

    def manager(client: Client) -> Manager:
        it = Manager(client)
        it.add(Controller("maps", reconcile, for_=it.informer(CONFIG_MAPS)))
        return it

    def one_map(cluster: Cluster) -> None:
        clusters.append(cluster)
        cluster.create(CONFIG_MAPS, {"metadata": {"name": "it"}, "data": {"n": "0"}})

    async def three_changes(cluster: Cluster) -> None:
        await cluster.sleep(5)
        for number in range(1, 4):
            cluster.patch(CONFIG_MAPS, "it", {"data": {"n": str(number)}})

        await cluster.sleep(30)

    run(
        manager,
        setup=one_map,
        workload=three_changes,
        seeds=20,
        strategies=["stale states"],
    )
    assert seen >= {("0", "0"), ("1", "3"), ("2", "3"), ("3", "3")}


def test_workload_waits_for_a_state_of_the_cluster() -> None:
    found: list[tuple[float, object]] = []

    async def main(client: Client) -> None:
        await asyncio.sleep(40)
        async with client:
            await write(client, "it", n="1")

        await asyncio.sleep(1e6)

    async def users(cluster: Cluster) -> None:
        with pytest.raises(
            TimeoutError, match="timed out after 10 s, last result: None"
        ):
            await cluster.until(lambda: cluster.get(CONFIG_MAPS, "it"), timeout=10)

        value = await cluster.until(lambda: get(cluster, "it").get("n"), timeout=60)
        found.append((round(cluster.time), value))

    run(main, workload=users)
    assert found == [(40, "1")]


def test_cluster_gets_from_one_namespace() -> None:
    def setup(cluster: Cluster) -> None:
        cluster.create(CONFIG_MAPS, {"metadata": {"name": "it", "namespace": "a"}})
        assert cluster.get(CONFIG_MAPS, "it") is None
        cluster.create(CONFIG_MAPS, {"metadata": {"name": "it"}})
        for namespace, there in (("a", "a"), ("", "default"), ("default", "default")):
            found = cluster.get(CONFIG_MAPS, "it", namespace=namespace)
            assert found is not None
            assert found["metadata"]["namespace"] == there

        assert len(cluster.objects(CONFIG_MAPS)) == 2

    run(sleeping, setup=setup)


def test_errors_of_the_test_itself_are_raised() -> None:
    async def wrong(cluster: Cluster) -> None:
        raise LookupError("mine")

    with pytest.raises(
        OptionsError, match=r"program must return .*, and returned None"
    ):
        run(lambda client: None)  # type: ignore[arg-type, return-value]

    with pytest.raises(OptionsError, match=r"workload must be `async def`, .* None"):
        run(sleeping, workload=lambda cluster: None)

    with pytest.raises(SimulationFailed, match="<lambda> is <coroutine object"):
        run(sleeping, check=lambda cluster: wrong(cluster))

    with pytest.raises(LookupError, match="mine"):
        run(sleeping, setup=lambda _: exec("raise LookupError('mine')"))

    with pytest.raises(OptionsError, match="unknown strategies \\['luck'\\]"):
        run(sleeping, strategies=["luck"])

    with pytest.raises(OptionsError, match="needs invariants=, or eventually="):
        Simulation().run(sleeping)

    with pytest.raises(OptionsError, match="an invariant must be a plain function"):
        Simulation().run(sleeping, invariants=["x"])  # type: ignore[list-item]

    with pytest.raises(OptionsError, match="workload must be a function, not 3"):
        run(sleeping, workload=3)

    with pytest.raises(OptionsError, match="setup must be a plain function"):
        run(sleeping, setup=wrong)

    with pytest.raises(OptionsError, match="eventually must be a plain function"):
        Simulation().run(sleeping, eventually=wrong)

    with pytest.raises(OptionsError, match="an invariant must be a plain function"):
        Simulation().run(sleeping, invariants=[wrong])

    for option in ({"seeds": 0}, {"replicas": 0}, {"replicas": "2"}):
        ((name, value),) = option.items()
        with pytest.raises(
            OptionsError, match=f"{name}={value!r} must be a number, at least 1"
        ):
            run(sleeping, **option)

    with pytest.raises(OptionsError, match="invariants takes a list"):
        run(sleeping, invariants=wrong)

    async def manager(client: Client) -> Any:
        return Manager(client)

    with pytest.raises(OptionsError, match=r"returned <Manager .*, which nobody runs"):
        run(manager)


async def test_coroutine_test_is_refused() -> None:
    with pytest.raises(OptionsError, match="has its own event loop"):
        run(sleeping)


def test_randomness_of_the_process_is_restored() -> None:
    state, urandom = random.getstate(), os.urandom
    before = signal.signal(signal.SIGTERM, handler := lambda *_: None)
    tokens: list[str] = []

    async def main(client: Client) -> None:
        tokens.append(secrets.token_hex())
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, lambda: None)
        await asyncio.sleep(1e6)

    try:
        for _ in range(2):
            run(main, strategies=["unobserved states"])

        assert signal.getsignal(signal.SIGTERM) is handler
    finally:
        signal.signal(signal.SIGTERM, before)

    assert len(tokens) == 2
    assert tokens[0] == tokens[1] != secrets.token_hex()
    assert os.urandom is urandom
    assert gc.isenabled()
    assert random.getstate() == state
    assert len({random.Random().random(), random.Random().random()}) == 2
    assert uuid.uuid4() != uuid.uuid4()
    assert datetime.now(UTC).timestamp() == pytest.approx(time.time(), abs=5)


def test_report_tells_what_was_tried_and_what_was_not() -> None:
    async def main(client: Client) -> None:
        async with client:
            while True:
                await write(client, "it", time="x")
                await asyncio.sleep(1)

    async def half_a_minute(cluster: Cluster) -> None:
        await cluster.sleep(30)

    report = run(
        main, workload=half_a_minute, seeds=5, strategies=["intermediate states"]
    )
    text = str(report)
    assert text.startswith("5 runs, 0.")
    assert " write: " in text
    assert report.kinds["kill after"] > 0
    assert "not tried: refuse" in text
    assert set(report.not_tried()) >= {"refuse", "partition", "stale"}
    assert sum(report.killed_at.values()) >= report.kinds["kill after"]


def test_strategies_have_all_kinds_of_faults() -> None:
    kinds = {
        kind
        for it in (*STRATEGIES, *OPTIONAL_STRATEGIES)
        for kind, _ in (*it.starts, *it.writes, *it.watches, *it.lists)
    }
    assert kinds == set(KINDS)


HISTORIES = """
import hashlib, sys
sys.path.insert(0, "tests/helpers")
from simulated_operators import OPERATORS
from aioinformer.testing.simulation import loop as loop_module
from aioinformer.testing.simulation.run import simulate
seen = hashlib.sha256()
for number, it in enumerate(OPERATORS):
    scenario = it.scenario(fixed=True)
    for seed in range(number, number + 4):  # all strategies in turns
        seen.update(repr(simulate(scenario, seed).history).encode())
print(seen.hexdigest())
"""


def test_history_depends_on_nothing_but_the_seed() -> None:
    digests = set()
    for number in ("1", "2"):
        done = subprocess.run(
            [sys.executable, "-c", HISTORIES],
            env=os.environ | {"PYTHONHASHSEED": number},
            capture_output=True,
            text=True,
            check=True,
        )
        digests.add(done.stdout)

    assert len(digests) == 1, digests


def test_faults_do_not_change_when_others_are_left_out() -> None:
    (operator,) = [it for it in OPERATORS if it.name == "killed between two writes"]
    scenario = operator.scenario(fixed=True)
    outcome = simulate(scenario, 5)
    first = outcome.faults[0]
    alone = simulate(scenario, 5, only=frozenset([first.place]))
    assert alone.faults == [first]
    assert simulate(scenario, 5, only=frozenset()).faults == []
