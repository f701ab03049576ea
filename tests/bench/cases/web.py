"""Pages of headway-web on a large cluster, from the request of a browser to the whole HTML.

A controller on an emulated Slurm has 2,000 nodes and 10,000 jobs, and answers over its real status.sock. Each page is asked for by
another user, so that no answer is used again: the time has the call, its decoding and the page.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from statistics import median

from starlette.testclient import TestClient

from controller.slurm.embedded import ClusterDescription, sbatch_request
from controller.slurm.embedded.description import NodeDescription
from tests.bench.measuring.figures import Findings, spread
from tests.unit.controller.web.site import site
from tests.unit.controller.worlds.controller_world import ControllerWorld

JOBS, NODES = 10_000, 2_000
_LIMIT_S = 1.0
_PAGES = ("/", "/queue", "/nodes", "/waits", "/contention")
_CYCLES = 8


def run(*, quick: bool) -> Findings:
    """Measure."""
    findings = Findings("web")
    jobs, nodes = (1000, 200) if quick else (JOBS, NODES)
    description = ClusterDescription(nodes=(NodeDescription(names=f"n[1-{nodes}]"),))

    async def fill(world: ControllerWorld) -> None:
        await _fill(world, jobs)

    with (
        tempfile.TemporaryDirectory(prefix="hw-") as folder,
        site(Path(folder), fill, description, 600.0) as served,
        served.client(user=None) as browser,
    ):
        for path in _PAGES:
            _measure(findings, browser, path, 5 if quick else 20)
    return findings


def _measure(findings: Findings, browser: TestClient, path: str, samples: int) -> None:
    times, cpu, size = [], [], 0
    for number in range(samples):
        begun_s, cpu_s = time.perf_counter(), time.process_time()
        answer = browser.get(path, headers={"X-Remote-User": f"user{number}-{path.strip('/')}"})
        times.append(time.perf_counter() - begun_s)
        cpu.append(time.process_time() - cpu_s)
        assert answer.status_code == 200, answer.text
        size = len(answer.content)
    findings.keep(f"{path} s", times)
    findings.add(f"page {path}", median(times), "s", _LIMIT_S, f"{spread(times)}; {size / 1e6:.2f} MB")
    findings.add(f"page {path}, CPU time with the controller's", median(cpu), "s", note=spread(cpu))


async def _fill(world: ControllerWorld, jobs: int) -> None:
    """Submit; most jobs find no room."""
    world.slurm_says(PrivateData="none")
    for number in range(jobs):
        gpus = (1, 4, 8, 8)[number % 4]
        request = sbatch_request(gpus_per_node=gpus, nodes=1 + number % 2)
        world.sbatch(1e6, request=request, user=f"user{number % 50}", name=f"train-{number}")
    await world.go_on(_CYCLES)
