"""A pytest plugin that measures which lines the tests run: `-p line_coverage`.

`scripts/test` combines what the test processes write, and checks the floor. Tracing, as
`coverage run` does it before Python 3.12, takes three times the CPU of the tests: this
changes the bytecode of the package on import, and costs less than a tenth. So the plugin
must be loaded before the package. Programs that tests start are not measured.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import slipcover
from coverage import CoverageData

_ROOT = Path(__file__).resolve().parents[2]
_PACKAGES = [_ROOT / "aioinformer", _ROOT / "aioinformer_apiserver"]

_lines = slipcover.Slipcover()
slipcover.ImportManager(_lines, slipcover.FileMatcher(sources=_PACKAGES)).__enter__()


def pytest_sessionfinish(session: Any) -> None:
    """Write the executed lines to a file of this process."""
    files = _lines.get_coverage()["files"]
    data = CoverageData(basename=str(_ROOT / ".coverage"), suffix=True)
    data.add_lines(
        {str(_ROOT / name): it["executed_lines"] for name, it in files.items()}
    )
    data.write()
