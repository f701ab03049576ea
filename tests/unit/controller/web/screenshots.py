"""The pictures of the page in the documentation, from a made-up cluster: `make screenshots` writes them again.

The cluster is emulated and its jobs are drawn from a seed. Decisions and estimates of starts are Headway's own; what agents, the
watchdog and a real clock would say is made up.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from controller.agents.node_table import NodeStatus
from controller.base.clock import VirtualClock
from controller.base.lease import Lease, write_lease
from controller.base.watchdog_mark import mark_check
from controller.contention.measurement import Measurement
from controller.forecast.estimate import StartEstimate
from controller.forecast.process import ForecastProcess
from controller.forecast.service import StartForecasts
from controller.observe.role import Role
from controller.profiles.current import Contention
from controller.profiles.racks import Racks
from controller.slurm.embedded import ClusterDescription, sbatch_request
from controller.slurm.embedded.description import NodeDescription
from controller.slurm.model.job import JobKey, SlurmJob
from policies.api import Decision, PolicySpec, load_policy
from tests.unit.controller.cycle.decision.test_decider import FakeEndpoint
from tests.unit.controller.examples.slowed import known, pace
from tests.unit.controller.web.site import Site, site
from tests.unit.controller.worlds.controller_world import ControllerWorld

if TYPE_CHECKING:
    from playwright.sync_api import Browser

DOCS = Path(__file__).parents[4] / "docs"
BEGIN_S = 1_795_921_200.0
"""29 November 2026, 3:00 UTC."""
NODES, RACK = 32, 8
BETWEEN_S = 118.0
"""Mean time between two submissions."""
HOURS, STEP_S = 10.0, 15.0
READ_S, PLAN_S = 0.26, 0.04
"""Time of reading Slurm and of planning, which an emulated clock does not count."""
USERS = ("ann", "bob", "carol", "dave", "erin", "frank")
MODELS = ("llama-7b", "bert-large", "resnet50", "vit-l16", "gpt2-xl", "t5-base", "wav2vec2", "whisper")
_SIZES = ((1, 1), (1, 2), (1, 4), (1, 4), (1, 8), (1, 8), (2, 8), (2, 8), (3, 8), (4, 8))
"""Nodes and GPUs on each, of a job."""
WIDE, NARROW = 1400, 420
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")


@dataclass(frozen=True, slots=True)
class Shot:
    """One picture: the path of the page, where JOB is a waiting job, and the size in pixels."""

    path: str
    width: int = WIDE
    height: int = 850


SHOTS = {
    "web-overview": Shot("/", height=860),
    "web-queue": Shot("/queue", height=860),
    "web-nodes": Shot("/nodes"),
    "web-usage": Shot("/usage", height=480),
    "web-job": Shot("/jobs/JOB", NARROW, 860),
    "web-contention": Shot("/contention", height=480),
}


class Served(FakeEndpoint):
    """A policy server with a policy of this process."""

    policy = load_policy("srtf")

    async def describe(self, deadline_s: float) -> PolicySpec:
        """Return its name and source."""
        return self.policy.spec

    async def decide(self, state: Any, deadline_s: float) -> Decision:
        """Return the policy's decision."""
        return self.policy.decide(state)


class Agents:
    """Agents on all nodes."""

    reports = NODES * 2000
    refused: Mapping[str, int] = {}
    left_out: Mapping[str, int] = {}
    nodes: Mapping[str, NodeStatus] = {
        f"n{node}": NodeStatus(f"n{node}", True, BEGIN_S, "0.1.0", "boot", "run", 0.0) for node in range(1, NODES + 1)
    }


class Story:
    """Hours of a cluster on which more is submitted than fits."""

    def __init__(self, folder: Path, hours: float = HOURS) -> None:
        self.folder = folder
        self.hours = hours
        self._forecasts: StartForecasts | None = None

    def start(self, key: JobKey) -> StartEstimate | None:
        """Return the newest estimate of a job."""
        return None if self._forecasts is None else self._forecasts.of(key)

    async def play(self, world: ControllerWorld) -> None:
        """Play the story."""
        world.slurm_says(PrivateData="none")
        world.knowledge.set_topology(Racks({f"n{n}": f"rack{1 + (n - 1) // RACK}" for n in range(1, NODES + 1)}))
        world.measurement = Measurement(Agents(), self.folder / "profiles.sqlite", window_s=30.0)  # type: ignore[arg-type]
        self._forecasts = StartForecasts(
            ForecastProcess(), world.clock, self.folder / "journal.sqlite", self.folder / "start-estimates.json"
        )
        drawn = random.Random(5)
        due_s = world.clock.now()
        end_s = due_s + self.hours * 3600
        while world.clock.now() < end_s:
            while due_s <= world.clock.now():
                self._submit(world, drawn)
                due_s += drawn.expovariate(1 / BETWEEN_S)
            await world.go_on(STEP_S, STEP_S)
            if int((world.clock.now() - BEGIN_S) / STEP_S) % 20 == 0:
                await self._forecast(world)
        world.slurm.node_drain("n27", "XID 79: GPU has fallen off the bus")
        world.sbatch(request=sbatch_request(gpus_per_node=2), user="ann", name="resnet50", hold=True)
        world.know(known(*_slowed(world)))
        await world.go_on(2)
        await self._forecast(world)
        _look_well(world)

    async def _forecast(self, world: ControllerWorld) -> None:
        assert world.last is not None and self._forecasts is not None
        await self._forecasts.make(world.last, "srtf")

    def _submit(self, world: ControllerWorld, drawn: random.Random) -> None:
        nodes, gpus = drawn.choice(_SIZES)
        duration_s = min(drawn.lognormvariate(7.6, 0.9), 4 * 3600)
        world.sbatch(
            duration_s, request=sbatch_request(gpus_per_node=gpus, nodes=nodes), user=drawn.choice(USERS),
            name=drawn.choice(MODELS), time_limit_s=float(60 * round(duration_s * drawn.uniform(1.2, 3) / 60 + 1)),
        )  # fmt: skip


def _running(world: ControllerWorld) -> list[SlurmJob]:
    assert world.last is not None
    return [job for job in world.last.observation.with_role(Role.RUNNING) if job.allocated]


def _slowed(world: ControllerWorld) -> Iterator[Contention]:
    """Yield measurements: jobs that share a node slow each other down, others train as they would alone."""
    jobs = _running(world)
    on: dict[str, list[int]] = {}
    for job in jobs:
        for share in job.allocated:
            on.setdefault(share.node, []).append(int(job.key.job_id))
    beside = {one: other for numbers in on.values() for pair in pairwise(numbers) for one, other in (pair, pair[::-1])}
    for number, job in enumerate(jobs):
        own, other = int(job.key.job_id), beside.get(int(job.key.job_id))
        found = pace(own, 1.04 if other is None else 1.2 + own % 7 / 10, *(() if other is None else (other,)))
        nodes = tuple(share.node for share in job.allocated)
        window = replace(found.window, nodes=nodes, idle_gpus=2 if number == 3 else 0, start_s=world.clock.now() - 30)
        yield replace(found, window=window)


def _look_well(world: ControllerWorld) -> None:
    """Renew the lease and the watchdog's mark, which services of a real installation do."""
    now_s = world.clock.now()
    write_lease(world.settings.lease_path, Lease(int(now_s), 30.0, ("dl",), 0, 0))
    mark_check(world.settings.runtime_dir)
    os.utime(world.settings.runtime_dir / "watchdog_check", (now_s - 12, now_s - 12))
    world.health.read_s, world.health.plan_s = READ_S, PLAN_S


def take(folder: Path, names: list[str], hours: float = HOURS) -> list[Path]:
    """Write the pictures of these names into that folder; return their paths."""
    from playwright.sync_api import sync_playwright

    if CHROMIUM is None:
        raise SystemExit("no chromium here: apt-get install chromium")
    with tempfile.TemporaryDirectory(prefix="hw-") as work:
        story = Story(Path(work), hours)
        description = ClusterDescription(nodes=(NodeDescription(names=f"n[1-{NODES}]"),))
        options = {
            "clock": VirtualClock(BEGIN_S), "endpoint": Served(),
            "settings_changes": {"slurm_client": "command-line", "state_dir": Path(work)},
        }  # fmt: skip
        with (
            site(Path(work), story.play, description, 600.0, starts=story.start, **options) as served,
            served.address() as address,
            sync_playwright() as playwright,
        ):
            browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
            paths = [_take(browser, address, served, folder / f"{name}.png", SHOTS[name]) for name in names]
            browser.close()
            return paths


def _waiting(served: Site) -> str:
    """Return the id of a job of the middle of the queue."""
    last = served.world.last
    assert last is not None
    queue = [last.observation.rows[row] for row in last.decided.plan.queue] if last.decided is not None else []
    queue = queue or last.observation.with_role(Role.WAITING)
    return queue[len(queue) // 2].key.job_id


def _take(browser: Browser, address: str, served: Site, path: Path, shot: Shot) -> Path:
    context = browser.new_context(
        viewport={"width": shot.width, "height": shot.height},
        extra_http_headers={"Authorization": f"Bearer {served.token}"},
        color_scheme="light",
        timezone_id="UTC",
    )
    page = context.new_page()
    found = shot.path.replace("JOB", _waiting(served)) if "JOB" in shot.path else shot.path
    answer = page.goto(address + found)
    assert answer is not None and answer.status == 200, shot.path
    page.screenshot(path=path)
    context.close()
    _make_small(path)
    return path


def _make_small(path: Path) -> None:
    """Write the picture with a palette: the pages have few colours, and a repository keeps every version."""
    from PIL import Image

    with Image.open(path) as picture:
        small = picture.convert("RGB").quantize(128, dither=Image.Dither.NONE)
    small.save(path, optimize=True)


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=DOCS, help="folder of the pictures; default: docs")
    parser.add_argument("--hours", type=float, default=HOURS, help="hours of the story; default: %(default)s")
    parser.add_argument("names", nargs="*", help=f"pictures; default: all ({', '.join(SHOTS)})")
    arguments = parser.parse_args()
    for path in take(arguments.out, arguments.names or list(SHOTS), arguments.hours):
        print(path)


if __name__ == "__main__":
    main()
