"""`aioinformer cache` reads stores beside the processes that use them."""

from __future__ import annotations

import shutil
import struct
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from processes import in_real_time

from aioinformer import SharedInformerFactory, index_by
from aioinformer.cache.disk.environment import Environment
from aioinformer.cli import cache as command
from aioinformer.cli.error_messages import CommandError
from aioinformer.errors import OptionsError
from aioinformer.model.resources import PODS, SECRETS
from aioinformer.testing import APIServer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from aioinformer import SharedInformer

pytestmark = in_real_time


@pytest.fixture
async def server() -> AsyncIterator[APIServer]:
    async with APIServer(auto_namespaces=True) as server:
        for name in ("web-0", "web-1", "db-0"):
            body = {"metadata": {"name": name, "labels": {"app": name[:-2]}}}
            body["spec"] = {"nodeName": "node-1"}
            server.create(PODS, body, namespace="shop")

        secret = {"metadata": {"name": "key"}, "stringData": {"password": "hunter2"}}
        server.create(SECRETS, secret, namespace="shop")
        yield server


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "cache"


@pytest.fixture
async def pods(server: APIServer, root: Path) -> AsyncIterator[SharedInformer]:
    """Run informers of pods and Secrets."""
    async with server.client() as client:
        factory = SharedInformerFactory(client, cache_dir=root)
        informer = factory.informer(PODS, indexers={"node": index_by("spec.nodeName")})
        factory.informer(SECRETS, cached=True)
        async with factory:
            await factory.wait_for_cache_sync(timeout=30)
            yield informer


async def run_once(server: APIServer, root: Path) -> None:
    """Run an informer of pods until it is synced, and end it in order."""
    async with server.client() as client:
        factory = SharedInformerFactory(client, cache_dir=root)
        factory.informer(PODS)
        async with factory:
            await factory.wait_for_cache_sync(timeout=30)


def readers_in(root: Path) -> list[Path]:
    return list(root.glob("*/readers/*"))


def store_of(root: Path, plural: str) -> Path:
    (found,) = root.glob(f"{plural}-*")
    return found


async def test_ls_lists_informers_with_writer_and_readers(
    pods: SharedInformer, root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert await command.ls(str(root)) == 0

    head, of_pods, of_secrets = capsys.readouterr().out.splitlines()
    assert head.split() == [
        "INFORMER",
        "OBJECTS",
        "VERSION",
        "WRITER",
        "READERS",
        "SIZE",
    ]
    name, count, version, writer, readers, *_ = of_pods.split()
    assert name == store_of(root, "pods").name
    assert (count, version) == ("3", pods.store.resource_version)
    assert pods.status.cache is not None
    assert (writer, readers) == (str(pods.status.cache.writer), "1")
    assert of_secrets.split()[1] == "1"


async def test_ls_lists_keys_of_one_informer(
    pods: SharedInformer, root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert await command.ls(str(store_of(root, "pods"))) == 0

    assert capsys.readouterr().out.split() == ["shop/db-0", "shop/web-0", "shop/web-1"]


async def test_show_prints_object_of_each_store_that_has_it(
    pods: SharedInformer, root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert await command.show("shop/web-0", str(root), secrets=False) == 0

    out = capsys.readouterr().out
    assert out.count("---") == 1
    assert "nodeName: node-1" in out
    assert "unconfirmed" not in out


@pytest.mark.parametrize("secrets", [False, True])
async def test_show_prints_secrets_only_on_request(
    pods: SharedInformer,
    root: Path,
    capsys: pytest.CaptureFixture[str],
    secrets: bool,
) -> None:
    assert await command.show("shop/key", str(root), secrets=secrets) == 0

    out = capsys.readouterr().out
    assert "password: " in out
    assert ("aHVudGVyMg==" in out) is secrets


async def test_show_hides_secrets_in_a_copy_with_another_name(
    pods: SharedInformer, root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = root.parent / "backup\nforged: line"
    shutil.copytree(
        store_of(root, "secrets"), copy, ignore=shutil.ignore_patterns("readers")
    )

    assert await command.show("shop/key", str(copy), secrets=False) == 0

    out = capsys.readouterr().out
    assert "(hidden)" in out
    assert "aHVudGVyMg==" not in out
    assert "\n# backup forged: line, version" in out
    assert await command.stats(str(copy)) == 0
    assert capsys.readouterr().out.startswith("backup forged: line:\n")


@pytest.mark.parametrize("name", ["lock.mdb", "store.lock"])
async def test_commands_create_no_file(
    server: APIServer, root: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    await run_once(server, root)
    store = store_of(root, "pods")
    (store / name).unlink()
    (store / "readers").rmdir()
    before = sorted(store.iterdir())

    assert await command.ls(str(root)) == 2

    assert f"{name} is missing" in capsys.readouterr().err
    assert sorted(store.iterdir()) == before


@pytest.mark.realtime
def test_commands_of_another_user_name_the_missing_permission(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    (closed / "pods").mkdir(parents=True)
    closed.chmod(0)
    program = """
import asyncio, os, sys
from aioinformer.cli import cache
from aioinformer.cli.error_messages import CommandError

if os.geteuid() == 0:
    os.setuid(65534)

for command in (cache.ls, cache.stats, cache.verify):
    try:
        asyncio.run(command(sys.argv[1]))
    except CommandError as exc:
        print(exc)
"""
    for path in (closed, closed / "pods"):
        done = subprocess.run(
            [sys.executable, "-c", program, path],
            check=True,
            capture_output=True,
            text=True,
        )
        line = f"{path}: Permission denied. Run this as the user of the program."
        assert done.stdout.splitlines() == [line] * 3


async def test_show_names_an_unknown_key(pods: SharedInformer, root: Path) -> None:
    with pytest.raises(CommandError, match="no store has an object 'shop/none'"):
        await command.show("shop/none", str(root), secrets=False)


async def test_stats_print_writer_readers_and_journal(
    server: APIServer,
    pods: SharedInformer,
    root: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    server.delete(PODS, "web-1", namespace="shop")
    await pods.wait_until(lambda pod: pod is None, key="shop/web-1", timeout=5)

    assert await command.stats(str(store_of(root, "pods"))) == 0

    out = capsys.readouterr().out
    lines = [it.partition(":") for it in out.splitlines() if ":" in it]
    shown = {name.strip(): value.strip() for name, _, value in lines}
    assert shown["objects"] == f"2 at version {pods.store.resource_version}"
    assert shown["journal"] == "2 entries, 1 to 2"
    assert shown["indexes"].split(", ") == ["node"]
    assert shown["readers"] == "1"
    assert shown["writer"].startswith("process ")
    assert "confirmed, last seen " in shown["writer"]
    assert "0 entries behind" in out


async def test_commands_leave_no_reader_and_read_a_stopped_cache(
    server: APIServer, root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    await run_once(server, root)
    await command.stats(str(root))
    await command.show("shop/web-0", str(root), secrets=False)
    assert await command.verify_here(str(store_of(root, "pods"))) == 0

    out = capsys.readouterr().out
    assert "has ended in order" in out
    assert ", unconfirmed" in out
    assert "no problem found" in out
    assert readers_in(root) == []


async def test_ls_and_stats_go_on_after_a_store_that_cannot_be_opened(
    pods: SharedInformer, root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = root / "broken"
    other.mkdir()
    (other / "data.mdb").write_bytes(b"no store" * 2000)

    for function in (command.ls, command.stats):
        assert await function(str(root)) == 2
        shown = capsys.readouterr()
        assert shown.err.count("cannot open the cache") == 1
        assert store_of(root, "pods").name in shown.out


@pytest.mark.parametrize("package", ["lmdb", "zstandard"])
async def test_missing_package_is_named(
    pods: SharedInformer, root: Path, monkeypatch: pytest.MonkeyPatch, package: str
) -> None:
    monkeypatch.setitem(sys.modules, package, None)

    with pytest.raises(OptionsError, match=rf"{package}.*aioinformer\[shared\]"):
        await command.verify_here(str(store_of(root, "pods")))


async def test_a_directory_without_a_cache_is_named(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="there is no cache"):
        await command.ls(str(tmp_path))

    with pytest.raises(CommandError, match="No such file or directory"):
        await command.stats(str(tmp_path / "none"))


# ------------------------------------------------------------ verify


async def test_verify_finds_no_problem_beside_a_running_informer(
    server: APIServer,
    pods: SharedInformer,
    root: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    server.patch(PODS, "web-0", {"metadata": {"labels": {"n": "1"}}}, namespace="shop")
    version = server.resource_version
    await pods.wait_for_version(version, timeout=5)

    assert await command.verify_here(str(store_of(root, "pods"))) == 0
    assert "3 objects, 2 entries of the journal" in capsys.readouterr().out


def removed_index_entry(env: Environment, txn: Any, generation: int) -> None:
    with txn.cursor(env.database(f"x{generation}", dupsort=True)) as cursor:
        assert cursor.first()
        cursor.delete()


def removed_object(env: Environment, txn: Any, generation: int) -> None:
    assert txn.delete(b"shop/web-0", db=env.database(f"o{generation}"))


def damaged_object(env: Environment, txn: Any, generation: int) -> None:
    objects = env.database(f"o{generation}")
    record = txn.get(b"shop/web-0", db=objects)
    txn.put(b"shop/web-0", record[: len(record) // 2], db=objects)


def removed_labels(env: Environment, txn: Any, generation: int) -> None:
    with txn.cursor(env.database(f"c{generation}")) as cursor:
        assert cursor.first()
        cursor.delete()


def removed_journal_entry(env: Environment, txn: Any, generation: int) -> None:
    number = struct.pack(">Q", env.header.first)
    assert txn.delete(number, db=env.database("journal"))


@pytest.mark.parametrize(
    ("damage", "line"),
    [
        (removed_index_entry, "index node lacks it"),
        (removed_object, "3 objects, but 2 are stored"),
        (damaged_object, "shop/web-0: "),
        (removed_labels, "its labels are not those in the label columns"),
        (removed_journal_entry, "journal: "),
    ],
)
async def test_verify_finds_damage(
    pods: SharedInformer,
    root: Path,
    capsys: pytest.CaptureFixture[str],
    damage: Any,
    line: str,
) -> None:
    path = store_of(root, "pods")
    env = Environment.open(path)
    names = {"x0": True, "x1": True, "o0": False, "o1": False, "c0": False, "c1": False}
    for name, dupsort in names.items():
        env.database(name, dupsort=dupsort)

    env.database("journal")
    with env.write() as txn:
        damage(env, txn, env.header.generation)

    assert await command.verify_here(str(path)) == 1
    assert line in capsys.readouterr().out
    env.close()


async def test_verify_survives_a_file_that_lmdb_cannot_read(
    server: APIServer, root: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    await run_once(server, root)
    path = store_of(root, "pods")
    data = bytearray((path / "data.mdb").read_bytes())
    for page in range(2, len(data) // 4096):
        data[page * 4096 : page * 4096 + 64] = b"\xff" * 64

    (path / "data.mdb").write_bytes(data)
    assert await command.verify(str(root)) == 1
    assert "damaged" in capfd.readouterr().err
