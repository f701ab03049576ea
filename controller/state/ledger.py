"""What the controller remembers of jobs and Slurm does not tell: original requests, pins, refusals, time already served.

`Ledger` is the in-memory picture; the journal keeps the same facts on disk and rebuilds it after a restart. Everything
that `observe` needs besides the snapshot comes from here, so that observing stays a pure function.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace

from controller.slurm.client import JobKey, ResourceRequest
from controller.state.preemption import RelocationConstraint

MOST_ESTIMATES = 100_000
UNFIT_S = 600.0
"""How long a job is kept off nodes on which Slurm did not start it, seconds since it was refused last."""


@dataclass(frozen=True, slots=True)
class PinRecord:
    """A placement that was ordered for a job, and which run of the job it was for."""

    nodes: tuple[str, ...]
    gpus: tuple[int, ...]
    """GPUs on each of the nodes."""
    restarts: int
    """Slurm's restart count when the pin was made: a pin of an earlier run says nothing about this one."""
    pinned_at_s: float
    policy: str
    reason: str


@dataclass(frozen=True, slots=True)
class Refusal:
    """Slurm would not start a released job, or Headway could not place it: it is left alone until `retry_at_s`."""

    reason: str
    refused_at_s: float
    retry_at_s: float
    count: int
    like: str = ""
    """The job whose refusal this is, when the same limit stands in the way of both: this one was not even placed."""
    unfit: str = ""
    """Nodes on which Slurm did not start it, although they looked free: "n1,n3"."""
    places: int = 0
    """Refusals for which the nodes may be at fault."""
    slurm_reason: str = ""
    """Slurm's own word, such as AssocGrpGRES; empty when it gave none, and in journals of earlier versions."""

    def unfit_nodes(self, now_s: float) -> frozenset[str]:
        """Nodes that the job is not to be placed on for now."""
        if not self.unfit or not 0 <= now_s - self.refused_at_s < UNFIT_S:
            return frozenset()
        return frozenset(self.unfit.split(","))


@dataclass(frozen=True, slots=True)
class Served:
    """What earlier runs of a job used, and when it was first submitted (a requeue gives it a new submit time)."""

    service_s: float
    gpu_s: float
    first_submit_s: int


@dataclass(frozen=True, slots=True)
class Estimate:
    """Run time expected from past runs of the same user and job name, seconds."""

    mean_s: float
    spread_s: float
    runs: int


@dataclass
class Ledger:
    """Facts by job. Invariant: an entry exists only for jobs that Slurm still knew at the last snapshot."""

    originals: dict[JobKey, ResourceRequest] = field(default_factory=dict)
    """What jobs asked for that are, as far as we know, still pinned in Slurm: their own request has to be given back."""
    pins: dict[JobKey, PinRecord] = field(default_factory=dict)
    refusals: dict[JobKey, Refusal] = field(default_factory=dict)
    served: dict[JobKey, Served] = field(default_factory=dict)
    yielded: dict[JobKey, int] = field(default_factory=dict)
    """Jobs given to Slurm to place, with the restart count for which that holds."""
    elsewhere: dict[JobKey, RelocationConstraint] = field(default_factory=dict)
    """Where jobs are to go when they are placed again, and how many GPUs they have instead of those that they asked for."""
    kept_off: dict[JobKey, frozenset[str]] = field(default_factory=dict)
    """Nodes that jobs are kept off for now, because the agents there are silent. Worked out in every cycle; not in the journal."""
    estimates: dict[tuple[str, str], Estimate] = field(default_factory=dict)
    """By (user, job name)."""

    def succeed(self, old: JobKey, new: JobKey, served: Served) -> None:
        """A requeue gave the job a new identity, or will: its request and its history go over, pins and refusals do not."""
        original, elsewhere = self.originals.get(old), self.elsewhere.get(old)
        self.forget({old})
        self.served[new] = served
        if original is not None:
            self.originals[new] = original
        if elsewhere is not None:
            self.elsewhere[new] = elsewhere

    def set_constraint(self, key: JobKey, elsewhere: RelocationConstraint) -> None:
        """Say where a job that was stopped is to go. Without a number of GPUs it keeps the one that it was given before."""
        if elsewhere.gpus is None and (before := self.elsewhere.get(key)) is not None:
            elsewhere = replace(elsewhere, gpus=before.gpus)
        if elsewhere != RelocationConstraint():
            self.elsewhere[key] = elsewhere
        else:
            self.elsewhere.pop(key, None)

    def constraints(self) -> dict[JobKey, RelocationConstraint]:
        """Where jobs are to go as of now: `elsewhere`, and off the nodes that they are kept off."""
        found = dict(self.elsewhere)
        for key, nodes in self.kept_off.items():
            there = found.get(key, RelocationConstraint())
            found[key] = replace(there, avoid=there.avoid | nodes)
        return found

    def clear_constraint(self, key: JobKey) -> bool:
        """The job may go anywhere; its number of GPUs stays. Returns whether anything has changed."""
        elsewhere = self.elsewhere.get(key)
        if elsewhere is None or not (elsewhere.avoid or elsewhere.only):
            return False
        self.elsewhere.pop(key)
        self.set_constraint(key, RelocationConstraint(gpus=elsewhere.gpus))
        return True

    def note_start(self, key: JobKey, num_gpus: int) -> bool:
        """The job runs on that many GPUs: next time it may go anywhere. Returns whether anything has changed."""
        changed = self.clear_constraint(key)
        elsewhere = self.elsewhere.get(key)
        if elsewhere is None or elsewhere.gpus == num_gpus:
            return changed
        del self.elsewhere[key]  # somebody else started it, as its user had asked
        return True

    def keep_off(self, nodes: Mapping[JobKey, frozenset[str]]) -> None:
        """Set the nodes that jobs are kept off for now, in place of those of the cycle before."""
        self.kept_off = dict(nodes)

    def set_estimates(self, found: Mapping[tuple[str, str], Estimate]) -> None:
        """Set all estimates anew, in place of those before."""
        self.estimates = dict(found)

    def learn_estimates(self, found: Mapping[tuple[str, str], Estimate]) -> None:
        """Take over newer estimates; beyond MOST_ESTIMATES those that have not changed for longest are dropped."""
        for name, estimate in found.items():
            self.estimates.pop(name, None)
            self.estimates[name] = estimate
        while len(self.estimates) > MOST_ESTIMATES:
            del self.estimates[next(iter(self.estimates))]

    @contextmanager
    def whole_or_not(self) -> Iterator[None]:
        """Within, an exception takes back every change that was made to the ledger since the beginning."""
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
        """Every job that a fact is known of."""
        return set().union(self.originals, self.pins, self.refusals, self.served, self.yielded, self.elsewhere)

    def forget(self, gone: set[JobKey]) -> None:
        """Drop every fact about these jobs."""
        for facts in (self.originals, self.pins, self.refusals, self.served, self.yielded, self.elsewhere):
            for key in gone & facts.keys():
                del facts[key]
