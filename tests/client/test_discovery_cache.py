"""Disk cache of discovery, shared with kubectl."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import orjson
import pytest
from discovery_helpers import make_files_older
from each_case import each_case

from aioinformer.client.discovery_cache import folder_of, load, save
from aioinformer.client.discovery_documents import APIResource, Group, GroupVersion

HOUR = 3600.0


def groups() -> list[Group]:
    pods = [APIResource("pods", "pod", True, kind="Pod", verbs=["list"])]
    sets = [APIResource("sets", "set", True, kind="Set", short_names=["s"])]
    return [
        Group("", [GroupVersion("v1", pods)]),
        Group("a.b", [GroupVersion("v2", sets), GroupVersion("v1", sets)]),
    ]


def files(folder: Path) -> list[str]:
    return sorted(
        str(it.relative_to(folder)) for it in folder.rglob("*") if it.is_file()
    )


@each_case(
    "server, folder",
    [
        ("https://10.0.0.1:6443", "10.0.0.1_6443"),
        ("http://localhost:8001", "localhost_8001"),
        ("https://host.test/k8s/clusters/c-1", "host.test/k8s/clusters/c_1"),
        ("https://[::1]:6443", "___1__6443"),
        ("https://host/../../etc", "host/etc"),
    ],
)
def test_cache_folder_of_server_is_that_of_kubectl(server: str, folder: str) -> None:
    assert folder_of(Path("/cache"), server) == Path("/cache") / folder


def test_saved_groups_are_loaded_again(tmp_path: Path) -> None:
    save(tmp_path / "new" / "host", groups())

    found = load(tmp_path / "new" / "host", HOUR)

    assert found is not None
    assert found[0] == groups()
    assert 0 <= found[1] < HOUR
    assert files(tmp_path / "new" / "host") == [
        "a.b/v1/serverresources.json",
        "a.b/v2/serverresources.json",
        "servergroups.json",
        "v1/serverresources.json",
    ]


def test_cache_files_are_private(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        save(tmp_path / "cache" / "host", groups())
    finally:
        os.umask(before)

    paths = list((tmp_path / "cache").rglob("*"))
    modes = {stat.S_IMODE(it.stat().st_mode) for it in paths if it.is_file()}
    folders = {stat.S_IMODE(it.stat().st_mode) for it in paths if it.is_dir()}
    assert (modes, folders) == ({0o600}, {0o700})
    assert stat.S_IMODE((tmp_path / "cache").stat().st_mode) == 0o700


def test_age_of_cache_is_that_of_oldest_file(tmp_path: Path) -> None:
    save(tmp_path, groups())
    make_files_older(tmp_path / "v1", 1000)

    found = load(tmp_path, HOUR)

    assert found is not None
    assert 1000 <= found[1] < HOUR
    assert load(tmp_path, 999) is None


@pytest.mark.parametrize(
    "file",
    ["servergroups.json", "v1/serverresources.json", "a.b/v2/serverresources.json"],
)
@pytest.mark.parametrize("content", [None, b"", b'{"kind":"Status"}'], ids=str)
def test_missing_or_broken_file_invalidates_cache(
    tmp_path: Path, file: str, content: bytes | None
) -> None:
    save(tmp_path, groups())
    (tmp_path / file).unlink()
    if content is not None:
        (tmp_path / file).write_bytes(content)

    assert load(tmp_path, HOUR) is None


def test_file_from_the_future_invalidates_cache(tmp_path: Path) -> None:
    save(tmp_path, groups())
    make_files_older(tmp_path, -HOUR)

    assert load(tmp_path, HOUR) is None


def test_undiscovered_version_is_not_saved(tmp_path: Path) -> None:
    broken = Group("broken.test", [GroupVersion("v1", problem="503")])
    save(tmp_path, [*groups(), broken])

    named = orjson.loads((tmp_path / "servergroups.json").read_bytes())["groups"]
    assert [it["name"] for it in named] == ["", "a.b", "broken.test"]
    assert not (tmp_path / "broken.test").exists()
    assert load(tmp_path, HOUR) is None


@pytest.mark.parametrize("group", ["..", "../up", "/etc", ".", "", "-a"])
def test_names_of_server_cannot_leave_cache_folder(tmp_path: Path, group: str) -> None:
    line = [APIResource("things", "thing", kind="Thing")]
    version = GroupVersion("../../../v1" if not group else "v1", line)
    save(tmp_path / "host", [Group(group, [version])])

    assert files(tmp_path) == []


def test_unwritable_folder_is_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "host").write_text("in the way")

    save(tmp_path / "host", groups())

    assert "cannot write discovery files" in caplog.text


def test_failed_write_keeps_old_file_and_no_other(tmp_path: Path) -> None:
    save(tmp_path, groups())
    target = tmp_path / "servergroups.json"
    target.unlink()
    target.mkdir()  # a folder cannot be replaced

    save(tmp_path, groups())

    assert [it.name for it in tmp_path.iterdir() if it.is_file()] == []


def test_files_written_by_kubectl_are_loaded(tmp_path: Path) -> None:
    (tmp_path / "v1").mkdir()
    (tmp_path / "servergroups.json").write_text(
        '{"kind":"APIGroupList","apiVersion":"v1","groups":[{"name":"","versions":'
        '[{"groupVersion":"v1","version":"v1"}],"preferredVersion":'
        '{"groupVersion":"v1","version":"v1"}}]}\n'
    )
    (tmp_path / "v1" / "serverresources.json").write_text(
        '{"kind":"APIResourceList","groupVersion":"v1","resources":[{"name":"pods",'
        '"singularName":"pod","namespaced":true,"kind":"Pod","verbs":["get","list"],'
        '"shortNames":["po"],"categories":["all"],"storageVersionHash":"xPOwRZ+Yhw8="}]}\n'
    )

    found = load(tmp_path, HOUR)

    assert found is not None
    [group] = found[0]
    [version] = group.versions
    assert version.resources == [
        APIResource(
            "pods",
            "pod",
            True,
            kind="Pod",
            verbs=["get", "list"],
            short_names=["po"],
            categories=["all"],
            storage_version_hash="xPOwRZ+Yhw8=",
        )
    ]
