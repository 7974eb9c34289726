"""docs/conformance.md: every behaviour has a test or a reason, and the page is right."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest
from conformance_table import main, numbers_of, page_of, read
from processes import ROOT

if TYPE_CHECKING:
    from pathlib import Path

GATE = "scripts/conformance"

TABLE = """
title = "Things | and more"
upstream = "tools/cache/thing.go"

[groups]
TH = "1-2, 4"
OT = "1"

[[row]]
id = "TH-1"
behaviour = '''
Things
are found.'''
tests = ["tests/test_thing.py::test_found"]

[[row]]
id = "TH-2"
behaviour = "Things are lost."
upstream = "tools/watch/thing.go"
reason = "decided otherwise"
instead = "Nothing is lost."
tests = [
    "tests/test_thing.py::TestThing::test_kept",
    "tests/test_thing.py::TestMachine",
]

[[row]]
id = "TH-4"
behaviour = "Things are a|b."
reason = "later"
comes_with = "stores"

[[row]]
id = "OT-1"
behaviour = "Things have pointers."
reason = "Go only"
"""
TESTS = """
TestMachine = Machine.TestCase
TestNothing = 5

async def test_found(): ...

def helper(): ...

class TestThing:
    def test_kept(self): ...

class Other:
    def test_elsewhere(self): ...
"""
FOUND = "tests/test_thing.py::test_found"


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout with one component and one test file."""
    (tmp_path / "docs" / "conformance").mkdir(parents=True)
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_thing.py").write_text(TESTS)
    table(tmp_path).write_text(TABLE)
    return tmp_path


def table(checkout: Path) -> Path:
    return checkout / "docs" / "conformance" / "things.toml"


def page(checkout: Path) -> Path:
    return checkout / "docs" / "conformance.md"


def edit(checkout: Path, old: str, new: str) -> None:
    assert TABLE.count(old) == 1, old
    table(checkout).write_text(TABLE.replace(old, new))


# ---------------------------------------------------------------- the real one


def test_each_behaviour_has_a_test_or_a_reason(
    capsys: pytest.CaptureFixture[str],
) -> None:
    status = main(["--check"])

    assert capsys.readouterr().err == ""
    assert status == 0


def test_scripts_check_runs_the_conformance_check() -> None:
    steps = (ROOT / "scripts" / "check").read_text(encoding="utf-8")

    assert f"step {GATE} --check\n" in steps


@pytest.mark.realtime
def test_conformance_script_runs() -> None:
    command = [str(ROOT / GATE), "--help"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)

    assert f"usage: {GATE} [-h] [--check]" in done.stdout


# ---------------------------------------------------------------- the page


def test_page_is_written(checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    written = main([], checkout)

    assert (written, main(["--check"], checkout)) == (0, 0)
    assert capsys.readouterr().err == ""
    lines = page(checkout).read_text().splitlines()
    names = ("TestThing::test_kept", "TestMachine")
    links = [f"[`{name}`](../tests/test_thing.py)" for name in names]
    cells = [line.strip("| ").split(" | ") for line in lines if "thing.go`" in line]
    assert cells == [
        [
            "TH-1",
            "Things are found.",
            "`tools/cache/thing.go`",
            "[`test_found`](../tests/test_thing.py)",
        ],
        [
            "TH-2",
            "Things are lost.",
            "`tools/watch/thing.go`",
            "*decided otherwise*: Nothing is lost. " + ", ".join(links),
        ],
        ["TH-4", r"Things are a\|b.", "`tools/cache/thing.go`", "*later*: stores"],
        ["OT-1", "Things have pointers.", "`tools/cache/thing.go`", "*Go only*"],
    ]


def test_rows_are_counted_by_component(checkout: Path) -> None:
    main([], checkout)

    lines = page(checkout).read_text().splitlines()
    start = lines.index(
        "| component | ids | tested | decided otherwise "
        "| Go only | feature gate | deprecated twin | later |"
    )
    assert lines[start + 2 : start + 4] == [
        r"| [Things \| and more](#things--and-more) | 4 | 1 | 1 | 1 |  |  | 1 |",
        "| all | 4 | 1 | 1 | 1 |  |  | 1 |",
    ]


def test_components_are_ordered_by_file(checkout: Path) -> None:
    more = TABLE.replace("TH", "AA").replace("OT", "BB").replace("Things | and", "No")
    table(checkout).with_name("about.toml").write_text(more)

    components, problems = read(checkout)

    assert problems == []
    shown = page_of(components)
    assert shown.index("## No more") < shown.index("## Things")


def test_outdated_page_fails_the_check(
    checkout: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    missing = main(["--check"], checkout)
    main([], checkout)
    page(checkout).write_text(page(checkout).read_text() + "edited by hand")

    assert (missing, main(["--check"], checkout)) == (1, 1)
    assert capsys.readouterr().err == 2 * (
        "docs/conformance.md: is out of date, run scripts/conformance\n"
    )


def test_invalid_table_writes_no_page(checkout: Path) -> None:
    edit(checkout, FOUND, "tests/test_thing.py::test_lost")

    assert main([], checkout) == 1
    assert not page(checkout).exists()


# ---------------------------------------------------------------- mistakes


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        pytest.param(
            f'tests = ["{FOUND}"]',
            "",
            "TH-1: has neither tests nor a reason",
            id="nothing",
        ),
        pytest.param(
            FOUND,
            "tests/test_thing.py::test_lost",
            "TH-1: no such test: tests/test_thing.py::test_lost",
            id="no-such-test",
        ),
        pytest.param(
            FOUND,
            "tests/test_thing.py::helper",
            "TH-1: no such test: tests/test_thing.py::helper",
            id="no-test-at-all",
        ),
        pytest.param(
            FOUND,
            "tests/test_thing.py::Other::test_elsewhere",
            "TH-1: no such test: tests/test_thing.py::Other::test_elsewhere",
            id="class-that-is-not-collected",
        ),
        pytest.param(
            FOUND,
            "tests/test_thing.py::TestNothing",
            "TH-1: no such test: tests/test_thing.py::TestNothing",
            id="no-test-case",
        ),
        pytest.param(
            FOUND,
            f"{FOUND}[a]",
            f"TH-1: no such test: {FOUND}[a]",
            id="brackets",
        ),
        pytest.param(
            FOUND,
            "tests/test_gone.py::test_found",
            "TH-1: no such test file: tests/test_gone.py::test_found",
            id="no-such-file",
        ),
        pytest.param(
            f'"{FOUND}"',
            f'"{FOUND}", "{FOUND}"',
            f"TH-1: lists a test twice: {FOUND}",
            id="twice",
        ),
        pytest.param(
            '"Go only"',
            '"no time"',
            "OT-1: unknown reason: 'no time'",
            id="another-reason",
        ),
        pytest.param(
            '"Go only"',
            f'"Go only"\ntests = ["{FOUND}"]',
            "OT-1: has tests, but also the reason 'Go only'",
            id="reason-and-tests",
        ),
        pytest.param(
            'instead = "Nothing is lost."',
            "",
            "TH-2: is decided otherwise, but has no sentence in `instead`",
            id="decided-without-a-word",
        ),
        pytest.param(
            f'tests = ["{FOUND}"]',
            f'tests = ["{FOUND}"]\ninstead = "Else."',
            'TH-1: has `instead`, but its reason is not "decided otherwise"',
            id="instead-of-nothing",
        ),
        pytest.param(
            'comes_with = "stores"',
            "",
            "TH-4: comes_with requires the reason 'later', and vice versa",
            id="never",
        ),
        pytest.param(
            '"Go only"',
            '"Go only"\ncomes_with = "stores"',
            "OT-1: comes_with requires the reason 'later', and vice versa",
            id="not-later",
        ),
        pytest.param(
            "Things are lost.",
            "Things are lost",
            "TH-2: its behaviour is not a sentence",
            id="no-sentence",
        ),
        pytest.param(
            "tools/watch/thing.go",
            "tools/watch",
            "TH-2: its upstream is not a Go file: 'tools/watch'",
            id="no-file-of-go",
        ),
        pytest.param(
            '"1-2, 4"',
            '"1-4"',
            "TH-3: its group has the number, but there is no row",
            id="gap",
        ),
        pytest.param(
            '"1-2, 4"',
            '"1-2"',
            "TH-4: its group lacks the number",
            id="not-declared",
        ),
        pytest.param(
            '"1-2, 4"\nOT = "1"',
            '"1-2, 4, 5-five"\nOT = "1"',
            "TH: '1-2, 4, 5-five' is not a list of ranges such as '1-4, 10'",
            id="no-range",
        ),
        pytest.param(
            'TH = "1-2, 4"\nOT = "1"',
            'OT = "1"\nTH = "1-2, 4"',
            "its rows are not in the order of its groups and numbers",
            id="order",
        ),
        pytest.param('"OT-1"', '"ot1"', "ot1: is not an id", id="no-id"),
        pytest.param(
            'reason = "Go only"',
            'reason = "Go only"\nnote = "?"',
            "OT-1: has an unknown key: note",
            id="unknown-key",
        ),
        pytest.param(
            "[groups]", "sort = 1\n[groups]", "has an unknown key: sort", id="header"
        ),
        pytest.param('title = "Things | and more"', "", "has no title", id="title"),
        pytest.param(
            f'["{FOUND}"]', f'"{FOUND}"', "TH-1: tests is not a list", id="no-list"
        ),
    ],
)
def test_mistake_is_reported_in_one_line(
    checkout: Path, capsys: pytest.CaptureFixture[str], old: str, new: str, said: str
) -> None:
    main([], checkout)
    edit(checkout, old, new)

    assert main(["--check"], checkout) == 1
    assert f"things.toml: {said}\n" in capsys.readouterr().err


def test_duplicate_id_is_reported(
    checkout: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table(checkout).with_name("twin.toml").write_text(TABLE)

    assert main([], checkout) == 1
    said = capsys.readouterr().err.splitlines()
    assert "TH-1: exists 2 times" in said
    assert "OT: exists 2 times" in said


def test_invalid_toml_is_reported_with_its_file(
    checkout: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table(checkout).write_text("title")

    assert main([], checkout) == 1
    assert capsys.readouterr().err.startswith("things.toml: ")


@pytest.mark.parametrize(
    ("ranges", "numbers"),
    [("1", {1}), ("1-3", {1, 2, 3}), ("1-2, 7,9-10", {1, 2, 7, 9, 10})],
)
def test_ranges_are_parsed(ranges: str, numbers: set[int]) -> None:
    assert numbers_of(ranges) == numbers


@pytest.mark.parametrize("ranges", ["", "a", "1-", "-1", "1 2", "1--2"])
def test_invalid_range_is_refused(ranges: str) -> None:
    with pytest.raises(ValueError, match="is not a list of ranges"):
        numbers_of(ranges)
