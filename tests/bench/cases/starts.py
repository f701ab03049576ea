"""Estimates of starts on a real Slurm: short jobs wait, `headway queue --json` is read, and Slurm says when they started.

The same jobs go to an equal cluster without Headway at the same times. There `squeue --start` is Slurm's own estimate.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from math import inf
from typing import Any

from tests.bench.measuring.figures import Findings
from tests.bench.measuring.grounds import Side, until, with_headway, without_headway
from tests.bench.measuring.start_trial import Estimate, Reader, Scores, Seen, TrialJob, draw_jobs, scores

JOBS, QUICK_JOBS = 400, 80
NODES = 3
_GPUS = 8
_SEED = 1
_SEED_VARIABLE = "HEADWAY_BENCH_SEED"
_READ_EVERY_S = 3.0
_POLICY = "backfill:order=slurm"
"""The default of installations."""
_ESTIMATES_EVERY_S = 5.0
"""Shorter than the default, as are the jobs."""
_SCHEDULER = (
    "batch_sched_delay=0,sched_interval=5,sched_min_interval=0,bf_interval=5,bf_resolution=1,bf_max_job_test=2000"
)
_SPEC: dict[str, Any] = {"nodes": NODES, "gpus": _GPUS, "scheduler_parameters": _SCHEDULER}
"""bf_resolution: Slurm's own estimates are not rounded to a minute."""
_END_S = 900.0
_MOST_LOSS = 0.7
"""Pinball loss of Headway's estimates over that of others, at most."""


@dataclass
class _Trial:
    """One cluster with the jobs that it has got, and the estimates that were read there."""

    side: Side
    submitted: dict[str, tuple[TrialJob, float]] = field(default_factory=dict)
    reader: Reader = field(default_factory=Reader)

    def submit(self, job: TrialJob) -> None:
        now_s = time.time()
        done = subprocess.run(
            ["sbatch", "--parsable", "--output=/dev/null", f"--time={job.limit_min}", "--mem=100", f"--gres=gpu:{job.gpus}",
             "--nodes=1", f"--job-name={job.name}", f"--wrap=sleep {job.duration_s}"],
            env=self.side.environment(), capture_output=True, text=True, timeout=60, check=True,
        )  # fmt: skip
        self.submitted[done.stdout.strip()] = (job, now_s)

    def read(self) -> None:
        """Read the estimates of now."""
        if self.side.headway is None:
            self._read_slurm()
        else:
            self._read_headway()

    def _read_headway(self) -> None:
        assert self.side.headway is not None
        for entry in self.side.headway.ask("queue")["entries"]:
            if (start := entry["start"]) is not None:
                times = (start["earliest_s"], start["median_s"], start["latest_s"] or inf)
                self.reader.read(entry["job_id"], Estimate(start["made_s"], times))

    def _read_slurm(self) -> None:
        now_s = time.time()
        shown = self.side.cluster.run("squeue", "--start", "--noheader", "--states=PD", "--format=%i %S").stdout
        for line in shown.splitlines():
            job_id, when = line.split()
            if when != "N/A":
                start_s = max(datetime.fromisoformat(when).timestamp(), now_s)
                self.reader.read(job_id, Estimate(now_s, (start_s, start_s, start_s)))

    def ended(self) -> list[Seen]:
        """Wait until all jobs have ended, and return what became of them."""
        started = self.side.running

        def none_left() -> bool:
            self.read()
            return not self.side.cluster.run("squeue", "--noheader", "--format=%i").stdout.strip()

        until(none_left, f"{self.side.name}: all jobs end", _END_S, _READ_EVERY_S)
        until(lambda: set(self.submitted) <= set(started()), "slurmctld's log has all starts")
        return self.reader.seen(self.submitted, started())


def run(*, quick: bool) -> Findings:
    """Measure."""
    count = QUICK_JOBS if quick else JOBS
    seed = int(os.environ.get(_SEED_VARIABLE, _SEED))
    jobs = draw_jobs(count, NODES * _GPUS, seed)
    settings = {"start_estimates_every_s": _ESTIMATES_EVERY_S}
    with with_headway(_POLICY, settings, **_SPEC) as side, without_headway(**_SPEC) as alone:
        trials = [_Trial(side), _Trial(alone)]
        begun_s = time.time()
        _submit_all(trials, jobs)
        ours, slurm = (trial.ended() for trial in trials)
        took_s = time.time() - begun_s
        assert side.headway is not None
        failed = side.headway.log("controller").count("no_start_estimates")
    findings = Findings("starts")
    note = f"in {took_s:.0f} s" + (f"; at least {failed} failed" if failed else "")
    findings.add("forecasts", trials[0].reader.forecasts, "", note=note)
    _report(findings, ours, slurm)
    return findings


def _submit_all(trials: Sequence[_Trial], jobs: Sequence[TrialJob]) -> None:
    begun_s = read_s = time.time()
    for job in jobs:
        while (left_s := begun_s + job.at_s - time.time()) > 0:
            if time.time() >= read_s:
                for trial in trials:
                    trial.read()
                read_s = time.time() + _READ_EVERY_S
            else:
                time.sleep(min(left_s, 0.2))
        for trial in trials:
            trial.submit(job)


def _report(findings: Findings, ours: Sequence[Seen], slurm: Sequence[Seen]) -> None:
    """Score the second half of the jobs; the estimates of the first half are those from which Headway learns."""
    second = range(len(ours) // 2, len(ours))
    both = [job for job in second if ours[job].first is not None and slurm[job].first is not None]
    for name, scored in (("second half", second), ("first half", range(len(ours) // 2))):
        found = scores(ours, scored)
        if found is None:
            findings.add(f"{name}: estimates", 0, "jobs", note="no job had to wait for its estimate")
            continue
        _add(findings, name, found, with_targets=name == "second half")
    shown = [job for job in ours if job.estimates]
    every = sum(job.estimates for job in shown)
    held = sum(job.held for job in shown)
    findings.add("all estimates read: in the range", held / max(every, 1), "", note=f"{every} of {len(shown)} jobs")
    mine, theirs = scores(ours, both), scores(slurm, both)
    if mine is not None and theirs is not None:
        note = f"{mine.shown.pinball_s:.3g} s, Slurm {theirs.shown.pinball_s:.3g} s; {mine.jobs} jobs with both"
        note += f"; wait that was left: {mine.wait_s:.3g} s, Slurm alone {theirs.wait_s:.3g} s"
        findings.add(
            "pinball loss / Slurm's own estimate", mine.shown.pinball_s / theirs.shown.pinball_s, "", _MOST_LOSS, note
        )
    for name, seen in (("headway", ours), ("slurm", slurm)):
        rows = [(place, job, job.first) for place, job in enumerate(seen) if job.first is not None]
        findings.keep(f"{name}: job", [place for place, _, _ in rows])
        findings.keep(f"{name}: wait s", [job.start_s - first.made_s for _, job, first in rows])
        for level, label in enumerate(("10 %", "50 %", "90 %")):
            findings.keep(f"{name}: {label}, s", [first.start_s[level] - first.made_s for _, _, first in rows])


def _add(findings: Findings, name: str, found: Scores, *, with_targets: bool) -> None:
    shown, by_size = found.shown, found.by_size
    note = (
        f"earlier {shown.below:.2f}, later {shown.above:.2f}, of {found.jobs} jobs; median width {shown.width_s:.3g} s"
    )
    note += f"; {found.unbounded} without a latest time" if found.unbounded else ""
    findings.add(f"{name}: started in the range of 80 %", shown.coverage, "", note=note)
    ratio = shown.pinball_s / by_size.pinball_s
    note = f"{shown.pinball_s:.3g} s, past waits {by_size.pinball_s:.3g} s; mean wait {found.wait_s:.3g} s"
    findings.add(f"{name}: pinball loss / past waits by size", ratio, "", _MOST_LOSS if with_targets else None, note)
