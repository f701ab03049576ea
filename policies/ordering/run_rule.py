"""Decisions of policies that are one order and one discipline.

A simulator may apply rules in compiled code instead; it makes the same decisions.
"""

from __future__ import annotations

import numpy as np

from policies.api import Decision
from policies.model import ClusterState, FloatColumn, IntColumn, Jobs
from policies.ordering.easy_backfill import backfill
from policies.ordering.nanoseconds import NEVER, times, whole_ns
from policies.ordering.select_by_total import select_by_total
from policies.placement.rules import placement_rule
from policies.rule import Discipline, Layout, Order, Rule
from policies.selection import active, by, fill, select


def apply_rule(rule: Rule, state: ClusterState) -> Decision:
    """Return the decision of that rule."""
    keys = order_keys(rule, state)
    placing = placement_rule(rule.layout)
    match rule.discipline:
        case Discipline.SELECT if rule.layout == Layout.ANYWHERE:
            return select_by_total(state, by(keys, active(state)))
        case Discipline.SELECT:
            return select(state, by(keys, active(state)))
        case Discipline.BACKFILL:
            return backfill(state, by(keys, state.pending), placing=placing)
        case Discipline.STRICT | Discipline.SKIP:
            strict = rule.discipline == Discipline.STRICT
            return fill(state, by(keys, state.pending), strict=strict, placing=placing)


def order_keys(rule: Rule, state: ClusterState) -> IntColumn:
    """Return the sort key of every job, least first; jobs without an estimate come last where the order needs one.

    With `by_tier` it is the rank by tier, and by the rule's order within a tier.
    """
    keys, tier = _keys_of_order(rule, state), state.jobs.partition_tier
    return keys if tier is None or not rule.by_tier else _ranks(-tier, keys)


def _keys_of_order(rule: Rule, state: ClusterState) -> IntColumn:
    jobs = state.jobs
    match rule.order:
        case Order.ARRIVAL:
            keys = np.zeros(len(jobs), dtype=np.int64)
        case Order.GPUS:
            keys = jobs.num_gpus
        case Order.DURATION:
            keys = whole_ns(jobs.duration_estimate_s)
        case Order.REMAINING:
            keys = whole_ns(state.remaining_s)
        case Order.ATTAINED:
            keys = whole_ns(jobs.attained_gpu_s)
        case Order.REMAINING_GPUS:
            keys = times(whole_ns(state.remaining_s), jobs.num_gpus)
        case Order.QUEUES:
            threshold = min(round(rule.threshold_gpu_s * 1e9), NEVER)
            keys = (whole_ns(jobs.attained_gpu_s) >= threshold).astype(np.int64)
        case Order.LEVELS:
            keys = _levels(whole_ns(jobs.attained_gpu_s), max(min(round(rule.threshold_gpu_s * 1e9), NEVER), 1))
        case Order.SLURM:
            keys = _slurm_keys(jobs)
    return keys


def _levels(attained: IntColumn, threshold: int) -> IntColumn:
    """Return how often each value must be halved until it is below the threshold."""
    levels = np.zeros(len(attained), dtype=np.int64)
    left = attained.copy()
    while (high := left >= threshold).any():
        levels += high
        left[high] >>= 1
    return levels


def _slurm_keys(jobs: Jobs) -> IntColumn:
    """Return the rank of each job by tier and priority, the highest first; jobs with the same two have the same rank.

    Jobs without a priority come after those that have one.
    """
    tier = np.zeros(len(jobs)) if jobs.partition_tier is None else -jobs.partition_tier
    priority = np.zeros(len(jobs)) if jobs.slurm_priority is None else -jobs.slurm_priority
    priority = np.where(np.isnan(priority), np.inf, priority)
    return _ranks(tier, priority)


def _ranks(first: IntColumn | FloatColumn, second: IntColumn | FloatColumn) -> IntColumn:
    """Return the rank of each row by both columns, the least first; rows with the same two values have the same rank."""
    order = np.lexsort((second, first))
    differs = (first[order][1:] != first[order][:-1]) | (second[order][1:] != second[order][:-1])
    ranks = np.zeros(len(order), dtype=np.int64)
    ranks[order[1:]] = np.cumsum(differs)
    return ranks
