"""The contention threshold: which jobs are slowed down too much for too long, and which job of a group moves. Pure.

A job should move when its contention sensitivity (CS) has reached `contention_threshold`, and has not been below `contention_clear`
since, for `contention_sustained_s` of measured time. Of a group of jobs that slow each other down, one is moved, then the others
are measured again. Only jobs with a CS of `contention_clear` or above move: a job that is as fast as alone hardly uses the shared
resource.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from math import inf

from controller.base.apart import apart
from controller.base.config import ControllerSettings, Mode
from controller.base.text import duration, listed, three_digits
from controller.contention.relocation import Relocation, Relocations
from controller.observe.observer import Observation
from controller.observe.role import Role
from controller.preempt.budget import UNDER_WAY, PreemptionBudget, mode_of
from controller.preempt.preemptibility import Preemptibility
from controller.profiles.current import FRESH_WINDOWS, Contention, ContentionByRun, run_of
from controller.profiles.windows import Links, RunKey, own_nodes
from controller.slurm.model.job import SlurmJob
from controller.state.preemption import Preemption, PreemptionMethod

LEAST_CONFIDENCE = 0.5
"""A contention sensitivity with a lower confidence is ignored."""
_NAMED = 5
_PLACES = 5
"""Maximum number of places to try for one job, when the first ones would use the same uplinks as before."""


@dataclass(frozen=True, slots=True)
class Slow:
    """A run that should move if it stays slow. Unix times."""

    since_s: float
    """Beginning of the first window above the threshold."""
    until_s: float
    """End of the newest window with a sensitivity."""

    @property
    def lasted_s(self) -> float:
        """Measured duration in seconds."""
        return self.until_s - self.since_s


SlowRuns = Mapping[RunKey, Slow]


@dataclass(frozen=True, slots=True)
class Advice:
    """Advice to move one job."""

    job: SlurmJob
    run: RunKey
    mode: Mode
    """"advise" or "automatic"."""
    why: str
    """A sentence with the numbers."""
    place: Relocation
    """Place that is free for it now."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """Result of a judgement."""

    advice: tuple[Advice, ...] = ()
    """Advised moves, the most urgent first."""
    stays: Mapping[RunKey, str] = field(default_factory=dict)
    """Runs that should move but cannot now, and why."""


@dataclass(frozen=True, slots=True)
class Case:
    """All input of a judgement. `observation.measured` has the contention of each run."""

    settings: ControllerSettings
    observation: Observation
    relocations: Relocations
    history: Collection[Preemption]
    """Preemptions begun within `budget.reach_s`, and open ones."""
    preemptibility: Callable[[SlurmJob], Preemptibility]
    now_s: float
    links: Links = own_nodes
    """Links and hosts that a job on given nodes uses."""


def still_slow(
    before: SlowRuns, measured: ContentionByRun, settings: ControllerSettings, now_s: float, window_s: float
) -> dict[RunKey, Slow]:
    """Return the runs above the threshold, and those that were above it and have not been below `contention_clear` since.

    A window without a sensitivity changes nothing, until too many are missing to know the job's present speed.
    """
    found = {run: slow for run, slow in before.items() if now_s - slow.until_s <= FRESH_WINDOWS * window_s}
    for run, item in measured.items():
        if not _is_reliable(item):
            continue
        slow = found.pop(run, None)
        if item.value >= (settings.contention_threshold if slow is None else settings.contention_clear):
            since_s = item.window.start_s if slow is None else slow.since_s
            found[run] = Slow(since_s, item.window.start_s + window_s)
    return found


def judge_case(case: Case, slow: SlowRuns, advised: Collection[RunKey] = ()) -> Judgement:
    """Return which running jobs should move. Jobs that were `advised` before are preferred while the advice is valid."""
    return _Judge(case, advised).judge(slow)


class _Judge:
    """State of one judgement."""

    def __init__(self, case: Case, advised: Collection[RunKey]) -> None:
        self._case = case
        self._advised = frozenset(advised)
        self._measured = case.observation.measured
        self._budget = PreemptionBudget(case.settings, case.history, case.now_s)
        self._preempted = {item.raw_id for item in case.history if item.stage in UNDER_WAY}
        self._rows: dict[RunKey, int] = {}
        """Bound: the runs of one observation."""
        for row, job in enumerate(case.observation.rows):
            with apart("advice to move jobs", job.key.job_id):
                if job.allocated and (run := run_of(job)) is not None:
                    self._rows[run] = row
        jobs = case.observation.snapshot.jobs
        self._with_nodes = {job.raw_id: job for job in jobs if job.allocated and job.raw_id is not None}

    def judge(self, slow: SlowRuns) -> Judgement:
        least_s = self._case.settings.contention_sustained_s
        long = {run: item for run, item in slow.items() if item.lasted_s >= least_s and run in self._rows}
        known = [run for run in long if self._is_reliable(run) and self._mode(run) != "off"]
        known.sort(key=lambda run: (-self._measured[run].value, run))
        advice: list[Advice] = []
        stays: dict[RunKey, str] = {}
        seen: set[RunKey] = set()
        for run in known:
            if run in seen:
                continue
            group = self._group(run)
            seen |= group
            found, why_not = None, "has a value that Headway does not understand"
            with apart("advice to move jobs", str(run.job_id)):
                found, why_not = self._of_group(run, group, long)
            if found is None:
                stays |= {other: why_not for other in known if other in group}
            else:
                advice.append(found)
        return Judgement(tuple(advice), stays)

    def _group(self, first: RunKey) -> set[RunKey]:
        """Return the jobs that slow each other down, directly or through others."""
        group, new = {first}, [first]
        while new:
            beside = self._slowed_beside(new.pop()) - group
            group |= beside
            new += beside
        return group

    def _slowed_beside(self, run: RunKey) -> set[RunKey]:
        clear = self._case.settings.contention_clear
        near = (other.run for other in self._measured[run].window.neighbours)
        return {other for other in near if self._is_reliable(other) and self._measured[other].value >= clear}

    def _of_group(self, first: RunKey, group: set[RunKey], long: SlowRuns) -> tuple[Advice | None, str]:
        """Return the advice for one of these jobs; or None, and why `first`, the slowest, and its neighbours cannot be moved."""
        near = group | {other.run for run in group for other in self._measured[run].window.neighbours}
        preempted = sorted(self._name(run) for run in near if run.job_id in self._preempted)
        if preempted:
            return None, f"job {preempted[0]} is being preempted; the others are measured without it first"
        refused = {run: self._refusal(run) for run in group}
        for run in sorted((run for run in group if not refused[run]), key=self._rank):
            place = self._place(run)
            if place is None:
                refused[run] = "fits on no free nodes now where it would slow down no other job"
                continue
            self._budget.take(self._job(run))
            self._case.relocations.take(place)
            return self._advice(run, run if run in long else first, long, place), ""
        reasons = [f"job {self._name(run)} {refused[run]}" for run in (first, *sorted(group - {first}))]
        return None, "; ".join(reasons[:_NAMED])

    def _place(self, run: RunKey) -> Relocation | None:
        """Return a place off the nodes, and off the links beyond them, that the job shares with its neighbours; None: no place."""
        off, links = self._shared_nodes(run), self._shared_links(run)
        for _ in range(_PLACES):
            place = self._case.relocations.find(self._rows[run], self._job(run), off)
            if place is None or links.isdisjoint(self._case.links(place.nodes)):
                return place
            off |= set(place.nodes)
        return None

    def _refusal(self, run: RunKey) -> str:
        """Return why the job cannot move, as text that follows "job 12 "; empty: it can."""
        if run not in self._rows:
            return "is not placed by Headway"
        job, observation = self._job(run), self._case.observation
        if observation.standings[job.key].role is not Role.RUNNING:
            return "is about to start or to end"
        if self._mode(run) == "off":
            return f"is in partition {job.partition}, where preemption is off"
        least_s = self._case.settings.preemption_min_run_s
        if self._remaining_s(run) < least_s:
            return "is expected to end soon"
        if all(self._remaining_s(other.run) < least_s for other in self._measured[run].window.neighbours):
            return "has only neighbours that are expected to end soon"
        return self._budget.refusal(job) or self._case.preemptibility(job).why_not

    def _rank(self, run: RunKey) -> tuple[object, ...]:
        """Sort key, best candidate first: was advised before; may be moved automatically; reports when it has saved; has the
        fewest GPUs; is slowed down most, in tenths; began last; lowest number."""
        job = self._job(run)
        gpus = sum(share.gpus for share in job.allocated)
        slowed = round(10 * self._measured[run].value)
        signal = self._case.preemptibility(job).way is not PreemptionMethod.CHECKPOINT
        return (
            run not in self._advised,
            self._mode(run) != "automatic",
            signal,
            gpus,
            -slowed,
            -(job.start_time_s or 0.0),
            run,
        )

    def _advice(self, run: RunKey, slow: RunKey, long: SlowRuns, place: Relocation) -> Advice:
        job, worst = self._job(run), self._measured[slow]
        pace = (
            f"trains at {three_digits(worst.window.steps_per_s)} steps/s, {worst.value:.2f} times slower than alone (confidence "
            f"{worst.confidence:.0%}), for {duration(long[slow].lasted_s)} now"
        )
        beside = f"on {','.join(sorted(self._shared_nodes(run)))} beside {self._names(run)}"
        there = f"{','.join(place.nodes)} {'is' if len(place.nodes) == 1 else 'are'} free"
        if not place.empty:
            has = "has" if len(place.nodes) == 1 else "have"
            there = f"{','.join(place.nodes)} {has} enough free GPUs; all other jobs there use only one node"
        if run == slow:
            why = f"it {pace}, {beside}; {there}"
        else:
            own = self._measured[run].value
            why = f"job {self._name(slow)} {pace}; this one, {own:.2f} times slower, shares resources with it {beside}; {there}"
        return Advice(job, run, self._mode(run), why, place)

    # --- facts about a run

    def _is_reliable(self, run: RunKey) -> bool:
        return run in self._measured and _is_reliable(self._measured[run])

    def _job(self, run: RunKey) -> SlurmJob:
        return self._case.observation.rows[self._rows[run]]

    def _mode(self, run: RunKey) -> Mode:
        return mode_of(self._case.settings, self._job(run).partition)

    def _remaining_s(self, run: RunKey) -> float:
        """Return the expected remaining time in seconds; infinite when there is no estimate."""
        row = self._rows.get(run)
        return inf if row is None else float(self._case.observation.state.remaining_s[row])

    def _shared_nodes(self, run: RunKey) -> frozenset[str]:
        """Return the job's nodes that have neighbours; all its nodes when only links between nodes are shared."""
        own = {share.node for share in self._job(run).allocated}
        theirs = {
            share.node
            for other in self._measured[run].window.neighbours
            if (job := self._with_nodes.get(other.run.job_id)) is not None
            for share in job.allocated
        }
        return frozenset(own & theirs or own)

    def _shared_links(self, run: RunKey) -> set[str]:
        """Return the links that both the job and a neighbour use."""
        links, near = self._case.links, self._measured[run].window.neighbours
        near_jobs = [self._with_nodes[other.run.job_id] for other in near if other.run.job_id in self._with_nodes]
        theirs = {link for job in near_jobs for link in links([share.node for share in job.allocated])}
        return theirs & set(links([share.node for share in self._job(run).allocated]))

    def _name(self, run: RunKey) -> str:
        job = self._with_nodes.get(run.job_id)
        return str(run.job_id) if job is None else job.key.job_id

    def _names(self, run: RunKey) -> str:
        names = [self._name(other.run) for other in self._measured[run].window.neighbours]
        return f"{'job' if len(names) == 1 else 'jobs'} {listed(names)}"


def _is_reliable(item: Contention) -> bool:
    return item.value > 0 and item.confidence >= LEAST_CONFIDENCE  # an unknown sensitivity is NaN
