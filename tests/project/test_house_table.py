"""The table of figures: it finds circles of imports, and names that are there twice."""

from __future__ import annotations

from pathlib import Path

import pytest
from house_table import OURS, Module, circles, imports_of, twice

TEXTS = {
    "p/__init__.py": "from p.a import A",
    "p/a.py": "from p import b\nclass A: ...\nclass _Own: ...",
    "p/b.py": "def late():\n    import p.c\nclass A: ...\nclass _Own: ...",
    "p/c.py": "if TYPE_CHECKING:\n    from p.d import D\nelse:\n    from p.a import A",
    "p/d.py": "class D:\n    from p.c import x",
}
MODULES = [Module(Path(path), OURS, text) for path, text in TEXTS.items()]


@pytest.mark.parametrize(
    ("kinds", "expected"),
    [
        pytest.param(1, [], id="when-loaded"),
        pytest.param(2, [["p.a", "p.b", "p.c"]], id="at-any-time"),
        pytest.param(3, [["p.a", "p.b", "p.c", "p.d"]], id="with-types"),
    ],
)
def test_circles_are_found(kinds: int, expected: list[list[str]]) -> None:
    imports = set().union(*imports_of(MODULES)[:kinds])

    assert circles(MODULES, imports) == expected


def test_public_classes_of_two_modules_are_found() -> None:
    assert twice(MODULES) == ["A: p.a, p.b"]
