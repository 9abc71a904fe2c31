"""The documents as a site: it builds without a broken link, asks no other host for anything, and has what it says."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


def build(config: Path, site: Path) -> subprocess.CompletedProcess[str]:
    command = ["-m", "mkdocs", "build", "--strict", "--config-file", str(config), "--site-dir", str(site)]
    return subprocess.run(
        [sys.executable, *command], capture_output=True, text=True, timeout=120, check=False
    )


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    done = build(ROOT / "mkdocs.yml", folder)
    assert done.returncode == 0, done.stderr
    return folder


class Fetched(HTMLParser):
    """What a browser fetches by itself for a page, and where its links lead."""

    def __init__(self) -> None:
        super().__init__()
        self.fetched: list[str] = []
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        if tag in ("script", "img", "iframe", "source", "video"):
            self.fetched += [values[name] or "" for name in ("src", "srcset") if values.get(name)]
        elif tag == "link" and values.get("rel") not in ("canonical", "prev", "next", "edit"):
            self.fetched.append(values["href"] or "")
        elif tag == "a" and values.get("href"):
            self.links.append(values["href"] or "")


def read(page: Path) -> Fetched:
    parser = Fetched()
    parser.feed(page.read_text(encoding="utf-8"))
    return parser


def test_no_page_asks_another_host(site: Path) -> None:
    pages = sorted(site.rglob("*.html"))
    assert len(pages) >= 20
    for page in pages:
        if page.name == "404.html":
            continue  # Its addresses begin at the top of a server.
        for address in read(page).fetched:
            assert not re.match(r"[a-z]+:|//", address), f"{page.name} fetches {address}"
            assert (page.parent / address.partition("#")[0]).exists(), f"{page.name}: {address}"
    for sheet in site.rglob("*.css"):
        assert not re.search(r"url\(\s*[\"']?(?:https?:)?//|@import", sheet.read_text(encoding="utf-8")), (
            sheet
        )
    # The theme's script would fetch Mermaid from elsewhere for a page that has such a diagram.
    assert not [page.name for page in pages if 'class="mermaid"' in page.read_text(encoding="utf-8")]


def test_links_out_of_the_documents_lead_to_files_of_the_site(site: Path) -> None:
    links = {
        (page.parent / link.partition("#")[0]).resolve()
        for page in site.rglob("*.html")
        if page.name != "404.html"
        for link in read(page).links
        if not re.match(r"[a-z]+:|//|#", link)
    }
    missing = [link for link in links if not link.exists() and link != site]
    assert not missing
    top = site.resolve()
    assert top / "programs" / "README.html" in links or top / "programs" / "index.html" in links
    assert top / "examples" / "access" / "policy.dl.txt" in links


def test_every_call_of_the_api_is_on_the_page(site: Path) -> None:
    page = (site / "http-calls.html").read_text(encoding="utf-8")
    description = json.loads((ROOT / "openapi" / "openapi.json").read_text())
    calls = [(path, method.upper()) for path, methods in description["paths"].items() for method in methods]
    assert len(calls) > 30
    for path, method in calls:
        assert re.search(rf"<h3[^>]*>{method} {re.escape(path)}<", page), f"{method} {path}"


def test_the_search_works_without_a_server(site: Path) -> None:
    """From a file a browser may not fetch the index, so it is a script as well."""
    index = json.loads((site / "search" / "search_index.json").read_text(encoding="utf-8"))
    found = {entry["location"].partition("#")[0] for entry in index["docs"] if "witness" in entry["text"]}
    assert "language.html" in found
    assert (site / "search" / "search_index.js").is_file()


def test_a_broken_link_or_anchor_fails(tmp_path: Path) -> None:
    for folder in ("docs", "scripts", "openapi", "programs", "examples", "editors"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__"))
    for file in ("mkdocs.yml", "README.md"):
        shutil.copy(ROOT / file, tmp_path / file)
    index = tmp_path / "docs" / "index.md"
    index.write_text(index.read_text() + "\n[a](http.md#no-such-part) [b](no-such-page.md)\n")
    (tmp_path / "docs" / "orphan.md").write_text("# Not in the navigation\n")
    done = build(tmp_path / "mkdocs.yml", tmp_path / "site")
    assert done.returncode != 0
    for part in ("no-such-part", "no-such-page.md", "orphan.md"):
        assert part in done.stderr, done.stderr


def test_the_pictures_are_as_their_script_draws_them() -> None:
    command = [sys.executable, str(ROOT / "scripts" / "pictures"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
