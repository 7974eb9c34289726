"""The documentation site: its navigation, links and API reference.

`make docs` builds it and checks the result. These tests check the parts.
"""

from __future__ import annotations

import importlib
import re
import tomllib
from typing import TYPE_CHECKING, Any

import pytest
from processes import ROOT
from site_build import OPTIONAL, navigation, searched, settings, texts
from site_check import linked, missing_names
from site_docstrings import as_markdown
from site_pages import LANDING, Pages, SiteError
from site_reference import PUBLIC_MODULES, Reference

if TYPE_CHECKING:
    from pathlib import Path

SITE = "https://docs.example.com/x/"
REPOSITORY = "https://git.example.com/x"


@pytest.fixture(scope="module")
def reference() -> Reference:
    return Reference()


@pytest.fixture(scope="module")
def pages(reference: Reference) -> Pages:
    project = settings()
    return Pages(project["site_url"], project["repo_url"], reference.pages())


def checkout(folder: Path, **files: str) -> Pages:
    """Return the pages of a small checkout; the landing page lists one of them."""
    known = {
        "docs/README.md": "# X\n\n## Start\n\n- [A page](page.md): what it\n  has.\n",
        "docs/page.md": "# Page\n",
        "x/test_x.py": "\n\nclass TestX:\n    def test_it(self): ...\n",
        "docs/images/x.svg": "<svg/>",
        "docs/images/x.yaml": "kind: X\n",
    }
    for name, text in (known | files).items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    return Pages(SITE, REPOSITORY, root=folder)


# -------------------------------------------------------------------- navigation


def test_navigation_has_every_page_once(pages: Pages) -> None:
    listed = [
        it.page for part in pages.sections for item in part.items for it in item.walk()
    ]

    assert sorted([LANDING, *listed]) == sorted(pages.pages)
    assert {f"docs/{it.name}" for it in (ROOT / "docs").glob("*.md")} <= {*pages.pages}


def test_every_page_has_a_description(pages: Pages) -> None:
    items = [it for part in pages.sections for item in part.items for it in item.walk()]

    assert [it.page for it in items if not it.description] == []


def test_unlisted_page_is_a_mistake(tmp_path: Path) -> None:
    pages = checkout(
        tmp_path, **{"docs/new.md": "# New\n", "docs/sub/new.md": "# New\n"}
    )

    with pytest.raises(SiteError) as caught:
        _ = pages.sections

    assert str(caught.value).splitlines() == [
        "docs/new.md is in no list of docs/README.md",
        "docs/sub/new.md is in no list of docs/README.md",
    ]


def test_index_of_a_folder_lists_the_entries_below_it(tmp_path: Path) -> None:
    landing = "# X\n\n## Start\n\n- [Page](page.md): a.\n- [Sub](sub/README.md): b.\n"
    pages = checkout(
        tmp_path,
        **{
            "docs/README.md": landing,
            "docs/sub/README.md": "# Sub\n\n- [Below](below.md): c.\n",
            "docs/sub/below.md": "# Below\n",
        },
    )

    assert tomllib.loads(navigation(pages, pages.sections))["nav"] == [
        "index.md",
        {
            "Start": [
                {"Page": "page.md"},
                {"Sub": ["sub/index.md", {"Below": "sub/below.md"}]},
            ]
        },
    ]


def test_only_page_of_a_folder_is_no_index(tmp_path: Path) -> None:
    image, alone = "docs/alone/x.svg", "docs/alone/README.md"
    texts = {alone: "# Alone\n\n![x](x.svg)\n", image: "<svg/>"}
    pages = checkout(tmp_path, **texts)

    assert pages.pages[alone] == "alone.md"
    assert dict(pages.staged())["alone.md"] == "# Alone\n\n![x](alone/x.svg)\n"


def test_index_of_sections_has_an_entry_for_each_page(tmp_path: Path) -> None:
    landing = "# X\n\n## Sub\n\n- [Page](page.md): a.\n- [Sub](sub/README.md): b.\n"
    index = "# Sub\n\n- [One](it.md#one)\n- [Two](it.md#two)\n"
    texts = {"docs/README.md": landing, "docs/sub/README.md": index}
    pages = checkout(tmp_path, **texts, **{"docs/sub/it.md": "# It\n\n## One\n"})

    (section,) = pages.sections
    (below,) = section.items[1].below
    assert (below.title, below.description) == ("It", "One; Two.")


# -------------------------------------------------------------------- links


@pytest.mark.parametrize(
    ("link", "on_the_site"),
    [
        ("page.md", "page.md"),
        ("../docs/page.md#a-b", "page.md#a-b"),
        ("#here", "#here"),
        ("images/x.svg", "images/x.svg"),
        ("images/x.yaml", "images/x.yaml"),
        ("../x/test_x.py", f"{REPOSITORY}/blob/main/x/test_x.py"),
        ("../x/test_x.py#test_it", f"{REPOSITORY}/blob/main/x/test_x.py#L4"),
        ("../x", f"{REPOSITORY}/tree/main/x"),
        (f"{SITE}#start", "index.md#start"),
        (f"{SITE}page/#it", "page.md#it"),
        (f"{SITE}llms.txt", f"{SITE}llms.txt"),
        ("https://example.com/page.md", "https://example.com/page.md"),
    ],
)
def test_link_leads_to_the_page_or_the_repository(
    tmp_path: Path, link: str, on_the_site: str
) -> None:
    pages = checkout(tmp_path, **{"docs/page.md": f"# Page\n\nSee [it]({link}).\n"})

    assert dict(pages.staged())["page.md"] == f"# Page\n\nSee [it]({on_the_site}).\n"


@pytest.mark.parametrize("link", ["gone.md", "../x/gone.py", "../x/test_x.py#gone"])
def test_link_to_nothing_is_a_mistake(tmp_path: Path, link: str) -> None:
    pages = checkout(tmp_path, **{"docs/page.md": f"# Page\n\nSee [it]({link}).\n"})

    with pytest.raises(SiteError, match=r"docs/page.md links to .*gone"):
        list(pages.staged())


def test_code_keeps_its_text(tmp_path: Path) -> None:
    text = "# Page\n\n```text\n[x](gone.md)\n```\n\nWrite `[x](gone.md)`.\n"
    pages = checkout(tmp_path, **{"docs/page.md": text})

    assert dict(pages.staged())["page.md"] == text


# -------------------------------------------------------------------- the reference


@pytest.mark.parametrize("path", PUBLIC_MODULES)
def test_reference_has_every_exported_name(reference: Reference, path: str) -> None:
    module = importlib.import_module(path)
    submodules = {it for it in module.__all__ if f"{path}.{it}" in PUBLIC_MODULES}
    shown = {it.name for it in reference.entries.values() if it.module == path}

    assert shown == set(module.__all__) - submodules


def test_documented_imports_are_of_public_modules() -> None:
    texts = [(ROOT / "README.md"), *(ROOT / "docs").rglob("*.md")]
    texts += (ROOT / "examples").glob("*.py")
    imported = {
        name
        for path in texts
        for name in re.findall(
            r"^ *from (aioinformer[\w.]*) import", path.read_text(), re.MULTILINE
        )
    }

    assert len(imported) >= 10
    assert imported - set(PUBLIC_MODULES) == set()


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("SharedInformer", "aioinformer.informer.SharedInformer"),
        ("aioinformer.Client", "aioinformer.client.Client"),
        ("cache.Store", "aioinformer.cache.Store"),
        ("Store.get", "aioinformer.cache.Store.get"),
        ("Client.list()", "aioinformer.client.Client.list"),
        ("SharedInformer(name=)", "aioinformer.informer.SharedInformer"),
        ("PODS", "aioinformer.model.resources.PODS"),
        ("until()", "aioinformer.watch.until"),
        ("aioinformer.testing", "aioinformer.testing"),
        # Inherited from an internal base, and from a public one.
        (
            "SharedInformerFactory.lifespan",
            "aioinformer.informer.SharedInformerFactory.lifespan",
        ),
        (
            "DynamicInformerFactory.informer",
            "aioinformer.informer.SharedInformerFactory.informer",
        ),
    ],
)
def test_name_in_a_text_is_found(reference: Reference, name: str, found: str) -> None:
    assert reference.find(name)[0] == found


@pytest.mark.parametrize("name", ["until", "forget()", "Pod", "Client.nothing", "x.py"])
def test_other_words_are_no_names(reference: Reference, name: str) -> None:
    assert reference.find(name) == []


def test_class_shows_members_of_internal_bases(reference: Reference) -> None:
    factory = reference.entries["aioinformer.informer.SharedInformerFactory"]

    assert {"informer", "start", "lifespan"} <= set(reference.described(factory))
    page = reference.pages()["docs/reference/aioinformer.informer.md"]
    assert "inherited_members: ['lifespan'" in page


def test_class_links_to_members_of_public_bases(reference: Reference) -> None:
    page = reference.pages()["docs/reference/aioinformer.testing.md"]
    base = "aioinformer_apiserver.md#aioinformer_apiserver.LocalAPIServer"

    assert "\nInherited from `LocalAPIServer`: [`" in page
    assert f"[`create`]({base}.create)" in page


def test_docstrings_become_markdown() -> None:
    text = "Make it.\n\n::\n\n    make(it)\n\nThe tree::\n\n    a\n    └─ b c\n\nExample:\n    >>> 1\n"

    assert as_markdown(text) == (
        "Make it.\n\n```python\nmake(it)\n```\n\n"
        "The tree:\n\n```text\na\n└─ b c\n```\n\nExamples:\n    >>> 1\n"
    )


def test_texts_for_language_models_have_all_pages(
    pages: Pages, reference: Reference
) -> None:
    found = texts(pages, reference, settings())
    linked_texts = re.findall(
        r"^- \[.+\]\(https://aioinformer.github.io/aioinformer/(.+)\): .+",
        found["llms.txt"],
        re.MULTILINE,
    )

    assert sorted(["index.md", *linked_texts]) == sorted(pages.pages.values())
    assert set(linked_texts) <= set(found)
    assert [it.title for it in pages.sections][-1] == OPTIONAL
    assert "### async wait_synced(" in found["llms-full.txt"]


def test_search_finds_single_words_in_guides_and_classes() -> None:
    def item(location: str, title: str) -> dict[str, Any]:
        return {"location": location, "title": title, "text": title, "path": ["A", "B"]}

    index = {
        "config": {},
        "items": [
            item("production/#memory", "Memory"),
            item("conformance/#memory", "Memory"),
            item("reference/a.b/", "a.b"),
            item("reference/a.b/#a.b.C", "C"),
            item("reference/a.b/#a.b.C.memory", "memory"),
            item("reference/a.b/#a.b.C.wait_for", "wait_for"),
        ],
    }

    assert [(it["location"], it["text"]) for it in searched(index)["items"]] == [
        ("production/#memory", "Memory"),
        ("reference/a.b/", "a.b"),
        ("reference/a.b/#a.b.C", "C memory"),
        ("reference/a.b/#a.b.C.wait_for", "wait_for"),
    ]


# -------------------------------------------------------------------- checks of the result


def test_names_in_code_are_linked() -> None:
    page = (
        "<code>A</code><article><p><code>A</code> <code>b</code></p><pre><code>A</code>"
        "</pre><h2><code>A</code></h2><a><code>A</code></a></article><code>A</code>"
    )
    link = '<a class="name" href="/a"><code>A</code></a>'

    changed = linked(page, lambda it: "/a" if it == "A" else "")

    assert changed == page.replace("<p><code>A</code>", f"<p>{link}")


def test_missing_names_are_found(tmp_path: Path, reference: Reference) -> None:
    for path in PUBLIC_MODULES:
        folder = tmp_path / "reference" / path
        folder.mkdir(parents=True)
        (folder / "index.html").write_text(
            "".join(
                f'<p class="x" id="{it}">'
                for it in [path, *reference.entries]
                if it != "aioinformer.cache.Store"
            )
        )

    found = list(missing_names(tmp_path, reference))

    assert "aioinformer.cache.Store: no anchor" in found
    assert "aioinformer.cache.Indexer: no anchor" not in found


def test_continuous_integration_builds_the_site() -> None:
    steps = (ROOT / ".ci" / "run").read_text(encoding="utf-8")

    assert re.search(r"^ *step make docs", steps, re.MULTILINE)


def test_class_does_not_repeat_methods_of_public_base(reference: Reference) -> None:
    module = "aioinformer.testing.faults"
    members = {
        name: reference.members(reference.entries[f"{module}.{name}"])
        for name in ("Fault", "Refuse", "Garble")
    }
    page = reference.pages()[f"docs/reference/{module}.md"]

    assert {"before", "alter_list"} <= set(members["Fault"])
    assert {"status", "retry_after"} <= set(members["Refuse"])
    assert "before" not in members["Refuse"]
    assert members["Garble"] == []
    assert f"::: {module}.Garble\n    options:\n" in page
    assert "      members: []\n" in page
    assert f"aioinformer.testing.faults.md#{module}.Fault.before" in page


def test_text_shows_signatures_of_dataclasses(reference: Reference) -> None:
    text = reference.text("aioinformer.testing.faults")

    assert "## aioinformer.testing.faults.Refuse(*, verb: Verb | Literal['']" in text
