"""Text and numbers on a waiting job: its need, the free capacity, the jobs before it. Pure functions of a `CycleView`."""

from __future__ import annotations

import math

import numpy as np

from controller.admin.explain.cycle_view import CycleView
from controller.admin.explain.free_capacity import Fit
from controller.base.text import count, duration
from controller.cycle.room.preemptions import BY_RULES
from controller.preempt.reports.silent_nodes import kept_off_text
from controller.state.decided_by import DecidedBy
from policies.model import EstimateSource, Split

_SOURCES = {
    EstimateSource.UNKNOWN: "unknown",
    EstimateSource.TIME_LIMIT: "time limit",
    EstimateSource.HISTORY: "past runs of the same user and job name",
    EstimateSource.TRUTH: "known",
}


def policy_text(policy: str) -> str:
    """Return "policy srtf", "the fallback policy fifo-skip" or "Slurm's rules of preemption"."""
    if policy == BY_RULES:
        return policy
    by = DecidedBy.parse(policy)
    return f"the fallback policy {by.policy}" if by.fallback else f"policy {by.policy}"


def need_text(view: CycleView, row: int) -> str:
    """Return what the job of that row asks for: "needs 4 GPUs on each of 2 nodes"."""
    return f"needs {shape_text(view, row)}"


def shape_text(view: CycleView, row: int) -> str:
    """Return the shape that the job of that row asks for: "4 GPUs on each of 2 nodes"."""
    jobs = view.state.jobs
    total, least, most = int(jobs.num_gpus[row]), int(jobs.min_nodes[row]), int(jobs.max_nodes[row])
    alone = bool(jobs.exclusive[row])
    split = Split(int(jobs.split[row]))
    if least == most == 1:
        return f"{count(total, 'GPU')} on one node{', with no other job on it' if alone else ''}"
    others = ", with no other job on them" if alone else ""
    if split is Split.FIXED:
        return f"{count(total // least, 'GPU')} on each of {least} nodes{others}"
    parts = " in equal parts" if split is Split.EVEN else ""
    return f"{count(total, 'GPU')}{parts} on {_node_range(least, most, total)}{others}"


def _node_range(least: int, most: int, total: int) -> str:
    if least == most:
        return count(least, "node")
    if most >= total:
        return f"{count(least, 'node')} or more"
    return f"{least} to {most} nodes"


def fit_text(view: CycleView, row: int) -> str:
    """Return the text on why the job does not fit now, or that it does."""
    silent = view.ledger.kept_off.get(view.result.observation.rows[row].key)
    words = _reserved_text(view, row) or _fit_text(view, row)
    return f"{words}; {kept_off_text(silent)}" if silent else words


def _reserved_text(view: CycleView, row: int) -> str:
    """Return which reservation keeps the job off nodes with which it would fit; empty when none does."""
    snapshot, job = view.result.observation.snapshot, view.result.observation.rows[row]
    if not snapshot.reservations or view.free_capacity.fit(row).parts:
        return ""
    nodes = view.nodes_without_reservations(job)
    if not view.free_capacity.fits_empty(row, nodes):
        return ""
    names = {view.state.nodes.names[node] for node in np.flatnonzero(nodes).tolist()}
    now_s, limit_s = snapshot.time_s, job.time_limit_s
    end_s = math.inf if limit_s is None else now_s + limit_s
    for other in sorted(snapshot.reservations, key=lambda reservation: reservation.start_time_s):
        if other.name == job.reservation or other.end_time_s <= now_s or other.start_time_s >= end_s:
            continue
        if names.isdisjoint(other.nodes):
            continue
        if other.start_time_s <= now_s:
            return f"its nodes are reserved ({other.name}) for another {duration(other.end_time_s - now_s)}"
        long = "it has no time limit" if limit_s is None else f"its time limit is {duration(limit_s)}"
        return (
            f"its nodes are reserved ({other.name}) in {duration(other.start_time_s - now_s)}, and {long}: with a --time that "
            "ends before, it can start"
        )
    return ""


def _fit_text(view: CycleView, row: int) -> str:
    fit = view.free_capacity.fit(row)
    if not fit.parts:
        return _never(fit)
    if fit.fits:
        return f"it fits now ({_some_nodes(fit)})"
    if fit.short_of:
        return f"enough GPUs are free, but not enough {fit.short_of} on the same nodes"
    if fit.fits_spread:
        return f"it would fit now, but only on more nodes than the {fit.needs_nodes} that it needs"
    return _not_enough(fit)


def _never(fit: Fit) -> str:
    """Return why the job would not start even on empty nodes."""
    if fit.nodes_allowed == 0:
        return "no node satisfies its request (partition, features, GPU type, reservation, node list)"
    if fit.nodes_available == 0:
        one = fit.nodes_allowed == 1
        which = "the only node that it may use is" if one else f"all {fit.nodes_allowed} nodes that it may use are"
        return f"{which} down or drained"
    return "it would not fit on its eligible nodes that are up, even if they were empty"


def _not_enough(fit: Fit) -> str:
    if fit.largest is None:
        return f"no GPU is free for it on {_usable(fit)}"
    name, free = fit.largest
    if fit.needs_nodes == 1:
        return f"at most {_free_gpus(free)} free for it on one node ({name})"
    share = fit.parts[0][0]
    if len(fit.parts) == 1:
        if fit.share_nodes == 0:
            return f"of {_usable(fit)}, none has {count(share, 'GPU')} free for it"
        have = "one has" if fit.share_nodes == 1 else f"{fit.share_nodes} have"
        return (
            f"of {_usable(fit)}, {have} {count(share, 'GPU')} free for it, and {fit.needs_nodes} such nodes are needed"
        )
    return f"{_free_gpus(fit.free_total)} free for it on {_usable(fit)}"


def _free_gpus(number: int) -> str:
    return f"{count(number, 'GPU')} {'is' if number == 1 else 'are'}"


def _usable(fit: Fit) -> str:
    number = fit.nodes_available
    return "the only node that it may use" if number == 1 else f"the {number} nodes that it may use"


def _some_nodes(fit: Fit) -> str:
    names = [name for name, free in fit.free[: fit.needs_nodes] if free > 0]
    return ", ".join(names[:4]) + (", ..." if len(names) > 4 else "")


def order_text(view: CycleView, row: int) -> str:
    """Return a sentence with the job's position in the policy's order and the rule of that order."""
    policy = view.policy
    if not policy:
        return "No decision has been made on it yet."
    rule = f"{policy_text(policy)} {f'orders {view.ordered_by}' if view.ordered_by else 'decides the order'}"
    position = view.positions.get(row)
    if position is None:
        ahead = "The policy's order does not contain it"
    elif position == 1:
        ahead = "It is the first in the order"
    else:
        ahead = f"{count(position - 1, 'job')} {'is' if position == 2 else 'are'} ahead of it"
    return f"{ahead}; {rule}."


def beyond_text(view: CycleView, row: int) -> str:
    """Return a sentence on a job that the policy was not shown, because it looks only at the first waiting jobs; empty for
    others."""
    shown = _shown_jobs(view, row)
    return f" It is behind the first {count(shown, 'waiting job')}, and the policy looks at no others." if shown else ""


def _shown_jobs(view: CycleView, row: int) -> int:
    """Return the number of waiting jobs that the policy was shown; 0 if it was shown this one, or all."""
    shown = 0 if view.result.decided is None else view.result.decided.plan.considered
    return shown if shown and row not in view.state.pending[:shown] else 0


def waiting_facts(view: CycleView, row: int) -> dict[str, str]:
    """Return the numbers, all as text; the names have the units."""
    jobs, fit = view.state.jobs, view.free_capacity.fit(row)
    facts = {
        "shape": shape_text(view, row),
        "nodes_allowed": str(fit.nodes_allowed),
        "nodes_available": str(fit.nodes_available),
        "free_gpus": ",".join(f"{name}:{free}" for name, free in fit.free),
        "free_gpus_total": str(fit.free_total),
        "largest_free": "0" if fit.largest is None else f"{fit.largest[1]} ({fit.largest[0]})",
        "division": " + ".join(f"{nodes} x {gpus}" for gpus, nodes in fit.parts),
        "fits_now": "yes" if fit.fits else "no",
        "estimate_source": _SOURCES[EstimateSource(int(jobs.estimate_source[row]))],
        "policy": view.policy,
        "jobs_waiting": str(len(view.positions)),
    }
    for name, column in (("estimate_s", jobs.duration_estimate_s), ("estimate_spread_s", jobs.duration_spread_s)):
        if not math.isnan(value := float(column[row])):
            facts[name] = f"{value:.0f}"
    if jobs.service_s[row] > 0:
        facts["service_s"] = f"{float(jobs.service_s[row]):.0f}"
    if (position := view.positions.get(row)) is not None:
        facts |= {"queue_position": str(position), "jobs_ahead": str(position - 1)}
    facts |= _order_facts(view, row)
    if shown := _shown_jobs(view, row):
        facts["beyond_considered"] = str(shown)
    if view.result.decided is not None and view.result.decided.problem:
        facts["fallback_because"] = view.result.decided.problem
    return facts


def _order_facts(view: CycleView, row: int) -> dict[str, str]:
    """Return the order in force, and Slurm's priority and tier of the job, where they are known: jobs are compared by these.

    Numbers below 0 stand for the order of submission where Slurm computes no priority (priority/basic), and are left out.
    """
    facts = {"ordered_by": view.ordered_by} if view.ordered_by else {}
    jobs = view.state.jobs
    for name, column in (("slurm_priority", jobs.slurm_priority), ("partition_tier", jobs.partition_tier)):
        if column is not None and (value := float(column[row])) >= 0:
            facts[name] = f"{value:.0f}"
    return facts
