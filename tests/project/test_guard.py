"""The guard of instruction counts, `benchmarks/guard`.

`scripts/check` compares the counts of this code. These tests check the comparison, and
that equal work gives equal counts.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from guard import __main__ as program
from guard import baseline, machine, material
from guard.baseline import BASELINE, OF_ONE_BUILD, Baseline, Counts, Maker, NotCounted
from guard.cases import CASES
from guard.report import Counted, Report, compare

if TYPE_CHECKING:
    from pathlib import Path

MAKER = Maker("3.11.7", "a compiler", {"msgspec": "0.22.0"})
QUEUE = "WorkQueue: add, get, done"


def report_of(before: Counts, now: Counts, maker: Maker = MAKER) -> Report:
    return compare(Baseline(MAKER, before), Counted(maker, now))


def of_bytecodes(count: float) -> Counts:
    return {"an event": {"bytecodes": count}}


# ------------------------------------------------------------ what may become of counts


def test_increased_count_fails() -> None:
    report = report_of(of_bytecodes(1000.0), of_bytecodes(1101.0))

    assert report.status == 1
    assert report.lines[1].split() == [
        *("an", "event", "bytecodes", "1,000.0", "1,101.0", "+10.1%", "ROSE")
    ]
    assert report.lines[-1].startswith("1 rose by more than 10 %.")


def test_increase_within_the_tolerance_passes() -> None:
    report = report_of(of_bytecodes(1000.0), of_bytecodes(1099.0))

    assert report == Report([*report.lines[:2], "no count rose by more than 10 %"], 0)


def test_decreased_count_is_reported_and_passes() -> None:
    report = report_of(of_bytecodes(1000.0), of_bytecodes(899.0))

    assert report.status == 0
    assert report.lines[-1].startswith("1 fell by more than 10 %. To keep the gain:")


def test_first_object_tracked_by_the_garbage_collector_fails() -> None:
    before = {"an event": {"objects tracked": 0.0}}
    now = {"an event": {"objects tracked": 0.1}}

    assert report_of(before, before).status == 0
    assert report_of(before, now).status == 1


def test_increase_of_one_count_fails_despite_decreases() -> None:
    before = {"an event": {"bytecodes": 100.0, "allocations": 10.0}}
    now = {"an event": {"bytecodes": 10.0, "allocations": 12.0}}

    assert report_of(before, now).status == 1


@pytest.mark.parametrize(
    ("before", "now", "text"),
    [
        pytest.param({}, of_bytecodes(1.0), "1 not in the baseline:", id="new"),
        pytest.param(of_bytecodes(1.0), {}, "1 in the baseline, but no", id="removed"),
    ],
)
def test_count_missing_on_either_side_fails(
    before: Counts, now: Counts, text: str
) -> None:
    report = report_of(before, now)

    assert report.status == 1
    assert report.lines[-1].startswith(text)


def test_unavailable_counts_are_reported_and_pass() -> None:
    before = {"an event": {"bytecodes": 100.0, "instructions": 9000.0}}
    missing = {"instructions": "valgrind is not installed"}
    counted = Counted(MAKER, of_bytecodes(100.0), missing)

    report = compare(Baseline(MAKER, before), counted)

    assert report.status == 0
    assert "not counted: instructions: valgrind is not installed" in report.lines


# ------------------------------------------------------------ what they were made with


def test_other_library_versions_are_reported() -> None:
    maker = Maker("3.11.9", "a compiler", {"msgspec": "0.23.0"})

    report = report_of(of_bytecodes(100.0), of_bytecodes(100.0), maker)

    assert report.status == 0
    assert (
        "compared though the baseline was made with: Python 3.11.7, not 3.11.9; "
        "msgspec 0.22.0, not 0.23.0"
    ) in report.lines


def test_increase_with_other_versions_fails() -> None:
    maker = Maker("3.11.9", "a compiler", {"msgspec": "0.23.0"})

    assert report_of(of_bytecodes(100.0), of_bytecodes(120.0), maker).status == 1


def test_machine_counts_of_another_build_are_not_compared() -> None:
    MAKER.check_build(Maker(MAKER.python, MAKER.build, {"msgspec": "0.23.0"}))
    with pytest.raises(NotCounted, match="differs from that of the baseline"):
        MAKER.check_build(Maker(MAKER.python, "another compiler", {}))


def test_python_without_a_baseline_is_reported(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = tmp_path / "baseline.json"
    baseline.write(path, of_bytecodes(1.0))
    path.write_text(path.read_text().replace(f'"{baseline.this_minor()}"', '"2.7"'))
    monkeypatch.setattr(sys, "argv", ["guard", "--baseline", str(path)])

    assert program.main() == 0
    assert capsys.readouterr().out == (
        f"There is no baseline for Python {baseline.this_minor()}: "
        "nothing is counted or compared.\n"
    )


# ------------------------------------------------------------ the file


def test_writing_keeps_baselines_of_other_pythons(tmp_path: Path) -> None:
    path = tmp_path / "baseline.json"
    baseline.write(path, of_bytecodes(1.0))
    path.write_text(path.read_text().replace(f'"{baseline.this_minor()}"', '"2.7"'))

    baseline.write(path, of_bytecodes(2.04))

    found = baseline.read(path)
    assert found["2.7"].counts == of_bytecodes(1.0)
    assert found[baseline.this_minor()] == Baseline(Maker.here(), of_bytecodes(2.0))


def test_committed_baselines_are_complete() -> None:
    whats = {"bytecodes", "objects tracked"} | OF_ONE_BUILD

    for minor, kept in baseline.read(BASELINE).items():
        found = {case: set(counts) for case, counts in kept.counts.items()}
        assert found == {case.name: whats for case in CASES}, minor


# ------------------------------------------------------------ how it counts


def counts_within(folder: Path, *cases: str) -> Counts:
    given = folder / "material"
    if not given.exists():
        material.write(given)

    command = [sys.executable, "-m", "guard.counted", str(given), "within", *cases]
    done = subprocess.run(
        command, env=program.environment(), stdout=subprocess.PIPE, check=True
    )
    found: Counts = json.loads(done.stdout)
    return found


@pytest.mark.realtime
def test_equal_work_gives_equal_counts(tmp_path: Path) -> None:
    first = counts_within(tmp_path, QUEUE, "a listed pod")

    assert counts_within(tmp_path, QUEUE, "a listed pod") == first
    assert set(first) == {QUEUE, "a listed pod"}
    assert all(counts["bytecodes"] > 50 for counts in first.values())


@pytest.mark.realtime
def test_more_work_gives_higher_counts() -> None:
    code = """if True:
        import gc
        from guard.counted import Bytecodes, Tracked

        gc.disable()
        exec(compile("def work(n): return [[i] for i in range(n)]", "work.py", "exec"))
        kept = []
        for counter in (Bytecodes, Tracked):
            with counter():
                work(1)  # from 3.12 on, the first time has less to count

            found = []
            for size in (0, 100, 200):
                with (counting := counter()):
                    kept.append(work(size))

                found.append(counting.count)

            print(found[1] - found[0], found[2] - found[1])
    """
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=program.environment(),
        stdout=subprocess.PIPE,
        check=True,
        text=True,
    )
    bytecodes, tracked = (line.split() for line in done.stdout.splitlines())

    assert bytecodes[0] == bytecodes[1]
    assert int(bytecodes[0]) >= 300  # three per turn at least
    assert tracked == ["100", "100"]


PART = """\
events: Ir
summary: 1458083

fn=list_append
10 1000
cfn=PyMem_Realloc
calls=7 456
10 574
cfn=list_resize
calls=9 12
10 80

fn=PyMem_Realloc
456 20
cfn=_PyObject_Realloc
calls=7 9
456 300
"""


def test_nested_allocations_are_counted_once() -> None:
    assert machine.counts_of_part(PART) == {"instructions": 1458083, "allocations": 7}


def test_missing_valgrind_skips_machine_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(NotCounted, match="valgrind is not installed"):
        machine.count(tmp_path / "material", tmp_path, {})
