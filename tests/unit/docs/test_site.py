"""The documentation site: it builds without a warning, and a browser loads nothing of it from elsewhere."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
LOADING = {"script": "src", "img": "src", "iframe": "src", "source": "src", "link": "href"}
"""Elements whose address a browser loads by itself; links are only followed."""

pytestmark = [
    pytest.mark.skipif(find_spec("mkdocs") is None, reason="mkdocs is not installed; `make docs` installs it"),
    pytest.mark.timeout(300),  # seven seconds of computing, on a machine that may be busy
]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built site. `strict` in mkdocs.yml makes each broken link or anchor, and each page outside the navigation, an error."""
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--quiet", "--site-dir", str(folder)],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    return folder


class Loaded(HTMLParser):
    """Addresses that a browser loads with a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.addresses: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        address = dict(attrs).get(LOADING.get(tag, ""))
        if address and dict(attrs).get("rel") != "canonical":
            self.addresses.append(address)


def elsewhere(addresses: Iterator[str]) -> list[str]:
    return [address for address in addresses if re.match(r"(?:\w+:)?//", address)]


@pytest.mark.slow
def test_a_browser_loads_nothing_from_elsewhere(site: Path) -> None:
    pages = {path.relative_to(site): Loaded(path.read_text()).addresses for path in site.rglob("*.html")}
    styles = {path.name: re.findall(r"url\(['\"]?([^)'\"]+)", path.read_text()) for path in site.rglob("*.css")}

    assert len(pages) > 20
    assert {name: found for name, addresses in pages.items() if (found := elsewhere(iter(addresses)))} == {}
    assert {name: found for name, addresses in styles.items() if (found := elsewhere(iter(addresses)))} == {}


def test_every_file_that_a_page_loads_is_in_the_site(site: Path) -> None:
    for path in site.rglob("*.html"):
        for address in Loaded(path.read_text()).addresses:
            if path.name != "404.html" and not address.startswith("data:"):
                assert (path.parent / address.partition("#")[0].partition("?")[0]).exists(), (path, address)


@pytest.mark.parametrize(
    "name", ["policies.api.Policy", "policies.model.ClusterState", "controller.slurm.client.SlurmClient"]
)
def test_the_public_interfaces_have_their_pages(site: Path, name: str) -> None:
    assert any(f'id="{name}"' in path.read_text() for path in (site / "api").glob("*.html"))


def test_files_that_documents_link_to_have_their_pages(site: Path) -> None:
    assert "job_submit" in (site / "source/slurm/plugin/job_submit.lua.html").read_text()
    assert "slurm/plugin/job_submit.lua.html" in (site / "architecture.html").read_text()


def test_tables_look_as_on_github(site: Path) -> None:
    assert "<code>a|b</code>" in (site / "operations.html").read_text()


def test_loaded_resources_and_links_are_distinguished() -> None:
    page = '<a href="https://a"></a><script src="https://b"></script><link rel="canonical" href="https://c"><img src="d.svg">'

    assert Loaded(page).addresses == ["https://b", "d.svg"]
    assert elsewhere(iter(["https://b", "//c", "d.svg", "data:x"])) == ["https://b", "//c"]
