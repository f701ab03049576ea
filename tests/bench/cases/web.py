"""Pages of headway-web on a large cluster: from the request of a browser to the whole HTML, and to the first paint in Chromium.

A controller on an emulated Slurm has 2,000 nodes and 10,000 jobs, and answers over its real status.sock; other jobs have ended,
some are being stopped, and every running job has measurements and slows another one down. For the HTML, each page is asked for
by another user, so that no answer is used again: the time has the call, its decoding and the page. For the paint, Chromium opens
each page in a window without a cache, when the answers before are too old to be used again.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from starlette.testclient import TestClient

from controller.admin.explain.cycle_view import CycleView
from controller.admin.metrics.current_view import CurrentView
from controller.admin.metrics.job_metrics import JobMetrics
from controller.observe.role import Role
from controller.profiles.current import Contention
from controller.profiles.racks import Racks
from controller.slurm.embedded import ClusterDescription, sbatch_request
from controller.slurm.embedded.description import NodeDescription
from controller.state.preemption import Cause
from tests.bench.measuring.figures import Findings, spread
from tests.unit.controller.examples.slowed import known, pace
from tests.unit.controller.web.site import Site, site
from tests.unit.controller.worlds.controller_world import ControllerWorld

if TYPE_CHECKING:
    from playwright.sync_api import Browser

JOBS, NODES = 10_000, 2_000
_LIMIT_S = 1.0
_RACK = 32
"""Nodes of a rack."""
_ENDED, _STOPPED = 500, 20
"""Jobs that have ended before the measured ones came, and that are being stopped."""
_CYCLES = 8
"""Seconds, one cycle each, after which all jobs that find room have started."""
_KEPT_S = 2.1
"""Age from which the page no longer uses an answer of the controller again."""
_PAINT = """() => new Promise(found => new PerformanceObserver(
    list => found(list.getEntriesByName("first-contentful-paint")[0].startTime)).observe({type: "paint", buffered: true}))"""
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")


def run(*, quick: bool) -> Findings:
    """Measure."""
    jobs, nodes = (1000, 200) if quick else (JOBS, NODES)
    return measure(jobs, nodes, samples=5 if quick else 20, paints=3 if quick else 5)


def measure(jobs: int, nodes: int, samples: int, paints: int) -> Findings:
    """Measure with that many jobs and nodes; `samples` and `paints`: how often each page is taken, and painted."""
    findings = Findings("web")
    description = ClusterDescription(nodes=(NodeDescription(names=f"n[1-{nodes}]"),))

    async def fill(world: ControllerWorld) -> None:
        await _fill(world, jobs, nodes)

    with (
        tempfile.TemporaryDirectory(prefix="hw-") as folder,
        site(Path(folder), fill, description, 600.0) as served,
    ):
        pages = _pages(served.world)
        with served.client(user=None) as browser:
            for name, path in pages.items():
                _measure(findings, browser, name, path, samples)
        _paint(findings, served, pages, paints)
        for most in (500, 20_000):
            _scrape(findings, served.world, most, samples)
    return findings


def _pages(world: ControllerWorld) -> dict[str, str]:
    """Return the address of every page by its name."""
    assert world.last is not None
    view = CycleView(world.last, world.ledger, world.settings.partitions)
    jobs = [(job, found.role) for job, found in view.jobs()]
    runs = next(
        job.key
        for job, role in jobs
        if role is Role.RUNNING and job.raw_id not in world.preemptions.open and view.contention(job) is not None
    )
    waits = [job.key for job, role in jobs if role is Role.WAITING][-1]
    names = ("", "queue", "nodes", "idle", "usage", "waits", "preemptions", "contention")
    found = {name or "overview": f"/{name}" for name in names}
    return found | {"a running job": f"/jobs/{runs.job_id}", "a waiting job": f"/jobs/{waits.job_id}"}


def _measure(findings: Findings, browser: TestClient, name: str, path: str, samples: int) -> None:
    times, cpu, size = [], [], 0
    for number in range(samples):
        begun_s, cpu_s = time.perf_counter(), time.process_time()
        answer = browser.get(path, headers={"X-Remote-User": f"user{number}-{path.strip('/').replace('/', '-')}"})
        times.append(time.perf_counter() - begun_s)
        cpu.append(time.process_time() - cpu_s)
        assert answer.status_code == 200, answer.text
        assert name != "a running job" or "slower than alone" in answer.text
        size = len(answer.content)
    findings.keep(f"{name} s", times)
    findings.add(f"page: {name}", median(times), "s", _LIMIT_S, f"{spread(times)}; {size / 1e6:.2f} MB")
    findings.add(f"page: {name}, CPU time with the controller's", median(cpu), "s", note=spread(cpu))


def _scrape(findings: Findings, world: ControllerWorld, most: int, samples: int) -> None:
    """Add the CPU time of the metrics of single jobs, without estimates, with `metrics_jobs` at that number."""
    world.settings = world.settings.model_copy(update={"metrics_jobs": most})
    cpu, series = [], 0
    for _ in range(samples):
        metrics = JobMetrics(world, CurrentView(world))  # each scrape meets a new cycle
        begun_s = time.process_time()
        series = sum(len(family.samples) for family in metrics.collect())
        cpu.append(time.process_time() - begun_s)
    findings.add(f"CPU time of metrics of {most} jobs", median(cpu), "s", note=f"{spread(cpu)}; {series} series")


def _paint(findings: Findings, served: Site, pages: dict[str, str], paints: int) -> None:
    """Add the time until Chromium shows each page, where it is installed."""
    if not paints:
        return
    if CHROMIUM is None:
        findings.add(
            "pages painted in Chromium", 0, "pages", note="no first paint was measured: Chromium is not installed"
        )
        return
    from playwright.sync_api import sync_playwright

    with served.address() as address, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        for name, path in pages.items():
            times = list(_painted(browser, address + path, served.token, paints))
            findings.keep(f"{name}, first paint s", times)
            findings.add(f"first paint in Chromium: {name}", median(times), "s", _LIMIT_S, spread(times))
        browser.close()


def _painted(browser: Browser, address: str, token: str, paints: int) -> Iterator[float]:
    """Yield the times from the request to the first paint of content, in seconds."""
    for _ in range(paints):
        time.sleep(_KEPT_S)
        context = browser.new_context(
            viewport={"width": 1400, "height": 900}, extra_http_headers={"Authorization": f"Bearer {token}"}
        )
        page = context.new_page()
        answer = page.goto(address, wait_until="commit", timeout=60_000)
        assert answer is not None and answer.status == 200
        yield float(page.evaluate(_PAINT)) / 1000
        context.close()


async def _fill(world: ControllerWorld, jobs: int, nodes: int) -> None:
    """Submit; most jobs find no room."""
    world.endpoint.away = True  # the fallback decides
    world.slurm_says(PrivateData="none")
    world.knowledge.set_topology(Racks({f"n{node}": f"rack{node // _RACK}" for node in range(1, nodes + 1)}))
    for number in range(min(_ENDED, nodes)):
        world.sbatch(1.0, request=sbatch_request(gpus_per_node=8), user=f"user{number % 50}", name=f"short-{number}")
    await world.go_on(_CYCLES)
    for number in range(jobs):
        gpus = (1, 4, 8, 8)[number % 4]
        request = sbatch_request(gpus_per_node=gpus, nodes=1 + number % 2)
        world.sbatch(1e6, request=request, user=f"user{number % 50}", name=f"train-{number}")
    await world.go_on(_CYCLES)
    assert world.last is not None
    running = [job for job in world.last.observation.snapshot.jobs if job.phase.occupies_nodes]
    for job in running[: min(_STOPPED, len(running) // 4)]:
        world.preemptions.begin(job, Cause.OPERATOR, "by hand", force=True)
    # One cycle: after some more they would run again, and a job that has begun anew has no measurements.
    world.know(known(*_slowed([job.raw_id or int(job.key.job_id) for job in running])))
    await world.go_on(1)


def _slowed(jobs: list[int]) -> Iterator[Contention]:
    """Yield measurements by which each job slows the next one down, and every tenth leaves a GPU idle."""
    for number, (one, other) in enumerate(pairwise(jobs)):
        found = pace(one, 1.3, other)
        yield replace(found, window=replace(found.window, idle_gpus=int(number % 10 == 0)))
