"""Rules of this code base that no linter knows."""

from __future__ import annotations

import ast
import doctest
import importlib
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, TypeGuard

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "aioinformer"
SERVER_PACKAGE = ROOT / "aioinformer_apiserver"

# The names that `aioinformer` exports, sorted. A change here changes the public API.
PUBLIC_NAMES: list[str] = [
    "Added",
    "AioInformerError",
    "AlreadyExists",
    "ApiError",
    "CacheError",
    "CacheStatus",
    "Client",
    "Conflict",
    "Context",
    "Controller",
    "DelayingQueue",
    "Deleted",
    "DeltaFIFO",
    "EventRecorder",
    "EventType",
    "FieldSelector",
    "Forbidden",
    "HistoryReset",
    "Indexer",
    "InformerStatus",
    "InformerStopped",
    "Invalid",
    "KubeObject",
    "LabelSelector",
    "LeaderElector",
    "LeadershipLost",
    "LeaseLock",
    "ListWatch",
    "Lister",
    "Manager",
    "NotFound",
    "NotSynced",
    "OrderedFIFO",
    "PriorityQueue",
    "QueueShutDown",
    "RateLimitingQueue",
    "ReconcileRequest",
    "RecordingError",
    "Reflector",
    "Registration",
    "Resource",
    "ResourceExpired",
    "Result",
    "ServerError",
    "Shards",
    "SharedInformer",
    "SharedInformerFactory",
    "Stale",
    "Store",
    "TerminalError",
    "TooManyRequests",
    "TransportError",
    "Unauthorized",
    "Updated",
    "WatchClosed",
    "WatchEvent",
    "WorkQueue",
    "WrongLoop",
    "condition",
    "finalizer",
    "generation_changed",
    "index_by",
    "is_ready",
    "pod_trouble",
    "retry_on_conflict",
    "rolled_out",
    "set_controller_reference",
    "strip_managed_fields",
    "until",
    "until_with_sync",
    "wait_for_cache_sync",
    "with_object",
]

LONGEST_FILE = 1000

# Code that distinguishes its own cancellation from that of a callee. All other code
# must re-raise CancelledError.
JUDGES_OF_CANCELLING = {
    PACKAGE / "_tasks.py",
    PACKAGE / "informer" / "calling.py",
    PACKAGE
    / "testing"
    / "simulation"
    / "loop.py",  # closes coroutines, as no task runs
    SERVER_PACKAGE / "http" / "background.py",
}
# Modules that may start tasks outside of a TaskGroup.
TASK_OWNERS = {
    PACKAGE / "_tasks.py",
    PACKAGE / "testing" / "simulation" / "run.py",  # each in the context of a program
    SERVER_PACKAGE / "http" / "background.py",
}
# The test server may be released separately, so it uses only public modules. A name
# that it imports must be in the `__all__` of one of these.
PUBLIC_TO_THE_SERVER = {
    "aioinformer",
    "aioinformer.errors",
    "aioinformer.json_codec",
    "aioinformer.model",
    "aioinformer.model.resources",
    "aioinformer.model.selectors",
    "aioinformer.model.shards",
    "aioinformer.model.times",
    "aioinformer.model.yaml_values",
    "aioinformer.tables",
    "aioinformer.tables.cells",
    "aioinformer.tables.layout",
}
# Paths of a developer's machine; written so that this file does not contain them.
FOREIGN = ["/" + "work/", "/tmp" + "/w/", "/" + "root/", "/home" + "/"]
# Files that tools leave here, and .gitignore excludes.
NOT_OURS = {
    ".git",
    ".hypothesis",
    ".import_linter_cache",
    ".mypy_cache",
    ".pytest_cache",
    ".ruff_cache",
    ".venv",
    "__pycache__",
    "build",
    "dist",
}


def python_files(*folders: str) -> list[Path]:
    return sorted(path for name in folders for path in (ROOT / name).rglob("*.py"))


MODULES = python_files("aioinformer", "aioinformer_apiserver")


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


def dotted(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


# ------------------------------------------------------------ what code may not do


def broken_rules(
    tree: ast.AST, *, starts_tasks: bool = False, judges_cancelling: bool = False
) -> Iterator[str]:
    """Yield the line and the rule of each violation in `tree`."""
    for node in ast.walk(tree):
        rule = ""
        match node:
            case ast.Call():
                rule = rule_of_call(node, starts_tasks=starts_tasks)
            case ast.ImportFrom(module="asyncio", names=names):
                if not starts_tasks and {it.name for it in names} & TASK_STARTERS:
                    rule = "only _tasks.py starts bare tasks"
            case ast.ExceptHandler():
                rule = rule_of_handler(node, judges_cancelling=judges_cancelling)
            case _:
                pass

        if rule:
            yield f"line {getattr(node, 'lineno', 0)}: {rule}"


TASK_STARTERS = {"create_task", "ensure_future", "gather", "shield", "wait_for"}


def rule_of_call(call: ast.Call, *, starts_tasks: bool) -> str:
    called = ast.unparse(call.func)
    if called.split(".")[-1] == "suppress":
        caught = {ast.unparse(it).split(".")[-1] for it in call.args}
        if caught & {"CancelledError", "BaseException"}:
            return "suppress() would swallow a cancellation"

    owner, _, method = called.rpartition(".")
    if method not in TASK_STARTERS or starts_tasks:
        return ""

    # TaskGroup.create_task() is right; loop.create_task() is not.
    if owner == "asyncio" or "loop" in owner.lower():
        return "only _tasks.py starts bare tasks"

    return ""


def rule_of_handler(handler: ast.ExceptHandler, *, judges_cancelling: bool) -> str:
    if handler.type is None:
        return "bare except"

    kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    caught = {ast.unparse(it).split(".")[-1] for it in kinds}
    last = handler.body[-1]
    if "BaseException" in caught:
        raises = isinstance(last, ast.Raise) and last.exc is None
        return "" if raises else "except BaseException must end in a bare raise"

    if "CancelledError" in caught and not judges_cancelling:
        inside = [it for step in handler.body for it in ast.walk(step)]
        if not any(isinstance(it, ast.Raise) for it in inside):
            return "a cancellation is swallowed"

    return ""


def test_modules_follow_the_cancellation_rules() -> None:
    found = [
        f"{name_of(path)}: {broken}"
        for path in MODULES
        for broken in broken_rules(
            tree_of(path),
            starts_tasks=path in TASK_OWNERS,
            judges_cancelling=path in JUDGES_OF_CANCELLING,
        )
    ]

    assert found == []


@pytest.mark.parametrize(
    "code",
    [
        pytest.param("with suppress(CancelledError): x()", id="suppress"),
        pytest.param(
            "with contextlib.suppress(OSError, asyncio.CancelledError): x()", id="both"
        ),
        pytest.param("with suppress(BaseException): x()", id="suppress-all"),
        pytest.param("try: x()\nexcept: raise", id="bare-except"),
        pytest.param("try: x()\nexcept BaseException: pass", id="base-exception"),
        pytest.param("try: x()\nexcept (OSError, BaseException): y()", id="in-a-tuple"),
        pytest.param("try: x()\nexcept BaseException as e: raise Z from e", id="other"),
        pytest.param("try: x()\nexcept asyncio.CancelledError: y()", id="swallowed"),
        pytest.param("asyncio.create_task(x())", id="create-task"),
        pytest.param("self._loop.create_task(x())", id="loop-attribute"),
        pytest.param("asyncio.get_running_loop().create_task(x())", id="running-loop"),
        pytest.param("from asyncio import gather", id="import"),
        pytest.param("asyncio.wait_for(x(), 3)", id="wait-for"),
    ],
)
def test_cancellation_rules_find_violations(code: str) -> None:
    assert len(list(broken_rules(ast.parse(code)))) == 1


@pytest.mark.parametrize(
    "code",
    [
        pytest.param("group.create_task(x())", id="task-group"),
        pytest.param("with suppress(TimeoutError): x()", id="suppress-another"),
        pytest.param("try: x()\nexcept BaseException:\n  y()\n  raise", id="re-raised"),
        pytest.param("try: x()\nexcept Exception: y()", id="exception"),
        pytest.param(
            "try: x()\nexcept CancelledError:\n  if stop: raise\n  y()", id="decided"
        ),
    ],
)
def test_cancellation_rules_accept_correct_code(code: str) -> None:
    assert not list(broken_rules(ast.parse(code)))


def test_modules_use_the_guarded_logger() -> None:
    """An exception of a log handler would end an informer."""
    bare = {
        name_of(path)
        for path in MODULES
        if path.parent.name != "cli"
        and "aioinformer_apiserver" not in path.parts
        and "logging.getLogger(" in path.read_text(encoding="utf-8")
    }

    assert bare == {"aioinformer/_user_code.py"}


def imports_of_aioinformer(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """Yield module and name of each import from `aioinformer`."""
    for node in ast.walk(tree):
        match node:
            case ast.ImportFrom(module=str(module), names=names):
                pairs = [(module, it.name) for it in names]
            case ast.Import(names=names):
                pairs = [(it.name, "") for it in names]
            case _:
                continue

        yield from (it for it in pairs if it[0].partition(".")[0] == "aioinformer")


def is_public(module: str, name: str) -> bool:
    if module not in PUBLIC_TO_THE_SERVER:
        return False

    # A module of the list may be imported from its package.
    if f"{module}.{name}" in PUBLIC_TO_THE_SERVER:
        return True

    return name in importlib.import_module(module).__all__


def test_apiserver_imports_only_public_names_of_aioinformer() -> None:
    found = [
        f"{name_of(path)} imports {module}.{name}"
        for path in python_files("aioinformer_apiserver")
        for module, name in imports_of_aioinformer(tree_of(path))
        if not is_public(module, name)
    ]

    assert found == []


@pytest.mark.parametrize(
    ("code", "public"),
    [
        ("from aioinformer.errors import ApiError", True),
        ("from aioinformer.model import resources", True),
        ("from aioinformer import Client", True),
        ("from aioinformer.errors import _rebuild", False),
        ("from aioinformer._tasks import Supervisor", False),
        ("from aioinformer import _tasks", False),
        ("import aioinformer.client", False),
    ],
)
def test_rule_of_public_imports_finds_what_breaks_it(code: str, public: bool) -> None:
    ((module, name),) = imports_of_aioinformer(ast.parse(code))

    assert is_public(module, name) == public


# ------------------------------------------------------------ files


def test_files_are_short_enough() -> None:
    lengths = {
        str(path.relative_to(ROOT)): path.read_bytes().count(b"\n")
        for path in python_files(
            "aioinformer", "aioinformer_apiserver", "tests", "examples", "benchmarks"
        )
    }

    long = [f"{name}: {n} lines" for name, n in lengths.items() if n > LONGEST_FILE]
    assert not long, f"more than {LONGEST_FILE} lines, split by subject: {long}"


def committed_files() -> Iterator[Path]:
    for path in sorted(ROOT.rglob("*")):
        names = set(path.relative_to(ROOT).parts)
        generated = path.name.startswith(".coverage") or names & NOT_OURS
        if path.is_file() and not generated:
            yield path


def test_no_file_names_a_development_machine() -> None:
    found = [
        f"{path.relative_to(ROOT)}: {words}"
        for path in committed_files()
        for words in FOREIGN
        if words.encode() in path.read_bytes()
    ]

    assert not found


# ------------------------------------------------------------ public names


def exported(tree: ast.Module) -> list[str] | None:
    """Return the literal `__all__` of a module; None if it has none."""
    for node in tree.body:
        match node:
            case (
                ast.Assign(targets=[ast.Name(id="__all__")], value=value)
                | ast.AnnAssign(
                    target=ast.Name(id="__all__"), value=ast.expr() as value
                )
            ):
                names: list[str] = ast.literal_eval(value)
                return names
            case _:
                pass

    return None


def undocumented(tree: ast.Module, names: list[str]) -> Iterator[str]:
    """Yield the exported classes, methods and functions without a docstring."""
    for node in tree.body:
        if not isinstance(node, Function | ast.ClassDef) or node.name not in names:
            continue

        if not is_described_elsewhere(node) and not ast.get_docstring(node):
            yield node.name

        if isinstance(node, ast.ClassDef):
            for method in node.body:
                if needs_docstring(method) and not ast.get_docstring(method):
                    yield f"{node.name}.{method.name}"


Function = ast.FunctionDef | ast.AsyncFunctionDef


def needs_docstring(node: ast.stmt) -> TypeGuard[Function]:
    if not isinstance(node, Function) or node.name.startswith("_"):
        return False

    return not is_described_elsewhere(node)


def is_described_elsewhere(node: Function | ast.ClassDef) -> bool:
    # Overloads, and functions documented elsewhere: by the getter or the overridden
    # method.
    described = {"overload", "override", "setter", "deleter"}
    decorators = {ast.unparse(it).split(".")[-1] for it in node.decorator_list}
    return bool(described & decorators)


def export_mistakes(path: Path) -> Iterator[str]:
    """Yield the mistakes in the `__all__` of a module."""
    tree = tree_of(path)
    names = exported(tree)
    if names is None:
        # An __init__ that re-exports nothing, or a script.
        if path.name != "__main__.py" and len(tree.body) != 1:
            yield "has no __all__"

        return

    if not ast.get_docstring(tree):
        yield "has no docstring"

    if len(set(names)) != len(names):
        yield "exports a name twice"

    module = importlib.import_module(dotted(path))
    yield from (f"has no {name}" for name in names if not hasattr(module, name))
    yield from (f"{name} has no docstring" for name in undocumented(tree, names))


def test_modules_declare_their_exports() -> None:
    found = [
        f"{name_of(path)} {mistake}"
        for path in MODULES
        for mistake in export_mistakes(path)
    ]

    assert found == []


# Others have none, and importing a __main__ would run it.
WITH_EXAMPLES = [
    path
    for path in MODULES
    if b">>> " in path.read_bytes() and path.name != "__main__.py"
]


@pytest.mark.parametrize("path", WITH_EXAMPLES, ids=name_of)
def test_examples_in_docstrings_work(path: Path) -> None:
    tested = doctest.testmod(importlib.import_module(dotted(path)))

    assert tested.attempted > 0
    assert tested.failed == 0


def test_missing_docstrings_are_found() -> None:
    tree = ast.parse(
        "def f(): ...\n"
        "class C:\n"
        "  def m(self): ...\n"
        "  def _private(self): ...\n"
        "  @override\n"
        "  def o(self): ...\n"
        "class D:\n"
        "  'Described.'\n"
        "def other(): ...\n"
    )

    assert list(undocumented(tree, ["f", "C", "D"])) == ["f", "C", "C.m"]


def test_public_names_are_pinned() -> None:
    package = importlib.import_module("aioinformer")
    names = list(getattr(package, "__all__", []))

    assert sorted(PUBLIC_NAMES) == PUBLIC_NAMES
    assert sorted(names) == PUBLIC_NAMES
    assert [name for name in names if not hasattr(package, name)] == []


def test_package_exports_exactly_what_it_imports() -> None:
    tree = tree_of(PACKAGE / "__init__.py")
    imported = {
        it.asname or it.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("aioinf")
        for it in node.names
    }

    assert imported == set(exported(tree) or []) - {"__version__"}


def test_importing_the_package_imports_no_http_library() -> None:
    code = "import sys, aioinformer; print(*sys.modules)"
    command = [sys.executable, "-c", code]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    loaded = set(result.stdout.split())

    assert "aioinformer" in loaded
    assert loaded.isdisjoint({"aiohttp", "kubernetes_asyncio", "yaml", "pydantic"})
