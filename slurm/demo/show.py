"""The demonstration from beginning to end: on a real Slurm where that can be, else on the emulated one."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from slurm.demo import emulated, summary
from slurm.demo.driver import MonotonicTimer, Run, drive
from slurm.demo.ground import CLUSTER_NAME, Ground
from slurm.demo.history import RunResult
from slurm.demo.interrupts import Interrupts
from slurm.demo.mix import GPUS_PER_NODE, NODES, TWELVE, Training, short_mix
from slurm.demo.screen import Screen, open_screen
from slurm.demo.services import STALE_AFTER_S, TIED_TO_US, Headway
from slurm.installation import Installation

RUN_LIMIT_S = 240.0
"""A run that takes longer is given up. (On an idle machine of two cores it takes about 75 s.)"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What the command line says."""

    policy: str = "srtf"
    rate: str = "200mbit"
    short: bool = False
    emulated: bool = False

    @property
    def mix(self) -> tuple[Training, ...]:
        """The jobs."""
        return short_mix() if self.short else TWELVE


@dataclass(frozen=True, slots=True)
class Outcome:
    """Both runs, and what they ran on."""

    ours: RunResult
    theirs: RunResult
    facts: dict[str, Any]

    @property
    def completed(self) -> bool:
        """Whether every job ran to its end, twice."""
        return self.ours.completed and self.theirs.completed

    def as_json(self) -> dict[str, Any]:
        """One object with everything."""
        return summary.as_json(self.ours, self.theirs, self.facts)


def show(options: Options, console: Console, interrupts: Interrupts) -> Outcome:
    """Run it and print the summary. Raises DemoError, MiniClusterError or HeadwayError."""
    screen = open_screen(console)
    reasons = ["--emulated was given"] if options.emulated else _make_ready(screen)
    begun_s = time.monotonic()
    if reasons:
        for reason in reasons:
            screen.say(f"No real Slurm here: {reason}.")
        screen.say("The same controller and policy server run beside an emulated Slurm; jobs only pass the time.")
        outcome = _on_emulation(options, screen, interrupts)
    else:
        outcome = _on_real_slurm(options, screen, interrupts)
    outcome.facts["duration_s"] = round(time.monotonic() - begun_s, 1)
    summary.print_summary(console, outcome.ours, outcome.theirs)
    return outcome


def _make_ready(screen: Screen) -> list[str]:
    """Install Slurm if need be and possible. Returns why there can be no real Slurm here; empty when there can."""
    from slurm.minicluster.errors import CommandError
    from slurm.prerequisites import PACKAGES, install, missing

    reasons = missing()
    absent = any(shutil.which(program) is None for program in ("slurmctld", "slurmd", "sbatch", "munged"))
    if reasons and absent and os.geteuid() == 0 and shutil.which("apt-get"):
        screen.say(f"Installing Slurm's packages: {', '.join(PACKAGES)}.")
        try:
            install()
        except CommandError as error:
            return [f"its packages cannot be installed: {error}"]
        reasons = missing()
    return reasons


def _on_real_slurm(options: Options, screen: Screen, interrupts: Interrupts) -> Outcome:
    from controller.config import load_settings
    from controller.slurm.select import command_line_client
    from slurm.demo.real import SlurmWorld, prepare_nodes
    from slurm.minicluster.cluster import MiniCluster

    with Ground() as ground, Installation.prepare("services", ground.folder, wrap=TIED_TO_US) as installation:
        begun_s = time.monotonic()
        spec = installation.cluster_spec(name=CLUSTER_NAME, nodes=NODES, gpus=GPUS_PER_NODE, rate=options.rate)
        with MiniCluster(spec) as cluster:
            screen.say(
                f"A Slurm cluster is up after {time.monotonic() - begun_s:.1f} s: {NODES} nodes with {GPUS_PER_NODE} "
                f"GPUs each (device files), NICs shaped to {options.rate}."
            )
            prepare_nodes(cluster)
            installation.configure(cluster, stale_after_s=STALE_AFTER_S, poll_interval_s=2.0, metrics_address="")
            client = command_line_client(load_settings(installation.config))
            folder = cluster.directory / "work"

            with Headway(installation, options.policy) as headway:
                scheduler = f"Headway ({options.policy})"
                screen.say("Headway is up: job_submit.lua and hooks in Slurm; policy server, controller, watchdog.")
                world = SlurmWorld(cluster, client, folder / "headway", options.mix, scheduler, options.rate, headway)
                ours = _run(Run("1 of 2", world, options.mix, RUN_LIMIT_S), screen)
            screen.say("Headway is stopped; Slurm schedules the same jobs by itself.")
            world = SlurmWorld(cluster, client, folder / "slurm", options.mix, "Slurm's backfill", options.rate)
            theirs = _run(Run("2 of 2", world, options.mix, RUN_LIMIT_S), screen)
            facts = {"slurm": "real", "policy": options.policy, "rate": options.rate} | _shape()
            interrupts.settle()
    return Outcome(ours, theirs, facts)


def _run(run: Run, screen: Screen) -> RunResult:
    result = drive(run, screen, MonotonicTimer())
    took = "" if result.makespan_s is None else f" in {result.makespan_s:.0f} s"
    mean = "" if result.mean_jct_s is None else f", mean JCT {result.mean_jct_s:.0f} s"
    screen.say(f"{result.scheduler}: {len(result.jobs)} jobs{took}{mean}.")
    return result


def _on_emulation(options: Options, screen: Screen, interrupts: Interrupts) -> Outcome:
    mix = emulated.emulated_mix(options.mix)
    parent = Path(tempfile.gettempdir())
    with Installation.prepare("demo", parent, wrap=TIED_TO_US) as installation:
        description = installation.folder / "cluster.toml"
        emulated.write_description(description, emulated.describe(mix, emulated.LEAD_S))
        installation.configure(None, stale_after_s=STALE_AFTER_S, embedded_cluster=str(description), metrics_address="")
        with Headway(installation, options.policy, watchdog=False) as headway:
            world = emulated.EmulatedWorld(headway, f"Headway ({options.policy}), emulated Slurm")
            ours = _run(Run("emulated", world, mix, RUN_LIMIT_S), screen)
        interrupts.settle()
    theirs = emulated.slurm_alone(mix)
    return Outcome(ours, theirs, {"slurm": "emulated", "policy": options.policy} | _shape())


def _shape() -> dict[str, Any]:
    return {"nodes": NODES, "gpus_per_node": GPUS_PER_NODE}
