"""Finished cycles without a controller: what Slurm says and a policy decides, for tests of texts for users."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from controller.admin.explain.cycle_view import CycleView
from controller.cycle.changes import JobChanges
from controller.cycle.decision.decider import Decided
from controller.cycle.decision.plan import Plan, make_plan
from controller.cycle.view.result import CycleResult
from controller.observe.observer import Observer
from controller.profiles.current import NO_CONTENTION, ContentionByRun
from controller.slurm.model.job import SlurmJob
from controller.state.ledger import Ledger
from policies.api import load_policy, ordered_by
from tests.unit.controller.examples.build import snapshot

DL = frozenset({"dl"})


def scene(
    *jobs: SlurmJob,
    policy: str = "fifo",
    by: str = "",
    ledger: Ledger | None = None,
    problem: str = "",
    measured: ContentionByRun = NO_CONTENTION,
    options: Mapping[str, object] | None = None,
    **cluster: Any,
) -> CycleView:
    """One cycle over these jobs, decided by that policy with those options (named `by`), and not carried out yet."""
    ledger = ledger or Ledger()
    observation = Observer().observe(snapshot(*jobs, **cluster), ledger, DL, measured)
    decider = load_policy(policy, options)
    plan = make_plan(observation.state, decider.decide(observation.state), decider.spec)
    assert isinstance(plan, Plan), plan
    orders = ordered_by(decider) if by in {"", policy, f"fallback:{policy}"} else ""
    decided = Decided(plan, by or policy, 0.004, problem, orders) if len(observation.state.pending) else None
    return CycleView(CycleResult(observation, JobChanges(), (), decided, in_transit=False), ledger, DL)


def undecided(*jobs: SlurmJob, ledger: Ledger | None = None, **cluster: Any) -> CycleView:
    """One cycle in which neither policy nor fallback decided."""
    ledger = ledger or Ledger()
    observation = Observer().observe(snapshot(*jobs, **cluster), ledger, DL)
    return CycleView(CycleResult(observation, JobChanges(), (), None, in_transit=False), ledger, DL)


def some(facts: Mapping[str, str], *names: str) -> dict[str, str]:
    """Those facts only."""
    return {name: facts[name] for name in names}
