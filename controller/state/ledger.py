"""Facts on jobs that Slurm does not know: their own requests, pins, refusals, and the usage of earlier runs.

`Ledger` has them in memory; the journal has the same facts on disk and rebuilds the ledger after a restart. `observe` needs only
the snapshot and the ledger, so that it stays a pure function.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace

from controller.slurm.model.job import JobKey, ResourceRequest
from controller.state.preemption import RelocationConstraint

MOST_ESTIMATES = 100_000
NOT_BOOTED = "ResumeTimeout"
"""Slurm's reason of a node that power saving has booted for a job in vain."""
NODES_AWAY = ("ReqNodeNotAvail", "Nodes required", "Nodes_required")
"""Beginnings of Slurm's reasons for a job whose nodes take no jobs now; it may start on others."""
UNFIT_S = 600.0
"""Time after the last refusal during which a job is not placed on nodes where Slurm did not start it, in seconds."""
ELSEWHERE_S = 60.0
"""Time after a pause during which a job that waited behind other jobs of Slurm's queue is placed on other nodes, in seconds."""


@dataclass(frozen=True, slots=True)
class PinRecord:
    """A placement that was sent to Slurm, and the run of the job that it was for."""

    nodes: tuple[str, ...]
    gpus: tuple[int, ...]
    """GPUs on each of the nodes."""
    restarts: int
    """Slurm's restart count at the time of the pin: a pin of an earlier run says nothing about the present one."""
    pinned_at_s: float
    policy: str
    reason: str
    frees_s: float = 0.0
    """Longest time in which Slurm stops other jobs on these nodes first, seconds; 0: the nodes were free."""
    gpu_masks: tuple[int, ...] = ()
    """Which GPUs of each node Slurm was told to give it (bit k: GPU k; 0: any); empty: Slurm chooses."""
    birthmark: str = ""
    """The job's birthmark; empty: it has none, or an earlier version pinned it."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Slurm did not start a released job, or Headway could not place it. The job is not placed before `retry_at_s`."""

    reason: str
    refused_at_s: float
    retry_at_s: float
    count: int
    like: str = ""
    """Job whose refusal this is: the same limit applies to both, so this job was not even placed. Empty: its own refusal."""
    unfit: str = ""
    """Nodes on which Slurm did not start it, although they looked free: "n1,n3"."""
    places: int = 0
    """Number of refusals for which the nodes may be the cause."""
    slurm_reason: str = ""
    """Slurm's own word, such as AssocGrpGRES; empty when it gave none, and in journals of earlier versions."""
    behind: int = 0
    """Number of refusals for which other jobs of Slurm's queue are the cause."""
    tried: str = ""
    """Nodes of the last refusals of that kind, each node once: "n1,n3"."""
    woken: int = 0
    """Number of refusals when the end of another job last ended the pause early: they do not lengthen the next pause."""

    @property
    def is_for_boot(self) -> bool:
        """True if nodes did not boot for the job. Such a refusal lasts while other nodes boot, so that the nodes add up."""
        return self.slurm_reason == NOT_BOOTED

    @property
    def is_for_limit(self) -> bool:
        """True if Slurm gave a reason that no other nodes and no free GPUs mend, such as a limit of the job's user."""
        return bool(self.slurm_reason) and not self.is_for_boot and not self.slurm_reason.startswith(NODES_AWAY)

    @property
    def ends_with_change(self) -> bool:
        """True if a change of the job by its user ends it. Nodes that did not boot for the job are no better for one."""
        return not self.is_for_boot

    def unfit_nodes(self, now_s: float) -> frozenset[str]:
        """Return the nodes on which the job must not be placed for now."""
        if not self.unfit or not 0 <= now_s - self.refused_at_s < UNFIT_S:
            return frozenset()
        return frozenset(self.unfit.split(","))

    def avoided_nodes(self, now_s: float) -> frozenset[str]:
        """Return the nodes on which the job is not placed for now, where it fits on others."""
        unfit = self.unfit_nodes(now_s)
        if not self.tried or not self.refused_at_s <= now_s < self.retry_at_s + ELSEWHERE_S:
            return unfit
        return unfit | frozenset(self.tried.split(","))


@dataclass(frozen=True, slots=True)
class Served:
    """Usage of a job's earlier runs, and its first submit time (a requeue gives it a new one)."""

    service_s: float
    gpu_s: float
    first_submit_s: int
    short_runs: int = 0
    """Number of runs in a row that ended in a requeue right after their start."""
    last_start_s: float | None = None
    """Start of the last of these runs, as Slurm showed it; None: not known, as in journals of earlier versions."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """Run time expected from past runs of the same user and job name, seconds."""

    mean_s: float
    spread_s: float
    runs: int


@dataclass
class Ledger:
    """Facts by job. Invariant: an entry exists only for jobs that Slurm still knew at the last snapshot.

    Bound: but for `estimates`, the jobs of one snapshot.
    """

    originals: dict[JobKey, ResourceRequest] = field(default_factory=dict)
    """Own requests of jobs that may still be pinned in Slurm; Headway must give these requests back to them."""
    pins: dict[JobKey, PinRecord] = field(default_factory=dict)
    refusals: dict[JobKey, Refusal] = field(default_factory=dict)
    served: dict[JobKey, Served] = field(default_factory=dict)
    yielded: dict[JobKey, int] = field(default_factory=dict)
    """Restart count of each job that was given to Slurm to place; the fact is about that run only."""
    relocations: dict[JobKey, RelocationConstraint] = field(default_factory=dict)
    """Constraint on the next placement of each job, with its number of GPUs when that has changed."""
    kept_off: dict[JobKey, frozenset[str]] = field(default_factory=dict)
    """Nodes that each job avoids for now, because their agents are silent. Computed in every cycle; not in the journal."""
    estimates: dict[tuple[str, str], Estimate] = field(default_factory=dict)
    """Estimated run time by (user, job name). Bound: `MOST_ESTIMATES`."""

    def succeed(self, old: JobKey, new: JobKey, served: Served) -> None:
        """Give the job its new identity after a requeue. Its request and usage are kept, its pins and refusals are not."""
        original, constraint = self.originals.get(old), self.relocations.get(old)
        self.forget({old})
        self.served[new] = served
        if original is not None:
            self.originals[new] = original
        if constraint is not None:
            self.relocations[new] = constraint

    def set_constraint(self, key: JobKey, constraint: RelocationConstraint) -> None:
        """Set where a stopped job must go. Without a number of GPUs it keeps the number that it was given before."""
        if constraint.gpus is None and (before := self.relocations.get(key)) is not None:
            constraint = replace(constraint, gpus=before.gpus, user=constraint.user or before.user)
        if constraint != RelocationConstraint():
            self.relocations[key] = constraint
        else:
            self.relocations.pop(key, None)

    def constraints(self) -> dict[JobKey, RelocationConstraint]:
        """Return where jobs must go now: `relocations`, without the nodes that they avoid for now."""
        found = dict(self.relocations)
        for key, nodes in self.kept_off.items():
            there = found.get(key, RelocationConstraint())
            found[key] = replace(there, avoid=there.avoid | nodes)
        return found

    def clear_constraint(self, key: JobKey) -> bool:
        """Let the job go anywhere; its number of GPUs stays. Returns whether anything has changed."""
        constraint = self.relocations.get(key)
        if constraint is None or not (constraint.avoid or constraint.only):
            return False
        self.relocations.pop(key)
        self.set_constraint(key, RelocationConstraint(gpus=constraint.gpus, user=constraint.user))
        return True

    def set_size(self, key: JobKey, gpus: int | None) -> None:
        """Set the number of GPUs of a job that may have to go to certain nodes; None: its own."""
        constraint = replace(self.relocations.pop(key, RelocationConstraint()), gpus=gpus)
        self.set_constraint(key, constraint)

    def note_start(self, key: JobKey, num_gpus: int) -> bool:
        """Record that the job runs on that many GPUs, and may go anywhere next time. Returns whether anything has changed."""
        changed = self.clear_constraint(key)
        constraint = self.relocations.get(key)
        if constraint is None or constraint.gpus == num_gpus:
            return changed
        del self.relocations[key]  # it was started without Headway, as its user had asked
        return True

    def keep_off(self, nodes: Mapping[JobKey, frozenset[str]]) -> None:
        """Set the nodes that jobs avoid for now, in place of those of the cycle before."""
        self.kept_off = dict(nodes)

    def set_estimates(self, found: Mapping[tuple[str, str], Estimate]) -> None:
        """Replace all estimates; of more than MOST_ESTIMATES the first are dropped."""
        self.estimates = {}
        self.update_estimates(found)

    def update_estimates(self, found: Mapping[tuple[str, str], Estimate]) -> None:
        """Store newer estimates; beyond MOST_ESTIMATES those that have not changed for the longest time are dropped."""
        for name, estimate in found.items():
            self.estimates.pop(name, None)
            self.estimates[name] = estimate
        while len(self.estimates) > MOST_ESTIMATES:
            del self.estimates[next(iter(self.estimates))]

    @contextmanager
    def all_or_nothing(self) -> Iterator[None]:
        """Undo every change of the ledger within the context when an exception leaves it."""
        before = {one.name: dict(getattr(self, one.name)) for one in fields(self)}
        try:
            yield
        except BaseException:
            for name, facts in before.items():
                now = getattr(self, name)
                now.clear()
                now.update(facts)
            raise

    def keys(self) -> set[JobKey]:
        """Return every job of which a fact is known."""
        return set().union(self.originals, self.pins, self.refusals, self.served, self.yielded, self.relocations)

    def forget(self, gone: set[JobKey]) -> None:
        """Drop every fact about these jobs."""
        for facts in (self.originals, self.pins, self.refusals, self.served, self.yielded, self.relocations):
            for key in gone & facts.keys():
                del facts[key]
