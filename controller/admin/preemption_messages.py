"""Messages of the Admin service about preemptions, and the checks of a request for one."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace

import numpy as np

from controller.admin.explain.cycle_view import CycleView
from controller.base.apart import each
from controller.base.text import count
from controller.observe.near_nodes import near_nodes_text
from controller.observe.observer import left_to_slurm
from controller.observe.resize import ResizeError, resized
from controller.observe.shape import shape_of
from controller.observe.user_options import read_user_options
from controller.preempt.manager import PreemptionManager
from controller.preempt.text import facts_of, why_text
from controller.slurm.model.job import Phase, SlurmJob
from controller.state.preemption import Preemption, RelocationConstraint
from policies.placement.requests import Requests
from protos.headway.v1 import admin_pb2

MOST = 1000
"""Maximum number of preemptions in one answer."""
_OF_LATE_S = 3600.0
"""Time after its end for which `headway why` mentions a preemption, in seconds."""
LONGEST_S = 3570.0
"""Longest time to save, in seconds: agents and ranks keep a request for an hour at most, including the wait for the last rank."""


def preemption_record(preemption: Preemption) -> admin_pb2.PreemptionRecord:
    """Return one preemption with all its fields."""
    constraint = preemption.constraint
    return admin_pb2.PreemptionRecord(
        number=preemption.number,
        job_id=preemption.job_id,
        cause=preemption.cause.value,
        why=preemption.why,
        way=preemption.way.value,
        force=preemption.force,
        nodes=preemption.nodes,
        avoid=sorted(constraint.avoid),
        only=sorted(constraint.only),
        gpus=constraint.gpus,
        within_s=preemption.within_s,
        stage=preemption.stage.value,
        open=preemption.open,
        asked_s=preemption.asked_s,
        saved_s=preemption.saved_s,
        stopped_s=preemption.stopped_s,
        started_s=preemption.started_s,
        resumed_s=preemption.resumed_s,
        ended_s=preemption.ended_s,
        step=preemption.step,
        problem=preemption.problem,
        restarts=preemption.restarts,
        reason=preemption.reason or "",
    )


def preemption_list(found: Iterable[Preemption]) -> admin_pb2.PreemptionList:
    """Return several preemptions, in the given order."""
    records = each("the list of preemptions", found, preemption_record, lambda one: one.job_id)
    return admin_pb2.PreemptionList(preemptions=records)


def preemption_text(preemptions: PreemptionManager, job: SlurmJob | None, now_s: float) -> tuple[str, dict[str, str]]:
    """Return a sentence and numbers about a job's newest preemption, when it is open or ended recently; else empty."""
    if job is None:
        return "", {}
    row = next(iter(preemptions.recent(job, 1)), None)
    facts = {} if row is None else facts_of(row)
    if job.phase is Phase.RUNNING:
        found = preemptions.preemptibility(job)
        facts["preemptible"] = found.way.value if found.may else f"no: {found.why_not}"
    if row is None or (row.ended_s is not None and now_s - row.ended_s > _OF_LATE_S):
        return "", facts
    return why_text(row, now_s), facts


class InvalidPreemptionError(ValueError):
    """An operator's request is invalid; the text says why."""


def constraint_of(request: admin_pb2.PreemptRequest, job: SlurmJob, nodes: Collection[str]) -> RelocationConstraint:
    """Return the constraint in an operator's request. `nodes` are the managed nodes. Raises InvalidPreemptionError."""
    avoid, only = set(request.avoid), set(request.only)
    here = {share.node for share in job.allocated}
    if request.away:
        avoid |= here
    if unknown := sorted((avoid | only) - set(nodes) - here):
        raise InvalidPreemptionError(f"no managed node is called {', '.join(unknown)} (`headway status` lists them)")
    if both := sorted(avoid & only):
        raise InvalidPreemptionError(f"{', '.join(both)}: a node cannot be both required and avoided")
    if request.HasField("gpus") and request.gpus < 1:
        raise InvalidPreemptionError("a job needs at least one GPU")
    return RelocationConstraint(frozenset(avoid), frozenset(only), request.gpus if request.HasField("gpus") else None)


def check_left_to_slurm(constraint: RelocationConstraint, view: CycleView, job: SlurmJob) -> None:
    """Raise InvalidPreemptionError when the job is to be moved or resized, although only Slurm can place it."""
    why = left_to_slurm(view.result.observation, job)
    if why and constraint != RelocationConstraint():
        raise InvalidPreemptionError(
            f"job {job.key.job_id} {why}; to stop it, give neither nodes nor GPUs (`headway preempt`)"
        )


def check_size(constraint: RelocationConstraint, view: CycleView, job: SlurmJob) -> None:
    """Raise ResizeError when the job cannot have that many GPUs on this cluster."""
    if constraint.gpus is None:
        return
    request = resized(
        view.ledger.originals.get(job.key, job.request),
        constraint.gpus,
        node_gpus=view.node_gpus,
        all_gpus=int(view.state.nodes.gpus.sum()),
        options=read_user_options(job.comment),
    )
    shape = shape_of(request, view.node_gpus)
    near = near_nodes_text(job, 1 if shape is None else shape.min_nodes, view.result.observation.leaf_switches)
    if near:
        raise ResizeError(
            f"{constraint.gpus} GPUs need several nodes, which only Slurm could choose, as job {job.key.job_id} {near}"
        )


def check_growth(constraint: RelocationConstraint, view: CycleView, job: SlurmJob) -> None:
    """Raise ResizeError when the job would have more GPUs than it was submitted with.

    Slurm has checked its user's limits for that size. A larger one may be beyond them, so that the job would never run.
    """
    shape = shape_of(view.ledger.originals.get(job.key, job.request), view.node_gpus)
    if constraint.gpus is None or shape is None or constraint.gpus <= shape.num_gpus:
        return
    raise ResizeError(
        f"job {job.key.job_id} was submitted with {count(shape.num_gpus, 'GPU')}, and its user may not give it more: Slurm has "
        "checked the user's limits for that number; submit it again with more, or ask an operator"
    )


def check_place(constraint: RelocationConstraint, view: CycleView, job: SlurmJob) -> None:
    """Raise InvalidPreemptionError when the job would not fit on its remaining nodes, even if they were empty."""
    row = view.rows.get(job.key)
    if row is None or constraint.gpus is not None or not (constraint.avoid or constraint.only):
        return
    state = view.state
    there = [
        name not in constraint.avoid and (not constraint.only or name in constraint.only) for name in state.nodes.names
    ]
    nodes = np.array(there, dtype=np.bool_)
    if (now := int(state.jobs.node_set[row])) >= 0:
        nodes &= state.node_sets[now]
    node_set = state.jobs.node_set.copy()
    node_set[row] = len(state.node_sets)
    sets = np.vstack([state.node_sets.reshape(-1, len(nodes)), nodes])
    if not Requests(replace(state, node_sets=sets, jobs=replace(state.jobs, node_set=node_set))).of(row).parts:
        raise InvalidPreemptionError(
            f"job {job.key.job_id} would not fit on the remaining nodes, even if they were empty; name other nodes"
        )


def save_limit_of(request: admin_pb2.PreemptRequest) -> float | None:
    """Return the time limit of the save, seconds; None: that of the settings. Raises InvalidPreemptionError."""
    if not request.HasField("within_s"):
        return None
    if not 1 <= request.within_s <= LONGEST_S:
        raise InvalidPreemptionError(
            f"{request.within_s:g} s is not a possible time limit for the save; give 1 to {LONGEST_S:g} s"
        )
    return request.within_s
