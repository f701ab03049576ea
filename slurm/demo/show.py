"""The demonstration from beginning to end, on a real Slurm where possible, else on the emulated one."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from slurm.demo.display import summary
from slurm.demo.display.history import RunResult
from slurm.demo.display.screen import Screen, open_screen
from slurm.demo.errors import DemoError
from slurm.demo.run import emulated
from slurm.demo.run.driver import MonotonicTimer, Run, drive
from slurm.demo.run.interrupts import Interrupts
from slurm.demo.run.page import USER as PAGE_USER
from slurm.demo.run.page import Page, offer, problem, read_line
from slurm.demo.run.services import STALE_AFTER_S, Headway
from slurm.demo.run.workdir import DemoFolder
from slurm.demo.workload import GPUS_PER_NODE, NODES, TWELVE, Training, short_mix
from slurm.testbed.installation import Installation

if TYPE_CHECKING:
    from slurm.minicluster.cluster import RunningCluster

RUN_LIMIT_S = 240.0
"""Longest time for one run. (On an idle machine with two cores it takes about 75 s.)"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Options of the command line."""

    policy: str = "srtf"
    rate: str = "200mbit"
    short: bool = False
    emulated: bool = False
    page: bool = False
    """True: at the end serve the web page until Enter."""
    name: str = "headway-demo"
    """Name of the mini-cluster and of the folder; only one demonstration of each name can run."""
    preload: Path | None = None
    """Python file that every Python of the jobs imports first; None for none."""

    @property
    def mix(self) -> tuple[Training, ...]:
        """The jobs."""
        return short_mix() if self.short else TWELVE


@dataclass(frozen=True, slots=True)
class DemoResults:
    """Results of both runs, and facts about their cluster."""

    ours: RunResult
    theirs: RunResult
    facts: dict[str, Any]

    @property
    def completed(self) -> bool:
        """True when every job completed in both runs."""
        return self.ours.completed and self.theirs.completed

    def as_json(self) -> dict[str, Any]:
        """Return everything as one JSON object."""
        return summary.as_json(self.ours, self.theirs, self.facts)


def show(options: Options, console: Console, interrupts: Interrupts) -> DemoResults:
    """Run the demonstration and print its summary. Raises DemoError, MiniClusterError or HeadwayError."""
    screen = open_screen(console)
    if options.page and (why_not := problem()):
        raise DemoError(f"{why_not}; leave --page out")
    reasons = ["--emulated was given"] if options.emulated else _make_ready(options.name, screen, interrupts)
    begun_s = time.monotonic()
    if reasons:
        for reason in reasons:
            screen.say(f"No real Slurm: {reason}.")
        screen.say(
            "The same controller and policy server therefore run with an emulated Slurm. "
            f"Its jobs train nothing, but their steps take as long as on a real network with NICs at {options.rate}."
        )
        outcome = _on_emulation(options, screen, interrupts)
    else:
        outcome = _on_real_slurm(options, screen, interrupts)
    outcome.facts["duration_s"] = round(time.monotonic() - begun_s, 1)
    summary.print_summary(console, outcome.ours, outcome.theirs)
    screen.say(f"The demonstration took {outcome.facts['duration_s']:.0f} s. Everything has been removed.")
    return outcome


def _make_ready(name: str, screen: Screen, interrupts: Interrupts) -> list[str]:
    """Install Slurm where needed and possible. Return the reasons why no real Slurm can run here; empty when it can."""
    from slurm.apt import allow_service_starts, install
    from slurm.errors import CommandError
    from slurm.prerequisites import PACKAGES

    allow_service_starts()
    reasons = obstacles(name)
    absent = any(shutil.which(program) is None for program in ("slurmctld", "slurmd", "sbatch", "munged"))
    if reasons and absent and os.geteuid() == 0 and shutil.which("apt-get"):
        screen.say(f"Installing Slurm's packages: {', '.join(PACKAGES)}.")
        try:
            with interrupts.deferred("the demonstration ends after this installation, which must not be interrupted"):
                install(PACKAGES)
        except CommandError as error:
            return [f"its packages cannot be installed: {error}"]
        reasons = obstacles(name)
    return reasons


def obstacles(name: str) -> list[str]:
    """Return the reasons why no mini-cluster of this name can be booted here as the machine is; empty when one can be."""
    from slurm.errors import PrerequisiteError
    from slurm.minicluster.boot import require_prerequisites
    from slurm.minicluster.host.network import free_subnet
    from slurm.minicluster.spec import ClusterSpec

    try:
        require_prerequisites(ClusterSpec(name=name))
        free_subnet(name)
    except PrerequisiteError as error:
        return str(error).splitlines()
    return []


def _on_real_slurm(options: Options, screen: Screen, interrupts: Interrupts) -> DemoResults:
    from slurm.minicluster.cluster import MiniCluster

    with (
        DemoFolder(Path("/run") / options.name, options.name) as demo_folder,
        Installation.prepare("services", demo_folder.folder) as installation,
    ):
        begun_s = time.monotonic()
        spec = installation.cluster_spec(name=options.name, nodes=NODES, gpus=GPUS_PER_NODE, rate=options.rate)
        with MiniCluster(spec) as cluster:
            screen.say(
                f"Slurm is up after {time.monotonic() - begun_s:.1f} s: {NODES} nodes, {GPUS_PER_NODE} GPUs each "
                f"(device files), NICs at {options.rate}."
            )
            settings = _settings(options) | {"poll_interval_s": 2.0}
            installation.configure(cluster, **settings)
            ours, theirs = _both_ways(options, installation, cluster, screen)
            if options.page:
                screen.say("Headway is started once more, for its web page.")
                with Headway(installation, options.policy):
                    _offer_page(installation, screen)
            interrupts.finish()
    return DemoResults(ours, theirs, {"cluster": "real", "policy": options.policy, "rate": options.rate} | _shape())


def _both_ways(
    options: Options, installation: Installation, cluster: RunningCluster, screen: Screen
) -> tuple[RunResult, RunResult]:
    from controller.base.config import load_settings
    from controller.slurm.select import command_line_client
    from slurm.demo.run.real import SlurmWorld, prepare_nodes

    environment = prepare_nodes(cluster, options.preload)
    client = command_line_client(load_settings(installation.config))
    work = cluster.directory / "work"
    with Headway(installation, options.policy) as headway:
        screen.say("Headway is up: job_submit.lua and hooks are in Slurm; policy server, controller and watchdog run.")
        scheduler = f"Headway ({options.policy})"
        ours_in = work / "headway"
        with SlurmWorld(cluster, client, ours_in, options.mix, scheduler, options.rate, environment, headway) as world:
            ours = _run(Run("1 of 2", world, options.mix, RUN_LIMIT_S), screen)
    screen.say("Headway is stopped. Now Slurm schedules the same jobs by itself.")
    scheduler = "Slurm's backfill"
    with SlurmWorld(cluster, client, work / "slurm", options.mix, scheduler, options.rate, environment) as world:
        theirs = _run(Run("2 of 2", world, options.mix, RUN_LIMIT_S), screen)
    return ours, theirs


def _run(run: Run, screen: Screen) -> RunResult:
    result = drive(run, screen, MonotonicTimer())
    took = "" if result.makespan_s is None else f" in {result.makespan_s:.0f} s"
    mean = "" if result.mean_jct_s is None else f", mean JCT {result.mean_jct_s:.0f} s"
    screen.say(f"{result.scheduler}: {len(result.jobs)} jobs{took}{mean}.")
    for job in result.jobs:
        if not job.completed:
            screen.say(f"{job.label} ended as {job.state or 'unknown'}: {run.world.end_of_log(job.label)}")
    return result


def _on_emulation(options: Options, screen: Screen, interrupts: Interrupts) -> DemoResults:
    mix = emulated.emulated_mix(options.mix)
    folder = Path(tempfile.gettempdir()) / f"{options.name}-{os.getuid()}"
    with (
        DemoFolder(folder, cluster="") as demo_folder,
        Installation.prepare("services", demo_folder.folder) as installation,
    ):
        description = installation.folder / "cluster.toml"
        emulated.write_description(description, emulated.describe(mix, emulated.LEAD_S, options.rate))
        installation.configure(None, embedded_cluster=str(description), **_settings(options))
        with Headway(installation, options.policy, watchdog=False) as headway:
            screen.say("The first job is submitted in a few seconds.")
            world = emulated.EmulatedWorld(headway, f"Headway ({options.policy})", mix)
            ours = _run(Run("emulated Slurm", world, mix, RUN_LIMIT_S), screen)
            if options.page:
                _offer_page(installation, screen)
        interrupts.finish()
    theirs = emulated.slurm_alone(mix, options.rate)
    return DemoResults(ours, theirs, {"cluster": "emulated", "policy": options.policy, "rate": options.rate} | _shape())


def _settings(options: Options) -> dict[str, Any]:
    """Return keys of controller.toml. The page is served by a user of its own, as on a cluster."""
    return {"stale_after_s": STALE_AFTER_S, "metrics_address": ""} | ({"web_user": PAGE_USER} if options.page else {})


def _offer_page(installation: Installation, screen: Screen) -> None:
    with Page(installation) as page:
        offer(page, screen.say, read_line)


def _shape() -> dict[str, Any]:
    return {"nodes": NODES, "gpus_per_node": GPUS_PER_NODE}
