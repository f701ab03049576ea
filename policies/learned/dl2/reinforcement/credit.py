"""Returns of jobs and advantages of actions, from the slots of an episode.

This is not in DL2's paper, which gives each action of a slot the same return.

The reward of a slot is a sum over jobs (equation 1), and so is its value: V(s) = sum over jobs of V_j(s). With r_j for the job's
part of the reward, and s' for the first state of the next slot,

    G_j = r_j + gamma ((1 - slot_lambda) V_j(s') + slot_lambda G_j')            the return of job j in a slot

Within a slot time stands still, so an action changes the value by delta_k = V(s_{k+1}) - V(s_k), and the last one by
sum of G_j - V(s_k). The advantage of action k is the generalized advantage estimate without discount,
A_k = delta_k + step_lambda A_{k+1} (Schulman et al., ICLR 2016, equation 16, with gamma = 1).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from policies.learned.dl2.state_columns import States

Floats = npt.NDArray[np.float32]
NO_JOB = -1


@dataclass
class Slot:
    """The steps of one slot of an environment. Bound: the actions of one slot."""

    states: list[States] = field(default_factory=list)
    masks: list[npt.NDArray[np.bool_]] = field(default_factory=list)
    actions: list[int] = field(default_factory=list)
    log_probs: list[float] = field(default_factory=list)
    jobs: list[tuple[int, ...]] = field(default_factory=list)
    """The jobs that each state shows, by row."""
    rewards: dict[int, float] = field(default_factory=dict)
    """The part of the slot's reward by job; a job without an entry has 0."""


@dataclass(frozen=True, slots=True)
class Credit:
    """Returns (steps, J), 0 in rows without a job; where rows have a job (steps, J); and advantages (steps)."""

    returns: Floats
    has_job: npt.NDArray[np.bool_]
    advantages: Floats


def credit_of(
    slots: Sequence[Slot],
    values: Floats,
    *,
    gamma: float,
    slot_lambda: float,
    step_lambda: float,
    later: Mapping[int, float] | None = None,
) -> Credit:
    """Return the credit of all steps of an episode that ended with the last of these slots.

    `values` (steps, J) are those of the jobs before each step, by row. If the episode was cut off, `later` has the values of the
    jobs in the slot after the last of these, in place of returns that are not known.
    """
    returns, has_job = np.zeros_like(values), np.zeros(values.shape, dtype=np.bool_)
    advantages = np.zeros(len(values), dtype=np.float32)
    end = len(values)
    later = later or {}
    for slot in reversed(slots):
        begin = end - len(slot.actions)
        own = {job: slot.rewards.get(job, 0.0) + gamma * later.get(job, 0.0) for shown in slot.jobs for job in shown}
        for step, shown in enumerate(slot.jobs, begin):
            returns[step, : len(shown)] = [own[job] for job in shown]
            has_job[step, : len(shown)] = True
        steps = slice(begin, end)
        advantages[steps] = _advantages(slot.jobs, values[steps] * has_job[steps], returns[steps], step_lambda)
        at_begin = dict(zip(slot.jobs[0], values[begin].tolist(), strict=False))
        later = {
            job: (1.0 - slot_lambda) * at_begin.get(job, found) + slot_lambda * found for job, found in own.items()
        }
        end = begin
    return Credit(returns, has_job, advantages)


def values_at_begin(slot: Slot, values: Floats) -> dict[int, float]:
    """Return the value of each job in the first state of the slot that shows it; `values` (steps, J) are those of its states."""
    found: dict[int, float] = {}
    for shown, of_rows in zip(slot.jobs, values.tolist(), strict=True):
        for job, value in zip(shown, of_rows, strict=False):
            found.setdefault(job, value)
    return found


def _advantages(jobs: Sequence[tuple[int, ...]], values: Floats, returns: Floats, step_lambda: float) -> Floats:
    """Return the advantages of a slot's actions. The last action for a batch of jobs leads to their returns."""
    before, at_end = values.sum(1), returns.sum(1)
    found = np.zeros(len(jobs), dtype=np.float32)
    following = 0.0
    for step in range(len(jobs) - 1, -1, -1):
        is_last = step + 1 == len(jobs) or jobs[step + 1] != jobs[step]
        after = at_end[step] if is_last else before[step + 1]
        following = float(after - before[step]) + (0.0 if is_last else step_lambda * following)
        found[step] = following
    return found
