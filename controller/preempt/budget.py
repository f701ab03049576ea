"""The preemption budget: the operator's bounds on stopping running jobs, given past preemptions. Pure functions.

The bounds apply to the threshold and to policies. Preemptions by operators and by the jobs' users are not bounded by them, but
count for the job.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence

from controller.base.apart import each
from controller.base.config import ControllerSettings, Mode
from controller.base.text import count, duration
from controller.preempt.preemptibility import Preemptibility
from controller.profiles.current import run_of
from controller.profiles.windows import RunKey
from controller.slurm.model.job import Phase, SlurmJob
from controller.state.preemption import Cause, Preemption, Stage
from policies.serving.runtime.tasks.backoff import Backoff

HOUR_S = 3600.0
_MOST_DOUBLINGS = 5
UNDER_WAY = frozenset({Stage.ASKED, Stage.SAVED, Stage.STOPPED})
"""Stages of a job that is about to be stopped, or has not started again."""
BY_ITSELF = frozenset({Cause.THRESHOLD, Cause.POLICY})
"""Causes other than a person."""


def mode_of(settings: ControllerSettings, partition: str) -> Mode:
    """Return the mode of preemption in the partition; for a job in several ("a,b"), the strictest."""
    modes: list[Mode] = [settings.preemption_partitions.get(name, settings.preemption) for name in partition.split(",")]
    return next(mode for mode in ("off", "advise", "automatic") if mode in modes)


def all_off(settings: ControllerSettings) -> bool:
    """Return whether preemption is off in every partition."""
    return {settings.preemption, *settings.preemption_partitions.values()} == {"off"}


def reach_s(settings: ControllerSettings) -> float:
    """Return the time for which past preemptions matter, seconds."""
    return max(HOUR_S, _longest_s(settings.preemption_cooldown_s))


def _longest_s(cooldown_s: float) -> float:
    """Return the longest cool-down after repeated preemptions of one job, seconds."""
    return cooldown_s * float(2**_MOST_DOUBLINGS)


def leaves(job: SlurmJob, under_way: Preemption | None) -> bool:
    """Return whether this run of the job is being stopped."""
    return under_way is not None and under_way.stage in UNDER_WAY and under_way.restarts == job.restarts


class PreemptionBudget:
    """The bounds at one moment. Invariant: however many jobs are taken, no bound is exceeded within any hour.

    A preemption counts from the request on, also if it was called off, because the ranks have paused for it. One whose time is in
    the future was recorded while the clock was ahead. It counts only if it is less far ahead than the time for which it counts:
    so a clock that is set back blocks nothing for longer than twice that time.
    """

    def __init__(self, settings: ControllerSettings, history: Iterable[Preemption], now_s: float) -> None:
        """`history`: all preemptions requested within `reach_s`, and the open ones.

        Those from a later time than that do not count: the clock was set back, and they would count until that time comes again.
        """
        self._settings = settings
        self._now_s = now_s
        self._of_job: dict[int, list[Preemption]] = defaultdict(list)
        """Bound: `history`."""
        last_s = now_s + reach_s(settings)
        for item in sorted(history, key=lambda item: item.number):
            if item.open or item.asked_s <= last_s:
                self._of_job[item.raw_id].append(item)
        lately = [item for items in self._of_job.values() for item in items if abs(now_s - item.asked_s) < HOUR_S]
        self._moves = Counter(item.raw_id for item in lately)
        """Bound: `history`, and the jobs of one decision."""
        self._spent = sum(item.cause in BY_ITSELF for item in lately)

    def take(self, job: SlurmJob) -> None:
        """Count one more preemption, of this job, now."""
        self._spent += 1
        if job.raw_id is not None:
            self._moves[job.raw_id] += 1

    def may_be_preempted(self, job: SlurmJob, preemptibility: Callable[[SlurmJob], Preemptibility]) -> bool:
        """Return whether a policy may stop the job now."""
        automatic = mode_of(self._settings, job.partition) == "automatic"
        return automatic and not self.refusal(job) and preemptibility(job).may

    def refusal(self, job: SlurmJob) -> str:
        """Return why the job may not be stopped now, as a text that continues "job 12 "; empty: it may. The mode is not checked."""
        return self.own_refusal(job) or self._none_left()

    def own_refusal(self, job: SlurmJob) -> str:
        """Return the refusal without regard to the cluster's budget, which is checked for all jobs that are stopped together."""
        if job.raw_id is None or job.phase is not Phase.RUNNING or job.start_time_s is None:
            return "does not run"
        if any(item.stage in UNDER_WAY for item in self._of_job.get(job.raw_id, ())):
            return "is being preempted"
        return self._too_early(self._now_s - job.start_time_s, job.raw_id) or self._too_often(self._moves[job.raw_id])

    @property
    def left(self) -> int:
        """Number of further preemptions that the cluster's budget allows now."""
        return max(self._settings.preemption_budget_per_hour - self._spent, 0)

    def _too_early(self, ran_s: float, raw_id: int) -> str:
        least_s = self._settings.preemption_min_run_s
        if ran_s < least_s:
            return f"has run for {ran_s:.0f} s only (preemption_min_run_s is {least_s:g} s)"
        rests_s = self.rests_until_s(raw_id) - self._now_s
        if rests_s > 0:
            return f"was preempted recently, and is not preempted again for another {duration(rests_s)}"
        return ""

    def _too_often(self, moves: int) -> str:
        most = self._settings.preemption_moves_per_hour
        if moves < most:
            return ""
        return f"was preempted {count(moves, 'time')} within an hour (preemption_moves_per_hour is {most})"

    def _none_left(self) -> str:
        if self.left:
            return ""
        most = self._settings.preemption_budget_per_hour
        spent = f"{count(self._spent, 'job')} {'was' if self._spent == 1 else 'were'} preempted within the last hour"
        return f"cannot be preempted now: {spent} (preemption_budget_per_hour is {most})"

    def rests_until_s(self, raw_id: int) -> float:
        """Return the end of the job's cool-down, Unix time; in the past if there is none."""
        items = self._of_job.get(raw_id)
        if not items:
            return float("-inf")
        cooldown_s = self._settings.preemption_cooldown_s
        pause = Backoff(cooldown_s, _longest_s(cooldown_s))
        newest_s, pause_s = _newest_s(items[-1]), pause.pause_s(_useless_in_a_row(items) - 1)
        return newest_s + pause_s if newest_s - self._now_s < pause_s else float("-inf")


def _useless_in_a_row(items: Sequence[Preemption]) -> int:
    """Return how many of the newest preemptions were useless. A move by the threshold counts, because the job is slow again.

    Preemptions older than `reach_s` do not count.
    """
    number = 0
    for item in reversed(items):
        if item.stage is not Stage.CALLED_OFF and item.cause is not Cause.THRESHOLD:
            break
        number += 1
    return number


def _newest_s(item: Preemption) -> float:
    """Return the time of the preemption's newest stage."""
    times = (item.asked_s, item.saved_s, item.stopped_s, item.started_s, item.resumed_s, item.ended_s)
    return max(time_s for time_s in times if time_s is not None)


def may_be_preempted(
    jobs: Iterable[SlurmJob],
    settings: ControllerSettings,
    history: Iterable[Preemption],
    preemptibility: Callable[[SlurmJob], Preemptibility],
    now_s: float,
) -> frozenset[RunKey]:
    """Return the runs among these jobs that policies may stop now."""
    if "automatic" not in {settings.preemption, *settings.preemption_partitions.values()}:
        return frozenset()
    bounds = PreemptionBudget(settings, history, now_s)

    def may(job: SlurmJob) -> RunKey | None:
        run = run_of(job) if job.allocated else None
        return run if run is not None and bounds.may_be_preempted(job, preemptibility) else None

    found = each("preemptible jobs", jobs, may, lambda job: job.key.job_id)
    return frozenset(run for run in found if run is not None)
