"""One cluster, with or without Headway, and all cases on it."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from queue import Empty, SimpleQueue
from typing import Any

from slurm.minicluster.cluster import ClusterSpec, MiniCluster
from slurm.testbed.installation import Installation
from tests.parity.case import Case
from tests.parity.outcome import CaseOutcome, JobOutcome
from tests.parity.play.accounting import fields_of
from tests.parity.play.player import Player
from tests.parity.play.watch import Watch
from tests.parity.world import Lot, World

_SETTINGS = {"stale_after_s": 10.0}


@dataclass
class Side:
    """A cluster that is up."""

    cluster: MiniCluster
    world: World
    watch: Watch
    headway: Installation | None
    """None for Slurm alone."""
    accounting: bool
    """True if it has slurmdbd."""

    def play(self, cases: Sequence[Case], lots: int | None = None) -> dict[str, CaseOutcome]:
        """Play the cases, as many at a time as there are lots. Return their outcomes by name."""
        queue: SimpleQueue[Case] = SimpleQueue()
        for case in sorted(
            cases, key=lambda each: -_length_s(each)
        ):  # the longest first, so that none is alone at the end
            queue.put(case)
        outcomes: dict[str, CaseOutcome] = {}
        numbers = range(min(lots or self.world.lots, self.world.lots))
        with ThreadPoolExecutor(len(numbers)) as threads:
            for done in [threads.submit(self._play_on, Lot(number, self.world), queue, outcomes) for number in numbers]:
                done.result()
        return self._with_accounting(outcomes) if self.accounting else outcomes

    def why_of(self, job_id: str) -> str:
        """Return the sentence of `headway why`; empty if there is none, also because the command takes too long."""
        if self.headway is None:
            return ""
        try:
            answer = self.headway.headway("why", job_id, "--json", check=False)
        except subprocess.TimeoutExpired:  # a job without an explanation is worse, and its case is played again
            return ""
        return str(json.loads(answer.stdout)["sentence"]) if answer.returncode == 0 else ""

    def _play_on(self, lot: Lot, queue: SimpleQueue[Case], outcomes: dict[str, CaseOutcome]) -> None:
        while True:
            try:
                case = queue.get_nowait()
            except Empty:
                return
            outcomes[case.name] = Player(self.cluster, self.watch, lot, case, explain=self.why_of).play()

    def _with_accounting(self, outcomes: dict[str, CaseOutcome]) -> dict[str, CaseOutcome]:
        known = fields_of(self.cluster)

        def completed(case: str, label: str, job: JobOutcome) -> JobOutcome:
            name, underscore, part = label.partition("_")
            return replace(job, accounting=known.get((f"{case}.{name}", underscore + part), {}))

        return {
            case: replace(outcome, jobs={label: completed(case, label, job) for label, job in outcome.jobs.items()})
            for case, outcome in outcomes.items()
        }


def _length_s(case: Case) -> float:
    return case.within_s + 3.0 * len(case.steps)


@contextmanager
def booted(name: str, world: World, *, headway: bool, accounting: bool, policy: str = "fifo-skip") -> Iterator[Side]:
    """Boot a cluster, with Headway's services beside it or without. Raises MiniClusterError and InstallationError."""
    fields: dict[str, Any] = {
        "name": f"parity-{os.getpid()}-{name}-{'headway' if headway else 'alone'}"[:31],
        "boot_timeout_s": 300.0,
    }
    fields |= world.spec_fields(accounting=accounting)
    with ExitStack() as stack:
        installed = None
        if headway:
            installed = stack.enter_context(Installation.prepare("parity", partitions=world.managed()))
        spec = ClusterSpec(**fields) if installed is None else installed.cluster_spec(**fields)
        cluster = stack.enter_context(MiniCluster(spec))
        for words in world.accounting if spec.accounting else ():
            cluster.sacctmgr(*shlex.split(words))
        if installed is not None:
            installed.configure(cluster, **_SETTINGS)
            installed.controller_user = spec.slurm_user  # as its unit: job_submit.lua tells root's holds from Headway's
            installed.start_policy(policy)
            installed.start_controller()
            stack.callback(_stop, installed)
        watch = stack.enter_context(Watch(cluster))
        yield Side(cluster, world, watch, installed, spec.accounting)


def _stop(installed: Installation) -> None:
    """End the services before the cluster goes: a Slurm command without a slurm.conf tries again for a minute."""
    for process in reversed(list(installed.processes)):
        installed.stop(process)
