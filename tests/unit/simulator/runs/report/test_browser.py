"""The page of a comparison and that of a leaderboard in a real browser, wide and narrow: they fit, and axe finds nothing wrong."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from simulator.cli import main as cli
from simulator.traces.generators import from_text, generate
from simulator.traces.write import write_trace

if TYPE_CHECKING:
    from playwright.sync_api import Browser

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
POLICIES = "fifo-skip,srtf,srtf:layout=anywhere,las,las:layout=anywhere,las:round_s=600,las:layout=anywhere,round_s=600"

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no chromium here: apt-get install chromium")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    sync_api = pytest.importorskip("playwright.sync_api")
    with sync_api.sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        yield found
        found.close()


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pages")
    texts = {"jobs": "60", "arrivals": "poisson", "load": "1", "cluster_gpus": "8", "seed": "1", "demands": "1/2/4"}
    trace = folder / "trace.csv"
    write_trace(generate("contention-rl", from_text("contention-rl", texts)), trace)
    shared = ("--cluster", "2x4", "--policies", POLICIES, "--slowdown", "link-sharing", "--out")
    _call("compare", "--trace", str(trace), *shared, str(folder / "compare"))
    _call("leaderboard", "--traces", str(trace), "--windows", "3", "--front", *shared, str(folder / "board"))
    return {"compare": folder / "compare" / "report.html", "leaderboard": folder / "board" / "leaderboard.html"}


def _call(*words: str) -> None:
    with pytest.MonkeyPatch.context() as patch, pytest.raises(SystemExit) as ended:
        patch.setattr(sys, "argv", ["headway-sim", *words])
        cli.main()
    assert ended.value.code == 0


@pytest.mark.timeout(300)  # axe takes seconds a page where the machine is busy
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1400, 420])
@pytest.mark.parametrize("name", ["compare", "leaderboard"])
def test_a_page_fits_and_axe_finds_nothing(
    pages: dict[str, Path], browser: Browser, name: str, width: int, scheme: Any
) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
    page = context.new_page()
    wrong: list[str] = []
    page.on("pageerror", lambda error: wrong.append(f"script: {error}"))
    page.goto(pages[name].as_uri(), timeout=120_000)
    wide = page.evaluate("document.documentElement.scrollWidth")
    found = axe.run(page)
    context.close()
    assert wrong == []
    assert wide <= width, f"{wide} pixels wide"
    assert len(found.response["passes"]) > 10
    assert found.violations_count == 0, found.generate_report()
