"""`python -m tests.campaign.ageing --days 60`: months of a cluster in minutes, with sizes measured at the end of each day.

One controller runs with hundreds of jobs a day, refusals that last for days, agents that disconnect and connect again,
preemptions, reloads and restarts of slurmctld. Every four days it is restarted or killed, or finds a journal of another version.
The last of these has come after a third of the days, so that the last controller lives through the others.
Services run beside it, as far as they need no sockets: agents' reports and their store, the threshold of contention, notes,
notifications, metrics and start estimates.
At midnight every job that was due has ended, no promise is broken, and the sizes of the process and of its files are recorded.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import random
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

import numpy.ma  # noqa: F401 - numpy itself imports it at its first `unique`, which comes after weeks, and is no growth

from controller.base.config import ControllerSettings
from controller.base.errors import SlurmError
from controller.base.sqlite_file import asides
from controller.slurm.model.job import Phase
from controller.state.journal_schema import JOURNAL
from tests.birthmarks import without_birthmark
from tests.campaign.growth import Day, levels_off, process_sizes
from tests.campaign.play import captured_errors, clear, own_garbage, quiet
from tests.campaign.plot import operations
from tests.campaign.plot.story import JobSpec, Story
from tests.campaign.verdict.model import Promise, Violation
from tests.campaign.world.cluster import Cluster
from tests.campaign.world.journal_disk import set_version
from tests.campaign.world.processes import Process
from tests.campaign.world.services import Services
from tests.campaign.world.virtual_loop import VirtualLoop

DAY_S = 86400.0
_POLICY = "srtf"
_SETTINGS = {
    "poll_interval_s": 120.0,
    "heartbeat_interval_s": 30.0,
    "stale_after_s": 180.0,
    "keep_days": 7.0,
    "preemption_budget_per_hour": 4,
    **{
        name: ControllerSettings.model_fields[name].default
        for name in ("preemption_min_run_s", "preemption_cooldown_s")
    },
}
"""The pace of a cluster, not that of a story, in which a policy may stop a job every ten seconds."""
EVENTS_KEPT = 2000
"""Events in the controller's memory: that list is full after some days, and what grows beside it shows. By default it is full
after a month."""
BOUNDS = {"EventLog._recent": EVENTS_KEPT}
"""Tables that fill up in the course of days, with their size."""
_LAST_S = 4 * 3600.0
"""Nothing is submitted in the last hours of a day, so that its jobs have ended by midnight."""

_RESTART_EVERY = 4
"""Days between two restarts of the controller."""

Progress = Callable[[Day], None]


def live(
    days: int, seed: int, jobs_a_day: int = 300, progress: Progress = lambda _: None
) -> tuple[list[Day], list[Violation]]:
    """Simulate the days. Return the record of each, and every broken promise."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(prefix="headway-ageing-", dir=memory if memory.is_dir() else None) as folder:
        loop = VirtualLoop()
        loop.set_task_factory(Process.factory)
        gc.collect()
        # The controllers collect after each cycle, and what is there before them is not theirs.
        with captured_errors() as errors, quiet(), own_garbage():
            try:
                asyncio.set_event_loop(loop)
                return loop.run_until_complete(
                    _Months(Path(folder), loop, seed, jobs_a_day, errors, progress).live(days)
                )
            finally:
                clear(loop)
                asyncio.set_event_loop(None)
                loop.close()


class _Months:
    def __init__(
        self, folder: Path, loop: VirtualLoop, seed: int, jobs_a_day: int, errors: list[str], progress: Progress
    ) -> None:
        self._chance = random.Random(f"headway ageing {seed}")
        self._errors, self._progress, self._jobs_a_day = errors, progress, jobs_a_day
        story = Story(seed, nodes=4, gpus=8, policy=_POLICY, preemption=True, steps=())
        self._cluster = Cluster(story, folder, loop, limits={"bob": 2}, **_SETTINGS)
        self._cluster.fleet.report_every_s = 60.0
        self._cluster.watchdog_every_s = 60.0
        self._cluster.events_kept = EVENTS_KEPT
        self._cluster.services = self._services = Services(self._cluster.clock)
        self._blocks_before = sys.getallocatedblocks()
        self._labels = 0
        self._violations: list[Violation] = []

    async def live(self, days: int) -> tuple[list[Day], list[Violation]]:
        cluster = self._cluster
        found: list[Day] = []
        async with cluster.running():
            for number in range(1, days + 1):
                before = self._labels
                await self._day(number)
                if number % _RESTART_EVERY == 0 and number <= days / 3:
                    self._restart(number)
                found.append(self._midnight(number, self._labels - before))
                self._progress(found[-1])
        return found, self._violations + cluster.model.violations

    async def _day(self, number: int) -> None:
        begun_s = self._cluster.clock.monotonic()
        self._submit(duration_s=10.0, gpus_per_node=8, user="bob")  # more than bob may have: refused for days
        self._submit(duration_s=10.0, gpus_per_node=1, nodes=2, unfit=tuple(self._cluster.fleet.nodes))
        gap_s = (DAY_S - _LAST_S) / self._jobs_a_day
        happenings = sorted(self._chance.uniform(0, DAY_S - _LAST_S) for _ in range(12))
        while (now_s := self._cluster.clock.monotonic() - begun_s) < DAY_S - _LAST_S:
            self._submit_one()
            while happenings and happenings[0] <= now_s:
                happenings.pop(0)
                self._happen()
            await asyncio.sleep(self._chance.expovariate(1 / gap_s))
        self._mend()
        await asyncio.sleep(max(begun_s + DAY_S - 600.0 - self._cluster.clock.monotonic(), 0.0))
        self._give_back(number)
        await asyncio.sleep(max(begun_s + DAY_S - self._cluster.clock.monotonic(), 0.0))

    def _submit_one(self) -> None:
        chance = self._chance
        more = {
            "trains": chance.random() < 0.4,
            "hold": chance.random() < 0.03,
            "exit_code": int(chance.random() < 0.05),
        }
        self._submit(
            duration_s=round(chance.choice((60, 300, 1200, 3600)) * chance.uniform(0.5, 1.5)),
            gpus_per_node=chance.choice((1, 1, 2, 4, 8)),
            nodes=chance.choice((1, 1, 1, 2)),
            array=chance.choice((0,) * 9 + (3,)),
            **more,
        )

    def _submit(self, **spec: object) -> None:
        with suppress(SlurmError):
            self._cluster.submit(JobSpec(label=self._labels, **spec))  # type: ignore[arg-type]
        self._labels += 1

    def _happen(self) -> None:
        """Let one event of an ordinary day happen."""
        chance, cluster = self._chance, self._cluster
        node = chance.choice(list(cluster.fleet.nodes))
        label = chance.randrange(max(self._labels - 20, 0), self._labels)
        later = asyncio.get_running_loop().call_later
        match chance.randrange(8):
            case 0:
                cluster.fleet.leave(node)
                later(1800.0, cluster.fleet.come, node)
            case 1:
                for expected in cluster.model.jobs.values():
                    if expected.running and node in expected.nodes:
                        expected.requeues += 1
                cluster.slurm.node_down(node)
                later(3600.0, cluster.slurm.node_resume, node)
            case 2:
                operations.reload_settings(cluster, poll_interval_s=float(chance.randint(60, 180)))
            case 3:
                cluster.slurm.crash_slurmctld(0, 60.0)
            case 4:
                operations.user_hold(cluster, label)
            case 5:
                operations.cancel(cluster, label, task=-1)
            case 6:
                endpoint = cluster.servers[cluster.current_policy]
                endpoint.mood = "away"
                later(1800.0, endpoint.recover)
            case _:
                operations.preempt(cluster, chance.randrange(20))

    def _mend(self) -> None:
        for node in self._cluster.fleet.nodes:
            self._cluster.slurm.node_resume(node)

    def _give_back(self, number: int) -> None:
        """Ten minutes before midnight: users release the jobs that they hold, and cancel jobs that could not run for five days."""
        del number
        for expected in list(self._cluster.model.jobs.values()):
            found = self._cluster.find(expected.job_id)
            if found is None or expected.ended or found.phase is not Phase.PENDING:
                continue
            if expected.held_by_user_s is not None:
                with suppress(SlurmError):
                    self._cluster.slurm.user_release(expected.job_id)
                    self._cluster.model.released(expected.job_id)
            elif found.held and "headway:" not in without_birthmark(found.admin_comment):
                with suppress(SlurmError):
                    self._cluster.slurm.admin_release(expected.job_id)
            elif _cannot_run(expected.spec) and self._cluster.model.time_s - expected.submitted_s > 5 * DAY_S:
                operations.cancel(self._cluster, expected.spec.label)

    def _restart(self, number: int) -> None:
        cluster = self._cluster
        match (number // _RESTART_EVERY) % 3:
            case 0:
                operations.restart_controller(cluster)
            case 1:
                cluster.process.kill()
            case _:
                cluster.process.kill()
                set_version(cluster.settings.journal_path, JOURNAL.version + 1)

    def _midnight(self, number: int, jobs: int) -> Day:
        cluster, model = self._cluster, self._cluster.model
        for expected in list(model.jobs.values()):
            if expected.ended:
                model.check_end(expected)
                del model.jobs[expected.job_id]
                cluster.fleet.forget(expected.job_id)
            elif not _cannot_run(expected.spec) and model.time_s - expected.submitted_s > DAY_S:
                found = cluster.find(expected.job_id)
                state = "gone" if found is None else f"{found.state} ({found.reason}, {found.admin_comment!r})"
                model.broken(Promise.NOT_HELD_FOR_EVER, expected.job_id, f"a day after it was submitted it is {state}")
        ctld = cluster.slurm._ctld
        # No job depends on another one here. What has just ended is still known, and forgotten by the emulation itself.
        for job_id in ctld.outcomes.keys() - model.jobs.keys() - ctld.jobs.keys():
            del ctld.outcomes[job_id]
        cluster.ids = {label: ids for label, ids in cluster.ids.items() if any(job_id in model.jobs for job_id in ids)}
        cluster.slurm.faults.calls.clear()  # the emulation's own record, which fills for a week
        if not cluster.lease_is_fresh:
            model.broken(Promise.LEASE, "", "the lease is stale at midnight")
        for text in dict.fromkeys(self._errors):
            model.broken(Promise.NO_BUG, "", text)
        self._errors.clear()
        for error in cluster.exits:
            model.broken(Promise.NO_BUG, "", f"the controller ended: {error!r}")
        cluster.exits.clear()
        for violation in model.violations:
            print(violation, file=sys.stderr)
        self._violations += model.violations
        model.violations.clear()
        return Day(
            number=number,
            cycles=0 if cluster.controller is None else cluster.controller.health.cycles,
            jobs=jobs,
            reports=0 if self._services.running is None else self._services.running.reports,
            files_kib=sum(path.stat().st_size for path in self._present_files()) // 1024,
            moved_aside=len(asides(cluster.settings.journal_path)),
            violations=len(self._violations),
            **process_sizes(self._blocks_before),
        )

    def _present_files(self) -> list[Path]:
        aside = [path.name for path in asides(self._cluster.settings.journal_path)]
        files = (path for path in self._cluster.folder.rglob("*") if path.is_file())
        return [path for path in files if not path.name.startswith(tuple(aside) or ("\0",))]


def _cannot_run(spec: JobSpec) -> bool:
    return bool(spec.unfit) or spec.user == "bob"


def main(arguments: list[str] | None = None) -> int:
    """The command. Returns 1 when a promise was broken, or something grows."""
    parser = argparse.ArgumentParser(prog="python -m tests.campaign.ageing", description=__doc__)
    parser.add_argument("--days", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs-a-day", type=int, default=300)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    days, violations = live(options.days, options.seed, options.jobs_a_day, lambda day: print(day, file=sys.stderr))
    grown = levels_off(days, BOUNDS)
    if options.json:
        print(
            json.dumps(
                {"days": [asdict(day) for day in days], "violations": list(map(str, violations)), "grown": grown}
            )
        )
    else:
        print(*violations, *grown, sep="\n")
    return 1 if violations or grown else 0


if __name__ == "__main__":
    sys.exit(main())
