"""The page in a real browser, wide and narrow: what is seen, that it fits, and that axe finds nothing wrong."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.unit.controller.web.site import Site
from tests.unit.controller.web.test_app import PAGES

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
WIDTHS = (1400, 420)
ROOT = Path(__file__).parents[4]

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no chromium here: apt-get install chromium")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    sync_api = pytest.importorskip("playwright.sync_api")
    with sync_api.sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        yield found
        found.close()


@pytest.fixture(scope="module")
def address(cluster: Site) -> Iterator[str]:
    with cluster.address() as found:
        yield found


@contextmanager
def opened(browser: Browser, address: str, width: int, scheme: Any = "light", token: str = "") -> Iterator[Page]:
    """A page without errors of scripts, dialogs and requests to elsewhere."""
    wrong: list[str] = []
    context = browser.new_context(
        viewport={"width": width, "height": 900},
        color_scheme=scheme,
        extra_http_headers={"Authorization": f"Bearer {token}"},
    )
    page = context.new_page()
    page.on("pageerror", lambda error: wrong.append(f"script: {error}"))
    page.on("console", lambda message: wrong.append(f"console: {message.text}") if _is_wrong(message) else None)
    page.on("request", lambda request: request.url.startswith(address) or wrong.append(f"elsewhere: {request.url}"))
    page.on("dialog", lambda dialog: wrong.append(f"dialog: {dialog.message}"))
    yield page
    context.close()
    assert wrong == []


_ERROR_PAGES = ("status of 401", "status of 404", "status of 503")


def _is_wrong(message: Any) -> bool:
    """An error on the console, but for that of a page which has the status of an error."""
    return message.type == "error" and not any(status in message.text for status in _ERROR_PAGES)


@pytest.mark.timeout(300)  # axe takes seconds a page where the machine is busy
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", WIDTHS)
def test_every_page_fits_and_axe_finds_nothing(
    cluster: Site, browser: Browser, address: str, width: int, scheme: str, tmp_path: Path
) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    with opened(browser, address, width, scheme, cluster.token) as page:
        for path in (*PAGES, "/queue?state=ineligible", "/jobs/99"):
            answer = page.goto(address + path)
            assert answer is not None
            assert answer.status == (404 if path == "/jobs/99" else 200)
            name = path.strip("/").replace("/", "-") or "overview"
            page.screenshot(path=tmp_path / f"{width}-{scheme}-{name}.png", full_page=True)
            check(axe, page, width, path)


def check(axe: Any, page: Page, width: int, name: str) -> None:
    """The page is as wide as the window, and axe finds nothing wrong."""
    wide = page.evaluate("document.documentElement.scrollWidth")
    assert wide <= width, f"{name} is {wide} pixels wide"
    cut = page.locator(".scroll").evaluate_all(
        "found => found.filter(each => each.scrollWidth > each.clientWidth).map(each => each.ariaLabel)"
    )
    assert cut == [], f"{name} at {width} cuts tables"
    found = axe.run(page)
    assert len(found.response["passes"]) > 10, name
    assert found.violations_count == 0, f"{name} at {width}: {found.generate_report()}"


@pytest.mark.timeout(300)
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", WIDTHS)
def test_so_do_the_page_to_sign_in_and_that_of_a_controller_which_is_away(
    cluster: Site, browser: Browser, address: str, width: int, scheme: str, tmp_path: Path
) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    with opened(browser, address, width, scheme, "no token of anyone") as page:
        answer = page.goto(address)
        assert answer is not None and answer.status == 401
        assert page.get_by_label("Token").is_visible()
        check(axe, page, width, "the page to sign in")
    with (
        cluster.address(status_socket=tmp_path / "no.sock") as without,
        opened(browser, without, width, scheme, cluster.token) as page,
    ):
        answer = page.goto(without)
        assert answer is not None and answer.status == 503
        assert "controller" in page.get_by_role("heading", level=1).inner_text()
        check(axe, page, width, "a controller that is away")


def test_a_user_signs_in_finds_a_job_and_signs_out(cluster: Site, browser: Browser, address: str) -> None:
    context = browser.new_context(viewport={"width": 1400, "height": 900})
    page = context.new_page()
    page.goto(address)
    page.get_by_label("Token").fill(cluster.token)
    page.get_by_role("button", name="Sign in").click()
    assert page.get_by_role("heading", level=1).inner_text() == "Overview"
    page.get_by_role("link", name="Queue").click()
    page.get_by_role("link", name="My jobs").click()
    assert page.locator("tbody tr").first.inner_text().split()[0] == "1"
    page.get_by_label("Job", exact=True).fill("3")
    page.get_by_role("button", name="Show").click()
    assert page.get_by_role("heading", level=1).inner_text().startswith("Job 3")
    assert "<script>alert(1)</script>" in page.locator("p.name").inner_text()
    page.get_by_role("button", name="Sign out").click()
    assert "You are not signed in" in page.get_by_role("heading", level=1).inner_text()
    context.close()


def test_an_open_page_is_renewed_unless_its_reader_switches_that_off(
    cluster: Site, browser: Browser, address: str
) -> None:
    with opened(browser, address, 1400, token=cluster.token) as page:
        page.clock.install()
        page.goto(f"{address}/queue?user=fay")
        assert page.locator("tbody a[href^='/jobs/']").count() == 0
        page.get_by_label("renew every").uncheck()

        async def submit() -> None:
            cluster.world.sbatch(gpus_per_node=8, user="fay")
            await cluster.world.turn()

        cluster.run(submit())
        page.wait_for_timeout(2500)  # answers are kept for two seconds
        page.clock.run_for(16_000)
        assert page.locator("tbody a[href^='/jobs/']").count() == 0
        page.get_by_label("renew every").check()
        page.clock.run_for(16_000)
        page.locator("tbody a[href^='/jobs/']").first.wait_for(timeout=60_000)


@pytest.mark.timeout(300)
def test_the_pictures_of_the_documentation_can_be_made(tmp_path: Path) -> None:
    pytest.importorskip("playwright.sync_api")
    program = (sys.executable, "-m", "tests.unit.controller.web.screenshots", "--out", tmp_path, "--hours", "0.5")

    done = subprocess.run(
        (*program, "web-overview", "web-nodes"), cwd=ROOT, capture_output=True, text=True, timeout=280
    )

    assert done.returncode == 0, done.stderr
    for name in ("web-overview", "web-nodes"):
        header = (tmp_path / f"{name}.png").read_bytes()[:24]
        assert header[:8] == b"\x89PNG\r\n\x1a\n" and int.from_bytes(header[16:20]) == 1400
